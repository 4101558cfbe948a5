"""The meaning of NIR neuron nodes in each framework: discretization, firing and reset, which files do not state.

Sources: snnTorch 1.0.0, norse 1.1.0, SpikingJelly 2.0.0, sinabs 3.1.3, rockpool 3.1.0 and Spyx 1.0.0 (their neuron
modules and NIR exporters), lava-nc (LIF process), and the NIR paper (doi 10.1038/s41467-024-52259-9) for `nir`.
"""

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from nwcompile.errors import NwWarning, require_torch
from nwcompile.frontend.nir.file import NEURONS, NirGraph, NirNode
from nwcompile.ir.neuron import NeuronSpec

ERROR_CODE = "NW2103"
GAIN_TOLERANCE = 1e-5  # Exporters compute in float32, so a gain this close to 1 is 1.
DT_TOLERANCE = 1e-3  # An r written for another dt differs by more than this.


@dataclass(frozen=True)
class Dialect:
    """How one framework updates its neurons, and what its files mean and lack.

    `decay`: a state is multiplied by 1 - dt/tau (`euler`) or exp(-dt/tau) (`exp`) in a step. `membrane`,
    `current_order`, `strict`, `spikes`, `reset`, `reset_timing` are as in NeuronSpec; `reset="file"` resets to the
    node's v_reset. `unit_r`: the r that the framework writes for a leaky node. `tau/dt` and `exp` (tau*exp(-dt/tau)/dt)
    mean a gain of 1; `1` means that the input is multiplied by the leak rate; `either` means that both occur; `any`: r
    is as NIR defines it; `none`: r and w_in are not used, gains are 1. `zero_leak`: v_leak is always 0. `starts_at`:
    the parameter at which v starts, else 0. `lost`: fields that the files lack; the framework's default is used with a
    warning. `dt`: the time step if it is fixed. `tau_times_dt`: the files hold tau*dt in place of tau.
    `late_zero_loses_a_step`: in neurons with a current or recurrence, a reset to zero in the next step also clears the
    input of that step. `late_bias`: the framework omits the bias of a recurrence in step 0. `sends_late`: a spike acts
    in the step after its membrane, on the neuron's own reset too.
    """

    decay: str = "euler"
    membrane: str = "linear"
    current_order: str = "decay_then_add"
    strict: bool = True
    spikes: str = "binary"
    reset: str = "file"
    reset_timing: str = "now"
    unit_r: str = "any"
    zero_leak: bool = False
    starts_at: str | None = None
    lost: tuple[str, ...] = ()
    dt: float | None = None
    late_zero_loses_a_step: bool = False
    tau_times_dt: bool = False
    late_bias: bool = False
    sends_late: bool = False


_MULTI = Dialect(
    decay="exp", current_order="add_then_decay", strict=False, spikes="multi", reset="subtract", zero_leak=True
)
DIALECTS = {
    "snntorch": Dialect(
        reset="subtract",
        reset_timing="next",
        unit_r="tau/dt",
        zero_leak=True,
        lost=("reset", "reset_timing"),
        late_zero_loses_a_step=True,
    ),
    "norse": Dialect(membrane="euler", unit_r="1", starts_at="v_leak", late_bias=True),
    "spikingjelly": Dialect(strict=False, unit_r="either", starts_at="v_reset"),
    "sinabs": replace(_MULTI, unit_r="1", lost=("spikes", "reset", "v_min", "norm_input"), dt=1.0),
    "rockpool": replace(_MULTI, unit_r="exp"),
    "spyx": Dialect(reset="subtract", reset_timing="next", unit_r="none", zero_leak=True, sends_late=True),
    "lava": Dialect(),
    "nir": Dialect(),
}


