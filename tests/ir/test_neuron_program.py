"""NeuronProgram: what it refuses, what it shows, what it is saved as, and how far its values reach."""

import json

import numpy as np
import pytest

import nwcompile as nw
from nwcompile.errors import ModelError
from nwcompile.ir.neuron_programs.program import ARITY, NeuronProgram, Operation, StateVariable
from nwcompile.ir.neuron_programs.ranges import RULES, find_ranges
from nwcompile.sim.reference.program_step import MEANING, ProgramState
from tests.made.neuron_programs import adaptive, cuba, integrator


def program(*steps, state=None, output="y", sends="graded", is_fixed=True, **parameters) -> NeuronProgram:
    """A program of `(result, kind, *operands)`, with one state `v` of 24 bits unless another is given."""
    return NeuronProgram(
        name="p",
        states=state
        if isinstance(state, tuple)
        else (state or StateVariable("v", "v", bits=24 if is_fixed else None),),
        operations=tuple(Operation(result, kind, tuple(given)) for result, kind, *given in steps),
        output=output,
        sends=sends,
        is_fixed=is_fixed,
        parameters=parameters,
    )


ADD = ("y", "add", "v", 1)
ANY = StateVariable("v", "x", bits=24)  # It holds the input of the step before.
REFUSED = [
    (program(("y", "pow", "v", 2)), "unknown operation of 'y' 'pow'"),
    (program(("y", "div", "v", 2)), "'div' of 'y' is not an operation of whole numbers"),
    (program(("y", "shl", "v", 2), is_fixed=False), "'shl' of 'y' is not an operation of float numbers"),
    (program(("y", "add", "v")), "'add' of 'y' takes 2 operands, not 1"),
    (program(("y", "add", "v", "z")), "'y' uses 'z', which nothing computed before"),
    (program(("y", "add", "v", "y")), "'y' uses 'y', which nothing computed before"),
    (program(("y", "add", "v", 0.5)), "'y' uses 0.5, and a fixed-point program needs whole numbers"),
    (program(("y", "mul", "x", 0), ("z", "mul", "y", 1 << 63), output="z"), "which is beyond 64 bits; make it smaller"),
    (program(("y", "add", "v", float("nan")), is_fixed=False), "which is not a finite number"),
    (program(("y", "add", "v", 10**400), is_fixed=False), "which is not a finite number"),
    (program(("x", "add", "v", 1)), "'x' names two values; give each its own name"),
    (program(("v 2", "add", "v", 1)), "'v 2' is not a name that a value can have"),
    (program(("import", "add", "v", 1)), "'import' is not a name that a value can have"),
    (program(ADD, output="z"), "uses 'z', which nothing computed before"),
    (program(ADD, output=3), "the output is always 3; it must be computed"),
    (program(ADD, sends="spikes"), "unknown sends 'spikes'"),
    (program(ADD, is_fixed=1 << 40), f"is_fixed={1 << 40} must be True or False"),
    (
        program(ADD, state=ANY, sends="binary"),
        "sends='binary', but its output may be -8388606..8388608; that is 'graded'",
    ),
    (program(("y", "lt", "v", 1), sends="binary"), "the output is a truth value; make it a number"),
    (program(("y", "and", "v", "v")), "v is a number, and 'and' takes a truth value"),
    (program(("t", "lt", "v", 1), ("y", "add", "t", 1)), "t is a truth value, and 'add' takes a number"),
    (
        program(("a", "mul", "v", "v"), ("b", "mul", "a", "a"), ("y", "sign", "b"), state=ANY),
        "beyond 64 bits; clamp or shift",
    ),
    (program(("y", "shl", "v", "v"), state=ANY), "it shifts by -8388607..8388607; shift by 0..62"),
    (program(("y", "modulo", "v", "v")), "give one number of bits, 2..62"),
    (program(("y", "shl", "x", 6)), "a message holds at most 2147483647; clamp it"),
    (program(ADD, state=StateVariable("v", "v")), "bits=None of state 'v' must be a whole number 2..32"),
    (program(ADD, state=StateVariable("v", "v", bits=40)), "bits=40 of state 'v' must be a whole number 2..32"),
    (program(ADD, state=StateVariable("v", "v", bits=24), is_fixed=False), "which only states of fixed-point programs"),
    (program(ADD, state=StateVariable("v", "v", bits=9, overflow="clip")), "unknown overflow of 'v' 'clip'"),
    (
        program(ADD, state=StateVariable("v", "v", initial=[0, 0, 256], bits=9)),
        "state 'v' begins at 256, and its 9 bits hold -255..255",
    ),
    (program(ADD, k=[1, 2]), "k of shape (2,) does not broadcast to the layer's shape (3,)"),
    (program(ADD, is_fixed=False, k=[0.0, 0.0, -1e300]), "k 1e+300 is beyond float32; choose smaller units"),
    (program(ADD, k=0.5), "k must be whole numbers of at most 1099511627776 in a fixed-point program"),
    (program(ADD, k=float("inf")), "k has NaN or infinite values; give finite numbers"),
    (program(ADD, sends="none"), "sends 'none' reads a state, and 'y' is none of v"),
    (program(ADD, sends="none", output="v").replace(name="\n"), "its name must be a text of printable characters"),
    (program(ADD, is_fixed=False).replace(inputs=("x", "v")), "'v' names two values; give each its own name"),
]


