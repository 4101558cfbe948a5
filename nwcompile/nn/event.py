"""Layers in continuous time, whose inputs and outputs are spike times with exact gradients.

Gradients of spike times are exact (EventProp, see `kernels/layers/spike_times.py`), without surrogates and steps.
Times are tensors `[B, N, S]` in seconds, ordered, with at most S spikes per neuron and infinity as padding.
"""

from math import exp, inf, log, sqrt

import numpy as np
import torch

from nwcompile.argument_types import checked
from nwcompile.errors import ModelError, OptionError, unknown_choice
from nwcompile.kernels.layers.spike_times import MOST_COUNTED, Membrane, spike_time_adjoint, spike_times
from nwcompile.nn.layers.lif import fill_weights
from nwcompile.nn.ops.threads import run_on_threads, split_ranges

ERROR_CODE = "NW8001"
DELAYS = ("axon", "synapse")


class EventLIF(torch.nn.Module):
    """Leaky integrate-and-fire neurons with exponential synapses: spike times in, spike times out.

    The dynamics are tau_mem v' = i - v and tau_syn i' = -i. A spike adds its weight to i. When v reaches the threshold,
    the neuron spikes and v is set to 0; i is not reset. `weight` has the shape `[n_in, n_out]`. Times and time
    constants are in seconds; input and output end at `t_end`. More than `max_spikes` spikes of a neuron raise
    ModelError. With `once` a neuron is silent after its first spike.

    `delays` is None, "axon" (`[n_in]`) or "synapse" (`[n_in, n_out]`). Delays are trained between 0 and `max_delay`
    seconds and start at 0. The tensor `delay` may be changed; the next call clips it to the bounds. `init` is a tensor
    of weights, or a function that fills one in place. Without it, weights are drawn such that one spike of every input
    brings v roughly to the threshold.

    Gradients are those of spike times: a neuron that does not spike has none, and a membrane that just touches the
    threshold has an unbounded one. There are no second derivatives. Computed in float64 on the CPU; memory grows with
    the number of spikes, not with time.
    """

    @checked()
    def __init__(
        self,
        n_in: int,
        n_out: int,
        *,
        t_end: float,
        tau_mem: float = 20e-3,
        tau_syn: float = 5e-3,
        threshold: float = 1.0,
        max_spikes: int = 16,
        once: bool = False,
        delays: str | None = None,
        max_delay: float | None = None,
        init=None,
    ):
        super().__init__()
        self.name = f"EventLIF({n_in}, {n_out})"
        if min(n_in, n_out, max_spikes) < 1:
            raise ModelError(f"{self.name}: n_in, n_out and max_spikes must be 1 or more")
        numbers = {"t_end": t_end, "tau_mem": tau_mem, "tau_syn": tau_syn, "threshold": threshold}
        for name, value in numbers.items():
            if not 0 < value < inf:
                raise ModelError(f"{self.name}: {name} is {value}, must be a number > 0")
        if delays is not None and delays not in DELAYS:
            raise OptionError(unknown_choice("delays", delays, DELAYS))
        if (delays is None) != (max_delay is None) or not 0 < (max_delay or 1.0) < inf:
            raise OptionError(f"{self.name}: delays and max_delay, in seconds > 0, go together")
        self.n_in, self.n_out, self.max_delay = n_in, n_out, max_delay or 0.0
        self.max_spikes = 1 if once else max_spikes
        self.membrane = Membrane(float(tau_mem), float(tau_syn), float(threshold), float(t_end), once)
        self.weight = torch.nn.Parameter(self._init_weights(init))
        shape = {None: None, "axon": (n_in,), "synapse": (n_in, n_out)}[delays]
        self.delay = None if shape is None else torch.nn.Parameter(torch.zeros(shape))

    def _init_weights(self, init) -> torch.Tensor:
        weight = torch.empty(self.n_in, self.n_out)
        if init is None:
            unit = self.membrane.threshold / _compute_peak(self.membrane)
            return weight.normal_(unit / self.n_in, unit / sqrt(self.n_in))
        if callable(init):
            fill_weights(self.name, init, weight)
            return weight
        try:
            given = torch.as_tensor(init).detach().clone()
        except (TypeError, ValueError, RuntimeError, OverflowError):
            raise ModelError(f"{self.name}: init must be numbers, not {type(init).__name__}") from None
        if given.shape != weight.shape:
            raise ModelError(f"{self.name}: init has shape {tuple(given.shape)}, not {tuple(weight.shape)}")
        return given

    def forward(self, times: torch.Tensor) -> torch.Tensor:
        """Turn spike times `[B, n_in, S]` into spike times `[B, n_out, max_spikes]`, in the dtype of the weights."""
        if times.dim() != 3 or times.shape[1] != self.n_in:
            raise ModelError(f"{self.name}: input of shape {tuple(times.shape)} must be [B, {self.n_in}, spikes]")
        if times.device.type != "cpu" or self.weight.device.type != "cpu":
            raise ModelError(f"{self.name}: event layers run on the CPU; move the layer and its input there")
        if not (times >= 0).all():
            raise ModelError(f"{self.name}: spike times must be 0 or more, infinity where there is none, and not NaN")
        for name, parameter in self.named_parameters():
            if not parameter.isfinite().all():
                raise ModelError(
                    f"{self.name}: {name} holds NaN or infinity; train with a lower rate or clip gradients"
                )
        delay = self.delay
        if delay is not None and not ((delay >= 0) & (delay <= self.max_delay)).all():
            with torch.no_grad():
                delay.clamp_(0, self.max_delay)
        if delay is not None and delay.dim() == 1:
            times, delay = times + delay[:, None], None
        out, n_spikes = _SpikeTimes.apply(times, self.weight, delay, self.membrane, self.max_spikes)
        if n_spikes > self.max_spikes:
            more = " or more" if n_spikes == MOST_COUNTED else ""
            raise ModelError(
                f"{self.name}: a neuron spikes {n_spikes} times{more}, and max_spikes is {self.max_spikes}; raise it, "
                "or lower the weights"
            )
        return out

    def extra_repr(self) -> str:
        m = self.membrane
        return f"{self.n_in}, {self.n_out}, t_end={m.t_end}, tau_mem={m.tau_mem}, tau_syn={m.tau_syn}"


