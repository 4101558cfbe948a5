"""The work of the busiest core as a loss: a chip's step takes as long as its busiest core, not as the mean."""

from math import inf
from weakref import WeakKeyDictionary

import torch

from nwcompile.argument_types import checked
from nwcompile.cost.time.spike_cost import idle_cycles, spike_cost
from nwcompile.errors import ModelError, OptionError, shown, unknown_choice
from nwcompile.ir.program import Program
from nwcompile.nn.layers.lif import LIFLayer

WORKS = ("synops", "cycles")


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
