"""Energies against hand sums and against SANA-FE's closed forms (reference/sanafe)."""

import csv

import numpy as np
import pytest

from nwcompile.cost.energy import KINDS, energy_pj
from nwcompile.ir.chip import Chip
from nwcompile.ir.run import COUNTERS
from tests.chips import small_chip


def counters(**given):
    return {name: np.asarray(given.get(name, [[0]])) for name in COUNTERS}


def test_energy_is_events_times_figures():
    got = energy_pj(
        counters(
            neuron_visits=[[10, 5]], neuron_updates=[[4, 0]], spikes_out=[[2, 1]], messages_out=[[3, 0]],
            messages_in=[[7, 7]], synops_dense=[[8, 0]], synops_sparse=[[0, 3]], synops_conv=[[1, 1]],
            hops_ew=[[4, 1]], hops_ns=[[2, 0]],
        ),
        small_chip(energy__message_in_pj=0.5),
    )  # fmt: skip
    assert tuple(got) == (*KINDS, "total")
    expected = {"visit": 15 * 51.2, "update": 4 * 21.6, "spike": 3 * 69.3, "message_out": 3 * 111,
                "message_in": 14 * 0.5, "synop_dense": 8 * 35.5, "synop_sparse": 3 * 33.6, "synop_conv": 2 * 24,
                "hop_ew": 5 * 3, "hop_ns": 2 * 4.2}  # fmt: skip
    assert {k: got[k] for k in expected} == pytest.approx(expected)
    assert got["total"] == pytest.approx(sum(expected.values()))


def test_energy_of_static_power_is_power_times_time():
    chip = small_chip(energy__static_mw=2.5)
    assert "static" not in energy_pj(counters(), chip)
    got = energy_pj(counters(neuron_visits=[[10]]), chip, seconds=3e-6)
    assert got["static"] == pytest.approx(2.5e-3 * 3e-6 * 1e12)
    assert got["total"] == pytest.approx(10 * 51.2 + 7500)
    assert small_chip().has_energies and "static" not in energy_pj(counters(), small_chip(), 1.0)


def test_energy_of_a_chip_without_cited_figures_is_none():
    table = small_chip().to_dict()
    del table["energy"]["hop_ns_pj"]
    assert energy_pj(counters(), Chip.from_dict(table)) is None


def test_energy_equals_sanafe_on_the_dvs_net(reference):
    with open(reference / "sanafe" / "dvs_challenge_loihi_1000steps.csv", newline="") as stream:
        rows = list(csv.DictReader(stream))
    column = {key: np.array([float(row[key]) for row in rows]) for key in rows[0]}
    chip = Chip.load("loihi1")
    done = {"neuron_visits": np.full(1000, 18678), "neuron_updates": column["updated"], "spikes_out": column["fired"],
            "synops_dense": column["spikes"], "messages_out": [2482643]}  # fmt: skip
    got = energy_pj(counters(**done), chip)
    assert got["synop_dense"] == pytest.approx(1.830003e9, rel=1e-6)
    assert got["visit"] + got["update"] + got["spike"] == pytest.approx(1.317286e9, rel=1e-6)
    assert got["message_out"] + 0.017709e9 == pytest.approx(0.293282e9, rel=3e-6)
    for h in range(1000):
        step = energy_pj(counters(**{name: values[h : h + 1] for name, values in done.items()}), chip)
        soma = step["visit"] + step["update"] + step["spike"]
        assert (step["synop_dense"], soma) == pytest.approx(
            (column["synapse_energy"][h] * 1e12, column["soma_energy"][h] * 1e12), rel=1e-6
        )
