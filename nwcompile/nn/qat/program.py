"""A layer of neuron programs whose weights and parameters are rounded in every pass as the compiler rounds them.

Over time, its integers are a differentiable operation; the forward pass equals the simulators.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from math import prod

import numpy as np
import torch

from nwcompile.errors import ModelError
from nwcompile.ir.chip import Chip
from nwcompile.ir.network import Network
from nwcompile.ir.neuron_programs.program import NeuronProgram
from nwcompile.kernels.cores.programs.build import build_gradient_module
from nwcompile.kernels.cores.programs.gradient import n_comparisons
from nwcompile.nn.ops.threads import run_on_threads, split_ranges
from nwcompile.nn.qat.connected import ConnectedLayer, copy_array, make_parameter
from nwcompile.nn.qat.layer import read_gradient
from nwcompile.nn.qat.sums import IntegerWeights
from nwcompile.passes.quantize.program_curves import use_inverses
from nwcompile.passes.quantize.program_scale import FixedLayer, Format, quantize_at_format

NOTHING = np.zeros((0, 0, 0), np.float32)
NO_STATES = np.zeros((0, 0, 0, 0), np.int64)
NO_DISTANCES = np.zeros((0, 0, 0, 0), np.float32)


@dataclass(frozen=True, eq=False)
class ProgramNeurons:
    """The current neurons of one layer of programs, as kernels take them.

    `given`: int64[parameter, N]; its `rows` are trained. `initial`: int64[state, N]. `surrogate` and `detach_reset` are
    as in `IntegerNeurons`. A readout returns its state `read`, divided by `scale`.
    """

    name: str
    program: NeuronProgram
    units: tuple[float, ...]
    given: np.ndarray
    initial: np.ndarray
    rows: tuple[int, ...]
    surrogate: Callable
    detach_reset: bool
    read: int | None
    scale: float

    @classmethod
    def from_fixed_layer(
        cls, fixed: FixedLayer, rows: tuple[int, ...], surrogate: Callable, detach_reset: bool
    ) -> "ProgramNeurons":
        """Build from a layer in whole numbers."""
        node, program = fixed.node, fixed.whole.program
        given, initial = (
            np.array([program.array(name, node.shape).reshape(-1) for name in names], np.int64)
            for names in (program.parameters, program.state_names)
        )
        return cls(
            name=node.name,
            program=program,
            units=fixed.whole.compared_units(fixed.measured.per_unit),
            given=given.reshape(-1, node.n_neurons),
            initial=initial.reshape(-1, node.n_neurons),
            rows=rows,
            surrogate=surrogate,
            detach_reset=detach_reset,
            read=None if program.fires else program.state_names.index(program.readout),
            scale=fixed.scale,
        )

    @property
    def table_entries(self) -> np.ndarray:
        """The entries of the program's tables, int64[entry]."""
        return self.program.table_entries

    @property
    def kernel_module(self):
        """The compiled module of the program with its gradient."""
        return build_gradient_module(self.program.structure, self.units, self.read, self.detach_reset)


class _Steps(torch.autograd.Function):
    @staticmethod
    def forward(ctx, drive, state, learned, neurons, recorded):
        n_samples, n_steps, n = shape = tuple(drive.shape)
        n_states, needs_grad = len(neurons.initial), any(ctx.needs_input_grad)
        start = np.empty((n_samples, n_states, n), np.int64)
        start[:] = neurons.initial if state is None else state.detach().numpy()
        states, given = start.copy(), np.ascontiguousarray(drive.detach().numpy(), np.int64)
        sent = np.empty(shape, np.float32)
        keeps = needs_grad or recorded is not None or neurons.read is not None
        kept = np.empty((n_samples, n_steps, n_states, n), np.int64) if keeps else NO_STATES
        n_compared = n_comparisons(neurons.program.structure) if needs_grad else 0
        distance = np.empty((n_samples, n_compared, n_steps, n), np.float32) if n_compared else NO_DISTANCES
        kernels, rows = neurons.kernel_module, split_ranges(n_samples, prod(shape))

        def run_samples(k: int) -> None:
            parts = (array[slice(*rows[k])] for array in (states, given, sent, kept, distance))
            kernels.forward(neurons.given, neurons.table_entries, *parts)

        run_on_threads(run_samples, len(rows))
        if recorded is not None:
            recorded |= {name: kept[:, :, i] for i, name in enumerate(neurons.program.state_names)}
        shown = None
        if neurons.read is not None:
            shown = torch.from_numpy((kept[:, :, neurons.read] / neurons.scale).astype(np.float32))
        ctx.trace, ctx.neurons, ctx.dtype = (start, given, kept, distance), neurons, drive.dtype
        ctx.set_materialize_grads(False)
        return torch.from_numpy(sent), shown, torch.from_numpy(states.astype(np.float64))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, of_sent, of_shown, of_last):
        neurons = ctx.neurons
        start, drive, kept, distance = ctx.trace
        shape = drive.shape
        slope = np.ascontiguousarray(neurons.surrogate(torch.from_numpy(distance)).numpy(), np.float32)
        of_sent = np.zeros(shape, np.float32) if of_sent is None else read_gradient(of_sent, neurons.name)
        if neurons.read is None:
            of_read = NOTHING
        else:
            of_read = np.zeros(shape, np.float32) if of_shown is None else read_gradient(of_shown, neurons.name)
            of_read = of_read / np.float32(neurons.scale)
        of_state = np.zeros(start.shape) if of_last is None else np.array(of_last.numpy(), np.float64)
        of_drive = np.empty(shape, np.float32)
        rows = split_ranges(shape[0], prod(shape))
        of_given = np.zeros((len(rows), *neurons.given.shape))
        kernels = neurons.kernel_module
        arrays = start, drive, kept, slope, of_sent, of_read, of_state, of_drive

        def run_samples(k: int) -> None:
            parts = (array[slice(*rows[k])] for array in arrays)
            kernels.backward(neurons.given, neurons.table_entries, *parts, of_given[k])

        run_on_threads(run_samples, len(rows))
        learned = torch.from_numpy(of_given.sum(0)[list(neurons.rows)]) if ctx.needs_input_grad[2] else None
        state = torch.from_numpy(of_state) if ctx.needs_input_grad[1] else None
        return torch.from_numpy(of_drive).to(ctx.dtype), state, learned, None, None


