"""Fixed-point neurons with several synaptic inputs, shared by tests so that their kernels are compiled once."""

from hypothesis import strategies as st

from nwcompile.ir.neuron_programs.program import NeuronProgram, Operation, StateVariable
from tests.made.random_programs import specs

ROOM = 255  # Limit of a gate that is multiplied.


def build(name: str, inputs: tuple[str, ...], steps: list[tuple], bits: int, sends: str, **parameters) -> NeuronProgram:
    """Build a program with the state `v`, which becomes `v2`, and the output `y`."""
    operations = tuple(Operation(result, kind, tuple(given)) for result, kind, *given in steps)
    return NeuronProgram(
        name, (StateVariable("v", "v2", bits=bits),), operations, "y", sends, True, parameters, inputs=inputs
    )


def switched(threshold=5) -> NeuronProgram:
    """Build a membrane that is cleared unless the sum of its second input, the gate, is positive."""
    steps = [("opens", "lt", 0, "gate"), ("kept", "select", "opens", "v", 0), ("total", "add", "kept", "x"),
             ("fired", "lt", "threshold", "total"), ("v2", "select", "fired", 0, "total"),
             ("y", "number", "fired")]  # fmt: skip
    return build("switched", ("x", "gate"), steps, 24, "binary", threshold=threshold)


def multiplied() -> NeuronProgram:
    """Build a membrane multiplied by its second input, minus its third one; it sends numbers and never rests."""
    steps = [("low", "max", "scale", -ROOM), ("factor", "min", "low", ROOM), ("large", "mul", "v", "factor"),
             ("small", "shr0", "large", 4), ("sum", "add", "small", "x"), ("v2", "sub", "sum", "inhibition"),
             ("y", "modulo", "v2", 3)]  # fmt: skip
    return build("multiplied", ("x", "scale", "inhibition"), steps, 14, "graded")


def gated_neurons(repeated: bool = False):
    """Draw one of these neurons, or a built-in one for layers next to them."""
    return st.one_of(st.just(switched()), st.just(multiplied()), specs(repeated))
