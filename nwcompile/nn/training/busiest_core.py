"""The work of the busiest core as a loss: a chip's step takes as long as its busiest core, not as the mean."""

from dataclasses import dataclass
from math import inf
from weakref import WeakKeyDictionary

import numpy as np
import torch

from nwcompile.argument_types import checked
from nwcompile.cost.neuron_program import chip_instructions
from nwcompile.cost.time.work import COUNTERS_OF, compute_work
from nwcompile.cost.traffic.multicast import spike_fanout
from nwcompile.errors import ModelError, OptionError, shown, unknown_choice
from nwcompile.ir.program import SYNAPSE_KINDS, Program
from nwcompile.nn.layers.lif import LIFLayer

WORKS = ("synops", "cycles")


@dataclass(frozen=True, eq=False)
class SpikeCost:
    """Cost of one spike of each neuron of a layer, or of each line of an input.

    `synops`: int64[source, core], weights read. `cycles`: int64[unit, source, core], busy core cycles of each unit;
    None on a chip without times.
    """

    synops: np.ndarray
    cycles: np.ndarray | None


def spike_cost(program: Program, name: str) -> SpikeCost:
    """Compute the SpikeCost of an input or layer with the figures of `traffic.count_events` and `work.compute_work`."""
    axons, first = program.axons, program.network.offsets[name]
    n_sources, n_cores = program.network.node(name).n_neurons, program.mapping.n_cores
    at = slice(axons.offset[first], axons.offset[first + n_sources])
    place = axons.source[at] - first, axons.core[at]
    counters = _no_events(n_sources, n_cores)
    counters["messages_in"][place] = 1
    counters["weight_reads"][place] = axons.words[at]
    for i, kind in enumerate(SYNAPSE_KINDS):
        counters[f"synops_{kind}"][place] = axons.synops[at, i]
    if name in program.network.layers:
        home = np.arange(n_sources), program.core_of[first : first + n_sources]
        counters["spikes_out"][home] = 1
        counters["messages_out"][home] = spike_fanout(program).messages[first : first + n_sources]
        if program.chip.io.sites is not None and name in program.network.outputs:
            counters["messages_io_out"][home] = 1
    synops = np.sum([counters[f"synops_{kind}"] for kind in SYNAPSE_KINDS], axis=0)
    return SpikeCost(synops, _busy_cycles(program, counters))


def idle_cycles(program: Program) -> np.ndarray | None:
    """Return int64[unit, core]: busy cycles of a step without spikes that updates every neuron; None if unknown."""
    counters = _no_events(1, program.mapping.n_cores)
    held = np.bincount(program.core_of[program.core_of >= 0], minlength=program.mapping.n_cores)
    counters["neuron_visits"][0] = counters["neuron_updates"][0] = held
    for name in program.network.layers:
        n = chip_instructions(program.chip, program.network.node(name).neuron)
        cores = program.mapping.core_of[name]
        counters["neuron_instructions"][0] += n * np.bincount(cores, minlength=program.mapping.n_cores)
    busy = _busy_cycles(program, counters)
    return None if busy is None else busy[:, 0]


def _no_events(n_rows: int, n_cores: int) -> dict[str, np.ndarray]:
    names = ["neuron_instructions", *(name for names in COUNTERS_OF.values() for name in names)]
    return {name: np.zeros((n_rows, n_cores), np.int64) for name in names}


def _busy_cycles(program: Program, counters: dict[str, np.ndarray]) -> np.ndarray | None:
    """Return int64[unit, row, core]: `compute_work` of counters whose rows are sources instead of steps."""
    if not program.chip.has_times:
        return None
    no_flits = np.zeros((1, len(program.chip.link_cycles)), np.int64)
    return compute_work(program, counters, no_flits, 1).busy


