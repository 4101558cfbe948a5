"""The scan over time of neuron programs, in Triton: the counterpart of the scan in `cores/programs/source.py`.

A program's code is its STEP, a function that `cores.programs.source.triton_source_of` writes. It is compiled into this
kernel, so that states and parameters stay in registers over all steps. Numbers have the type of `given`: 64 bits, as
on the CPU; 32 bits if the caller has proved that every value fits; or float32.
"""

import triton
import triton.language as tl

from nwcompile.kernels.gpu.neuron import read_input


@triton.jit
def shr0(x, bits):
    return tl.where(x >= 0, x >> bits, -((-x) >> bits))


@triton.jit
def sign(x):
    return tl.where(x == x, (x > 0).to(x.dtype) - (x < 0).to(x.dtype), x)


@triton.jit
def saturate(x, bits):
    limit = (tl.full(x.shape, 1, x.dtype) << (bits - 1)) - 1
    return tl.minimum(tl.maximum(x, -limit), limit)


@triton.jit
def modulo(x, bits):
    half = tl.full(x.shape, 1, x.dtype) << (bits - 1)
    return ((x + half) & (2 * half - 1)) - half


@triton.jit
def table(entries, first, n, x, bits):
    i = x >> bits
    at = entries + (first + i)
    there = (i >= 0) & (i + 1 < n)  # Lanes without a neuron may have any index.
    low = tl.load(at, mask=there, other=0)
    high = tl.load(at + 1, mask=there, other=0)
    half = (tl.full(x.shape, 1, x.dtype) << bits) >> 1
    return low + (((high - low) * (x - (i << bits)) + half) >> bits)


@triton.jit
def read_rows(array, at, distance, lanes, N: tl.constexpr):
    """Load the N rows of an array, parameters or states of a layer, as a tuple."""
    rows = ()
    for k in tl.static_range(N):
        rows = rows + (tl.load(array + k * distance + at, mask=lanes, other=0),)
    return rows


@triton.jit
def widen(sums, bits, number: tl.constexpr):
    """Convert sums to the program's numbers, shifted left if they are whole."""
    x = sums.to(number)
    if number != tl.float32:
        x = x << bits
    return x


@triton.jit
def is_still(still, states, N_STATES: tl.constexpr):
    """Whether neurons of `still`, which rest while all their states are 0, are at rest."""
    for s in tl.static_range(N_STATES):
        still = still & (states[s] == 0)
    return still


@triton.jit
def select_tensors(truth, yes, no, N: tl.constexpr):
    """Select N tensors: `yes` where true, else `no`."""
    tensors = ()
    for k in tl.static_range(N):
        tensors = tensors + (tl.where(truth, yes[k], no[k]),)
    return tensors


@triton.jit(
    do_not_specialize=["n_lanes", "n", "n_steps", "drive_sample", "drive_step", "drive_bits", "touched_sample",
                       "touched_step", "touched_neuron", "out_sample", "kept_sample"],
    do_not_specialize_on_alignment=["drive", "touched", "spikes", "kept", "updates"],  # slices of tensors
)  # fmt: skip
def scan(
    drive,  # int32 | int64 [sample, step, input, neuron], to be shifted left by drive_bits; or float32
    touched,  # uint8 [sample, step, neuron]: whether there was an event; not read unless TOUCHED
    given,  # int32 | int64 | float32 [parameter, neuron]
    entries,  # as `given`, [entry]: of all tables
    initial,  # as `given`, [state, neuron]; not read if RESUMES
    rests,  # uint8[neuron]: no update without an event while all states are 0; not read unless COUNTS
    state,  # as `given`, [state, sample, neuron]; used only if RESUMES
    spikes,  # int8 | int32 | float32 [sample, step, neuron]: written
    kept,  # as `given`, [sample, step, state, neuron]: written if KEEPS
    updates,  # int32 [step, neuron]: added to if COUNTS
    n_lanes, n, n_steps, drive_bits, drive_sample, drive_step, touched_sample, touched_step, touched_neuron,
    out_sample, kept_sample,
    STEP: tl.constexpr, N_GIVEN: tl.constexpr, N_STATES: tl.constexpr, N_INPUTS: tl.constexpr, KEEPS: tl.constexpr,
    COUNTS: tl.constexpr, TOUCHED: tl.constexpr, RESUMES: tl.constexpr, AHEAD: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Run one layer over the steps of all samples; a lane is one neuron of one sample.

    The first input is loaded AHEAD steps before its use.
    """
    number: tl.constexpr = given.dtype.element_ty
    lane = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    lanes = lane < n_lanes
    sample, neuron = (lane // n).to(tl.int64), lane % n
    numbers = read_rows(given, neuron, n, lanes, N_GIVEN)
    if RESUMES:
        states = read_rows(state, lane, n_lanes, lanes, N_STATES)
    else:
        states = read_rows(initial, neuron, n, lanes, N_STATES)
    still = lanes
    if COUNTS:
        still = tl.load(rests + neuron, mask=lanes, other=0) != 0
    drive_at = drive + sample * drive_sample + neuron
    now_at = drive_at
    touched_at = touched + sample * touched_sample + neuron * touched_neuron
    out_at = sample * out_sample + neuron
    kept_at = sample * kept_sample + neuron
    updates_at = updates + neuron
    sums, events = read_input(drive_at, touched_at, 0, n_steps, drive_step, touched_step, lanes, AHEAD, TOUCHED)
    for t in range(0, n_steps, AHEAD):
        drive_at += AHEAD * drive_step
        touched_at += AHEAD * touched_step
        later_sums, later_events = read_input(
            drive_at, touched_at, t + AHEAD, n_steps, drive_step, touched_step, lanes, AHEAD, TOUCHED
        )
        for k in tl.static_range(AHEAD):
            now = lanes & (t + k < n_steps)
            if COUNTS:
                updated = ~is_still(still, states, N_STATES)
                if TOUCHED:
                    updated = updated | (events[k] != 0)
                tl.atomic_add(updates_at, updated.to(tl.int32), mask=now & updated, sem="relaxed")
                updates_at += n
            x = (widen(sums[k], drive_bits, number),)
            for i in tl.static_range(1, N_INPUTS):
                x = x + (widen(tl.load(now_at + i * n, mask=now, other=0), drive_bits, number),)
            now_at += drive_step
            following, sent = STEP(numbers, entries, states, x)
            states = select_tensors(now, following, states, N_STATES) if RESUMES and AHEAD > 1 else following
            tl.store(spikes + out_at, sent, mask=now)
            if KEEPS:
                for s in tl.static_range(N_STATES):
                    tl.store(kept + kept_at + s * n, states[s], mask=now)
            out_at += n
            kept_at += N_STATES * n
        sums = later_sums
        events = later_events
    if RESUMES:
        for s in tl.static_range(N_STATES):
            tl.store(state + s * n_lanes + lane, states[s], mask=lanes)
