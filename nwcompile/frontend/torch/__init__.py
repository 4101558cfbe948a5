"""Trained torch modules with nwcompile.nn layers -> Network."""

from contextlib import contextmanager
from copy import copy

import numpy as np
import torch

from nwcompile.errors import ModelError
from nwcompile.frontend.torch.build import Builder
from nwcompile.frontend.torch.check import verify
from nwcompile.frontend.torch.operations import SUPPORTED, array, verify_finite
from nwcompile.frontend.torch.record import Recorder, layer_name
from nwcompile.frontend.torch.symbols import Recording
from nwcompile.ir.connection import Dense
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import NeuronSpec
from nwcompile.nn import LIFLayer, prepare_net

RESETS = {"subtraction": "subtract", "zero": "zero", "none": "none"}
INPUT_NAMES = ("input", "x", "network_input")


def from_torch(module: torch.nn.Module, example_input) -> Network:
    """The float network that a module of nwcompile.nn layers computes.

    `example_input` is a tensor or array `[B, T, *shape]`, as long as a few steps. The module is run on it, in eval
    mode, and may take all steps at once (a Sequential, or a forward that loops over time) or one step `[B, *shape]` at
    a time. Between the layers it may use Linear, Conv1d, Conv2d, AvgPool2d, MaxPool2d of spikes, BatchNorm, Flatten,
    Dropout, Identity, sums and differences of tensors, products with numbers, and whatever only moves entries
    (indexing, views, cat, stack). What a layer receives from an earlier step becomes a connection with that delay.
    What comes after the last layer is the reader's business and left out, but for linear maps with weights: they become
    readouts, layers that never fire and whose membrane is the map's result.

    Layers are named by their module path, junctions by that of the linear map whose result they hold. In a plain
    torch.nn.Sequential the `(spikes, mem)` of a layer goes on as its spikes. The module is left as it was, its kept
    state cleared. Raises ModelError for what cannot be followed, weights that are not finite, or an unusable example.
    """
    x = _example(module, example_input)
    verify_finite(module)
    found: list[Network] = []
    refused: list[ModelError] = []
    failed: list[RunFailed] = []
    for one_step in (False, True):
        try:
            found.append(_import(module, x, one_step))
        except ModelError as e:
            refused.append(e)
        except RunFailed as e:
            failed.append(e)
    if found:  # a module that keeps spikes in its attributes runs on all steps at once too, but then feeds nothing back
        return max(found, key=_n_late)
    if refused:
        raise refused[0]
    for failure in failed:
        if failure.refused:
            raise ModelError(f"{type(module).__name__} uses {failure.refused[0]}; {SUPPORTED}")
    raise ModelError(
        f"{type(module).__name__} cannot be run on example_input of shape {list(np.shape(example_input))}: with all "
        f"steps, {failed[0]}; step by step, {failed[1]}; example_input must be [B, T, *shape] as the module takes it"
    )


def _example(module: torch.nn.Module, example_input) -> torch.Tensor:
    """The example as float32 on the module's device, with at least 2 samples and 2 steps, so that axes differ."""
    if not isinstance(module, torch.nn.Module):
        raise ModelError(f"from_torch takes a torch.nn.Module, not {type(module).__name__}")
    try:
        x = torch.as_tensor(example_input)
    except (TypeError, ValueError, RuntimeError) as e:
        raise ModelError(f"example_input must be numbers [B, T, *shape]: {e}") from None
    if x.ndim < 3 or 0 in x.shape:
        raise ModelError(f"example_input must be [B, T, *shape], got shape {list(x.shape)}")
    if x.is_complex() or (x.is_floating_point() and not x.isfinite().all()):
        raise ModelError("example_input has NaN, infinite or complex values; give real, finite numbers")
    parameter = next(module.parameters(), torch.empty(0))
    x = x.detach().to(parameter.device, parameter.dtype if parameter.is_floating_point() else torch.float32)
    for axis in (0, 1):
        x = torch.cat([x, x], axis) if x.shape[axis] == 1 else x
    return x


def _import(module: torch.nn.Module, x: torch.Tensor, one_step: bool) -> Network:
    paths = dict(module.named_modules())
    input_name = next(name for name in INPUT_NAMES if name not in paths)
    with _restored(module):
        recorder = Recorder(module, x, one_step, input_name)
        try:
            recording = recorder.record()
        except Exception as e:
            raise RunFailed(e, recorder.refused) from e
        if not recording.calls:
            raise ModelError(
                f"{type(module).__name__} has no spiking layer that is called on the example; "
                "it needs at least one nwcompile.nn.LIFLayer"
            )
        verify(recording)
        return _build(recording, paths)


class RunFailed(Exception):
    """The module raised `cause` on the example; `refused`: what could not be followed before that."""

    def __init__(self, cause: Exception, refused: list[str]):
        text = (str(cause).strip().splitlines() or [""])[0]
        super().__init__(f"{type(cause).__name__}: {text}")
        self.refused = refused


def _build(recording: Recording, modules: dict[str, torch.nn.Module]) -> Network:
    builder = Builder(recording, {layer_name(path) for path in recording.calls})
    for path, calls in recording.calls.items():
        name, layer, fed = layer_name(path), modules[path], calls[-1].fed
        builder.add_layer(name, _neuron(layer, fed.shape), fed)
        if layer.layer_topology == "RC":
            builder.connections.append(Dense(name, name, array(layer.w_rec.T), delay=1))
    builder.add_readouts()
    return builder.network()


def _neuron(layer: LIFLayer, shape: tuple[int, ...]) -> NeuronSpec:
    numbers = {}
    for name, values in (("beta", array(layer.beta)), ("threshold", array(layer.thresholds))):
        numbers[name] = float(values[0]) if (values == values[0]).all() else values.reshape(shape)
    return NeuronSpec(strict=False, reset=RESETS[layer.reset_mechanism], **numbers)


def _n_late(network: Network) -> int:
    return sum(c.aligned_delay > 0 for c in network.connections)


@contextmanager
def _restored(module: torch.nn.Module):
    """Eval mode and cleared state inside; modes and attributes as they were, and cleared state, afterwards."""
    own = vars(torch.nn.Module()).keys() - {"training", "_buffers"}
    before = [(m, {k: (v, copy(v) if isinstance(v, list | dict) else v) for k, v in vars(m).items() if k not in own})
              for m in module.modules()]  # fmt: skip
    module.eval()
    prepare_net(module)
    try:
        yield
    finally:
        for m, attributes in before:
            for name in vars(m).keys() - own - attributes.keys():
                del m.__dict__[name]
            for name, (value, content) in attributes.items():
                if isinstance(value, list):
                    value[:] = content
                elif isinstance(value, dict):
                    value.clear()
                    value.update(content)
                m.__dict__[name] = value
        prepare_net(module)
