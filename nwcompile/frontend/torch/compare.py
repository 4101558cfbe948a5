"""Compare the spikes of the imported network with those of the module on the example."""

from collections import defaultdict
from itertools import groupby

import numpy as np
import torch

from nwcompile.errors import ModelError, warn_user
from nwcompile.frontend.torch.modules import preserve_state
from nwcompile.frontend.torch.operators.ops import Op, find_raising_site, is_op, list_leaves
from nwcompile.frontend.torch.operators.readout import CLOSE, is_close
from nwcompile.frontend.torch.operators.record import OperatorRecorder
from nwcompile.frontend.torch.operators.roll import COPIES, find_users
from nwcompile.frontend.torch.operators.runs import draw_like, record_run
from nwcompile.frontend.torch.operators.unroll import SAME_SHAPE
from nwcompile.ir.network import Network
from nwcompile.sim import simulate

ROUNDING = 1e-5  # of messages that are not whole numbers: torch's exp and tanh round otherwise
MAX_ROUNDED = 0.02  # part of the entries that rounding may change
COMPARISONS = ("record", "gt", "ge", "lt", "le", "eq", "ne", "sign", "round", "floor", "ceil", "heaviside")
REDUCED = ("sum", "mean", "amax", "amin", "var", "std", "addmm", "mm", "bmm", "convolution")
COMPUTED = {*SAME_SHAPE, *REDUCED} - {*COPIES, "_to_copy"}  # torch adds copies for some numbers of samples only
N_SAMPLES = 4  # of a batch in which one sample is compared with the same sample alone, as many as `draw_like` gives
PLACE = 2  # of that sample: not the first, the last or the middle one
MAX_SAMPLES = 2  # Two samples reveal a wrong import as well as more, in less time.


def compare_drawn(network: Network, inputs: torch.Tensor, spikes: dict[str, torch.Tensor]) -> None:
    """Warn with NwWarning about the first layer whose spikes differ clearly on drawn `inputs`, `[B, T, *shape]`."""
    layer = find_different_layer(network, inputs, spikes)
    if layer:
        warn_user(f"layer {layer!r} spikes differently from the module on drawn inputs; please report it")


def find_different_layer(network: Network, inputs: torch.Tensor, spikes: dict[str, torch.Tensor]) -> str | None:
    """Return the first layer whose `spikes` the network does not have on drawn `inputs`, `[B, T, *shape]`, or None.

    Inputs without the example's scale bring more neurons to their threshold, where sums in another order round to the
    other side; a wrong map changes more.
    """
    run = simulate(network, inputs.float().cpu().numpy())
    for layer, expected in spikes.items():
        if run.spikes[layer].size != expected.numel():
            return layer
        got = run.spikes[layer].reshape(expected.shape)
        differs = ~np.isclose(got, expected.float().cpu().numpy(), ROUNDING, ROUNDING)
        if differs.mean() > MAX_ROUNDED:
            return layer
    return None


def compare_spikes(network: Network, x: torch.Tensor, spikes: dict[str, torch.Tensor]) -> None:
    """Warn with NwWarning about the first layer whose spikes differ, and its first step and neuron.

    `x` is `[B, T, *shape]` and `spikes[layer]` `[B, T, *shape]`; the first 2 samples are compared.
    """
    run = simulate(network, x[:MAX_SAMPLES].float().cpu().numpy())
    for layer in network.layers:
        if layer not in spikes or not network.node(layer).neuron.fires:
            continue
        expected = spikes[layer][:MAX_SAMPLES].float().cpu().numpy().reshape(*run.spikes[layer].shape[:2], -1)
        got = run.spikes[layer].reshape(expected.shape)
        differs = (got != expected) & ~np.isclose(got, expected, ROUNDING, ROUNDING)
        if (expected == np.trunc(expected)).all():
            differs = got != expected
        if differs.any():
            where = np.argwhere(differs)
            sample, step, neuron = where[np.argmin(where[:, 1])]
            warn_user(
                f"layer {layer!r} spikes differently from the module on the example: {len(where)} of {got.size} "
                f"entries, first in step {step}, sample {sample}, neuron {neuron}: {expected[sample, step, neuron]:g} "
                f"in the module, {got[sample, step, neuron]} in the network"
            )
            return


def verify_samples(
    module: torch.nn.Module,
    x: torch.Tensor,
    lead: str,
    n_samples: int,
    layers: dict[torch.nn.Module, str],
    single: OperatorRecorder,
    has_own: bool,
) -> None:
    """Raise ModelError, naming the place, if the spikes of a sample depend on the other samples of its batch.

    `single` has recorded `x`, one sample `[1, T, *shape]`. Its operators are compared with those of a batch with drawn
    samples around `x`. `layers` are not looked into. `has_own`: whether the module has other neurons too; then
    comparisons are spikes. A module that takes one sample and fails on more is refused if the example has several
    (`n_samples`).
    """
    samples = draw_like(x)
    samples[PLACE] = x
    try:
        with preserve_state(module):
            batch, _ = record_run(module, torch.cat(samples), lead, layers)
    except Exception:  # a module for one sample, or for a fixed number
        if n_samples > 1:
            _refuse_fixed_batch(module, torch.cat([x] * N_SAMPLES), lead)
        return
    _compare_sample(single, batch, COMPARISONS if has_own else ("record",))


