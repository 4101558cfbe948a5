"""Chip-independent operations of a network: accumulates, multiplications, and their energy by a table.

Each tool used in papers has its own definition under its name: NeuroBench (`neurobench.py`), SyOPs and SpikingJelly's
op_counter (`tool_counts.py`). The energy is the one used in papers on spiking networks: every operation in 32-bit
floating point at 45 nm, 0.9 pJ per addition and 3.7 pJ per multiplication (M. Horowitz, "Computing's energy problem
(and what we can do about it)", ISSCC 2014, figure 1.1.9), without memory. It makes figures of papers comparable and
says nothing about a chip.
"""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from nwcompile.cost.neurobench import neurobench
from nwcompile.cost.tool_counts import OpCounts, SyOps
from nwcompile.ir.network import Network
from nwcompile.ir.run import Run

ADD_PJ = 0.9  # Picojoules of an addition in 32-bit floating point at 45 nm (Horowitz 2014).
MULTIPLY_PJ = 3.7  # Picojoules of a multiplication (same source).


@dataclass(frozen=True)
class Count:
    """Operations of a sample as a tool counts them: accumulates and multiplications."""

    tool: str
    acs: float
    macs: float

    @property
    def energy_nj(self) -> float:
        """Energy of a sample in nJ (45 nm table)."""
        return (self.acs * ADD_PJ + self.macs * (ADD_PJ + MULTIPLY_PJ)) / 1000


@dataclass(frozen=True)
class Operations:
    """Operations of a sample. `acs`, `macs`: non-zero weights times non-zero inputs, from sources that send only -1, 0
    and 1, and from others. `ann_macs`: every weight once, as in an ANN of the same layers with one step. `syops`,
    `spikingjelly`: by the definitions of these tools; None if they do not support the network."""

    acs: float
    macs: float
    ann_macs: float
    syops: SyOps | None = None
    spikingjelly: OpCounts | None = None

    @property
    def counts(self) -> tuple[Count, ...]:
        """A row for each tool that supports the network, and one for the ANN with one step."""
        rows = [Count("neurobench 2.3.0", self.acs, self.macs)]
        if self.syops is not None:
            rows.append(Count("syops 0.0.5", self.syops.acs, self.syops.macs))
        if self.spikingjelly is not None:
            rows.append(Count("spikingjelly 2.0.0", self.spikingjelly.synops, self.spikingjelly.macs))
        return (*rows, Count("ANN twin, one step", 0.0, self.ann_macs))

    @property
    def synops(self) -> float:
        """Sum of accumulates and multiplications."""
        return self.acs + self.macs

    @property
    def energy_nj(self) -> float:
        """Energy of a sample in nJ (45 nm table)."""
        return self.counts[0].energy_nj


def count_operations(network: Network, run: Run, graded_inputs: Collection[str]) -> Operations:
    """Count the Operations of a normalized network and a run; `graded_inputs` send values other than -1, 0 and 1.

    Raises ModelError for another model's run, and for connections that are not weighted sums (MaxPool2d).
    """
    graded = [name for name, spikes in run.spikes.items() if (np.abs(spikes) > 1).any() or (spikes % 1).any()]
    figures = neurobench(network, run, [*graded_inputs, *graded])
    assert run.activity is not None, "neurobench asked for it"
    ann_macs = figures.dense_synops / max(run.activity.n_steps, 1)
    return Operations(figures.effective_acs, figures.effective_macs, ann_macs)
