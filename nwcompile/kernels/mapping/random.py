"""Random numbers of every search, and the Metropolis rule for moves that raise the cost (Numba)."""

import numpy as np

from nwcompile.kernels.jit import inlined


@inlined
def splitmix64(word):
    """Hash a uint64 to a uint64: one step of SplitMix64 (Steele et al., OOPSLA'14)."""
    z = word + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@inlined
def random_bits(state):
    """Next 64 random bits of state: uint64[1], by SplitMix64."""
    bits = splitmix64(state[0])
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    return bits


@inlined
def uniform(state):
    """A random number in [0, 1)."""
    return (random_bits(state) >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@inlined
def random_below(state, n):
    """A random integer from 0 to n - 1."""
    return np.int64(random_bits(state) % np.uint64(n))


@inlined
def random_below_scaled(state, n):
    """A random integer from 0 to n - 1 for n below 2**32, without a division."""
    return np.int64(((random_bits(state) >> np.uint64(32)) * np.uint64(n)) >> np.uint64(32))


@inlined
def is_taken(rise, temperature, state):
    """Whether to accept a move that raises the cost by `rise` > 0: Metropolis rule (J. Chem. Phys. 21, 1953)."""
    drawn = uniform(state)
    return temperature > 0.0 and drawn < np.exp(-rise / temperature)


@inlined
def largest_rise(temperature, state):
    """Largest accepted rise of the cost: the Metropolis rule with its random number drawn before the move is known."""
    return -temperature * np.log(1.0 - uniform(state)) if temperature > 0.0 else 0.0
