"""Schedule: when each layer works, in micro-steps of the chip (DESIGN 3).

Pipelined execution has one micro-step per hardware step: layer b works on aligned step t in hardware step
t + offset[b]. Phased execution cuts a hardware step into `period` phases with a barrier each; layer b works in phase
offset[b]. Both are one rule: aligned step t of layer b is micro-step `t * period + offset[b]`, and a spike sent in
micro-step m acts on its target in micro-step `m + delay`, delay >= 1.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Schedule:
    """`offset` of every layer and input; `delay[i]` in micro-steps of the network's connection i."""

    execution: str
    period: int
    offset: dict[str, int]
    delay: tuple[int, ...]

    @property
    def depth(self) -> int:
        """Hardware steps after step T-1 in which some layer still works."""
        return max(self.offset.values(), default=0) if self.period == 1 else 0

    def n_hardware_steps(self, n_steps: int, window: str = "aligned") -> int:
        """H for T aligned steps: T + depth, or just T in the `hardware` window."""
        return n_steps + (self.depth if window == "aligned" else 0)
