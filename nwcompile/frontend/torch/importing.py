"""Import a module: try each order of axes with known layers, else all operators; compare the spikes."""

import warnings
from dataclasses import replace
from itertools import count

import numpy as np
import torch

from nwcompile.errors import ModelError, NwWarning, shown, warn_user
from nwcompile.frontend.torch.compare import compare_drawn, compare_spikes, find_different_layer, verify_samples
from nwcompile.frontend.torch.inputs import has_several, join_inputs, parse_layout, prepare_example
from nwcompile.frontend.torch.kinds import (
    explain_unsupported,
    find_kind,
    is_foreign_neuron,
    is_rewritten,
)
from nwcompile.frontend.torch.modules import (
    TO_NIR,
    convert_rockpool,
    is_rockpool,
    preserve_state,
    unwrap_module,
)
from nwcompile.frontend.torch.operations import verify_finite
from nwcompile.frontend.torch.operators import Imported, ModuleFailedError, find_half_precision, import_operators
from nwcompile.frontend.torch.operators.assemble import NO_NEURONS
from nwcompile.frontend.torch.operators.batch_size import FittedSizes, list_equal_rows, name_samples
from nwcompile.frontend.torch.operators.ops import CrashError
from nwcompile.frontend.torch.operators.parts import LayoutError, LostStateError, find_parts
from nwcompile.frontend.torch.operators.readout import compare_layers, find_factor, is_close, name_dtype
from nwcompile.frontend.torch.operators.roll import DifferentStepsError, OneStepError, StepEntriesError
from nwcompile.frontend.torch.operators.runs import draw_like, record_spikes
from nwcompile.frontend.torch.readouts import Tries, run_samples
from nwcompile.ir.network import LAYOUTS, NO_LAYER, Network
from nwcompile.ir.neuron import NeuronSpec
from nwcompile.sim import simulate

TOO_FEW_STEPS = "NW2308"  # code of refusals that an example of more steps may mend
HAND_WRITTEN = "NW2307"  # code of refusals of operators in modules without known layers
UNSUPPORTED = "NW2301"  # code of refusals of operators between known layers
DIFFERENT_STEPS = "NW2304"  # code of steps that differ between known layers
UNREADABLE = "NW2303"  # code of refusals that name a framework's neuron
SMALL = 0.9  # largest value of further drawn inputs
MIN_STEPS = 8  # of an example that is repeated if its steps are too few to see what each computes
FEWEST_STEPS = 3  # of an example that is tried as it is: a result of fewer steps seems to take single ones
REPEATED_STEPS = (MIN_STEPS, 24, 128)  # states behind states are all used, and repeat, after some steps only
OF_EXAMPLE = "the module's result is the network's output for the example's number of steps only"
RELUS = (torch.nn.ReLU, torch.nn.ReLU6, torch.nn.Hardtanh)
TO_CONVERT = "; if it is a network of ReLUs without spiking neurons, convert it with nw.convert(module, images)"
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
    ConvTranspose1d, ConvTranspose2d, AvgPool1d, AvgPool2d, MaxPool1d, MaxPool2d, Upsample, BatchNorm, Flatten, Dropout,
    Identity, their functional forms, other linear maps with fixed weights, sums and differences of tensors, products
    with numbers or constants, products of spikes, matrix products, sums and means over axes, and functions that only
    move entries (indexing, views, cat, stack). A mean over the steps may end the module: its linear maps become
    readouts, whose mean over the steps is the result. Input from an earlier step becomes a connection with that delay.
    The last linear maps with weights become layers that never fire and whose membrane is the map's result. What the
    module computes after its layers is `Network.readout`, for its first result (docs/readouts.md). An NwWarning names
    each part of the result that is neither in the outputs nor read out; `Network.left_out` keeps the sentence.
    torch.compile, DataParallel and DistributedDataParallel are unwrapped. If the code names a number of samples, as in
    `torch.zeros(batch_size, 128)`, that of the input takes its place.

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
        return _import_example(module, example_input, layout, relu)
    except ModelError as e:
        parts = list(module.modules()) if isinstance(module, torch.nn.Module) else []
        has_relus = NO_LAYER in str(e) or any(isinstance(part, RELUS) for part in parts)
        if has_relus and relu is None and e.code != HAND_WRITTEN and not find_parts(module, None):
            raise e.ending(TO_CONVERT) from None
        raise


