"""Run a readout: torch's operators on the spikes and states of layers, all samples at once."""

from functools import partial
from typing import Any

import numpy as np
import torch

from nwcompile.errors import ModelError
from nwcompile.ir.readout import Readout

ERROR_CODE = "NW2309"
ENTRIES_AT_ONCE = 1 << 24  # of all records; bounds the memory


def run_readout(readout: Readout, spikes: dict, states: dict) -> np.ndarray:
    """Return the module's result, `[B, *]`, or `[B, T, *]` if it has one value for every step.

    `spikes[layer]` and `states[layer][state]` are `[B, T, *shape]`. Raises ModelError if a record is missing, or for
    another number of steps than the readout's.
    """
    rows = [row for row in readout.per_step if "layer" in row]
    records = [_find_record(row, spikes, states) for row in rows]
    n_samples, n_steps = records[0].shape[:2]
    if readout.n_steps not in (None, n_steps):
        raise ModelError(
            f"the module's answer was recorded on {readout.n_steps} steps, and the samples have {n_steps}; import the "
            f"module with an example of {n_steps} steps, or choose another readout"
        )
    size = max(1, ENTRIES_AT_ONCE // max(1, sum(record[0].numel() for record in records)))
    run = torch.vmap(partial(_run_sample, readout, n_steps))
    try:
        with torch.no_grad():
            parts = [run(*(record[k : k + size] for record in records)) for k in range(0, n_samples, size)]
    except (RuntimeError, TypeError, ValueError, LookupError, AttributeError) as e:
        raise ModelError(f"torch cannot compute the module's answer, {readout.text}: {e}") from None
    result = torch.cat(parts)
    return (result.float() if result.dtype == torch.bfloat16 else result).numpy()  # NumPy has no bfloat16


def _find_record(row: dict, spikes: dict, states: dict) -> torch.Tensor:
    layer, state = row["layer"], row["state"]
    if state == "i" and "u" in states.get(layer, {}):
        raise ModelError(
            f"the module's answer needs the synaptic current of layer {layer!r}, which a chip counts in other units; "
            "return its membrane or its spikes"
        )
    if state is not None and state not in states.get(layer, {}):
        raise ModelError(f"the module's answer needs state {state!r} of layer {layer!r}; simulate with record='all'")
    given = spikes[layer] if state is None else states[layer][state]
    dtype = getattr(torch, row["dtype"])
    record = torch.from_numpy(np.asarray(given * row["factor"], np.float32))
    return record.reshape(*given.shape[:2], *row["shape"]).to(dtype)


def _run_sample(readout: Readout, n_steps: int, *records: torch.Tensor) -> torch.Tensor:
    """Return the result of one sample; `records` are those of the rows with a layer, `[T, *shape]`."""
    arrays = [torch.from_numpy(array) for array in readout.arrays]
    values: dict[tuple[int, int], Any] = {}
    results: list[Any] = []
    step = 0

    def find(ref: dict) -> Any:
        if "row" in ref:
            t = step - ref["delay"] if "delay" in ref else ref["step"] % n_steps
            return values[ref["row"], t]
        if "all" in ref:
            return [values[ref["all"], t] for t in range(n_steps)]
        if "after" in ref:
            return results[ref["after"]]
        if "steps" in ref:
            return n_steps
        if "dtype" in ref:
            return getattr(torch, ref["dtype"])
        return float(ref["number"]) if "number" in ref else arrays[ref["array"]]

    for i, row in enumerate(readout.per_step):
        for delay, ref in row.get("before", {}).items():
            values[i, -int(delay)] = find(ref)
    for step in range(n_steps):
        given = iter(records)
        for i, row in enumerate(readout.per_step):
            values[i, step] = next(given)[step] if "layer" in row else _run_row(row, find)
    for row in readout.after:
        results.append(_run_row(row, find))
    result = _fill(readout.result, find)
    return torch.stack(result) if isinstance(result, list) else result


def _run_row(row: dict, find) -> Any:
    arguments = _fill(row["arguments"], find)
    options = {key: _fill(value, find) for key, value in row["options"].items()}
    if row["operator"] == "getitem":
        return arguments[0][arguments[1]]
    name, _, overload = row["operator"].partition(".")
    return getattr(getattr(torch.ops.aten, name), overload)(*arguments, **options)


def _fill(value: Any, find) -> Any:
    """Return nested lists with values for their references."""
    if isinstance(value, list | tuple):
        return [_fill(part, find) for part in value]
    return find(value) if isinstance(value, dict) else value
