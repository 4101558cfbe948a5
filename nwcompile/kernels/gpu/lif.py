"""The float LIF scan over time and its gradient, in Triton, for layers without recurrent synapses.

A lane computes one neuron of one sample over all steps. The pairs (sample, neuron) of `[B, T, N]` are numbered
consecutively and divided into programs of BLOCK, so that several samples of a small layer fill a program. The input of
AHEAD steps is loaded while the AHEAD steps before are computed; the membrane stays in a register.

The number of steps, sizes and strides are launch arguments, so no length needs a new compilation. N and the strides of
samples and steps are in units of UNIT numbers, 1 or a power of two that divides all of them, so that lanes with several
neurons load and store them at once. Multiplications and additions are rounded one by one (launch with
`enable_fp_fusion=False`): the bits are those of `lif`. Arguments in capitals are compile-time constants; optional
arrays are None if absent.
"""

import triton
import triton.language as tl

from nwcompile.kernels.gpu.surrogate import slope_at


@triton.jit
def reset_membrane(v, fired, limit, RESET: tl.constexpr):
    """The membrane after the reset."""
    if RESET == "subtraction":
        return tl.where(fired, v - limit, v)
    elif RESET == "zero":
        return tl.where(fired, 0.0, v)
    else:
        tl.static_assert(RESET == "none")
        return v


@triton.jit
def step(v, i, decay, limit, RESET: tl.constexpr, FLOOR: tl.constexpr):
    """The membrane after a step with current `i`, and whether the neuron fired."""
    v = decay * v + i
    fired = v >= limit
    v = reset_membrane(v, fired, limit, RESET)
    if FLOOR:
        v = tl.where(v <= 0.0, 0.0, v)
    return v, fired


@triton.jit
def pairs(n_samples, n, BLOCK: tl.constexpr):
    """Indices of the lanes: place in a `[B, N]` array, whether it is inside, sample, neuron."""
    m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    return m, m < n_samples * n, m // n, m % n


@triton.jit
def load_rows(array, distance, n_left, wanted, zero, WHOLE: tl.constexpr, AHEAD: tl.constexpr):
    """Load AHEAD rows of an array; 0 where not `wanted`, from row `n_left` on if not WHOLE, or if the array is None."""
    rows = ()
    for k in tl.static_range(AHEAD):
        if array is None:
            rows = rows + (zero,)
        elif WHOLE:
            rows = rows + (tl.load(array + k * distance, mask=wanted, other=0.0).to(zero.dtype),)
        else:
            rows = rows + (tl.load(array + k * distance, mask=wanted & (k < n_left), other=0.0).to(zero.dtype),)
    return rows


@triton.jit
def forward_block(
    v, word, rows, t0, n_left, spikes, mem, n, inside, decay, limit, RESET: tl.constexpr, FLOOR: tl.constexpr,
    WHOLE: tl.constexpr, AHEAD: tl.constexpr
):  # fmt: skip
    """AHEAD steps from `t0` on, or `n_left` if not WHOLE; mem and spikes (unless packed in `word`) point to `t0`."""
    for k in tl.static_range(AHEAD):
        after, fired = step(v, rows[k], decay, limit, RESET, FLOOR)
        live = inside
        if not WHOLE:
            live = inside & (k < n_left)
            fired = fired & (k < n_left)
            after = tl.where(k < n_left, after, v)
        v = after
        if spikes.dtype.element_ty == tl.int32:
            word = word | (fired.to(tl.int32) << (t0 % 32 + k))
        else:
            tl.store(spikes + k * n, fired.to(spikes.dtype.element_ty), mask=live)
        if mem is not None:
            tl.store(mem + k * n, v, mask=live)
    return v, word


