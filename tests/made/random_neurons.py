"""Random neuron programs over all operations (hypothesis); every one passes `verify`."""

import numpy as np
from hypothesis import strategies as st

from nwcompile.ir.connection import Dense
from nwcompile.ir.network import Network
from nwcompile.ir.neuron_programs.program import ARITY, STATE_OVERFLOWS, NeuronProgram, Operation, StateVariable
from nwcompile.ir.neuron_programs.ranges import FLOAT_ONLY, TRUTHS, WHOLE_ONLY, find_ranges

OF_TRUTHS = ("and", "or", "not", "number", "select")  # their first operand is a truth value
OTHER_TRUTHS = ("and", "or")  # so is their second one
SHIFTS = ("shl", "shr", "shr0")
NEVER_THE_SAME = ("exp", "tanh")  # libraries round them differently
WHOLE = tuple(sorted(ARITY.keys() - {*FLOAT_ONLY}))
FLOAT = tuple(sorted(ARITY.keys() - {*WHOLE_ONLY, *NEVER_THE_SAME}))
MESSAGE_BITS = 12  # Width of outputs, so that layers in a loop stay within the proved ranges.
ENTRIES = [0, 1, -5, 17, 300, -4096, (1 << 20) + 1, -(1 << 27), (1 << 31) - 1]
BIASES = np.array([-64, 64])  # Connections add less to the input, which may make a wider message of x >> 40.
FEW_BITS = 2  # The same, if each spike is a message.


@st.composite
def whole_neurons(draw, repeated: bool = False) -> NeuronProgram:
    """Draw fixed-point programs, some with narrow states; they send few spikes if `repeated`."""
    states = [
        StateVariable(
            name=f"s{i}",
            next="x",  # may become anything, until `_with_next` says what
            initial=draw(st.sampled_from([0, 0, 1, -3])),
            bits=draw(st.sampled_from([4, 9, 16, 24, 31, 32])),
            overflow=draw(st.sampled_from(STATE_OVERFLOWS)),
        )
        for i in range(draw(st.integers(0, 3)))
    ]
    numbers = st.sampled_from([0, 1, -1, 2, 3, -7, 60, 4095, -(1 << 20), (1 << 31) - 1, 1 << 33])
    parameters = {f"k{i}": draw(numbers) for i in range(draw(st.integers(0, 2)))}
    program = NeuronProgram("drawn", tuple(states), (), "x", "graded", True, parameters)
    program = _with_operations(draw, program, WHOLE, numbers)
    bits = FEW_BITS if repeated else MESSAGE_BITS
    last = [Operation("sent", "modulo", (_drawn_number(draw, program), bits))]
    last += [Operation("spikes", "abs", ("sent",))] if repeated else []
    program = program.replace(operations=(*program.operations, *last), output=last[-1].result)
    reach = find_ranges(program.add_input_bias(BIASES), AssertionError)[program.output]
    return _with_next(draw, program.replace(sends=draw(st.sampled_from(["graded", reach.message]))))


@st.composite
def float_neurons(draw) -> NeuronProgram:
    """Draw float programs; their values may become infinite or NaN."""
    numbers = st.sampled_from([0.0, 1, -1, 0.5, 0.9, -3.7, 20.0, 1e-3])
    states = [StateVariable(f"s{i}", 0, draw(st.sampled_from([0, 0, 0.25]))) for i in range(draw(st.integers(0, 3)))]
    parameters = {f"k{i}": draw(numbers) for i in range(draw(st.integers(0, 2)))}
    program = NeuronProgram("drawn", tuple(states), (), "x", "graded", False, parameters)
    program = _with_operations(draw, program, FLOAT, numbers)
    return _with_next(draw, program.replace(output=_drawn_number(draw, program)))


@st.composite
def curved_neurons(draw) -> NeuronProgram:
    """Draw firing float programs with one to three values that need tables: exp, tanh, roots and divisions."""
    parameters = {"keep": draw(st.sampled_from([0.5, 0.8, 0.95])), "slope": draw(st.sampled_from([0.5, 1.0, -2.0]))}
    if draw(st.booleans()):
        parameters["slope"] = np.linspace(0.5, 1.5, CURVED)  # Then a curve begins after the product with it.
    steps = [("kept", "mul", "v", "keep"), ("v1", "add", "kept", "x")]
    for i in range(draw(st.integers(1, 3))):
        given = draw(st.sampled_from(["v", "a", "x", "v1"]))
        steps += [
            (f"line{i}", "mul", given, "slope"),
            *CURVES[draw(st.sampled_from(sorted(CURVES)))](f"{i}", f"line{i}"),
            (f"part{i}", draw(st.sampled_from(["add", "mul", "max"])), f"v{i + 1}", f"curve{i}"),
            (f"held{i}", "max", f"part{i}", -6.0),
            (f"v{i + 2}", "min", f"held{i}", 6.0),
        ]
    last = steps[-1][0]
    steps += [
        ("threshold", "add", "a", 0.2),
        ("fired", "lt", "threshold", last),
        ("spike", "number", "fired"),
        ("v_next", "select", "fired", 0.0, last),
        ("a_kept", "mul", "a", 0.9),
        ("a_next", "add", "a_kept", "spike"),
    ]
    return NeuronProgram(
        name="curved",
        states=(StateVariable("v", "v_next"), StateVariable("a", "a_next")),
        operations=tuple(Operation(result, kind, tuple(operands)) for result, kind, *operands in steps),
        output="spike",
        sends="binary",
        parameters=parameters,
    )