def select_dialect(name: str, nodes: Iterable[NirNode], dt: float | None) -> Dialect:
    """Return the dialect of this name for a file with these neuron nodes.

    The exporter of norse 1.1.0 (`export_nir.py`) writes dt / tau_inv in place of 1 / tau_inv, so its time constants are
    below dt. Such a file is corrected, its two-state neuron is read as norse runs it, and a warning is issued.
    """
    dialect = DIALECTS[name]
    if name != "norse" or dt is None:
        return dialect
    taus = [(n.name, n.get_numbers(key).min()) for n in nodes for key in n.values if key.startswith("tau")]
    below = [node for node, tau in taus if tau < dt * (1 - GAIN_TOLERANCE)]
    if not below:
        return dialect
    message = (
        f"NIR node {below[0]!r}: a time constant below dt={dt:g}; norse's exporter writes dt / tau_inv for "
        "1 / tau_inv, so every time constant of the file is divided by dt"
    )
    warnings.warn(message, NwWarning, stacklevel=3)
    return replace(dialect, tau_times_dt=True, current_order="add_use_decay")


def correct_edges(graph: NirGraph, dialect: Dialect) -> NirGraph:
    """Return the graph with the inputs of a recurrent layer of Spyx at its neurons.

    The exporter of Spyx 1.0.0 (`nir.py`) leads them through the recurrent weights, which its neurons do not.
    """
    if not dialect.sends_late:
        return graph
    neurons = {name for name, node in graph.nodes.items() if node.kind in NEURONS}
    loops = {a: b for a, b in graph.edges if b in neurons and a not in neurons and a in graph.targets[b]}
    edges = [(a, loops[b]) if b in loops and a != loops[b] else (a, b) for a, b in graph.edges]
    return NirGraph(graph.nodes, tuple(edges))


def neuron_spec(
    node: NirNode, shape: tuple[int, ...], dialect: Dialect, dt: float | None, given: Mapping, recurrent: bool = False
) -> tuple[NeuronSpec, list[str]]:
    """Return the NeuronSpec of a neuron node whose layer has `shape`, and remarks on assumptions and contradictions.

    `given` overrides fields. `recurrent`: the node's spikes are fed back to it. Numbers that are equal for all neurons
    are scalars. Raises ModelError, naming the node, for unusable numbers and for a missing `dt`.
    """
    remarks: list[str] = []
    sizes = {key: np.shape(value) for key, value in node.values.items()}
    try:
        made_for = np.broadcast_shapes(*sizes.values())
    except ValueError:
        stated = ", ".join(f"{key} {size}" for key, size in sizes.items())
        raise node.fail(f"parameters differ in shape: {stated}; give all the layer's shape") from None
    if prod(made_for) not in (1, prod(shape)):
        node = _broadcast_parameters(node, made_for, shape)
    _check_finite(node)
    node, given = _shift_to_start(node, dialect, given, remarks)
    late_zero = dialect.late_zero_loses_a_step and (recurrent or node.kind.startswith("Cuba"))
    if late_zero and given.get("reset") == "zero" and given.get("reset_timing") == "next":
        given = {"refractory": 2, **given, "reset_timing": "now"}
        remarks.append(
            "reset='zero' with reset_timing='next' read as snnTorch's Synaptic, RLeaky and RSynaptic mean it: the step "
            "after a spike is lost (refractory=2)"
        )
    if node.kind == "Threshold":
        fields = {"threshold": node.get_numbers("threshold"), "strict": dialect.strict, "beta": 0.0, "reset": "none"}
    else:
        fields = _membrane_fields(node, dialect, dt, given, remarks)
        if node.kind.startswith("Cuba"):
            fields |= _current_fields(node, dialect, dt, remarks)
        if "v_threshold" in node.values:
            fields |= _firing_fields(node, dialect, given, remarks)
        else:
            fields |= {"fires": False, "reset": "none"}
        lost = [key for key in dialect.lost if key not in given and _is_relevant(node, key, fields, late_zero)]
        assumed = {key: fields.get(key, True) for key in lost}
        if assumed:
            stated = ", ".join(f"{key}={_short_text(value)}" for key, value in assumed.items())
            remarks.append(f"{stated} assumed, which NIR files do not hold; state it with neuron={{...}}")
    fields |= {key: value for key, value in given.items() if key != "norm_input"}
    return NeuronSpec(**{key: _compact_values(node, key, value, shape) for key, value in fields.items()}), remarks


