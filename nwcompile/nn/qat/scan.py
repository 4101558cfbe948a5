"""Integer neurons over time as a differentiable operation: forward as in the simulators, backward by a surrogate."""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, prod

import numpy as np
import torch

from nwcompile.errors import ModelError
from nwcompile.ir.network import Network, Node
from nwcompile.ir.neuron import RESET_TIMINGS, RESETS, SPIKES
from nwcompile.kernels.cores.neuron import Neurons
from nwcompile.kernels.layers.integer_backward import (
    N_SUMS,
    ForwardTrace,
    LayerUnits,
    integer_backward,
    integer_forward,
)
from nwcompile.nn.ops.threads import run_on_threads, split_ranges
from nwcompile.sim.sequence import tables

NOTHING = np.zeros((0, 0, 0), np.float32)
NO_STATES = np.zeros((0, 0, 0), np.int64)


@dataclass(frozen=True, eq=False)
class IntegerNeurons:
    """The current neurons of one layer, as kernels take them.

    `surrogate` returns the derivative of a spike from the membrane minus the threshold, in the float network's units.
    `detach_reset`: no gradient through a reset. `shows_membrane`: return the membranes, with a gradient.
    """

    name: str
    rules: Neurons
    units: LayerUnits
    spikes: str
    reset: str
    timing: str
    surrogate: Callable
    detach_reset: bool
    shows_membrane: bool

    @classmethod
    def from_node(cls, node: Node, unit: np.ndarray, surrogate: Callable, detach_reset: bool) -> "IntegerNeurons":
        """Build from a fixed-point layer; one unit of its state is `unit` (float64[neuron]) in the float network."""
        spec, shape = node.neuron, node.shape

        def neuron_parameter(name: str) -> np.ndarray:
            return spec.array(name, shape).reshape(-1).astype(np.float64)

        keep_u, keep_v = (1 - spec.fixed.lost(neuron_parameter(name)) for name in ("decay_u", "decay_v"))
        drive = unit * (1 << spec.fixed.shift_bits) * (keep_u if spec.fixed.shifts else 1)  # added before a shift decay
        v_min = np.full(node.n_neurons, -inf) if spec.v_min is None else neuron_parameter("v_min") * unit
        reset_value = neuron_parameter("reset_value") * unit if spec.reset == "value" else np.zeros(node.n_neurons)
        units = LayerUnits(
            unit=_as_float32(unit),
            drive=_as_float32(drive),
            threshold=_as_float32(neuron_parameter("threshold") * unit),
            keep_u=_as_float32(keep_u),
            keep_v=_as_float32(keep_v),
            reset_value=_as_float32(reset_value),
            v_min=_as_float32(v_min),
        )
        rules = tables.neuron_tables(Network({}, {node.name: node}, ()), [node.name])
        return cls(
            name=node.name,
            rules=rules,
            units=units,
            spikes=spec.spikes,
            reset=spec.reset,
            timing=spec.reset_timing,
            surrogate=surrogate,
            detach_reset=detach_reset,
            shows_membrane=not spec.fires,
        )

    def threshold_distance(self, before: torch.Tensor) -> torch.Tensor:
        """Return how far membranes `[B, T, N]` are above the nearest threshold that decides a spike."""
        threshold = torch.from_numpy(self.units.threshold)
        if self.spikes == "multi":
            return before - (before / threshold).round().clamp(min=1) * threshold
        if self.spikes == "bipolar":
            return before.abs() - threshold
        if self.spikes == "gated":
            return torch.maximum(before - threshold, -before)
        return before - threshold


