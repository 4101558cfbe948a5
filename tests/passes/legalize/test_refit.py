"""Refitted neurons behind layers whose hard resets fire in bursts: synaptic currents that last."""

import numpy as np

import nwcompile as nw
from nwcompile.flow import compile
from nwcompile.ir.connection import Dense
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import NeuronSpec
from nwcompile.ir.options import Options
from nwcompile.passes.legalize import refit
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
