"""Build the neurons of lava-dl's layers.

CUBA and LOIHI compartments, the default of netx and readouts are built-in neurons. Sigma-delta neurons, graded spikes,
adaptive thresholds and resonators are neuron programs.

Sigma-delta neurons compute in the integers of lava's processes (lava.proc.sdn, fixed_pt).

The rules of SLAYER's neurons are those of lava-dl d825ac5, `slayer/neuron/`, in the integers of
`slayer/neuron/dynamics/`: cuba.py and alif.py (leaky_integrator.py, adaptive_threshold.py), rf.py and rf_iz.py
(resonator.py), adrf.py (adaptive_phase_th.py), adrf_iz.py (adaptive_resonator.py); `slayer/spike/complex.py` decides
when a resonator fires. States saturate at 24 bits as in lava's resonator processes (lava.proc.rf, lava.proc.rf_iz);
SLAYER's states never saturate.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from nwcompile.frontend.lava.entry import DENSE, Entry
from nwcompile.ir.neuron import FixedPoint, NeuronSpec
from nwcompile.ir.neuron_programs.program import NeuronProgram, Operation, StateVariable

ERROR_CODE = "NW2202"
STATE_BITS = 24  # lava declares its states with this precision; here they saturate at it.
LARGEST_STATE = (1 << (STATE_BITS - 1)) - 1
SPIKE_BITS = 6  # A message counts in units of 2**-6 of an activation (netx: spike_exp).
FRACTION_BITS = 6  # Additional fraction bits of a state (netx: state_exp).
UNIT_BITS = SPIKE_BITS + FRACTION_BITS
SIGMA_DELTA = ("delta", "sigma_delta")  # programs whose messages are changes

# The message is the change of the activation `act` since the last step, plus the residue that was not sent then.
DELTA = [
    ("change", "sub", "act", "last_act"),
    ("delta", "add", "change", "residue"),
    ("size", "abs", "delta"),
    ("is_sent", "le", "threshold", "size"),
    ("sent", "select", "is_sent", "delta", 0),
    ("residue_next", "sub", "delta", "sent"),
    ("message", "shr", "sent", FRACTION_BITS),
]
DELTA_STATES = {"last_act": "act", "residue": "residue_next"}
DECAY_BITS = 12
INPUT_BITS = 6  # The unit of a sum of weights is 2**6 units of a state (SLAYER: s_scale / w_scale).
GRADED_BITS = 12  # A graded spike is a state, 2**12 times SLAYER's value (s_scale).
PART_BITS = 20  # Width of each of two packed sums; a larger sum saturates a 24-bit state in any case.
LARGEST_PART = (1 << (PART_BITS - 1)) - 1
RESONATORS = ("RF_PHASE", "RF_IZHIKEVICH", "ADRF_PHASE", "ADRF_IZHIKEVICH")
TYPES = ("CUBA", "LOIHI", "SDNN", "ALIF", *RESONATORS)
THRESHOLD_UNIT = BIAS_UNIT = 64
FULL_DECAY = 1 << 12
UNREACHED_THRESHOLD = 1 << 23  # The membrane saturates below this, so a larger threshold is never reached.
DEFAULT_TYPE = "CUBA"
DEFAULT = {
    "iDecay": 0,
    "vDecay": FULL_DECAY,
    "vThMant": UNREACHED_THRESHOLD // THRESHOLD_UNIT,
}  # netx hdf5.py, create_dense


def neuron_type(entry: Entry) -> str:
    """Return one of TYPES; dense layers without neurons have CUBA ones. Raise ModelError for other types."""
    if "neuron" not in entry.values:
        if entry.kind in DENSE:
            return DEFAULT_TYPE
        raise entry.fail("it has no neuron; export the model with a CUBA or LOIHI neuron in every layer")
    kind = entry.read_text("type", "neuron")
    if kind not in TYPES:
        raise entry.fail(f"neuron type {kind!r} is not supported; supported: {', '.join(TYPES)}")
    return kind


def neuron_spec(entry: Entry, shape: tuple[int, ...], override: Mapping) -> NeuronSpec:
    """Return the layer's NeuronSpec; bias, decays and thresholds are one number, one per channel or one per neuron.

    Both types fire at v > threshold: LOIHI neurons in SLAYER as on the chip, and CUBA neurons since lava-dl v0.3
    (301ac5d, #78, July 2022: SLAYER adds an epsilon to the threshold, `threshold_eps` in `slayer/neuron/cuba.py`,
    because the chip fires at v > threshold). The file of an older CUBA network needs `strict=False`, which it does not
    record.

    A threshold that a 24-bit v cannot reach makes the layer a readout. The bias adds to v, except in an `input` entry
    whose current does not decay at once: SLAYER adds weight*x + bias to u.
    """
    default = {} if "neuron" in entry.values else DEFAULT

    def read_field(key: str, missing=None):
        return entry.read_per_neuron(key, shape, default.get(key, missing), "neuron")

    if entry.read_integer("gradedSpike", False, "neuron") and "spikes" not in override:
        raise entry.fail(
            "gradedSpike is supported of CUBA neurons, not of these; train and export it with "
            f"binary spikes, or give neuron={{{entry.name!r}: {{'spikes': 'binary'}}}} for what lava's netx runs"
        )
    if entry.read_integer("weight_exp", 0, "neuron"):
        raise entry.fail("neuron/weight_exp is not 0: a batch norm that scales; train it with a norm of the mean only")
    threshold = THRESHOLD_UNIT * read_field("vThMant")
    refractory = read_field("refDelay", 1)
    decay_u = read_field("iDecay")
    bias = entry.read_per_neuron("bias", shape, 0)
    into_u = entry.kind == "input" and bool(np.any(decay_u != FULL_DECAY))
    spec = NeuronSpec(
        threshold=threshold,
        strict=True,
        fires=bool(np.any(threshold < UNREACHED_THRESHOLD)),
        fixed=FixedPoint(),
        decay_u=decay_u,
        decay_v=read_field("vDecay"),
        refractory=np.where(refractory == 1, 0, refractory),  # 1 freezes no step
        bias=0 if into_u else BIAS_UNIT * bias,
        bias_u=bias if into_u else 0,
    )
    return spec.replace(**override)


def average_spec() -> NeuronSpec:
    """Return a readout whose v is 64 times the number of spikes it receives in the step."""
    return NeuronSpec(fixed=FixedPoint(), threshold=UNREACHED_THRESHOLD, fires=False, reset="none", decay_v=FULL_DECAY)


def has_bias(spec: NeuronSpec | NeuronProgram) -> bool:
    """Return whether the neurons change without input."""
    if isinstance(spec, NeuronProgram):
        return bool(np.any(spec.parameters.get("bias", 0)))
    return bool(np.any(spec.bias) or np.any(spec.bias_u))


def saturate_ops(result: str, value: str) -> list[tuple]:
    """Return operations that clip a value to the range of a state."""
    return [(f"{result}_low", "min", value, LARGEST_STATE), (result, "max", f"{result}_low", -LARGEST_STATE)]


def delta_encoder(threshold: int, bias=0) -> NeuronProgram:
    """Return input neurons that send the change of their input if it is at least `threshold`."""
    steps = [
        ("biased", "add", "x", "bias"),
        ("scaled", "shl", "biased", UNIT_BITS),
        *saturate_ops("act", "scaled"),
        *DELTA,
    ]
    return _build_program("delta", DELTA_STATES, steps, {"threshold": threshold << UNIT_BITS, "bias": bias})


def sigma_delta(threshold: int, bias=0) -> NeuronProgram:
    """Return ReLU neurons: `sigma` sums received changes; changes of max(sigma + bias, 0) are sent."""
    steps = [
        ("total", "add", "sigma", "x"),
        *saturate_ops("sigma_next", "total"),
        ("biased", "add", "sigma_next", "bias"),
        ("act", "max", "biased", 0),
        *DELTA,
    ]
    parameters = {"threshold": threshold << UNIT_BITS, "bias": np.asarray(bias, np.int64) << UNIT_BITS}
    return _build_program("sigma_delta", {"sigma": "sigma_next", **DELTA_STATES}, steps, parameters)


def sigma_readout() -> NeuronProgram:
    """Return a readout: the sum of the received changes."""
    steps = [("total", "add", "sigma", "x")]
    return _build_program("sigma", {"sigma": "total"}, steps, {}, output="sigma", sends="none")


def sigma_delta_program(entry: Entry, shape: tuple[int, ...]) -> NeuronProgram:
    """Return the neurons of an SDNN layer: encoders for `input` entries, readouts for `sigma_output`."""
    if entry.values["neuron"].get("sigma_output", False):
        return sigma_readout()
    activation = entry.read_text("activation", "neuron")
    if activation not in (None, "relu"):
        raise entry.fail(f"activation {activation!r} is not supported: lava's sigma-delta neurons have a relu")
    threshold = entry.read_integer("vThMant", group="neuron")
    if threshold < 0:
        raise entry.fail(f"neuron/vThMant {threshold} is negative; export the model again")
    kind = delta_encoder if entry.kind == "input" else sigma_delta
    return kind(threshold, entry.read_per_neuron("bias", shape, 0))


@dataclass(frozen=True)
class Arriving:
    """The format of a layer's synaptic input."""

    is_graded: bool = False  # from graded spikes, in units of 2**-12 of a spike
    is_packed: bool = False  # a real part plus 2**PART_BITS times an imaginary part


