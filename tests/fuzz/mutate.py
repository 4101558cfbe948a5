"""Damage: the same kinds for bytes, arrays and nested tables, drawn from a random.Random and from nothing else."""

import copy
import math
import random

import numpy as np

NUMBERS = (0, 1, -1, 2, 3, 7, 255, 256, 1 << 15, 1 << 31, -(1 << 31), 1 << 40, (1 << 63) - 1, 1 << 64, 0.5, -0.0, 1e-45,
           1e-9, 1e30, 1e300, math.inf, -math.inf, math.nan)  # fmt: skip
TEXTS = ("", "0", "x", "input", "output", "NIRGraph", "LIF", "conv", "dense", "..", "/", "a/b", "\n", "\x7f",
         "é漢\u202e", "z" * 300)  # fmt: skip
DTYPES = ("bool", "int8", "uint8", "int32", "int64", "uint64", "float16", "float32", "float64", "complex64", "U3")


def odd_value(rng: random.Random):
    """A plain value as JSON and TOML know them, seldom the one that belongs there."""
    kind = rng.randrange(8)
    if kind < 4:
        return rng.choice(NUMBERS)
    if kind < 6:
        return rng.choice(TEXTS)
    if kind == 6:
        return rng.choice((None, True, False))
    return [rng.choice(NUMBERS) for _ in range(rng.randrange(4))] if rng.random() < 0.7 else {"a": rng.choice(NUMBERS)}


def damaged_bytes(rng: random.Random, data: bytes) -> bytes:
    """The bytes with one to three places flipped, overwritten, cut out, doubled or moved, or cut short."""
    whole = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(whole) + 1)
        n = min(rng.choice((1, 1, 2, 4, 8, 64, 1000)), len(whole) - at)
        match rng.randrange(7):
            case 0 | 1:
                for i in range(at, at + min(n, 4)):
                    whole[i] ^= 1 << rng.randrange(8)
            case 2:
                whole[at : at + n] = bytes(rng.choice((0, 255, rng.randrange(256))) for _ in range(n))
            case 3:
                number = rng.choice(NUMBERS[:17])
                whole[at : at + 8] = (int(number) & ((1 << 64) - 1)).to_bytes(8, "little")
            case 4:
                del whole[at : at + n]
            case 5:
                other = rng.randrange(len(whole) + 1)
                whole[other:other] = whole[at : at + n]
            case _:
                if rng.random() < 0.3:
                    del whole[at:]
    return bytes(whole)


def damaged_array(rng: random.Random, array: np.ndarray) -> np.ndarray:
    """The array with other numbers or texts in it, of another type, or of another shape."""
    match rng.randrange(8):
        case 0 | 1 | 2 if array.size:
            return _with_entry(rng, array)
        case 3:
            with np.errstate(all="ignore"):
                text = rng.choice(DTYPES)
                return np.full(array.shape, "x") if array.dtype.kind in "OSUV" else array.astype(text)
        case 4:
            shapes = [(1, *array.shape), (*array.shape, 1), array.shape[::-1], (array.size,)]
            return array.reshape(rng.choice(shapes))
        case 5:
            return array[:-1] if array.ndim else array.reshape(1)
        case 6:
            return np.concatenate([array, array]) if array.ndim else np.zeros(0, array.dtype)
        case _:
            return np.asarray(odd_array(rng))


def odd_array(rng: random.Random):
    """A number, a text, or a small array of one number."""
    value = rng.choice((*NUMBERS[:14], *NUMBERS[14:], *TEXTS[:10]))
    if isinstance(value, str):
        return value.replace("\0", "") if rng.random() < 0.5 else np.array([value.encode()])
    value = float(value) if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63 else value
    return np.full(rng.choice(((), (1,), (3,), (2, 2), (0,))), value)


def _with_entry(rng: random.Random, array: np.ndarray) -> np.ndarray:
    """One entry, or all of them, replaced: a text by another one, a number by an odd one that its type can hold."""
    changed = array.copy().reshape(-1)
    where = slice(None) if rng.random() < 0.2 else rng.randrange(changed.size)
    if changed.dtype.kind in "OSUV":
        other = changed[rng.randrange(changed.size)] if rng.random() < 0.7 else rng.choice(TEXTS)
        changed[where] = other.encode() if changed.dtype.kind == "S" and isinstance(other, str) else other
    else:
        with np.errstate(all="ignore"):
            fits = np.array([n for n in NUMBERS if abs(n) < 1 << 63 or changed.dtype.kind == "f"], np.float64)
            changed[where] = fits[rng.randrange(len(fits))].astype(changed.dtype)
    return changed.reshape(array.shape)


def places(value, path=()) -> list[tuple]:
    """Paths to every value inside nested dicts and lists, the outermost left out."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [found for key, inner in items for found in ((*path, key), *places(inner, (*path, key)))]


def damaged_table(rng: random.Random, table: dict, value_of=odd_value) -> dict:
    """A copy of nested dicts and lists, one to three values replaced, removed, renamed, copied or added.

    `value_of(rng)` gives what is put in; arrays are damaged inside as often as they are replaced.
    """
    table = copy.deepcopy(table)
    for _ in range(rng.choice((1, 1, 2, 3))):
        found = places(table)
        if not found:
            return table
        path = rng.choice(found)
        parent = table
        for key in path[:-1]:
            parent = parent[key]
        _damage(rng, table, parent, path[-1], found, value_of)
    return table


def _damage(rng: random.Random, table: dict, parent, key, found: list[tuple], value_of) -> None:
    match rng.randrange(6):
        case 0:
            del parent[key]
        case 1 if isinstance(parent, dict):
            parent[rng.choice((*TEXTS[1:], "name", "weight", "shape", "0", "1"))] = parent.pop(key)
        case 2:
            other = table
            for step in rng.choice(found):
                other = other[step]
            parent[key] = copy.deepcopy(other)
        case 3 if isinstance(parent, dict):
            parent[rng.choice(("shape", "bias", "delay", "x", "2"))] = value_of(rng)
        case _ if isinstance(parent[key], np.ndarray) and rng.random() < 0.8:
            parent[key] = damaged_array(rng, parent[key])
        case _:
            parent[key] = value_of(rng)
