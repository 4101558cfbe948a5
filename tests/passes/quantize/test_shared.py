"""Inside `share_results` a network is quantized once for chips of the same numbers, and as it is outside."""

import time
from contextlib import nullcontext
from dataclasses import fields
from threading import Barrier

import numpy as np
import pytest

import nwcompile as nw
from nwcompile.passes.prepare.normalize import normalize
from nwcompile.passes.quantize import quantize as stage
from nwcompile.passes.quantize.quantize import make_once, quantize, quantize_once, share_results
from nwcompile.threads import at_once
from tests.interrupts import PATIENCE_S
from tests.made.nets import integers


def network(seed: int = 0) -> nw.Network:
    spec = nw.NeuronSpec(threshold=1.0, beta=0.75, reset="zero")
    edges = [nw.Dense("in", "out", integers((5, 12), seed, -9, 9).astype(np.float32) / 7)]
    return normalize(nw.Network.from_arrays({"out": spec}, edges, {"in": 12}))


def samples(seed: int = 0) -> dict[str, np.ndarray]:
    return {"in": (np.random.default_rng(seed).random((4, 9, 12)) < 0.3).astype(np.int32)}


@pytest.mark.parametrize(("chip", "board"), [("loihi1", "loihi1_nahuku"), ("loihi2", "loihi2_kapoho")])
def test_a_chip_and_its_board_share_what_each_would_have_alone(chip, board):
    with share_results():
        made = [quantize_once(network(), nw.Chip.load(name), samples(), nw.Options()) for name in (chip, board)]
    assert made[0] is made[1]
    alone = quantize(network(), nw.Chip.load(board), samples(), nw.Options())
    assert made[0].network.hash == alone.network.hash
    assert all(getattr(made[0], f.name) == getattr(alone, f.name) for f in fields(alone) if f.name != "network")


def test_chips_of_different_numbers_share_the_float_run(monkeypatch):
    calls, simulate = [], stage.simulate
    monkeypatch.setattr(stage, "simulate", lambda *given, **more: calls.append(given) or simulate(*given, **more))
    for context, n_calls in ((share_results, 2), (nullcontext, 2 + 3)):
        with context():
            made = [
                quantize_once(network(), nw.Chip.load(name), samples(), nw.Options()) for name in ("loihi1", "loihi2")
            ]
            quantize_once(network(), nw.Chip.load("loihi2"), samples(1), nw.Options())
        assert len(calls) == n_calls
    alone = quantize(network(), nw.Chip.load("loihi2"), samples(), nw.Options())
    assert made[1].network.hash == alone.network.hash


def test_what_differs_is_quantized_anew(monkeypatch):
    calls = []
    monkeypatch.setattr(stage, "quantize", lambda *given: calls.append(given) or len(calls))
    chip, options = nw.Chip.load("loihi2"), nw.Options()
    given = [
        (network(), chip, samples(), options),
        (network(1), chip, samples(), options),
        (network(), chip.replace({"weights.bits": 6}), samples(), options),
        (network(), chip.replace({"noc.payload_bits": 8}), samples(), options),
        (network(), chip, samples(1), options),
        (network(), chip, {}, options),
        (network(), chip, None, options),
        (network(), chip, samples(), nw.Options(bits=4)),
    ]
    with share_results():
        assert [quantize_once(*one) for one in given for _ in range(2)] == [i for i in range(1, 9) for _ in range(2)]
    assert quantize_once(*given[0]) == 9 and quantize_once(*given[0]) == 10  # outside, nothing is kept


def test_of_two_threads_that_ask_for_the_same_one_makes_it():
    calls, both = [], Barrier(2)

    def make() -> int:
        calls.append(None)
        time.sleep(0.05)
        return len(calls)

    def ask(_: int) -> int:
        both.wait(PATIENCE_S)
        return make_once("a kind", network(), samples(), make)

    with share_results():
        assert at_once(ask, range(2), 2) == [1, 1]


def test_what_could_not_be_made_is_not_kept():
    def fail():
        raise ValueError

    with share_results():
        assert make_once("a kind", network(), None, lambda: 1) == 1
        with pytest.raises(ValueError):
            make_once("a kind", network(), samples(), fail)
        assert (
            make_once("a kind", network(), samples(), lambda: 2) == 2 == make_once("a kind", network(), samples(), fail)
        )
