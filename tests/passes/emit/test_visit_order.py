import numpy as np
import pytest

import nwcompile as nw
from nwcompile.errors import ModelError
from nwcompile.ir.activity import Activity
from nwcompile.passes.emit import interleave_visits
from nwcompile.report.export.sanafe import sanafe_files

CHIP = nw.Chip.load("loihi1")


def chain(n: int = 4) -> nw.Network:
    """`a`, of whose neurons the last one spikes in every step by its bias, and `b`, which reads all of `a`."""
    bias = np.where(np.arange(n) == n - 1, 200 << 6, 0)
    a = nw.NeuronSpec(threshold=100 << 6, fixed=CHIP.fixed_point, bias=bias)
    b = nw.NeuronSpec(threshold=100 << 6, fixed=CHIP.fixed_point)
    return nw.Network.from_arrays({"a": (a, (n,)), "b": (b, (2,))}, [nw.Dense("a", "b", np.full((2, n), 2, np.int8))])


def activity_of(*counts: int) -> Activity:
    return Activity({"a": np.array([counts], np.int32), "b": np.zeros((1, 2), np.int32)}, 1)


def test_visits_spread_what_spikes_cause_evenly_over_each_core():
    mapping = nw.Mapping.from_arrays({"a": [0, 0, 0, 1], "b": [1, 1]}, [[0, 0, 0], [1, 0, 0]])
    visit = interleave_visits(mapping, chain(), CHIP, activity_of(5, 9, 7, 3)).visit
    # core 0: by work neurons 1, 2, 0 at 0, 0.618, 0.236; core 1: a3, b0, b1 at 0.755, 0.373, 0.991
    assert visit["a"].tolist() == [1, 0, 2, 1] and visit["b"].tolist() == [0, 2]


def test_an_order_of_visits_that_is_given_stays():
    given = {"a": [3, 2, 1, 0], "b": [0, 1]}
    mapping = nw.Mapping.from_arrays({"a": [0] * 4, "b": [0] * 2}, [[0, 0, 0]], given)
    program = nw.compile(chain(), CHIP, mapping=mapping)
    assert {name: places.tolist() for name, places in program.mapping.visit.items()} == given
    assert program.visiting_order.tolist() == [3, 4, 2, 5, 1, 0]


def test_an_order_of_visits_that_a_partitioner_gives_stays():
    given = {"a": [3, 2, 1, 0], "b": [0, 1]}

    def mine(*_):
        return nw.Mapping.from_arrays({"a": [0] * 4, "b": [1] * 2}, [[0, 0, 0], [1, 0, 0]], given)

    for placer in ("anneal", "row-major"):
        program = nw.compile(chain(), CHIP, options=nw.Options(partitioner=mine, placer=placer))
        assert {name: places.tolist() for name, places in program.mapping.visit.items()} == given


def test_the_order_of_visits_changes_time_and_nothing_else():
    sites = [[0, 0, 0], [1, 0, 0]]
    runs = []
    for places in ([0, 1, 2, 3], [3, 2, 1, 0]):
        mapping = nw.Mapping.from_arrays({"a": [0] * 4, "b": [1] * 2}, sites, {"a": places, "b": [0, 1]})
        runs.append(nw.simulate(nw.compile(chain(), CHIP, mapping=mapping), None, "cycle", steps=5, window="hardware"))
    late, early = runs
    assert all((late.spikes[name] == early.spikes[name]).all() for name in late.spikes)
    assert all((late.counters[name] == early.counters[name]).all() for name in late.counters)
    assert early.spikes["a"].sum() == 5
    assert (late.step_cycles > early.step_cycles).all()  # the message leaves after one visit instead of four


def test_the_file_of_a_program_keeps_the_order_of_visits(tmp_path):
    program = nw.compile(chain(), CHIP)
    program.save(tmp_path / "a.nwc")
    loaded = nw.Program.load(tmp_path / "a.nwc")
    assert loaded.visiting_order.tolist() == program.visiting_order.tolist() != sorted(program.visiting_order)
    assert loaded.hash == program.hash


def test_sanafe_maps_neurons_in_the_order_of_visits(tmp_path):
    mapping = nw.Mapping.from_arrays({"a": [0] * 4, "b": [0] * 2}, [[0, 0, 0]], {"a": [4, 5, 0, 1], "b": [2, 3]})
    files = sanafe_files(nw.compile(chain(), CHIP, mapping=mapping), tmp_path, None)
    lines = next(text for path, text in files.items() if path.name == "snn.yaml").decode().splitlines()
    assert [line.split(":")[0] for line in lines[lines.index("mappings:") + 1 :] if line] == [
        "  - a.2..3", "  - b.0..1", "  - a.0..1"]  # fmt: skip


@pytest.mark.parametrize(
    "visit, text",
    [
        ([0, 1], "mapping: visit must be {layer: place of each neuron in its core's order}, not list"),
        (np.zeros(6, int), "mapping: visit must be {layer: place of each neuron in its core's order}, not ndarray"),
        ({"a": [0, 1, 2, 3]}, "mapping: layer 'b' needs whole numbers in `visit` for its 2 neurons"),
        ({"a": [0, 1, 2], "b": [0, 1]}, "mapping: layer 'a' needs whole numbers in `visit` for its 4 neurons"),
        ({"a": [0] * 4, "b": [0] * 2, "c": [0]}, "mapping: there is no layer 'c'; layers: a, b"),
        ({"a": [0.5] * 4, "b": [0] * 2}, "mapping: visit['a'] must be whole numbers, got float64 [0.5, 0.5, 0.5]..."),
    ],
)  # fmt: skip
def test_an_order_of_visits_that_fits_no_net_is_refused(visit, text):
    with pytest.raises(ModelError) as error:
        nw.compile(chain(), CHIP, mapping=nw.Mapping.from_arrays({"a": [0] * 4, "b": [0] * 2}, [[0, 0, 0]], visit))
    assert str(error.value) == text
