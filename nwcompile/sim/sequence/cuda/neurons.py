"""A layer's neurons on a GPU: a proof that 32 bits suffice, and one run of the scan over time, also with recurrence.

Neuron programs (`programs.py`) use the same launch sizes and events.
"""

from dataclasses import dataclass

import numpy as np
import torch

from nwcompile.ir.connection import Connection
from nwcompile.ir.network import Node
from nwcompile.ir.neuron import OVERFLOWS, RESET_TIMINGS, RESETS, SPIKES
from nwcompile.kernels.gpu.neuron import scan
from nwcompile.kernels.gpu.recurrent_neuron import scan_loop
from nwcompile.sim.reference.neuron_step import LONG_AGO, NO_CLAMP
from nwcompile.sim.reference.synaptic_sums import apply_connection, unit_connection
from nwcompile.sim.sequence.cuda.product import INT32

FEW_LANES = 1 << 15  # With at most this many neurons over all samples, blocks of one warp use more multiprocessors.
AHEAD_STEPS = 8  # Steps of input that are prefetched while a step is computed.
LOOP_AHEAD_STEPS = 4  # Fewer steps are read ahead in the recurrent kernel, whose weights take most registers.
RULE_ROWS = ("threshold", "decay_u", "decay_v", "bias_u", "bias", "reset_value", "v_min", "refractory")
MAX_LOOP_NEURONS = 128  # The recurrent weights of 128 neurons fit into the registers of one program.


def block_of(n_lanes: int) -> int:
    """Return the lanes per program for `n_lanes` neurons over all samples."""
    return 32 if n_lanes <= FEW_LANES else 128


def given_events(
    sums: torch.Tensor, touched: torch.Tensor | None, unread: torch.Tensor
) -> tuple[torch.Tensor, tuple[int, ...]]:
    """Return the events, or the placeholder `unread`, and the strides of both inputs for the kernels."""
    events = unread if touched is None else touched
    strides = sums.stride(0), sums.stride(1), events.stride(0), events.stride(1), int(events.shape[2] > 1)
    return events, strides


@dataclass(frozen=True, eq=False)
class Loop:
    """Recurrent synapses on the device: `weight` int32[n, n] from row to column, and `synapse` uint8[n, n], 0 or 1."""

    weight: torch.Tensor
    synapse: torch.Tensor


def loop_of(node: Node, edges: list[tuple[Connection, int]], device: torch.device) -> Loop | None:
    """Merge a layer's connections to itself, given with delays, into one table; None if the kernel does not support it.

    The kernel supports up to MAX_LOOP_NEURONS neurons, delays of one step, and weights of 32 bits.
    """
    n = node.n_neurons
    if n > MAX_LOOP_NEURONS or any(delay != 1 for _, delay in edges):
        return None
    one_spike_each = np.eye(n, dtype=np.int64).reshape(n, *node.shape)
    weight, n_synapses = (
        sum(apply_connection(table(c), one_spike_each, node.shape).reshape(n, n) for c, _ in edges)
        for table in (lambda c: c.replace(bias=None), unit_connection)
    )
    if np.abs(weight).max() >= 1 << 31:
        return None
    arrays = (np.ascontiguousarray(weight, np.int32), np.ascontiguousarray(n_synapses > 0, np.uint8))
    return Loop(*(torch.from_numpy(a).to(device) for a in arrays))