def _check_finite(node: NirNode) -> None:
    """Raise ModelError for infinite numbers, except time constants and snnTorch's r and w_in for them."""
    for key in node.values:
        with_tau = {"r": ("tau", "tau_mem"), "w_in": ("tau_syn",)}.get(key, ())
        endless = [np.isinf(node.get_numbers(tau)) for tau in with_tau if tau in node.values]
        infinite = np.isinf(node.get_numbers(key)) & ~(endless[0] if endless else np.False_)
        if infinite.any() and not key.startswith("tau"):
            raise node.fail(f"{key} has infinite values; the model is not usable, train or export it again")


def _broadcast_parameters(node: NirNode, made_for: tuple[int, ...], shape: tuple[int, ...]) -> NirNode:
    """Return the node with parameters that broadcast to the layer's shape: by torch's rules, or `[C]` per channel."""
    try:
        by_torch = np.broadcast_shapes(made_for, shape) == shape
    except ValueError:
        by_torch = False
    by_channel = len(made_for) == 1 < len(shape) and made_for[0] == shape[0]
    if by_torch and by_channel:
        raise node.fail(
            f"its parameters of shape {made_for} may be for the channels or for the columns of {shape}; write them in "
            f"shape {(*made_for, *[1] * (len(shape) - 1))} or {(*[1] * (len(shape) - 1), *made_for)}"
        )
    if not by_torch and not by_channel:
        raise node.fail(f"shape {made_for} of its parameters does not fit its input of shape {shape}")
    if by_torch:
        return node
    values = {k: np.reshape(v, (-1, *[1] * (len(shape) - 1))) if np.ndim(v) else v for k, v in node.values.items()}
    return NirNode(node.name, node.kind, values)


def _shift_to_start(node: NirNode, dialect: Dialect, given: Mapping, remarks: list[str]) -> tuple[NirNode, Mapping]:
    """Return node and overrides with voltages relative to the start of v, since a layer's v starts at 0."""
    start = node.get_numbers(dialect.starts_at, 0.0) if dialect.starts_at else np.zeros(())
    if not start.any() or "v_threshold" not in node.values:
        return node, given
    if given.get("reset") == "subtract":
        raise node.fail(
            f"reset 'subtract' is not supported where v starts at {dialect.starts_at} {_as_text(start)}, not 0"
        )
    remarks.append(f"v starts at {dialect.starts_at} {_as_text(start)}; threshold, reset and states are relative to it")
    if given.get("reset") == "zero":
        given = {**given, "reset": "value", "reset_value": 0.0}
    in_file = ("v_threshold", "v_reset", "v_leak")
    values = {key: node.get_numbers(key, 0.0) - start for key in in_file if key in node.values or key == "v_reset"}
    in_spec = ("threshold", "reset_value", "v_leak", "v_min")
    shifted = {k: v - start for k, v in given.items() if k in in_spec and v is not None}
    return NirNode(node.name, node.kind, {**node.values, **values}), {**given, **shifted}


def _is_relevant(node: NirNode, key: str, fields: Mapping, late_zero: bool) -> bool:
    """Return whether a field that the files lack affects this node; `late_zero`: a zero reset's timing does."""
    if key == "norm_input":
        return "tau" in node.values or "tau_mem" in node.values
    if key == "reset_timing":
        return fields.get("reset") == "subtract" or (late_zero and fields.get("reset") == "zero")
    return key in fields and fields.get("fires", True)


def _short_text(value) -> str:
    array = np.asarray(value)
    return repr(array.flat[0].item() if array.size and (array == array.flat[0]).all() else "per neuron")


