"""Trainable delays of axons (Delay), of synapses (DelayedLinear) and of a convolution's weights (DelayedConv2d).

Delays are in steps. Training treats them as real numbers, with a surrogate (`nwcompile.nn.ops.delays`). In eval mode,
in an import and on a chip they are whole numbers.
"""

import math
from dataclasses import dataclass
from numbers import Integral

import torch

from nwcompile.argument_types import checked
from nwcompile.errors import ModelError, OptionError, shown, unknown_choice
from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Conv2d, pair, synapse_list
from nwcompile.nn.layers.lif import LIFSynapse, as_floats, verify_device
from nwcompile.nn.layers.prepare import Prepared, verify_forward
from nwcompile.nn.ops.delays import SURROGATES, SynapseLists, build_synapse_lists, compute_taps, delayed_sums
from nwcompile.nn.ops.device import torch_device
from nwcompile.nn.ops.torch_ops import KERNEL_DTYPES, is_used_up


@dataclass(frozen=True, eq=False)
class History:
    """The last input steps of a layer, `[B, max_delay, n_in]`, and its last result `given`, which knows their graph."""

    steps: torch.Tensor
    given: torch.Tensor


LONGEST = 1 << 24  # steps; delays are trained as float32, which holds whole numbers exactly up to here


class Delays(Prepared):
    """The delays of a layer: the parameter `steps`, of any shape, from 0 to `max_delay` steps.

    max_delay: a whole number of steps, or a Chip or its name, which stands for the chip's longest delay. init: the
    initial steps, a number or a tensor of the shape; by default uniform from 0 to max_delay. surrogate: "linear" or
    "gaussian" (`nwcompile.nn.ops.delays`). width: its width, 0 to round; `DelayAnnealing` changes this attribute.
    learn: False makes steps a buffer. Steps that an optimizer moves out of range are clipped.
    Raises ModelError for an init out of range, OptionError for other arguments.
    """

    steps: torch.Tensor

    def __init__(
        self,
        where: str,
        shape: tuple[int, ...],
        max_delay: int | Chip | str,
        init=None,
        surrogate: str = "linear",
        width: float = 1.0,
        learn: bool = True,
        device: str = "cpu",
    ):
        super().__init__()
        self.where, self.max_delay = where, read_max_delay(where, max_delay)
        if surrogate not in SURROGATES:
            raise OptionError(unknown_choice("surrogate", surrogate, SURROGATES))
        widest = 1.0 if surrogate == "linear" else float(max(1, self.max_delay))
        if not 0 <= width <= widest:
            raise OptionError(f"{where}: width is {width}, must be 0..{widest:g} for the {surrogate} surrogate")
        self.surrogate, self.width = surrogate, float(width)
        steps = torch.rand(shape) * self.max_delay
        if init is not None:
            steps = as_floats(f"{where}: init_delay", init).cpu()
            if steps.ndim and steps.shape != torch.Size(shape):
                raise ModelError(f"{where}: init_delay has shape {tuple(steps.shape)}, not {tuple(shape)}")
            if not ((steps >= 0) & (steps <= self.max_delay)).all():
                raise ModelError(
                    f"{where}: init_delay is {steps.min():g} to {steps.max():g} steps, must be within 0..max_delay, "
                    f"which is {self.max_delay}"
                )
            steps = steps.expand(shape).clone()
        steps = steps.to(torch_device(device))
        if learn:
            self.register_parameter("steps", torch.nn.Parameter(steps))
        else:
            self.register_buffer("steps", steps)
        self._history: History | None = None
        self._lists: SynapseLists | None = None

    @property
    def rounded_steps(self) -> torch.Tensor:
        """The delays in whole steps, int32 in the shape of `steps`."""
        self._verify_numbers()
        return compute_taps(self.steps, self.max_delay, 0.0, self.surrogate)[0]

    def prepare(self, name: str, seed: int | None, mismatch_in_eval: bool) -> None:
        super().prepare(name, seed, mismatch_in_eval)
        self._history = None
        self._verify_numbers()
        with torch.no_grad():
            if not ((self.steps >= 0) & (self.steps <= self.max_delay)).all():  # else earlier graphs stay valid
                self.steps.clamp_(0, self.max_delay)

    def _verify_numbers(self) -> None:
        if n_lost := int(self.steps.isnan().sum()):
            raise ModelError(
                f"{self.where}: {n_lost} of {self.steps.numel()} delays are NaN; go back to an earlier state of the "
                "network, and train with a lower learning rate"
            )

    def get_lists(self, make) -> SynapseLists:
        """Return the layer's synapse lists; call `make()` for them once."""
        if self._lists is None:
            self._lists = make().to(self.steps.device)
        return self._lists

    def forget_lists(self) -> None:
        """Rebuild the lists at their next use."""
        self._lists = None

    def sum_taps(self, x: torch.Tensor, weight: torch.Tensor, lists: SynapseLists, place: torch.Tensor | None):
        """Sum the delayed synapses for x, `[B, T, n_in]` or one step `[B, n_in]`; continue from the last call.

        weight: in the shape of `steps`. place: int64[synapse], the entry of `weight` of each synapse; None if each
        synapse has its own. Returns `[B, T, n_out]` or `[B, n_out]`.
        """
        if weight.dtype not in KERNEL_DTYPES:
            raise ModelError(
                f"{self.where}: is of {weight.dtype}, and layers with delays compute in float32 or float64; call "
                ".float() on it"
            )
        steps = self.steps if self.steps.dtype == weight.dtype else self.steps.to(weight.dtype)
        width = self.width if self.training else 0.0
        start, shares = compute_taps(steps.clamp(0, self.max_delay), self.max_delay, width, self.surrogate)
        taps = (weight[..., None] * shares).flatten(0, -2)
        start = start.reshape(-1)
        if place is not None:
            taps, start = taps[place], start[place]
        given = x[:, None] if x.ndim == 2 else x
        before = self._recall_history(given)
        whole = given if before is None else torch.cat([before, given], 1)
        out = delayed_sums(whole.contiguous(), taps, start, lists, self.max_delay)
        if before is not None:
            out = out[:, before.shape[1] :]
        self._save_history(whole, out)
        return out[:, 0] if x.ndim == 2 else out

    def _recall_history(self, x: torch.Tensor) -> torch.Tensor | None:
        history = self._history
        if history is None:
            return None
        if len(history.steps) != len(x):
            raise ModelError(
                f"{self.where}: the batch has {len(x)} samples, the kept steps have {len(history.steps)}; call "
                "nwcompile.nn.prepare_net(model) before a new batch"
            )
        if history.steps.shape[2] != x.shape[2]:
            raise ModelError(
                f"{self.where}: a step has {x.shape[2]} numbers, the kept steps have {history.steps.shape[2]}; call "
                "nwcompile.nn.prepare_net(model) before input of another size"
            )
        verify_forward(self.where)
        return history.steps.detach() if is_used_up(history.given) else history.steps

    def _save_history(self, x: torch.Tensor, out: torch.Tensor) -> None:
        if torch.compiler.is_compiling() or self.max_delay == 0:
            return
        n_missing = self.max_delay - x.shape[1]
        kept = x[:, -self.max_delay :]
        if n_missing > 0:
            kept = torch.nn.functional.pad(kept, (0, 0, n_missing, 0))
        self._history = History(kept, out)

    def _apply(self, fn, recurse=True):
        self._history, self._lists = None, None
        return super()._apply(fn, recurse)

    def __getstate__(self):
        return {**super().__getstate__(), "_history": None, "_lists": None}

    def extra_repr(self) -> str:
        return f"max_delay={self.max_delay}, surrogate={self.surrogate!r}, width={self.width:g}"


