"""Schedule: choose when each layer is updated, so that spikes of one aligned step meet in the pipeline (DESIGN 3)."""

from dataclasses import replace

from nwcompile.errors import ModelError, OptionError, unknown_choice
from nwcompile.ir.connection import Connection
from nwcompile.ir.host import Injected
from nwcompile.ir.network import Network
from nwcompile.ir.options import EXECUTIONS
from nwcompile.ir.schedule import LARGEST_DELAY, Schedule, compute_delays

ERROR_CODE = "NW5009"


def schedule(network: Network, execution: str = "pipelined") -> Schedule:
    """Choose the offsets of all layers and the delays of all connections of a normalized network, in micro-steps.

    `pipelined`: offsets are the least integers >= 0 with `D + offset(b) - offset(a) >= 1` for every connection a -> b
    of aligned delay D (inputs have offset 0). Raises ModelError if the delays of a cycle sum to less than its number of
    connections, and for delays beyond LARGEST_DELAY micro-steps.
    `phased`: offsets are the least with `offset(b) > offset(a)` where D = 0. The period is one more than the largest
    offset, so every network can be scheduled. Skips wait as long as their longest parallel path.
    """
    if execution not in EXECUTIONS:
        raise OptionError(unknown_choice("execution", execution, EXECUTIONS))
    if execution == "pipelined":
        offset, period = _pipeline_offsets(network, dict.fromkeys((*network.inputs, *network.layers), 0), {}), 1
    else:
        offset = _phase_offsets(network)
        period = 1 + max(offset.values(), default=0)
    delay = compute_delays(network, period, offset)
    for c, steps in zip(network.connections, delay, strict=True):
        if steps > LARGEST_DELAY:
            raise ModelError(
                f"connection {c.source!r} -> {c.target!r}: a delay of {c.aligned_delay} steps takes {steps} "
                f"micro-steps of the chip, of at most {LARGEST_DELAY}; shorten it, or check the time step"
            )
    return Schedule(execution, period, offset, delay)


def stagger_layers(network: Network, timing: Schedule, n_parts: int | str) -> Schedule:
    """Spread the neurons of layers outside loops over at most `n_parts` steps; their readers wait for the last ones.

    Neurons of a layer tend to spike in the same steps, and a step takes as long as its busiest core. A network in
    phases is left alone, and so are all networks with "auto", before `assign_cores` has chosen a number.
    """
    if not isinstance(n_parts, int) or n_parts == 1 or timing.period > 1:
        return timing
    sizes = {name: network.node(name).n_neurons for name in network.layers if name not in network.find_reached(name)}
    stagger = {name: min(n_parts, n) for name, n in sizes.items() if n > 1}
    offset = _pipeline_offsets(network, timing.offset, {name: n - 1 for name, n in stagger.items()})
    return replace(timing, offset=offset, delay=compute_delays(network, 1, offset), stagger=stagger)


def _pipeline_offsets(network: Network, least: dict[str, int], n_late: dict[str, int]) -> dict[str, int]:
    """Return the longest paths over the constraints (Bellman-Ford from all nodes at `least`).

    The last neurons of a layer are `n_late[layer]` steps later than its first.
    """
    depth = dict(least)
    longest = max(depth.values(), default=0) + sum(n_late.values()) + len(network.layers)  # unless there is a cycle
    deepest: dict[str, str] = {}  # layer: the source that fixed its depth
    edges = [c for name in network.layers for c in network.into(name)]
    moved = True
    while moved:
        moved = False
        for c in edges:
            soonest = depth[c.source] + n_late.get(c.source, 0) + 1 - c.aligned_delay
            if soonest > depth[c.target]:
                depth[c.target], deepest[c.target], moved = soonest, c.source, True
                if soonest > longest:
                    raise _too_fast(network, _find_cycle(deepest, c.target))
    return depth


def _find_cycle(deepest: dict[str, str], start: str) -> list[str]:
    """Return the layers of the cycle that `start` depends on, in the direction of the spikes, first = last."""
    seen: list[str] = []
    while start not in seen:
        seen.append(start)
        start = deepest[start]
    around = seen[seen.index(start) :][::-1]
    first = around.index(min(around))
    return around[first:] + around[: first + 1]


def _too_fast(network: Network, cycle: list[str]) -> ModelError:
    links = list(zip(cycle, cycle[1:], strict=False))
    total = sum(min(c.aligned_delay for c in network.into(b) if c.source == a) for a, b in links)
    return ModelError(
        f"cycle {' -> '.join(repr(name) for name in cycle)}: its delays sum to {total} of the {len(links)} steps that "
        f"its {len(links)} connections take in a pipeline; give one of them {len(links) - total} more steps of delay, "
        "or compile with execution='phased'"
    )


def _phase_offsets(network: Network) -> dict[str, int]:
    level = dict.fromkeys((*network.inputs, *network.layers), 0)
    for name in network.layers:
        same_step = [level[c.source] + 1 for c in network.into(name) if c.aligned_delay == 0]
        level[name] = max(same_step, default=0)
    return level


def n_steps(connection: Connection, delay: int, timing: Schedule) -> int:
    """Return the hardware steps from a spike to its effect, 1 if the only delay is that of the pipeline.

    An `Injected` connection takes 1: the host writes its register just before the layer reads it.
    """
    if isinstance(connection, Injected):
        return 1
    return (timing.offset[connection.source] % timing.period + delay) // timing.period
