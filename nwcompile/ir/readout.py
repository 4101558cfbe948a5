"""Readout: what the host computes from the spikes and states of layers, to get the answer of the imported module."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from nwcompile.errors import ModelError, OptionError, shown

ERROR_CODE = "NW2309"
OPERATORS = frozenset(  # torch operators, without namespace and overload; a file can name no others
    (
        "abs", "add", "addcmul", "addmm", "all", "amax", "amin", "any", "argmax", "argmin", "argsort", "atan",
        "avg_pool2d", "avg_pool3d", "_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "bitwise_and", "bitwise_not",
        "bitwise_or", "bmm", "cat", "ceil", "clamp", "clamp_max", "clamp_min", "constant_pad_nd", "convolution", "cos",
        "cumprod", "cumsum", "div", "elu", "eq", "erf", "exp", "expand", "fill", "flip", "floor", "floor_divide",
        "fmod", "gather", "ge", "gelu", "getitem", "gt", "hardsigmoid", "hardswish", "hardtanh", "heaviside", "index",
        "index_put", "index_select", "le", "leaky_relu", "lerp", "log", "log1p", "log2", "_log_softmax", "logical_and",
        "logical_not", "logical_or", "logical_xor", "logsumexp", "lt", "masked_fill", "max", "maximum",
        "max_pool2d_with_indices", "max_pool3d_with_indices", "mean", "median", "min", "minimum", "mm", "mul",
        "native_batch_norm", "native_group_norm", "native_layer_norm", "ne", "neg", "norm", "linalg_vector_norm",
        "permute", "pixel_shuffle", "pow", "prod", "reciprocal", "relu", "remainder", "repeat", "reshape", "roll",
        "round", "rsqrt", "rsub", "select", "select_scatter", "sgn", "sigmoid", "sign", "silu", "sin", "slice",
        "slice_scatter", "_softmax", "softplus", "sort", "split", "split_with_sizes", "sqrt", "square", "squeeze",
        "stack", "std", "sub", "sum", "t", "tanh", "threshold", "_to_copy", "topk", "transpose", "trunc", "unbind",
        "unsafe_split", "unsqueeze", "upsample_bilinear2d", "upsample_nearest1d", "upsample_nearest2d", "var", "view",
        "_unsafe_view", "where", "zeros_like", "ones_like", "full_like", "scatter", "one_hot",
    )
)  # fmt: skip
RULES = {  # that a user may choose
    "sum": "largest sum over all steps",
    "last": "largest value in the last step",
    "max": "largest value in any step",
    "first-spike": "earliest spike",
}
RULE = re.compile(r"([a-z-]+)(?::([1-9][0-9]{0,8}))?")
NEVER = -(1 << 31)  # before the first spike of any sample, negated
REFERENCES = ("row", "all", "after", "array", "dtype", "number", "steps")


@dataclass(frozen=True, eq=False)
class Readout:
    """Operators of torch that compute the first result of an imported module, for one sample at a time.

    `per_step`: rows that run in every step. A row with "layer" is the record of a layer: its spikes, or its "state",
    times "factor", as a tensor of "shape" and "dtype". The others have an "operator", its "arguments" and "options";
    "before" has the values of the steps before the first one, by delay. `after`: rows that run once, after the last
    step. `result`: a reference to the result, or a list of those of every step.

    References: `{"row": i, "delay": d}` in a row of `per_step`; `{"row": i, "step": t}` (-1: the last), `{"all": i}`
    (all steps of row i) and `{"after": j}` in a row of `after`; `{"array": k}`, one of `arrays`; `{"dtype": name}`;
    `{"number": "inf"}`; `{"steps": true}`, the number of steps.

    `shape`: shape of the result, or of its part of one step, with axes of one sample and one step. `is_whole`: whether
    it has an integer type. `n_steps`: the only number of steps that it can read; None for any. `text`: the rule for the
    class, in words.
    """

    per_step: tuple[dict, ...]
    after: tuple[dict, ...]
    result: Any
    arrays: tuple[np.ndarray, ...] = ()
    shape: tuple[int, ...] = ()
    is_whole: bool = False
    n_steps: int | None = None
    text: str = ""

    @property
    def is_per_step(self) -> bool:
        """Whether the result has a value for every step."""
        return isinstance(self.result, list) or "all" in self.result

    @property
    def is_class(self) -> bool:
        """Whether the result is a class, and not a number for each class."""
        return self.is_whole and prod(self.shape) == 1

    @property
    def n_classes(self) -> int | None:
        """Number of classes that the result has a number for; None if the result is a class."""
        return None if self.is_class else prod(self.shape)

    @property
    def records(self) -> tuple[tuple[str, str | None], ...]:
        """The layers that it reads, each with a state, or None for its spikes."""
        return tuple((row["layer"], row["state"]) for row in self.per_step if "layer" in row)

    @property
    def state_layers(self) -> set[str]:
        """Names of the layers from which it reads a state."""
        return {layer for layer, state in self.records if state is not None}

    def verify(self, names: set[str]) -> None:
        """Raise ModelError unless it uses known operators and references, and layers among `names`."""
        for k, row in enumerate((*self.per_step, *self.after)):
            if "layer" in row:
                if k >= len(self.per_step) or row["layer"] not in names:
                    raise ModelError(f"the readout reads layer {row['layer']!r}, which the network does not have")
            elif row["operator"].partition(".")[0] not in OPERATORS:
                raise ModelError(f"the readout uses torch's {row['operator']}, which no readout may use")
            parts = [row.get("arguments", []), *row.get("options", {}).values(), *row.get("before", {}).values()]
            for ref in iterate_references(parts):
                self._verify_reference(ref, k)
        for ref in iterate_references(self.result):
            self._verify_reference(ref, len(self.per_step) + len(self.after))

    def _verify_reference(self, ref: dict, row: int) -> None:
        n, after = len(self.per_step), row - len(self.per_step)
        kind = next((key for key in REFERENCES if key in ref), None)
        limit = {"row": n if after >= 0 or ref.get("delay") else row, "all": n if after >= 0 else 0, "after": after}
        limit["array"] = len(self.arrays)
        if kind is None or (kind in limit and not 0 <= ref[kind] < limit[kind]):
            raise ModelError(f"the readout refers to {ref}, which it does not have")

    def to_dict(self) -> dict:
        """Return plain values for the manifest, without the arrays."""
        return {
            "per_step": list(self.per_step),
            "after": list(self.after),
            "result": self.result,
            "n_arrays": len(self.arrays),
            "shape": list(self.shape),
            "is_whole": self.is_whole,
            "n_steps": self.n_steps,
            "text": self.text,
        }

    @classmethod
    def from_dict(cls, table: dict, arrays: tuple[np.ndarray, ...]) -> "Readout":
        """Return the readout of such plain values."""
        return cls(
            per_step=tuple(table["per_step"]),
            after=tuple(table["after"]),
            result=table["result"],
            arrays=arrays,
            shape=tuple(table["shape"]),
            is_whole=table["is_whole"],
            n_steps=table["n_steps"],
            text=table["text"],
        )

    def in_integers(self, table: list[dict]) -> "Readout":
        """Return the readout of the network in integers, for the scales in the rows of its quantization table."""
        scales: dict[tuple[str, str | None], float] = {}
        for layer in table:
            states = layer.get("states") or [{"state": "v", "scale": layer.get("scale")}]
            scales |= {(layer["layer"], s["state"]): s["scale"] for s in states if s["scale"]}
        rows = (
            {**row, "factor": row["factor"] / scales.get((row["layer"], row["state"]), 1.0)} if "layer" in row else row
            for row in self.per_step
        )
        return replace(self, per_step=tuple(rows))

    def for_any_length(self) -> tuple["Readout", ...]:
        """Return candidates for any number of steps: this readout, and one that divides by the actual number."""
        after = tuple(
            {**row, "arguments": [{"steps": True} if a == self.n_steps else a for a in row["arguments"]]}
            if row["operator"] in ("div.Tensor", "mul.Tensor")
            else row
            for row in self.after
        )
        return replace(self, n_steps=None), replace(self, after=after, n_steps=None)


def iterate_references(value: Any) -> Iterator[dict]:
    """Yield the references in nested lists."""
    if isinstance(value, dict):
        yield value
    elif isinstance(value, list | tuple):
        for part in value:
            yield from iterate_references(part)


def parse_rule(text) -> tuple[str, int | None]:
    """Return the word and the number of classes of a rule like "sum" or "sum:10"; raise OptionError for others."""
    match = RULE.fullmatch(text) if isinstance(text, str) else None
    if match is None or match[1] not in RULES:
        raise OptionError(
            f"readout={shown(text)} must be {', '.join(RULES)}, or one of them with a number of classes, like sum:10: "
            "each class is a group of neighboring neurons"
        )
    return match[1], None if match[2] is None else int(match[2])


def choose_readout(text: str, layer: str, state: str | None, n: int) -> Readout:
    """Return the readout of a rule like "max" or "sum:10" for the `n` neurons of an output layer.

    `state`: what is read of neurons that never fire; None for spikes. Raises OptionError if the rule is unknown, or if
    the neurons cannot be split into equal groups.
    """
    kind, n_groups = parse_rule(text)
    n_classes = n_groups or n
    if n % n_classes:
        raise OptionError(
            f"readout={text!r}: the {n} neurons of {layer!r} cannot be split into {n_classes} equal groups"
        )
    whole = {"after": 0}  # [T, n]
    after = [_row("stack.default", [{"all": 0}])]
    if kind == "last":
        after.append(_row("select.int", [whole, 0, -1]))
    elif kind == "first-spike":
        after += [  # minus the step of the first spike
            _row("gt.Scalar", [whole, 0]),
            _row("_to_copy.default", [{"after": 1}], {"dtype": {"dtype": "float32"}}),
            _row("argmax.default", [{"after": 2}, 0]),
            _row("neg.default", [{"after": 3}]),
            _row("any.dim", [{"after": 1}, 0]),
            _row("where.ScalarOther", [{"after": 5}, {"after": 4}, NEVER]),
        ]
    else:
        after.append(_row("amax.default" if kind == "max" else "sum.dim_IntList", [whole, [0]]))
    if n_classes != n:
        after.append(_row("reshape.default", [{"after": len(after) - 1}, [n_classes, n // n_classes]]))
        in_groups = "amax.default" if kind in ("max", "first-spike") else "sum.dim_IntList"
        after.append(_row(in_groups, [{"after": len(after) - 1}, [1]]))
    record = {"layer": layer, "state": state, "factor": 1.0, "shape": [n], "dtype": "float32"}
    groups = f" in {n_classes} groups" if n_groups else ""
    return Readout(
        per_step=(record,),
        after=tuple(after),
        result={"after": len(after) - 1},
        shape=(n_classes,),
        text=f"{RULES[kind]} of {layer!r}{groups} (readout={text!r})",
    )


def _row(operator: str, arguments: list, options: dict | None = None) -> dict:
    return {"operator": operator, "arguments": arguments, "options": options or {}}
