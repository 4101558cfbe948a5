"""Relay neurons hold spikes that are delayed longer than a chip can: they are put in after quantization."""

import numpy as np
import pytest

import nwcompile as nw
from nwcompile.passes.stages import quantize

SPEC = nw.NeuronSpec(threshold=1.0, beta=0.5, reset="zero", strict=True)
SPIKES = (np.random.default_rng(1).random((3, 60, 6)) < 0.4).astype(np.float32)


def late(delay: int) -> nw.Network:
    rng = np.random.default_rng(0)
    into_a, into_b = (rng.normal(0.3, 1.0, shape).astype(np.float32) for shape in ((4, 6), (3, 4)))
    edges = [nw.Dense("in", "a", into_a), nw.Dense("a", "b", into_b, delay=delay)]
    return nw.Network.from_arrays({"a": SPEC, "b": SPEC}, edges, {"in": 6})


@pytest.mark.parametrize("options", [{}, {"bits": 4}, {"layer_bits": {"b": 3}}])
def test_spikes_arrive_over_relay_neurons_of_any_widths(options):
    short = {"neuron.delay_max_steps": 3}
    program = nw.compile(late(10), nw.Chip.load("loihi1").replace(short), SPIKES, nw.Options(**options))
    direct = nw.compile(late(10), "loihi1", SPIKES, nw.Options(**options))
    run = nw.simulate(program, SPIKES)
    assert np.array_equal(run.spikes["b"], nw.simulate(direct, SPIKES).spikes["b"]) and run.spikes["b"].any()
    rows = {row["layer"]: row for row in program.manifest["quantization"]}
    assert tuple(rows) == program.network.layers == ("a", "a/relay1", "a/relay2", "b")
    assert rows["a/relay1"]["bits"] == options.get("bits", 8) and rows["a/relay1"]["scale"] == 1.0


def test_delays_without_room_for_relay_neurons_are_refused_before_quantization(monkeypatch):
    monkeypatch.setattr(quantize, "quantize_once", None)
    with pytest.raises(nw.FitError) as error:
        nw.compile(late(1_000_000), nw.Chip.load("loihi1").replace({"noc.columns": 1}), SPIKES)
    assert [v.where for v in error.value.violations] == ["network with relay neurons -> loihi1"]
