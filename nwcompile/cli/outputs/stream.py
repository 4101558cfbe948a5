"""Stream: the output of `nwcompile simulate --stream`, spikes step by step and total figures."""

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import cached_property
from typing import TextIO

import numpy as np

from nwcompile.cli.inputs.load import check_file
from nwcompile.cli.inputs.stream import STANDARD_INPUT
from nwcompile.cli.outputs.text import format_counters, format_table
from nwcompile.cost.energy import predict
from nwcompile.cost.time.stream import StreamFigures
from nwcompile.ir.program import Program
from nwcompile.ir.run import COUNTERS, Basis
from nwcompile.ir.shown import count_text, format_figure, name_energy
from nwcompile.report.json.collect import collect_basis
from nwcompile.sim.session import Chunk, Session


@contextmanager
def open_output(path: str | None) -> Iterator[TextIO | None]:
    """Open the file of `-o`, which is written while the stream runs; None without one."""
    if path is None or path == STANDARD_INPUT:
        yield None if path is None else sys.stdout
        return
    file = check_file(path)
    with file.open("w", encoding="ascii") as output:
        yield output


class Totals:
    """Sums over a stream so far."""

    def __init__(self, program: Program):
        self.program = program
        self.spikes: Counter[str] = Counter()
        self.counters: Counter[str] = Counter()
        self.energy_pj: float | None = 0.0
        self.n_dropped = 0

    def take(self, chunk: Chunk, output: TextIO | None) -> None:
        """Add a chunk and write its output."""
        for name, spikes in chunk.spikes.items():
            self.spikes[name] += int(np.count_nonzero(spikes))
        for name, counts in chunk.counters.items():
            self.counters[name] += int(counts.sum())
        if self.energy_pj is not None:
            steps = chunk.step_energy_pj
            self.energy_pj = None if steps is None else self.energy_pj + float(steps["total"].sum())
        self.n_dropped += 0 if chunk.dropped is None else int(chunk.dropped.at.sum())
        if output is not None:
            output.writelines(_output_lines(chunk))
            output.flush()

    @cached_property
    def bases(self) -> tuple[Basis | None, Basis | None]:
        """The bases of the times and the energies, by the calibration's events: those of the stream are not kept."""
        run = predict(self.program)
        return run.time_basis, run.energy_basis

    def as_dict(self, session: Session, figures: StreamFigures) -> dict:
        """The figures as plain values."""
        return {
            "backend": session.backend,
            **asdict(figures),
            "spikes": {name: self.spikes[name] for name in self.program.network.layers},
            "counters": {name: self.counters[name] for name in COUNTERS},
            "time_basis": None if figures.step_us_mean is None else collect_basis(self.bases[0]),
            "energy_pj": self.energy_pj,
            "energy_basis": None if self.energy_pj is None else collect_basis(self.bases[1]),
            "n_dropped": self.n_dropped,
        }

    def text(self, session: Session, figures: StreamFigures) -> str:
        """Format the figures for a terminal."""
        n = count_text(figures.n_steps, "step")
        head = f"a stream of {n} with {count_text(figures.n_events, 'event')}; backend {session.backend}"
        rows: list[tuple] = []
        for name in self.program.network.layers:
            size = self.program.network.node(name).n_neurons
            rate = self.spikes[name] / max(session.n_given * size, 1)
            rows.append((name, size, self.spikes[name], f"{rate:.4f}"))
        counters = format_counters({name: self.counters[name] for name in COUNTERS}, 1)
        lines = stream_lines(figures, None if figures.step_us_mean is None else self.bases[0])
        if self.energy_pj is not None:
            lines.append(f"{name_energy(None)}: {format_figure(self.energy_pj / 1000, 'nJ', self.bases[1])}")
        if self.n_dropped:
            lines.append(f"dropped: {count_text(self.n_dropped, 'message')}")
        layers = format_table(("layer", "neurons", "spikes", "per neuron and step"), rows)
        return "\n\n".join([head, layers, counters, "\n".join(lines)])


def step_line(mean: float, longest: float, steps: str, basis: Basis | None) -> str:
    """Describe the mean and the longest of these hardware steps, in microseconds."""
    longest_text = format_figure(longest, "us", basis, tells_basis=False)
    return f"hardware step: mean {format_figure(mean, 'us', basis)}, longest {longest_text} (of {steps})"


def stream_lines(figures: StreamFigures, basis: Basis | None) -> list[str]:
    """Describe the times of a stream, which have this basis."""
    lines = ["no times: only backend cycle measures them, on a chip that gives its costs"]
    if figures.step_us_mean is not None:
        mean, longest = figures.step_us_mean, figures.step_us_longest or 0.0
        lines = [step_line(mean, longest, count_text(figures.n_hardware_steps, "step"), basis)]
    if figures.latency_us_mean is not None:
        last = format_figure(figures.latency_us_p99 or 0.0, "us", basis, tells_basis=False)
        lines.append(
            f"latency from input to output: mean {format_figure(figures.latency_us_mean, 'us', basis)}, "
            f"p99 {last} "
            f"(of {figures.n_caused} outputs; {figures.n_uncaused} came in steps without an event)"
        )
    lines.append(f"simulated in {figures.wall_seconds:.3f} s")
    if figures.model_dt_s is None:
        return lines
    lines[-1] += f", {figures.simulator_factor:.3g} s for a second of the model's time"
    if figures.hardware_factor is not None:
        lines.append(
            f"real time: the chip takes {format_figure(figures.hardware_factor, 's', basis)} for a second; of its "
            f"steps {figures.n_overruns} took longer than {figures.model_dt_s:g} s"
        )
        bearable = figures.events_per_s_limit
        limit = "unknown, as its times do not rise with events" if bearable is None else f"{bearable:.4g} (estimated)"
        lines.append(f"events per second: {figures.events_per_s:.4g}; most that the chip bears in real time: {limit}")
    return lines


def _output_lines(chunk: Chunk) -> Iterator[str]:
    """Format the output of a chunk as text for `--stream`, one line per step."""
    outputs = chunk.output if isinstance(chunk.output, dict) else {"": chunk.output}
    flat = np.concatenate([a[0].reshape(chunk.n_steps, int(np.prod(a.shape[2:]))) for a in outputs.values()], 1)
    for step in flat:
        words = (f"{i}" if step[i] == 1 else f"{i}:{step[i]}" for i in np.flatnonzero(step))
        yield " ".join(words) + "\n"
