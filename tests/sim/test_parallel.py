"""Ctrl-C: who waits for a run is free at once, and what is still at work learns of it."""

import signal
import time
from contextvars import ContextVar
from threading import Barrier, main_thread

import numpy as np
import pytest

from nwcompile.ir.chip import Chip
from nwcompile.sim import simulate
from nwcompile.sim.cycle.noc import replay
from nwcompile.sim.cycle.run import ChipRun
from nwcompile.sim.parallel import alone, at_once, chunks_of, over_samples, over_steps
from tests.report.programs import spikes_in, three_cores


def press_ctrl_c() -> None:
    """From any thread: the main one hears it, also while it waits."""
    signal.pthread_kill(main_thread().ident, signal.SIGINT)


def test_an_interrupt_tells_the_other_threads(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    interrupted = np.zeros(1, bool)

    def work(own: slice) -> None:
        if own.start == 0:
            raise KeyboardInterrupt
        until = time.monotonic() + 10
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
        until = time.monotonic() + 10
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


@pytest.mark.parametrize("n_workers", [1, 3])
def test_what_is_done_at_once_comes_in_order_and_the_first_error_is_raised(n_workers):
    asked = ContextVar("asked")
    asked.set("outside")

    def work(k: int) -> tuple[int, str]:
        time.sleep(0.01 * (4 - k))
        if k == 3:
            raise ValueError(f"item {k}")
        return k, asked.get()

    assert at_once(work, range(3), n_workers) == [(k, "outside") for k in range(3)]
    with pytest.raises(ValueError, match="item 3"):
        at_once(work, range(5), n_workers)


def test_ctrl_c_ends_what_is_done_at_once():
    both, heard = Barrier(2), []

    def work(k: int) -> None:
        until = time.monotonic() + 10
        try:
            both.wait(10)
            if k == 0:
                press_ctrl_c()
            while time.monotonic() < until:
                time.sleep(0.001)
        except KeyboardInterrupt:
            heard.append(k)
            raise

    with pytest.raises(KeyboardInterrupt):
        at_once(work, range(4), 2)
    assert sorted(heard) == [0, 1]
