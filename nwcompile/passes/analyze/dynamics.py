"""Dynamics: a float neuron written as the chip's two leaky sums, u and v (DESIGN 4.2)."""

from dataclasses import dataclass
from math import inf

import numpy as np

from nwcompile.errors import ModelError
from nwcompile.ir.chip import Chip
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import FixedPoint, NeuronSpec

ERROR_CODE = "NW5010"
SLOWEST = 2.0**-15  # The share of a state that the slowest decay by shift removes per step.
FASTEST = 0.99  # Losses above this share count as equal when time constants are compared.


@dataclass(frozen=True, eq=False)
class Dynamics:
    """`u = keep_u*u + factor*(sum of w*s) + constant_u; v = keep_v*v + u + constant_v`, in the float network's units.

    Numbers are float64, scalars or arrays that broadcast to the layer. The chip's u and v lose `FixedPoint.lost(decay)`
    per step. `tau_error_percent` is the largest error of a time constant by rounding, or None if the chip rounds a very
    slow leak to none or a very fast one to a full one. If decays are shifts, u decays after the sum is added, and few
    time constants are close to an available one. The factor then keeps the charge of a spike, the total that it adds to
    v.
    """

    factor: np.ndarray
    constant_u: np.ndarray
    constant_v: np.ndarray
    keep_u: np.ndarray
    keep_v: np.ndarray
    decay_u: np.ndarray
    decay_v: np.ndarray
    tau_error_percent: float | None


def layer_dynamics(network: Network, layer: str, chip: Chip) -> Dynamics:
    """Return the dynamics of a float layer of a normalized network, biases of its connections included.

    All three current orders give the same sequence of currents and differ in `factor` only. Without a current
    (`alpha is None`) u keeps nothing and every constant goes to v. Raises ModelError for a leak outside 0..1.
    """
    node = network.node(layer)
    spec: NeuronSpec = node.neuron
    biases = [c.bias_per_neuron(node.shape) for c in network.into(layer) if c.bias is not None]
    bias = sum((np.asarray(b, np.float64) for b in biases), np.zeros(()))
    keep_v, gain, constant_v = _membrane_terms(spec)
    factor, keep_u, constant_u = gain, np.zeros(()), np.zeros(())
    if spec.alpha is None:
        constant_v = constant_v + gain * bias
    else:
        keep_u = _to_float32(spec.alpha)
        factor = gain * _to_float32(spec.w_in) * (keep_u if spec.current_order == "add_then_decay" else 1.0)
        constant_u = factor * bias
    lowest = chip.state.decay_offset if spec.alpha is not None else 0
    form = chip.fixed_point
    decay_u, error_u = _chip_decay(layer, "alpha", keep_u, form, 1 if form.shifts else lowest)
    error_u = 0.0 if spec.alpha is None else error_u  # there is no time constant to approximate
    decay_v, error_v = _chip_decay(layer, "beta" if spec.membrane == "linear" else "1 - k", keep_v, form, 0)
    if form.shifts:
        lost = form.lost(decay_u)
        to_same_charge = lost / ((1 - lost) * np.maximum(1 - keep_u, SLOWEST))
        factor = factor * to_same_charge
        constant_u = constant_u * to_same_charge
    worst = max(error_u, error_v)
    return Dynamics(
        factor=factor,
        constant_u=constant_u,
        constant_v=constant_v,
        keep_u=keep_u,
        keep_v=keep_v,
        decay_u=decay_u,
        decay_v=decay_v,
        tau_error_percent=None if worst == inf else worst,
    )


def _to_float32(value) -> np.ndarray:
    """Round to float32, as the float network computes."""
    return np.asarray(value, np.float32).astype(np.float64)


def _membrane_terms(spec: NeuronSpec) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the share of v that remains, the gain of the current, and the constant that is added to v."""
    bias = _to_float32(spec.bias)
    if spec.membrane == "linear":
        return _to_float32(spec.beta), _to_float32(spec.gain), _to_float32(spec.leak) + bias
    k = _to_float32(spec.k)
    return 1 - k, k * _to_float32(spec.r), k * _to_float32(spec.v_leak) + bias


def _chip_decay(layer: str, name: str, keep: np.ndarray, form: FixedPoint, lowest: int) -> tuple[np.ndarray, float]:
    """Return the chip's decays for the remaining shares, and the largest time-constant error in percent (or inf)."""
    if keep.min() < 0 or keep.max() > 1:
        bad = float(keep.min() if keep.min() < 0 else keep.max())
        raise ModelError(
            f"layer {layer!r}: {name} = {bad:g} is outside 0..1, and a chip's state can only decay; "
            "train it with a leak between 0 and 1"
        )
    decay = find_decay_for_loss(1 - keep, form, lowest)
    chip_keep = 1 - form.lost(decay)
    leaky = (0 < keep) & (keep < 1) & (0 < chip_keep) & (chip_keep < 1)
    ratio = np.log(np.where(leaky, keep, 0.5)) / np.log(np.where(leaky, chip_keep, 0.5))  # of the time constants
    error = np.where(leaky, 100 * np.abs(ratio - 1), np.where(keep == chip_keep, 0.0, inf))
    return decay, float(error.max())


def find_decay_for_loss(lost: np.ndarray, form: FixedPoint, lowest: int = 0) -> np.ndarray:
    """Return the chip's decay, int64, at least `lowest`, that is nearest to losing a share `lost` (0..1) per step.

    For shifts, the nearest time constant (as a ratio) decides.
    """
    if not form.shifts:
        return np.maximum(np.rint(lost * (1 << form.decay_bits)).astype(np.int64), lowest)
    shifts = np.arange(lowest, form.decay_range[1] + 1)
    wanted, has = (np.log(-np.log1p(-np.clip(x, SLOWEST, FASTEST))) for x in (np.asarray(lost), form.lost(shifts)))
    return shifts[np.abs(wanted[..., None] - has).argmin(-1)].astype(np.int64)
