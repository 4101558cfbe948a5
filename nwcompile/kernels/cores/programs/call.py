"""Layers of neuron programs inside kernels that run all kinds of neurons: each program's step is called by its address.

So these kernels are compiled once, whatever programs there are, and not for programs at all where there are none.
"""

from typing import NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from nwcompile.kernels.jit import inlined

PROGRAM = np.dtype(
    [
        ("address", np.int64),  # of the C function `c_step`
        (
            "given",
            np.int64,
        ),  # address of int64[parameter, neuron], then int64[entry] of tables; a part of `Programs.given`
        ("state", np.int64),  # address of int64[state, neuron], a part of `Programs.state`
        ("first", np.int64),  # of the layer's neurons
        ("n", np.int64),  # neurons of the layer
        ("n_states", np.int64),
        ("word", np.int64),  # where its states begin in `Programs.state`
    ],
    align=True,
)


class Programs(NamedTuple):
    """The layers of a network whose neurons are programs; without any there is only `layer_of`."""

    layer: np.ndarray  # PROGRAM[layer]
    layer_of: np.ndarray  # int32[neuron]; -1: a neuron that is no program
    given: np.ndarray  # int64[...]: parameters and tables of all these layers
    rests: np.ndarray  # bool[neuron]: without input it stays at 0
    state: np.ndarray  # int64[word]: states of all these layers, one layer after the other
    initial: np.ndarray  # int64[word]: what they are as a sample begins


@intrinsic
def _call(typingctx, address, given, state, n, i, x):
    """Call the C function at an address."""

    def codegen(context, builder, sig, args):
        number = ir.IntType(64)
        pointer = number.as_pointer()
        function = ir.FunctionType(number, [pointer, pointer, number, number, number])
        address, given, state, n, i, x = args
        callee = builder.inttoptr(address, function.as_pointer())
        arrays = (builder.inttoptr(array, pointer) for array in (given, state))
        return builder.call(callee, [*arrays, n, i, x])

    return types.int64(*[types.int64] * 6), codegen


@inlined
def clear_programs(programs):
    """Set all states to what they are as a sample begins."""
    for word in range(programs.state.shape[0]):
        programs.state[word] = programs.initial[word]


@inlined
def step_program(programs, i, x):
    """Update neuron i from the synaptic sum `x`; returns what leaves."""
    layer = programs.layer[programs.layer_of[i]]
    return _call(layer.address, layer.given, layer.state, layer.n, i - layer.first, x)


@inlined
def is_program_at_rest(programs, i):
    """Whether neuron i has nothing to update but events."""
    if not programs.rests[i]:
        return False
    layer = programs.layer[programs.layer_of[i]]
    at = layer.word + i - layer.first
    still = True
    for s in range(layer.n_states):
        still &= programs.state[at + s * layer.n] == 0
    return still


@inlined
def keep_states(programs, i, words):
    """Write the states of neuron i to its places in `words`: int64[word]."""
    layer = programs.layer[programs.layer_of[i]]
    for s in range(layer.n_states):
        at = layer.word + s * layer.n + i - layer.first
        words[at] = programs.state[at]
