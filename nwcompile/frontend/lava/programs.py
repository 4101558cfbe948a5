"""Build lava-dl's sigma-delta neurons as programs, in the integers of lava's processes (lava.proc.sdn, fixed_pt)."""

import numpy as np

from nwcompile.frontend.lava.entry import Entry
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
    return _build_program("delta", DELTA_STATES, steps, threshold=threshold << UNIT_BITS, bias=bias)


def sigma_delta(threshold: int, bias=0) -> NeuronProgram:
    """Return ReLU neurons: `sigma` sums received changes; changes of max(sigma + bias, 0) are sent."""
    steps = [
        ("total", "add", "sigma", "x"),
        *saturate_ops("sigma_next", "total"),
        ("biased", "add", "sigma_next", "bias"),
        ("act", "max", "biased", 0),
        *DELTA,
    ]
    bias = np.asarray(bias, np.int64) << UNIT_BITS
    states = {"sigma": "sigma_next", **DELTA_STATES}
    return _build_program("sigma_delta", states, steps, threshold=threshold << UNIT_BITS, bias=bias)


def sigma_readout() -> NeuronProgram:
    """Return a readout: the sum of the received changes."""
    return _build_program("sigma", {"sigma": "total"}, [("total", "add", "sigma", "x")], output="sigma", sends="none")


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


def _build_program(
    name: str, states: dict[str, str], steps: list[tuple], output="message", sends="graded", **parameters
) -> NeuronProgram:
    return NeuronProgram(
        name=name,
        states=tuple(StateVariable(state, becomes, bits=STATE_BITS) for state, becomes in states.items()),
        operations=tuple(Operation(result, kind, tuple(given)) for result, kind, *given in steps),
        output=output,
        sends=sends,
        is_fixed=True,
        parameters=parameters,
    )
