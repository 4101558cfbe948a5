"""Trainable leaky integrate-and-fire layers in the NWAVE style: a synapse turns spikes into current, a layer current
into spikes.

Data are `[B, N]` for one step or `[B, T, N]` for T steps at once; both give the same numbers.
"""

import math
from collections.abc import Callable

import torch

from nwcompile.errors import ModelError, OptionError, unknown_choice
from nwcompile.nn.device import Movable, torch_device
from nwcompile.nn.scan import RESETS, Neurons, recurrent_scan, scan
from nwcompile.nn.state import Kept
from nwcompile.nn.surrogate import named

TOPOLOGIES = ("FF", "RC")


class LIFSynapse(Movable):
    """current = spikes @ weight, with `weight` of shape `[n_in, n_out]` (transposed against torch.nn.Linear), no bias.

    `init` is a tensor or array of that shape, or a function that fills one in place (as those of torch.nn.init);
    without it weights are uniform in +-1/sqrt(n_in). Raises ModelError for sizes below 1 or an `init` of another shape.
    """

    def __init__(self, n_in: int, n_out: int, device: str = "cpu", init=None):
        super().__init__()
        if min(n_in, n_out) < 1:
            raise ModelError(f"LIFSynapse({n_in}, {n_out}): sizes must be >= 1")
        self.n_in, self.n_out = n_in, n_out
        weight = torch.empty(n_in, n_out).uniform_(-1 / math.sqrt(n_in), 1 / math.sqrt(n_in))
        if callable(init):
            with torch.no_grad():
                init(weight)
        elif init is not None:
            weight = torch.as_tensor(init, dtype=torch.float32).detach().clone()
            if weight.shape != (n_in, n_out):
                shape = tuple(weight.shape)
                raise ModelError(f"LIFSynapse({n_in}, {n_out}): init has shape {shape}, not {(n_in, n_out)}")
        self.weight = torch.nn.Parameter(weight.to(torch_device(device)))

    def forward(self, spikes: torch.Tensor) -> torch.Tensor:
        """`[..., n_in]` spikes (any dtype) to `[..., n_out]` currents."""
        if spikes.shape[-1] != self.n_in:
            shape = tuple(spikes.shape)
            raise ModelError(f"LIFSynapse({self.n_in}, {self.n_out}): input of shape {shape} must end in {self.n_in}")
        return spikes.to(self.weight.dtype) @ self.weight

    def extra_repr(self) -> str:
        return f"{self.n_in}, {self.n_out}"


