"""Find the readout of a module whose layers are known: record it again, with the layers as the only sources."""

from collections import defaultdict
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from typing import Any

import torch

from nwcompile.errors import ModelError, NwError
from nwcompile.frontend.torch.operators import draw_like, group_results, list_steps, prepare_run
from nwcompile.frontend.torch.operators.neurons import drop_sums, find_regions
from nwcompile.frontend.torch.operators.readout import (
    Record,
    Records,
    build_readout,
    is_close,
    record_layers,
    verify_readout,
)
from nwcompile.frontend.torch.operators.record import Op, OperatorRecorder
from nwcompile.frontend.torch.operators.roll import Node, roll_steps, select_used
from nwcompile.frontend.torch.operators.steps import Steps, set_times
from nwcompile.frontend.torch.operators.unroll import unroll_after
from nwcompile.ir.network import Network
from nwcompile.ir.readout import Readout

ERROR_CODE = "NW2309"
MORE_STEPS = 3  # by which a second run is longer, to see whether a readout is for any number of steps
Preserve = Callable[[torch.nn.Module], AbstractContextManager]


def find_readout(
    network: Network,
    module: torch.nn.Module,
    layers: dict[torch.nn.Module, str],
    x: torch.Tensor,
    lead: str,
    preserve: Preserve,
) -> Readout:
    """Return how a module turns its `layers` into its first result.

    `x`: one sample of the example, `[1, T, *shape]`. `layers`: the modules whose spikes or states the network has, and
    their names. `preserve(module)` clears and restores the module's state. Raises ModelError if the result cannot be
    followed.
    """
    trials = torch.cat([x, *draw_like(x)])
    if lead == "once":
        trials = trials[:, :1].expand_as(trials).contiguous()
    run = record_layers(network, trials)
    records = Records(network, run)
    n_steps = trials.shape[1]
    busiest = records.find_busiest()
    with preserve(module):
        do, given, _ = prepare_run(module, trials[busiest : busiest + 1], lead)
        recorder = OperatorRecorder(given, {part: path for path, part in module.named_modules()}, layers)
        try:
            result = recorder.record(do, given)
        except NwError:
            raise
        except Exception as e:
            raise ModelError(f"the module fails on drawn inputs: {e}") from e
    groups = group_results(result, n_steps)
    if not groups:
        raise ModelError("the module returns no tensor")
    needed = _find_needed(groups[0])
    matches, values = _match_records(needed, records, busiest)
    known = unroll_after(needed, values, n_steps)
    outputs = set_times([step for op in groups[0] for step in list_steps(known[op])], n_steps)
    graph = None
    with suppress(ModelError):  # a result of some steps only has no step that others repeat
        graph = roll_steps(outputs, [recorder.input] * n_steps)
    if graph is not None and any(region.has_state and region.fires for region in find_regions(drop_sums(graph))):
        raise ModelError("neurons follow the known layers")
    outputs = graph.outputs if graph is not None else select_used(outputs)[1]
    expected = torch.cat([_run_module(module, trial[None], lead, n_steps, preserve) for trial in trials])
    return build_readout(graph, n_steps, lambda item: _find_record(item, matches), outputs, run, expected)


def _find_record(item: Node | Op, matches: dict[tuple, Record]) -> Record | None:
    op = item.op if isinstance(item, Node) else item
    return matches[op.args] if op.name == "record" else None


def allow_any_length(network: Network, module: torch.nn.Module, drawn: torch.Tensor, lead: str, preserve: Preserve):
    """Return the network with a readout for any number of steps, if the module proves it on a longer sample.

    `drawn`: samples `[S, T, *shape]`.
    """
    readout = network.readout
    if readout is None or lead == "once":
        return network
    longer = torch.cat([drawn, drawn.flip(1)[:, :MORE_STEPS]], 1)
    try:
        results = [_run_module(module, sample, lead, longer.shape[1], preserve) for sample in longer.split(1)]
    except ModelError:
        return network  # the module takes a fixed number of steps
    run = record_layers(network, longer)
    for general in readout.for_any_length():
        with suppress(ModelError):
            verify_readout(general, run, torch.cat(results))
            return replace(network, readout=general)
    return network


def _run_module(module: torch.nn.Module, x: torch.Tensor, lead: str, n_steps: int, preserve: Preserve) -> torch.Tensor:
    """Return the first result of a module for one sample `[1, T, *shape]`: `[1, *]`, or `[1, T, *]` of a list of steps.

    Raises ModelError if the module fails.
    """
    with preserve(module), torch.no_grad():
        do, given, _ = prepare_run(module, x, lead)
        try:
            result = do(given)
        except Exception as e:
            raise ModelError(f"the module fails on drawn inputs: {e}") from e
    tensors = group_results(result, n_steps)[0]
    return torch.stack(tensors)[None] if len(tensors) > 1 else tensors[0][None]


def _find_needed(outputs: list[Op]) -> list[Op]:
    """Return the operators that lead from layers to the outputs, in order."""
    needed: set[Op] = set()
    waiting = list(outputs)
    while waiting:
        op = waiting.pop()
        if op not in needed and op.depends:
            needed.add(op)
            waiting += op.operands
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