class GpuNeurons:
    """A layer's neurons in the form that the kernel takes."""

    def __init__(self, node: Node, device: torch.device):
        self.node, self.n, self.device = node, node.n_neurons, device
        spec, fixed = node.neuron, node.neuron.fixed
        self.numbers = {name: spec.array(name, node.shape).reshape(-1) for name in RULE_ROWS if name != "v_min"}
        if spec.reset != "value":
            self.numbers["reset_value"] = np.zeros(self.n, np.int64)
        self.most = {name: int(np.abs(values).max()) for name, values in self.numbers.items()}
        unclamped = np.full(self.n, NO_CLAMP)
        self.numbers["v_min"] = unclamped if spec.v_min is None else spec.array("v_min", node.shape).reshape(-1)
        self.limit = (1 << (fixed.state_bits - 1)) - 1
        self.leaks = bool((self.numbers["decay_u"] != fixed.fastest).any())  # some u outlasts its step
        self._rules: dict[bool, torch.Tensor] = {}

    @property
    def spike_range(self) -> tuple[int, int]:
        """Least and largest possible spike."""
        spec = self.node.neuron
        if not spec.fires:
            return 0, 0
        if spec.spikes == "multi":
            fits = self.limit // int(self.numbers["threshold"].min())
            return 0, fits if spec.max_spikes is None else min(fits, spec.max_spikes)
        return (-1 if spec.message == "bipolar" else 0), 1

    def kernel_options(self, largest: int) -> dict[str, int | bool]:
        """Return the compile-time constants of the kernels for these neurons and sums of at most `largest`."""
        spec, fixed = self.node.neuron, self.node.neuron.fixed
        overflows = self.leaks or fixed.overflow in ("modulo", "clip") or self.largest_drive(largest) > self.limit
        stays = {
            "zero": True, "none": True, "value": self.most["reset_value"] <= self.limit,
            "subtract": spec.reset_timing != "both" and bool((self.numbers["threshold"] >= 0).all()),
        }  # fmt: skip
        clamps = spec.v_min is not None
        in_range = stays[spec.reset] and not (clamps and (np.abs(self.numbers["v_min"]) > self.limit).any())
        return {
            "STATE_BITS": fixed.state_bits, "DECAY_BITS": fixed.decay_bits, "SHIFT": fixed.shift_bits,
            "OVERFLOW": 1 + OVERFLOWS.index(fixed.overflow) if overflows else 0, "STRICT": bool(spec.strict),
            "FIRES": bool(spec.fires), "SPIKE_KIND": SPIKES.index(spec.spikes), "RESET": RESETS.index(spec.reset),
            "TIMING": RESET_TIMINGS.index(spec.reset_timing), "LEAKS": self.leaks,
            "REFRACTS": self.most["refractory"] > 1, "RESATURATES": not in_range,
            "CLAMPS": (2 if spec.clamp == "reset" else 1) if clamps else 0,
            "SHIFTS": fixed.shifts, "MOST": spec.max_spikes or 0,
        }  # fmt: skip

    def largest_drive(self, largest: int) -> int:
        """Return the largest shifted input to u in a step, with bias, for sums of at most `largest`."""
        return (largest + self.most["bias_u"]) << self.node.neuron.fixed.shift_bits

    def fits_32_bits(self, largest: int) -> bool:
        """Whether no intermediate value overflows 32 bits, for sums of at most `largest`.

        A u that wraps is back in its range if the drive is at most the whole range, 2**state_bits; then every u is at
        most half of it. If u does not leak, it is the drive of its step, from which the range is taken once. The
        product in `decay` needs states of at most 2**30.
        """
        half = self.limit + 1
        drive = self.largest_drive(largest)
        threshold = max(self.most["threshold"], self.limit)
        wraps_far = self.node.neuron.fixed.overflow == "wrap" and drive > 2 * half
        if wraps_far and self.leaks:
            return False
        largest_u = max(half, drive - 2 * half) if wraps_far else half
        before = max(half, self.most["reset_value"]) + largest_u + self.most["bias"] + threshold
        after = max(self.limit + 2 * threshold, self.most["reset_value"])
        return half <= 1 << 30 and max(half + drive, before, after) <= INT32

    def scan(self, n_samples: int, n_steps: int, largest: int, keeps: bool, counts: bool) -> "Scan":
        """Prepare a run over `n_samples` samples and `n_steps` steps."""
        return Scan(self, n_samples, n_steps, largest, keeps, counts)

    def rule_table(self, is_wide: bool) -> torch.Tensor:
        """Return the numbers of `RULE_ROWS`: int64[8, n], or int32[8, n] for the 32-bit kernel.

        Decays are stored as the share that is kept, or as shifts.
        """
        if is_wide not in self._rules:
            fixed, numbers = self.node.neuron.fixed, dict(self.numbers)
            bits = fixed.decay_bits
            for name in () if fixed.shifts else ("decay_u", "decay_v"):
                numbers[name] = ((1 << bits) - numbers[name]) << (0 if is_wide else 31 - bits)
            if not is_wide:
                numbers["v_min"] = np.clip(numbers["v_min"], -INT32, self.limit)
            stacked = np.stack([numbers[name] for name in RULE_ROWS]).astype(np.int64 if is_wide else np.int32)
            self._rules[is_wide] = torch.from_numpy(stacked).to(self.device)
        return self._rules[is_wide]


