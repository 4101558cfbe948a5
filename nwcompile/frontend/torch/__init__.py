"""Trained torch modules of every framework -> Network.

stage                                                function                 file
the example input, and how the module takes it       example_of, Stepwise     inputs.py
run the module and write down what it does           ModuleRecorder           record.py
follow tensors through torch's functions             Tracker                  track.py, moves.py, linear.py,
                                                                              contract.py, functional.py
what a tensor stands for                             Source, Applied, ...     symbols.py
linear maps of modules as connections                operation                operations.py
delays as connections                                delayed                  delays.py
neuron modules of the frameworks                     kind_of, traced          kind.py, kinds/
what cannot be compiled, said so                     verify                   check.py
results that the network does not give               Results                  results.py
connections and layers of what was recorded          Builder                  build.py
the network's spikes against the module's            compare_spikes           compare.py
networks with ReLUs -> spiking networks              convert                  convert.py, activations.py,
                                                                              sigma_delta.py
quantization-aware training of a module              quantize_aware           quantize_aware.py
"""

import warnings
from contextlib import contextmanager
from copy import copy
from dataclasses import replace

import numpy as np
import torch

from nwcompile.errors import ModelError, NwWarning, shown
from nwcompile.frontend.torch.build import Builder
from nwcompile.frontend.torch.check import LayoutError, verify
from nwcompile.frontend.torch.compare import compare_spikes
from nwcompile.frontend.torch.inputs import example_of, layout_of, unwrapped
from nwcompile.frontend.torch.kind import ReadNeurons
from nwcompile.frontend.torch.kinds import clear, fit, is_foreign_neuron, kind_of, stated
from nwcompile.frontend.torch.operations import SUPPORTED, verify_finite
from nwcompile.frontend.torch.record import ModuleRecorder, layer_name
from nwcompile.frontend.torch.symbols import Recording
from nwcompile.frontend.torch.track import RecordError
from nwcompile.ir.network import LAYOUTS, Network
from nwcompile.ir.neuron import NeuronSpec
from nwcompile.ir.neuron_programs.program import NeuronProgram
from nwcompile.nn import prepare_net

ERROR_CODE = "NW2301"
INPUT_NAMES = ("input", "x", "network_input")


