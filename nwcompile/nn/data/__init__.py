"""Spike tensors from recordings of events or frames: binned once, cached as bits on disk or on a device, then batched.

    binning = data.Binning(sensor=(700, 1, 1), bin_length=4000, spatial_factor=1 / 7, include_incomplete=True)
    train = data.cached(samples, binning, "cache")          # or data.packed(samples, binning): in memory
    for spikes, lengths, labels in data.batches(train.to("cpu"), batch_size=64, shuffle=True):
        ...                                                 # spikes [B, T, N]

events.py (files of event cameras, and the format of a recording), binning.py (recording to spikes, random coding of
numbers), packed.py (samples as bits), cache.py (on disk), batches.py (for training).

`data.read_events("recording.aedat4")` reads the events of an event camera's file.
`samples` is any map-style data set of pairs (recording, label), such as Tonic's. Datasets and loaders are PyTorch's.
"""

from nwcompile.nn.data.batches import Batch, Transformed, batches
from nwcompile.nn.data.binning import Binning, RandomRate
from nwcompile.nn.data.cache import cached
from nwcompile.nn.data.events import read_events
from nwcompile.nn.data.packed import Packed, pack_bits, packed, unpack_bits

ERROR_CODE = "NW8102"
__all__ = ["Batch", "Binning", "Packed", "RandomRate", "Transformed"]
__all__ += ["batches", "cached", "pack_bits", "packed", "read_events", "unpack_bits"]
