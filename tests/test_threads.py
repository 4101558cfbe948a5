"""Work in threads: results are in order, the first error is raised, and Ctrl-C stops all work and leaves no lock."""

import sys
import time
from contextlib import suppress
from contextvars import ContextVar
from threading import Barrier, Event, active_count

import numpy as np
import pytest
from numba import njit
from numba.core.compiler_lock import global_compiler_lock

import nwcompile as nw
from nwcompile.ir.chip import Chip
from nwcompile.passes.place.anneal import cool
from nwcompile.sim import simulate
from nwcompile.sim.cycle.noc import replay_packets
from nwcompile.sim.cycle.run import ChipRun
from nwcompile.threads import at_once, chunk_steps, over_samples, over_steps, raise_if_canceled, run_alone
from tests.interrupts import PATIENCE_S, press_ctrl_c
from tests.made.nets import dense_net
from tests.made.programs import spikes_in, three_cores


def until_it_is_over() -> None:
    """Work until this thread is canceled."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        time.sleep(0.001)
        raise_if_canceled()


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
    both, heard, n_threads = Barrier(2), [], active_count()

    def work(k: int) -> None:
        both.wait(PATIENCE_S)
        if k == 0:
            press_ctrl_c()
        try:
            until_it_is_over()
        except KeyboardInterrupt:
            heard.append(k)
            raise

    with pytest.raises(KeyboardInterrupt):
        at_once(work, range(4), 2)
    assert sorted(heard) == [0, 1] and active_count() == n_threads


def test_an_error_ends_what_is_done_at_once():
    both, heard = Barrier(2), []

    def work(k: int) -> None:
        both.wait(PATIENCE_S)
        if k == 0:
            raise ValueError("item 0")
        try:
            until_it_is_over()
        except KeyboardInterrupt:
            heard.append(k)
            raise

    with pytest.raises(ValueError, match="item 0"):
        at_once(work, range(2), 2)
    assert heard == [1]


def test_ctrl_c_leaves_no_lock_taken_that_a_thread_waits_for():
    """An example is the lock of Numba's compiler: if it stayed locked, this process could compile no more kernels."""
    both = Barrier(2)

    def work(k: int) -> None:
        both.wait(PATIENCE_S)
        with global_compiler_lock:
            press_ctrl_c()
            until_it_is_over()

    with pytest.raises(KeyboardInterrupt):
        at_once(work, range(2), 2)
    assert global_compiler_lock._lock.acquire(timeout=PATIENCE_S)
    global_compiler_lock._lock.release()


def test_ctrl_c_is_heard_by_threads_that_start_threads():
    deaf = []

    def work(k: int) -> None:
        if k == 0:
            press_ctrl_c()
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            over_samples(4, lambda part: None)
        deaf.append(k)

    for _ in range(5):
        with pytest.raises(KeyboardInterrupt):
            at_once(work, range(3), 3)
    assert not deaf


@pytest.mark.parametrize(
    "begin",
    [
        lambda begun: begun(njit(lambda x: 2 * x)(1)),
        lambda begun: cool([1.0], 1, 1, lambda *_: begun(1)),
        lambda begun: over_samples(1, begun),
    ],
)
def test_after_ctrl_c_no_kernel_is_compiled_and_no_moves_and_samples_are_begun(begin):
    begun = []

    def work(k: int) -> None:
        if k == 0:
            press_ctrl_c()
        with suppress(KeyboardInterrupt):
            until_it_is_over()
        begin(begun.append)

    with pytest.raises(KeyboardInterrupt):
        at_once(work, range(2), 2)
    assert not begun


def test_what_may_take_long_in_a_compilation_asks_whether_anyone_waits_for_it(monkeypatch):
    asking = set()

    class Asked:
        def get(self) -> None:
            """Return no thread's state; replaces the variable that `raise_if_canceled` reads."""
            asking.add(sys._getframe(2).f_code.co_name)

        def set(self, is_over: Event) -> None:
            """Ignore the value: nothing is canceled here."""

    monkeypatch.setattr("nwcompile.threads._IS_OVER", Asked())
    monkeypatch.setattr("nwcompile.workbench.estimate.n_threads", lambda: 1)
    weights = np.ones((30, 20), np.float32)
    network = nw.Network.from_arrays(
        {"out": nw.NeuronSpec(threshold=8.0)}, [nw.Dense("in", "out", weights)], {"in": 20}
    )
    nw.estimate(network, "loihi1", np.ones((2, 4, 20), np.float32))
    nw.compile(dense_net(20, 30, 5), "loihi1", options=nw.Options(partitioner="streaming"))
    assert asking >= {"run", "_layer_by_layer", "run_values", "over_samples", "_repair", "_search_coarse", "cool"}


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
    lengths = [steps.stop - steps.start for steps in chunk_steps(500)]
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
        run_alone(work, interrupted)


@pytest.mark.parametrize(
    "name, module, keys",
    [
        ("mesh_spec", "sim.cycle.lockstep", {}),
        ("mesh_spec", "sim.cycle.noc", {"noc.link_cycles_per_flit": 9}),
        ("ladderbus", "families.segmented_bus.engine", {}),
    ],
)
def test_a_list_of_packets_that_is_interrupted_ends_before_its_next_cycle(monkeypatch, name, module, keys):
    chip = Chip.load(name).replace(keys)
    assert (replay_packets(chip, [0], [0], [3], [1]).arrive > 0).all()

    def interrupted(work, flag) -> None:
        flag[0] = True
        work()

    monkeypatch.setattr(f"nwcompile.{module}.run_alone", interrupted)
    assert (replay_packets(chip, [0], [0], [3], [1]).arrive == -1).all()
