"""Recordings of events, or frames, to spike tensors: made once, cached as bits on disk or on a device, fed in batches.

    binning = data.Binning(sensor=(700, 1, 1), bin_length=4000, spatial_factor=1 / 7, include_incomplete=True)
    train = data.cached(samples, binning, "cache")          # or data.packed(samples, binning): in memory
    for spikes, lengths, labels in data.batches(train.to("cpu"), batch_size=64, shuffle=True):
        ...                                                 # spikes [B, T, N]

binning.py (recording to spikes), packed.py (as bits), cache.py (on disk), batches.py (for training), coding.py (random
coding of numbers), events.py and event_files.py (what a recording is, and its files), samples.py (one sample).

`data.read_events("recording.aedat4")` gives the events of a file of an event camera.
`samples` is any map-style data set of pairs (recording, label), as Tonic's are. Datasets and loaders are PyTorch's own.
"""

from nwcompile.nn.data.batches import Batch, Transformed, batches
from nwcompile.nn.data.binning import Binning
from nwcompile.nn.data.cache import cached
from nwcompile.nn.data.coding import RandomRate
from nwcompile.nn.data.event_files import read_events
from nwcompile.nn.data.packed import Packed, pack_bits, packed, unpack_bits

ERROR_CODE = "NW8102"
__all__ = [
    "Batch",
    "Binning",
    "Packed",
    "RandomRate",
    "Transformed",
    "batches",
    "cached",
    "pack_bits",
    "packed",
    "read_events",
    "unpack_bits",
]
