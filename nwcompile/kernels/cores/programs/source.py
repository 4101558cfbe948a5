"""A neuron program's operations written as a module of Numba kernels: a step, its scan over time, a C function.

The text is made from plain numbers and from names of its own (`v0`, `s1`, `p2`), never from a user's words.
"""

from nwcompile.ir.neuron_programs.program import WRITTEN

HEAD = '''"""A neuron program: written by nwcompile.kernels.cores.programs.source, compiled for whoever runs it."""

from nwcompile.kernels.jit import inlined, kernel
from nwcompile.kernels.cores.programs.operations import (
    C_STEP,
    AsCFunction,
    carray,
    modulo,
    number,
    saturate,
    shr0,
    sign,
)


@inlined
def step(given, state, i, x):
{step}


@kernel
def scan(given, initial, rests, drive, touched, spikes, kept, updates, state):
    n_samples, n_steps, n = drive.shape
    keep = kept.shape[0] > 0
    for b in range(n_samples):
        for i in range(n):
            for s in range({n_states}):
                state[s, i] = initial[s, i]
        for t in range(n_steps):
            for i in range(n):
                if touched[b, t, i] or not ({still}):
                    updates[t, i] += 1
                spikes[b, t, i] = step(given, state, i, drive[b, t, i])
                if keep:
                    for s in range({n_states}):
                        kept[b, t, s, i] = state[s, i]


def by_pointers(given, state, n, i, x):
    return step(carray(given, ({n_given}, n)), carray(state, ({n_states}, n)), i, x)


c_step = AsCFunction(C_STEP, by_pointers)
'''


def source_of(structure: tuple) -> str:
    """The module of a program (`NeuronProgram.structure`).

    `step(given, state, i, x)` updates neuron i: given int64[parameter, neuron], state int64[state, neuron]; it returns
    what leaves. `scan` is the same for whole sequences, its arrays those of `cores.neuron.scan` but for rests
    bool[neuron] (no update without an event while all states are 0), and kept int64[sample, step, state, neuron], of 0
    samples where not wanted. `c_step` is `step` by pointers.
    """
    n_parameters, operations, states, output = structure
    lines = [f"p{i} = given[{i}, i]" for i in range(n_parameters)]
    lines += [f"s{i} = state[{i}, i]" for i in range(len(states))]
    lines += [f"v{i} = {WRITTEN[kind].format(*map(_operand, given))}" for i, (kind, *given) in enumerate(operations)]
    for i, (becomes, bits, overflow) in enumerate(states):
        lines.append(f"state[{i}, i] = {overflow}({_operand(becomes)}, {bits})")
    lines.append(f"return {_operand(output)}")
    still = ["rests[i]", *(f"state[{i}, i] == 0" for i in range(len(states)))]
    return HEAD.format(
        step="\n".join(f"    {line}" for line in lines),
        still=" and ".join(still),
        n_given=n_parameters,
        n_states=len(states),
    )


def _operand(operand: str | int) -> str:
    return operand if isinstance(operand, str) else f"({int(operand)})"