def from_torch(module: torch.nn.Module, example_input, layout: str = "BT", relu: NeuronSpec | None = None) -> Network:
    """The float network that a spiking torch module computes.

    Neuron layers may be those of nwcompile.nn, and those of snnTorch, SpikingJelly, sinabs and norse whose step is
    elementwise, some as a NeuronSpec, the others as a NeuronProgram (docs/framework-neurons.md has them all). Reset,
    strictness, and multiple spikes are read from the module, and its spikes on the example are compared with the
    network's: a difference is an NwWarning that names it. `relu`: neurons that stand for every torch.nn.ReLU.

    `example_input` is a tensor or array `[B, T, *shape]` (`layout="BT"`) or `[T, B, *shape]` (`layout="TB"`), as the
    module takes it, as long as a few steps; or `[B, *shape]` (`layout="B"`) for a module that loops over time with the
    same input in every step. The network carries the layout, and every function takes samples that way; in "B" each is
    repeated for as many steps as the module looped, or comes as `[B, T, *shape]`. The module is run on the example, in
    eval mode, and may take all steps at once (a Sequential of layers that do, or a forward that loops over time) or one
    step `[B, *shape]` at a time, with or without a state that it gives back. Between the layers it may use
    Linear, Delay, DelayedLinear and DelayedConv2d of nwcompile.nn, Conv1d, Conv2d, ConvTranspose1d, ConvTranspose2d,
    AvgPool1d, AvgPool2d, MaxPool1d, MaxPool2d, nearest Upsample, BatchNorm, Flatten, Dropout, Identity, their
    functional forms, sums and differences of tensors, products
    with numbers or constants, products of spikes, matrix products, sums and means over axes, and whatever only moves
    entries (indexing, views, cat, stack). A mean over the steps may end the module: its linear maps become readouts,
    whose mean over the steps is the module's result. What a layer receives from an earlier step becomes a connection
    with that delay. What comes after the last layer is left out, but for linear maps with weights: they become
    readouts, layers that never fire and whose membrane is the map's result. An NwWarning names whatever of the module's
    result the network does not give, membranes of layers that fire included; `Network.left_out` keeps the sentence.
    What torch.compile, DataParallel or DistributedDataParallel wraps is imported as the module that it was.

    Layers are named by their module path, junctions by that of the linear map whose result they hold. In a plain
    torch.nn.Sequential the `(spikes, mem)` of a layer goes on as its spikes. The module is left as it was; nwcompile.nn
    layers have their kept state cleared. Raises ModelError for what cannot be followed, weights that are not finite, or
    an unusable example.
    """
    layout = layout_of(layout)
    module = unwrapped(module)
    try:
        x = example_of(module, example_input, layout)
    except ModelError as e:
        raise e.ending(_hint(module, example_input, layout, relu)) from None
    if relu is not None and not isinstance(relu, NeuronSpec):
        raise ModelError(f"relu={shown(relu)} must be an nw.NeuronSpec, the neuron that stands for every ReLU")
    verify_finite(module)
    imports, refused, failed = _attempts(module, x, layout, relu)
    if imports:
        # A module that keeps spikes in its attributes runs on all steps at once too, but then feeds nothing back.
        network, recording = max(imports, key=lambda pair: sum(c.aligned_delay > 0 for c in pair[0].connections))
        if relu is None:
            compare_spikes(network, _repeated(x, recording.n_steps) if layout == "B" else x, recording.spikes)
        if network.left_out:
            warnings.warn(f"{type(module).__name__}: {network.left_out}", NwWarning, stacklevel=2)
        network = network.change_layout(layout, recording.n_steps if layout == "B" else None)
        return replace(network, real_example=bool((x != x.trunc()).any()))
    if any(isinstance(e, LayoutError) for e in refused):
        raise next((e for e in refused if not isinstance(e, LayoutError)), refused[0])
    hint = _hint(module, example_input, layout, relu)
    if refused:
        raise refused[0].ending(hint)
    for failure in failed:
        if failure.refused:
            raise ModelError(f"{type(module).__name__} uses {failure.refused[0]}; {SUPPORTED}{hint}")
    for path, part in module.named_modules():
        if is_foreign_neuron(part) and kind_of(part) is None:
            raise ModelError(f"{path!r}: {stated(part)}" if path else stated(part))
    attempts = f"with all steps, {failed[0]}; step by step, {failed[1]}" if layout != "B" else str(failed[0])
    raise ModelError(
        f"{type(module).__name__} cannot be run on example_input of shape {list(np.shape(example_input))}: {attempts}; "
        f"example_input must be {LAYOUTS[layout]} as the module takes it{hint}"
    )


def _attempts(module: torch.nn.Module, x: torch.Tensor, layout: str, relu: NeuronSpec | None):
    """What each way of giving the module its example came to: networks, refusals, and failures of the module."""
    imports: list[tuple[Network, Recording]] = []
    refused: list[ModelError] = []
    failed: list[RunError] = []
    for lead in _leads(module, layout):
        try:
            imports.append(_import(module, x, lead, relu))
        except ModelError as e:
            refused.append(e)
        except RunError as e:
            failed.append(e)
    return imports, refused, failed


def _hint(module: torch.nn.Module, example_input, layout: str, relu: NeuronSpec | None) -> str:
    """The end of a refusal: the layout in which the same example can be imported, "" where there is none."""
    for other in (name for name in LAYOUTS if name != layout):
        try:
            imports, _, _ = _attempts(module, example_of(module, example_input, other), other, relu)
        except ModelError:
            continue
        if imports and (other != "B" or imports[0][1].n_steps > 1):
            return f"; with layout={other!r}, for an example {LAYOUTS[other]}, it can be imported"
    return ""


def _import(module: torch.nn.Module, x: torch.Tensor, lead: str, relu: NeuronSpec | None) -> tuple[Network, Recording]:
    paths = dict(module.named_modules())
    input_name = next(name for name in INPUT_NAMES if name not in paths)
    with _restored(module):
        for part in module.modules():
            fit(part, len(x))
        if lead == "once":
            first = ModuleRecorder(module, x, "B", input_name, relu, True)
            calls = _recorded(first).calls.values()
            x = _repeated(x, max([first.most_steps, *map(len, calls)]))
            _clear(module)
        recorder = ModuleRecorder(module, x, "B" if lead == "once" else lead, input_name, relu, lead == "once")
        recording = _recorded(recorder)
        verify(recording, type(module).__name__)
        return _build(recording, paths), recording


