"""A layer of a float network whose connections are trained, and rounded to the chip's integers in every pass."""

from abc import abstractmethod
from typing import Any, cast

import numpy as np
import torch

from nwcompile.errors import BackendError, ModelError
from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Connection, Direct, Sparse
from nwcompile.ir.host import Injected
from nwcompile.ir.network import Network, Node
from nwcompile.ir.neuron import align_to_shape
from nwcompile.nn.qat.sums import IntegerWeights, StraightThrough


class ConnectedLayer(torch.nn.Module):
    """One layer of a normalized float network, with the compiler's choices for it (`pinned`).

    Parameters, in the float network's units: `weights[i]` and `biases[i]` of `connections[i]`; a bias is empty if the
    connection has none. A state_dict also holds the choices and the ends of synapses.
    Subclasses are `QuantizedLayer` for built-in neurons and `QuantizedProgram` for neuron programs.
    """

    connections: tuple[Direct, ...]
    slopes: tuple[torch.Tensor, ...]  # Derivative of each connection's integer weights by its float weights.

    def __init__(self, network: Network, name: str, chip: Chip, trains: tuple[bool, ...]):
        super().__init__()
        self.name, self.chip = name, chip
        into = network.into(name)
        self.connections = cast("tuple[Direct, ...]", tuple(c for c in into if not isinstance(c, Injected)))
        without = tuple(c.replace(bias=None) for c in self.connections)
        self.bare = Network(network.inputs, network.nodes, (*without, *(c for c in into if isinstance(c, Injected))))
        biases = [np.zeros(0) if c.bias is None else np.asarray(c.bias) for c in self.connections]
        self.weights = torch.nn.ParameterList(make_parameter(c.weight, t) for c, t in zip(without, trains, strict=True))
        self.biases = torch.nn.ParameterList(
            make_parameter(bias, t and bias.size > 0) for bias, t in zip(biases, trains, strict=True)
        )
        self.bias_places = [None if c.bias is None else locate_biases(c, self.node.shape) for c in self.connections]
        self.pinned: Any = None

    @property
    def node(self) -> Node:
        """The float layer."""
        return self.bare.node(self.name)

    @abstractmethod
    def pin_choices(self, pinned) -> None:
        """Use these choices from now on."""

    @abstractmethod
    def pin_state(self) -> dict:
        """Return the choices as plain values and tensors."""

    @abstractmethod
    def pin_from_state(self, state: dict):
        """Rebuild the choices from the result of `pin_state`."""

    @abstractmethod
    def compute_integers(self):
        """Round the current parameters. Raises ModelError if they are not finite, BackendError on a GPU."""

    @abstractmethod
    def float_neuron(self):
        """Return the trained float neurons."""

    def get_extra_state(self) -> dict:
        return self.pin_state() | {"ends": self._synapse_ends()}

    def set_extra_state(self, state: dict) -> None:
        """Load the choices. Raises ModelError for other synapses: a list of weights does not say where they are."""
        if any(not torch.equal(*pair) for pair in zip(self._synapse_ends(), state["ends"], strict=True)):
            raise ModelError(
                f"layer {self.name!r}: the state_dict has other synapses; build the module from a network in "
                "which the same weights are pruned"
            )
        self.pin_choices(self.pin_from_state({key: value for key, value in state.items() if key != "ends"}))

    def _synapse_ends(self) -> list[torch.Tensor]:
        """Return sources and targets, int64[2, k], of each list of synapses; empty for other connections."""
        lists = [(c.pre, c.post) if isinstance(c, Sparse) else ((), ()) for c in self.connections]
        return [torch.from_numpy(np.array(ends, np.int64)) for ends in lists]

    def verify_parameters(self) -> None:
        """Raise ModelError if the parameters are not finite, BackendError if they are on a GPU."""
        for key, p in self.named_parameters():
            if p.device.type != "cpu":
                raise BackendError(
                    f"layer {self.name!r}: {key} is on {p.device}, but integers are computed on the CPU; "
                    "move the module back with .cpu()"
                )
            if not p.isfinite().all():
                raise ModelError(
                    f"layer {self.name!r}: {key} has NaN or infinite values; an optimizer step damaged it: lower "
                    "the learning rate or clip the gradients, and continue from an earlier state_dict"
                )

    def sum_biases(self) -> torch.Tensor | None:
        """Return the sum of the connections' biases into each neuron, float64[N]; None if there are none."""
        total = None
        for bias, places in zip(self.biases, self.bias_places, strict=True):
            if places is not None:
                of_connection = bias.double().reshape(-1)[places]
                total = of_connection if total is None else total + of_connection
        return total

    def expand_parameter(self, parameter: torch.Tensor) -> torch.Tensor:
        """Expand a parameter of the neurons, `[C]` or as `NeuronSpec` takes it, to one number per neuron."""
        shape = self.node.shape
        places = np.arange(parameter.numel()).reshape(parameter.shape)
        index = np.array(np.broadcast_to(align_to_shape(places, shape), shape)).reshape(-1)
        return parameter.float().reshape(-1)[torch.from_numpy(index)]

    def effective_weight(self, whole: IntegerWeights, i: int, largest: float) -> torch.Tensor:
        """Return the effective weights of connection i, in the float type that sums of spikes up to `largest` need."""
        dtype = whole.choose_dtype(self.connections[i], largest)
        return StraightThrough.apply(self.weights[i], torch.from_numpy(whole.value).to(dtype), self.slopes[i].to(dtype))


def copy_array(parameter: torch.Tensor, dtype: type = np.float64) -> np.ndarray:
    """Copy a parameter's numbers, as float64 unless `dtype` is given."""
    return np.array(parameter.detach().double().numpy(), dtype)


def make_parameter(value, trains: bool) -> torch.nn.Parameter:
    """Make a float32 parameter, trained or not."""
    return torch.nn.Parameter(torch.tensor(np.array(value, np.float32)), requires_grad=trains)


def locate_biases(connection: Connection, shape: tuple[int, ...]) -> torch.Tensor:
    """Return the entry of a connection's bias that each neuron has, int64[N]."""
    bias = np.asarray(connection.bias)
    places = connection.replace(bias=np.arange(bias.size).reshape(bias.shape)).bias_per_neuron(shape)
    assert places is not None, "it has a bias"
    return torch.from_numpy(places.reshape(-1).astype(np.int64))
