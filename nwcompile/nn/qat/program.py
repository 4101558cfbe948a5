"""A layer of neuron programs whose weights and parameters are rounded in every pass as the compiler rounds them."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

import torch

from nwcompile.ir.chip import Chip
from nwcompile.ir.network import Network
from nwcompile.ir.neuron_programs.program import NeuronProgram
from nwcompile.nn.qat import program_scan
from nwcompile.nn.qat.connected import ConnectedLayer, copy_array, make_parameter
from nwcompile.nn.qat.program_scan import ProgramNeurons
from nwcompile.nn.qat.sums import IntegerWeights
from nwcompile.passes.quantize.program_curves import use_inverses
from nwcompile.passes.quantize.program_scale import FixedLayer, Format, quantize_at_format


@dataclass(frozen=True, eq=False)
class IntegerProgram:
    """The current integers of a layer of programs."""

    fixed: FixedLayer
    weights: tuple[IntegerWeights, ...]
    neurons: ProgramNeurons
    learned: torch.Tensor

    @property
    def neuron(self) -> NeuronProgram:
        """The neurons on the chip."""
        return self.fixed.whole.program

    def run(self, drive: torch.Tensor, state: torch.Tensor | None, recorded: dict | None) -> tuple:
        """Return output, state read or None, and last state for a drive [B, T, N]; see `program_scan.run`."""
        return program_scan.run(drive, state, self.learned, self.neurons, recorded)


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
        fixed = quantize_at_format(node, edges, self.chip, self.pinned, tuple(self.learned))
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
