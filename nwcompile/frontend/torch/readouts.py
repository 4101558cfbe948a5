"""Find the readout of a module whose layers are known: record it again, with the layers as the only sources."""

import sys
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from math import isclose
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
import torch

import nwcompile
from nwcompile.errors import ModelError, NwError
from nwcompile.frontend.torch.kinds import fit_batch
from nwcompile.frontend.torch.modules import preserve_state
from nwcompile.frontend.torch.operators import (
    ModuleFailedError,
    draw_like,
    group_results,
    list_results,
    prepare_run,
    record_run,
)
from nwcompile.frontend.torch.operators.graph import Node
from nwcompile.frontend.torch.operators.neurons import drop_sums, find_regions
from nwcompile.frontend.torch.operators.readout import (
    CLOSE,
    Record,
    Records,
    build_readout,
    is_close,
    record_layers,
    verify_readout,
)
from nwcompile.frontend.torch.operators.record import TORCH, Op, aten, run_op
from nwcompile.frontend.torch.operators.roll import find_operands, roll_steps, select_used
from nwcompile.frontend.torch.operators.steps import Steps
from nwcompile.frontend.torch.operators.unroll import unroll_after
from nwcompile.frontend.torch.results import is_multiple
from nwcompile.ir.network import Network
from nwcompile.ir.readout import Readout
from nwcompile.ir.run import Run
from nwcompile.sim import simulate

ERROR_CODE = "NW2309"
MORE_STEPS = 3  # by which a sample is a little longer
SCALES = (0.0, 0.01, 100.0)
DENSITIES = (0.05, 0.15, 0.3, 0.5, 0.7, 0.9)  # of drawn spikes
MIN_LENGTHS = 2  # other lengths on which a readout must be right to be for any number of steps
ROUNDED = 0.1  # part of a result that may differ: at most 0.07 in SpikingJelly's MaxFormer, whose sums round otherwise
MOST_STEPS = 1000  # of a sample that is longer than the numbers in the module's code
MOST_VALUES = 10_000_000  # of all neurons in all its steps
PACKAGE = str(Path(nwcompile.__file__).parent)
Pair = tuple[torch.Tensor, torch.Tensor]  # a result, and the output that it may be a multiple of


class BatchError(ModelError):
    """The result of a sample depends on the other samples of its batch."""


def find_readout(
    network: Network,
    module: torch.nn.Module,
    layers: dict[torch.nn.Module, str],
    x: torch.Tensor,
    lead: str,
    has_reads: bool,
    is_output: bool = False,
) -> Readout | None:
    """Return how a module turns its `layers` into its first result; None if that is an output of the network.

    `x`: one sample of the example, `[1, T, *shape]`. `layers`: the modules whose spikes or states the network has, and
    their names. `has_reads`: whether the module reads values of the input, which may decide what it computes; then more
    inputs are tried. `is_output`: the result is an output on the example's number of steps. Raises ModelError if the
    result cannot be followed.
    """
    tries = Tries(module, x, lead, network, has_reads)
    tries.verify_batch()
    if is_output and tries.prove_output(network):
        return None
    run, expected = record_layers(network, tries.samples), tries.results
    if _is_output(network, run, expected) and all(
        _is_output(network, record_layers(network, samples), results) for samples, results in tries.other_lengths
    ):
        return None
    records = Records(network, run)
    busiest = records.find_busiest()
    sample, n_steps = tries.samples[busiest : busiest + 1], x.shape[1]
    with preserve_state(module):
        try:
            recorder, result = record_run(module, sample, lead, layers)
        except NwError:
            raise
        except Exception as e:
            raise ModelError(f"the module fails while its operators are recorded: {e}") from e
    first = group_results(result, n_steps)[0]
    needed = _find_needed(first)
    matches, values = _match_records(needed, records, busiest)
    known = unroll_after(needed, values, n_steps)
    outputs = list_results([known.get(op, op) for op in first], n_steps)
    graph = None
    with suppress(ModelError):  # a result of some steps only has no step that others repeat
        graph = roll_steps(outputs, [recorder.input] * n_steps)
    if graph is not None and any(region.has_state and region.fires for region in find_regions(drop_sums(graph))):
        raise ModelError("neurons follow the known layers")
    outputs = graph.outputs if graph is not None else select_used(outputs)[1]

    def find_record(item: Node | Op) -> Record | None:
        op = item.op if isinstance(item, Node) else item
        return matches[op.args] if op.name == "record" else None

    readout = build_readout(graph, n_steps, find_record, outputs, run, expected)
    return tries.allow_other_lengths(network, readout)