Result = Imported | ModelError | ModuleFailedError


def _import_example(module: torch.nn.Module, example_input, layout: str, relu: NeuronSpec | None) -> Network:
    try:
        x = prepare_example(module, example_input, layout)
    except ModelError as e:
        raise e.ending(_hint_layout(module, example_input, layout, relu)) from None
    if relu is not None and not isinstance(relu, NeuronSpec):
        raise ModelError(f"relu={shown(relu)} must be an nw.NeuronSpec, the neuron that stands for every ReLU")
    verify_finite(module)
    has_one = np.shape(example_input)[layout.index("B")] == 1  # of which a module of a fixed number gives copies
    size = _find_batch_size(module, x, layout) if has_one else 0
    try:
        network = _import_sized(module, x, example_input, layout, relu, size)
    except ModelError:
        size = 0 if has_one else _find_batch_size(module, x, layout)
        if not size:
            raise
        network = _import_sized(module, x, example_input, layout, relu, size)
    return replace(network, real_example=bool((x != x.trunc()).any()))


def _import_sized(
    module: torch.nn.Module, x: torch.Tensor, example_input, layout: str, relu: NeuronSpec | None, size: int
) -> Network:
    """Return the network of a module whose code names `size` samples, or none if it is 0."""
    with name_samples(size):
        network = _import_repeated(module, x, layout) if relu is None and layout != "B" else None
        return _import_module(module, x, example_input, layout, relu)[1] if network is None else network


def _find_batch_size(module: torch.nn.Module, x: torch.Tensor, layout: str) -> int:
    """Return the number of samples that a module's code names, if it runs on no other; else 0.

    That is a size of a tensor in the code, or of a state. With another number in its place, the module must give the
    same result.
    """
    kept = {len(getattr(part, name)) for part, name in list_equal_rows(module)}
    for lead in _possible_leads(module, layout):
        with FittedSizes(0, 0) as sizes:
            run_samples(module, x[:1], lead)
        seen = sizes.seen | kept
        few = next(n for n in count(2) if n not in seen)
        possible = sorted(n for n in seen if n > 1)
        if possible and _takes_samples(module, x, lead, few):
            return 0
        for size in possible:
            with name_samples(size):
                alone = run_samples(module, x[:1], lead) if _takes_samples(module, x, lead, few) else None
            if alone is not None and _is_first_sample(alone, run_samples(module, _repeat_samples(x, size), lead)):
                return size
    return 0


def _takes_samples(module: torch.nn.Module, x: torch.Tensor, lead: str, n_samples: int) -> bool:
    """Return whether a module gives each of several samples a result, and the first one the same as alone."""
    return _is_first_sample(*(run_samples(module, _repeat_samples(x, n), lead) for n in (1, n_samples)))