@checked()
def first_spike_loss(times: torch.Tensor, labels: torch.Tensor, tau: float, t_end: float) -> torch.Tensor:
    """Return the cross-entropy of `-t / tau` over the first spike times t of `[B, classes, S]`; the earliest wins.

    tau and t_end are in seconds. A neuron without a spike counts as spiking at `t_end`, and has no gradient. `labels`
    are whole numbers `[B]`. Raises ModelError for times or labels of another shape, OptionError unless tau and t_end
    are numbers > 0.
    """
    if times.dim() != 3 or times.shape[2] == 0:
        raise ModelError(
            f"first_spike_loss: times of shape {tuple(times.shape)} must be [B, classes, 1 or more spikes]"
        )
    if not (0 < tau < inf and 0 < t_end < inf):
        raise OptionError(f"first_spike_loss: tau is {tau} and t_end {t_end}; both must be seconds > 0")
    if labels.shape != times.shape[:1] or labels.dtype not in (torch.int64, torch.uint8):
        raise ModelError(
            f"first_spike_loss: labels of shape {tuple(labels.shape)} and {labels.dtype} must be whole numbers, "
            f"one for each of {len(times)} samples"
        )
    first = times[:, :, 0].clamp(max=t_end)
    return torch.nn.functional.cross_entropy(-first / tau, labels)


