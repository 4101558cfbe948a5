"""Other people's models -> Network, with the spikes that they have where they come from.

room         reads                                                     main function
torch/       modules of nwcompile.nn, snnTorch, SpikingJelly, norse,
             sinabs, and networks with ReLUs                           from_torch, convert.py:convert
nir/         NIR files, with a time step and a dialect; writes them    from_nir, write.py:to_nir
lava/        lava-dl `.net` files, integer weights untouched           from_lava

real-valued samples as what a chip takes in every step                 encode.py:encode
HDF5 files, read in a process of their own                             hdf5.py, hdf5_child.py
"""