def _as_float32(numbers: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(numbers, np.float32)


def run(
    drive: torch.Tensor,
    state: torch.Tensor | None,
    learned: tuple[torch.Tensor, ...],
    neurons: IntegerNeurons,
    recorded: dict | None,
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor]:
    """Run a layer; return spikes and membranes (or None), float32[B, T, N], and the last state, float64[3, B, N].

    `drive`: whole numbers [B, T, N], float32 or float64. `state`: last state of the previous call, None at first.
    `learned`: the parameters that the integers are rounded from, float32[N] each, in the float network's units: bias of
    u and v, threshold, decay factors of u and v. `recorded`: receives `u` and `v`, int64[B, T, N].
    """
    return _Scan.apply(drive, state, *learned, neurons, recorded)


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(ctx, drive, state, bias_u, bias_v, threshold, keep_u, keep_v, neurons, recorded):
        n_samples, n_steps, n = drive.shape
        integers = np.zeros((3, n_samples, n), np.int64)
        integers[2] = tables.LONG_AGO
        if state is not None:
            integers[:] = state.detach().numpy()
        learns = ctx.needs_input_grad[5] or ctx.needs_input_grad[6]
        shape = drive.shape
        spikes = np.empty(shape, np.float32)
        trace = ForwardTrace(
            before=np.empty(shape, np.float32),
            late=np.empty(shape, np.float32) if neurons.timing != "now" else NOTHING,
            after=np.empty(shape, np.float32) if learns or neurons.shows_membrane else NOTHING,
            current=np.empty(shape, np.float32) if learns else NOTHING,
        )
        u, v = (np.empty(shape, np.int64) for _ in range(2)) if recorded is not None else (NO_STATES, NO_STATES)
        start = NOTHING if state is None else (integers[:2] * neurons.units.unit).astype(np.float32)
        given = np.ascontiguousarray(drive.detach().numpy())
        rows = split_ranges(n_samples, prod(shape))

        def run_samples(k: int) -> None:
            samples = slice(*rows[k])
            integer_forward(
                neurons.rules,
                given[samples],
                integers[:, samples],
                neurons.units.unit,
                spikes[samples],
                ForwardTrace(*(stored[samples] for stored in trace)),
                u[samples],
                v[samples],
                tables.resting_states(n),
            )

        run_on_threads(run_samples, len(rows))
        if recorded is not None:
            recorded |= {"u": u, "v": v}
        after = torch.from_numpy(trace.after) if neurons.shows_membrane else None
        spikes = torch.from_numpy(spikes)
        ctx.trace, ctx.start, ctx.neurons, ctx.dtype = trace, start, neurons, drive.dtype
        ctx.save_for_backward(spikes)
        ctx.set_materialize_grads(False)
        return spikes, after, torch.from_numpy(integers.astype(np.float64))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, of_spikes, of_after, of_last):
        (spikes,) = ctx.saved_tensors
        trace = ctx.trace
        neurons = ctx.neurons
        n_samples, n_steps, n = spikes.shape
        before = torch.from_numpy(trace.before)
        slope = np.ascontiguousarray(neurons.surrogate(neurons.threshold_distance(before)).numpy(), np.float32)
        of_spikes = np.zeros(spikes.shape, np.float32) if of_spikes is None else read_gradient(of_spikes, neurons.name)
        of_after = NOTHING if of_after is None else read_gradient(of_after, neurons.name)
        of_state = np.zeros((2, n_samples, n), np.float32)
        if of_last is not None:
            of_state[:] = of_last[:2].numpy()
        of_drive = np.empty(spikes.shape, np.float32)
        rows = split_ranges(n_samples, spikes.numel())
        sums = np.zeros((len(rows), N_SUMS, n))
        kind = SPIKES.index(neurons.spikes), RESETS.index(neurons.reset), RESET_TIMINGS.index(neurons.timing)

        def run_samples(k: int) -> None:
            samples = slice(*rows[k])
            integer_backward(
                neurons.units,
                kind,
                neurons.detach_reset,
                of_spikes[samples],
                of_after[samples],
                slope[samples],
                spikes.numpy()[samples],
                ForwardTrace(*(stored[samples] for stored in trace)),
                ctx.start[:, samples],
                of_state[:, samples],
                of_drive[samples],
                sums[k],
            )

        run_on_threads(run_samples, len(rows))
        learned = [torch.from_numpy(total.astype(np.float32)) for total in sums.sum(0)]
        learned = [g if needs else None for g, needs in zip(learned, ctx.needs_input_grad[2:7], strict=True)]
        state = None
        if ctx.needs_input_grad[1]:
            state = torch.from_numpy(np.concatenate([of_state, np.zeros((1, n_samples, n), np.float32)])).double()
        return torch.from_numpy(of_drive).to(ctx.dtype), state, *learned, None, None


def read_gradient(grad: torch.Tensor, layer: str) -> np.ndarray:
    """Return the gradient of a layer's output as an array. Raises ModelError for NaN and infinity."""
    if not torch.stack(grad.aminmax()).isfinite().all():
        raise ModelError(
            f"layer {layer!r} is given a gradient with NaN or infinite values: the loss is NaN or infinite; "
            "lower the learning rate, clip the gradients, or look for a division by 0 or a log of 0 in the loss"
        )
    return np.ascontiguousarray(grad.numpy(), np.float32)
