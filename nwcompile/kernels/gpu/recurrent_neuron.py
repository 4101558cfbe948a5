"""The fixed-point scan of a layer with recurrent synapses of one step's delay, in Triton.

One program computes one sample over all steps. Weights, states and the last spikes stay in its registers, so no step
launches a kernel or waits for memory. SIZE, a power of two of at least the layer's neurons, is limited by the registers
for weights. The caller has proved that all values fit 32 bits.
"""

import triton
import triton.language as tl

from nwcompile.kernels.gpu.neuron import LONG_AGO, advance, is_updated, read_input, rule_of


@triton.jit
def square_of(table, n, SIZE: tl.constexpr):
    """Load a table [n, n] as int32[SIZE, SIZE], 0 beyond n, so that surplus lanes have no effect."""
    i = tl.arange(0, SIZE)
    inside = (i[:, None] < n) & (i[None, :] < n)
    return tl.load(table + i[:, None] * n + i[None, :], mask=inside, other=0).to(tl.int32)


@triton.jit(
    do_not_specialize=["n", "n_steps", "drive_sample", "drive_step", "drive_bits", "touched_sample", "touched_step",
                       "touched_neuron"],
    do_not_specialize_on_alignment=["drive", "touched", "spikes", "u_out", "v_out", "updates"],
)  # fmt: skip
def scan_loop(
    drive,  # int32 | int64 [sample, step, neuron], to be shifted left by drive_bits: external input
    touched,  # uint8[sample, step, neuron]: whether there was an external event; not read unless TOUCHED
    rule,  # int32[8, neuron], as in `gpu.neuron.scan`
    weight,  # int32[neuron, neuron]: from row to column
    synapse,  # uint8[neuron, neuron]: whether there is a synapse, stored zeros included; not read unless COUNTS
    spikes,  # int8 | int32 [sample, step, neuron]: written
    u_out,  # int32[sample, step, neuron]: written if KEEPS
    v_out,  # likewise
    updates,  # int32[step, neuron]: added to if COUNTS
    n, n_steps, drive_bits, drive_sample, drive_step, touched_sample, touched_step, touched_neuron,
    STATE_BITS: tl.constexpr, DECAY_BITS: tl.constexpr, SHIFT: tl.constexpr, OVERFLOW: tl.constexpr,
    STRICT: tl.constexpr, FIRES: tl.constexpr, SPIKE_KIND: tl.constexpr, RESET: tl.constexpr, TIMING: tl.constexpr,
    LEAKS: tl.constexpr, REFRACTS: tl.constexpr, CLAMPS: tl.constexpr, RESATURATES: tl.constexpr,
    SHIFTS: tl.constexpr, MOST: tl.constexpr,
    KEEPS: tl.constexpr, COUNTS: tl.constexpr, TOUCHED: tl.constexpr, AHEAD: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """Run the layer over all steps of a sample. Input is loaded AHEAD steps before its use."""
    sample, neuron = tl.program_id(0).to(tl.int64), tl.arange(0, SIZE)
    lanes = neuron < n
    numbers = rule_of(rule, neuron, n, lanes)
    weights = square_of(weight, n, SIZE)
    synapses = square_of(synapse, n, SIZE) if COUNTS else weights
    u = tl.zeros((SIZE,), tl.int32)
    v = tl.zeros((SIZE,), tl.int32)
    count = tl.zeros((SIZE,), tl.int32)
    since = tl.full((SIZE,), LONG_AGO, tl.int32)
    drive_at = drive + sample * drive_sample + neuron
    touched_at = touched + sample * touched_sample + neuron * touched_neuron
    updates_at = updates + neuron
    out_at = sample * n_steps * n + neuron
    sums, events = read_input(drive_at, touched_at, 0, n_steps, drive_step, touched_step, lanes, AHEAD, TOUCHED)
    for t in range(0, n_steps, AHEAD):
        drive_at += AHEAD * drive_step
        touched_at += AHEAD * touched_step
        later_sums, later_events = read_input(
            drive_at, touched_at, t + AHEAD, n_steps, drive_step, touched_step, lanes, AHEAD, TOUCHED
        )
        for k in tl.static_range(AHEAD):
            x = (sums[k].to(tl.int32) << drive_bits) + tl.sum(count[:, None] * weights, axis=0)
            now = lanes & (t + k < n_steps)
            if COUNTS:
                reached = tl.sum((count != 0).to(tl.int32)[:, None] * synapses, axis=0)
                updated = is_updated(u, v, numbers) | (reached != 0)
                if TOUCHED:
                    updated = updated | (events[k] != 0)
                tl.atomic_add(updates_at, updated.to(tl.int32), mask=now & updated, sem="relaxed")
                updates_at += n
            count, u, v, since = advance(
                x, u, v, since, numbers, STATE_BITS, DECAY_BITS, SHIFT, OVERFLOW, STRICT, FIRES, SPIKE_KIND, RESET,
                TIMING, LEAKS, REFRACTS, CLAMPS, RESATURATES, SHIFTS, MOST, False
            )  # fmt: skip
            tl.store(spikes + out_at, count, mask=now)
            if KEEPS:
                tl.store(u_out + out_at, u, mask=now)
                tl.store(v_out + out_at, v, mask=now)
            out_at += n
        sums = later_sums
        events = later_events