@dataclass(frozen=True, eq=False)
class IntegerProgram:
    """The current integers of a layer of programs.

    `learned`: float64[row, N], the trained parameters in units of the integers.
    """

    fixed: FixedLayer
    weights: tuple[IntegerWeights, ...]
    neurons: ProgramNeurons
    learned: torch.Tensor

    @property
    def neuron(self) -> NeuronProgram:
        """The neurons on the chip."""
        return self.fixed.whole.program

    def run(self, drive: torch.Tensor, state: torch.Tensor | None, recorded: dict | None) -> tuple:
        """Return the output float32[B, T, N], the state read or None, and the last state.

        The state read is float32[B, T, N], the last state float64[B, state, N]. `drive`: whole numbers [B, T, N],
        float32 or float64. `state`: last state of the previous call, None at first. `recorded`: receives every state,
        int64[B, T, N].
        """
        return _Steps.apply(drive, state, self.learned, self.neurons, recorded)


class QuantizedProgram(ConnectedLayer):
    """One layer of neuron programs, with the fraction bits that the compiler has chosen.

    `learned`: the trained parameters of the program by name, in the float program's units. `pinned` is a `Format`.
    """

    def __init__(
        self,
        network: Network,
        name: str,
        chip: Chip,
        trains: tuple[bool, ...],
        learned: tuple[str, ...],
        surrogate: Callable,
        detach_reset: bool,
    ):
        if (n_inputs := network.node(name).n_inputs) > 1:
            raise ModelError(
                f"layer {name!r}: its neurons have {n_inputs} inputs, and quantization-aware training takes one; train "
                "the network in float and compile it"
            )
        super().__init__(network, name, chip, trains)
        self.surrogate, self.detach_reset = surrogate, detach_reset
        program = self.node.neuron
        assert isinstance(program, NeuronProgram)
        self.program = program
        self.learned = torch.nn.ParameterDict(
            {key: make_parameter(program.parameters[key], True) for key in learned if key in program.parameters}
        )

    def pin_choices(self, pinned: Format) -> None:
        """Use these choices from now on."""
        self.pinned = pinned
        self.slopes = tuple(torch.as_tensor(pinned.unit, dtype=torch.float64) for _ in self.connections)

    def pin_state(self) -> dict:
        return asdict(self.pinned)

    def pin_from_state(self, state: dict) -> Format:
        return Format(**state)

    def float_neuron(self) -> NeuronProgram:
        """Return the program with the trained parameters."""
        trained = {key: copy_array(value) for key, value in self.learned.items()}
        return self.program.replace(parameters={**self.program.parameters, **trained})

    def compute_integers(self) -> IntegerProgram:
        """Round the current parameters. Raises ModelError if they are not finite, BackendError on a GPU."""
        self.verify_parameters()
        program, bias, name = self.float_neuron(), self.sum_biases(), None
        if bias is not None:
            program = use_inverses(program, tuple(self.learned))  # the same names as when the tables were chosen
            program = program.add_input_bias(bias.detach().numpy().reshape(self.node.shape))
            (name,) = program.parameters.keys() - self.program.parameters.keys()
        edges = [c.replace(weight=copy_array(w)) for c, w in zip(self.connections, self.weights, strict=True)]
        node = replace(self.node, neuron=program)
        try:
            fixed = quantize_at_format(node, edges, self.chip, self.pinned, tuple(self.learned))
        except ModelError as e:
            raise e.starting(f"layer {node.name!r}: ") from None
        pairs = zip(self.connections, fixed.effective, strict=True)
        weights = tuple(IntegerWeights.from_connection(c, effective, self.node.n_neurons) for c, effective in pairs)
        rows, learned = self._select_learned(fixed, name, bias)
        neurons = ProgramNeurons.from_fixed_layer(fixed, rows, self.surrogate, self.detach_reset)
        return IntegerProgram(fixed, weights, neurons, learned)

    def _select_learned(
        self, fixed: FixedLayer, bias_name: str | None, bias: torch.Tensor | None
    ) -> tuple[tuple[int, ...], torch.Tensor]:
        """Return the rows of trained parameters in the integer program, and their numbers before rounding, [row, N]."""
        values = {} if bias is None or bias_name is None else {bias_name: bias}
        values |= {key: self.expand_parameter(value).double() for key, value in self.learned.items()}
        values = {key: value * fixed.measured.per_unit(key) for key, value in values.items()}
        values |= {fixed.whole.inverses[key]: 1 / values[key] for key in self.learned if key in fixed.whole.inverses}
        names = list(fixed.whole.program.parameters)
        fine = [value * 2.0 ** fixed.whole.fractions[key] for key, value in values.items()]
        rows = tuple(names.index(key) for key in values)
        return rows, torch.stack(fine) if fine else torch.zeros(0, self.node.n_neurons, dtype=torch.float64)
