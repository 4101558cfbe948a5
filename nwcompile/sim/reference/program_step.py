"""One step of a layer of neuron programs in NumPy. It defines every operation of NeuronProgram."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from nwcompile.ir.arithmetic import interpolate_table, modulo, saturate, shift_to_zero
from nwcompile.ir.neuron_programs.program import NeuronProgram, Operand


def _rounded_once(function: Callable) -> Callable:
    """Compute a function in float64 and round to its operand's type; NumPy's float32 versions are less exact."""
    return lambda x: function(x.astype(np.float64)).astype(x.dtype)


MEANING: dict[str, Callable] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "neg": np.negative,
    "abs": np.abs,
    "sign": np.sign,
    "min": np.minimum,
    "max": np.maximum,
    "shl": np.left_shift,
    "shr": np.right_shift,
    "shr0": shift_to_zero,
    "modulo": modulo,
    "table": interpolate_table,
    "floor": np.floor,
    "trunc": np.trunc,
    "exp": _rounded_once(np.exp),
    "tanh": _rounded_once(np.tanh),
    "sqrt": np.sqrt,
    "lt": np.less,
    "le": np.less_equal,
    "eq": np.equal,
    "ne": np.not_equal,
    "and": np.logical_and,
    "or": np.logical_or,
    "not": np.logical_not,
    "select": np.where,
}


@dataclass(eq=False)
class ProgramState:
    """States of a layer for B samples, `named[state]` [B, *layer], and the parameters in the same number type."""

    program: NeuronProgram
    named: dict[str, np.ndarray]
    parameters: dict[str, np.ndarray]
    rests: np.ndarray  # bool[*layer]: see `stays_at_rest`
    dtype: type

    @classmethod
    def from_program(cls, program: NeuronProgram, shape: tuple[int, ...], dtype: type = np.float32) -> "ProgramState":
        """Build the initial states of shape [B, *layer]; `dtype` is the type of a float program."""
        dtype = np.int64 if program.is_fixed else dtype
        initial: dict[str, np.ndarray] = {s.name: np.asarray(s.initial, dtype) for s in program.states}
        return cls(
            program=program,
            named={name: np.broadcast_to(value, shape).copy() for name, value in initial.items()},
            parameters={name: np.asarray(value, dtype) for name, value in program.parameters.items()},
            rests=stays_at_rest(program, shape[1:]),
            dtype=dtype,
        )

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """Everything that the next step depends on, as writeable arrays."""
        self.named = {name: a if a.flags.writeable else a.copy() for name, a in self.named.items()}
        return self.named

    def step(self, x: np.ndarray) -> np.ndarray:
        """Update from the synaptic sums `x` [B, n_inputs * C, ...]; return the output [B, C, ...] (0 for a readout)."""
        program = self.program
        sums: list[np.ndarray] = np.split(x.astype(self.dtype, copy=False), len(program.inputs), axis=1)
        shape = sums[0].shape
        values = {**dict(zip(program.inputs, sums, strict=True)), **self.named, **self.parameters, **program.tables}

        def read_operand(operand: Operand):
            return values[operand] if isinstance(operand, str) else self.dtype(operand)

        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            for operation in program.operations:
                given = map(read_operand, operation.operands)
                if operation.kind == "number":
                    result = next(given).astype(self.dtype)
                else:
                    result = MEANING[operation.kind](*given)
                values[operation.result] = result
        sent = np.broadcast_to(read_operand(program.output) if program.fires else self.dtype(0), shape)
        self.named = {s.name: self._limit_state(s, read_operand(s.next), shape) for s in program.states}
        return sent

    def _limit_state(self, state, value, shape: tuple[int, ...]) -> np.ndarray:
        """Limit the next value of a state to its bits."""
        if state.bits is not None:
            value = (modulo if state.overflow == "modulo" else saturate)(value, state.bits)
        return np.broadcast_to(value, shape)

    @property
    def is_at_rest(self) -> np.ndarray:
        """Neurons that need no update without events: their states are 0 and stay 0 without input."""
        still = np.ones((1,), bool) & self.rests
        for value in self.named.values():
            still = still & (value == 0)
        return still


def stays_at_rest(program: NeuronProgram, shape: tuple[int, ...]) -> np.ndarray:
    """Whether a neuron with all states 0 keeps them without input and sends nothing, bool[*shape]."""
    dtype = np.int64 if program.is_fixed else np.float32
    nothing = np.zeros((1, *shape), dtype)
    silence = np.concatenate([nothing] * len(program.inputs), 1)
    parameters = {name: np.asarray(value, dtype) for name, value in program.parameters.items()}
    state = ProgramState(program, {s.name: nothing for s in program.states}, parameters, np.zeros(()), dtype)
    still = state.step(silence) == 0
    for value in state.named.values():
        still = still & (value == 0)
    return still[0]
