"""Trainable PyTorch layers whose dynamics are those that nwcompile compiles."""

from nwcompile.nn import surrogate
from nwcompile.nn.lif import LIFLayer, LIFSynapse
from nwcompile.nn.prepare import prepare_net
from nwcompile.nn.sequential import Sequential

__all__ = ["LIFLayer", "LIFSynapse", "Sequential", "prepare_net", "surrogate"]