def _exponential(i: str, of: str) -> list[tuple]:
    return [(f"low{i}", "min", of, 1.0), (f"curve{i}", "exp", f"low{i}")]


def _logistic(i: str, of: str) -> list[tuple]:
    steps = [(f"back{i}", "neg", of), (f"exp{i}", "exp", f"back{i}"), (f"whole{i}", "add", 1.0, f"exp{i}")]
    return [*steps, (f"curve{i}", "div", 1.0, f"whole{i}")]


def _root(i: str, of: str) -> list[tuple]:
    return [(f"size{i}", "abs", of), (f"more{i}", "add", f"size{i}", 0.1), (f"curve{i}", "sqrt", f"more{i}")]


def _quotient(i: str, of: str) -> list[tuple]:
    return [(f"size{i}", "abs", of), (f"more{i}", "add", f"size{i}", 0.5), (f"curve{i}", "div", "v1", f"more{i}")]


CURVED = 5  # Neurons of a layer of `curved_neurons`.
CURVES = {
    "exp": _exponential,
    "logistic": _logistic,
    "tanh": lambda i, of: [(f"curve{i}", "tanh", of)],
    "root": _root,
    "quotient": _quotient,
}


def curved_network(program: NeuronProgram) -> Network:
    """A layer of such neurons with connections from an input and from each other."""
    rng = np.random.default_rng(0)
    edges = [Dense("in", "h", rng.normal(0.2, 0.6, (CURVED, 6))), Dense("h", "h", rng.normal(0, 0.2, (CURVED, CURVED)))]
    return Network.from_arrays({"h": (program, CURVED)}, edges, {"in": 6})


def curved_input(n_samples: int = 2, n_steps: int = 12) -> np.ndarray:
    return (np.random.default_rng(1).random((n_samples, n_steps, 6)) < 0.4).astype(np.int8)


def _with_operations(draw, program: NeuronProgram, kinds: tuple[str, ...], numbers) -> NeuronProgram:
    """Append some operations, without those that would overflow 64 bits."""
    for kind in draw(st.lists(st.sampled_from(kinds), min_size=4, max_size=16)):
        truths = [o.result for o in program.operations if o.kind in TRUTHS]
        if kind in OF_TRUTHS and not truths:
            kind = "lt"
        given = [_drawn_number(draw, program, numbers) for _ in range(ARITY[kind])]
        if kind in OF_TRUTHS:
            given[0] = draw(st.sampled_from(truths))
        if kind in OTHER_TRUTHS:
            given[1] = draw(st.sampled_from(truths))
        if kind in SHIFTS:
            given[1] = draw(st.sampled_from([0, 1, 5, 12, 31, 40]))
        if kind == "modulo":
            given[1] = draw(st.sampled_from([2, 7, 31, 32, 40]))
        if kind == "table":
            longer = _with_table(draw, program, given[1])
        else:
            operation = Operation(f"t{len(program.operations)}", kind, tuple(given))
            longer = program.replace(operations=(*program.operations, operation))
        if _is_in_range(longer):
            program = longer
    return program


def _with_table(draw, program: NeuronProgram, at) -> NeuronProgram:
    """Append the read of a table at a clamped number."""
    bits, size = draw(st.sampled_from([0, 1, 5, 12])), draw(st.integers(2, 6))
    entries = np.array(draw(st.lists(st.sampled_from(ENTRIES), min_size=size, max_size=size)), np.int64)
    name, first = f"table{len(program.tables)}", len(program.operations)
    end = (size - 1 << bits) - 1
    steps = [("min", (at, end)), ("max", (f"t{first}", 0)), ("table", (name, f"t{first + 1}", bits))]
    added = (Operation(f"t{first + i}", kind, given) for i, (kind, given) in enumerate(steps))
    return program.replace(operations=(*program.operations, *added), tables={**program.tables, name: entries})


def _is_in_range(program: NeuronProgram) -> bool:
    try:
        find_ranges(program, ArithmeticError)
    except ArithmeticError:
        return False
    return True


def _drawn_number(draw, program: NeuronProgram, numbers=None):
    """Draw the name of a known number, computed ones first; sometimes one of `numbers`, if given."""
    if numbers is not None and draw(st.integers(0, 3)) == 0:
        return draw(numbers)
    computed = [o.result for o in program.operations if o.kind not in TRUTHS]
    return draw(st.sampled_from([*reversed(computed), "x", *program.parameters, *program.state_names]))


def _with_next(draw, program: NeuronProgram) -> NeuronProgram:
    becomes = {state.name: _drawn_number(draw, program) for state in program.states}
    states = tuple(StateVariable(s.name, becomes[s.name], s.initial, s.bits, s.overflow) for s in program.states)
    return program.replace(states=states)