def _repeat_samples(x: torch.Tensor, n_samples: int) -> torch.Tensor:
    return torch.cat([x] * -(-n_samples // len(x)))[:n_samples]


def _is_first_sample(alone: torch.Tensor | None, whole: torch.Tensor | None) -> bool:
    """Return whether a result for one sample is the first part of that for several, along some axis."""
    if alone is None or whole is None or alone.ndim != whole.ndim:
        return False
    axes = [k for k, (a, b) in enumerate(zip(alone.shape, whole.shape, strict=True)) if a != b]
    return len(axes) == 1 and is_close(whole.narrow(axes[0], 0, alone.shape[axes[0]]).double(), alone.double())


def _import_repeated(module: torch.nn.Module, short: torch.Tensor, layout: str) -> Network | None:
    """Import with the steps of a short example repeated; None unless the network is right for the example as it is."""
    if short.shape[1] >= FEWEST_STEPS:
        return None
    longer = torch.cat([short] * (MIN_STEPS // short.shape[1]), 1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", NwWarning)
            example = longer.transpose(0, 1) if layout == "TB" else longer
            imported, network = _import_module(module, longer, example, layout, None)
    except (ModelError, NwWarning):
        return None
    run = simulate(imported.network, short.float().cpu().numpy())
    spikes = {} if imported.has_own else record_spikes(module, short, imported.lead, imported.parts)
    is_same = spikes is not None and all(compare_layers(run, spikes))
    is_general = network.readout is None or network.readout.n_steps is None
    return network if is_general and is_same else None


def _import_module(
    module: torch.nn.Module, x: torch.Tensor, example_input, layout: str, relu: NeuronSpec | None
) -> tuple[Imported, Network]:
    """Return an import and the network that is proven; `x` is the example `[B, T, *shape]`."""
    imported = _import_layers(module, x, layout, relu)
    if not isinstance(imported, Imported):
        raise _explain_failure(imported, module, x, example_input, layout, relu)
    n_steps = 1 if imported.lead == layout == "B" else imported.n_steps
    network = imported.network
    if relu is None:
        network = _prove_import(imported, module, x, layout, np.shape(example_input)[layout.index("B")])
    if network.left_out:
        warn_user(f"{type(module).__name__}: {network.left_out}")
    return imported, network.change_layout(layout, n_steps if layout == "B" else None)


def _import_layers(module: torch.nn.Module, x: torch.Tensor, layout: str, relu: NeuronSpec | None) -> Result:
    """Import a module with its known layers as parts; if it has other neurons, or none are known, by operators only."""
    known: Result | None = None
    leads = _possible_leads(module, layout)
    if find_parts(module, relu):
        known = _choose_import(_try_leads(module, x, leads, relu), module, x, layout)
        if relu is not None or _is_final(known):
            return known
        leads = (known.lead,) if isinstance(known, Imported) else leads
    inner = _choose_import(_try_leads(module, x, leads, None, looks_inside=True), module, x, layout)
    if isinstance(known, CrashError) and isinstance(inner, Imported):
        warn_user(f"{known}; its layers were read as hand-written ones instead")
    if isinstance(known, LostStateError) and isinstance(inner, Imported) and not inner.n_states:
        return known  # the layer starts again in every step
    if known is None or isinstance(inner, Imported):
        return inner
    is_vague = isinstance(known, ModuleFailedError) or any(map(is_rewritten, module.modules()))
    is_vague |= isinstance(known, ModelError) and NO_NEURONS in str(known)
    if (
        isinstance(inner, ModelError)
        and NO_NEURONS not in str(inner)
        and (is_vague or isinstance(inner, StepEntriesError))
    ):
        return inner
    return known


def _is_final(result: Result) -> bool:
    """Return whether a result is to be kept: an import whose neurons are all known, or the refusal of a known layer."""
    if isinstance(result, Imported):
        return not result.has_own
    return isinstance(result, LayoutError) or getattr(result, "code", None) == UNREADABLE


def _try_leads(
    module: torch.nn.Module,
    x: torch.Tensor,
    leads: tuple[str, ...],
    relu: NeuronSpec | None,
    looks_inside: bool = False,
) -> list[Result]:
    """Import the module with each order of axes; return the networks, and the refusals of the others.

    `looks_inside`: known layers too are imported by their operators.
    """
    results: list[Result] = []
    for lead in leads:
        results.append(result := _import_or_refuse(module, x, lead, relu, looks_inside))
        if isinstance(result, Imported) and result.n_states > len(result.parts):
            break  # own neurons keep their states in one call
    return results


def _runs_alike(module: torch.nn.Module, x: torch.Tensor, layout: str) -> bool:
    """Return whether a module gives the same for all steps at once as step by step.

    Only known layers that take both ask for this; other modules that take all steps at once may take them for entries.
    """
    kinds = [(kind, part) for part in module.modules() if (kind := find_kind(part)) is not None]
    if not any({layout, "B"} <= set(kind.leads(part)) for kind, part in kinds):
        return True
    for sample in (x[:1], *draw_like(x[:1])):
        whole, steps = (run_samples(module, sample, lead) for lead in (layout, "B"))
        if whole is None or steps is None:
            continue
        steps = steps if layout == "TB" or steps.ndim < 3 else steps.transpose(1, 2)
        if whole.shape != steps.shape or not torch.isclose(whole.float(), steps.float(), 1e-4, 1e-5).all():
            return False
    return True


def _choose_import(results: list[Result], module: torch.nn.Module, x: torch.Tensor, layout: str) -> Result:
    """Return the import with the most states and delayed connections, or the refusal that says most."""
    imports = [result for result in results if isinstance(result, Imported)]
    whole, last = results[0], results[-1]
    stateful = [result for result in imports if result.n_states or result.lead == "once"]
    if stateful:
        # A module that keeps spikes in its attributes runs on all steps at once too, but then feeds nothing back. In a
        # wrong order of axes, features are taken for steps, and each seems to be a layer.
        best = stateful[0]
        for other in stateful[1:]:
            has_more = _count_memory(other) > _count_memory(best)
            best = other if has_more and len(other.network.layers) <= len(best.network.layers) else best
        is_refused = best.lead == "B" and isinstance(whole, ModelError) and not isinstance(whole, LayoutError)
        return whole if is_refused and not _runs_alike(module, x, layout) else best
    if isinstance(whole, OneStepError) and layout == "B":
        last = _import_or_refuse(module, x, "B", None, True)
    if isinstance(whole, OneStepError) and isinstance(last, Imported) and not last.n_states:
        return last
    first = next((result for result in results if not isinstance(result, ModuleFailedError)), None)
    if isinstance(first, Imported) and isinstance(last, ModelError) and NO_NEURONS not in str(last):
        return last  # the module keeps its state from call to call, but not as a neuron does
    if isinstance(first, Imported):
        return _refuse_other_layout(module, x, layout) or first
    refusals = [e for e in results if isinstance(e, ModelError)]
    if not refusals and isinstance(last, ModuleFailedError) and len(results) > 1:
        return ModuleFailedError(f"with all steps, {whole}; step by step, {last}")
    named = [e for e in refusals if not isinstance(e, LayoutError)] or refusals
    return next((e for e in named if NO_NEURONS not in str(e)), (named or results)[0])


def _count_memory(result: Imported) -> int:
    """Return the number of states and of delayed connections."""
    return result.n_states + sum(c.aligned_delay > 0 for c in result.network.connections)


def _explain_failure(
    failure: ModelError | ModuleFailedError, module: torch.nn.Module, x: torch.Tensor, example_input, layout: str, relu
) -> ModelError:
    """Return the refusal, or what is wrong with the module or its layout."""
    for path, part in module.named_modules():
        if is_foreign_neuron(part) and find_kind(part) is None and not is_rewritten(part):
            return ModelError(f"{path!r}: {explain_unsupported(part)}" if path else explain_unsupported(part))
    if isinstance(failure, LayoutError):
        return failure
    is_operation = type(failure) is ModelError and NO_NEURONS not in str(failure)  # whatever the layout
    hint = "" if is_operation else _hint_layout(module, example_input, layout, relu)
    if isinstance(failure, ModelError):
        is_rock = any(map(is_rockpool, module.modules()))
        return failure.ending(f"; or {TO_NIR}" if is_rock else hint)
    if run_samples(module, x, "once" if layout == "B" else layout) is not None:
        return ModelError(
            f"the module fails on one sample of the example, on which its neurons are looked for: {failure}{hint}"
        )
    return ModelError(
        f"{type(module).__name__} cannot be run on example_input of shape {list(np.shape(example_input))}: {failure}; "
        f"example_input must be {LAYOUTS[layout]} as the module takes it{hint}"
    )


def _import_or_refuse(
    module: torch.nn.Module, x: torch.Tensor, lead: str, relu: NeuronSpec | None, looks_inside: bool
) -> Result:
    """Return a refusal instead of raising it, and what the module raises if it cannot be run with these axes."""
    parts = {} if looks_inside else find_parts(module, relu)
    try:
        return _import_with_steps(module, x, lead, parts, relu)
    except ModuleFailedError as e:
        return e
    except ModelError as e:
        code = DIFFERENT_STEPS if isinstance(e, DifferentStepsError) else UNSUPPORTED
        return type(e)(str(e), code=code) if parts and e.code == HAND_WRITTEN else e
    except Exception as e:
        error = CrashError(f"nwcompile fails on the module's operators ({type(e).__name__}: {e}); please report it")
        error.__cause__ = e
        return error


def _refuse_other_layout(module: torch.nn.Module, x: torch.Tensor, layout: str) -> ModelError | None:
    """Return a refusal if a module whose neurons keep no state in one layout keeps some in the other."""
    other = layout[::-1]
    imported = _import_or_refuse(module, x.transpose(0, 1), other, None, True)
    if not isinstance(imported, Imported) or not imported.n_states:
        return None
    return ModelError(
        f"{type(module).__name__} keeps no state from step to step of an example {LAYOUTS[layout]}, but does so with "
        f"layout={other!r}, for an example {LAYOUTS[other]}; give the layout that the module takes"
    )


def _import_with_steps(
    module: torch.nn.Module,
    x: torch.Tensor,
    lead: str,
    layers: dict[torch.nn.Module, str],
    relu: NeuronSpec | None,
) -> Imported:
    """Import on one sample; repeat its steps if they are too few to see what each computes."""
    given = [x.shape[1], *(n for n in REPEATED_STEPS if n > x.shape[1] and lead != "once")]
    refused = None
    for n_steps in given:
        try:
            with preserve_state(module):
                longer = torch.cat([x[:1]] * -(-n_steps // x.shape[1]), 1)
                return import_operators(module, longer, lead, name_input(module), layers, relu)
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
    if imported.reads:
        _verify_reads(imported, module, given[:1])
    half = find_half_precision(imported.recorder.ops, before_layers=not imported.has_own)
    if half is not None:
        warn_user(
            f"{half.site}: the module computes in {name_dtype(half.value.dtype)} and the network in float32, so their "
            "spikes may differ; import module.float() to compare what the network computes"
        )
    layers = {part.module: part.name for part in imported.parts}
    has_own = imported.has_own
    n_samples = n_samples if has_own else 1
    verify_samples(module, given[:1], imported.lead, n_samples, layers, imported.recorder, has_own)
    spikes = None if has_own else record_spikes(module, given, imported.lead, imported.parts)
    if spikes is None:
        compare_spikes(imported.network, given[:1], imported.spikes)
    else:
        compare_spikes(imported.network, given, spikes)
    if not imported.reads and len(imported.drawn) and has_own:
        compare_drawn(imported.network, imported.drawn, imported.drawn_spikes)
    if imported.network.readout is not None and not has_own and _returns_output(imported, module, given):
        return replace(imported.network, readout=None)
    return _prove_readout(imported, module, given[:1])


def _verify_reads(imported: Imported, module: torch.nn.Module, sample: torch.Tensor) -> None:
    """Raise ModelError if a value that the module reads changes what its layers do on drawn inputs."""
    drawn = draw_like(sample)
    small = [one * (SMALL / one.abs().max().clamp(min=1)) for one in (sample, *drawn)]
    for given in [*drawn, *small, torch.zeros_like(sample)]:
        given = _repeat_steps(given[:, :1], imported.n_steps) if imported.lead == "once" else given
        spikes = record_spikes(module, given, imported.lead, imported.parts)
        layer = spikes and find_different_layer(imported.network, given, spikes)
        if layer:
            raise ModelError(
                f"{imported.reads}: the code reads a value of a tensor (if, while, .item(), float(), .numpy()) that "
                f"depends on the input, and layer {layer!r} then spikes differently on other inputs; a chip runs the "
                "same operations for every input; choose with torch.where"
            )


def _returns_output(imported: Imported, module: torch.nn.Module, example: torch.Tensor) -> bool:
    """Return whether a module of a fixed number of samples returns the output for those of the example."""
    more = torch.cat([example, example[:1]])
    if len(example) == 1 or run_samples(module, more, imported.lead) is not None:
        return False
    result = run_samples(module, example, imported.lead, imported.depth)
    output = simulate(imported.network, example.numpy()).output
    if result is None or isinstance(output, dict) or result.numel() != output.size:
        return False
    return find_factor(result.reshape(output.shape), torch.from_numpy(output)) > 0


def _prove_readout(imported: Imported, module: torch.nn.Module, x: torch.Tensor) -> Network:
    """Return the network with a readout for as many lengths of samples as the module proves.

    A readout that mixes samples is left out. An output that is the result on the example's number of steps only is read
    out too.
    """
    network, read_output = imported.network, imported.read_output
    if network.readout is None and (read_output is None or imported.lead == "once"):
        return network
    try:
        reads = bool(imported.reads)
        tries = Tries(module, x, imported.lead, network, imported.depth, reads, imported.takes_spikes)
        if network.readout is not None:
            if not imported.has_own:
                tries.verify_results(network, network.readout, imported.parts)
            return replace(network, readout=tries.allow_other_lengths(network, network.readout))
        is_proven = read_output is None or tries.prove_output(network)
    except ModuleFailedError:
        return network
    except ModelError as e:
        return replace(network, readout=None, left_out="; ".join(filter(None, (network.left_out, str(e)))))
    if is_proven or read_output is None:
        return network
    readout = read_output()
    is_missing = readout is None and not imported.takes_spikes  # other inputs than spikes give other results
    return replace(network, readout=readout, left_out=network.left_out or OF_EXAMPLE * is_missing)


def _hint_layout(module: torch.nn.Module, example_input, layout: str, relu: NeuronSpec | None) -> str:
    """Return the end of a refusal: a layout in which the same example can be imported, or ""."""
    for other in (name for name in LAYOUTS if name != layout):
        try:
            x = prepare_example(module, example_input, other)
        except ModelError:
            continue
        results = _try_leads(module, x, _possible_leads(module, other), relu)
        imports = [result for result in results if isinstance(result, Imported) and result.parts]
        if imports and (other != "B" or imports[0].n_steps > 1):
            return f"; with layout={other!r}, for an example {LAYOUTS[other]}, it can be imported"
    return ""


def name_input(module: torch.nn.Module) -> str:
    """Return a name for the input that no part of the module has."""
    paths = dict(module.named_modules())
    return next(name for name in INPUT_NAMES if name not in paths)


def _repeat_steps(x: torch.Tensor, n_steps: int) -> torch.Tensor:
    """Repeat one step `[B, 1, *shape]` for `n_steps` steps."""
    return x.expand(x.shape[0], n_steps, *x.shape[2:])


def _possible_leads(module: torch.nn.Module, layout: str) -> tuple[str, ...]:
    """Return the possible axis orders of the example: all steps, step by step, or steps merged with samples."""
    if layout == "B":
        return ("once",)
    merged = "*".join(layout)
    parts = [(find_kind(part), part) for part in module.modules()]
    taken = [kind.leads(part) for kind, part in parts if kind is not None]
    one_step = ("B",) if not taken or any("B" in leads for leads in taken) else ()  # some layers are never called
    return (layout, *one_step, merged) if any(merged in leads for leads in taken) else (layout, *one_step)