def is_program(entry: Entry, kind: str, arriving: Arriving, override: Mapping) -> bool:
    """Return whether an entry's neurons, of type `kind`, are one of these programs and not a NeuronSpec."""
    is_graded = bool(entry.read_integer("gradedSpike", False, "neuron")) and "spikes" not in override
    return kind == "ALIF" or kind in RESONATORS or arriving.is_graded or is_graded and kind == "CUBA"


def slayer_program(
    entry: Entry, shape: tuple[int, ...], kind: str, arriving: Arriving, override: Mapping
) -> NeuronProgram:
    """Return the neurons of a layer of type `kind`; a threshold beyond 24 bits makes them a readout.

    `override` may hold `strict` for CUBA neurons. Raises ModelError for other fields and for LOIHI neurons.
    """
    if kind not in ("CUBA", "ALIF", *RESONATORS):
        raise entry.fail(f"{kind} neurons do not take graded spikes; train and export them as CUBA neurons")
    fields = set(override) - ({"strict"} if kind == "CUBA" else set())
    if fields:
        names = ", ".join(sorted(fields))
        raise entry.fail(f"its neurons are a neuron program, which has no field {names}; leave them out of neuron=")
    if entry.read_integer("weight_exp", 0, "neuron"):
        raise entry.fail("neuron/weight_exp is not 0: a batch norm that scales; train it with a norm of the mean only")
    if kind in RESONATORS:
        return _resonator_program(entry, shape, kind, arriving)
    return _leaky_program(entry, shape, kind, arriving, bool(override.get("strict", True)))