def test_a_state_that_is_0_or_1_is_proved_to_be():
    """Two resets by factors of 0 or 1: 24 bits each would take the products beyond 64."""
    steps = (("kept", "sub", 256, "s"), ("held", "sub", 256, "r"), ("a", "mul", "v", "kept"), ("b", "mul", "a", "held"),
             ("c", "add", "b", "x"), ("fired", "lt", 1000, "c"), ("y", "number", "fired"))  # fmt: skip
    states = {
        name: StateVariable(name, following, bits=24) for name, following in {"v": "x", "s": "y", "r": "s"}.items()
    }
    program(*steps, state=tuple(states.values()), sends="binary").verify("a", (3,))
    with pytest.raises(ModelError, match="beyond 64 bits"):
        program(*steps, state=(states["v"], StateVariable("s", "x", bits=24), states["r"])).verify("a", (3,))


@pytest.mark.parametrize(("given", "text"), REFUSED, ids=[text[:40] for _, text in REFUSED])
def test_program_is_refused_with_a_sentence(given, text):
    with pytest.raises(ModelError) as e:
        given.verify("hidden", (3,))
    assert str(e.value).startswith("layer 'hidden': program ") and text in str(e.value)


def test_every_kind_of_operation_has_a_range_and_a_meaning():
    assert set(ARITY) == set(RULES) == {*MEANING, "number"}


def test_program_shows_its_operations():
    shown = repr(integrator.program())
    assert shown.splitlines() == [
        "NeuronProgram integrator (whole numbers): states v (20 bits); sends none: v",
        "  t1 = v + x",
        "  v becomes t1",
    ]
    assert len(repr(adaptive.program()).splitlines()) == 10


def test_canonical_survives_json_and_keeps_the_hash():
    before = adaptive.program(base=np.arange(3000, 3004))
    values = {
        name: value if isinstance(value, np.ndarray) else json.loads(json.dumps(value))
        for name, value in before.canonical_fields()
    }
    after = NeuronProgram.from_canonical(values)
    hashes = {
        nw.Network.from_arrays({"h": (p, 4)}, [nw.Dense("in", "h", np.ones((4, 2), int))], {"in": 2}).hash
        for p in (before, after)
    }
    assert after.structure == before.structure and len(hashes) == 1
    other = adaptive.program(base=np.arange(3001, 3005))
    assert other.structure == before.structure  # one kernel serves both


@pytest.mark.parametrize("kind", ["shr", "shr0", "mul", "add", "sub", "min", "max", "abs", "sign", "neg", "modulo"])
def test_ranges_hold_all_values_and_reach_their_ends(kind):
    operands = {"modulo": ("k", 4), "shr": ("k", "s"), "shr0": ("k", "s")}.get(kind, ("k", "m")[: ARITY[kind]])
    k, s, m = np.arange(-9, 14), np.arange(0, 3), np.arange(-5, 3)
    traced = program(("y", kind, *operands), k=k, s=s, m=m)
    reach = find_ranges(traced, ModelError)["y"]
    of = {"k": k, "s": s, "m": m}
    grid = np.meshgrid(*(of.get(o, np.array([o])) for o in operands))
    values = MEANING[kind](*grid)
    assert reach.low <= values.min() and values.max() <= reach.high
    if kind != "modulo":
        assert (reach.low, reach.high) == (values.min(), values.max())


def test_input_bias_is_added_before_anything_else():
    plain = cuba(6400, 4096, 300)
    biased = plain.add_input_bias(np.array([1, -2, 3]))
    biased.verify("h", (3,))
    assert str(biased.operations[0]) == "biased_x = x + input_bias"
    assert [o for o in biased.operations[1:] if "x" in o.operands] == []


