"""Random neuron programs over the whole closed set of operations, drawn by hypothesis; every one can be verified."""

from hypothesis import strategies as st

from nwcompile.ir.neuron_programs.program import ARITY, STATE_OVERFLOWS, NeuronProgram, Operation, StateVariable
from nwcompile.ir.neuron_programs.ranges import FLOAT_ONLY, TRUTHS, WHOLE_ONLY, ranges

OF_TRUTHS = ("and", "or", "not", "number", "select")  # their first operand is a truth value
OTHER_TRUTHS = ("and", "or")  # and their second one
SHIFTS = ("shl", "shr", "shr0")
NEVER_THE_SAME = ("exp", "tanh")  # every library rounds them in its own way
WHOLE = tuple(sorted(ARITY.keys() - {*FLOAT_ONLY}))
FLOAT = tuple(sorted(ARITY.keys() - {*WHOLE_ONLY, *NEVER_THE_SAME}))
MESSAGE_BITS = 12  # What leaves is made so narrow, that layers in a loop stay within what is proved.
FEW_BITS = 2  # Likewise where as many messages are sent.


@st.composite
def whole_neurons(draw, repeated: bool = False) -> NeuronProgram:
    """Programs of whole numbers, narrow states among them; they send few spikes if `repeated`."""
    states = [
        StateVariable(
            name=f"s{i}",
            next=0,
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
    reach = ranges(program, AssertionError)[program.output]
    return _with_next(draw, program.replace(sends=draw(st.sampled_from(["graded", reach.message]))))


@st.composite
def float_neurons(draw) -> NeuronProgram:
    """Programs of float numbers; their values may become infinite, or no number."""
    numbers = st.sampled_from([0.0, 1, -1, 0.5, 0.9, -3.7, 20.0, 1e-3])
    states = [StateVariable(f"s{i}", 0, draw(st.sampled_from([0, 0, 0.25]))) for i in range(draw(st.integers(0, 3)))]
    parameters = {f"k{i}": draw(numbers) for i in range(draw(st.integers(0, 2)))}
    program = NeuronProgram("drawn", tuple(states), (), "x", "graded", False, parameters)
    program = _with_operations(draw, program, FLOAT, numbers)
    return _with_next(draw, program.replace(output=_drawn_number(draw, program)))


def _with_operations(draw, program: NeuronProgram, kinds: tuple[str, ...], numbers) -> NeuronProgram:
    """With some operations more; what would leave 64 bits is left out."""
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
        operation = Operation(f"t{len(program.operations)}", kind, tuple(given))
        longer = program.replace(operations=(*program.operations, operation))
        if _is_in_range(longer):
            program = longer
    return program


def _is_in_range(program: NeuronProgram) -> bool:
    try:
        ranges(program, ArithmeticError)
    except ArithmeticError:
        return False
    return True


def _drawn_number(draw, program: NeuronProgram, numbers=None):
    """The name of a number that is known, those computed first; now and then one of `numbers`, where given."""
    if numbers is not None and draw(st.integers(0, 3)) == 0:
        return draw(numbers)
    computed = [o.result for o in program.operations if o.kind not in TRUTHS]
    return draw(st.sampled_from([*reversed(computed), "x", *program.parameters, *program.state_names]))


def _with_next(draw, program: NeuronProgram) -> NeuronProgram:
    becomes = {state.name: _drawn_number(draw, program) for state in program.states}
    states = tuple(StateVariable(s.name, becomes[s.name], s.initial, s.bits, s.overflow) for s in program.states)
    return program.replace(states=states)
