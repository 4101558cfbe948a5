"""Encode real-valued samples, once and on the host, as integer chip input for every step (DESIGN 4.2)."""

import numpy as np

from nwcompile.errors import ModelError, OptionError, check_int, shown, unknown_choice
from nwcompile.sim.values import LARGEST_SPIKE

ERROR_CODE = "NW2401"
KINDS = ("current", "bernoulli", "delta")


def encode(x, steps: int | None, kind: str = "current", unit: float = 1.0, seed: int = 0) -> np.ndarray:
    """Encode samples `[B, *shape]` as int32 `[B, steps, *shape]` in multiples of `unit`, int8 if the values fit.

    `current`: each entry is the constant input current of an integrate-and-fire neuron. The neuron sends as many units
    as fit, negative ones for negative entries; after t steps it has sent `t * x / unit`, rounded half up. If the
    entries are multiples of `unit`, every step carries the same number: the constant current itself, for chips that
    accept such numbers. With the default unit, entries in 0..1 become single spikes. `bernoulli`: in each step, each
    entry is a spike with probability `|x| / unit` and the sign of the entry, drawn from `seed`. `delta`, for
    sigma-delta networks: the change of the entry from the step before, in units rounded half up. The first step carries
    the full value and later ones 0; with `steps=None`, `x` is a sequence `[B, T, *shape]`. Raises ModelError for
    unusable samples and probabilities above 1, and OptionError for unusable options.
    """
    if not isinstance(kind, str) or kind not in KINDS:
        raise OptionError(unknown_choice("kind", kind, KINDS))
    is_sequence = kind == "delta" and steps is None
    n_steps = 1 if is_sequence else check_int("steps", steps, 1)
    seed = check_int("seed", seed, 0)
    if not isinstance(unit, int | float | np.number) or not 0 < unit < float("inf"):
        raise OptionError(f"unit={shown(unit)} must be a number above 0, the value of one unit of the input")
    samples = _read_samples(x) / unit
    if is_sequence and samples.ndim < 3:
        raise ModelError(f"sequences must be [B, T, *shape], got shape {list(samples.shape)}; give steps for samples")
    if kind == "delta":
        samples = np.floor(samples + 0.5)
    if is_sequence:
        n_steps, samples = samples.shape[1], np.diff(samples, axis=1, prepend=0)
    largest = float(np.abs(samples).max())
    if largest > (1 if kind == "bernoulli" else LARGEST_SPIKE):
        limit = "a chance is at most 1" if kind == "bernoulli" else f"an input sends at most {LARGEST_SPIKE} in a step"
        raise ModelError(
            f"samples go up to {largest:g} units of {unit:g}, but {limit}; give a larger unit, or scale them"
        )
    if is_sequence:
        return samples.astype(np.int8 if largest <= 127 else np.int32)
    shape = (len(samples), n_steps, *samples.shape[1:])
    try:
        numbers = np.empty(shape, np.int8 if largest <= 127 else np.int32)
    except (MemoryError, ValueError):
        raise OptionError(
            f"steps={shown(n_steps)} of {len(samples)} samples do not fit in memory; encode fewer"
        ) from None
    if kind == "bernoulli":
        rng = np.random.default_rng(seed)
        signs = np.sign(samples).astype(np.int8)
        for b in range(len(samples)):
            numbers[b] = (rng.random(shape[1:]) < np.abs(samples[b])) * signs[b]
        return numbers
    if kind == "delta":
        numbers[:, 0] = samples
        numbers[:, 1:] = 0
        return numbers
    sent = np.zeros_like(samples)
    for t in range(n_steps):
        due = np.floor((t + 1) * samples + 0.5)
        numbers[:, t] = due - sent
        sent = due
    return numbers


def _read_samples(x) -> np.ndarray:
    """Return the samples as float64 `[B, *shape]`."""
    try:
        array = np.asarray(x.detach().cpu().numpy() if hasattr(x, "detach") else x)
    except (TypeError, ValueError, RuntimeError) as e:
        raise ModelError(f"samples must be numbers [B, *shape]: {e}") from None
    if array.dtype.kind not in "biuf" or array.ndim < 2 or 0 in array.shape:
        raise ModelError(f"samples must be numbers [B, *shape], got {array.dtype} of shape {list(array.shape)}")
    if not np.isfinite(array).all():
        raise ModelError("samples have NaN or infinite values; clean the data first")
    return array.astype(np.float64)
