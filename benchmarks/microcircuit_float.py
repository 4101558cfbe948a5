"""The microcircuit in float32, a script of its own: another builder of the network, and a loop over steps (Numba)."""

from typing import NamedTuple

import numpy as np
from numba import njit

from benchmarks.microcircuit_net import (
    CHANCES,
    CURRENT_KEPT,
    DELAY_MS,
    FROZEN_STEPS,
    LONGEST_DELAY_STEPS,
    MEMBRANE_KEPT,
    MV_PER_PA,
    SIZES,
    STEP_MS,
    THRESHOLD_MV,
    WEIGHT_PA,
    WEIGHT_SPREAD,
    Background,
    mean_weight,
    n_synapses,
    sizes_at,
)

FIRST_SEED = 100
PIECE = 100  # Steps at once.
POST_BITS = 24  # Of a word of 32 bits that holds the target of a synapse, and above it the delay.


class Wires(NamedTuple):
    """Synapses by source."""

    row: np.ndarray  # int64[cell + 1]: into the others
    word: np.ndarray  # uint32[synapse]: target, and above POST_BITS the delay in steps
    weight: np.ndarray  # float32[synapse]: pA


class Populations(NamedTuple):
    """What synapses are drawn from."""

    first: np.ndarray  # int64[population]: its first cell
    size: np.ndarray  # int64[population]
    mean: np.ndarray  # float64[target, source]: of weights, pA
    delay: np.ndarray  # float64[source]: mean, in steps


class Cells(NamedTuple):
    """What changes from step to step."""

    ring: np.ndarray  # float32[slot, cell]: input on its way, pA
    current: np.ndarray  # float32[cell]
    membrane: np.ndarray  # float32[cell]
    since: np.ndarray  # int32[cell]: steps since its last spike


@njit(cache=True)
def draw_all(seed, counts, drawn, wires):
    """Fill `wires` with the synapses counts: int32[source cell, target population]."""
    np.random.seed(seed)
    word, weight, at = wires.word, wires.weight, 0
    for j in range(len(drawn.size)):
        for s in range(drawn.first[j], drawn.first[j] + drawn.size[j]):
            wires.row[s] = at
            for i in range(len(drawn.size)):
                for k in range(at, at + counts[s, i]):
                    delay = 0
                    while delay < 1 or delay > LONGEST_DELAY_STEPS:
                        delay = round(np.random.normal(drawn.delay[j], drawn.delay[j] / 2))
                    post = drawn.first[i] + np.random.randint(0, drawn.size[i])
                    word[k] = np.uint32(post) | np.uint32(delay << POST_BITS)
                    weight[k] = np.random.normal(drawn.mean[i, j], WEIGHT_SPREAD * abs(drawn.mean[i, j]))
                at += counts[s, i]
    wires.row[len(counts)] = at


@njit(cache=True)
def run(wires, given, cells, first_step, spikes):
    """Move cells on by steps with given: uint8[step, cell] background counts; sets spikes: bool[step, cell]."""
    current, membrane, since, n_slots = cells.current, cells.membrane, cells.since, len(cells.ring)
    keep_i, keep_v = np.float32(CURRENT_KEPT), np.float32(MEMBRANE_KEPT)
    gain, outside = np.float32(MV_PER_PA), np.float32(WEIGHT_PA)
    for t in range(len(given)):
        arriving = cells.ring[(first_step + t) % n_slots]
        for c in range(len(current)):
            current[c] = keep_i * current[c] + arriving[c] + outside * given[t, c]
            arriving[c] = 0
            since[c] += 1
            if since[c] >= FROZEN_STEPS:
                membrane[c] = keep_v * membrane[c] + gain * current[c]
                if membrane[c] >= THRESHOLD_MV:
                    membrane[c] = 0
                    since[c] = 0
                    spikes[t, c] = True
        for c in range(len(current)):
            if spikes[t, c]:
                for k in range(wires.row[c], wires.row[c + 1]):
                    late = np.int64(wires.word[k] >> POST_BITS) + 1
                    target = wires.word[k] & ((1 << POST_BITS) - 1)
                    cells.ring[(first_step + t + late) % n_slots, target] += wires.weight[k]


def network(seed: int, scale: float) -> Wires:
    """All synapses of a seed."""
    rng, sizes = np.random.default_rng([seed, 2]), np.array(list(sizes_at(scale).values()))
    first = np.cumsum(sizes) - sizes
    counts = np.zeros((sizes.sum(), len(sizes)), np.int32)
    for j in range(len(sizes)):
        for i in range(len(sizes)):
            total = n_synapses(sizes[j], sizes[i], CHANCES[i, j])
            sources = rng.integers(0, sizes[j], total, np.int32)
            counts[first[j] : first[j] + sizes[j], i] = np.bincount(sources, minlength=sizes[j])
    drawn = Populations(
        first=first,
        size=sizes,
        mean=np.array([[mean_weight(source, target) for source in SIZES] for target in SIZES]),
        delay=np.array([DELAY_MS[name[-1]] / STEP_MS for name in SIZES]),
    )
    n = int(counts.sum())
    wires = Wires(np.zeros(len(counts) + 1, np.int64), np.empty(n, np.uint32), np.empty(n, np.float32))
    draw_all(seed, counts, drawn, wires)
    return wires


def measure(args) -> dict:
    """Runs of one seed after another; spikes go to files as steps and cells."""
    n_steps, n = round(args.seconds * 1e3 / STEP_MS), sum(sizes_at(args.scale).values())
    for seed in range(FIRST_SEED, FIRST_SEED + args.seeds):
        path = args.work / f"float{seed}.npz"
        if path.exists():
            continue
        wires, background, kept = network(seed, args.scale), Background(seed, args.scale), []
        ring, still = np.zeros((LONGEST_DELAY_STEPS + 2, n), np.float32), np.full(n, 1 << 20, np.int32)
        cells = Cells(ring, np.zeros(n, np.float32), np.zeros(n, np.float32), still)
        for first in range(0, n_steps, PIECE):
            given = background.steps(min(PIECE, n_steps - first))
            spikes = np.zeros(given.shape, np.bool_)
            run(wires, given, cells, first, spikes)
            step, cell = np.nonzero(spikes)
            kept.append(np.stack([step + first, cell]).astype(np.int32))
        np.savez(path, spikes=np.concatenate(kept, 1), n_steps=n_steps)
        del wires  # before the next is made
    return {"model_s": args.seconds, "seeds": args.seeds}
