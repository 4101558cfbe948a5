"""The cycle backend with a checkpoint: it runs groups of samples in turn, each by some hardware steps at a time.

The network on chip is empty between two steps, so the state of a sample is the state of its neurons.
"""

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from nwcompile.checkpoint import Pace, Recorded, Steps, in_parts
from nwcompile.errors import BackendError, ModelError
from nwcompile.ir.flat import count_lines
from nwcompile.kernels.cycle import NeuronRecord, StepRecord
from nwcompile.kernels.noc.bus import PEAK_LANES
from nwcompile.sim.kept import groups_of_samples, program_digest
from nwcompile.sim.rows import layer_offsets
from nwcompile.sim.sequence import tables
from nwcompile.threads import over_samples

if TYPE_CHECKING:
    from nwcompile.sim.cycle.run import ChipRun, State

SUMMED = ("received", "sent", "cycles", "flits")  # Fields of StepRecord that are sums, like some columns of `bus`.


def run_with_checkpoint(chip_run: "ChipRun", x: np.ndarray, keep: bool) -> tuple[list[NeuronRecord], list[StepRecord]]:
    """Run all samples like `ChipRun.run_some`; return a neuron record per group, and one step record of all.

    If cores wait only for their neighbors, no step ends for all cores at once, so whole samples are stored.
    """
    plan, pace = chip_run.plan, Pace(chip_run.n_hardware if chip_run.waits else 1)
    given = [program_digest(chip_run.program), plan.n_steps, chip_run.n_hardware, plan.is_aligned, keep]
    records, steps = [], chip_run.step_record(chip_run.n_hardware)
    for some in groups_of_samples(len(x), len(x)):
        group, now = Group(chip_run, x, some, keep), [*given, x[some]]
        work = Steps(chip_run.n_hardware, group.run_steps, group.recorded_arrays(), group.state_arrays)
        in_parts("cycle", partial(list, now), work, pace)
        records.append(group.result.neurons)
        add_steps(steps, slice(0, chip_run.n_hardware), group.result.steps)
    return records, [steps]


class Neurons:
    """Neuron states of a group of samples, and a pool of simulated chips, one per thread."""

    def __init__(self, chip_run: "ChipRun", n_samples: int):
        self.chip_run = chip_run
        self.at = tables.initial_state(
            n_samples, len(chip_run.neurons.rule_of), chip_run.empty_drive(), chip_run.programs
        )
        self.idle: list[State] = []

    def load_chip(self, b: int) -> "State":
        """Return an idle chip that holds the neurons of sample b and updates them in place."""
        try:
            chip = self.idle.pop()
        except IndexError:
            chip = self.chip_run.idle_state()
            nothing = self.chip_run.empty_result((1, 0), 0, False, None)
            no_step = np.zeros((1, 0, self.chip_run.plan.n_inputs), np.int32)
            self.chip_run.run_job(self.chip_run.build_job(), no_step, nothing, chip)  # clears the chip
        states, drive, programs = self.at.sample_state(b, self.chip_run.programs)
        assert drive is not None, "all neurons of a chip have sums on their way"
        return chip._replace(net=chip.net._replace(states=states, drive=drive), programs=programs)


