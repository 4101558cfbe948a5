"""The cycle backend with a checkpoint: some samples after others, and some of their hardware steps after others.

The network on chip is empty between two steps, so all that a sample goes on from is where its neurons are.
"""

from typing import TYPE_CHECKING

import numpy as np

from nwcompile.checkpoint import Pace, Recorded, Steps, in_parts
from nwcompile.errors import BackendError, ModelError
from nwcompile.ir.flat import count_lines
from nwcompile.kernels.cycle import NeuronRecord, StepRecord
from nwcompile.kernels.noc.bus import PEAK_LANES
from nwcompile.sim.kept import content, groups_of_samples
from nwcompile.sim.parallel import over_samples
from nwcompile.sim.rows import offsets
from nwcompile.sim.sequence import tables

if TYPE_CHECKING:
    from nwcompile.sim.cycle.run import ChipRun, Result, State


def run_kept(chip_run: "ChipRun", x: np.ndarray, keep: bool) -> list["Result"]:
    """What `ChipRun.run_some` gives of all samples, a Result for each group of them that goes on together.

    Where cores wait for their neighbors only, no step ends for all of them at once, so samples are kept whole.
    """
    program, plan = chip_run.program, chip_run.plan
    pace = Pace(chip_run.n_hardware if chip_run.waits else 1)
    given = [content(program), plan.n_steps, chip_run.n_hardware, plan.is_aligned, keep]
    results = []
    for some in groups_of_samples(len(x), len(x)):
        group = Group(chip_run, x, some, keep)
        work = Steps(chip_run.n_hardware, group.go, group.record(), lambda now=group.at.arrays: now)
        in_parts("cycle", lambda now=x[some]: [*given, now], work, pace)
        results.append(group.result)
    return results


