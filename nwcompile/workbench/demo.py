"""Demo: compile and run a trained network of 42 neurons, for the first cell of a notebook.

`demo.npz` next to this file has its weights and 200 test images; `examples/digits_snn.py` wrote it. The images are from
the UCI repository (E. Alpaydin, C. Kaynak, 1998; CC BY 4.0), as shipped by scikit-learn.
"""

from dataclasses import dataclass
from functools import cached_property
from math import exp
from pathlib import Path

import numpy as np

from nwcompile.flow import compile
from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Dense
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import NeuronSpec
from nwcompile.ir.program import Program
from nwcompile.ir.run import Run
from nwcompile.ir.shown import format_lines
from nwcompile.report.html.notebook import network_graph, render_frame
from nwcompile.report.html_markup import tag
from nwcompile.report.json.collect import collect_report
from nwcompile.report.text import percent
from nwcompile.sim import simulate
from nwcompile.sim.accuracy import accuracy

FILE = Path(__file__).with_name("demo.npz")
TITLE = "handwritten digits of 8 x 8 pixels, with spikes"
N_STEPS = 16  # A pixel of gray value g, 0..16, sends g spikes in this many steps.
TAU_S = 20e-3  # The time constant of the membranes, in seconds.
STEP_S = 2e-3  # The duration of a step, in seconds.


@dataclass(frozen=True, eq=False)
class Demo:
    """The float network, its input `x` [200, T, 64] and `labels` [200], the program and its run on the chip."""

    network: Network
    x: np.ndarray
    labels: np.ndarray
    program: Program
    run: Run

    def __repr__(self) -> str:
        in_float, on_chip = (percent(100 * self.report["accuracy"][kind]) for kind in ("float", "chip"))
        right = f"accuracy: {in_float} in float, {on_chip} on the chip"
        rows = [*repr(self.network).splitlines(), *repr(self.program).splitlines()[:2], right, self.report["verdict"]]
        return format_lines(TITLE, rows, "lines")

    def _repr_html_(self) -> str:
        page = render_frame(self.report)
        title = tag("p", tag("b", TITLE))
        return tag("div", title, network_graph(self.network), page)

    @cached_property
    def report(self) -> dict:
        """The content of report.json, with the accuracy in float and on the chip."""
        in_float, on_chip = (accuracy(run, self.labels) for run in (simulate(self.network, self.x), self.run))
        return collect_report(self.program, self.run, {"float": in_float, "chip": on_chip})


def demo(chip: Chip | str = "loihi1") -> Demo:
    """Compile a trained network of 64-32-10 LIF neurons for a chip, and simulate it there.

    Raises FitError if the network does not fit the chip.
    """
    network, samples = demo_network(), demo_samples()
    x = samples["x"]
    program = compile(network, chip, x[:100])
    return Demo(network, x, samples["y"], program, simulate(program, x, backend="cycle"))


def demo_network() -> Network:
    """The float network."""
    with np.load(FILE, allow_pickle=False) as held:
        edges = [Dense("image", "hidden", held["weight0"]), Dense("hidden", "digit", held["weight1"])]
    spec = NeuronSpec(threshold=1.0, beta=exp(-STEP_S / TAU_S), reset="zero")
    return Network.from_arrays({"hidden": spec, "digit": spec}, edges, {"image": 64})


def demo_samples() -> dict[str, np.ndarray]:
    """The images as spikes `x`, float32[200, T, 64], and their labels `y`, int64[200]."""
    with np.load(FILE, allow_pickle=False) as held:
        return {"x": encode_images(held["images"]), "y": held["labels"].astype(np.int64)}


def encode_images(images: np.ndarray) -> np.ndarray:
    """Encode gray values 0..16 of `[n, 64]` as spikes float32[n, T, 64], evenly spread over the steps."""
    steps = np.arange(N_STEPS + 1)[:, None]
    return np.diff(images[:, None].astype(np.int64) * steps // N_STEPS, axis=1).astype(np.float32)