class Group:
    """Samples that run together, and their records."""

    def __init__(self, chip_run: "ChipRun", x: np.ndarray, some: slice, keep: bool):
        self.chip_run, self.x, self.some, self.keep = chip_run, x, some, keep
        self.n_samples = some.stop - some.start
        self.result = chip_run.empty_result((self.n_samples, chip_run.plan.n_steps), chip_run.n_hardware, keep, None)
        self.neurons = Neurons(chip_run, self.n_samples)

    def state_arrays(self) -> dict[str, np.ndarray]:
        """Everything that the next step depends on."""
        return self.neurons.at.arrays

    def recorded_arrays(self) -> dict[str, Recorded]:
        """Return the recorded arrays of steps and neurons; those of neurons are split by layer, each with its delay."""
        chip_run, (neurons, steps, _) = self.chip_run, self.result
        network = chip_run.program.network
        record = {name: Recorded(getattr(steps, name)) for name in (*SUMMED, "bus")}
        window = "aligned" if chip_run.plan.is_aligned else "hardware"
        for name, late in layer_offsets(chip_run.program.schedule, window).items():
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

    def run_steps(self, steps: slice) -> None:
        """Simulate these hardware steps."""
        chip_run = self.chip_run
        if chip_run.waits:
            self._run_whole()
            return
        if chip_run.shares_steps(self.n_samples):
            before = {name: a.copy() for name, a in self.state_arrays().items()}
            try:
                self._run_shared(steps)
                return
            except (BackendError, ModelError):  # a sequential run names the first step that fails
                for name, a in self.state_arrays().items():
                    a[...] = before[name]
        for part in over_samples(self.n_samples, lambda part: self._run_part(part, steps), chip_run.plan.interrupted):
            add_steps(self.result.steps, steps, part)

    def _run_whole(self) -> None:
        """Simulate all steps."""
        first = 0
        for part in self.chip_run.run_some(self.x, self.some, self.keep, None):
            last = first + len(part.neurons.spikes)
            for name in ("spikes", "u", "v", "words")[: 4 if self.keep else 1]:
                getattr(self.result.neurons, name)[first:last] = getattr(part.neurons, name)
            add_steps(self.result.steps, slice(0, len(part.steps.cycles)), part.steps)
            first = last

    def _run_shared(self, steps: slice) -> None:
        """Simulate steps of fewer samples than there are cores of the machine."""
        chip_run, n_rows = self.chip_run, steps.stop - steps.start
        updated = (1, n_rows, len(chip_run.neurons.rule_of))
        neurons = [self._sample_record(b)._replace(updated=np.zeros(updated, bool)) for b in range(self.n_samples)]
        results = [self.result._replace(neurons=of, steps=chip_run.step_record(n_rows)) for of in neurons]
        computing = [self.neurons.load_chip(b) for b in range(self.n_samples)]
        chip_run.run_shared(self.x[self.some], results, computing, self.some.start, steps.start)
        for b, result in enumerate(results):
            self._verify_spikes(b, steps)
            add_steps(self.result.steps, steps, result.steps)
        self.neurons.idle += computing

    def _run_part(self, part: slice, steps: slice) -> StepRecord:
        """Simulate steps of some samples, one sample after the other; return the step record."""
        chip_run, rows = self.chip_run, self.chip_run.step_record(steps.stop - steps.start)
        for b in range(part.start, part.stop):
            sample = self.some.start + b
            job = chip_run.build_job(first_sample=sample, first_step=steps.start)
            result = self.result._replace(neurons=self._sample_record(b), steps=rows)
            chip = self.neurons.load_chip(b)
            chip_run.run_job(job, self.x[sample : sample + 1, steps], result, chip)
            self.neurons.idle.append(chip)
            self._verify_spikes(b, steps)
        return rows

    def _sample_record(self, b: int) -> NeuronRecord:
        """View of one sample's record; fields that are not recorded stay empty."""
        return NeuronRecord(*(a[b : b + 1] for a in self.result.neurons))

    def _verify_spikes(self, b: int, steps: slice) -> None:
        """Raise ModelError if a neuron fired more often at once than a message can carry, in these steps."""
        first = max(steps.start - self.chip_run.program.schedule.depth, 0)
        record = self._sample_record(b)
        record = record._replace(spikes=record.spikes[:, first : steps.stop])
        self.chip_run.verify_spikes(record, self.some.start + b, first)


def add_steps(record: StepRecord, steps: slice, done: StepRecord) -> None:
    """Add the record of some samples to these steps; peaks are maxima."""
    for name in SUMMED:
        getattr(record, name)[steps] += getattr(done, name)
    bus = record.bus[steps]
    bus[:, :PEAK_LANES] += done.bus[:, :PEAK_LANES]
    np.maximum(bus[:, PEAK_LANES:], done.bus[:, PEAK_LANES:], out=bus[:, PEAK_LANES:])


def sum_steps(steps: StepRecord) -> StepRecord:
    """Sum a StepRecord over its steps; peaks are maxima."""
    sums, peaks = steps.bus[:, :PEAK_LANES].sum(0), steps.bus[:, PEAK_LANES:].max(0)
    of_all = {name: getattr(steps, name).sum(0, keepdims=True) for name in SUMMED}
    return steps._replace(bus=np.concatenate([sums, peaks])[None], **of_all)
