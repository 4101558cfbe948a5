"""Events: convert steps given as lists of spiking input lines to the frames that simulators take."""

from collections.abc import Sequence

import numpy as np

from nwcompile.errors import ModelError
from nwcompile.ir.network import Network


def frames_of(network: Network, steps: Sequence[tuple]) -> dict[str, np.ndarray]:
    """Return int64[n, *shape] by input, for n steps of (lines, values); `values` are integers, or one for all lines.

    Lines are numbered across the given inputs, in order. Values of a repeated line add up. Raises ModelError for
    numbers outside the lines.
    """
    sizes = {name: node.n_neurons for name, node in network.given_inputs.items()}
    n_lines = sum(sizes.values())
    frames = np.zeros((len(steps), n_lines), np.int64)
    for t, (lines, values) in enumerate(steps):
        try:
            numbers = np.asarray(lines)
        except ValueError:  # nested lists of different lengths
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
