"""Ctrl-C: who waits for a run is free at once, and what is still at work learns of it."""

import time

import numpy as np
import pytest

from nwcompile.sim import simulate
from nwcompile.sim.cycle import ChipRun
from nwcompile.sim.parallel import over_samples
from tests.report.programs import spikes_in, three_cores


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


@pytest.mark.parametrize("record", ["spikes", "totals"])
def test_a_run_that_is_interrupted_ends_before_its_next_step(monkeypatch, record):
    plain = ChipRun.__init__

    def interrupted(self, *args):
        plain(self, *args)
        self.plan.interrupted[0] = True

    monkeypatch.setattr(ChipRun, "__init__", interrupted)
    with pytest.raises(KeyboardInterrupt):
        simulate(three_cores(), spikes_in(), "cycle", record=record)
