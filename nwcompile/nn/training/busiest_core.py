"""The work of the busiest core as a loss: a chip's step takes as long as its busiest core, whatever the mean is."""

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
    """The work of the busiest core in a hardware step, mean over steps and samples, with gradients through `spikes`.

    `spikes`: `[B, T, *shape]` of every input and layer of `program` by name (`spikes_of` gives them for a network made
    of `nwcompile.nn`); where neurons lie, and how their synapses are stored, is the program's.
    `work="synops"`: stored weights read, as the counter of that name: of one sample, what
    `run.counters["synops"].max(1).mean()` of the same spikes is. `work="cycles"`: core cycles of the busiest unit of
    the busiest core, as `cost.time.work` adds them up: the floorline without its barrier and without links, were
    every neuron updated in every step (a loss cannot know which are not).
    `order`: the maximum over cores (and units) is their p-norm of that order: infinity for the maximum itself, whose
    gradient reaches the busiest core alone, 8, say, for a smooth one, which is no less than the maximum, 1 for the sum.
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
    """What `net(x)` gives, and the spikes `[B, T, *shape]` of all its LIFLayers by their names in it, and of its input.

    Those are the names that `from_torch` gives to layers. `x`: `[B, T, *shape]` for a network that takes whole
    sequences; call `prepare_net` before. Raises ModelError for a network without layers.
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
    """Messages of each source to each destination, `[B, T, n]`."""
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
    """Work that a node's spikes cause, `[B, H, core]` or `[B, H, unit * core]`, at the hardware steps of its steps."""
    pipelined = program.schedule.period == 1
    late = program.schedule.offset[name] if pipelined else 0
    after = program.schedule.depth - late if pipelined else 0
    return torch.nn.functional.pad(counts @ _work_per_spike(program, name, work).to(counts), (0, 0, late, after))


_known: WeakKeyDictionary[Program, dict[tuple[str, ...], torch.Tensor]] = WeakKeyDictionary()  # programs do not change


def _idle_work(program: Program) -> torch.Tensor:
    """int64`[unit * core]`: cycles of a step without spikes."""
    known = _known.setdefault(program, {})
    if () not in known:
        cycles = idle_cycles(program)
        assert cycles is not None, "the chip has times"
        known[()] = torch.from_numpy(cycles.reshape(-1))
    return known[()]


def _work_per_spike(program: Program, name: str, work: str) -> torch.Tensor:
    """float32`[n, core]` or `[n, unit * core]`: work of one spike of each source."""
    known = _known.setdefault(program, {})
    if (name, work) not in known:
        cost = spike_cost(program, name)
        table = cost.synops
        if work == "cycles":
            assert cost.cycles is not None, "the chip has times"
            table = cost.cycles.transpose(1, 0, 2).reshape(len(cost.synops), -1)
        known[name, work] = torch.from_numpy(table).float()
    return known[name, work]
