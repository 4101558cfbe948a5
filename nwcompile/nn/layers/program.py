"""A trainable layer of custom neurons (`nw.neuron`)."""

import math
from dataclasses import dataclass
from operator import index
from types import SimpleNamespace

import numpy as np
import torch
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

from nwcompile.argument_types import checked
from nwcompile.errors import ModelError
from nwcompile.ir.neuron_programs.program import NeuronProgram
from nwcompile.kernels.cores.programs.source import WITHOUT_KERNEL
from nwcompile.nn.layers.prepare import Prepared, verify_forward
from nwcompile.nn.neurons.neuron import Neuron
from nwcompile.nn.ops.torch_ops import is_used_up, select_kernels


@dataclass(frozen=True, eq=False)
class _Compiled:
    """A layer's program for its kernel. given: float32[parameter, N]. key: device and versions of the parameters."""

    key: tuple
    structure: tuple
    given: torch.Tensor
    has_kernel: bool


class ProgramLayer(Prepared):
    """Neurons with a custom step: currents in, the step's output out (for a readout the state that it reads).

    `shape` is the number of neurons, or the shape of a map of them. The input is `[B, *shape]` or `[B, T, *shape]`. The
    layer keeps the states of the last step and the next call continues from them, as in LIFLayer; `prepare_net` clears
    them. `parameters` of the neuron are numbers, or arrays that broadcast to `shape`; those named in `learn` are
    trained. Gradients go through the operations of the step: make spikes with `nn.spike`, which has a surrogate.
    Without gradients (`torch.no_grad()`) one generated kernel runs all steps of float32 input, with the same numbers.
    """

    @checked("shape", "learn")
    def __init__(self, neuron: Neuron, shape: int | tuple[int, ...], learn: tuple[str, ...] = (), **parameters):
        super().__init__()
        if not isinstance(neuron, Neuron):
            raise ModelError(f"ProgramLayer takes a function decorated with nw.neuron, not {type(neuron).__name__}")
        if neuron.bits is not None:
            raise ModelError(f"neuron {neuron.name!r} computes in whole numbers, which are not trained; leave bits out")
        self.neuron = neuron
        self.shape = tuple(shape) if isinstance(shape, list | tuple) else (index(shape),)
        tensors = neuron.parameter_tensors(parameters)
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
        self._compiled: _Compiled | None = None

    def program(self) -> NeuronProgram:
        """Return the neuron program with the current parameters."""
        return self.neuron.program(**{name: getattr(self, name).detach() for name in self.names})

    def reset_state(self) -> None:
        """Clear the stored states."""
        self._kept = None

    def prepare(self, name: str, seed: int | None, mismatch_in_eval: bool) -> None:
        super().prepare(name, seed, mismatch_in_eval)
        self.reset_state()

    def forward(self, current: torch.Tensor) -> torch.Tensor:
        """Return the output of every step, in the input's shape."""
        has_steps = tuple(current.shape[2:]) == self.shape
        if not has_steps and tuple(current.shape[1:]) != self.shape:
            shape = ", ".join(map(str, self.shape))
            raise ModelError(
                f"ProgramLayer({self.neuron.name}): input of shape {list(current.shape)} is neither [B, {shape}] nor "
                f"[B, T, {shape}]"
            )
        states = self._recall_states(current)
        if has_steps and self._is_plain(current, states) and (compiled := self._compile_program(current)).has_kernel:
            return self._run_kernel(compiled, current, states)
        parameters = {name: getattr(self, name) for name in self.names}
        sent = []
        for x_t in current.unbind(1) if has_steps else (current,):
            states, output = self.neuron(SimpleNamespace(**states), x_t, **parameters)
            states = {name: _to_number(value, current.dtype) for name, value in states.items()}
            sent.append(_to_number(output, current.dtype) if self.read is None else states[self.read])
        self._kept = states
        return torch.stack(sent, 1) if has_steps else sent[0]

    def _is_plain(self, current: torch.Tensor, states: dict[str, torch.Tensor]) -> bool:
        """Return whether only numbers are needed: no gradients, no tracing, no dispatch mode."""
        tensors = [current, *states.values(), *(getattr(self, name) for name in self.names)]
        follows = torch.compiler.is_compiling() or is_in_torch_dispatch_mode() or type(current) is not torch.Tensor
        needs_grad = torch.is_grad_enabled() and any(t.requires_grad for t in tensors)
        return not follows and not needs_grad and all(t.dtype == torch.float32 for t in tensors) and current.numel() > 0

    def _compile_program(self, current: torch.Tensor) -> "_Compiled":
        """Return the program with the current parameters, on the device of `current`."""
        tensors = [getattr(self, name) for name in self.names]
        key = (current.device, *((t.data_ptr(), t._version) for t in tensors))
        if self._compiled is None or self._compiled.key != key:
            program = self.program()
            if self.read is not None:
                read = next(state for state in program.states if state.name == self.read)
                program = program.replace(output=read.next, sends="graded")
            rows = [program.array(name, self.shape).reshape(-1) for name in program.parameters]
            given = np.array(rows, np.float32).reshape(len(rows), math.prod(self.shape))
            self._compiled = _Compiled(
                key=key,
                structure=program.structure,
                given=torch.from_numpy(given).to(current.device),
                has_kernel=not any(o.kind in WITHOUT_KERNEL for o in program.operations),
            )
        return self._compiled

    def _run_kernel(self, compiled: "_Compiled", current: torch.Tensor, states: dict) -> torch.Tensor:
        """Run all steps of `forward` in one kernel."""
        n_samples = len(current)
        state = torch.empty((len(states), n_samples, math.prod(self.shape)), device=current.device)
        for row, value in zip(state, (states[name] for name in self.initial), strict=True):
            row.copy_(value.reshape(row.shape))
        sent = select_kernels(current).run_program(
            compiled.structure, compiled.given, current.detach().flatten(2).contiguous(), state
        )
        self._kept = {name: row.view(n_samples, *self.shape) for name, row in zip(self.initial, state, strict=True)}
        return sent.view(current.shape)

    def _recall_states(self, current: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return the states that the last call left, or the initial states of a sample."""
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
        verify_forward(f"ProgramLayer({self.neuron.name})")
        return {name: value.detach() if is_used_up(value) else value for name, value in self._kept.items()}

    def extra_repr(self) -> str:
        return f"{self.neuron.name}, {list(self.shape)}"


def _to_number(value, dtype: torch.dtype):
    """Turn a truth value into 0 or 1 of the input's dtype; return anything else unchanged."""
    return value.to(dtype) if isinstance(value, torch.Tensor) and value.dtype == torch.bool else value
