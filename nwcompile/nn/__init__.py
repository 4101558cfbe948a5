"""Trainable PyTorch layers with the dynamics that nwcompile compiles.

purpose                                              function                        file or folder
neurons and synapses                                 LIFLayer, H1v2Layer, ...        layers/
trainable delays                                     Delay, DelayedLinear, ...       layers/delays.py
custom neurons, written as functions                 ProgramLayer, spike             layers/program.py, neurons/
clear states, recompute effective weights            prepare_net                     layers/prepare.py
train on a chip's integers                           quantize_aware                  qat/
train for short steps and little traffic             busiest_core_loss, prune        training/
train within a chip's memory                         SparseTraining                  training/sparse_training.py
train for device mismatch                            inject_mismatch                 training/inject.py
surrogate gradients, losses, metrics                 surrogate, losses, metrics      ops/surrogate.py, training/
recordings of events as spike tensors                data.cached, data.batches       data/
long sequences over several processes                distributed.pipeline            distributed/
spike times in continuous time, exact gradients      event.EventLIF                  event.py
the dynamics as torch operators                      scan, fire, spike_matmul        ops/
"""

from nwcompile.errors import require_torch

require_torch("nwcompile.nn")

from nwcompile.lazy_names import look_up
from nwcompile.nn import data, event
from nwcompile.nn.layers.delays import Delay, DelayAnnealing, DelayedConv2d, DelayedLinear, freeze_delays
from nwcompile.nn.layers.h1 import H1v1Frontend, H1v1Layer, H1v1Synapse, H1v2Frontend, H1v2Layer, H1v2Synapse
from nwcompile.nn.layers.lif import LIFLayer, LIFSynapse
from nwcompile.nn.layers.prepare import prepare_net
from nwcompile.nn.layers.program import ProgramLayer
from nwcompile.nn.layers.quantized_relu import QuantizedReLU
from nwcompile.nn.layers.sequential import Sequential
from nwcompile.nn.neurons.neuron import spike
from nwcompile.nn.ops import surrogate
from nwcompile.nn.qat.network import QuantizedNetwork
from nwcompile.nn.training import losses, metrics
from nwcompile.nn.training.busiest_core import busiest_core_loss, spikes_of
from nwcompile.nn.training.inject import inject_mismatch
from nwcompile.nn.training.losses import (
    SignAnnealing,
    firing_rate_target_mse_loss,
    topology_loss,
    weight_magnitude_loss,
)
from nwcompile.nn.training.sparse_training import SparseTraining, finish_pruning, prune

__all__ = ["LIFLayer", "LIFSynapse", "ProgramLayer", "QuantizedReLU", "Sequential", "prepare_net", "spike"]
__all__ += ["H1v1Frontend", "H1v1Layer", "H1v1Synapse", "H1v2Frontend", "H1v2Layer", "H1v2Synapse"]
__all__ += ["Delay", "DelayAnnealing", "DelayedConv2d", "DelayedLinear", "freeze_delays"]
__all__ += ["QuantizedNetwork", "SparseTraining", "finish_pruning", "inject_mismatch", "prune", "quantize_aware"]
__all__ += ["SignAnnealing", "busiest_core_loss", "firing_rate_target_mse_loss", "spikes_of", "topology_loss"]
__all__ += ["data", "event", "losses", "metrics", "surrogate", "weight_magnitude_loss"]


def __getattr__(name: str):
    value = look_up(__name__, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