def _membrane_fields(node: NirNode, dialect: Dialect, dt: float | None, given: Mapping, remarks: list[str]) -> dict:
    """Return the membrane fields: the decay and the weight of the input."""
    r = node.get_numbers("r")
    if node.kind in ("I", "IF"):
        return {"beta": 1.0, "gain": _gain_per_step(node, r, dialect, dt, remarks)}
    key = "tau_mem" if "tau_mem" in node.values else "tau"
    rate, keep = _decay_factors(node, key, dialect, dt)
    v_leak = node.get_numbers("v_leak")
    if dialect.zero_leak and v_leak.any():
        remarks.append("v_leak is not 0, as the dialect has it; used as the file says")
    if dialect.unit_r == "1" and dialect.decay == "exp":
        norm_input = given.get("norm_input", True)
        gain = r * (1 - keep.astype(np.float32)) if norm_input else r
        if (np.abs(r - 1) > DT_TOLERANCE).any():
            remarks.append(f"r is {_as_text(r)}, not 1, as the dialect writes it; used as the file says")
        return {"beta": keep, "gain": gain, "leak": (1 - keep) * v_leak}
    gain = np.ones(1) if dialect.unit_r == "none" else np.where(np.isinf(r) & (rate == 0), 1.0, r * rate)
    if dialect.unit_r == "exp" and node.kind != "LI":
        gain = gain / keep
    gain = _snap_to_one(gain)
    leaks_in = np.abs(r - 1) <= DT_TOLERANCE
    whole = np.abs(gain - 1) <= DT_TOLERANCE
    usual = {"tau/dt": whole, "exp": whole | (node.kind == "LI"), "either": leaks_in | whole, "1": leaks_in}
    if node.kind.startswith("Cuba"):
        usual["1"] = leaks_in | whole
    if not np.all(usual.get(dialect.unit_r, True)):
        written = {"tau/dt": "tau/dt", "exp": "tau*exp(-dt/tau)/dt", "either": "1 or tau/dt", "1": "1"}[dialect.unit_r]
        remarks.append(
            f"r is {_as_text(r)}, not {written} for dt={dt:g}, as the dialect writes it; used as the file says"
        )
    if dialect.membrane == "euler" or (dialect.unit_r == "either" and not np.all(whole)):
        return {"membrane": "euler", "k": rate, "v_leak": v_leak, "r": r}
    return {"beta": keep, "gain": gain, "leak": rate * v_leak if dialect.decay == "euler" else (1 - keep) * v_leak}


def _gain_per_step(node: NirNode, r: np.ndarray, dialect: Dialect, dt: float | None, remarks: list[str]) -> np.ndarray:
    """Return the gain of a leakless integrator: r*dt by NIR's text, but 1 for r = 1, as every exporter means it."""
    if (r == 1).all():
        if dialect.unit_r == "any" and dt not in (None, 1.0):
            remarks.append(f"r is 1: taken as a gain of 1 per step, as exporters mean it, not as r*dt = {dt:g}")
        return np.asarray(1.0)
    gain = np.where(r == 1, 1.0, _snap_to_one(r * _time_step(node, dialect, dt)))
    if dialect.unit_r != "any" and (np.abs(gain - 1) > DT_TOLERANCE).any():
        remarks.append(f"r is {_as_text(r)}, neither 1 nor 1/dt, as the dialect writes it; used as the file says")
    return gain


def _current_fields(node: NirNode, dialect: Dialect, dt: float | None, remarks: list[str]) -> dict:
    """Return the synaptic current fields of a node with two states."""
    rate, keep = _decay_factors(node, "tau_syn", dialect, dt)
    w_in = node.get_numbers("w_in", 1.0) if dialect.unit_r != "none" else 1 / rate
    if dialect.unit_r in ("tau/dt", "either") and (np.abs(w_in * rate - 1) > DT_TOLERANCE).any():
        remarks.append(
            f"w_in is {_as_text(w_in)}, not tau_syn/dt for dt={dt:g}, as the dialect writes it; used as the file says"
        )
    if dialect.current_order == "decay_then_add":
        w_in = _snap_to_one(np.where(np.isinf(w_in) & (rate == 0), 1.0, w_in * rate))
    return {"alpha": keep, "w_in": w_in, "current_order": dialect.current_order}


def _firing_fields(node: NirNode, dialect: Dialect, given: Mapping, remarks: list[str]) -> dict:
    """Return the fields of threshold and reset."""
    threshold = node.get_numbers("v_threshold")
    v_reset = node.get_numbers("v_reset", 0.0)
    written = "value" if v_reset.any() else "zero"
    reset = given.get("reset", written if dialect.reset == "file" else dialect.reset)
    if dialect.reset != "file" and written == "value" and "reset" not in given:
        reset = "value"
        remarks.append(
            "v_reset is not 0, but the dialect never resets to a value; reset='value' used, as the file says"
        )
    is_before_leak = dialect.sends_late and node.kind.startswith("Cuba")  # Spyx: v -= threshold, then the leak
    fields = {
        "threshold": threshold,
        "strict": dialect.strict,
        "spikes": dialect.spikes,
        "reset": reset,
        "reset_value": v_reset,
        "reset_timing": "now" if reset != "subtract" or is_before_leak else dialect.reset_timing,
    }
    if "v_min" in dialect.lost and node.kind == "IF":
        fields["v_min"] = -threshold
    if "v_min" in dialect.lost and given.get("v_min", fields.get("v_min")) is not None:
        fields["clamp"] = "shift"
    return fields


