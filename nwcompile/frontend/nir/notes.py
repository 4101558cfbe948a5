"""Notes in the metadata of NIR nodes: store a node's fields so that reading returns the same bits and types.

A note is a JSON text under the key `nwcompile`. Its arrays are under `nwcompile_<field>`. An array that equals a
parameter of the node is not written twice; the note names the parameter instead.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

ERROR_CODE = "NW2106"
KEY = "nwcompile"
DTYPE = re.compile("[<>|][biuf][0-9]{1,2}")  # NumPy also parses other texts, such as 'f4,f4'


def write_note(fields: Iterable[tuple[str, object]], parameters: Mapping[str, object]) -> dict[str, object]:
    """Return metadata with `fields` of a node that has these `parameters`; `read_note` is the inverse."""
    text: dict[str, object] = {}
    arrays: dict[str, np.ndarray] = {}
    for name, value in fields:
        if isinstance(value, np.ndarray) and value.size and value.ndim:
            same_parameter = next((key for key, other in parameters.items() if _is_same(value, other)), None)
            text[name] = {"array": None} if same_parameter is None else {"parameter": same_parameter}
            if same_parameter is None:
                arrays[f"{KEY}_{name}"] = value
        else:
            text[name] = encode_value(value)
    return {KEY: json.dumps(text), **arrays}


def read_note(metadata: Mapping, parameters: Mapping[str, object]) -> dict[str, Any]:
    """Return the fields in a node's metadata; raise ValueError, KeyError or TypeError for unreadable ones."""
    fields: dict[str, Any] = {}
    for name, value in json.loads(str(metadata[KEY])).items():
        if isinstance(value, dict) and "array" in value:
            fields[name] = _check_array(metadata[f"{KEY}_{name}"])
        elif isinstance(value, dict) and "parameter" in value:
            fields[name] = _check_array(parameters[value["parameter"]])
        else:
            fields[name] = decode_value(value)
    return fields


def _is_same(array: np.ndarray, other) -> bool:
    if not isinstance(other, np.ndarray) or (array.dtype.str, array.shape) != (other.dtype.str, other.shape):
        return False
    return array.tobytes() == other.tobytes()


def encode_value(value):
    """Encode a scalar, tuple, or array without dimensions or values as JSON that includes its type."""
    if isinstance(value, tuple):
        return {"tuple": [encode_value(v) for v in value]}
    if isinstance(value, np.ndarray | np.generic):
        kind = "inline" if isinstance(value, np.ndarray) else "scalar"
        return {kind: [value.dtype.str, list(value.shape), value.tobytes().hex()]}
    return value


def decode_value(value):
    if not isinstance(value, dict):
        return value
    if "tuple" in value:
        return tuple(decode_value(v) for v in value["tuple"])
    ((kind, (dtype, shape, data)),) = value.items()
    array = np.frombuffer(bytes.fromhex(data), _parse_dtype(dtype)).reshape(shape).copy()
    return array[()] if kind == "scalar" else array


def _parse_dtype(text: str) -> np.dtype:
    if not DTYPE.fullmatch(text):
        raise ValueError(f"type {text!r}")
    return np.dtype(text)


def _check_array(value) -> np.ndarray:
    array = np.asarray(value)
    _parse_dtype(array.dtype.str)
    return array
