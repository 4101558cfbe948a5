"""Times of a stream by hand: latency, overruns, the load that a chip bears."""

import numpy as np
import pytest

from nwcompile.cost.time.stream import StreamTimes, Waits


def times_of(cuts, events, cycles, sent, depth=1, model_dt=None):
    """The figures of a stream that was cut after those steps, 1 ns a cycle; `sent` by output layers of that depth."""
    times, first = StreamTimes(dict.fromkeys(sent, depth), depth, 1.0, model_dt), 0
    n_given, n_steps = 0, len(events)
    for last in (*cuts, n_steps, n_steps + depth):
        k = max(last - depth - n_given, 0)
        part = {name: np.array(n[n_given : n_given + k], np.int64) for name, n in sent.items()}
        times.add_rows(np.array(events[first:last], np.int64), last - first, np.array(cycles[first:last]), part)
        first, n_given = last, n_given + k
    return times.figures(wall_seconds=2.0)


@pytest.mark.parametrize("cuts", [(), (1, 2, 3), (2,)])
def test_latency_is_from_the_begin_of_the_input_step_to_the_end_of_the_output_step(cuts):
    """Depth 1: the output of aligned step t leaves in hardware step t + 1."""
    figures = times_of(cuts, events=[1, 0, 2, 1], cycles=[10, 20, 30, 40, 50], sent={"out": [1, 5, 2, 0]})
    assert (figures.n_caused, figures.n_uncaused) == (3, 5)  # nothing was fed in step 1
    assert figures.latency_us_mean == pytest.approx((1 * 30 + 2 * 70) / 3 / 1000)
    assert figures.latency_us_p99 == pytest.approx(0.070)
    assert (figures.n_steps, figures.n_hardware_steps, figures.n_events) == (4, 5, 4)
    assert (figures.step_us_mean, figures.step_us_longest) == (pytest.approx(0.03), pytest.approx(0.05))
    assert figures.n_overruns is None and figures.events_per_s_limit is None


@pytest.mark.parametrize("cuts", [(), (1, 2, 3, 4, 5), (4,)])
def test_load_at_which_a_step_takes_as_long_as_the_models(cuts):
    """A step takes 100 cycles and 10 for each event under way: 40 events under way take 500 ns, 20 in each step."""
    events = [3, 0, 7, 1, 4, 2]
    cycles = [100 + 10 * n for n in (3, 3, 7, 8, 5, 6, 2)]
    figures = times_of(cuts, events, cycles, {"out": [0] * 6}, model_dt=5e-7)
    assert figures.events_per_s_limit == pytest.approx(20 / 5e-7)
    assert figures.events_per_s == pytest.approx(17 / (6 * 5e-7))
    assert (figures.n_overruns, figures.simulator_factor) == (0, pytest.approx(2.0 / 3e-6))
    assert figures.hardware_factor == pytest.approx(sum(cycles) * 1e-9 / 3e-6)
    assert times_of(cuts, events, cycles, {"out": [0] * 6}, model_dt=1.65e-7).n_overruns == 2
    assert times_of(cuts, events, [9] * 7, {"out": [0] * 6}, model_dt=1e-6).events_per_s_limit is None


def test_waits_are_told_to_a_thousandth_in_bounded_memory():
    rng, waits = np.random.default_rng(0), Waits({})
    many = rng.integers(1, 1 << 40, 200_000)
    waits.count_waits(many, np.ones(len(many), np.int64))
    assert waits.quantile(0.99) == pytest.approx(np.quantile(many, 0.99), rel=1e-3)
    assert len(waits.counts) < 41 * 1024
    few = Waits({})
    few.count_waits(np.array([5, 2000, 7]), np.array([98, 1, 0]))
    assert (few.quantile(0.5), few.quantile(0.99), few.quantile(1.0)) == (5, 2000, 2000)
