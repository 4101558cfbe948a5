"""Times of a stream in constant memory: step times, output latencies and sustainable load."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

EXACT_BITS = 11  # Times are binned by their first eleven bits, to 0.1 %.


@dataclass(frozen=True)
class StreamFigures:
    """Figures of a stream so far; None if not measured.

    An event is a non-zero value of an input line in a step. `latency_us_*`: time from the start of an input's hardware
    step to the end of the step in which the output spikes of the same aligned step leave their cores. It covers the
    `n_caused` output spikes of steps with an event, or such steps themselves if an output layer never fires.
    `n_uncaused` output spikes came in steps without an event. The 99th percentile is accurate to 0.1 %.
    `model_dt_s` is the time that a step of the model represents. With it: `n_overruns` hardware steps took longer;
    `events_per_s` were fed; at `events_per_s_limit` a step takes exactly that time, by a least-squares line of step
    times over the events in the pipeline (None if time does not rise with events); `hardware_factor` and
    `simulator_factor` are the times of the chip and of this computer over the model's time.
    """

    n_steps: int
    n_hardware_steps: int
    n_events: int
    step_us_mean: float | None
    step_us_longest: float | None
    latency_us_mean: float | None
    latency_us_p99: float | None
    n_caused: int
    n_uncaused: int
    wall_seconds: float
    model_dt_s: float | None
    n_overruns: int | None
    events_per_s: float | None
    events_per_s_limit: float | None
    hardware_factor: float | None
    simulator_factor: float | None


class Waits(NamedTuple):
    """A histogram of integer waiting times, of bounded size."""

    counts: dict[int, int]

    def count_waits(self, waits: np.ndarray, times: np.ndarray) -> None:
        """Count int64 `waits`, each `times` times."""
        lost = np.maximum(np.frexp(waits)[1] - EXACT_BITS, 0)
        for wait, n in zip(((waits >> lost) << lost).tolist(), times.tolist(), strict=True):
            if n:
                self.counts[wait] = self.counts.get(wait, 0) + n

    def quantile(self, share: float) -> int | None:
        """Return the least wait that at least this share of all waits do not exceed."""
        n_left = share * sum(self.counts.values())
        for wait in sorted(self.counts):
            n_left -= self.counts[wait]
            if n_left <= 0:
                return wait
        return None


class StreamTimes:
    """Accumulates the steps of a stream. `offset`: hardware steps by which the output layers are late."""

    def __init__(self, offset: dict[str, int], depth: int, cycle_ns: float, model_dt: float | None):
        self.offset, self.depth = offset, depth
        self.cycle_ns, self.model_dt = cycle_ns, model_dt
        self.limit = None if model_dt is None else model_dt * 1e9 / cycle_ns
        self.n_steps = self.n_hardware = self.n_events = self.n_caused = self.n_uncaused = self.n_overruns = 0
        self.cycles = self.longest = self.waited = 0
        self.is_timed = False
        self.waits = Waits({})
        self.fit = [0, 0, 0, 0]  # sums over hardware steps: events in flight, their squares, cycles, products
        self.pending_events = np.zeros(0, np.int64)  # of aligned steps that are not complete
        self.pending_cycles = np.zeros(0, np.int64)  # of hardware steps from the first of them on
        self.under_way = np.zeros(depth, np.int64)  # events of the last `depth` hardware steps

    def add_rows(self, events: np.ndarray, n_rows: int, cycles: np.ndarray | None, sent: dict[str, np.ndarray]) -> None:
        """Add `n_rows` hardware steps with their `cycles` and the `events` int64[n] fed into them.

        `sent`: int64[k] by output layer, its spikes in the k aligned steps that are now complete; 1 if it never fires.
        """
        self.n_steps += len(events)
        self.n_hardware += n_rows
        self.n_events += int(events.sum())
        events_line = np.concatenate([self.pending_events, events])
        k = len(next(iter(sent.values())))
        has_event = events_line[:k] > 0
        self.n_caused += sum(int(n[has_event].sum()) for n in sent.values())
        self.n_uncaused += sum(int(n[~has_event].sum()) for n in sent.values())
        self.pending_events = events_line[k:]
        if cycles is not None:
            self.is_timed = True
            self._take_waits(cycles, k, {name: np.where(has_event, n, 0) for name, n in sent.items()})
            self._take_load(np.concatenate([events, np.zeros(n_rows - len(events), np.int64)]), cycles)

    def _take_waits(self, cycles: np.ndarray, k: int, caused: dict[str, np.ndarray]) -> None:
        line = np.concatenate([self.pending_cycles, cycles])
        ends = np.concatenate([[0], np.cumsum(line)])
        for name, n in caused.items():
            begin = self.offset[name] + 1
            waits = ends[begin : begin + k] - ends[:k]
            self.waits.count_waits(waits, n)
            self.waited += int((waits * n).sum())
        self.pending_cycles = line[k:]

    def _take_load(self, events: np.ndarray, cycles: np.ndarray) -> None:
        line = np.concatenate([self.under_way, events])
        sums = np.concatenate([[0], np.cumsum(line)])
        load = sums[self.depth + 1 :] - sums[: len(events)]
        self.under_way = line[len(events) :]
        products = (load, load * load, cycles, load * cycles)
        self.fit = [total + int(x.sum()) for total, x in zip(self.fit, products, strict=True)]
        self.cycles += int(cycles.sum())
        self.longest = max(self.longest, int(cycles.max(initial=0)))
        if self.limit is not None:
            self.n_overruns += int(np.count_nonzero(cycles > self.limit))

    def _limit_load(self) -> float | None:
        """Return the events in flight at which a hardware step takes as long as a step of the model."""
        load, squares, cycles, products = self.fit
        spread = self.n_hardware * squares - load * load
        rise = self.n_hardware * products - load * cycles
        if self.limit is None or spread == 0 or rise <= 0:
            return None
        return max((self.limit - cycles / self.n_hardware) * spread / rise + load / self.n_hardware, 0.0)

    def figures(self, wall_seconds: float) -> StreamFigures:
        """Return the figures so far."""
        us, dt = self.cycle_ns / 1000, self.model_dt
        model = None if dt is None or not self.n_steps else dt * self.n_steps
        is_timed = self.is_timed and self.n_hardware > 0
        is_caused = is_timed and self.n_caused > 0
        p99, limit = self.waits.quantile(0.99), self._limit_load() if is_timed else None
        return StreamFigures(
            n_steps=self.n_steps,
            n_hardware_steps=self.n_hardware,
            n_events=self.n_events,
            step_us_mean=self.cycles * us / self.n_hardware if is_timed else None,
            step_us_longest=self.longest * us if is_timed else None,
            latency_us_mean=self.waited * us / self.n_caused if is_caused else None,
            latency_us_p99=None if p99 is None else p99 * us,
            n_caused=self.n_caused,
            n_uncaused=self.n_uncaused,
            wall_seconds=wall_seconds,
            model_dt_s=dt,
            n_overruns=self.n_overruns if is_timed and dt is not None else None,
            events_per_s=None if model is None else self.n_events / model,
            events_per_s_limit=None if limit is None or dt is None else limit / (self.depth + 1) / dt,
            hardware_factor=self.cycles * us * 1e-6 / model if is_timed and model is not None else None,
            simulator_factor=None if model is None else wall_seconds / model,
        )