@triton.jit(do_not_specialize=["n_samples", "n_steps", "n_units", "x_sample", "x_step"])
def lif_forward(
    current, state, beta, threshold, spikes, mem, last, n_samples, n_steps, n_units, x_sample, x_step,
    RESET: tl.constexpr, FLOOR: tl.constexpr, UNIT: tl.constexpr, BLOCK: tl.constexpr, AHEAD: tl.constexpr
):  # fmt: skip
    """v = beta*v + i; spike = v >= threshold; reset; with FLOOR v = max(v, 0); `mem` is the final v.

    current: float[B, T, N], with samples x_sample and steps x_step units apart; state: float[B, N], beta, threshold:
    float[N], of the type of the computation. AHEAD: a divisor of 32.
    Outputs: spikes float or uint8[B, T, N], or int32[B, ceil(T/32), N] with step t in bit t % 32 of word t // 32;
    mem: float[B, T, N] or None; last: float[B, N], the membrane after the last step.
    """
    PACKED: tl.constexpr = spikes.dtype.element_ty == tl.int32
    n, distance = n_units.to(tl.int64) * UNIT, x_step.to(tl.int64) * UNIT
    m, inside, b, c = pairs(n_samples, n, BLOCK)
    decay = tl.load(beta + c, mask=inside, other=0.0)
    limit = tl.load(threshold + c, mask=inside, other=0.0)
    v = tl.load(state + m, mask=inside, other=0.0)
    zero, word = tl.zeros_like(v), tl.zeros([BLOCK], tl.int32)
    x_at = current + b * x_sample * UNIT + c
    mem_at = mem
    if mem is not None:
        mem_at = mem + b * n_steps * n + c
    spikes_at = spikes + b * ((n_steps + 31) // 32 if PACKED else n_steps) * n + c
    n_whole = n_steps // AHEAD * AHEAD
    rows = load_rows(x_at, distance, AHEAD, inside & (n_whole > 0), zero, True, AHEAD)
    for t0 in range(0, n_whole, AHEAD):
        x_at += AHEAD * distance
        following = load_rows(x_at, distance, AHEAD, inside & (t0 + AHEAD < n_whole), zero, True, AHEAD)
        v, word = forward_block(
            v, word, rows, t0, AHEAD, spikes_at, mem_at, n, inside, decay, limit, RESET, FLOOR, True, AHEAD
        )
        rows = following
        if mem is not None:
            mem_at += AHEAD * n
        if PACKED:
            is_full = (t0 + AHEAD) % 32 == 0
            tl.store(spikes_at, word, mask=inside & is_full)
            word = tl.where(is_full, 0, word)
            spikes_at += tl.where(is_full, n, 0)
        else:
            spikes_at += AHEAD * n
    n_left = n_steps - n_whole
    rows = load_rows(x_at, distance, n_left, inside, zero, False, AHEAD)
    v, word = forward_block(
        v, word, rows, n_whole, n_left, spikes_at, mem_at, n, inside, decay, limit, RESET, FLOOR, False, AHEAD
    )
    if PACKED:
        tl.store(spikes_at, word, mask=inside & (n_steps % 32 > 0))
    tl.store(last + m, v, mask=inside)


@triton.jit
def membrane_gradient(g, h, v, limit, slope, RESET: tl.constexpr, FLOOR: tl.constexpr, DETACH: tl.constexpr):
    """Gradient of the membrane before the spike, and the contribution to the threshold's; see `lif.lif_backward`.

    g: gradient of mem, h: of the spike; slope: the surrogate derivative at v - threshold.
    """
    fired = v >= limit
    if FLOOR:
        g = tl.where(reset_membrane(v, fired, limit, RESET) >= 0.0, g, 0.0)
    through, direct = g, tl.zeros_like(g)
    if RESET == "subtraction":
        direct = tl.where(fired, g, 0.0)
        if not DETACH:
            h = h - limit * g
    elif RESET == "zero":
        through = tl.where(fired, 0.0, g)
        if not DETACH:
            h = h - v * g
    by_spike = h * slope
    return through + by_spike, 0.0 - (direct + by_spike)


@triton.jit
def load_states(mem, first, t0, n, n_left, wanted, RECOMPUTES: tl.constexpr, WHOLE: tl.constexpr, AHEAD: tl.constexpr):
    """Load the membranes before AHEAD steps from `t0` on, where `mem` points; of the first step only if RECOMPUTES.

    first: the membrane before step 0.
    """
    row = tl.where(t0 > 0, tl.load(mem - n, mask=wanted & (t0 > 0), other=0.0), first)
    if RECOMPUTES:
        return (row,)
    else:
        return (row,) + load_rows(mem, n, n_left - 1, wanted, first, WHOLE, AHEAD - 1)


@triton.jit
def recompute_membranes(before, x, decay, limit, RESET: tl.constexpr, FLOOR: tl.constexpr, AHEAD: tl.constexpr):
    """Recompute the membranes before each of AHEAD steps from the membrane before the first."""
    row = before[0]
    rows = (row,)
    for k in tl.static_range(AHEAD - 1):
        row, _ = step(row, x[k], decay, limit, RESET, FLOOR)
        rows = rows + (row,)
    return rows


@triton.jit
def backward_block(
    back, of_beta, of_threshold, x, before, h, g, n_left, grad_current, n, inside, decay, limit,
    RESET: tl.constexpr, FLOOR: tl.constexpr, DETACH: tl.constexpr, SURROGATE: tl.constexpr, SLOPE: tl.constexpr,
    SCALED: tl.constexpr, LEARNS: tl.constexpr, RECOMPUTES: tl.constexpr, AHEAD: tl.constexpr
):  # fmt: skip
    """The first `n_left` of AHEAD steps, from last to first; grad_current points to the first step."""
    if RECOMPUTES:
        before = recompute_membranes(before, x, decay, limit, RESET, FLOOR, AHEAD)
    for k in tl.static_range(AHEAD - 1, -1, -1):
        v = decay * before[k] + x[k]
        slope = slope_at(SURROGATE, v - limit, SLOPE, SCALED)
        dv, dth = membrane_gradient(g[k] + back, h[k], v, limit, slope, RESET, FLOOR, DETACH)
        live = inside & (k < n_left)
        tl.store(grad_current + k * n, dv.to(grad_current.dtype.element_ty), mask=live)
        back = tl.where(live, decay * dv, back)
        if LEARNS:
            of_beta += tl.where(live, dv * before[k], 0.0).to(tl.float64)
            of_threshold += tl.where(live, dth, 0.0).to(tl.float64)
    return back, of_beta, of_threshold


@triton.jit(
    do_not_specialize=[
        "n_samples", "n_steps", "n_units", "x_sample", "x_step", "h_sample", "h_step", "g_sample", "g_step"
    ]
)  # fmt: skip
def lif_backward(
    current, mem, state, grad_spikes, grad_mem, beta, threshold, grad_current, carried, sums,
    n_samples, n_steps, n_units, x_sample, x_step, h_sample, h_step, g_sample, g_step,
    RESET: tl.constexpr, FLOOR: tl.constexpr, DETACH: tl.constexpr, SURROGATE: tl.constexpr, SLOPE: tl.constexpr,
    SCALED: tl.constexpr, H_EACH: tl.constexpr, G_EACH: tl.constexpr, UNIT: tl.constexpr, BLOCK: tl.constexpr,
    AHEAD: tl.constexpr, RECOMPUTES: tl.constexpr
):  # fmt: skip
    """The gradient of `lif_forward`, backward in time; its equations are in `lif.lif_backward`.

    current, mem: float[B, T, N], state: float[B, N], beta, threshold: float[N]: inputs and outputs of the forward pass;
    grad_spikes (h), grad_mem (g): float[B, T, N] or None. x_, h_, g_sample and _step: strides, in units, of current,
    grad_spikes and grad_mem; H_EACH, G_EACH: strides of neurons, 1, or 0 if shared.
    RECOMPUTES: load one membrane per AHEAD steps and recompute the others, which gives the same bits.
    Outputs: grad_current: float[B, T, N]; carried: float[B, N], in: the gradient of the last membrane, out: that of
    `state`; sums: float64[2, B, N] or None: gradients of beta and threshold per (sample, neuron) pair, added in
    float64 from the last step to the first.
    """
    LEARNS: tl.constexpr = sums is not None
    n, x_by = n_units.to(tl.int64) * UNIT, x_step.to(tl.int64) * UNIT
    h_by, g_by = h_step.to(tl.int64) * UNIT, g_step.to(tl.int64) * UNIT
    m, inside, b, c = pairs(n_samples, n, BLOCK)
    decay = tl.load(beta + c, mask=inside, other=0.0)
    limit = tl.load(threshold + c, mask=inside, other=0.0)
    first = tl.load(state + m, mask=inside, other=0.0)
    back = tl.load(carried + m, mask=inside, other=0.0)
    zero = tl.zeros_like(back)
    of_beta, of_threshold = tl.zeros([BLOCK], tl.float64), tl.zeros([BLOCK], tl.float64)
    n_whole = (n_steps // AHEAD * AHEAD).to(tl.int64)
    n_left = n_steps - n_whole
    x_at = current + b * x_sample * UNIT + n_whole * x_by + c
    mem_at = mem + (b * n_steps + n_whole) * n + c
    out_at = grad_current + (b * n_steps + n_whole) * n + c
    h_at, g_at = grad_spikes, grad_mem
    if h_at is not None:
        h_at += b * h_sample * UNIT + n_whole * h_by + c * H_EACH
    if g_at is not None:
        g_at += b * g_sample * UNIT + n_whole * g_by + c * G_EACH
    x = load_rows(x_at, x_by, n_left, inside, zero, False, AHEAD)
    before = load_states(mem_at, first, n_whole, n, n_left, inside, RECOMPUTES, False, AHEAD)
    h = load_rows(h_at, h_by, n_left, inside, zero, False, AHEAD)
    g = load_rows(g_at, g_by, n_left, inside, zero, False, AHEAD)
    for done in range(0, n_whole + AHEAD, AHEAD):
        t0 = n_whole - done  # first step of this block; the preceding block is loaded meanwhile
        x_at -= AHEAD * x_by
        mem_at -= AHEAD * n
        if h_at is not None:
            h_at -= AHEAD * h_by
        if g_at is not None:
            g_at -= AHEAD * g_by
        next_x = load_rows(x_at, x_by, AHEAD, inside & (t0 > 0), zero, True, AHEAD)
        next_before = load_states(mem_at, first, t0 - AHEAD, n, AHEAD, inside & (t0 > 0), RECOMPUTES, True, AHEAD)
        next_h = load_rows(h_at, h_by, AHEAD, inside & (t0 > 0), zero, True, AHEAD)
        next_g = load_rows(g_at, g_by, AHEAD, inside & (t0 > 0), zero, True, AHEAD)
        back, of_beta, of_threshold = backward_block(
            back, of_beta, of_threshold, x, before, h, g, tl.where(done > 0, AHEAD, n_left), out_at, n, inside, decay,
            limit, RESET, FLOOR, DETACH, SURROGATE, SLOPE, SCALED, LEARNS, RECOMPUTES, AHEAD
        )  # fmt: skip
        out_at -= AHEAD * n
        x, before, h, g = next_x, next_before, next_h, next_g
    tl.store(carried + m, back, mask=inside)
    if LEARNS:
        tl.store(sums + m, of_beta, mask=inside)
        tl.store(sums + n_samples * n + m, of_threshold, mask=inside)
