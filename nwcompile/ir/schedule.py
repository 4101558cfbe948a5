"""Schedule: the micro-step of the chip in which each layer works (DESIGN 3).

Pipelined execution has one micro-step per hardware step: layer b works on aligned step t in hardware step
t + offset[b]. Phased execution divides a hardware step into `period` phases with a barrier each; layer b works in phase
offset[b]. Both follow one rule: aligned step t of layer b is micro-step `t * period + offset[b]`, and a spike sent in
micro-step m acts on its target in micro-step `m + delay`, delay >= 1.
"""

from dataclasses import dataclass, replace

from nwcompile.errors import ModelError
from nwcompile.ir.host import drop_registers
from nwcompile.ir.network import Network
from nwcompile.ir.options import EXECUTIONS

ERROR_CODE = "NW3007"
LARGEST_DELAY = 1 << 20  # Steps. Longer delays are a mistake, and would need as many buffers.


@dataclass(frozen=True)
class Schedule:
    """`offset` of every layer and input, and `delay[i]` of connection i of the network, in micro-steps."""

    execution: str
    period: int
    offset: dict[str, int]
    delay: tuple[int, ...]

    @property
    def depth(self) -> int:
        """Number of hardware steps after step T-1 in which some layer still works."""
        return max(self.offset.values(), default=0) if self.period == 1 else 0

    def verify(self, network: Network) -> None:
        """Raise ModelError unless every layer, input and connection has a valid number of micro-steps."""
        numbers = [self.period, *self.offset.values(), *self.delay]
        whole = all(type(n) is int and 0 <= n <= LARGEST_DELAY for n in numbers)
        fits = set(self.offset) == set(network.offsets) and not any(self.offset[name] for name in network.inputs)
        is_known = self.execution in EXECUTIONS and (self.execution == "phased" or self.period == 1)
        if not (whole and fits and is_known and self.delay == compute_delays(network, self.period, self.offset)):
            raise ModelError("the schedule is not one of this network; schedule it again")
        if min(self.delay, default=1) < 1:
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
