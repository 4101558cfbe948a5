"""Ctrl-C: who waits for a run is free at once, and what is still at work learns of it."""

import time

import numpy as np
import pytest

from nwcompile.ir.chip import Chip
from nwcompile.sim import simulate
from nwcompile.sim.cycle.noc import replay
from nwcompile.sim.cycle.run import ChipRun
from nwcompile.sim.parallel import alone, chunks_of, over_samples, over_steps
from tests.interrupts import PATIENCE_S, press_ctrl_c
from tests.report.programs import spikes_in, three_cores


def test_an_interrupt_tells_the_other_threads(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    interrupted = np.zeros(1, bool)

    def work(own: slice) -> None:
        if own.start == 0:
            raise KeyboardInterrupt
        until = time.monotonic() + PATIENCE_S
        while not interrupted[0]:
            assert time.monotonic() < until
            time.sleep(0.001)

    with pytest.raises(KeyboardInterrupt):
        over_samples(2, work, interrupted)
    assert interrupted[0]


@pytest.mark.parametrize("n_cores", [1, 3])
def test_steps_are_computed_in_order_and_moved_once_they_are(monkeypatch, n_cores):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(n_cores)))
    computed, moved = {0: [], 1: []}, []

    def move(b: int, steps: slice) -> None:
        assert steps in computed[b]
        moved.append((b, steps.start, steps.stop))

    over_steps(2, 100, lambda b, steps: computed[b].append(steps), move, np.zeros(1, bool))
    for b, chunks in computed.items():
        assert [n for steps in chunks for n in range(steps.start, steps.stop)] == list(range(100))
        assert len(chunks) > n_cores
        assert sorted(m for m in moved if m[0] == b) == [(b, steps.start, steps.stop) for steps in chunks]


def test_chunks_of_steps_are_short_at_both_ends(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    lengths = [steps.stop - steps.start for steps in chunks_of(500)]
    assert sum(lengths) == 500 and max(lengths) > 50
    assert lengths[:4] == [1, 1, 2, 4] and lengths[-4:] == [1, 1, 1, 1]


def test_an_error_in_a_step_ends_the_others():
    def move(b: int, steps: slice) -> None:
        raise ValueError(f"step {steps.start}")

    with pytest.raises(ValueError, match="step 0"):
        over_steps(1, 50, lambda *_: None, move, np.zeros(1, bool))


@pytest.mark.parametrize("record", ["spikes", "totals"])
def test_a_run_that_is_interrupted_ends_before_its_next_step(monkeypatch, record):
    plain = ChipRun.__init__

    def interrupted(self, *args):
        plain(self, *args)
        self.plan.interrupted[0] = True

    monkeypatch.setattr(ChipRun, "__init__", interrupted)
    with pytest.raises(KeyboardInterrupt):
        simulate(three_cores(), spikes_in(), "cycle", record=record)


def test_work_done_alone_hears_of_an_interrupt():
    interrupted = np.zeros(1, bool)

    def work() -> None:
        press_ctrl_c()
        until = time.monotonic() + PATIENCE_S
        while not interrupted[0]:
            assert time.monotonic() < until
            time.sleep(0.001)

    with pytest.raises(KeyboardInterrupt):
        alone(work, interrupted)


@pytest.mark.parametrize(
    "name, module, keys",
    [("mesh_spec", "lockstep", {}), ("mesh_spec", "noc", {"noc.link_cycles_per_flit": 9}), ("ladderbus", "bus", {})],
)
def test_a_list_of_packets_that_is_interrupted_ends_before_its_next_cycle(monkeypatch, name, module, keys):
    chip = Chip.load(name).replace(keys)
    assert (replay(chip, [0], [0], [3], [1]).arrive > 0).all()

    def interrupted(work, flag) -> None:
        flag[0] = True
        work()

    monkeypatch.setattr(f"nwcompile.sim.cycle.{module}.alone", interrupted)
    assert (replay(chip, [0], [0], [3], [1]).arrive == -1).all()
