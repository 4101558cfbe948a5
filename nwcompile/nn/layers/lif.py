"""Trainable leaky integrate-and-fire neurons and synapses, in the style of NWAVE.

Data are `[B, N]` for one step or `[B, T, N]` for T steps in one call; both give the same numbers.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from nwcompile.argument_types import checked
from nwcompile.errors import ModelError, OptionError, unknown_choice
from nwcompile.nn.layers.prepare import Mismatch, Prepared, verify_forward
from nwcompile.nn.ops.device import torch_device
from nwcompile.nn.ops.scan import RESETS, LIFNeurons, scan
from nwcompile.nn.ops.spike_matmul import spike_matmul
from nwcompile.nn.ops.surrogate import look_up_layer_surrogate
from nwcompile.nn.ops.torch_ops import is_used_up

TOPOLOGIES = ("FF", "RC")
DEVIATES = {"threshold": "thresholds", "leak": "taus", "weight": "w_rec"}  # The tensor of each kind of mismatch.


@dataclass(frozen=True, eq=False)
class KeptState:
    """The state after the last step, with its graph; `exported`: made in torch.export and useless to other calls."""

    state: torch.Tensor
    exported: bool


def as_floats(where: str, value) -> torch.Tensor:
    """Copy a user's numbers as float32. Raises ModelError, with `where` in front, for anything else."""
    try:
        return torch.as_tensor(value, dtype=torch.float32).detach().clone()
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise ModelError(f"{where} must be numbers, not {type(value).__name__}") from None


def fill_weights(where: str, init: Callable, weight: torch.Tensor) -> None:
    """Fill a tensor in place with a user's function. Raises ModelError, with `where` in front, if it fails."""
    with torch.no_grad():
        try:
            init(weight)
        except Exception as e:
            raise ModelError(f"{where}: init failed with {type(e).__name__}: {e}") from e


def verify_device(given: torch.Tensor, parameter: torch.Tensor, name: str) -> None:
    """Raise ModelError, naming the layer, unless its input is on the device of its parameters."""
    if given.device != parameter.device:
        raise ModelError(
            f"{name}: the input is on {given.device}, the layer on {parameter.device}; move the input with "
            f".to({str(parameter.device)!r}), or the model"
        )


class LIFSynapse(Prepared):
    """Synapses without bias: current = spikes @ weight, with `weight` `[n_in, n_out]` (torch.nn.Linear's transposed).

    `init` is a tensor or array of that shape, or a function that fills one in place, as in torch.nn.init. Without it
    weights are uniform in +-1/sqrt(n_in). Raises ModelError for sizes below 1 or an `init` of another shape.
    """

    @checked()
    def __init__(self, n_in: int, n_out: int, device: str = "cpu", init=None):
        super().__init__()
        self.n_in, self.n_out = n_in, n_out
        if min(n_in, n_out) < 1:
            raise ModelError(f"{self._where}: sizes must be >= 1")
        weight = self._draw_weights()
        if callable(init):
            fill_weights(self._where, init, weight)
        elif init is not None:
            weight = as_floats(f"{self._where}: init", init)
            if weight.shape != (n_in, n_out):
                raise ModelError(f"{self._where}: init has shape {tuple(weight.shape)}, not {(n_in, n_out)}")
        self.weight = torch.nn.Parameter(weight.to(torch_device(device)))
        self.mismatches = {"weight": Mismatch(self._where, "weight")}

    @property
    def _where(self) -> str:
        return f"{type(self).__name__}({self.n_in}, {self.n_out})"

    def _draw_weights(self) -> torch.Tensor:
        bound = 1 / math.sqrt(self.n_in)
        return torch.empty(self.n_in, self.n_out).uniform_(-bound, bound)

    def prepare(self, name: str, seed: int | None, mismatch_in_eval: bool) -> None:
        super().prepare(name, seed, mismatch_in_eval)
        self.mismatches["weight"].prepare(f"{name}.weight", seed, mismatch_in_eval)

    def effective_weight(self) -> torch.Tensor:
        """Return the weights that spikes are multiplied with, `[n_in, n_out]`, with mismatch if it was injected."""
        return self._apply_mismatch("weight", self.weight, self.mismatches["weight"])

    def forward(self, spikes: torch.Tensor) -> torch.Tensor:
        """Turn spikes `[..., n_in]` of any dtype into currents `[..., n_out]`."""
        if spikes.shape[-1] != self.n_in:
            raise ModelError(f"{self._where}: input of shape {tuple(spikes.shape)} must end in {self.n_in}")
        verify_device(spikes, self.weight, self._where)
        weight = self.effective_weight()
        return spike_matmul(spikes.to(weight.dtype), weight)

    def extra_repr(self) -> str:
        return f"{self.n_in}, {self.n_out}"