def _compare_sample(single: OperatorRecorder, batch: OperatorRecorder, spiking: tuple[str, ...]) -> None:
    """Raise ModelError if an operator gives a sample other values in a batch than alone, and spikes depend on it.

    `spiking`: names of operators that make spikes. Operators of other code, as after `if len(x) == 1`, are compared by
    what follows them.
    """
    one, two = single.ops, batch.ops
    lines = _group_by_line(one)
    alone, both = _number_runs(lines), _number_runs(_find_sample(_group_by_line(two), lines))
    changed = [key for key in both if key in alone and not _has_same_sample(alone[key], both[key])]
    if not changed or both[changed[0]].name == "record":
        n_calls = len(batch.calls) if not changed else both[changed[0]].kwargs["call"] + 1
        calls = zip(single.calls[:n_calls], batch.calls[:n_calls], strict=False)
        given = [(a.given[0], b.given[0]) for a, b in calls if a.layer == b.layer]
        given = [(a, b) for a, b in given if not _has_same_sample(a, b)]
        if not given:
            return  # sums in another order round to the other side
        like, op = given[0]
    else:
        op, like = both[changed[0]], alone[changed[0]]
        if op.name in COMPARISONS and _list_numbers(op) == _list_numbers(like):
            return
        users = find_users(two, [op]) | {both[key] for key in changed if both[key].name == "record"}
        if not any(user.name in spiking for user in users):
            return  # it changes the module's result only
    what = f"{op.site}: {op.title} gives a sample other values in a batch than alone"
    for ops, here, there, when in ((one, alone, both, "a single sample"), (two, both, alone, "several samples")):
        only = [here[key] for key in here if key not in there and find_users(ops, [here[key]]) & {op, like}]
        if only:
            what = f"{only[0].site}: {only[0].title} runs for {when} only"
            break
    raise ModelError(
        f"{what}, and its neurons then spike differently; a chip runs one sample at a time: compute every sample by "
        "itself"
    )


def _group_by_line(ops: list[Op]) -> dict[tuple, list[Op]]:
    """Return the operators that compute something, in order, by the line of code and whether they are records.

    If a line has several in a row, the last one: torch may add a bias apart, depending on the layout of the batch.
    """
    computed = [op for op in ops if op.depends and op.name in (*COMPUTED, "record")]
    lines: dict[tuple, list[Op]] = defaultdict(list)
    for line, run in groupby(computed, key=lambda op: (op.site.frames, op.name == "record")):
        lines[line].append([*run][-1])
    return lines


def _find_sample(batch: dict[tuple, list[Op]], alone: dict[tuple, list[Op]]) -> dict[tuple, list[Op]]:
    """Return the operators of a batch by line; of a loop over the samples, those for the sample that is compared."""
    lines = dict(batch)
    for line, expected in alone.items():
        runs, n = batch.get(line, []), len(expected)
        if len(runs) == N_SAMPLES * n:
            for some in (runs[PLACE * n : (PLACE + 1) * n], runs[PLACE::N_SAMPLES]):  # the loop is outside, or inside
                if all(_has_same_sample(a, b) for a, b in zip(expected, some, strict=True)):
                    lines[line] = some
    return lines


def _number_runs(lines: dict[tuple, list[Op]]) -> dict[tuple, Op]:
    """Return the operators by line and number, in the order in which they ran."""
    numbered = [((line, k), op) for line, runs in lines.items() for k, op in enumerate(runs)]
    return dict(sorted(numbered, key=lambda item: item[1].serial))


def _list_numbers(op: Op) -> list:
    """Return the numbers among an operator's arguments."""
    values = [a.value if is_op(a) and not a.depends else a for a in list_leaves((op.args, op.kwargs))]
    return [float(v) for v in values if isinstance(v, int | float) or (isinstance(v, torch.Tensor) and v.numel() == 1)]


def _refuse_fixed_batch(module: torch.nn.Module, equal: torch.Tensor, lead: str) -> None:
    """Raise ModelError with the place where the module fails on a batch of equal samples, if it does."""
    try:
        with preserve_state(module):
            record_run(module, equal, lead)
    except Exception as e:
        site = find_raising_site(e, module)
        raise ModelError(
            f"{site}: the module takes one sample, but fails on {len(equal)} ({str(e).partition(chr(10))[0]}); a"
            " chip runs one sample at a time: write x.shape[0] where the module has a number of samples"
        ) from None


def _has_same_sample(alone: Op, both: Op) -> bool:
    """Return whether an operator gives the sample at its place in a batch its values alone, in any layout."""
    if not isinstance(alone.value, torch.Tensor) or not alone.value.numel():
        return True
    one, two = (op.value.double().nan_to_num() for op in (alone, both))
    rounding = 2 * torch.finfo(alone.value.dtype).eps if alone.value.is_floating_point() else 0.0
    tolerance = max(CLOSE, rounding)  # a sum and a bias are each rounded to half precision
    if one.shape == two.shape:
        return is_close(two, one, tolerance)
    axes = [k for k, (a, b) in enumerate(zip(one.shape, two.shape, strict=False)) if a != b]
    if one.ndim != two.ndim or len(axes) != 1 or two.shape[axes[0]] != N_SAMPLES * one.shape[axes[0]]:
        return True
    (axis,) = axes
    n = one.shape[axis]
    outer = (k for k in range(1, n + 1) if n % k == 0)  # axes before the samples, such as the steps of a flat batch
    parts = (two.unflatten(axis, (k, N_SAMPLES, n // k)).select(axis + 1, PLACE).flatten(axis, axis + 1) for k in outer)
    return any(is_close(part, one, tolerance) for part in parts)
