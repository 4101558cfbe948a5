"""Schedule: the micro-step of the chip in which each layer works (DESIGN 3).

Pipelined execution has one micro-step per hardware step: layer b works on aligned step t in hardware step
t + offset[b]. Phased execution divides a hardware step into `period` phases with a barrier each; layer b works in phase
offset[b]. Both follow one rule: aligned step t of layer b is micro-step `t * period + offset[b]`, and a spike sent in
micro-step m acts on its target in micro-step `m + delay`, delay >= 1.

A staggered layer works in several hardware steps: neuron i is `i % stagger[layer]` steps late, and so are the spikes
that act on it. Its readers wait for the last neurons. Only pipelined layers outside loops are staggered.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from nwcompile.errors import ModelError
from nwcompile.ir.host import drop_registers
from nwcompile.ir.network import Network, Node
from nwcompile.ir.options import EXECUTIONS

ERROR_CODE = "NW3007"
LARGEST_DELAY = 1 << 20  # Steps. Longer delays are a mistake, and would need as many buffers.


@dataclass(frozen=True)
class Schedule:
    """`offset` of every layer and input, and `delay[i]` of connection i of the network, in micro-steps.

    `stagger` has the number of steps over which the neurons of a layer are spread; layers with one step are left out.
    `offset` and `delay` are those of neuron 0.
    """

    execution: str
    period: int
    offset: dict[str, int]
    delay: tuple[int, ...]
    stagger: dict[str, int] = field(default_factory=dict)

    @property
    def depth(self) -> int:
        """Number of hardware steps after step T-1 in which some layer still works."""
        last = (offset + self.n_late(name) for name, offset in self.offset.items())
        return max(last, default=0) if self.period == 1 else 0

    def n_late(self, name: str) -> int:
        """Return the steps by which the last neurons of a layer or input are later than its first."""
        return self.stagger.get(name, 1) - 1

    def steps_late(self, name: str, n_neurons: int) -> np.ndarray:
        """Return int64[n]: steps by which each neuron of a layer or input is later than its first."""
        return np.arange(n_neurons) % (self.n_late(name) + 1)

    def first_steps(self, nodes: Iterable[Node]) -> np.ndarray:
        """Return int64[n]: the hardware step in which each neuron of layers takes its first aligned step."""
        return np.concatenate([self.offset[n.name] + self.steps_late(n.name, n.n_neurons) for n in nodes])

    def spread_rows(self, name: str, rows: np.ndarray, window: str = "aligned") -> np.ndarray:
        """Return rows [T, n] of aligned steps as rows of the layer's hardware steps, [T + n_late, n].

        Rows of the `hardware` window are returned unchanged.
        """
        last = self.n_late(name) if window == "aligned" else 0
        if last == 0:
            return rows
        spread = np.zeros((len(rows) + last, rows.shape[1]), rows.dtype)
        for late in range(last + 1):
            spread[late : late + len(rows), late :: last + 1] = rows[:, late :: last + 1]
        return spread

    def verify(self, network: Network) -> None:
        """Raise ModelError unless every layer, input and connection has a valid number of micro-steps."""
        if not isinstance(self.stagger, dict):
            raise ModelError("the schedule's stagger is no table of layers; schedule the network again")
        numbers = [self.period, *self.offset.values(), *self.delay, *self.stagger.values()]
        whole = all(type(n) is int and 0 <= n <= LARGEST_DELAY for n in numbers)
        fits = set(self.offset) == set(network.offsets) and not any(self.offset[name] for name in network.inputs)
        is_known = self.execution in EXECUTIONS and (self.execution == "phased" or self.period == 1)
        if not (whole and fits and is_known and self.delay == compute_delays(network, self.period, self.offset)):
            raise ModelError("the schedule is not one of this network; schedule it again")
        if not set(self.stagger) <= set(network.layers) or (self.stagger and self.period > 1):
            raise ModelError("the schedule staggers what is not a layer of a pipeline; schedule the network again")
        soonest = (steps - self.n_late(c.source) for c, steps in zip(network.connections, self.delay, strict=True))
        if min(soonest, default=1) < 1 or min(self.stagger.values(), default=2) < 2:
            raise ModelError("the schedule has a spike act in the step that sends it; schedule the network again")
        if self.period < 1 or (self.period > 1 and max(self.offset.values(), default=0) >= self.period):
            raise ModelError(f"the schedule's period {self.period} does not hold its phases; schedule it again")

    def drop_registers(self, network: Network) -> "Schedule":
        """Return the schedule without the registers that the host writes."""
        rest = drop_registers(network)
        kept = set(rest.connections)
        delay = (steps for c, steps in zip(network.connections, self.delay, strict=True) if c in kept)
        offset = {name: at for name, at in self.offset.items() if name in rest.offsets}
        return replace(self, offset=offset, delay=tuple(delay))

    def n_hardware_steps(self, n_steps: int, window: str = "aligned") -> int:
        """Return H for T aligned steps: T + depth, or T in the `hardware` window."""
        return n_steps + (self.depth if window == "aligned" else 0)

    def clip_delays(self, n_hardware: int | None) -> tuple[int, ...]:
        """Return `delay`, clipped to the length of a run of `n_hardware` steps; unchanged in a stream (None)."""
        if n_hardware is None:
            return self.delay
        return tuple(min(delay, max(1, n_hardware * self.period)) for delay in self.delay)


def compute_delays(network: Network, period: int, offset: dict[str, int]) -> tuple[int, ...]:
    """Delay of each connection in micro-steps, so that a spike of aligned step t acts in step t + D of its target."""
    return tuple(c.aligned_delay * period + offset[c.target] - offset[c.source] for c in network.connections)
