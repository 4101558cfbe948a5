"""The cortical microcircuit of Potjans and Diesmann (Cereb. Cortex 24:785, 2014): its network, background and spikes.

Steps of 0.1 ms. Neurons are integrated exactly (Rotter and Diesmann, Biol. Cybern. 81, 1999), as NEST's iaf_psc_exp;
membranes are counted in mV from rest, synapses in pA. All draws come from seeded generators, a piece at a time.
"""

from math import erf, exp, log, log1p, sqrt

import numpy as np

import nwcompile as nw

SIZES = {"l23e": 20683, "l23i": 5834, "l4e": 21915, "l4i": 5479, "l5e": 4850, "l5i": 1065, "l6e": 14395,
         "l6i": 2948}  # cells, table 5  # fmt: skip
CHANCES = np.array([  # of a synapse, table 5; row: target, column: source, in the order of SIZES
    [0.1009, 0.1689, 0.0437, 0.0818, 0.0323, 0.0000, 0.0076, 0.0000],
    [0.1346, 0.1371, 0.0316, 0.0515, 0.0755, 0.0000, 0.0042, 0.0000],
    [0.0077, 0.0059, 0.0497, 0.1350, 0.0067, 0.0003, 0.0453, 0.0000],
    [0.0691, 0.0029, 0.0794, 0.1597, 0.0033, 0.0000, 0.1057, 0.0000],
    [0.1004, 0.0622, 0.0505, 0.0057, 0.0831, 0.3726, 0.0204, 0.0000],
    [0.0548, 0.0269, 0.0257, 0.0022, 0.0600, 0.3158, 0.0086, 0.0000],
    [0.0156, 0.0066, 0.0211, 0.0166, 0.0572, 0.0197, 0.0396, 0.2252],
    [0.0364, 0.0010, 0.0034, 0.0005, 0.0277, 0.0080, 0.0658, 0.1443],
])  # fmt: skip
EXTERNAL = {"l23e": 1600, "l23i": 1500, "l4e": 2100, "l4i": 1900, "l5e": 2000, "l5i": 1900, "l6e": 2900,
            "l6i": 2100}  # background inputs of a cell, table 5  # fmt: skip
PAPER_HZ = {"l23e": 0.86, "l23i": 2.80, "l4e": 4.45, "l4i": 5.93, "l5e": 7.59, "l5i": 8.64, "l6e": 1.09,
            "l6i": 7.88}  # the paper's rates  # fmt: skip
STEP_MS = 0.1
BACKGROUND_HZ = 8.0
WEIGHT_PA = 87.8  # of an excitatory synapse: 0.15 mV at the peak
INHIBITION = -4.0  # of an inhibitory synapse, over an excitatory one
TO_L23E_FROM_L4E = 2.0  # over any other excitatory synapse
WEIGHT_SPREAD = 0.1  # standard deviation of a weight, over its mean
DELAY_MS = {"e": 1.5, "i": 0.75}  # by the kind of the source; the standard deviation is half of it
TAU_SYN_MS = 0.5
TAU_M_MS = 10.0
CAPACITY_PF = 250.0
THRESHOLD_MV = 15.0  # above rest, which is also what a spike resets to
REFRACTORY_MS = 2.0
CURRENT_KEPT = exp(-STEP_MS / TAU_SYN_MS)
MEMBRANE_KEPT = exp(-STEP_MS / TAU_M_MS)
MV_PER_PA = TAU_SYN_MS * TAU_M_MS / (CAPACITY_PF * (TAU_M_MS - TAU_SYN_MS)) * (MEMBRANE_KEPT - CURRENT_KEPT)
FROZEN_STEPS = round(REFRACTORY_MS / STEP_MS) + 1  # the step of the spike is the first of them here
LONGEST_DELAY_STEPS = 62  # Six standard deviations: no draw of 0.3 G came near it.
TABLE_BITS = 16  # Background counts are looked up by so many random bits: their mean is right to 1e-4.


def sizes_at(scale: float) -> dict[str, int]:
    """Cells of each population at a scale; chances stay, so synapses go by its square."""
    return {name: max(1, round(n * scale)) for name, n in SIZES.items()}


def n_synapses(n_source: int, n_target: int, chance: float) -> int:
    """Synapses, drawn with replacement, at which two cells are connected with a chance (the paper's equation 1)."""
    return round(log(1 - chance) / log1p(-1 / (n_source * n_target))) if chance else 0


def mean_weight(source: str, target: str) -> float:
    """The mean of the weights of a projection, pA."""
    if source.endswith("i"):
        return INHIBITION * WEIGHT_PA
    return WEIGHT_PA * (TO_L23E_FROM_L4E if (source, target) == ("l4e", "l23e") else 1.0)


