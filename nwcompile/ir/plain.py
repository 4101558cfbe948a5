"""Plain values: what a person gives for a number becomes a Python scalar or a NumPy array, as files give it back."""

import numpy as np


def plain(value):
    """Tensors, lists and tuples as NumPy arrays, NumPy scalars and 0-d arrays as Python's, the rest as it is.

    What makes no array is left for `verify` to refuse.
    """
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    elif isinstance(value, list | tuple):
        try:
            value = np.asarray(value)
        except ValueError:
            return value
    return value.item() if isinstance(value, np.generic | np.ndarray) and np.ndim(value) == 0 else value
