"""The search for the narrowest widths: its order on made-up accuracies, and its figures on a small network."""

from dataclasses import replace

import numpy as np
import pytest

import nwcompile as nw
from nwcompile.errors import ModelError
from nwcompile.ir.chip import Chip
from nwcompile.ir.options import Options
from nwcompile.sim import simulate
from nwcompile.sim.answers import find_answers
from nwcompile.workbench.bit_width_search import TriedWidths, find_narrowest, search_widths
from tests.made.nets import FIXED, dense_net

TINY = Chip.load("tiny")
WEIGHTS = {"a": 100, "b": 100, "c": 500}


def needing(**bits):
    """An accuracy that is lost, by a tenth a bit, as soon as a layer has fewer than it needs."""
    return lambda widths: 1 - 0.1 * sum(max(0, n - widths[name]) for name, n in bits.items())


def test_search_finds_what_each_layer_needs():
    tries = TriedWidths(needing(a=3, b=6, c=1), 1.0)
    assert search_widths({"a": 8, "b": 8, "c": 8}, WEIGHTS, tries) == {"a": 3, "b": 6, "c": 1}
    assert [widths for widths, _ in tries.made[:3]] == [dict.fromkeys("abc", n) for n in (7, 6, 5)]
    assert len(tries.made) == len({tuple(widths.values()) for widths, _ in tries.made})


def test_search_narrows_the_least_sensitive_layer_first_and_of_equals_the_largest():
    tries = TriedWidths(lambda w: 1 - 0.01 * (4 - w["a"]) - 0.02 * (4 - w["b"]) - 0.01 * (4 - w["c"]), 0.975)
    assert search_widths({"a": 4, "b": 4, "c": 4}, WEIGHTS, tries) == {"a": 4, "b": 4, "c": 2}
    tries = TriedWidths(lambda w: 1 - 0.02 * (4 - w["a"]) - 0.02 * (4 - w["b"]), 0.975)
    assert search_widths({"a": 4, "b": 4}, WEIGHTS, tries) == {"a": 4, "b": 3}


def test_search_stops_at_one_bit():
    assert search_widths({"a": 3, "b": 1}, WEIGHTS, TriedWidths(needing(a=0, b=0), 1.0)) == {"a": 1, "b": 1}


def case(n_samples=40):
    rng = np.random.default_rng(0)
    spec = nw.NeuronSpec(threshold=1.0, beta=0.9)
    network = nw.Network.from_arrays(
        {"fc1": spec, "out": spec.replace(fires=False, reset="none")},
        [nw.Dense("in", "fc1", rng.normal(0.1, 0.4, (12, 6))), nw.Dense("fc1", "out", rng.normal(0, 0.3, (3, 12)))],
        {"in": 6},
    )
    x = (rng.random((n_samples, 8, 6)) < rng.random((n_samples, 1, 6))).astype(np.int8)
    return network, x, find_answers(simulate(network, x))


@pytest.mark.parametrize("chip", ["h1v1", "loihi2"])
def test_narrowest_tries_the_network_as_the_chip_can_have_it(chip):
    """H1v1 has no biases: lines that are always on stand in for them. Loihi 2 compares the currents of a maximum."""
    rng = np.random.default_rng(3)
    spec = nw.NeuronSpec(threshold=1.0, beta=0.5, reset="subtract", v_min=0.0 if chip == "h1v1" else None)
    weight = rng.normal(0, 0.4, (3, 9)).astype(np.float32)
    if chip == "h1v1":
        x = (rng.random((30, 8, 9)) < 0.4).astype(np.int8)
        edges = [nw.Dense("in", "a", weight, bias=np.array([0.3, -0.2, 0.1], np.float32))]
        network = nw.Network.from_arrays({"a": spec}, edges, {"in": 9})
    else:
        x = (rng.random((200, 20, 1, 6, 6)) < 0.4).astype(np.int8)
        kernel = rng.normal(0, 0.6, (2, 1, 3, 3)).astype(np.float32)
        edges = [nw.Conv2d("in", "map", kernel, padding=1), nw.MaxPool2d("map", "a", 3),
                 nw.Dense("a", "b", rng.normal(0, 0.5, (3, 8)).astype(np.float32))]  # fmt: skip
        layers = {"map": (None, (2, 6, 6)), "a": (spec, (2, 2, 2)), "b": spec}
        network = nw.Network.from_arrays(layers, edges, {"in": (1, 6, 6)})
    labels = find_answers(simulate(network, x))
    options = Options(input_layer="exact")
    found = find_narrowest(network, Chip.load(chip), x[:10], x[10:], labels[10:], options, 0.0)
    widths, accuracy = found.tried[0]
    program = nw.compile(network, chip, x[:10], replace(options, layer_bits=widths))
    right = (find_answers(simulate(program, x[10:])) == labels[10:]).mean()
    assert accuracy == right


def test_narrowest_keeps_the_accuracy_that_the_compiled_program_has():
    network, x, labels = case()
    seen = []
    found = find_narrowest(network, TINY, x[:10], x[10:], labels[10:], Options(), 0.2, lambda *made: seen.append(made))
    assert found.accuracy_float == 1.0 and found.start == {"fc1": 8, "out": 8} and seen == found.tried
    assert found.accuracy >= 0.8 and sum(found.narrowest.values()) < 16 and found.n_weights == {"fc1": 72, "out": 36}
    program = nw.compile(network, TINY, x[:10], Options(layer_bits=found.narrowest))
    run = simulate(program, x[10:], backend="cycle")
    assert float(np.mean(find_answers(run) == labels[10:])) == found.accuracy


def test_narrowest_begins_at_the_widths_that_were_chosen():
    network, x, labels = case(20)
    found = find_narrowest(network, TINY, x, x, labels, Options(bits=3, layer_bits={"out": 2}), 0.99)
    assert found.start == {"fc1": 3, "out": 2} and found.narrowest == {"fc1": 1, "out": 1}


def test_narrowest_finds_nothing_where_the_start_is_too_narrow():
    network, x, labels = case(20)
    found = find_narrowest(network, TINY, x, x, (labels + 1) % 3, Options(bits=1), 0.0)
    assert found.accuracy_float == 0.0 and found.narrowest is not None
    found = find_narrowest(network, TINY, x, x, labels, Options(bits=1), 0.0)
    assert found.narrowest is None and found.accuracy is None and found.accuracy_start < 1


def test_narrowest_refuses_integers():
    with pytest.raises(ModelError) as error:
        find_narrowest(dense_net(4, 3, 2, spec=FIXED), TINY, None, np.ones((1, 2, 4)), [0], Options(), 0.1)
    assert str(error.value) == "the network is in integers already; widths are searched for float networks"
