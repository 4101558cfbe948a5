"""A trainable layer of a user's own neurons (`nw.neuron`)."""

from types import SimpleNamespace
from typing import Any

import torch

from nwcompile.errors import ModelError
from nwcompile.ir.neuron_programs.program import NeuronProgram
from nwcompile.nn.layers.prepare import Prepared
from nwcompile.nn.neurons.neuron import Neuron
from nwcompile.nn.ops.torch_ops import is_used_up


class ProgramLayer(Prepared):
    """Neurons of a step of one's own: currents in, what leaves out (of a readout the state that is read).

    `shape`: how many neurons, or the shape of a map of them. The input is `[B, *shape]` or `[B, T, *shape]`; the states
    of the last step are kept, and the next call goes on from there, as with LIFLayer; `prepare_net` clears them.
    `parameters` of the neuron are numbers, or arrays that broadcast to `shape`; those that `learn` names are trained.
    Gradients go through the step's own operations: make spikes with `nn.spike`, which has a surrogate.
    """

    def __init__(self, neuron: Neuron, shape, learn: tuple[str, ...] = (), **parameters):
        super().__init__()
        if not isinstance(neuron, Neuron):
            raise ModelError(f"ProgramLayer takes a function decorated with nw.neuron, not {type(neuron).__name__}")
        if neuron.bits is not None:
            raise ModelError(f"neuron {neuron.name!r} computes in whole numbers, which are not trained; leave bits out")
        self.neuron = neuron
        self.shape = (shape,) if isinstance(shape, int) else tuple(shape)
        tensors = neuron.tensors(parameters)
        for name in learn:
            if name not in tensors:
                raise ModelError(f"neuron {neuron.name!r} has no parameter {name!r} to learn; it has {list(tensors)}")
        for name, value in tensors.items():
            if name in learn:
                self.register_parameter(name, torch.nn.Parameter(value.clone()))
            else:
                self.register_buffer(name, value.clone())
        self.names = tuple(tensors)
        program = self.program()
        program.verify(neuron.name, self.shape)
        self.initial = {state.name: state.initial for state in program.states}
        self.read = None if program.fires else program.readout
        self._kept: dict[str, torch.Tensor] | None = None

    def program(self) -> NeuronProgram:
        """What the layer computes now, as a program."""
        return self.neuron.program(**self._parameters_now())

    def _parameters_now(self) -> dict[str, Any]:
        return {name: getattr(self, name).detach() for name in self.names}

    def reset_state(self) -> None:
        """Forget the kept states."""
        self._kept = None

    def prepare(self, name: str, seed: int | None, mismatch_in_eval: bool) -> None:
        super().prepare(name, seed, mismatch_in_eval)
        self.reset_state()

    def forward(self, current: torch.Tensor) -> torch.Tensor:
        """What leaves in every step, of the input's shape."""
        has_steps = tuple(current.shape[2:]) == self.shape
        if not has_steps and tuple(current.shape[1:]) != self.shape:
            shape = ", ".join(map(str, self.shape))
            raise ModelError(
                f"ProgramLayer({self.neuron.name}): input of shape {list(current.shape)} is neither [B, {shape}] nor "
                f"[B, T, {shape}]"
            )
        states = self._states_for(current)
        parameters = {name: getattr(self, name) for name in self.names}
        sent = []
        for x_t in current.unbind(1) if has_steps else (current,):
            states, output = self.neuron(SimpleNamespace(**states), x_t, **parameters)
            sent.append(output if self.read is None else states[self.read])
        self._kept = states
        return torch.stack(sent, 1) if has_steps else sent[0]

    def _states_for(self, current: torch.Tensor) -> dict[str, torch.Tensor]:
        """The states that the call before has left, or those that a sample begins with."""
        if self._kept is None:
            shape = (len(current), *self.shape)
            full = {
                name: torch.as_tensor(value, dtype=current.dtype, device=current.device)
                for name, value in self.initial.items()
            }
            return {name: value.expand(shape) for name, value in full.items()}
        n_kept = len(next(iter(self._kept.values()))) if self._kept else len(current)
        if n_kept != len(current):
            raise ModelError(
                f"ProgramLayer({self.neuron.name}): the batch has {len(current)} samples, the kept states have "
                f"{n_kept}; call nwcompile.nn.prepare_net(model) before a new batch"
            )
        return {name: value.detach() if is_used_up(value) else value for name, value in self._kept.items()}

    def extra_repr(self) -> str:
        return f"{self.neuron.name}, {list(self.shape)}"