def complex_input(bits: int) -> NeuronProgram:
    """Return stateless neurons that send one part of a complex sum, saturated at PART_BITS bits, times 2**bits."""
    steps = [
        ("low", "min", "x", LARGEST_PART),
        ("part", "max", "low", -LARGEST_PART),
        ("message", "shl", "part", "bits"),
    ]
    return _build_program("complex_input", {}, steps, {"bits": bits})


def _leaky_program(entry: Entry, shape, kind: str, arriving: Arriving, strict: bool) -> NeuronProgram:
    """Return CUBA neurons (v is reset to 0) or ALIF neurons (no reset; spikes raise threshold and refractoriness)."""
    default = {} if "neuron" in entry.values else DEFAULT
    decay_u, decay_v = (entry.read_per_neuron(key, shape, default.get(key), "neuron") for key in ("iDecay", "vDecay"))
    base = _read_threshold(entry, shape, default.get("vThMant"))
    bias = entry.read_per_neuron("bias", shape, 0)
    bias_of_v = 0 if kind == "ALIF" or entry.kind == "input" else bias
    parameters = {"keep_u": FULL_DECAY - decay_u, "keep_v": FULL_DECAY - decay_v, "threshold": base}
    steps = [
        *_drive_ops("drive", "x", arriving, 0 if np.any(bias_of_v) else bias, parameters),
        *_decay_ops("u_left", "u", "keep_u"),
        ("u_driven", "add", "u_left", "drive"),
        *saturate_ops("u_next", "u_driven"),
        *_decay_ops("v_left", "v", "keep_v"),
        ("v_driven", "add", "v_left", "u_next"),
    ]
    total = "v_driven"
    if np.any(bias_of_v):
        parameters["bias"] = BIAS_UNIT * bias_of_v
        steps.append(("v_biased", "add", "v_driven", "bias"))
        total = "v_biased"
    steps += saturate_ops("v_full", total)
    states = {"u": "u_next", "v": "v_full"}
    name = kind.lower()
    if _is_readout(base):
        return _build_program(name, states, steps, parameters, output="v", sends="none")
    if kind == "ALIF":
        steps += _adapt_ops(entry, shape, base, parameters)
        states |= {"threshold_now": "threshold_next", "refractory": "refractory_next"}
        steps.append(("fired", "le", "limit", "v_full"))
    else:
        steps += [
            ("fired", "lt" if strict else "le", "threshold", "v_full"),
            ("v_next", "select", "fired", 0, "v_full"),
        ]
        states["v"] = "v_next"
    steps += _jump_ops(kind)
    sending, output, sends = _message_ops(entry, "v_full")
    return _build_program(name, states, [*steps, *sending], parameters, output=output, sends=sends)


