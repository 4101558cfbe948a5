"""One network of the zoo on one chip: whether it lands, how it is labeled, and whether the backends agree on it."""

import time
import warnings
from dataclasses import dataclass, field
from functools import cache
from math import prod

import numpy as np

import nwcompile as nw
from nwcompile.errors import FitError, ModelError, NwError, NwWarning
from nwcompile.ir.manifest import APPROXIMATE, EXACT, HOST
from tests.conftest import REFERENCE
from tests.zoo import norse_sinabs_nets, snntorch_nets, spikingjelly_nets
from tests.zoo.net import Net

DOES_NOT_FIT = "does not fit"
LABELS = (EXACT, APPROXIMATE, HOST, DOES_NOT_FIT)
NETWORKS = {
    "tutorial_5": snntorch_nets.tutorial_5,
    "tutorial_6": snntorch_nets.tutorial_6,
    "tutorial_7": snntorch_nets.tutorial_7,
    "regression": snntorch_nets.regression,
    "speech_commands": lambda: snntorch_nets.speech_commands(REFERENCE),
    "fashion_csnn": spikingjelly_nets.fashion_csnn,
    "dvs_gesture": spikingjelly_nets.dvs_gesture,
    "sew_resnet_18": spikingjelly_nets.sew_resnet_18,
    "norse_readme": norse_sinabs_nets.norse_readme,
    "sinabs_dynapcnn": norse_sinabs_nets.sinabs_dynapcnn,
}
CHIPS = ("loihi1", "loihi2", "spinnaker2", "truenorth", "speck")
BOARDS = {"loihi1": "loihi1_nahuku", "loihi2": "loihi2_kapoho", "spinnaker2": "spinnaker2_48"}
FEWEST_SPIKES = 900  # Of so many spikes ten percent are three standard deviations; of fewer they would be chance.


@dataclass(frozen=True, eq=False)
class Cell:
    """What came of it. `chip` is the board where one chip is too small; `reason` the first limit that bounds it.

    `changes` are the rows of the legalize stage. `rates` has for every layer that fires, and is the user's, its spikes
    a neuron and step on the chip and in the float network, on samples that compiling did not see; `rate_changes` how
    many percent more it fires than on the ideal chip, as the price says. Layers of few spikes are in neither.
    """

    network: str
    chip: str
    label: str
    reason: str = ""
    n_cores: int = 0
    agree: bool | None = None
    changes: list[dict] = field(default_factory=list)
    rates: dict[str, tuple[float, float]] = field(default_factory=dict)
    rate_changes: dict[str, float] = field(default_factory=dict)
    spikes_changed_percent: float | None = None
    seconds: float = 0.0


@cache
def imported(name: str) -> tuple[Net, nw.Network]:
    """The network as written, and as from_torch reads it."""
    net = NETWORKS[name]()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*the import left out", NwWarning)  # membranes, last steps, softmax
        return net, nw.from_torch(net.module, net.calibration, net.layout)


def land(name: str, chip: str, boards: bool = True, **search) -> Cell:
    """Compile and crosscheck one cell: as it is, else approximated, else on a board of several chips.

    `search`: options of how to look for a mapping, which no label and no spike depends on.
    """
    start = time.perf_counter()
    reason = ""
    tries = [(chip, ()), (chip, "all")]
    if boards and chip in BOARDS:
        tries += [(BOARDS[chip], ()), (BOARDS[chip], "all")]
    net, network = imported(name)
    for place, approximate in tries:
        try:
            program = nw.compile(network, place, net.calibration, nw.Options(approximate=approximate, **search))
        except (FitError, ModelError) as e:
            reason = first_limit(e) if place == chip else reason
            continue
        return _landed(name, place, net, network, program, time.perf_counter() - start, reason)
    return Cell(name, chip, DOES_NOT_FIT, reason, seconds=time.perf_counter() - start)


def first_limit(error: NwError) -> str:
    """The violation that bounds a network, in one line."""
    return str(error.violations[0]) if isinstance(error, FitError) else str(error).splitlines()[0]


def label_of(changes: list[dict]) -> str:
    """The weakest label of all rows: approximate, else host, else exact."""
    labels = {change["label"] for change in changes}
    return next((label for label in (APPROXIMATE, HOST) if label in labels), EXACT)


def _landed(name, chip, net: Net, network: nw.Network, program: nw.Program, seconds: float, reason: str) -> Cell:
    changes = program.manifest.get("legalization", [])
    price = program.manifest.get("price", {})
    return Cell(
        network=name,
        chip=chip,
        label=label_of(changes),
        reason=reason,
        n_cores=program.mapping.n_cores,
        agree=nw.crosscheck(program, net.held_out).agree,
        changes=changes,
        rates=rates(network, program, net.held_out),
        rate_changes=rate_changes(program, price, net.n_steps),
        spikes_changed_percent=price.get("spikes_changed_percent"),
        seconds=seconds,
    )


def rates(network: nw.Network, program: nw.Program, x: np.ndarray) -> dict[str, tuple[float, float]]:
    """Spikes a neuron and step of every layer of the float network that the program has too: on the chip, in float."""
    on_chip = nw.simulate(program, x, backend="sequence").spikes
    in_float = nw.simulate(network, x).spikes
    kept = [layer for layer in network.layers if layer in on_chip and np.abs(in_float[layer]).sum() >= FEWEST_SPIKES]
    return {layer: (_rate(on_chip[layer]), _rate(in_float[layer])) for layer in kept}


def rate_changes(program: nw.Program, price: dict, n_steps: int) -> dict[str, float]:
    """The price of every layer that fires often enough on the ideal chip, in percent of its rate there."""
    layers = price.get("layers", {}).items()
    n_neurons = {layer: program.network.node(layer).n_neurons for layer, _ in layers}
    n_spikes = {layer: of["rate_ideal"] * n_neurons[layer] * n_steps * price["n_samples"] for layer, of in layers}
    return {layer: of["rate_change_percent"] for layer, of in layers if n_spikes[layer] >= FEWEST_SPIKES}


def _rate(spikes: np.ndarray) -> float:
    return float(np.abs(spikes).sum() / prod(spikes.shape))