class _SpikeTimes(torch.autograd.Function):
    """Spike times and their adjoint, over blocks of samples that do not depend on the number of threads."""

    @staticmethod
    def forward(ctx, times, weight, delay, membrane, max_spikes):
        events = _Events(times.detach().double().numpy(), membrane.t_end)
        weights, delays = _to_kernel_arrays(weight, delay)
        shape = (len(times), weight.shape[1], max_spikes)
        spikes, current = np.full(shape, inf), np.zeros(shape)
        blocks = split_ranges(len(times), len(events.time) * weight.shape[1])
        n_spikes = [0] * len(blocks)

        def compute_block(k: int) -> None:
            part = slice(*blocks[k])
            given = (*events.select_samples(part), weights, delays, membrane)
            n_spikes[k] = spike_times(*given, spikes[part], current[part])

        run_on_threads(compute_block, len(blocks))
        ctx.kept = events, blocks, membrane, spikes, current
        ctx.save_for_backward(times, weight, delay)  # torch refuses a backward pass if they have changed
        return torch.from_numpy(spikes).to(weight.dtype, copy=True), max(n_spikes, default=0)

    @staticmethod
    def backward(ctx, grad_spikes, _):
        if torch.is_grad_enabled():
            raise ModelError("EventLIF has no second derivatives; go back without create_graph")
        events, blocks, membrane, spikes, current = ctx.kept
        times, weight, delay = ctx.saved_tensors
        weights, delays = _to_kernel_arrays(weight, delay)
        asked = np.ascontiguousarray(grad_spikes.double().numpy())
        of_weight, of_delay = (np.zeros((len(blocks), *array.shape)) for array in (weights, delays))
        of_time = np.zeros(len(events.time))

        def compute_block(k: int) -> None:
            part = slice(*blocks[k])
            given = (*events.select_samples(part), weights, delays, membrane, spikes[part], current[part], asked[part])
            spike_time_adjoint(*given, of_weight[k], of_delay[k], of_time[events.event_span(part)])

        run_on_threads(compute_block, len(blocks))
        of_times = torch.from_numpy(events.scatter_gradients(of_time)).to(times.dtype)
        given_delay = None if delay is None else torch.from_numpy(of_delay.sum(0).T).to(delay.dtype)
        return of_times, torch.from_numpy(of_weight.sum(0).T).to(weight.dtype), given_delay, None, None


def _to_kernel_arrays(weight: torch.Tensor, delay: torch.Tensor | None) -> tuple[np.ndarray, np.ndarray]:
    """Return weights and delays as kernels read them, float64[n_out, n_in]; [0, 0] if there are no delays."""
    given = (torch.zeros(0, 0) if delay is None else delay), weight
    delays, weights = (np.ascontiguousarray(tensor.detach().double().numpy().T) for tensor in given)
    return weights, delays


class _Events:
    """The spikes of `times` [B, N, S] before `t_end`, by sample, then by time, as kernels read them."""

    def __init__(self, times: np.ndarray, t_end: float):
        self.shape = times.shape
        flat = times.reshape(len(times), times.shape[1] * times.shape[2])
        order = np.argsort(flat, axis=1, kind="stable")
        sorted_times = np.take_along_axis(flat, order, 1)
        is_before = sorted_times < t_end
        self.time = sorted_times[is_before]
        self.place = (order + np.arange(len(flat))[:, None] * flat.shape[1])[is_before]  # in the flat tensor
        self.first = np.concatenate([[0], np.cumsum(is_before.sum(1))])

    def event_span(self, samples: slice) -> slice:
        """Return the slice of the events of consecutive samples."""
        return slice(self.first[samples.start], self.first[samples.stop])

    def select_samples(self, samples: slice) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return time, source and first of consecutive samples."""
        span = self.event_span(samples)
        source = self.place[span] // max(self.shape[2], 1) % self.shape[1]
        return self.time[span], source, self.first[samples.start : samples.stop + 1] - span.start

    def scatter_gradients(self, of_time: np.ndarray) -> np.ndarray:
        """Scatter one number per event to its place in `[B, N, S]`; other places are 0."""
        whole = np.zeros(self.shape)
        whole.reshape(-1)[self.place] = of_time
        return whole


def _compute_peak(membrane: Membrane) -> float:
    """Return the largest v after one spike of weight 1."""
    mem, syn = membrane.tau_mem, membrane.tau_syn
    if abs(mem - syn) < 1e-6 * mem:
        return exp(-1.0)
    t = log(mem / syn) * mem * syn / (mem - syn)
    return syn / (mem - syn) * (exp(-t / mem) - exp(-t / syn))