def _resonator_program(entry: Entry, shape, kind: str, arriving: Arriving) -> NeuronProgram:
    """Return neurons with a rotating, decaying complex state.

    PHASE: fires when the imaginary part turns positive and the real part is at or above the threshold. IZHIKEVICH:
    fires when the imaginary part reaches the threshold; RF_IZHIKEVICH then resets the state to i * (threshold - 1).
    """
    base = _read_threshold(entry, shape)
    parameters = {"sin": entry.read_per_neuron("sinDecay", shape, group="neuron")}
    parameters["cos"] = entry.read_per_neuron("cosDecay", shape, group="neuron")
    parameters["threshold"] = base
    steps: list[tuple] = []
    parts = ("x", "x")
    if arriving.is_packed:
        parts = ("x_real", "x_imag")
        steps += [
            ("x_rounded", "add", "x", 1 << (PART_BITS - 1)),
            ("x_imag", "shr", "x_rounded", PART_BITS),
            ("x_high", "shl", "x_imag", PART_BITS),
            ("x_real", "sub", "x", "x_high"),
        ]
    bias = entry.read_per_neuron("bias", shape, 0)
    steps += [
        *_drive_ops("drive_real", parts[0], arriving, bias, parameters),
        *(_drive_ops("drive_imag", parts[1], arriving, bias, parameters) if arriving.is_packed else ()),
        *_decay_ops("real_cos", "real", "cos"),
        *_decay_ops("imag_sin", "imag", "sin"),
        *_decay_ops("real_sin", "real", "sin"),
        *_decay_ops("imag_cos", "imag", "cos"),
        ("real_turned", "sub", "real_cos", "imag_sin"),
        ("real_driven", "add", "real_turned", "drive_real"),
        *saturate_ops("real_full", "real_driven"),
        ("imag_turned", "add", "real_sin", "imag_cos"),
        ("imag_driven", "add", "imag_turned", "drive_imag" if arriving.is_packed else "drive_real"),
        *saturate_ops("imag_full", "imag_driven"),
    ]
    states = {"real": "real_full", "imag": "imag_full"}
    name = kind.lower()
    if _is_readout(base):
        return _build_program(name, states, steps, parameters, output="real", sends="none")
    limit = "threshold"
    if kind.startswith("ADRF"):
        limit = "limit"
        steps += _adapt_ops(entry, shape, base, parameters)
        states |= {"threshold_now": "threshold_next", "refractory": "refractory_next"}
    if kind.endswith("PHASE"):
        steps += [
            ("is_far", "le", limit, "real_full"),
            ("was_below", "lt", "imag", 0),
            ("is_above", "le", 0, "imag_full"),
            ("crossed", "and", "was_below", "is_above"),
            ("fired", "and", "is_far", "crossed"),
        ]
    else:
        steps.append(("fired", "le", limit, "imag_full"))
    if kind == "RF_IZHIKEVICH":
        steps += [
            ("below", "sub", "threshold", 1),
            ("real_next", "select", "fired", 0, "real_full"),
            ("imag_next", "select", "fired", "below", "imag_full"),
        ]
        states |= {"real": "real_next", "imag": "imag_next"}
    steps += _jump_ops(kind)
    sending, output, sends = _message_ops(entry, "real_full" if kind.endswith("PHASE") else "imag_full")
    return _build_program(name, states, [*steps, *sending], parameters, output=output, sends=sends)