class LIFLayer(Movable):
    """Leaky integrate-and-fire neurons: currents in, `(spikes, mem)` out.

    In every step, with beta = exp(-dt/tau) rounded to float32:
      v = beta*v + i;  s = 1 if v >= threshold else 0;
      reset: "subtraction" v = v - s*threshold, "zero" v = 0 where s = 1, "none" v stays; `mem` is v after it.
    With `layer_topology="RC"` the current has spikes(t-1) @ w_rec added to it, `w_rec` of shape `[N, N]`.

    The input is `[B, N]` or `[B, T, N]`; neurons may also have a shape of N entries in all, as in `[B, C, H, W]` or
    `[B, T, C, H, W]`. The membrane (and with "RC" the spikes) of the last step are kept, and the next call goes on from
    there: T calls of `[B, N]` equal one of `[B, T, N]`. `prepare_net` clears them; without it a changed batch size is a
    ModelError. What is kept is no part of the state_dict. Gradients flow back through it into earlier calls until a
    backward pass has used them (or the layer was copied or moved); from then on it counts as a constant.

    taus in seconds (infinity for no leak) and thresholds are numbers or one per neuron; `learn_taus` and
    `learn_thresholds` make them parameters. `surrogate`: a name or a function of `nwcompile.nn.surrogate`;
    `detach_reset` keeps the gradient of a spike out of the reset. `device`: "cpu", or "gpu" = "cuda".
    """

    def __init__(
        self, n_neurons: int, taus=20e-3, thresholds=1.0, reset_mechanism: str = "subtraction", dt: float = 1e-3,
        layer_topology: str = "FF", learn_taus: bool = False, learn_thresholds: bool = False,
        surrogate: str | Callable = "fast_sigmoid", device: str = "cpu", detach_reset: bool = False,
    ):  # fmt: skip
        super().__init__()
        if n_neurons < 1:
            raise ModelError(f"LIFLayer: n_neurons is {n_neurons}, must be >= 1")
        if reset_mechanism not in RESETS:
            raise OptionError(unknown_choice("reset_mechanism", reset_mechanism, RESETS))
        if layer_topology not in TOPOLOGIES:
            raise OptionError(unknown_choice("layer_topology", layer_topology, TOPOLOGIES))
        if not 0 < dt < math.inf:
            raise ModelError(f"LIFLayer({n_neurons}): dt is {dt}, must be a number of seconds > 0")
        self.n_neurons, self.dt, self.layer_topology = n_neurons, dt, layer_topology
        self.reset_mechanism, self.surrogate, self.detach_reset = reset_mechanism, named(surrogate), detach_reset
        target = torch_device(device)
        taus, thresholds = self._per_neuron("taus", taus), self._per_neuron("thresholds", thresholds)
        if not (taus > 0).all():
            raise ModelError(f"LIFLayer({n_neurons}): taus are {taus.min():g} s at least, must be > 0")
        if not thresholds.isfinite().all():
            raise ModelError(f"LIFLayer({n_neurons}): thresholds must be finite")
        for name, value, learn in (("taus", taus, learn_taus), ("thresholds", thresholds, learn_thresholds)):
            if learn:
                self.register_parameter(name, torch.nn.Parameter(value.to(target)))
            else:
                self.register_buffer(name, value.to(target))
        if layer_topology == "RC":
            bound = 1 / math.sqrt(n_neurons)
            self.w_rec = torch.nn.Parameter(torch.empty(n_neurons, n_neurons).uniform_(-bound, bound).to(target))
        self._kept: Kept | None = None

    def _per_neuron(self, name: str, value) -> torch.Tensor:
        value = torch.as_tensor(value, dtype=torch.float32).detach().cpu()
        if value.ndim > 1 or value.numel() not in (1, self.n_neurons):
            n, shape = self.n_neurons, tuple(value.shape)
            raise ModelError(f"LIFLayer({n}): {name} of shape {shape} must be a number or of shape [{n}]")
        return value.reshape(-1).expand(self.n_neurons).clone()

    @property
    def beta(self) -> torch.Tensor:
        """Decay in a step, `[N]`: exp(-dt/tau), computed in float64, then rounded to the layer's dtype."""
        return torch.exp(-self.dt / self.taus.double()).to(self.taus.dtype)

    def reset_state(self) -> None:
        """Forget the kept membrane and spikes."""
        self._kept = None

    def neuron_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The part of an input's shape that is neurons. Raises ModelError if it is neither `[B, *]` nor `[B, T, *]`."""
        for n_leading in (2, 1):
            if len(shape) > n_leading and math.prod(shape[n_leading:]) == self.n_neurons:
                return tuple(shape[n_leading:])
        n = self.n_neurons
        raise ModelError(f"LIFLayer({n}): input of shape {tuple(shape)} is neither [B, {n}] nor [B, T, {n}]")

    def forward(self, current: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """`(spikes, mem)`, both of the input's shape and of the layer's dtype."""
        shape, n = current.shape, self.n_neurons
        n_steps = shape[1] if len(shape) - len(self.neuron_shape(shape)) == 2 else 1
        current = current.to(self.thresholds.dtype).reshape(shape[0], n_steps, n)
        kept = self._kept_for(current)
        neurons = Neurons(self.beta, self.thresholds, self.reset_mechanism, self.surrogate, self.detach_reset)
        if self.layer_topology == "RC":
            spikes, mem = recurrent_scan(current, kept.mem, kept.spikes, self.w_rec, neurons)
        else:
            spikes, mem = scan(current, kept.mem, neurons)
        self._kept = kept.after(spikes, mem)
        return spikes.reshape(shape), mem.reshape(shape)

    def _kept_for(self, current: torch.Tensor) -> Kept:
        n_samples, n = len(current), self.n_neurons
        if self._kept is None:
            zeros = current.new_zeros(n_samples, n)
            return Kept(zeros, zeros)
        n_kept = len(self._kept.mem)
        if n_kept != n_samples:
            raise ModelError(
                f"LIFLayer({n}): the batch has {n_samples} samples, the kept state has {n_kept}; "
                "call nwcompile.nn.prepare_net(model) before a new batch"
            )
        return self._kept.constant() if self._kept.used.value else self._kept

    def _apply(self, fn, recurse=True):
        super()._apply(fn, recurse)
        if self._kept is not None:
            kept = self._kept.constant()
            self._kept = Kept(fn(kept.mem), fn(kept.spikes))
        return self

    def __getstate__(self):
        return {**self.__dict__, "_kept": self._kept and self._kept.constant()}

    def extra_repr(self) -> str:
        return f"{self.n_neurons}, reset_mechanism={self.reset_mechanism!r}, layer_topology={self.layer_topology!r}"


def prepare_net(model: torch.nn.Module) -> None:
    """Clear the kept state of every layer in `model`: call it before each new batch or sequence."""
    for module in model.modules():
        if isinstance(module, LIFLayer):
            module.reset_state()