class Tries:
    """Runs of a module, one sample at a time, on the example and on drawn samples of the same and of other lengths.

    `samples` `[S, T, *shape]`, and the first result for each, `results` `[S, *]`. `other_lengths`: samples of other
    numbers of steps with their results, none if the module fixes the number; the longest has more steps than any number
    in the code that runs, such as 15 in `x[:, :15]`. Raises ModuleFailedError if the module fails on the example.
    """

    def __init__(self, module: torch.nn.Module, x: torch.Tensor, lead: str, network: Network, has_reads: bool = False):
        self.module, self.lead = module, lead
        samples = torch.cat([x, *draw_like(x), *(_vary(x) if has_reads else [])])
        if lead == "once":
            samples = samples[:, :1].expand_as(samples).contiguous()
        given = [(sample, result) for sample in samples.split(1) if (result := self._run(sample)) is not None]
        if not given or not torch.equal(given[0][0], samples[:1]):
            raise ModuleFailedError("the module fails on one sample, or gives no tensor")
        given = [pair for pair in given if pair[1].shape == given[0][1].shape]
        self.samples, self.results = (torch.cat(parts) for parts in zip(*given, strict=True))
        self.other_lengths: list[tuple[torch.Tensor, torch.Tensor]] = []
        lengths = []
        if lead != "once":
            limit = min(MOST_STEPS, MOST_VALUES // sum(network.node(name).n_neurons for name in network.layers))
            numbers = find_numbers(module, lambda: self._run(self.samples[:1]))
            lengths = _change_lengths(self.samples, max((n for n in numbers if n <= limit), default=0))
        for others in lengths:
            results = [result for sample in others.split(1) if (result := self._run(sample)) is not None]
            if len(results) == len(others) and len({result.shape for result in results}) == 1:
                self.other_lengths.append((others, torch.cat(results)))

    def verify_batch(self) -> None:
        """Raise BatchError if the results of two samples depend on each other."""
        both = self._run(self.samples[:2]) if len(self.samples) > 1 else None
        if both is None:
            return
        both, *alone = (result.double().nan_to_num(0, 0, 0) for result in (both, *self.results[:2]))
        for axis, n in enumerate(alone[0].shape, 1):
            for sizes in ((2, n), (n, 2)):  # steps and samples may share an axis
                if both.shape[axis] == 2 * n and both.ndim == alone[0].ndim + 1:
                    parts = both[0].unflatten(axis - 1, sizes).unbind(axis - 1 + (sizes[0] != 2))
                    if all(p.shape == a.shape and is_close(p, a) for p, a in zip(parts, alone, strict=True)):
                        return
        raise BatchError(
            "the module's result for a sample depends on the other samples of its batch, or is another one alone"
        )

    def prove_output(self, network: Network) -> bool:
        """Return whether the result is an output of the network on other numbers of steps too, if it is one on these.

        More than half of the samples of a length decide. If some of these differ already, each decides up to `ROUNDED`.
        """
        pairs_of_sample = _pair_outputs(network, self.samples, self.results)
        rows = [{place: _find_factor(*pair) for place, pair in pairs.items()} for pairs in pairs_of_sample]
        factors = next(({place: f for place, f in row.items() if f} for row in rows if any(row.values())), {})
        is_exact = all(any(row.values()) for row in rows)

        def agrees(pair: Pair, factor: float) -> bool:
            """Return whether a result is `factor` times an output, but for spikes that sums round otherwise."""
            if is_exact:
                return isclose(_find_factor(*pair), factor, rel_tol=CLOSE)
            values = pair[0].float()
            return bool((values - factor * pair[1]).abs().sum() <= ROUNDED * values.abs().sum())

        for samples, results in self.other_lengths if factors else []:
            rates = (1.0, self.samples.shape[1] / samples.shape[1])  # of a sum, and of a mean
            wanted = [(place, factor * rate) for place, factor in factors.items() for rate in rates]
            agreed = [
                any(place in pairs and agrees(pairs[place], factor) for place, factor in wanted)
                for pairs in _pair_outputs(network, samples, results)
            ]
            if sum(agreed) * 2 < len(agreed):
                return False
        return True

    def allow_other_lengths(self, network: Network, readout: Readout) -> Readout:
        """Return the readout for any number of steps, if it gives the module's results on samples of other lengths."""
        if len(self.other_lengths) < MIN_LENGTHS:
            return readout
        runs = [(record_layers(network, samples), results) for samples, results in self.other_lengths]
        proven = []
        for general in readout.for_any_length():
            with suppress(ModelError):
                for run, results in runs:
                    verify_readout(general, run, results)
                proven.append(general)
        return proven[0] if len(proven) == 1 or (proven and proven[0].after == proven[-1].after) else readout

    def _run(self, x: torch.Tensor) -> torch.Tensor | None:
        return run_samples(self.module, x, self.lead)


def run_samples(module: torch.nn.Module, x: torch.Tensor, lead: str) -> torch.Tensor | None:
    """Return a module's first result for samples `[B, T, *shape]`, with an axis of 1 in front; None if it fails.

    If the module returns a list with one tensor per step, they are stacked: `[1, T, *]`.
    """
    with preserve_state(module), torch.no_grad():
        for part in module.modules():
            fit_batch(part, len(x))
        try:
            do, given = prepare_run(module, x, lead)
            tensors = group_results(do(given), x.shape[1])
        except Exception:  # of the module: it does not take such samples
            return None
    if not tensors or not tensors[0]:
        return None
    return (torch.stack(tensors[0]) if len(tensors[0]) > 1 else tensors[0][0])[None]


def _vary(x: torch.Tensor) -> list[torch.Tensor]:
    """Return the example in other scales, and drawn spikes of other densities."""
    draw = torch.Generator().manual_seed(0)
    drawn = torch.rand(len(DENSITIES), *x.shape[1:], generator=draw).to(x.dtype)
    spikes = [(part < density).to(x.dtype) for part, density in zip(drawn.split(1), DENSITIES, strict=True)]
    return [*(scale * x for scale in SCALES), *spikes]


def _change_lengths(samples: torch.Tensor, number: int) -> list[torch.Tensor]:
    """Return drawn samples that are shorter, a little longer, much longer, and longer than a number of steps.

    One of the last is silent for that number of steps: a result such as tanh of a sum shows no more than a few.
    """
    n_steps, drawn = samples.shape[1], samples[1:]
    longer = [torch.cat([drawn, drawn.flip(1)[:, :MORE_STEPS]], 1), torch.cat([drawn[:2], drawn[:2].flip(1)] * 2, 1)]
    if number + MORE_STEPS > longer[1].shape[1]:
        late = drawn[:2].repeat(1, 1 - -number // n_steps, *[1] * (samples.ndim - 2))
        late[1:, :number] = 0
        longer.append(late)
    return [drawn[:, : (n_steps + 1) // 2], *longer] if len(drawn) else []


def find_numbers(module: torch.nn.Module, run: Callable[[], Any]) -> set[int]:
    """Return the whole numbers that the code of `run` may use: constants, arguments, globals, attributes of modules.

    Torch leaves no trace of `x[:, :15]` if the tensor is shorter, and `range(min(T, 15))` never leaves one.
    """
    parts: list[Any] = list(module.modules())
    parts += [value for part in parts for value in vars(part).values() if hasattr(value, "__dict__")]
    attributes = [vars(owner) for part in parts for owner in (*type(part).__mro__, part)]
    numbers: set[int] = set()
    seen: set[CodeType] = set()

    def note_code(frame: FrameType, event: str, _) -> None:
        code = frame.f_code
        if event == "call" and code not in seen and not code.co_filename.startswith((TORCH, PACKAGE)):
            seen.add(code)
            scopes = [frame.f_globals, *attributes]
            named = [scope[name] for name in code.co_names for scope in scopes if name in scope]
            values = [*code.co_consts, *frame.f_locals.values(), *named]
            numbers.update(abs(value) for value in values if type(value) is int)

    before = sys.getprofile()
    sys.setprofile(note_code)
    try:
        run()
    finally:
        getattr(before, "enable", lambda: sys.setprofile(before))()  # cProfile's profiler is no function
    return numbers


def _is_output(network: Network, run: Run, expected: torch.Tensor) -> bool:
    """Return whether a module's results `[S, *]` are an output of its network in every step, or summed over them."""
    outputs = run.output if isinstance(run.output, dict) else {network.outputs[0]: run.output}
    for output in outputs.values():
        record = torch.from_numpy(np.asarray(output, np.float64)).flatten(2)
        orders = [expected, *(expected.movedim(k, 1) for k in range(2, expected.ndim) if expected.shape[k] > 1)]
        for target in (record, record.sum(1)):
            same = [order for order in orders if order.numel() == target.numel()]
            if any(is_multiple(order.reshape(target.shape), target) for order in same):
                return True
    return False


def _pair_outputs(network: Network, samples: torch.Tensor, results: torch.Tensor) -> list[dict[tuple, Pair]]:
    """Return each sample's result next to the outputs, in every step or summed, by output, axis of steps, and which.

    Samples on which all outputs and results are 0 are left out.
    """
    run = simulate(network, samples.float().cpu().numpy())
    outputs = run.output if isinstance(run.output, dict) else {network.outputs[0]: run.output}
    rows: list[dict[tuple, Pair]] = []
    for s, result in enumerate(results):
        row, is_silent = {}, not result.any()
        for name, output in outputs.items():
            record = torch.from_numpy(np.asarray(output[s], np.float32)).flatten(1)
            is_silent &= not record.any()
            for axis in range(result.ndim):
                order = result.movedim(axis, 0)
                for is_sum, target in enumerate((record, record.sum(0, keepdim=True))):
                    if order.numel() == target.numel():
                        row[name, axis, is_sum] = order.reshape(target.shape), target
        if not is_silent:
            rows.append(row)
    return rows


def _find_needed(outputs: list[Op]) -> list[Op]:
    """Return the operators that lead from layers to the outputs, in order."""
    needed = find_operands(outputs)
    if any(op.name == "input" for op in needed):
        raise ModelError("the module's result depends on its input, not only on what its layers do")
    if not needed:
        raise ModelError("the module's result does not depend on its layers")
    return sorted(needed, key=lambda op: op.serial)


def _match_records(needed: list[Op], records: Records, trial: int) -> tuple[dict[tuple, Record], dict[Op, Any]]:
    """Return which layer's spikes or state each operator "record" has, by its arguments, and its steps."""
    calls: dict[tuple, list[Op]] = defaultdict(list)
    for op in needed:
        if op.name == "record":
            calls[op.args].append(op)
    matches: dict[tuple, Record] = {}
    values: dict[Op, Any] = {}
    for args, ops in calls.items():
        match = _match_record(args[0], ops, records, trial)
        if match is None:
            raise ModelError(f"{ops[0].site}: a value of layer {args[0]!r} that is neither its spikes nor a state")
        matches[args], steps = match
        values |= steps
    return matches, values


def _match_record(layer: str, ops: list[Op], records: Records, trial: int) -> tuple[Record, dict[Op, Any]] | None:
    for (name, state), known in records.known.items():
        if name != layer:
            continue
        record = known[trial]
        if len(ops) > 1:
            factor = _find_factor(torch.stack([op.value.reshape(-1) for op in ops]), record)
            if factor:
                return Record(layer, state, factor), {op: replace(op, step=t) for t, op in enumerate(ops)}
            continue
        (op,), n_steps = ops, len(record)
        for axis in range(op.value.ndim):
            if op.value.shape[axis] == n_steps:
                factor = _find_factor(op.value.movedim(axis, 0).reshape(n_steps, -1), record)
                if factor:
                    parts = [part.unsqueeze(axis) for part in op.value.unbind(axis)]
                    entries = [replace(op, value=part, step=t) for t, part in enumerate(parts)]
                    return Record(layer, state, factor), {op: Steps(entries, axis)}
        for t in reversed(range(n_steps)):
            factor = _find_factor(op.value.reshape(1, -1), record[t : t + 1])
            if factor:
                return Record(layer, state, factor), {op: replace(op, step=t)}
        factor = _find_factor(op.value.reshape(1, -1), record.mean(0, keepdim=True))
        if factor:
            parts = [step.reshape(1, -1) for step in record.to(op.value.dtype)]
            entries = [replace(op, value=part, step=t) for t, part in enumerate(parts)]
            whole = run_op(aten.cat.default, (entries, 0), {}, op.site)
            mean = run_op(aten.mean.dim, (whole, [0], True), {}, op.site)
            shaped = run_op(aten.reshape.default, (mean, list(op.value.shape)), {}, op.site)
            return Record(layer, state, factor), {op: shaped}
    return None


def _find_factor(values: torch.Tensor, record: torch.Tensor) -> float:
    """Return the number by which values are the record's, or 0. Spikes may be worth more than 1."""
    values = values.float()
    if values.shape != record.shape:
        return 0.0
    if is_close(values, record):
        return 1.0
    factor = float((values * record).sum() / (record * record).sum().clamp(min=1e-12))
    return factor if factor > 0 and is_close(values, factor * record) else 0.0