def _read_threshold(entry: Entry, shape, default=None):
    return THRESHOLD_UNIT * entry.read_per_neuron("vThMant", shape, default, "neuron")


def _is_readout(threshold) -> bool:
    return not np.any(threshold < UNREACHED_THRESHOLD)


def _decay_ops(result: str, state: str, factor: str) -> list[tuple]:
    """Return operations that multiply a state by `factor` / 2**12, rounded toward 0."""
    return [(f"{result}_wide", "mul", state, factor), (result, "shr0", f"{result}_wide", DECAY_BITS)]


def _drive_ops(result: str, x: str, arriving: Arriving, bias, parameters: dict) -> list[tuple]:
    """Return operations that scale input plus bias to units of a state; graded spikes are rounded toward 0."""
    steps: list[tuple] = []
    if np.any(bias):
        parameters["bias"] = np.asarray(bias) << (GRADED_BITS if arriving.is_graded else 0)
        steps.append((f"{result}_biased", "add", x, "bias"))
        x = f"{result}_biased"
    return [*steps, (result, "shr0" if arriving.is_graded else "shl", x, INPUT_BITS)]


def _adapt_ops(entry: Entry, shape, base, parameters: dict) -> list[tuple]:
    """Return operations for threshold and refractoriness before a spike, and `limit`, their sum."""
    for name, key in (("keep_threshold", "thDecay"), ("keep_refractory", "refDecay")):
        parameters[name] = FULL_DECAY - entry.read_per_neuron(key, shape, group="neuron")
    parameters["jump"] = THRESHOLD_UNIT * entry.read_per_neuron("vThStep", shape, group="neuron")
    return [
        ("above", "sub", "threshold_now", "threshold"),
        *_decay_ops("above_left", "above", "keep_threshold"),
        ("threshold_left", "add", "above_left", "threshold"),
        *_decay_ops("refractory_left", "refractory", "keep_refractory"),
        ("limit", "add", "threshold_left", "refractory_left"),
    ]


def _jump_ops(kind: str) -> list[tuple]:
    """Return operations that add a spike's effect to threshold and refractoriness."""
    if kind not in ("ALIF", "ADRF_PHASE", "ADRF_IZHIKEVICH"):
        return []
    return [
        ("threshold_up", "add", "threshold_left", "jump"),
        ("threshold_next", "select", "fired", "threshold_up", "threshold_left"),
        ("twice", "shl", "threshold_left", 1),
        ("refractory_up", "add", "refractory_left", "twice"),
        ("refractory_next", "select", "fired", "refractory_up", "refractory_left"),
    ]


def _message_ops(entry: Entry, value: str) -> tuple[list[tuple], str, str]:
    """Return operations that form the message, its name and kind: a spike, or with `gradedSpike` the state `value`."""
    if entry.read_integer("gradedSpike", False, "neuron"):
        return [("message", "select", "fired", value, 0)], "message", "graded"
    return [("spike", "number", "fired")], "spike", "binary"


def _build_program(
    name: str, states: dict, steps: list, parameters: dict, output: str = "message", sends: str = "graded"
) -> NeuronProgram:
    """Return a program; a variable threshold starts at `threshold`."""
    initial = {"threshold_now": parameters.get("threshold", 0)}
    return NeuronProgram(
        name=name,
        states=tuple(StateVariable(s, to, initial=initial.get(s, 0), bits=STATE_BITS) for s, to in states.items()),
        operations=tuple(Operation(result, kind, tuple(given)) for result, kind, *given in steps),
        output=output,
        sends=sends,
        is_fixed=True,
        parameters=parameters,
    )
