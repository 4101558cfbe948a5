"""Import a module: try every axis order with known layers, else look for hand-written neurons; compare the spikes."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch

from nwcompile.errors import ModelError, shown, warn_user
from nwcompile.frontend.torch.build import Builder
from nwcompile.frontend.torch.check import NO_LAYERS, LayoutError, LostStateError, refuse_map, verify_recording
from nwcompile.frontend.torch.compare import compare_drawn, compare_spikes, find_different_layer, verify_samples
from nwcompile.frontend.torch.inputs import has_several, join_inputs, parse_layout, prepare_example
from nwcompile.frontend.torch.kind import ReadNeurons
from nwcompile.frontend.torch.kinds import (
    explain_refusal,
    explain_unsupported,
    find_kind,
    fit_batch,
    is_foreign_neuron,
    is_rewritten,
)
from nwcompile.frontend.torch.modules import (
    TO_NIR,
    clear_state,
    convert_rockpool,
    is_rockpool,
    preserve_state,
    unwrap_module,
)
from nwcompile.frontend.torch.operations import SUPPORTED, verify_finite
from nwcompile.frontend.torch.operators import NO_NEURONS, Imported, ModuleFailedError, draw_like, import_operators
from nwcompile.frontend.torch.operators.roll import DifferentStepsError, OneStepError, StepEntriesError
from nwcompile.frontend.torch.readouts import BatchError, Tries, find_readout, run_samples
from nwcompile.frontend.torch.record import ModuleRecorder, layer_name
from nwcompile.frontend.torch.symbols import Recording
from nwcompile.frontend.torch.track import RecordError
from nwcompile.ir.network import LAYOUTS, Network
from nwcompile.ir.neuron import NeuronSpec
from nwcompile.ir.neuron_programs.program import NeuronProgram

TOO_FEW_STEPS = "NW2308"  # code of refusals that an example of more steps may mend
UNREADABLE = "NW2303"  # code of refusals that name a framework's neuron
SMALL = 0.9  # largest value of further drawn inputs
MIN_STEPS = 8  # of an example that is repeated if its steps are too few to see what each computes
REPEATED_STEPS = (MIN_STEPS, 24, 128)  # states behind states are all used, and repeat, after some steps only
OF_EXAMPLE = "the module's result is the network's output for the example's number of steps only"
INPUT_NAMES = ("input", "x", "network_input")


def from_torch(module: torch.nn.Module, example_input, layout: str = "BT", relu: NeuronSpec | None = None) -> Network:
    """Return the float network that a spiking torch module computes.

    Neuron layers are those of nwcompile.nn, and those of snnTorch, SpikingJelly, sinabs and norse whose step is
    elementwise. Some become a NeuronSpec, the others a NeuronProgram (docs/framework-neurons.md lists them). Reset,
    strictness and multiple spikes are read from the module. Neurons written by hand are found by the torch operators
    that every step repeats (docs/hand-written-neurons.md); the example then needs 4 steps, and is repeated if it has
    fewer. Its spikes on the example are compared with the network's;
    an NwWarning names the first difference. `relu`: neurons that replace every torch.nn.ReLU.

    `example_input`: a tensor or array `[B, T, *shape]` (`layout="BT"`) or `[T, B, *shape]` (`layout="TB"`), as the
    module takes it; a few steps suffice. A module that loops over time with the same input in every step takes `[B,
    *shape]` (`layout="B"`). For a module `forward(a, b)` it is a tuple of these, or a dict by the names of the
    arguments; the network then has an input for each. The network stores the layout, and every function takes samples
    in it; in "B", a sample is repeated for the module's number of steps, or is `[B, T, *shape]`. The module is run on
    the example in eval mode. It may take all steps at once (a Sequential of layers that do, or a forward that loops
    over time) or one step `[B, *shape]` at a time, with or without a state that it returns.

    Supported between the layers: Linear, Delay, DelayedLinear and DelayedConv2d of nwcompile.nn, Conv1d, Conv2d,
    ConvTranspose1d, ConvTranspose2d, AvgPool1d, AvgPool2d, MaxPool1d, MaxPool2d, nearest Upsample, BatchNorm, Flatten,
    Dropout, Identity, their functional forms, sums and differences of tensors, products with numbers or constants,
    products of spikes, matrix products, sums and means over axes, and functions that only move entries (indexing,
    views, cat, stack). A mean over the steps may end the module: its linear maps become readouts, whose mean over the
    steps is the result. Input from an earlier step becomes a connection with that delay. The last linear maps with
    weights become layers that never fire and whose membrane is the map's result. What the module computes after its
    layers is `Network.readout`, for its first result (docs/readouts.md). An NwWarning names each part of the result
    that is neither in the outputs nor read out; `Network.left_out` keeps the sentence. torch.compile, DataParallel and
    DistributedDataParallel are unwrapped.

    Layers have the names of their module paths, junctions that of the linear map whose result they hold. In a plain
    torch.nn.Sequential, only the spikes of a layer's `(spikes, mem)` are passed on. The module stays unchanged, except
    that the stored state of nwcompile.nn layers is cleared. Raises ModelError for operations that cannot be followed,
    weights that are not finite, or an unusable example.
    """
    layout = parse_layout(layout)
    if has_several(example_input):
        joined, example = join_inputs(module, example_input, layout)
        return joined.divide_input(from_torch(joined, example, layout, relu))
    module = convert_rockpool(unwrap_module(module))
    try:
        x = prepare_example(module, example_input, layout)
    except ModelError as e:
        raise e.ending(_hint_layout(module, example_input, layout, relu)) from None
    if relu is not None and not isinstance(relu, NeuronSpec):
        raise ModelError(f"relu={shown(relu)} must be an nw.NeuronSpec, the neuron that stands for every ReLU")
    verify_finite(module)
    attempts = _try_imports(module, x, layout, relu)
    imported: Imported | ModuleFailedError | None = None
    n_samples = np.shape(example_input)[layout.index("B")]
    if attempts.imports:
        network, n_steps = _choose_import(attempts.imports, module, x, layout, relu, n_samples)
    else:
        if relu is None and not _is_final(attempts.refused, module):
            imported = _import_hand_written(module, x, layout, attempts.refused)
        if not isinstance(imported, Imported):
            raise _explain_failure(attempts, imported, module, example_input, layout, relu)
        n_steps = 1 if imported.lead == layout == "B" else imported.n_steps
        network = _prove_import(imported, module, x, layout, n_samples)
    if network.left_out:
        warn_user(f"{type(module).__name__}: {network.left_out}")
    network = network.change_layout(layout, n_steps if layout == "B" else None)
    return replace(network, real_example=bool((x != x.trunc()).any()))


class Attempts(NamedTuple):
    """Imports of a module with each possible axis order, the refusals, and the failures of the module."""

    imports: list[tuple[Network, Recording]]
    refused: list[ModelError]
    failed: "list[RunError]"


def _try_imports(module: torch.nn.Module, x: torch.Tensor, layout: str, relu: NeuronSpec | None) -> Attempts:
    """Import the module with each possible axis order."""
    attempts = Attempts([], [], [])
    for lead in _possible_leads(module, layout):
        try:
            network, recording = _import(module, x, lead, relu)
            if relu is None:
                network = _add_readout(network, recording, module, x)
            refusal = refuse_map(recording)
            if refusal is not None and network.readout is None:
                raise refusal
            attempts.imports.append((network, recording))
        except ModelError as e:
            attempts.refused.append(e)
        except RunError as e:
            attempts.failed.append(e)
    whole = next((e for e in attempts.refused if not isinstance(e, LayoutError)), None)
    if whole is not None and {r.lead for _, r in attempts.imports} == {"B"} and not _runs_alike(module, x, layout):
        attempts.imports.clear()  # a step has another meaning alone
    return attempts


def _runs_alike(module: torch.nn.Module, x: torch.Tensor, layout: str) -> bool:
    """Return whether a module gives the same for all steps at once as step by step.

    Only known layers that take both ask for this; other modules that take all steps at once may take them for entries.
    """
    kinds = [(kind, part) for part in module.modules() if (kind := find_kind(part)) is not None]
    if not any({layout, "B"} <= set(kind.leads(part)) for kind, part in kinds):
        return True
    samples = torch.cat([x[:1], *draw_like(x[:1])])
    whole, steps = (run_samples(module, samples, lead) for lead in (layout, "B"))
    if whole is None or steps is None:
        return True
    steps = steps if layout == "TB" or steps.ndim < 3 else steps.transpose(1, 2)
    return whole.shape == steps.shape and bool(torch.isclose(whole.float(), steps.float(), 1e-4, 1e-5).all())


def _choose_import(
    imports: list[tuple[Network, Recording]],
    module: torch.nn.Module,
    x: torch.Tensor,
    layout: str,
    relu,
    n_samples: int,
) -> tuple[Network, int]:
    """Return the network with the most delayed connections, and its number of steps; it is compared with the module."""
    # A module that keeps spikes in its attributes runs on all steps at once too, but then feeds nothing back.
    network, recording = max(imports, key=lambda pair: sum(c.aligned_delay > 0 for c in pair[0].connections))
    if relu is not None:
        return network, recording.n_steps
    if recording.results.has_unknown and "*" not in recording.lead:
        whole = _try_operators(module, x, layout, (recording.lead,))
        if isinstance(whole, Imported) and _count_neurons(whole.network) > _count_neurons(network):
            alone = _import_or_refuse(module, x, "B") if recording.lead == layout else whole
            if isinstance(alone, Imported) and alone.n_states > whole.n_states:
                whole = alone  # neurons of the module's own keep their states from call to call
            return _prove_import(whole, module, x, layout, n_samples), whole.n_steps
        if isinstance(whole, ModelError) and whole.code == TOO_FEW_STEPS and network.readout is None:
            left_out = network.left_out or "the network may lack neurons that follow its layers"
            network = replace(network, left_out=f"{left_out}; to import them: {whole}")
    compare_spikes(network, _repeat_steps(x, recording.n_steps) if layout == "B" else x, recording.spikes)
    if recording.reads:
        _verify_reads(network, recording, module, x)
    if recording.assumed:
        text = (
            f"{recording.assumed[0]}: the product of the input with spikes is a logical AND in the network: right for "
            "inputs of 0 and 1, as in the example; give an example with other values if the module gets some"
        )
        others = network.left_out.replace(OF_EXAMPLE, "")  # it was judged on other inputs
        network = replace(network, left_out="; ".join(filter(None, (text, others))))
    return network, recording.n_steps


def _import_hand_written(
    module: torch.nn.Module, x: torch.Tensor, layout: str, refused: list[ModelError]
) -> Imported | ModuleFailedError | None:
    """Import neurons that no framework names; return what the module raises on one sample, if that says most.

    Raises their refusal if it says more than the others.
    """
    imported = _try_operators(module, x, layout)
    if isinstance(imported, Imported):
        return imported
    is_vague = not refused or NO_LAYERS in str(refused[0]) or any(map(is_rewritten, module.modules()))
    is_vague |= isinstance(imported, StepEntriesError)
    if isinstance(imported, ModelError) and NO_NEURONS not in str(imported) and is_vague:
        raise imported.ending(f"; or {TO_NIR}" if any(map(is_rockpool, module.modules())) else "")
    return imported if isinstance(imported, ModuleFailedError) and is_vague else None


def _explain_failure(
    attempts: Attempts,
    raised: ModuleFailedError | None,
    module: torch.nn.Module,
    example_input,
    layout: str,
    relu: NeuronSpec | None,
) -> ModelError:
    """Return the most telling refusal of all attempts; `raised`: what the module raises on one sample."""
    _, refused, failed = attempts
    if any(isinstance(e, LayoutError) for e in refused):
        return next((e for e in refused if not isinstance(e, LayoutError)), refused[0])
    hint = _hint_layout(module, example_input, layout, relu)
    if raised is not None and (refused or any(failure.refused for failure in failed)):
        return ModelError(
            f"the module fails on one sample of the example, on which its neurons are looked for: {raised}{hint}"
        )
    if refused:
        return refused[0].ending(hint)
    for failure in failed:
        if failure.refused:
            return ModelError(f"{type(module).__name__} uses {failure.refused[0]}; {SUPPORTED}{hint}")
    for path, part in module.named_modules():
        if is_foreign_neuron(part) and find_kind(part) is None and not is_rewritten(part):
            return ModelError(f"{path!r}: {explain_unsupported(part)}" if path else explain_unsupported(part))
    causes = f"with all steps, {failed[0]}; step by step, {failed[1]}" if layout != "B" else str(failed[0])
    return ModelError(
        f"{type(module).__name__} cannot be run on example_input of shape {list(np.shape(example_input))}: {causes}; "
        f"example_input must be {LAYOUTS[layout]} as the module takes it{hint}"
    )


def _try_operators(
    module: torch.nn.Module, x: torch.Tensor, layout: str, leads: tuple[str, ...] = ()
) -> Imported | ModelError | ModuleFailedError:
    """Import neurons that no framework names; return the refusal, or what the module raises on one sample.

    `leads`: the axis orders to try. By default, a module that keeps no state over the steps of one call is also tried
    step by step.
    """
    leads = leads or (("once",) if layout == "B" else (layout, "B"))
    results: list[Imported | ModelError | ModuleFailedError] = []
    for lead in leads:
        result = _import_or_refuse(module, x, lead)
        if isinstance(result, Imported) and (result.n_states or lead == "once"):
            is_refused = bool(results) and isinstance(results[0], ModelError)
            return results[0] if is_refused and not _runs_alike(module, x, layout) else result
        results.append(result)
    if isinstance(results[0], OneStepError):
        result = _import_or_refuse(module, x, "B")
        if isinstance(result, Imported) and not result.n_states:
            return result
    first = next((result for result in results if not isinstance(result, ModuleFailedError)), None)
    last = results[-1]
    if isinstance(first, Imported) and isinstance(last, ModelError) and NO_NEURONS not in str(last):
        return last  # the module keeps its state from call to call, but not as a neuron does
    if isinstance(first, Imported):
        return _refuse_other_layout(module, x, layout) or first
    refusals = [e for e in results if isinstance(e, ModelError)]
    return next((e for e in refusals if NO_NEURONS not in str(e)), first or results[0])


def _is_final(refused: list[ModelError], module: torch.nn.Module) -> bool:
    """Return whether a refusal is about a framework's neuron, a layer's lost state, or the layout of all layers."""
    is_wrong_layout = bool(refused) and all(isinstance(e, LayoutError) for e in refused)
    is_named = any(isinstance(e, LostStateError) or e.code == UNREADABLE for e in refused)
    return is_wrong_layout or is_named or any(explain_refusal(part) for part in module.modules())


def _import_or_refuse(module: torch.nn.Module, x: torch.Tensor, lead: str) -> Imported | ModelError | ModuleFailedError:
    """Return a refusal instead of raising it, and what the module raises if it cannot be run with these axes."""
    try:
        return _import_with_steps(module, x, lead)
    except (ModelError, ModuleFailedError) as e:
        return e
    except Exception as e:
        error = ModelError(f"nwcompile fails on the module's operators ({type(e).__name__}: {e}); please report it")
        error.__cause__ = e
        return error


def _refuse_other_layout(module: torch.nn.Module, x: torch.Tensor, layout: str) -> ModelError | None:
    """Return a refusal if a module whose neurons keep no state in one layout keeps some in the other."""
    other = layout[::-1]
    imported = _import_or_refuse(module, x.transpose(0, 1), other)
    if not isinstance(imported, Imported) or not imported.n_states:
        return None
    return ModelError(
        f"{type(module).__name__} keeps no state from step to step of an example {LAYOUTS[layout]}, but does so with "
        f"layout={other!r}, for an example {LAYOUTS[other]}; give the layout that the module takes"
    )


def _import_with_steps(module: torch.nn.Module, x: torch.Tensor, lead: str) -> Imported:
    """Import on one sample; repeat its steps if they are too few to see what each computes."""
    given = [x.shape[1], *(n for n in REPEATED_STEPS if n > x.shape[1] and lead != "once")]
    refused = None
    for n_steps in given:
        try:
            with preserve_state(module):
                longer = torch.cat([x[:1]] * -(-n_steps // x.shape[1]), 1)
                return import_operators(module, longer, lead, name_input(module))
        except ModelError as e:
            if refused is None or not isinstance(refused, DifferentStepsError):
                refused = e
            if e.code != TOO_FEW_STEPS and not isinstance(e, DifferentStepsError):
                break
        except ModuleFailedError:
            if refused is None:
                raise
            break
    assert refused is not None, "the last try raises its own error"
    raise refused


def _prove_import(
    imported: Imported, module: torch.nn.Module, example: torch.Tensor, layout: str, n_samples: int
) -> Network:
    """Compare the spikes, and return the network with the readout that the module proves.

    `n_samples`: of the user's example; `example` may have another one.
    """
    n_steps = imported.n_steps
    given = (
        _repeat_steps(example, n_steps) if layout == "B" else torch.cat([example] * (n_steps // example.shape[1]), 1)
    )
    compare_spikes(imported.network, given[:1], imported.spikes)
    compare_drawn(imported.network, imported.drawn, imported.drawn_spikes)
    verify_samples(module, given[:1], imported.lead, n_samples)
    return _prove_readout(imported, module, given[:1])


def _prove_readout(imported: Imported, module: torch.nn.Module, x: torch.Tensor) -> Network:
    """Return the network with a readout for as many lengths of samples as the module proves.

    A readout that mixes samples is left out. An output that is the result on the example's number of steps only is read
    out too.
    """
    network, read_output = imported.network, imported.read_output
    if network.readout is None and (read_output is None or imported.lead == "once"):
        return network
    try:
        tries = Tries(module, x, imported.lead, network)
        tries.verify_batch()
        if network.readout is not None:
            return replace(network, readout=tries.allow_other_lengths(network, network.readout))
    except ModuleFailedError:
        return network
    except ModelError as e:
        return replace(network, readout=None, left_out=str(e))
    if read_output is None or tries.prove_output(network):
        return network
    readout = read_output()
    return replace(network, readout=readout, left_out=network.left_out or OF_EXAMPLE * (readout is None))


def _hint_layout(module: torch.nn.Module, example_input, layout: str, relu: NeuronSpec | None) -> str:
    """Return the end of a refusal: a layout in which the same example can be imported, or ""."""
    for other in (name for name in LAYOUTS if name != layout):
        try:
            imports = _try_imports(module, prepare_example(module, example_input, other), other, relu).imports
        except ModelError:
            continue
        if imports and (other != "B" or imports[0][1].n_steps > 1):
            return f"; with layout={other!r}, for an example {LAYOUTS[other]}, it can be imported"
    return ""


def _import(module: torch.nn.Module, x: torch.Tensor, lead: str, relu: NeuronSpec | None) -> tuple[Network, Recording]:
    input_name = name_input(module)
    with preserve_state(module):
        for part in module.modules():
            fit_batch(part, len(x))
        if lead == "once":
            first = ModuleRecorder(module, x, "B", input_name, relu, True)
            calls = _run_recorder(first).calls.values()
            x = _repeat_steps(x, max([first.most_steps, *map(len, calls)]))
            clear_state(module)
        recorder = ModuleRecorder(module, x, "B" if lead == "once" else lead, input_name, relu, lead == "once")
        recording = _run_recorder(recorder)
        verify_recording(recording, type(module).__name__)
        return _build_network(recording, dict(module.named_modules())), recording


def name_input(module: torch.nn.Module) -> str:
    """Return a name for the input that no part of the module has."""
    paths = dict(module.named_modules())
    return next(name for name in INPUT_NAMES if name not in paths)


def _run_recorder(recorder: ModuleRecorder) -> Recording:
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
    return recorder.build_recording()


def _repeat_steps(x: torch.Tensor, n_steps: int) -> torch.Tensor:
    """Repeat one step `[B, 1, *shape]` for `n_steps` steps."""
    return x.expand(x.shape[0], n_steps, *x.shape[2:])


class RunError(Exception):
    """The module raised an exception on the example: `text`; `refused`: operations that could not be followed."""

    def __init__(self, text: str, refused: list[str]):
        super().__init__(text, refused)
        self.refused = refused

    def __str__(self):
        return self.args[0]


def _build_network(recording: Recording, modules: dict[str, torch.nn.Module]) -> Network:
    builder = Builder(recording.input, recording.n_steps - 1, {layer_name(path) for path in recording.calls})
    for path, calls in recording.calls.items():
        name = layer_name(path)
        module = modules[path]
        fed = calls[-1].fed
        neurons = recording.kinds[path].read(module, name, fed.shape)
        builder.add_layer(name, _as_integrator(neurons) if name in recording.integrators else neurons.spec, fed)
        builder.connections += neurons.recurrent
    builder.add_readouts(recording.applied, recording.n_steps)
    network = builder.build_network()
    return replace(network, left_out=recording.results.describe_left_out(network, builder.readouts))


def _verify_reads(network: Network, recording: Recording, module: torch.nn.Module, x: torch.Tensor) -> None:
    """Raise ModelError if a value that the module reads changes what its layers do on drawn inputs."""
    is_once = recording.lead == "once"
    drawn = draw_like(x[:1])
    small = [sample * (SMALL / sample.abs().max().clamp(min=1)) for sample in (x[:1], *drawn)]
    for sample in [*drawn, *small, torch.zeros_like(x[:1])]:
        given = _repeat_steps(sample[:, :1], recording.n_steps) if is_once else sample
        with preserve_state(module):
            for part in module.modules():
                fit_batch(part, 1)
            lead = "B" if is_once else recording.lead
            try:
                again = _run_recorder(ModuleRecorder(module, given, lead, recording.input.name, None, is_once))
            except RunError:
                continue  # the module does not take such inputs
        layer = find_different_layer(network, given, again.spikes)
        if layer:
            raise ModelError(
                f"{recording.reads[0]} that depends on the input, and layer {layer!r} then spikes differently on other "
                "inputs; a chip runs the same operations for every input; choose with torch.where"
            )


def _add_readout(network: Network, recording: Recording, module: torch.nn.Module, x: torch.Tensor) -> Network:
    """Return the network with the readout of the module's first result, if it is more than an output.

    If it cannot be found, `left_out` names what the network lacks.
    """
    readouts = {a.operation.path for a in recording.applied if a.operation.path in network.layers}
    results = recording.results
    is_output = not recording.reads and not results.asks_readout(network, readouts)
    if is_output and (not results.returned or recording.lead == "once" or "*" in recording.lead):
        return network
    paths = dict(module.named_modules())
    layers = {paths[path]: layer_name(path) for path in recording.calls}
    layers |= {paths[name]: name for name in network.layers if name in paths}
    longer = x[:1].repeat(1, -(-MIN_STEPS // x.shape[1]), *[1] * (x.ndim - 2))
    sample = _repeat_steps(x[:1], recording.n_steps) if recording.lead == "once" else longer
    try:
        if "*" in recording.lead:
            raise ModelError("steps and samples share an axis")
        readout = find_readout(network, module, layers, sample, recording.lead, bool(recording.reads), is_output)
    except ModuleFailedError:
        return network  # a module of a fixed number of samples: the values of the example decide
    except BatchError as e:
        verify_samples(module, sample, recording.lead, 1)
        return replace(network, left_out=str(e))
    except ModelError:
        left_out = results.describe_left_out(network, readouts, by_values=False)
        return replace(network, left_out=left_out or OF_EXAMPLE * is_output)
    left_out = results.describe_left_out(network, readouts, has_readout=True)
    return replace(network, readout=readout, left_out=left_out)


def _count_neurons(network: Network) -> int:
    """Return the number of layers that are more than the result of a linear map."""
    neurons = [network.node(name).neuron for name in network.layers]
    return sum(neuron.fires or not isinstance(neuron, NeuronSpec) or bool(np.any(neuron.beta)) for neuron in neurons)


def _as_integrator(neurons: ReadNeurons) -> NeuronSpec | NeuronProgram:
    """Return neurons of which only the membrane is read: without a reset they integrate and need no threshold."""
    if isinstance(neurons.spec, NeuronProgram):
        return neurons.spec
    if neurons.spec.reset != "none" or neurons.recurrent or not neurons.spec.fires:
        return neurons.spec
    return replace(neurons.spec, fires=False, threshold=1.0)


def _possible_leads(module: torch.nn.Module, layout: str) -> tuple[str, ...]:
    """Return the possible axis orders of the example: all steps, step by step, or steps merged with samples."""
    if layout == "B":
        return ("once",)
    merged = "*".join(layout)
    parts = [(find_kind(part), part) for part in module.modules()]
    takes_merged = any(merged in kind.leads(part) for kind, part in parts if kind is not None)
    return (layout, "B", merged) if takes_merged else (layout, "B")
