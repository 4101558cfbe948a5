"""Events: steps told by the input lines that spike in them, as the frames that simulators take."""

from collections.abc import Sequence

import numpy as np

from nwcompile.errors import ModelError
from nwcompile.ir.network import Network


def frames_of(network: Network, steps: Sequence[tuple]) -> dict[str, np.ndarray]:
    """By input int64[n, *shape], of n steps, each (lines, their values): integers, or one number for all.

    Lines are numbered over all inputs that are given, in their order; values of a line named twice add up. Raises
    ModelError for numbers that are no lines.
    """
    sizes = {name: node.n_neurons for name, node in network.given_inputs.items()}
    n_lines = sum(sizes.values())
    frames = np.zeros((len(steps), n_lines), np.int64)
    for t, (lines, values) in enumerate(steps):
        try:
            numbers = np.asarray(lines)
        except ValueError:  # lists in it differ in length
            numbers = np.zeros(())
        if numbers.shape == (0,):
            continue
        if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
            raise ModelError(f"step {t} of the events must be a list of whole numbers, the lines that spike in it")
        if not 0 <= numbers.min() <= numbers.max() < n_lines:
            wrong = numbers[(numbers < 0) | (numbers >= n_lines)][0]
            raise ModelError(f"step {t} of the events names line {wrong}; the lines are 0..{n_lines - 1}")
        np.add.at(frames[t], numbers, values)
    first = np.cumsum([0, *sizes.values()])
    return {
        name: frames[:, first[i] : first[i + 1]].reshape(len(steps), *network.given_inputs[name].shape)
        for i, name in enumerate(sizes)
    }