@checked()
def busiest_core_loss(
    spikes: dict[str, torch.Tensor], program: Program, work: str = "synops", order: float = inf
) -> torch.Tensor:
    """Return the work of the busiest core per hardware step, averaged over steps and samples; differentiable.

    `spikes`: `[B, T, *shape]` of every input and layer of `program`, by name (see `spikes_of`); gradients reach them.
    The mapping of neurons to cores and the storage of synapses are those of the program.
    `work="synops"` counts stored weights that are read. For one sample it equals
    `run.counters["synops"].max(1).mean()` for the same spikes. `work="cycles"` counts core cycles of the busiest unit
    of the busiest core, as `cost.time.work` sums them. This is the floorline without barrier and links, with every
    neuron updated in every step, as a loss cannot know which neurons are skipped.
    `order`: the maximum over cores (and units) is computed as a p-norm of this order. Infinity is the maximum itself,
    whose gradient reaches only the busiest core; 8 is a smooth upper bound of it; 1 is the sum.
    Raises ModelError for missing or misshapen spikes and for a chip without times, OptionError for unknown choices.
    """
    if work not in WORKS:
        raise OptionError(unknown_choice("work", work, WORKS))
    if not order >= 1:
        raise OptionError(f"order={shown(order)} must be 1 or more, up to infinity")
    if work == "cycles" and not program.chip.has_times:
        raise ModelError(f"the chip file of {program.chip.name} lacks the costs of events; use work='synops'")
    counts = {name: _count_messages(program, name, spikes) for name in program.network.offsets}
    with torch.autocast(next(iter(counts.values())).device.type, enabled=False):  # cycles are beyond float16
        parts = [_schedule_work(program, name, count, work) for name, count in counts.items()]
    total = sum(parts[1:], parts[0])
    if work == "cycles":
        total = total + _idle_work(program).to(total)
    largest = total.detach().amax(-1, keepdim=True).clamp(min=1)  # powers of cycles would overflow
    return (torch.linalg.vector_norm(total / largest, ord=order, dim=-1, keepdim=True) * largest).mean()


@checked()
def spikes_of(net: torch.nn.Module, x: torch.Tensor, name: str = "input") -> tuple[object, dict[str, torch.Tensor]]:
    """Return `net(x)`, and the spikes `[B, T, *shape]` of its input and of all its LIFLayers, by name.

    The names are those that `from_torch` gives. `x`: `[B, T, *shape]`, for a network that takes whole sequences. Call
    `prepare_net` first. Raises ModelError for a network without layers.
    """
    layers = {path: m for path, m in net.named_modules() if isinstance(m, LIFLayer)}
    if not layers:
        raise ModelError(f"{type(net).__name__} has no layers of nwcompile.nn")
    spikes: dict[str, torch.Tensor] = {name: x}

    def make_hook(path: str):
        def record_output(module, inputs, output):
            spikes[path] = output[0]

        return record_output

    hooks = [m.register_forward_hook(make_hook(path)) for path, m in layers.items()]
    try:
        result = net(x)
    finally:
        for hook in hooks:
            hook.remove()
    return result, spikes


def _count_messages(program: Program, name: str, spikes: dict[str, torch.Tensor]) -> torch.Tensor:
    """Return the messages of each source to each destination, `[B, T, n]`."""
    node = program.network.node(name)
    if name not in spikes:
        raise ModelError(f"busiest_core_loss: spikes of {name!r} are missing; given: {', '.join(spikes) or 'none'}")
    given = spikes[name]
    if given.ndim < 3 or given[0, 0].numel() != node.n_neurons:
        expected = f"[B, T, {', '.join(map(str, node.shape))}]"
        raise ModelError(f"busiest_core_loss: spikes of {name!r} are {list(given.shape)}, not {expected}")
    flat = given.flatten(2)
    flat = flat.to(torch.promote_types(flat.dtype, torch.float32))
    if node.neuron is not None and node.neuron.spikes == "binary":
        return flat
    return flat.abs() if program.repeats else flat.abs().clamp(max=1)


def _schedule_work(program: Program, name: str, counts: torch.Tensor, work: str) -> torch.Tensor:
    """Return the work of a node's spikes by hardware step, `[B, H, core]` or `[B, H, unit * core]`."""
    timing, table = program.schedule, _work_per_spike(program, name, work).to(counts)
    pad = torch.nn.functional.pad
    if timing.period != 1:
        return counts @ table
    first, n_parts = timing.offset[name], timing.n_late(name) + 1
    parts = [
        pad(counts[..., k::n_parts] @ table[k::n_parts], (0, 0, first + k, timing.depth - first - k))
        for k in range(n_parts)
    ]
    return sum(parts[1:], parts[0])


_known: WeakKeyDictionary[Program, dict[tuple[str, ...], torch.Tensor]] = WeakKeyDictionary()  # programs are immutable


def _idle_work(program: Program) -> torch.Tensor:
    """Return the cycles of a step without spikes, int64 `[unit * core]`."""
    known = _known.setdefault(program, {})
    if () not in known:
        cycles = idle_cycles(program)
        assert cycles is not None, "the chip has times"
        known[()] = torch.from_numpy(cycles.reshape(-1))
    return known[()]


def _work_per_spike(program: Program, name: str, work: str) -> torch.Tensor:
    """Return the work of one spike of each source, float32 `[n, core]` or `[n, unit * core]`."""
    known = _known.setdefault(program, {})
    if (name, work) not in known:
        cost = spike_cost(program, name)
        table = cost.synops
        if work == "cycles":
            assert cost.cycles is not None, "the chip has times"
            table = cost.cycles.transpose(1, 0, 2).reshape(len(cost.synops), -1)
        known[name, work] = torch.from_numpy(table).float()
    return known[name, work]
