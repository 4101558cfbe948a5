"""Bits file: a small TOML file of weight widths that `--bits` reads and `nwcompile bits` writes.

bits = 4        # of all other layers; default: the chip's

[layers]
fc1 = 8
"conv.1" = 2
"""

import json
import tomllib

from nwcompile.errors import OptionError, unknown_choice

ERROR_CODE = "NW1007"
KEYS = ("bits", "layers")


def read_bits(text: str) -> dict:
    """Read the `Options` fields of `--bits N` or `--bits FILE.toml`. Raises OptionError if it is neither."""
    if not text.endswith(".toml"):
        try:
            return {"bits": int(text)}
        except ValueError:
            raise OptionError(f"--bits {text}: expected a number of bits or a .toml file of widths") from None
    try:
        with open(text, "rb") as file:
            table = tomllib.load(file)
    except (OSError, ValueError) as e:
        reason = e.strerror if isinstance(e, OSError) else str(e)
        raise OptionError(f"--bits {text}: cannot be read: {reason}") from None
    for key in table:
        if key not in KEYS:
            raise OptionError(f"--bits {text}: {unknown_choice('key', key, KEYS)}")
    layers = table.get("layers", {})
    if not isinstance(layers, dict):
        raise OptionError(f"--bits {text}: layers={layers!r} must be a table of layers and their bits")
    return {"bits": table.get("bits"), "layer_bits": layers or None}


def bits_text(layer_bits: dict[str, int], about: str) -> str:
    """Format a file with these widths; `about` is its first line."""
    lines = (f"{json.dumps(name, ensure_ascii=False)} = {bits}" for name, bits in layer_bits.items())
    return "\n".join([f"# {about}", "[layers]", *lines, ""])
