"""Refitted neurons: behind layers that fire in bursts, and before a maximum of their spikes."""

from dataclasses import replace

import numpy as np
import pytest

import nwcompile as nw
from nwcompile.flow import compile
from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Conv2d, Dense, MaxPool2d
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import NeuronSpec
from nwcompile.ir.options import Options
from nwcompile.passes.quantize.approximate import approximate, refit
from nwcompile.sim import simulate

LEAKY = NeuronSpec(threshold=1.0, beta=0.95, reset="subtract", reset_timing="next")  # as snnTorch's Leaky comes
OPTIONS = Options(approximate="reset,timing", optimize="cores", partitioner="sequential", placer="row-major")


def bursting() -> Network:
    rng = np.random.default_rng(0)
    first = rng.normal(0.02, 0.12, (120, 40)).astype(np.float32)
    second = rng.normal(0.01, 0.06, (10, 120)).astype(np.float32)
    bias = rng.uniform(0, 0.05, 10).astype(np.float32)
    edges = [Dense("in", "hidden", first), Dense("hidden", "out", second, bias=bias)]
    return Network.from_arrays(dict.fromkeys(("hidden", "out"), LEAKY), edges, {"in": 40})


def static(n: int = 24) -> np.ndarray:
    """Samples whose spikes are the same in all 25 steps, as a static image gives them."""
    pattern = np.random.default_rng(1).random((n, 1, 40)) < 0.4
    return np.repeat(pattern.astype(np.float32), 25, axis=1)


def counts_changed(program, wanted) -> float:
    """Counts of the output neurons that differ, added up, over all spikes of the ideal ones."""
    counts, ideal = (run.output.sum(1).astype(int) for run in (simulate(program, static(), backend="sequence"), wanted))
    return float(np.abs(counts - ideal).sum() / ideal.sum())


def test_currents_that_last_make_good_a_third_of_what_bursts_change(monkeypatch):
    network, x = bursting(), static()
    wanted = simulate(compile(network, "tiny", x, Options(optimize="cores")), x, backend="sequence")
    lasting = compile(network, "loihi1", x, OPTIONS)
    monkeypatch.setattr(refit, "KEPT_CURRENTS", (0.0,))
    without = compile(network, "loihi1", x, OPTIONS)
    how = {row["layer"]: row["how"] for row in lasting.legalization}
    assert "inputs as a current" in how["out"] and "inputs as a current" not in without.legalization[-1]["how"]
    assert counts_changed(lasting, wanted) < 0.67 * counts_changed(without, wanted)
    assert nw.crosscheck(lasting, x[:1]).agree


SYNAPTIC = NeuronSpec(alpha=0.75, beta=0.9375, threshold=1.0, reset="subtract", reset_timing="next")
SEVERAL = Options(approximate="timing,multi-spike")


def off_by_neuron(threshold_per: str) -> dict[str, float]:
    """By layer, spikes of each neuron that are too many or too few on XyloIMU, with up to 31 at once, over all."""
    rng = np.random.default_rng(0)
    x = (rng.poisson(1.5, (20, 25, 6)) * (rng.random((20, 1, 6)) < 0.5)).clip(0, 15).astype(np.float32)
    first, second = (rng.normal(0.01, sd, shape).astype(np.float32) for sd, shape in ((0.15, (20, 6)), (0.2, (4, 20))))
    edges = [Dense("in", "hidden", first), Dense("hidden", "out", second)]
    network = Network.from_arrays(dict.fromkeys(("hidden", "out"), SYNAPTIC), edges, {"in": 6})
    program = compile(network, Chip.load("xylo_imu").replace({"neuron.threshold_per": threshold_per}), x, SEVERAL)
    counts = [{name: s.sum((0, 1)).astype(int) for name, s in simulate(ours, x).spikes.items()}
              for ours in (network, program)]  # fmt: skip
    return {name: float(np.abs(counts[1][name] - wanted).sum() / wanted.sum()) for name, wanted in counts[0].items()}


@pytest.fixture
def one_leak(monkeypatch):
    """Only the neurons' own leak is tried: a search over thresholds is enough."""
    monkeypatch.setattr(refit, "LEAK_FACTORS", (1.0,))
    monkeypatch.setattr(refit, "N_LEAKS_REFINED", 0)


def test_neurons_get_thresholds_of_their_own_where_the_chip_has_them(one_leak):
    single, own = off_by_neuron("layer"), off_by_neuron("neuron")
    assert own["hidden"] < 0.25 * single["hidden"] and own["out"] < 0.5 * single["out"], (own, single)


def test_channels_of_a_map_get_thresholds_of_their_own(one_leak):
    rng = np.random.default_rng(0)
    kernel, second = (rng.normal(0.1, 0.3, shape).astype(np.float32) for shape in ((3, 1, 3, 3), (4, 48)))
    edges = [Conv2d("in", "hidden", kernel, padding=1), Dense("hidden", "out", second)]
    layers = {"hidden": (SYNAPTIC, (3, 4, 4)), "out": (SYNAPTIC, (4,))}
    network = Network.from_arrays(layers, edges, {"in": (1, 4, 4)})
    x = rng.poisson(1.0, (5, 10, 1, 4, 4)).clip(0, 15).astype(np.float32)
    program = compile(network, "xylo_imu", x, SEVERAL)
    threshold = program.network.node("hidden").neuron.threshold
    how = next(row["how"] for row in program.legalization if row["layer"] == "hidden")
    assert threshold.shape == (3, 1, 1) and len(set(threshold.flat)) == 3 and how.startswith("thresholds x ")


def pooled() -> tuple[Network, np.ndarray]:
    """A map of neurons with synaptic currents, the maximum of their spikes over 2 x 2, and samples."""
    rng = np.random.default_rng(0)
    kernel = rng.normal(0.02, 0.3, (4, 1, 3, 3)).astype(np.float32)
    out = Dense("max", "out", rng.normal(0.02, 0.2, (10, 64)).astype(np.float32))
    spec = NeuronSpec(threshold=1.0, beta=0.9, alpha=0.8, reset="zero")
    layers = {"map": (spec, (4, 8, 8)), "max": (None, (4, 4, 4)), "out": spec.replace(alpha=None)}
    edges = [Conv2d("in", "map", kernel, padding=1), MaxPool2d("map", "max", 2), out]
    return Network.from_arrays(layers, edges, {"in": (1, 8, 8)}), (rng.random((20, 16, 1, 8, 8)) < 0.3).astype("f4")


def test_a_layer_and_the_maximum_of_its_spikes_are_each_off_by_half_of_what_one_threshold_cannot_mend(monkeypatch):
    network, x = pooled()
    options = replace(OPTIONS, approximate="decay")  # speck's neurons have no synaptic current
    both = compile(network, "speck", x, options)
    monkeypatch.setattr(approximate, "find_relays", lambda network, chip: {})
    own = compile(network, "speck", x, options)
    prices = [program.manifest["price"]["layers"] for program in (both, own)]
    changes = [[price[name]["rate_change_percent"] for name in ("map", "max")] for price in prices]
    (layer, pool), (_, alone) = changes
    assert layer < 0 < pool and max(-layer, pool) < alone, changes
    assert nw.crosscheck(both, x[:1]).agree
