"""Keys and values of a grid: what they stand for, and one sentence for what they cannot be."""

import numpy as np
import pytest

import nwcompile as nw
from nwcompile.errors import ChipError, OptionError
from nwcompile.workbench.sweep.points import MOST_POINTS, check_size, read_grid
from tests.made.sweeps import question

TINY = nw.Chip.load("tiny")


def space(grid):
    return read_grid(grid, question(), TINY, nw.Options(optimize="cores"))


def test_points_are_the_product_of_all_values_the_last_key_fastest():
    points = list(
        space({"n_cores": [1, 2], "noc": {"buffer_flits": (2, 4)}, "seed": {"from": 0, "to": 4, "step": 2}}).points()
    )
    assert len(points) == 12
    assert [tuple(p.settings.values()) for p in points[:4]] == [(1, 2, 0), (1, 2, 2), (1, 2, 4), (1, 4, 0)]
    last = points[-1]
    assert last.settings == {"n_cores": 2, "noc.buffer_flits": 4, "seed": 4}
    assert last.chip == TINY.replace({"noc.buffer_flits": 4})
    assert last.options == nw.Options(optimize="cores", n_cores=2, seed=4)
    assert len({p.id for p in points}) == 12


def test_points_that_are_equal_are_one():
    assert len(list(space({"bits": [4, 4, np.int64(4)], "n_cores": [1, 2, 1]}).points())) == 2
    as_is = TINY.noc.buffer_flits
    assert len(list(space({"chip": [TINY, "tiny"], "noc.buffer_flits": as_is}).points())) == 1


def test_points_set_the_width_of_one_layer():
    (point,) = space({"layer_bits": {"out": [3]}, "bits": 4}).points()
    assert point.settings == {"layer_bits.out": 3, "bits": 4}
    assert point.options == nw.Options(optimize="cores", bits=4, layer_bits={"out": 3})


def test_points_are_others_for_other_samples_versions_and_models(monkeypatch):
    (point,) = space({"bits": 4}).points()
    (predicted,) = read_grid({"bits": 4}, question("prediction"), TINY, nw.Options(optimize="cores")).points()
    monkeypatch.setattr("nwcompile.workbench.sweep.points.code_version", lambda: "9.9")
    (later,) = space({"bits": 4}).points()
    assert len({point.id, predicted.id, later.id}) == 3


def test_points_whose_settings_clash_have_an_error():
    points = list(space({"step_limit_us": [None, 3.0], "optimize": ["time", "traffic"]}).points())
    assert [p.error for p in points] == [
        None,
        None,
        "OptionError: step_limit_us goes with optimize='traffic' or 'cores', not 'time'",
        None,
    ]


def test_methods_are_told_apart_by_name():
    def striped():
        pass

    def another():
        pass

    another.__qualname__ = striped.__qualname__
    assert len(list(space({"partitioner": [striped, "floorline"]}).points())) == 2
    name = striped.__qualname__
    with pytest.raises(OptionError) as e:
        space({"partitioner": [striped, another]})
    assert str(e.value) == f'grid: two values of partitioner are called "{name}"; give each a name of its own'


@pytest.mark.parametrize(
    "grid, text",
    [
        ([1], "grid: expected a table {key: values}, got [1]"),
        ({}, "the grid names no key; give at least one, like n_cores = [1, 2, 4]"),
        ({"bits": []}, "grid: bits has no value; give at least one, or leave the key out"),
        (
            {"noc.bufer_flits": [1]},
            "grid: unknown key 'noc.bufer_flits' (did you mean 'noc.buffer_flits'?); keys are those of chip files, "
            "fields of Options, layer_bits.LAYER, chip and input",
        ),
        (
            {"cores": [1]},
            "grid: unknown key 'cores' (did you mean 'n_cores'?); keys are those of chip files, fields of "
            "Options, layer_bits.LAYER, chip and input",
        ),
        (
            {"layer_bits": {"outt": [1]}},
            "grid: unknown key 'layer_bits.outt' (did you mean 'layer_bits.out'?); keys are those of chip files, "
            "fields of Options, layer_bits.LAYER, chip and input",
        ),
        ({"bits": [4, 40]}, "grid: bits = 40: bits=40 must be a whole number from 1 to 16"),
        ({"noc.rows": [1, "x"]}, "grid: noc.rows = 'x': tiny: noc.rows: expected a whole number, got 'x'"),
        ({"seed": {"from": 3, "to": 1}},
         "grid: seed = {'from': 3, 'to': 1} is no range; give whole numbers {from = 1, to = 16, step = 1}, the end "
         "not below the beginning, and at most 10 000 of them"),
        ({"seed": {"from": 3, "until": 9}},
         "grid: seed = {'from': 3, 'until': 9} is no range; give whole numbers {from = 1, to = 16, step = 1}, the end "
         "not below the beginning, and at most 10 000 of them"),
        ({"input": ["y"]}, "grid: input 'y' is none of 'x'"),
        ({"placer": ["anneal", "anneall"]},
         "grid: unknown placer 'anneall'; choose one of: anneal, force, hilbert, hill-climb, neumap, pso, random, "
         "routed, row-major, spectral"),
    ],
)  # fmt: skip
def test_grid_that_is_wrong_is_refused_in_a_sentence(grid, text):
    with pytest.raises(OptionError) as e:
        space(grid)
    assert str(e.value) == text


def test_grid_of_unknown_chips_and_of_too_many_points_is_refused():
    with pytest.raises(ChipError, match="unknown chip 'tinny'; choose one of: tiny"):
        space({"chip": ["tinny"]})
    assert MOST_POINTS == 100_000
    huge = space({"seed": {"from": 1, "to": 1000}, "n_cores": {"from": 1, "to": 101}})
    with pytest.raises(OptionError) as e:
        check_size(huge)
    assert str(e.value) == (
        "the grid has 101 000 points and a sweep goes through at most 100 000; give fewer values, or search it "
        "([search] trials = 100)"
    )