def delay_chances(source: str) -> np.ndarray:
    """float64[delay]: chance of a delay of 0, 1, 2, ... steps, rounded from a normal one; below 1 is drawn again."""
    mean = DELAY_MS[source[-1]] / STEP_MS
    upto = [0.5 * (1 + erf((d + 0.5 - mean) / (mean / 2) / sqrt(2))) for d in range(LONGEST_DELAY_STEPS + 1)]
    chance = np.diff(np.array(upto), prepend=0.0)
    chance[0] = 0.0
    return chance / chance.sum()


def microcircuit(seed: int, scale: float = 1.0, driven: str = "poisson") -> nw.Network:
    """The float network: a Sparse for each projection and delay, synapses by source; indices of 16 bits.

    `driven`: "poisson", an input line of spike counts for each cell (`Background`); or "dc", the mean of it as a
    current into every cell (the paper's other variant), and no input.
    """
    rng, sizes = np.random.default_rng(seed), sizes_at(scale)
    layers, edges = {}, []
    for name, n in sizes.items():
        current = EXTERNAL[name] * BACKGROUND_HZ * 1e-3 * TAU_SYN_MS * WEIGHT_PA if driven == "dc" else 0.0
        held = current * TAU_M_MS / CAPACITY_PF * (1 - MEMBRANE_KEPT)  # mV a step
        spec = nw.NeuronSpec(threshold=THRESHOLD_MV, strict=False, reset="zero", refractory=FROZEN_STEPS,
                             alpha=CURRENT_KEPT, beta=MEMBRANE_KEPT, gain=MV_PER_PA, bias=held)  # fmt: skip
        layers[name] = (spec, (n,))
    for i, target in enumerate(sizes):
        for j, source in enumerate(sizes):
            total = n_synapses(sizes[source], sizes[target], CHANCES[i, j])
            of_delay = rng.multinomial(total, delay_chances(source))
            for delay, n in enumerate(of_delay.tolist()):
                if n:
                    edges.append(_projection(rng, source, target, sizes, n, delay))
    inputs = {}
    if driven == "poisson":
        for name, n in sizes.items():
            line = np.arange(n, dtype=np.int16)
            inputs[f"{name}_in"] = (n,)
            edges.append(nw.Sparse(f"{name}_in", name, line, line, np.full(n, WEIGHT_PA, np.float32)))
    return nw.Network.from_arrays(layers, edges, inputs)


def _projection(rng, source: str, target: str, sizes: dict[str, int], n: int, delay: int) -> nw.Sparse:
    """n synapses of one delay in steps, which is one less than the aligned delay: a spike is sent at the step's end."""
    mean = mean_weight(source, target)
    pre = np.sort(rng.integers(0, sizes[source], n, np.int16), kind="stable")
    post = rng.integers(0, sizes[target], n, np.int16)
    weight = rng.standard_normal(n, np.float32)
    weight *= np.float32(WEIGHT_SPREAD * abs(mean))
    weight += np.float32(mean)
    np.clip(weight, *((0, None) if mean > 0 else (None, 0)), out=weight)  # of a billion draws none is so far off
    return nw.Sparse(source, target, pre, post, weight, delay=delay + 1)


class Background:
    """Poisson spike counts of every cell's background in steps of STEP_MS, the same however they are cut in pieces."""

    def __init__(self, seed: int, scale: float = 1.0):
        self.rng, self.sizes = np.random.default_rng([seed, 1]), sizes_at(scale)
        self.tables = {name: _count_table(EXTERNAL[name] * BACKGROUND_HZ * STEP_MS * 1e-3) for name in SIZES}

    def step(self) -> np.ndarray:
        """uint8[cell]: the next step's counts."""
        bits = self.rng.integers(0, 1 << TABLE_BITS, sum(self.sizes.values()), np.uint16)
        counts, first = np.empty(len(bits), np.uint8), 0
        for name, n in self.sizes.items():
            np.take(self.tables[name], bits[first : first + n], out=counts[first : first + n])
            first += n
        return counts

    def steps(self, n: int) -> np.ndarray:
        """uint8[n, cell]: the counts of the next n steps."""
        return np.stack([self.step() for _ in range(n)])

    def inputs(self, n: int) -> dict[str, np.ndarray]:
        """The same by input of `microcircuit`, int32[n, cell of the population]."""
        counts, first, named = self.steps(n).astype(np.int32), 0, {}
        for name, size in self.sizes.items():
            named[f"{name}_in"] = counts[:, first : first + size]
            first += size
        return named


def _count_table(mean: float) -> np.ndarray:
    """uint8[1 << TABLE_BITS]: the Poisson count of each value of a uniform random number, at the middle of its bin."""
    chance, upto, counts = exp(-mean), 0.0, []
    for k in range(64):
        upto += chance
        counts.append(upto)
        chance *= mean / (k + 1)
    at = (np.arange(1 << TABLE_BITS) + 0.5) / (1 << TABLE_BITS)
    return np.searchsorted(np.array(counts), at).astype(np.uint8)