class Scan:
    """One run of a layer over n_steps of n_samples: its outputs, and its state between two calls.

    `largest` bounds the sums and decides whether 64 bits are needed (`is_wide`). `updates`: int32[step, neuron], only
    with `counts`.
    """

    def __init__(self, neurons: GpuNeurons, n_samples: int, n_steps: int, largest: int, keeps: bool, counts: bool):
        self.neurons, self.keeps, self.counts = neurons, keeps, counts
        self.is_wide = not neurons.fits_32_bits(largest)
        self.options = neurons.kernel_options(largest)
        device, shape = neurons.device, (n_samples, n_steps, neurons.n)
        number = torch.int64 if self.is_wide else torch.int32
        kind = torch.int32 if neurons.node.neuron.spikes == "multi" else torch.int8
        self.spikes = torch.empty(shape, dtype=kind, device=device)
        self.u, self.v = (torch.empty(shape if keeps else (0,) * 3, dtype=number, device=device) for _ in range(2))
        self.updates = torch.zeros((n_steps if counts else 0, neurons.n), dtype=torch.int32, device=device)
        self.state = torch.empty((3, n_samples, neurons.n), dtype=number, device=device)

    @property
    def states(self) -> dict[str, torch.Tensor]:
        """The recorded states by name, [sample, step, neuron]."""
        return {"u": self.u, "v": self.v}

    def advance(self, sums: torch.Tensor, bits: int, touched: torch.Tensor | None, steps: slice, resumes: bool) -> None:
        """Run these steps on their sums [sample, step, neuron], to be shifted by `bits`, and events, if any.

        `resumes`: these are not all steps, so the state is stored for the next call.
        """
        n_samples, n_steps, n = sums.shape
        events, strides, flags = self._kernel_inputs(sums, touched)
        out = self.spikes[:, steps]
        if resumes and steps.start == 0:
            self.state[:2], self.state[2] = 0, LONG_AGO
        block = block_of(n_samples * n)
        scan[(-(-n_samples * n // block),)](
            sums,
            events,
            self.neurons.rule_table(self.is_wide),
            self.state,
            out,
            self.u[:, steps],
            self.v[:, steps],
            self.updates[steps],
            n_samples * n,
            n,
            n_steps,
            bits,
            *strides,
            out.stride(0),
            **flags,
            WIDE=self.is_wide,
            RESUMES=resumes,
            AHEAD=1 if resumes else AHEAD_STEPS,
            BLOCK=block,
            num_warps=block // 32,
            enable_fp_fusion=False,
        )

    def run_loop(self, sums: torch.Tensor, bits: int, touched: torch.Tensor | None, loop: Loop) -> None:
        """Run all steps of a recurrent layer; sums and events are those from other layers."""
        n_samples, n_steps, n = sums.shape
        events, strides, flags = self._kernel_inputs(sums, touched)
        size = max(16, 1 << (n - 1).bit_length())
        scan_loop[(n_samples,)](
            sums,
            events,
            self.neurons.rule_table(False),
            loop.weight,
            loop.synapse,
            self.spikes,
            self.u,
            self.v,
            self.updates,
            n,
            n_steps,
            bits,
            *strides,
            **flags,
            AHEAD=LOOP_AHEAD_STEPS,
            SIZE=size,
            num_warps=max(1, size // 16),
            enable_fp_fusion=False,
        )

    def _kernel_inputs(self, sums: torch.Tensor, touched: torch.Tensor | None):
        """Return the events, the strides of both inputs, and the kernel's flags."""
        events, strides = given_events(sums, touched, self.spikes)
        is_touched = self.counts and touched is not None
        flags = {**self.options, "KEEPS": self.keeps, "COUNTS": self.counts, "TOUCHED": is_touched}
        return events, strides, flags