class Group:
    """Samples that go on together: where their neurons are, and what was recorded."""

    def __init__(self, chip_run: "ChipRun", x: np.ndarray, some: slice, keep: bool):
        self.chip_run, self.x, self.some, self.keep = chip_run, x, some, keep
        self.n_samples = some.stop - some.start
        self.result = chip_run.result((self.n_samples, chip_run.plan.n_steps), chip_run.n_hardware, keep, None)
        self.at = tables.cleared(self.n_samples, len(chip_run.neurons.rule_of), chip_run.drive(), chip_run.programs)
        self.idle: list[State] = []  # chips that no thread works with

    def record(self) -> dict[str, Recorded]:
        """What steps leave beside where neurons are; of neurons by layer, as layers are late by offsets of their own."""
        chip_run, (neurons, steps, _) = self.chip_run, self.result
        network = chip_run.program.network
        record = {name: Recorded(getattr(steps, name)) for name in ("received", "sent", "cycles", "flits", "bus")}
        window = "aligned" if chip_run.plan.is_aligned else "hardware"
        for name, late in offsets(chip_run.program.schedule, window).items():
            if name not in network.layers:
                continue
            node, first = network.node(name), network.offsets[name] - count_lines(network)
            columns = slice(first, first + node.n_neurons)
            parts = {"spikes": neurons.spikes[:, :, columns]}
            if self.keep and name in network.programs:
                word = int(chip_run.programs.layer[chip_run.programs.layer_of[first]]["word"])
                parts["words"] = neurons.words[:, :, word : word + len(node.neuron.states) * node.n_neurons]
            elif self.keep:
                parts |= {"u": neurons.u[:, :, columns], "v": neurons.v[:, :, columns]}
            record |= {f"{kind}/{name}": Recorded(a.swapaxes(0, 1), late) for kind, a in parts.items()}
        return record

    def go(self, steps: slice) -> None:
        """Simulate these hardware steps."""
        chip_run = self.chip_run
        if chip_run.waits:
            self._run_whole()
            return
        if chip_run.shares_steps(self.n_samples):
            before = {name: a.copy() for name, a in self.at.arrays.items()}
            try:
                self._share(steps)
                return
            except (BackendError, ModelError):  # the first of several steps that must stop is the one to be named
                for name, a in self.at.arrays.items():
                    a[...] = before[name]
        for part in over_samples(self.n_samples, lambda part: self._run(part, steps), chip_run.plan.interrupted):
            _add(self.result.steps, steps, part)

    def _run_whole(self) -> None:
        """Simulate all steps."""
        first = 0
        for part in self.chip_run.run_some(self.x, self.some, self.keep, None):
            last = first + len(part.neurons.spikes)
            for name in ("spikes", "u", "v", "words")[: 4 if self.keep else 1]:
                getattr(self.result.neurons, name)[first:last] = getattr(part.neurons, name)
            _add(self.result.steps, slice(0, len(part.steps.cycles)), part.steps)
            first = last

    def _share(self, steps: slice) -> None:
        """Simulate steps of fewer samples than there are cores."""
        chip_run, n_rows = self.chip_run, steps.stop - steps.start
        updated = (1, n_rows, len(chip_run.neurons.rule_of))
        neurons = [self._record_of(b)._replace(updated=np.zeros(updated, bool)) for b in range(self.n_samples)]
        results = [self.result._replace(neurons=of, steps=chip_run.step_record(n_rows)) for of in neurons]
        chips = [self._chip() for _ in results]
        computing = [self._with_neurons(chip, b) for b, chip in enumerate(chips)]
        chip_run.share(self.x[self.some], results, computing, self.some.start, steps.start)
        for b, result in enumerate(results):
            self._verify(b, steps)
            _add(self.result.steps, steps, result.steps)
        self.idle += chips

    def _run(self, part: slice, steps: slice) -> StepRecord:
        """Simulate steps of some of the samples, one sample after the other: what cores and network did."""
        chip_run, chip, rows = self.chip_run, self._chip(), self.chip_run.step_record(steps.stop - steps.start)
        for b in range(part.start, part.stop):
            sample = self.some.start + b
            job = chip_run.job(first_sample=sample, first_step=steps.start)
            result = self.result._replace(neurons=self._record_of(b), steps=rows)
            chip_run.go(job, self.x[sample : sample + 1, steps], result, self._with_neurons(chip, b))
            self._verify(b, steps)
        self.idle.append(chip)
        return rows

    def _chip(self) -> "State":
        """A chip with its network empty and idle."""
        try:
            return self.idle.pop()
        except IndexError:
            chip = self.chip_run.state()
            nothing = self.chip_run.result((1, 0), 0, False, None)
            self.chip_run.go(self.chip_run.job(), self.x[:1, :0], nothing, chip)  # no step, which clears it
            return chip

    def _with_neurons(self, chip: "State", b: int) -> "State":
        """The chip with the neurons of sample b, which it moves on."""
        states, drive, programs = self.at.of(b, self.chip_run.programs)
        return chip._replace(net=chip.net._replace(states=states, drive=drive), programs=programs)

    def _record_of(self, b: int) -> NeuronRecord:
        """The record of one sample; arrays of no sample stay that."""
        return NeuronRecord(*(a[b : b + 1] for a in self.result.neurons))

    def _verify(self, b: int, steps: slice) -> None:
        """Raise ModelError where a neuron has fired more often at once than a message tells, in these steps."""
        first = max(steps.start - self.chip_run.program.schedule.depth, 0)
        record = self._record_of(b)
        record = record._replace(spikes=record.spikes[:, first : steps.stop])
        self.chip_run.verify(record, self.some.start + b, first)


def _add(record: StepRecord, steps: slice, done: StepRecord) -> None:
    """Add what some samples did in these steps; of peaks the larger one stays."""
    for name in ("received", "sent", "cycles", "flits"):
        getattr(record, name)[steps] += getattr(done, name)
    bus = record.bus[steps]
    bus[:, :PEAK_LANES] += done.bus[:, :PEAK_LANES]
    np.maximum(bus[:, PEAK_LANES:], done.bus[:, PEAK_LANES:], out=bus[:, PEAK_LANES:])
