"""The fixed-point neuron update and its scan over time, in Triton, with the rules and names of `neuron.py`.

Rules that all neurons of a layer share (spike kind, reset, widths, ...) are compile-time constants; parameters of
single neurons are loaded once before the first step. `WIDE` kernels compute in 64 bits, as `neuron.py` does. The others
compute in 32 bits; the caller has proved that every intermediate value fits. Both use integers only, without rounding.
"""

import triton
import triton.language as tl

from nwcompile.ir.neuron import OVERFLOWS, RESET_TIMINGS, RESETS, SPIKES

RESET_SUBTRACT = tl.constexpr(RESETS.index("subtract"))
RESET_NONE = tl.constexpr(RESETS.index("none"))
NOW = tl.constexpr(RESET_TIMINGS.index("now"))
NEXT = tl.constexpr(RESET_TIMINGS.index("next"))
BOTH = tl.constexpr(RESET_TIMINGS.index("both"))
MULTI = tl.constexpr(SPIKES.index("multi"))
BIPOLAR = tl.constexpr(SPIKES.index("bipolar"))
GATED = tl.constexpr(SPIKES.index("gated"))
# OVERFLOW: 0 if u cannot overflow and v saturates.
WRAPPED = tl.constexpr(1 + OVERFLOWS.index("wrap"))  # The current u wraps around on overflow.
SATURATED = tl.constexpr(1 + OVERFLOWS.index("saturate"))  # The current u stays at its limit on overflow.
MODULO = tl.constexpr(1 + OVERFLOWS.index("modulo"))  # Both u and v wrap around modulo 2**STATE_BITS.
CLIPPED = tl.constexpr(1 + OVERFLOWS.index("clip"))  # Both saturate at the range of two's complement numbers.
FLOOR_RESETS = tl.constexpr(2)  # CLAMPS: below v_min the membrane is reset; 1: it is clamped there; 0: neither.
LONG_AGO = tl.constexpr(1 << 30)  # Steps since the last spike of a neuron that has not fired.


@triton.jit
def decay(x, keep, DECAY_BITS: tl.constexpr, WIDE: tl.constexpr):
    """`sign(x) * ((|x| * (2**DECAY_BITS - k)) >> DECAY_BITS)`.

    keep: 2**DECAY_BITS - k; in 32 bits multiplied by 2**(31 - DECAY_BITS), so that the result is the upper half of its
    product with 2*|x| (|x| <= 2**30).
    """
    size = tl.abs(x)
    kept = (size * keep) >> DECAY_BITS if WIDE else tl.umulhi(size.to(tl.uint32) << 1, keep.to(tl.uint32)).to(tl.int32)
    return tl.where(x < 0, -kept, kept)


@triton.jit
def wrap(x, STATE_BITS: tl.constexpr):
    half: tl.constexpr = 1 << (STATE_BITS - 1)
    return tl.where(x > half, x - 2 * half, tl.where(x <= -half, x + 2 * half, x))


@triton.jit
def saturate(x, STATE_BITS: tl.constexpr):
    limit: tl.constexpr = (1 << (STATE_BITS - 1)) - 1
    return tl.minimum(tl.maximum(x, -limit), limit)


@triton.jit
def modulo(x, STATE_BITS: tl.constexpr):
    half: tl.constexpr = 1 << (STATE_BITS - 1)
    return ((x + half) & (2 * half - 1)) - half


@triton.jit
def clip(x, STATE_BITS: tl.constexpr):
    half: tl.constexpr = 1 << (STATE_BITS - 1)
    return tl.minimum(tl.maximum(x, -half), half - 1)


@triton.jit
def limit_v(v, STATE_BITS: tl.constexpr, OVERFLOW: tl.constexpr):
    """v after overflow of its register."""
    if OVERFLOW == MODULO:
        v = modulo(v, STATE_BITS)
    elif OVERFLOW == CLIPPED:
        v = clip(v, STATE_BITS)
    else:
        v = saturate(v, STATE_BITS)
    return v


@triton.jit
def shift_lost(x, k):
    lost = x >> k
    return tl.where(lost != 0, lost, (x > 0).to(x.dtype))


@triton.jit
def shifted_membrane(v, u, late, numbers, STATE_BITS: tl.constexpr, RESET: tl.constexpr, TIMING: tl.constexpr):
    """The membrane before the threshold, with decays by shifts: every addition saturates.

    late: spikes of the membrane before the step, for a late reset.
    """
    half: tl.constexpr = 1 << (STATE_BITS - 1)
    lost = shift_lost(v, numbers[2])
    if TIMING == NEXT and RESET != RESET_SUBTRACT and RESET != RESET_NONE:
        v = tl.where(late != 0, numbers[5], v)
        lost = tl.where(late != 0, 0, lost)
    change = tl.where(lost == -half, lost, -lost)  # the lowest number is its own negative
    v = clip(v + clip(clip(change + u, STATE_BITS) + numbers[4], STATE_BITS), STATE_BITS)
    if TIMING != NOW and RESET == RESET_SUBTRACT:
        v = clip(v - late * numbers[0], STATE_BITS)
    return v


