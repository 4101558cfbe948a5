"""Convert a NeuronSpec to the nearest NIR neuron node, and list the fields that the node cannot express.

NIR's equations are continuous (nir 1.0.8, `nir/ir/neuron.py`). snnTorch and SpikingJelly read them with Euler steps of
dt: tau dv/dt = (v_leak - v) + r*i becomes v += dt/tau * (v_leak - v + r*i).
"""

from collections.abc import Mapping

import numpy as np

from nwcompile.frontend.nir.dialects import DIALECTS, neuron_spec
from nwcompile.frontend.nir.file import NirNode
from nwcompile.ir.neuron import NeuronSpec

SLOWEST = 2.0**-26  # dt/tau of a state that does not leak: 1 - 2**-26 is 1 in float32, and tau stays finite


def nearest_node(spec: NeuronSpec, shape: tuple[int, ...], dt: float) -> dict[str, object]:
    """Return type and parameters (float64 of `shape`) of the NIR node for neurons of `spec` and a time step of `dt`.

    With keep = beta (linear) or 1-k (euler), clipped to 0..1-2**-26: tau = dt/(1-keep); r = gain/(1-keep) or r; v_leak
    = (leak+bias)/(1-keep) or v_leak + bias/k; tau_syn = dt/(1-alpha). w_in = w_in/(1-alpha), times alpha if a new input
    decays in its first step. beta = 1 without a constant drive becomes an IF or I with r = gain/dt.
    """
    with np.errstate(all="ignore"):
        return _nearest_node(spec, shape, dt)


def _nearest_node(spec: NeuronSpec, shape: tuple[int, ...], dt: float) -> dict[str, object]:
    numbers = {name: _as_float64(getattr(spec, name), shape) for name in NeuronSpec.NUMBERS[:11]}
    plain = {"fires": True, "membrane": "linear", "beta": 0, "gain": 1, "leak": 0, "bias": 0, "reset": "none"}
    if spec.alpha is None and all(np.all(getattr(spec, name) == value) for name, value in plain.items()):
        return {"type": "Threshold", "threshold": numbers["threshold"]}
    keep = numbers["beta"]
    r = numbers["gain"]
    drive = numbers["leak"] + numbers["bias"]
    if spec.membrane == "euler":
        keep = 1 - numbers["k"]
        r = numbers["k"] * numbers["r"]
        drive = numbers["k"] * numbers["v_leak"] + drive
    rate = np.clip(1 - keep, SLOWEST, 1.0)
    values: dict[str, object] = {}
    if spec.alpha is not None:
        alpha = _as_float64(spec.alpha, shape)
        rate_syn = np.clip(1 - alpha, SLOWEST, 1.0)
        w_in = _as_float64(spec.w_in, shape) * (alpha if spec.current_order == "add_then_decay" else 1)
        values = {"tau_syn": dt / rate_syn, "tau_mem": dt / rate, "w_in": w_in / rate_syn}
    elif (keep != 1).any() or drive.any():
        values = {"tau": dt / rate}
    if values:
        values |= {"r": r / rate, "v_leak": drive / rate}
    else:
        values = {"r": r / dt}
    if spec.fires:
        v_reset = numbers["reset_value"] if spec.reset == "value" else np.zeros(shape)
        values |= {"v_threshold": numbers["threshold"], "v_reset": v_reset}
    prefix = "Cuba" if spec.alpha is not None else ""
    letters = "I" if "v_leak" not in values else "LI"
    return {"type": prefix + letters + ("F" if spec.fires else ""), **values}


def lost_fields(spec: NeuronSpec, shape: tuple[int, ...], node: Mapping, dt: float) -> dict[str, object]:
    """Return the fields of `spec`, with values, that a reader of the node alone (dialect `nir`) gets wrong."""
    values = {key: value for key, value in node.items() if key != "type"}
    with np.errstate(all="ignore"):
        read, _ = neuron_spec(NirNode("", str(node["type"]), values), shape, DIALECTS["nir"], dt, {})
    names = ["membrane", "refractory", "v_min", "clamp"]
    if spec.membrane == "linear":
        names += ["beta", "gain"] if _equal(_drive(spec), _drive(read), shape) else ["beta", "gain", "leak", "bias"]
    elif not _equal(np.clip(spec.k, 0, 1), spec.k, shape):
        names += ["k"]
    if spec.alpha is not None:
        names += ["alpha", "current_order"] if spec.current_order == "add_then_decay" else ["alpha", "w_in"]
        names += ["current_order"] if spec.current_order == "add_use_decay" else []
    if spec.fires:
        names += ["threshold", "strict", "spikes", "reset"]
        names += ["reset_timing"] if spec.reset != "none" else []
        names += ["reset_value"] if spec.reset == "value" else []
    return {name: getattr(spec, name) for name in names if not _equal(getattr(spec, name), getattr(read, name), shape)}


def _drive(spec: NeuronSpec) -> np.ndarray:
    return np.asarray(spec.leak, np.float64) + np.asarray(spec.bias, np.float64)


def _as_float64(value, shape: tuple[int, ...]) -> np.ndarray:
    return np.array(np.broadcast_to(np.asarray(0.0 if value is None else value, np.float64), shape))


def _equal(a, b, shape: tuple[int, ...]) -> bool:
    """Return whether two fields are equal as float32, the type of the computation."""
    if a is None or b is None or isinstance(a, str | bool):
        return a is b if a is None or b is None else a == b
    with np.errstate(over="ignore"):
        return np.array_equal(_as_float64(a, shape).astype(np.float32), _as_float64(b, shape).astype(np.float32))
