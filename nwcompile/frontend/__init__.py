"""Front ends: read the models of other frameworks into a Network.

folder       reads                                                     main function
torch/       modules of nwcompile.nn, snnTorch, SpikingJelly, norse,
             sinabs, and ReLU networks                                 from_torch, convert.py:convert
nir/         NIR files, with a time step and a dialect; writes them    from_nir, write.py:to_nir
lava/        lava-dl `.net` files; integer weights stay unchanged      from_lava

real-valued samples as input values per step               encode.py:encode
HDF5 files, read in a separate process                     hdf5.py, hdf5_child.py
"""
