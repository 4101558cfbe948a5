"""Partitioners of papers, kept for comparison: none wins on a net of the benchmarks.

method                                    function                file
`hypergraph`: Mt-KaHyPar's parts          partition_hypergraph    hypergraph.py
`kernighan-lin`: SpiNeMap's SpiNeCluster  kernighan_lin           kernighan_lin.py
`streaming`: EdgeMap's single pass        partition_by_streaming  streaming.py
`neumap`: adjacent layers together        partition_by_neumap     neumap.py
"""