def _recorded(recorder: ModuleRecorder) -> Recording:
    try:
        recorder.record()
    except RecordError as e:
        raise e.error from None
    except Exception as e:
        text = (str(e).strip().splitlines() or [""])[0]
        raise RunError(f"{type(e).__name__}: {text}", recorder.refused) from e
    for name, steps in recorder.spikes.items():
        if len({tensor.shape[2:] for tensor in steps}) > 1:  # for example if samples are taken for steps
            raise RunError(f"layer {name!r} gives tensors of different shapes in its steps", recorder.refused)
    return recorder.recording()


def _repeated(x: torch.Tensor, n_steps: int) -> torch.Tensor:
    """One step `[B, 1, *shape]` as `n_steps` equal ones."""
    return x.expand(x.shape[0], n_steps, *x.shape[2:])


class RunError(Exception):
    """The module raised an exception on the example: `text`; `refused`: what could not be followed before that."""

    def __init__(self, text: str, refused: list[str]):
        super().__init__(text, refused)
        self.refused = refused

    def __str__(self):
        return self.args[0]


def _build(recording: Recording, modules: dict[str, torch.nn.Module]) -> Network:
    builder = Builder(recording, {layer_name(path) for path in recording.calls})
    for path, calls in recording.calls.items():
        name = layer_name(path)
        module = modules[path]
        fed = calls[-1].fed
        neurons = recording.kinds[path].read(module, name, fed.shape)
        builder.add_layer(name, _integrating(neurons) if name in recording.integrators else neurons.spec, fed)
        builder.connections += neurons.recurrent
    builder.add_readouts()
    network = builder.network()
    return replace(network, left_out=recording.results.left_out(network, builder.readouts))


def _integrating(neurons: ReadNeurons) -> NeuronSpec | NeuronProgram:
    """Neurons of which only the membrane is read: without a reset they integrate, and their threshold says nothing."""
    if isinstance(neurons.spec, NeuronProgram):
        return neurons.spec
    if neurons.spec.reset != "none" or neurons.recurrent or not neurons.spec.fires:
        return neurons.spec
    return replace(neurons.spec, fires=False, threshold=1.0)


def _leads(module: torch.nn.Module, layout: str) -> tuple[str, ...]:
    """How the module may be given the example: all steps, step by step, or all steps merged with the samples."""
    if layout == "B":
        return ("once",)
    merged = "*".join(layout)
    parts = [(kind_of(part), part) for part in module.modules()]
    takes_merged = any(merged in kind.leads(part) for kind, part in parts if kind is not None)
    return (layout, "B", merged) if takes_merged else (layout, "B")


@contextmanager
def _restored(module: torch.nn.Module):
    """Eval mode and cleared state inside; modes and attributes as they were, and cleared state, afterwards."""
    of_every_module = vars(torch.nn.Module()).keys() - {"training", "_buffers"}
    before = [(m, _attributes(m, of_every_module)) for m in module.modules()]
    module.eval()
    _clear(module)
    for m in module.modules():
        m._buffers.update({name: value.clone() for name, value in m._buffers.items() if value is not None})
    try:
        yield
    finally:
        for m, attributes in before:
            for name in vars(m).keys() - of_every_module - attributes.keys():
                del m.__dict__[name]
            for name, (value, content) in attributes.items():
                if isinstance(value, list):
                    value[:] = content
                elif isinstance(value, dict):
                    value.clear()
                    value.update(content)
                m.__dict__[name] = value
        prepare_net(module)


def _attributes(module: torch.nn.Module, without: set[str]) -> dict[str, tuple]:
    """The attributes of a module but those of these names, with copies of what lists and dicts hold."""
    kept = {name: value for name, value in vars(module).items() if name not in without}
    return {name: (value, copy(value) if isinstance(value, list | dict) else value) for name, value in kept.items()}


def _clear(module: torch.nn.Module) -> None:
    """Make all its neuron layers forget."""
    prepare_net(module)
    for part in module.modules():
        clear(part)