class Delay(Prepared):
    """Delays of `n` axons: out[t] = x[t - d], and 0 before the first step.

    The input is `[B, T, *shape]` or one step `[B, *shape]`, where `shape` holds n axons. T calls of one step equal one
    call of T steps; `prepare_net` clears the stored steps. Arguments are those of `Delays`; `delays.steps` is `[n]`.
    """

    @checked("n", "width", "learn_delays", "surrogate", "device")
    def __init__(
        self,
        n: int,
        max_delay: int | Chip | str,
        init_delay=None,
        surrogate: str = "linear",
        width: float = 1.0,
        learn_delays: bool = True,
        device: str = "cpu",
    ):
        super().__init__()
        where = f"Delay({n})"
        if n < 1:
            raise ModelError(f"{where}: the number of axons must be >= 1")
        self.n = n
        self.delays = Delays(where, (n,), max_delay, init_delay, surrogate, width, learn_delays, device)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the delayed input, in the shape of `x`."""
        steps = self.delays.steps
        verify_device(x, steps, self.delays.where)
        n_leading = next((k for k in (2, 1) if x.ndim > k and math.prod(x.shape[k:]) == self.n), None)
        if n_leading is None:
            shape = tuple(x.shape)
            raise ModelError(
                f"{self.delays.where}: input of shape {shape} is neither [B, {self.n}] nor [B, T, {self.n}]"
            )
        axons = torch.arange(self.n)
        lists = self.delays.get_lists(lambda: build_synapse_lists(axons, axons, self.n, self.n))
        flat = x.flatten(n_leading).to(steps.dtype)
        return self.delays.sum_taps(flat, torch.ones_like(steps), lists, None).reshape(x.shape)

    def extra_repr(self) -> str:
        return f"{self.n}"


class DelayedLinear(LIFSynapse):
    """A LIFSynapse with a delay per synapse: current[t, o] = sum over i of weight[i, o] * x[t - d[i, o], i].

    The input is `[B, T, n_in]` or one step `[B, n_in]`. T calls of one step equal one call of T steps; `prepare_net`
    clears the stored steps. `weight` and `delays.steps` are `[n_in, n_out]`. `init` is that of LIFSynapse, the other
    arguments are those of `Delays`. Without `init_delay` delays are uniform from 0 to max_delay.
    """

    @checked("n_in", "n_out", "width", "learn_delays", "surrogate", "device")
    def __init__(
        self,
        n_in: int,
        n_out: int,
        max_delay: int | Chip | str,
        init=None,
        init_delay=None,
        surrogate: str = "linear",
        width: float = 1.0,
        learn_delays: bool = True,
        device: str = "cpu",
    ):
        super().__init__(n_in, n_out, device, init)
        where = f"DelayedLinear({n_in}, {n_out})"
        self.delays = Delays(where, (n_in, n_out), max_delay, init_delay, surrogate, width, learn_delays, device)

    def forward(self, spikes: torch.Tensor) -> torch.Tensor:
        """Turn spikes `[B, T, n_in]` or `[B, n_in]` of any dtype into currents `[B, T, n_out]` or `[B, n_out]`."""
        if spikes.ndim not in (2, 3) or spikes.shape[-1] != self.n_in:
            shape, n = tuple(spikes.shape), self.n_in
            raise ModelError(f"{self.delays.where}: input of shape {shape} is neither [B, {n}] nor [B, T, {n}]")
        verify_device(spikes, self.weight, self.delays.where)
        weight = self.effective_weight()
        return self.delays.sum_taps(spikes.to(weight.dtype), weight, self.delays.get_lists(self._list_synapses), None)

    def _list_synapses(self) -> SynapseLists:
        source, target = torch.cartesian_prod(torch.arange(self.n_in), torch.arange(self.n_out)).T
        return build_synapse_lists(source, target, self.n_in, self.n_out)


class DelayedConv2d(Prepared):
    """A convolution without bias and with a delay per weight, the same at every position of the map.

    The input is `[B, T, C, H, W]` or one step `[B, C, H, W]`. T calls of one step equal one call of T steps;
    `prepare_net` clears the stored steps. `weight` and `delays.steps` are `[C_out, C_in / groups, rows, columns]`.
    Without an `init` weights are uniform in +-1/sqrt(inputs of an output). Sizes are those of torch.nn.Conv2d, the
    other arguments those of `Delays`. All synapses are listed, so it suits small maps: memory grows with
    outputs * kernel * channels.
    """

    @checked("in_channels", "out_channels", "kernel_size", "stride", "padding", "dilation", "groups", "width",
             "learn_delays", "surrogate", "device")  # fmt: skip
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, int],
        max_delay: int | Chip | str,
        stride: int | tuple[int, int] = 1,
        padding: int | tuple[int, int] = 0,
        dilation: int | tuple[int, int] = 1,
        groups: int = 1,
        init=None,
        init_delay=None,
        surrogate: str = "linear",
        width: float = 1.0,
        learn_delays: bool = True,
        device: str = "cpu",
    ):
        super().__init__()
        where = f"DelayedConv2d({in_channels}, {out_channels})"
        if min(pair(kernel_size)) < 1:
            raise ModelError(f"{where}: kernel_size={kernel_size} must be whole numbers >= 1")
        if min(in_channels, out_channels, groups) < 1 or in_channels % groups or out_channels % groups:
            raise ModelError(f"{where}: channels must be >= 1 and multiples of groups, which is {groups}")
        shape = (out_channels, in_channels // groups, *pair(kernel_size))
        bound = 1 / math.sqrt(math.prod(shape[1:]))
        weight = torch.empty(shape).uniform_(-bound, bound)
        if init is not None:
            weight = as_floats(f"{where}: init", init)
            if weight.shape != shape:
                raise ModelError(f"{where}: init has shape {tuple(weight.shape)}, not {shape}")
        self.weight = torch.nn.Parameter(weight.to(torch_device(device)))
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size, self.stride, self.padding, self.dilation = shape[2:], stride, padding, dilation
        self.delays = Delays(where, shape, max_delay, init_delay, surrogate, width, learn_delays, device)
        self._listed_for: tuple[int, ...] | None = None

    def connection(self, source: str, target: str, delay: int | None = None) -> Conv2d:
        """Return the convolution with its current weights and one `delay` for all of them."""
        weight = self.weight.detach().float().cpu().numpy().copy()
        sizes = {key: getattr(self, key) for key in ("stride", "padding", "dilation", "groups")}
        return Conv2d(source, target, weight, delay=delay, **sizes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the currents, `[B, T, C_out, H_out, W_out]`, or without T for one step."""
        if x.ndim not in (4, 5) or x.shape[-3] != self.in_channels:
            shape, n = tuple(x.shape), self.in_channels
            raise ModelError(
                f"{self.delays.where}: input of shape {shape} is neither [B, {n}, H, W] nor [B, T, {n}, H, W]"
            )
        verify_device(x, self.weight, self.delays.where)
        shape = tuple(x.shape[-3:])
        if shape != self._listed_for:
            self._listed_for = shape
            self.delays.forget_lists()
            connection = self.connection("input", "output")
            self._output_shape = connection.output_shape(shape)
            self._synapses = tuple(torch.from_numpy(ends).long() for ends in synapse_list(connection, shape))
        source, target, place = self._synapses
        n_in, n_out = math.prod(shape), math.prod(self._output_shape)
        lists = self.delays.get_lists(lambda: build_synapse_lists(source, target, n_in, n_out))
        flat = x.flatten(-3).to(self.weight.dtype)
        return self.delays.sum_taps(flat, self.weight, lists, place.to(x.device)).unflatten(-1, self._output_shape)

    def extra_repr(self) -> str:
        return f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"