@triton.jit
def spike_count(v, threshold, STRICT: tl.constexpr, SPIKE_KIND: tl.constexpr, MOST: tl.constexpr):
    above = v > threshold if STRICT else v >= threshold
    count = above.to(v.dtype)
    if SPIKE_KIND == MULTI:
        count = tl.where(above, v // threshold, 0)
        if MOST:
            count = tl.minimum(count, MOST)
    elif SPIKE_KIND == BIPOLAR:
        below = -v > threshold if STRICT else -v >= threshold
        count = tl.where(above, 1, tl.where(below, -1, 0)).to(v.dtype)
    return count


@triton.jit
def read_ahead(at, t, n_steps, step, lanes, AHEAD: tl.constexpr):
    """Load the values at `at` and at the AHEAD - 1 following steps; t: the first of these steps."""
    values = ()
    for k in tl.static_range(AHEAD):
        values = values + (tl.load(at + k * step, mask=lanes & (t + k < n_steps), other=0),)
    return values


@triton.jit
def read_input(
    drive_at, touched_at, t, n_steps, drive_step, touched_step, lanes, AHEAD: tl.constexpr, TOUCHED: tl.constexpr
):
    """Load the external input of the AHEAD steps from t on: sums, and whether there was an event.

    Unless TOUCHED there are no events to load, and the sums are returned in their place.
    """
    sums = read_ahead(drive_at, t, n_steps, drive_step, lanes, AHEAD)
    events = sums
    if TOUCHED:
        events = read_ahead(touched_at, t, n_steps, touched_step, lanes, AHEAD)
    return sums, events


@triton.jit
def rule_of(rule, neuron, n, lanes):
    """Load the parameters of these neurons: threshold, keep_u, keep_v, bias_u, bias, reset_value, v_min, refractory.

    For decays by shifts, keep_u and keep_v are the shifts.
    """
    numbers = (tl.load(rule + neuron, mask=lanes, other=1),)
    for k in tl.static_range(1, 8):
        numbers = numbers + (tl.load(rule + k * n + neuron, mask=lanes, other=0),)
    return numbers


@triton.jit
def is_updated(u, v, numbers):
    """Whether an update without events changes anything: a bias, v, or a u that outlasts the step."""
    return (v != 0) | (numbers[4] != 0) | (numbers[3] != 0) | ((u != 0) & (numbers[1] != 0))


@triton.jit
def advance(
    x, u, v, since, numbers,
    STATE_BITS: tl.constexpr, DECAY_BITS: tl.constexpr, SHIFT: tl.constexpr, OVERFLOW: tl.constexpr,
    STRICT: tl.constexpr, FIRES: tl.constexpr, SPIKE_KIND: tl.constexpr, RESET: tl.constexpr, TIMING: tl.constexpr,
    LEAKS: tl.constexpr, REFRACTS: tl.constexpr, CLAMPS: tl.constexpr, RESATURATES: tl.constexpr,
    SHIFTS: tl.constexpr, MOST: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """One step by the synaptic sums `x`; returns spikes, u, v, steps since the last spike. numbers: from `rule_of`.

    For GATED neurons, `since` is LONG_AGO + the sum of their spikes so far, negative ones included. SHIFTS: decays
    are shifts. MOST: maximum spikes per step of a MULTI neuron, 0 for no limit.

    Operations without effect are omitted: decay of u (LEAKS), its overflow, the refractory period (REFRACTS), the clamp
    at v_min (CLAMPS), and the second saturation if v is within its range after the reset.
    """
    threshold, keep_u, keep_v, bias_u, bias, reset_value, v_min, refractory = numbers
    drive = (x + bias_u) << SHIFT
    before = spike_count(v, threshold, STRICT, SPIKE_KIND, MOST) if FIRES and TIMING != NOW else tl.zeros_like(v)
    if SHIFTS:
        u = clip(u + drive, STATE_BITS)
        u -= shift_lost(u, keep_u)
        new = shifted_membrane(v, u, before, numbers, STATE_BITS, RESET, TIMING)
    else:
        u = decay(u, keep_u, DECAY_BITS, WIDE) + drive if LEAKS else drive
        if OVERFLOW == WRAPPED:
            u = wrap(u, STATE_BITS)
        elif OVERFLOW == SATURATED:
            u = saturate(u, STATE_BITS)
        elif OVERFLOW == MODULO:
            u = modulo(u, STATE_BITS)
        elif OVERFLOW == CLIPPED:
            u = clip(u, STATE_BITS)
        new = decay(v, keep_v, DECAY_BITS, WIDE)
        if TIMING == NEXT and RESET != RESET_SUBTRACT and RESET != RESET_NONE:
            new = tl.where(before != 0, reset_value, new)
        new += u + bias
        if TIMING != NOW and RESET == RESET_SUBTRACT:
            new -= before * threshold
        new = limit_v(new, STATE_BITS, OVERFLOW)
    count = spike_count(new, threshold, STRICT, SPIKE_KIND, MOST) if FIRES else tl.zeros_like(v)
    if SPIKE_KIND == GATED:
        count = tl.where((new < 0) & (since > LONG_AGO), -1, count).to(v.dtype)
        since += count
    if FIRES and TIMING != NEXT:
        if RESET == RESET_SUBTRACT:
            new -= (count - before if TIMING == BOTH else count) * threshold
        elif RESET != RESET_NONE:
            new = tl.where(count != 0, reset_value, new)
    if CLAMPS == FLOOR_RESETS:
        after = new - v_min if RESET == RESET_SUBTRACT else -reset_value
        new = tl.where((count == 0) & (new < v_min), after, new)
    elif CLAMPS:
        new = tl.maximum(new, v_min)
    if RESATURATES:
        new = limit_v(new, STATE_BITS, OVERFLOW)
    if REFRACTS:
        since = tl.minimum(since + 1, LONG_AGO)
        frozen = since < refractory
        count = tl.where(frozen, 0, count)
        new = tl.where(frozen, v, new)
        since = tl.where(count != 0, 0, since)
    return count, u, new, since


@triton.jit(
    do_not_specialize=["n_lanes", "n", "n_steps", "drive_sample", "drive_step", "drive_bits", "touched_sample",
                       "touched_step", "touched_neuron", "out_sample"],
    do_not_specialize_on_alignment=["drive", "touched", "spikes", "u_out", "v_out", "updates"],  # slices of tensors
)  # fmt: skip
def scan(
    drive,  # int32 | int64 [sample, step, neuron], to be shifted left by drive_bits
    touched,  # uint8 [sample, step, neuron]: whether there was an event; not read unless TOUCHED
    rule,  # int32 | int64 (WIDE) [8, neuron]: threshold, keep_u, keep_v, bias_u, bias, reset_value, v_min, refractory
    state,  # int32 | int64 (WIDE) [3, sample, neuron]: u, v, steps since the last spike; used only if RESUMES
    spikes,  # int8 | int32 [sample, step, neuron]: written
    u_out,  # int32 | int64 [sample, step, neuron]: written if KEEPS
    v_out,  # likewise
    updates,  # int32 [step, neuron]: added to if COUNTS
    n_lanes, n, n_steps, drive_bits, drive_sample, drive_step, touched_sample, touched_step, touched_neuron,
    out_sample,
    STATE_BITS: tl.constexpr, DECAY_BITS: tl.constexpr, SHIFT: tl.constexpr, OVERFLOW: tl.constexpr,
    STRICT: tl.constexpr, FIRES: tl.constexpr, SPIKE_KIND: tl.constexpr, RESET: tl.constexpr, TIMING: tl.constexpr,
    LEAKS: tl.constexpr, REFRACTS: tl.constexpr, CLAMPS: tl.constexpr, RESATURATES: tl.constexpr,
    SHIFTS: tl.constexpr, MOST: tl.constexpr,
    WIDE: tl.constexpr, KEEPS: tl.constexpr, COUNTS: tl.constexpr, TOUCHED: tl.constexpr, RESUMES: tl.constexpr,
    AHEAD: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Run one layer over the steps of all samples; a lane is one neuron of one sample.

    Input is loaded AHEAD steps before its use. With RESUMES, AHEAD must be 1: surplus steps would change the state.
    """
    number: tl.constexpr = tl.int64 if WIDE else tl.int32
    lane = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    lanes = lane < n_lanes
    sample, neuron = (lane // n).to(tl.int64), lane % n
    numbers = rule_of(rule, neuron, n, lanes)
    if RESUMES:
        u = tl.load(state + lane, mask=lanes, other=0)
        v = tl.load(state + n_lanes + lane, mask=lanes, other=0)
        since = tl.load(state + 2 * n_lanes + lane, mask=lanes, other=0)
    else:
        u = tl.zeros((BLOCK,), number)
        v = tl.zeros((BLOCK,), number)
        since = tl.full((BLOCK,), LONG_AGO, number)
    drive_at = drive + sample * drive_sample + neuron
    touched_at = touched + sample * touched_sample + neuron * touched_neuron
    out_at = sample * out_sample + neuron
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
                updated = is_updated(u, v, numbers)
                if TOUCHED:
                    updated = updated | (events[k] != 0)
                tl.atomic_add(updates_at, updated.to(tl.int32), mask=now & updated, sem="relaxed")
                updates_at += n
            count, u, v, since = advance(
                sums[k].to(number) << drive_bits, u, v, since, numbers, STATE_BITS, DECAY_BITS, SHIFT, OVERFLOW, STRICT,
                FIRES, SPIKE_KIND, RESET, TIMING, LEAKS, REFRACTS, CLAMPS, RESATURATES, SHIFTS, MOST, WIDE
            )  # fmt: skip
            tl.store(spikes + out_at, count, mask=now)
            if KEEPS:
                tl.store(u_out + out_at, u, mask=now)
                tl.store(v_out + out_at, v, mask=now)
            out_at += n
        sums = later_sums
        events = later_events
    if RESUMES:
        tl.store(state + lane, u, mask=lanes)
        tl.store(state + n_lanes + lane, v, mask=lanes)
        tl.store(state + 2 * n_lanes + lane, since, mask=lanes)
