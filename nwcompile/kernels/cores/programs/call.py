"""Neuron programs inside kernels for all kinds of neurons: the step of each program is called by its address.

These kernels are therefore compiled once for all programs, and without programs if a network has none.
"""

from typing import NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from nwcompile.kernels.jit import inlined

PROGRAM = np.dtype(
    [
        ("address", np.int64),  # address of the C function `c_step`
        ("given", np.int64),  # address of int64[parameter, neuron], then int64[entry] of tables, in `Programs.given`
        ("state", np.int64),  # address of int64[state and further input, neuron], in `Programs.state`
        ("first", np.int64),  # first neuron of the layer
        ("n", np.int64),  # neurons of the layer
        ("n_states", np.int64),
        ("n_inputs", np.int64),  # synaptic sums per neuron
        ("word", np.int64),  # first word of its states in `Programs.state`
    ],
    align=True,
)


class Programs(NamedTuple):
    """The layers of a network whose neurons are programs; `layer_of` is the only field if there are none."""

    layer: np.ndarray  # PROGRAM[layer]
    layer_of: np.ndarray  # int32[neuron]; -1: not a program
    given: np.ndarray  # int64[...]: parameters and tables of all these layers
    rests: np.ndarray  # bool[neuron]: stays at 0 without input
    state: np.ndarray  # int64[word]: states, then the sums of further inputs, of all these layers, layer by layer
    initial: np.ndarray  # int64[word]: states at the start of a sample


@intrinsic
def _call_address(typingctx, address, given, state, n, i, x):
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
    """Reset all states to their values at the start of a sample."""
    for word in range(programs.state.shape[0]):
        programs.state[word] = programs.initial[word]


@inlined
def take_inputs(programs, i, first, sums, touched):
    """Move the sums of neuron i's inputs, except the first one, to its words; returns whether an event touched any.

    first: the sum of its first input in sums: int64[sum], touched: uint8[sum]; those of input k are n * k further.
    """
    layer, any_touched = programs.layer[programs.layer_of[i]], False
    word = layer.word + (layer.n_states - 1) * layer.n + i - layer.first
    for k in range(1, layer.n_inputs):
        at = first + k * layer.n
        programs.state[word + k * layer.n] = sums[at]
        any_touched |= touched[at] != 0
        sums[at] = 0
        touched[at] = 0
    return any_touched


@inlined
def step_program(programs, i, x):
    """Update neuron i by the sum `x` of its first input and those of `take_inputs`; returns its output."""
    layer = programs.layer[programs.layer_of[i]]
    return _call_address(layer.address, layer.given, layer.state, layer.n, i - layer.first, x)


@inlined
def is_program_at_rest(programs, i):
    """Whether neuron i changes only by events."""
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
    """Copy the states of neuron i to their places in words: int64[word]."""
    layer = programs.layer[programs.layer_of[i]]
    for s in range(layer.n_states):
        at = layer.word + s * layer.n + i - layer.first
        words[at] = programs.state[at]