def _time_step(node: NirNode, dialect: Dialect, dt: float | None) -> float:
    dt = dialect.dt if dt is None else dt
    if dt is None:
        raise node.fail(
            "needs the time step; give dt= in the unit of the file's time constants (snntorch and spikingjelly write "
            "dt=1e-4, norse 1e-3, rockpool its own, sinabs counts steps: dt=1.0)"
        )
    return dt


def _decay_factors(node: NirNode, key: str, dialect: Dialect, dt: float | None) -> tuple[np.ndarray, np.ndarray]:
    """Return dt/tau, and the factor by which the state decays in a step."""
    dt = _time_step(node, dialect, dt)
    tau = node.get_numbers(key)
    if (tau <= 0).any():
        raise node.fail(f"{key} is {tau.min():g}; a time constant must be above 0")
    rate = _decay_rate(np.asarray(node.values[key]), dialect, dt)
    if dialect.decay == "exp":
        return rate, _exp_as_torch(-rate, np.asarray(node.values[key]).dtype)
    if (rate > 1 + GAIN_TOLERANCE).any():
        raise node.fail(
            f"{key} {tau.min():g} is below dt {dt:g}, which is unstable; give dt in the unit of the file's {key}"
        )
    rate = np.where(np.abs(rate - 1) <= GAIN_TOLERANCE, 1.0, rate)
    return rate, 1 - rate


def _exp_as_torch(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return exp(x) as torch computes it: its float32 exp is not always correctly rounded, and differs from NumPy's."""
    if dtype != np.float32:
        return np.exp(x)
    require_torch("exp of float32 time constants, as sinabs and rockpool compute it,")
    import torch  # imported here because it takes a second and most files do not need it

    return torch.exp(torch.from_numpy(np.asarray(x, np.float32))).numpy().astype(np.float64)


def _decay_rate(tau: np.ndarray, dialect: Dialect, dt: float) -> np.ndarray:
    """Return dt/tau in float64; if tau is float32, dt is rounded to float32 as in the framework's division.

    The numbers equal the framework's: snnTorch divides in NumPy; torch divides a number by a tensor as the tensor's
    reciprocal times the number (`Tensor.__rdiv__`), also in norse's dt / tau_inv.
    """
    if tau.dtype != np.float32:
        tau = tau.astype(np.float64)
        return dt / (tau / dt) if dialect.tau_times_dt else dt / tau
    step = np.float32(dt)
    wide = tau.astype(np.float64)
    if dialect.tau_times_dt:
        return (step * (step / wide).astype(np.float32)).astype(np.float64)
    if dialect.decay == "exp":
        return (np.float32(1) / tau * step).astype(np.float64)
    return step / wide


def _snap_to_one(gain: np.ndarray) -> np.ndarray:
    return np.where(np.abs(gain - 1) <= GAIN_TOLERANCE, 1.0, gain)


def _as_text(values: np.ndarray) -> str:
    low = f"{values.min():g}"
    high = f"{values.max():g}"
    return low if low == high else f"{low}..{high}"


def _compact_values(node: NirNode, key: str, value, shape: tuple[int, ...]):
    """Return equal numbers as one float, others as float32 that broadcasts to the layer's shape."""
    if not isinstance(value, np.ndarray | np.generic):
        return value
    value = np.asarray(value)
    if value.size not in (1, prod(shape)):
        try:
            np.broadcast_to(value, shape)
        except ValueError:
            raise node.fail(f"{key} of shape {value.shape} does not fit the layer's shape {shape}") from None
    if value.size and (value == value.flat[0]).all():
        return float(value.flat[0])
    return (value.reshape(shape) if value.size == prod(shape) else value).astype(np.float32)
