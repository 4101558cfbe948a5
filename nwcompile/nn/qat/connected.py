"""A layer of a float network whose connections are trained and rounded to the chip's integers in every pass."""

from abc import abstractmethod
from typing import Any, cast

import numpy as np
import torch

from nwcompile.errors import BackendError, ModelError
from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Direct, Sparse
from nwcompile.ir.host import Injected
from nwcompile.ir.network import Network, Node
from nwcompile.ir.neuron import align_to_shape
from nwcompile.nn.qat.sums import IntegerWeights, StraightThrough


class ConnectedLayer(torch.nn.Module):
    """One layer of a normalized float network, at what the compiler has chosen for it (`pinned`).

    Parameters, in the float network's units: `weights[i]` and `biases[i]` of connection i (an empty one where it has no
    bias). `connections[i]` say where they lie. A state_dict holds what is pinned, and the ends of synapses too.
    `QuantizedLayer`s are those of built-in neurons, `QuantizedProgram`s those of neuron programs.
    """

    connections: tuple[Direct, ...]
    slopes: tuple[torch.Tensor, ...]  # of the integer weights of each connection, by its float ones

    def __init__(self, network: Network, name: str, chip: Chip, trains: tuple[bool, ...]):
        super().__init__()
        self.name, self.chip = name, chip
        into = network.into(name)
        self.connections = cast("tuple[Direct, ...]", tuple(c for c in into if not isinstance(c, Injected)))
        without = tuple(c.replace(bias=None) for c in self.connections)
        self.bare = Network(network.inputs, network.nodes, (*without, *(c for c in into if isinstance(c, Injected))))
        biases = [np.zeros(0) if c.bias is None else np.asarray(c.bias) for c in self.connections]
        self.weights = torch.nn.ParameterList(parameter(c.weight, t) for c, t in zip(without, trains, strict=True))
        self.biases = torch.nn.ParameterList(
            parameter(bias, t and bias.size > 0) for bias, t in zip(biases, trains, strict=True)
        )
        self.bias_places = [
            None if c.bias is None else _places(c, bias, self.node.shape)
            for c, bias in zip(self.connections, biases, strict=True)
        ]
        self.pinned: Any = None

    @property
    def node(self) -> Node:
        """The float layer."""
        return self.bare.node(self.name)

    @abstractmethod
    def pin(self, pinned) -> None:
        """Keep these choices from now on."""

    @abstractmethod
    def pin_state(self) -> dict:
        """What is pinned, as plain values and tensors."""

    @abstractmethod
    def pin_of_state(self, state: dict):
        """What is pinned, of such values."""

    @abstractmethod
    def integers(self):
        """What the parameters are on the chip now. Raises ModelError if they are not finite, BackendError on a GPU."""

    @abstractmethod
    def float_neuron(self):
        """The float neurons as they have been trained."""

    def get_extra_state(self) -> dict:
        return self.pin_state() | {"ends": self._ends()}

    def set_extra_state(self, state: dict) -> None:
        """Take the pin. Raises ModelError where the synapses are others: weights of a list say not where they are."""
        if any(not torch.equal(*pair) for pair in zip(self._ends(), state["ends"], strict=True)):
            raise ModelError(
                f"layer {self.name!r}: the state_dict is of other synapses; make the module of a network in which the "
                "same weights are pruned"
            )
        self.pin(self.pin_of_state({key: value for key, value in state.items() if key != "ends"}))

    def _ends(self) -> list[torch.Tensor]:
        """int64[2, k] for each list of synapses: their sources and targets; of other connections nothing."""
        lists = [(c.pre, c.post) if isinstance(c, Sparse) else ((), ()) for c in self.connections]
        return [torch.from_numpy(np.array(ends, np.int64)) for ends in lists]

    def verify(self) -> None:
        """Raise ModelError if the parameters are not finite, BackendError if they are on a GPU."""
        for key, p in self.named_parameters():
            if p.device.type != "cpu":
                raise BackendError(
                    f"layer {self.name!r}: {key} is on {p.device}, but integers are computed on the CPU; "
                    "move the module back with .cpu()"
                )
            if not p.isfinite().all():
                raise ModelError(
                    f"layer {self.name!r}: {key} has NaN or infinite values; an optimizer step has spoiled it: lower "
                    "the learning rate or clip the gradients, and go on from a state_dict of before"
                )

    def bias(self) -> torch.Tensor | None:
        """What the connections' biases add to each neuron in a step, float64[N]; None without any."""
        total = None
        for bias, places in zip(self.biases, self.bias_places, strict=True):
            if places is not None:
                of_connection = bias.double().reshape(-1)[places]
                total = of_connection if total is None else total + of_connection
        return total

    def spread(self, parameter: torch.Tensor) -> torch.Tensor:
        """A number of the layer's neurons, `[C]` or as `NeuronSpec` takes it, for each of them."""
        shape = self.node.shape
        places = np.arange(parameter.numel()).reshape(parameter.shape)
        index = np.array(np.broadcast_to(align_to_shape(places, shape), shape)).reshape(-1)
        return parameter.float().reshape(-1)[torch.from_numpy(index)]

    def weight(self, whole: IntegerWeights, i: int, largest: float) -> torch.Tensor:
        """The effective weights of connection i, in the float type that sums of spikes up to `largest` need."""
        dtype = whole.dtype(self.connections[i], largest)
        return StraightThrough.apply(self.weights[i], torch.from_numpy(whole.value).to(dtype), self.slopes[i].to(dtype))


def array(parameter: torch.Tensor) -> np.ndarray:
    """Its numbers in float64, of their own."""
    return np.array(parameter.detach().double().numpy())


def parameter(value, trains: bool) -> torch.nn.Parameter:
    """Such numbers, to be trained or not."""
    return torch.nn.Parameter(torch.tensor(np.array(value, np.float32)), requires_grad=trains)


def _places(connection, bias: np.ndarray, shape: tuple[int, ...]) -> torch.Tensor:
    """int64[N]: which entry of a connection's bias each neuron has."""
    places = connection.replace(bias=np.arange(bias.size).reshape(bias.shape)).bias_per_neuron(shape)
    return torch.from_numpy(places.reshape(-1).astype(np.int64))
