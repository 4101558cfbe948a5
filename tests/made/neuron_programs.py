"""Neuron programs shared by tests, so that their kernels are compiled once."""

import numpy as np
import torch

import nwcompile as nw
from nwcompile.ir.neuron_programs.program import NeuronProgram, Operation, StateVariable


@nw.neuron(bits={"v": 24, "a": 16})
def adaptive(state, x, base=3840, jump=600):
    """A leaky membrane whose threshold rises with every spike and then decays."""
    v = torch.div(state.v * (4096 - 300), 4096, rounding_mode="trunc") + (x << 6)
    fired = v > base + state.a
    a = torch.div(state.a * (4096 - 100), 4096, rounding_mode="trunc")
    return {"v": torch.where(fired, 0, v), "a": a + jump * fired}, fired


@nw.neuron(bits=20, overflow="modulo")
def integrator(state, x):
    """A readout that sums all input and wraps on overflow."""
    return {"v": state.v + x}, None


def cuba(threshold: int, decay_u: int, decay_v: int) -> NeuronProgram:
    """Build the CUBA-LIF of NeuronSpec as a program, with saturating states of 24 bits and a reset to zero."""
    top = (1 << 23) - 1
    steps = [
        ("u_kept", "mul", "u", "keep_u"),
        ("u_leaked", "shr0", "u_kept", 12),
        ("drive", "shl", "x", 6),
        ("u_driven", "add", "u_leaked", "drive"),
        ("u_low", "min", "u_driven", top),
        ("u_next", "max", "u_low", -top),
        ("v_kept", "mul", "v", "keep_v"),
        ("v_leaked", "shr0", "v_kept", 12),
        ("v_driven", "add", "v_leaked", "u_next"),
        ("v_low", "min", "v_driven", top),
        ("v_full", "max", "v_low", -top),
        ("fired", "lt", "threshold", "v_full"),
        ("spike", "number", "fired"),
        ("v_next", "select", "fired", 0, "v_full"),
    ]
    return NeuronProgram(
        name="cuba",
        states=(StateVariable("u", "u_next", bits=24), StateVariable("v", "v_next", bits=24)),
        operations=tuple(Operation(result, kind, tuple(given)) for result, kind, *given in steps),
        output="spike",
        sends="binary",
        is_fixed=True,
        parameters={"keep_u": 4096 - decay_u, "keep_v": 4096 - decay_v, "threshold": threshold},
    )


def every_operation() -> NeuronProgram:
    """Build a program with every integer operation, most of them applied to both signs."""
    steps = [
        ("a", "sub", "v", "x"),
        ("b", "abs", "a"),
        ("c", "neg", "b"),
        ("d", "sign", "a"),
        ("e", "min", "c", "k"),
        ("f", "max", "a", "e"),
        ("g", "mul", "f", "d"),
        ("h", "shr", "a", 2),
        ("i", "shr0", "a", 2),
        ("j", "sub", "h", "i"),
        ("l", "modulo", "g", 7),
        ("m", "shl", "j", 3),
        ("n", "add", "l", "m"),
        ("lt", "lt", "n", "w"),
        ("le", "le", "l", "k"),
        ("eq", "eq", "d", 1),
        ("ne", "ne", "j", 0),
        ("both", "and", "lt", "le"),
        ("any", "or", "both", "eq"),
        ("no", "not", "ne"),
        ("chosen", "select", "any", "n", "l"),
        ("at", "modulo", "n", 6),
        ("at0", "add", "at", 32),
        ("curve", "table", "t", "at0", 4),
        ("bent", "add", "chosen", "curve"),
        ("v2", "add", "bent", "x"),
        ("w1", "number", "no"),
        ("w2", "add", "w", "w1"),
        ("w3", "mul", "w2", 3),
    ]
    states = (StateVariable("v", "v2", 5, 16), StateVariable("w", "w3", -1, 6, "modulo"))
    operations = tuple(Operation(result, kind, tuple(given)) for result, kind, *given in steps)
    numbers = {"parameters": {"k": np.arange(-5, 5)}, "tables": {"t": np.array([-9, 4, 5, -30, 61])}}
    return NeuronProgram("every", states, operations, "l", "graded", True, **numbers)