class DelayAnnealing:
    """Shrinks the width of all delays of `model` to 0 in `n_steps` steps, for example one per epoch.

    After k steps the width is width * (1 - k / n_steps). At 0 delays are whole numbers in training too: they get no
    gradient any more, and only weights are trained. Raises ModelError for a model without delays, OptionError for
    n_steps < 1.
    """

    @checked()
    def __init__(self, model: torch.nn.Module, n_steps: int):
        self.delays = [m for m in model.modules() if isinstance(m, Delays)]
        if not self.delays:
            raise ModelError(f"DelayAnnealing: {type(model).__name__} has no Delay, DelayedLinear or DelayedConv2d")
        if n_steps < 1:
            raise OptionError(f"DelayAnnealing: n_steps is {n_steps}, must be >= 1")
        self.n_steps, self.n_done = n_steps, 0
        self.widths = [m.width for m in self.delays]

    def step(self) -> None:
        """Shrink the widths by one step."""
        self.n_done = min(self.n_done + 1, self.n_steps)
        for delays, width in zip(self.delays, self.widths, strict=True):
            delays.width = width * (1 - self.n_done / self.n_steps)


@checked()
def freeze_delays(model: torch.nn.Module) -> None:
    """Round the delays of `model` to whole steps permanently and stop training them.

    Raises ModelError for a model without delays.
    """
    layers = [m for m in model.modules() if isinstance(m, Delays)]
    if not layers:
        raise ModelError(f"freeze_delays: {type(model).__name__} has no Delay, DelayedLinear or DelayedConv2d")
    for delays in layers:
        with torch.no_grad():
            delays.steps.copy_(delays.rounded_steps)
        delays.steps.requires_grad_(False)
        delays.width = 0.0


def read_max_delay(where: str, max_delay: int | Chip | str) -> int:
    """Return the longest delay in steps, given as a number, a chip or the name of a chip."""
    if isinstance(max_delay, str):
        max_delay = Chip.load(max_delay)
    if isinstance(max_delay, Chip):
        if max_delay.neuron.delay_max_steps == 0:
            raise ModelError(
                f"{where}: {max_delay.name} has no delays (neuron.delay_max_steps is 0); give max_delay as a number of "
                "steps, which compile holds in relay neurons there"
            )
        return max_delay.neuron.delay_max_steps
    if isinstance(max_delay, bool) or not isinstance(max_delay, Integral) or max_delay < 0:
        raise OptionError(f"{where}: max_delay is {max_delay!r}, must be a whole number of steps >= 0 or a chip")
    if max_delay > LONGEST:
        raise OptionError(f"{where}: max_delay is {shown(max_delay)}, above the longest supported, {LONGEST} steps")
    return int(max_delay)
