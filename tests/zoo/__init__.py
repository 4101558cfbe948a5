"""Ten networks of the frameworks' own tutorials on five chips: what lands, how, and what bounds the rest.

what                                                 file
a network and the gains of its weights               net.py
what it is shown                                     inputs.py
the networks as their authors write them             snntorch_nets.py, spikingjelly_nets.py, norse_sinabs_nets.py
one network on one chip                              cell.py
the 50 cells and what is expected of them            test_cells.py
`python -m tests.zoo` prints them                    __main__.py
"""
