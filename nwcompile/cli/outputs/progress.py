"""Progress on stderr: a line for every stage of the compiler, and how many points are left."""

import sys
from time import perf_counter

import numpy as np

from nwcompile.cli.outputs.terminal import print_text
from nwcompile.ir.chip import Chip
from nwcompile.ir.flat import count_neurons
from nwcompile.ir.network import Network
from nwcompile.ir.options import Options
from nwcompile.ir.shown import count_text
from nwcompile.passes.place.place import routed_cost
from nwcompile.passes.stages.draft import Draft
from nwcompile.passes.stages.run import STAGES as ALL_STAGES
from nwcompile.report.text import change_text, stage_line

# Stages that revise the result of an earlier stage, if needed.
REPEATS = {"delays": "prove", "compare": "prove", "split": "prove", "merge": "calibrate", "signs": "calibrate",
           "copies": "partition"}  # fmt: skip
SOMETIMES = {"input", "approximate", "stagger", "limit", *REPEATS}
STAGES = tuple(stage.name for stage in ALL_STAGES if stage.name not in SOMETIMES)
SECONDS_BETWEEN_LINES = 10  # of a Countdown in a file; a terminal updates its line at every point
OF_NETWORKS = ("normalize", "legalize", "approximate", "merge", "signs")
OF_TIMING = ("schedule", "stagger", "delays", "compare", "split")
OF_MAPPINGS = ("partition", "copies", "place", "check", "interleave")


def list_stages(options: Options) -> tuple[str, ...]:
    """The stages that run with these options, in order."""
    asked = {
        "approximate": bool(options.approximate),
        "stagger": options.stagger not in (1, "auto"),
        "limit": options.step_limit_us is not None,
    }
    return tuple(stage.name for stage in ALL_STAGES if asked.get(stage.name, stage.name in STAGES))


class Progress:
    """Callback of `flow.compile` that prints the name, size, seconds and improved figure of each stage."""

    def __init__(self, network: Network, chip: Chip, options: Options):
        self.before = Draft(given=network, chip=chip, options=options)

    def __call__(self, name: str, after: Draft, seconds: float) -> None:
        if name == "input" and after.input.text is not None:
            print_text(f"input: {after.input.text}  {seconds:.1f} s", sys.stderr)
        elif name != "input":
            stages = list_stages(after.options)
            place = stages.index(REPEATS.get(name, name)) + 1
            line = stage_line(
                place, len(stages), name, _result_size(name, after), seconds, _improved_figure(name, self.before, after)
            )
            print_text(line, sys.stderr)
        self.before = after


def _result_size(name: str, draft: Draft) -> str:
    """The size of a stage's result."""
    if name in OF_NETWORKS:
        return f"{count_text(len(draft.network.layers), 'layer')}, {count_text(count_neurons(draft.network), 'neuron')}"
    if name in OF_TIMING:
        return f"{draft.timing.execution}, depth {draft.timing.depth}"
    if name in OF_MAPPINGS:
        return f"{count_text(draft.mapping.n_cores, 'core')} on {count_text(draft.mapping.n_tiles, 'tile')}"
    if name == "quantize":
        bits = sorted({row["bits"] for row in draft.table if row["bits"] is not None}) or ["no"]
        return f"{'/'.join(map(str, bits))}-bit weights"
    if name == "calibrate" and not draft.activity.updates:
        return "no samples"
    if name == "calibrate":
        return f"{count_text(draft.activity.n_samples, 'sample')} of {count_text(draft.activity.n_steps, 'step')}"
    return count_text(draft.program.axons.n_axons, "axon") if name == "emit" else ""


def _improved_figure(name: str, before: Draft, after: Draft) -> str:
    """The figure that a stage improved, or that describes its quality."""
    if name == "normalize":
        return change_text("connections", len(after.given.connections), len(after.network.connections))
    if name == "prove" or name in REPEATS:
        made = after.changes[len(before.changes) :]
        return "; ".join(f"{change.layer}: {change.how}" for change in made)
    if name == "approximate":
        return "" if after.price is None else f"spikes changed {after.price.spikes_changed_percent:.1f} %"
    if name == "quantize":
        known = [row for row in after.table if row["spike_agreement_percent"] is not None]
        if not known:
            return ""
        worst = min(known, key=lambda row: row["spike_agreement_percent"])
        return f"at least {worst['spike_agreement_percent']:.1f} % of spikes agree ({worst['layer']})"
    if name == "calibrate":
        activity = after.activity
        rate = float(np.mean(np.concatenate([activity.rate(layer) for layer in after.network.layers])))
        return f"{'' if activity.updates else 'assumed '}{100 * rate:.1f} % of neurons per step"
    return change_text("hops per step and sample", _mean_hops(before), _mean_hops(after)) if name == "place" else ""


def _mean_hops(draft: Draft) -> float:
    messages = routed_cost(draft.mapping, draft.network, draft.chip, draft.activity, "traffic")
    return messages / (draft.activity.n_steps * draft.activity.n_samples)


class Countdown:
    """Callback that prints the number of finished points of a sweep, or others, and the estimated time left."""

    def __init__(self, noun: str) -> None:
        self.noun = noun
        self.start = perf_counter()
        self.n_computed = self.n_failed = 0
        self.last = -float(SECONDS_BETWEEN_LINES)
        self.is_terminal, self.has_begun = sys.stderr.isatty(), False

    def begin(self, n_done: int, n_all: int) -> None:
        """Print the number of points that are stored already, before the first one is computed."""
        self._print_line(f"{n_done} of {count_text(n_all, self.noun)}, computing")

    def __call__(self, n_done: int, n_all: int, has_failed: bool = False) -> None:
        """Print that `n_done` points are done, unless that was just printed."""
        self.n_computed += 1
        self.n_failed += has_failed
        seconds = perf_counter() - self.start
        if not self.is_terminal and seconds - self.last < SECONDS_BETWEEN_LINES and n_done < n_all:
            return
        self.last = seconds
        left = seconds / self.n_computed * (n_all - n_done)
        failed = f" ({self.n_failed} failed)" if self.n_failed else ""
        text = f"{n_done} of {count_text(n_all, self.noun)}{failed}, {clock_text(seconds)}, {clock_text(left)} left"
        self._print_line(text)

    def _print_line(self, text: str) -> None:
        self.has_begun = True
        line, end = (f"\r{text:<78}", "") if self.is_terminal else (text, "\n")
        print(line, end=end, file=sys.stderr, flush=True)

    def end(self) -> None:
        """End the progress line of a terminal."""
        if self.has_begun and self.is_terminal:
            print(file=sys.stderr, flush=True)
        self.is_terminal = False


def clock_text(seconds: float) -> str:
    """Format a duration as `0:07`, `12:40` or `3:02:11`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
