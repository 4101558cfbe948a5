"""Synaptic sums of sparse connections in Triton: integers, gathered target by target."""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["n_rows", "n_source", "n_target"])
def gather(
    row,  # int64[target + 1]: first synapse of each target
    source,  # int32[synapse]
    weight,  # int32 | int64 [synapse]
    payload,  # int8 | int32 [row, source]: a row is a step of a sample
    out,  # int32 | int64 [row, target]: sums; or uint8: whether there was an event, stored zeros included
    n_rows, n_source, n_target,
    EVENTS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Accumulate the synapses of each target in each row; sums have the type of `out`.

    A program computes ROWS rows of BLOCK targets. Programs are numbered on one axis, because the others end at 65535.
    """
    n_parts = (n_rows + ROWS - 1) // ROWS
    at_row = (tl.program_id(0) % n_parts * ROWS + tl.arange(0, ROWS))[:, None]
    target = tl.program_id(0) // n_parts * BLOCK + tl.arange(0, BLOCK)
    is_row, is_target = at_row < n_rows, target < n_target
    start = tl.load(row + target, mask=is_target, other=0)
    end = tl.load(row + target + 1, mask=is_target, other=0)
    payload_at = payload + at_row.to(tl.int64) * n_source
    total = tl.zeros((ROWS, BLOCK), out.dtype.element_ty)
    for k in range(tl.max(end - start)):
        is_synapse = start + k < end
        i = tl.load(source + start + k, mask=is_synapse, other=0)
        x = tl.load(payload_at + i[None, :], mask=is_row & is_synapse[None, :], other=0)
        if EVENTS:
            total = total | (x != 0).to(total.dtype)
        else:
            w = tl.load(weight + start + k, mask=is_synapse, other=0)
            total += w.to(total.dtype)[None, :] * x.to(total.dtype)
    tl.store(out + at_row.to(tl.int64) * n_target + target[None, :], total, mask=is_row & is_target[None, :])