class LIFLayer(Prepared):
    """Leaky integrate-and-fire neurons: currents in, `(spikes, mem)` out.

    In every step, with beta = exp(-dt/tau) rounded to float32:
      v = beta*v + i;  s = 1 if v >= threshold else 0;
      reset: "subtraction" (or "subtract") v = v - s*threshold, "zero" v = 0 where s = 1, "none" v stays;
      `mem` is v after it.
    `layer_topology="RC"` adds spikes(t-1) @ w_rec to the current, with `w_rec` of shape `[N, N]`.

    The input is `[B, N]` or `[B, T, N]`. The N neurons may form a map, as in `[B, C, H, W]` or
    `[B, T, C, H, W]`. The layer keeps the membrane of the last step (with "RC" also the spikes), and the next call
    continues from it: T calls of `[B, N]` equal one of `[B, T, N]`. `prepare_net` clears this state; without it a
    changed batch size raises ModelError. The state is not in the state_dict. Gradients flow through it into earlier
    calls until a backward pass has used them up, or the layer is copied or moved; then the state is a constant. Half
    precision (bfloat16, float16) is computed in float32, and results have the layer's dtype.

    `taus` in seconds (infinity for no leak) and `thresholds` are one number, or one per neuron. `learn_taus` and
    `learn_thresholds` make them parameters. `surrogate` is a name or a function of `nwcompile.nn.surrogate`, or
    "eventprop", the gradient of spike times, which needs all steps in one call and no `w_rec`. `detach_reset` keeps the
    gradient of a spike out of the reset. `device` is "cpu", or "gpu" = "cuda".
    """

    taus: torch.Tensor
    thresholds: torch.Tensor
    w_rec: torch.Tensor
    floor = False  # Whether the membrane is clipped at 0.

    @checked()
    def __init__(
        self,
        n_neurons: int,
        taus=20e-3,
        thresholds=1.0,
        reset_mechanism: str = "subtraction",
        dt: float = 1e-3,
        layer_topology: str = "FF",
        learn_taus: bool = False,
        learn_thresholds: bool = False,
        surrogate: str | Callable = "fast_sigmoid",
        device: str = "cpu",
        detach_reset: bool = False,
    ):
        super().__init__()
        if n_neurons < 1:
            raise ModelError(f"{type(self).__name__}: n_neurons is {n_neurons}, must be >= 1")
        self.n_neurons = n_neurons
        reset_mechanism = "subtraction" if reset_mechanism == "subtract" else reset_mechanism
        if reset_mechanism not in RESETS:
            raise OptionError(unknown_choice("reset_mechanism", reset_mechanism, (*RESETS, "subtract")))
        if layer_topology not in TOPOLOGIES:
            raise OptionError(unknown_choice("layer_topology", layer_topology, TOPOLOGIES))
        if not 0 < dt < math.inf:
            raise ModelError(f"{self._where}: dt is {dt}, must be a number of seconds > 0")
        self.dt, self.layer_topology = dt, layer_topology
        self.reset_mechanism, self.detach_reset = reset_mechanism, detach_reset
        self.surrogate = look_up_layer_surrogate(surrogate)
        target = torch_device(device)
        taus = self._per_neuron("taus", taus)
        thresholds = self._per_neuron("thresholds", thresholds)
        if not (taus > 0).all():
            raise ModelError(f"{self._where}: taus are {taus.min():g} s at least, must be > 0")
        if not thresholds.isfinite().all():
            raise ModelError(f"{self._where}: thresholds must be finite")
        for key, value, learn in (("taus", taus, learn_taus), ("thresholds", thresholds, learn_thresholds)):
            if learn:
                self.register_parameter(key, torch.nn.Parameter(value.to(target)))
            else:
                self.register_buffer(key, value.to(target))
        if layer_topology == "RC":
            self.w_rec = torch.nn.Parameter(self._draw_weights().to(target))
        self._kept: KeptState | None = None
        self.mismatches = {kind: Mismatch(self._where, kind) for kind in ("threshold", "leak")}
        if layer_topology == "RC":
            self.mismatches["weight"] = Mismatch(self._where, "weight")

    @property
    def _where(self) -> str:
        return f"{type(self).__name__}({self.n_neurons})"

    def _per_neuron(self, key: str, value) -> torch.Tensor:
        value = as_floats(f"{self._where}: {key}", value).cpu()
        if value.ndim > 1 or value.numel() not in (1, self.n_neurons):
            shape, n = tuple(value.shape), self.n_neurons
            raise ModelError(f"{self._where}: {key} of shape {shape} must be a number or of shape [{n}]")
        return value.reshape(-1).expand(self.n_neurons).clone()

    def _draw_weights(self) -> torch.Tensor:
        bound = 1 / math.sqrt(self.n_neurons)
        return torch.empty(self.n_neurons, self.n_neurons).uniform_(-bound, bound)

    @property
    def beta(self) -> torch.Tensor:
        """The decay factor of a step, `[N]`: exp(-dt/tau), computed in float64 and rounded to the layer's dtype.

        With leak mismatch it is exp(-dt/tau * max(1 + leak * e, 0)).
        """
        rate = self.dt / self.effective_taus().double()
        return torch.exp(-rate * self.mismatches["leak"].draw(rate, self.training).clamp(min=0)).to(self._compute_dtype)

    def effective_taus(self) -> torch.Tensor:
        """Return the time constants before mismatch, in seconds, `[N]`."""
        return self.taus

    def effective_w_rec(self) -> torch.Tensor | None:
        """Return the recurrent weights that spikes are multiplied with, `[N, N]`; None without recurrence."""
        if self.layer_topology != "RC":
            return None
        return self._apply_mismatch("w_rec", self.w_rec, self.mismatches["weight"])

    def effective_thresholds(self) -> torch.Tensor:
        """Return the thresholds `[N]`, with mismatch times max(1 + threshold * e, 0)."""
        mismatch = self.mismatches["threshold"]
        if not mismatch.is_active(self.training):
            return self.thresholds
        return self.thresholds * self._make_once(
            "thresholds", self.thresholds, lambda spent: mismatch.draw(self.thresholds.detach(), True).clamp(min=0)
        )

    @property
    def _compute_dtype(self) -> torch.dtype:
        return torch.promote_types(self.thresholds.dtype, torch.float32)

    def reset_state(self) -> None:
        """Clear the stored membrane and spikes."""
        self._kept = None

    def cut_graph(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Make the stored state a leaf of a new graph; return the state with its old graph, and the leaf."""
        assert self._kept is not None, "call the layer first"
        state = self._kept.state
        leaf = state.detach().requires_grad_(state.requires_grad)
        self._kept = KeptState(leaf, self._kept.exported)
        return state, leaf

    def prepare(self, name: str, seed: int | None, mismatch_in_eval: bool) -> None:
        super().prepare(name, seed, mismatch_in_eval)
        self.reset_state()
        for kind, mismatch in self.mismatches.items():
            mismatch.prepare(f"{name}.{DEVIATES[kind]}", seed, mismatch_in_eval)

    def neuron_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the neuron axes of an input's shape. Raises ModelError if it is neither `[B, *]` nor `[B, T, *]`."""
        for n_leading in (2, 1):
            if len(shape) > n_leading and math.prod(shape[n_leading:]) == self.n_neurons:
                return tuple(shape[n_leading:])
        n = self.n_neurons
        raise ModelError(f"{self._where}: input of shape {tuple(shape)} is neither [B, {n}] nor [B, T, {n}]")

    def forward(self, current: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return `(spikes, mem)`, both in the input's shape and the layer's dtype."""
        shape, dtype = current.shape, self.thresholds.dtype
        n_leading = len(shape) - len(self.neuron_shape(shape))
        verify_device(current, self.thresholds, self._where)
        neurons = self.build_neurons()
        if len(shape) > n_leading + 1:
            current = current.flatten(n_leading)
        state = self._recall_state(shape[0])
        spikes, mem, last = scan(current, neurons.initial_state(current) if state is None else state, neurons)
        self._kept = KeptState(last, torch.compiler.is_exporting())
        if spikes.dtype != dtype:
            spikes = spikes.to(dtype)
            mem = mem.to(dtype)
        return (spikes, mem) if spikes.shape == shape else (spikes.reshape(shape), mem.reshape(shape))

    def build_neurons(self) -> LIFNeurons:
        """Return the layer's neurons as `nwcompile.nn.ops.scan` takes them."""
        learns = self.taus.requires_grad and torch.is_grad_enabled()
        beta = self.beta if learns else self._make_once("beta", self.taus, lambda spent: self.beta, self._beta_settings)
        w_rec = self.effective_w_rec()
        dtype = beta.dtype
        thresholds = self.effective_thresholds().to(dtype)
        return LIFNeurons(
            beta=beta,
            threshold=thresholds,
            reset=self.reset_mechanism,
            surrogate=self.surrogate,
            detach_reset=self.detach_reset,
            floor=self.floor,
            w_rec=None if w_rec is None else w_rec.to(dtype),
        )

    def _beta_settings(self) -> tuple | None:
        """Return what `beta` depends on besides `taus`; None if it changes with every batch."""
        return None if self.mismatches["leak"].is_active(self.training) else (self.dt, self._compute_dtype)

    def _recall_state(self, n_samples: int) -> torch.Tensor | None:
        """Return the state that the last call left; None at the beginning of a sequence."""
        kept = self._kept
        if kept is None or kept.exported != torch.compiler.is_exporting():
            return None
        n_kept = kept.state.shape[1]
        if n_kept != n_samples:
            raise ModelError(
                f"{self._where}: the batch has {n_samples} samples, the kept state has {n_kept}; call "
                "nwcompile.nn.prepare_net(model) before a new batch"
            )
        if torch.compiler.is_compiling():
            return kept.state
        verify_forward(self._where)
        if kept.state.is_inference() and not torch.is_inference_mode_enabled():
            return kept.state.clone()
        return kept.state.detach() if is_used_up(kept.state) else kept.state

    def _apply(self, fn, recurse=True):
        super()._apply(fn, recurse)
        if self._kept is not None:
            self._kept = KeptState(fn(self._kept.state.detach()), self._kept.exported)
        return self

    def __getstate__(self):
        kept = self._kept and KeptState(self._kept.state.detach(), self._kept.exported)
        return {**super().__getstate__(), "_kept": kept}

    def extra_repr(self) -> str:
        return f"{self.n_neurons}, reset_mechanism={self.reset_mechanism!r}, layer_topology={self.layer_topology!r}"