@pytest.mark.parametrize("inputs", [(), "xy", ("x", 2), len])
def test_inputs_that_are_no_names_are_refused(inputs):
    with pytest.raises(ModelError, match="neuron program 'p': inputs=.* must be a tuple of names, one at least"):
        program(ADD, is_fixed=False).replace(inputs=inputs)


def test_several_inputs_are_saved_and_one_changes_no_hash():
    gated = program(("y", "mul", "x", "gate"), is_fixed=False).replace(inputs=("x", "gate"))
    values = dict(gated.canonical_fields())
    assert values["inputs"] == ["x", "gate"] and NeuronProgram.from_canonical(values).inputs == ("x", "gate")
    assert gated.structure[2] == (("mul", "x", "x1"),) and gated.structure[-1] == 2
    assert "inputs" not in dict(adaptive.program().canonical_fields())


def test_some_neurons_keep_their_numbers():
    some = adaptive.program(base=np.arange(6).reshape(2, 3)).select_neurons(np.array([1, 5]), (2, 3))
    assert some.parameters["base"].tolist() == [1, 5] and some.parameters["jump"] == 600


def reading(entries, at=("min", "x", 15), bits=2) -> NeuronProgram:
    """A program that reads a table at its input, which is first clamped above."""
    operations = (
        Operation("below", *at[:1], at[1:]),
        Operation("at", "max", ("below", 0)),
        Operation("read", "table", ("curve", "at", bits)),
    )
    return NeuronProgram("reading", (), operations, "read", "graded", True, tables={"curve": entries})


def test_a_table_is_a_line_between_its_entries_rounded_to_the_nearest_number():
    program = reading([0, 10, 4, 4, -7])
    program.verify("h", (1,))
    sent = [int(ProgramState.from_program(program, (1, 1)).step(np.array([[x]]))[0, 0]) for x in range(-1, 17)]
    exact = [0, 0, 2.5, 5, 7.5, 10, 8.5, 7, 5.5, 4, 4, 4, 4, 4, 1.25, -1.5, -4.25, -4.25]
    assert sent == [int(np.floor(x + 0.5)) for x in exact]
    assert program.n_operations == 2 + 11 and program.n_entries == 5
    assert "read = curve[at >> 2]" in repr(program) and "curve: table of 5 entries" in repr(program)


def test_the_range_of_a_table_is_that_of_the_entries_that_are_read():
    reach = find_ranges(reading([-100, 10, 4, 9, 50], at=("min", "x", 7)), AssertionError)
    assert (reach["read"].low, reach["read"].high) == (-100, 10)


@pytest.mark.parametrize(
    ("entries", "at", "bits", "text"),
    [
        ([1, 2, 3], ("min", "x", 8), 2, "a table of 3 entries is read at 0..8; clamp its index to 0..7"),
        ([1, 2, 3], ("add", "x", 0), 2, "clamp its index to 0..7"),
        ([1, 2], ("min", "x", 3), 31, "its entries lie 2**(31..31) apart; give one number of bits, 0..30"),
        ([1], ("min", "x", 3), 2, "table 'curve' must be at least two whole numbers, one after the other"),
        ([0.5, 1.0], ("min", "x", 3), 2, "table 'curve' must be at least two whole numbers, one after the other"),
        ([0, 1 << 31], ("min", "x", 3), 2, "table 'curve' has an entry beyond 2147483647, the largest that there can"),
    ],
)
def test_tables_that_cannot_be_read_are_refused(entries, at, bits, text):
    with pytest.raises(ModelError) as e:
        reading(entries, at, bits).verify("h", (1,))
    assert "layer 'h': program 'reading': " in str(e.value) and text in str(e.value)


def test_a_table_that_is_not_there_is_refused():
    with pytest.raises(ModelError, match="'read' reads the table 'curve', and there is none of that name"):
        reading([1, 2, 3]).replace(tables={}).verify("h", (1,))


def test_programs_that_differ_in_entries_share_a_kernel_and_are_saved_with_them():
    first, second = reading([0, 10, 4, 4, -7]), reading([5, 5, 5, 5, 6])
    assert first.structure == second.structure != reading([0, 1, 2]).structure
    again = NeuronProgram.from_canonical(dict(first.canonical_fields()))
    assert again.canonical_fields()[:-1] == first.canonical_fields()[:-1]
    assert np.array_equal(again.table_entries, first.table_entries)
    without = first.replace(tables={}, operations=first.operations[:2], output="at")
    assert "tables" not in dict(without.canonical_fields())
