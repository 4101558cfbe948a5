"""The decorator `nw.neuron`: a short torch function as a neuron, for training and for programmable chips."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, overload

import torch

from nwcompile.argument_types import checked
from nwcompile.errors import ModelError
from nwcompile.ir.neuron_programs.program import NeuronProgram
from nwcompile.nn.neurons.trace import trace
from nwcompile.nn.ops.scan import Spike
from nwcompile.nn.ops.surrogate import look_up_surrogate


@dataclass(frozen=True, eq=False)
class Neuron:
    """A neuron with the torch function `step(state, x, **parameters)` as its step; calling it calls the function.

    The other fields are the arguments of `nn.neurons.trace.trace`.
    """

    step: Callable
    bits: int | dict[str, int] | None = None
    overflow: str | dict[str, str] = "saturate"
    sends: str | None = None
    initial: dict[str, Any] = field(default_factory=dict)

    def __call__(self, state, x: torch.Tensor, **parameters):
        return self.step(state, x, **parameters)

    @property
    def name(self) -> str:
        return self.step.__name__

    @property
    def defaults(self) -> dict[str, Any]:
        """The parameters of the step with their default values."""
        given = list(inspect.signature(self.step).parameters.values())[2:]
        return {p.name: None if p.default is inspect.Parameter.empty else p.default for p in given}

    def program(self, **parameters) -> NeuronProgram:
        """Trace the step into a program; `parameters` are numbers, or arrays for the shape of a layer.

        Raises ModelError for a missing or unknown parameter, and for operations that no program has.
        """
        return trace(
            self.step,
            self.name,
            self.parameter_tensors(parameters),
            bits=self.bits,
            overflow=self.overflow,
            sends=self.sends,
            initial=self.initial,
        )

    def parameter_tensors(self, parameters: dict[str, Any]) -> dict[str, torch.Tensor]:
        """Return all parameters of the step as tensors, with its defaults for those not given."""
        defaults = self.defaults
        for name in parameters:
            if name not in defaults:
                known = ", ".join(defaults) or "no parameters"
                raise ModelError(f"neuron {self.name!r} has no parameter {name!r}; it has {known}")
        values = {**defaults, **parameters}
        for name, value in values.items():
            if value is None:
                raise ModelError(f"neuron {self.name!r}: give its parameter {name!r} a value")
        dtype = torch.float32 if self.bits is None else torch.int64
        return {name: torch.as_tensor(value, dtype=dtype) for name, value in values.items()}


def spike(v: torch.Tensor, threshold=1.0, surrogate: str | Callable = "fast_sigmoid") -> torch.Tensor:
    """Return 1 where v >= threshold, else 0; the gradient is `surrogate` (of `nn.surrogate`) at v - threshold."""
    if not isinstance(v, torch.Tensor):
        raise ModelError(f"spike takes a tensor of membranes, not {type(v).__name__}")
    try:
        threshold = torch.as_tensor(threshold, dtype=v.dtype, device=v.device)
        torch.broadcast_shapes(v.shape, threshold.shape)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise ModelError(
            f"spike: threshold={type(threshold).__name__} must be a number, or a tensor of them that broadcasts"
        ) from None
    return Spike.apply(v, threshold, look_up_surrogate(surrogate))


@overload
def neuron(step: Callable) -> Neuron: ...


@overload
def neuron(
    *,
    bits: int | dict[str, int] | None = None,
    overflow: str | dict[str, str] = "saturate",
    sends: str | None = None,
    initial: dict[str, Any] | None = None,
) -> Callable[[Callable], Neuron]: ...


@checked()
def neuron(
    step: Callable | None = None,
    *,
    bits: int | dict[str, int] | None = None,
    overflow: str | dict[str, str] = "saturate",
    sends: str | None = None,
    initial: dict[str, Any] | None = None,
):
    """Decorate `step(state, x, **parameters) -> (next states, output)` as a custom neuron.

    `state.v` is the value of state `v` after the previous step, `x` the synaptic input; further arguments are
    parameters. The step returns the next states, a dict by name, and the output: spikes, numbers, or None for a
    readout. It consists of torch's elementwise operations. With `bits`, the width of all states or of each by name, it
    computes in whole numbers; at the end of a step states saturate, or wrap with overflow="modulo". `initial`: the
    states at the beginning of a sample, 0 by default.
    """

    def decorate_step(step: Callable) -> Neuron:
        return Neuron(step, bits, overflow, sends, dict(initial or {}))

    return decorate_step if step is None else decorate_step(step)
