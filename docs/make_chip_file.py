"""Write docs/chip-file.md and hwmodels/chip.schema.json from the dataclasses and comments of chip_sections.py."""

import inspect
import json
import re
from dataclasses import MISSING, fields
from pathlib import Path
from types import NoneType
from typing import get_args

from nwcompile.ir import chip_sections
from nwcompile.ir.chip import HWMODELS, Chip
from nwcompile.ir.chip_check import CHOICES, LARGEST, SMALLEST, TYPE_TEXT, ZERO_IN_LISTS, find_bounds

HERE = Path(__file__).parent
HEAD = """# The chip file

One TOML file describes a chip: its grid, limits, number formats, neuron features and the cost of each event.
`nwcompile chips list` lists the shipped chips, `nwcompile chips show NAME` prints one with its sources, and
`--set KEY=VALUE` (or `chip.replace({KEY: VALUE})`) overrides a key. `docs/make_chip_file.py` generates this page
from `nwcompile/ir/chip_sections.py`.

Editors with TOML support (taplo, Even Better TOML) complete and check the keys with `hwmodels/chip.schema.json`. Save
the schema next to your file (`nwcompile chips schema > chip.schema.json`; no checkout is needed), and make
`#:schema ./chip.schema.json` the first line of your file. The schema has names, types, words and bounds.
Combinations of keys are checked when the file is read.

A file is refused if a key is unknown, missing, of the wrong type or impossible, or if a figure has no source. The error
names the path of the key and says what would be right.

Top level: `name` (a text, needed), `description` (a text), the sections below (`noc`, `core` and `neuron` are needed),
and `sources`. With `base = "loihi1"`, or another shipped chip, a file contains only its changes. Each key in it needs
its own source. `loihi1_davies2018` is such a file: Loihi 1 with other costs.

With `proposed = true`, a refusal on another chip may propose this chip if it takes the network. `board_of = "loihi1"`
names the chip that a board consists of; the board is then proposed only if that chip is too small. Proposals come from
the shipped files and from the folder of the refusing chip's file. Programs do not depend on these two keys.

```toml
name = "mine"
description = "two cores"

[noc]
columns = 2
rows = 1

[core]
max_neurons = 256

[neuron]
reset = ["subtract"]

[sources]
noc = "data sheet, section 2"                  # for the whole section
core = "data sheet, section 3"
"core.max_neurons" = "measured on our board"   # for one key: in quotes
neuron = "assumed: not published"              # a reason is enough, and is reported
```
"""
SOURCES = """## `[sources]`

A text for every section, or for a single key in quotes; the text of a key has precedence. Every figure that is not the
default needs one. `"assumed: <reason>"` is allowed. The source of an overridden key is `set by the user`.

A text also states the basis of the figure, from the strongest to the weakest: `measured` on silicon, `published`,
`fitted` to measurements, `scaled` from another chip, or `assumed`. A clause of the text may begin with that word;
clauses end with a semicolon, and the weakest word counts: `"Davies 2018: 32 bits; assumed to be one flit"` is
assumed. A text without such a word cites a publication and is `published`. A default, and a key that the user has
set, are assumed. `nwcompile chips show NAME` lists the basis of each figure, and reports show it [next to each time
and energy](read-a-report.md#how-well-a-figure-is-known).
"""


def page() -> str:
    """The whole page."""
    return "\n".join([HEAD, *(_section(name, kind) for name, kind in chip_sections.SECTIONS.items()), SOURCES])


def _section(name: str, kind) -> str:
    lines = [
        f"## `[{name}]`",
        "",
        inspect.cleandoc(kind.__doc__),
        "",
        "| key | value | default | meaning |",
        "|---|---|---|---|",
    ]
    comments = _comments(kind.__name__)
    for f in fields(kind):
        key = f"{name}.{f.name}"
        lines.append(f"| `{f.name}` | {_type(key, f.type)} | {_default(f)} | {comments[f.name]} |")
    return "\n".join([*lines, ""])


def _comments(class_name: str) -> dict[str, str]:
    """The comment after each field of a class of chip_sections.py."""
    body = Path(chip_sections.__file__).read_text().split(f"class {class_name}:")[1].split("\n@dataclass")[0]
    return {m[1]: m[2].replace("|", "\\|") for m in re.finditer(r"^    (\w+): [^#\n]*  # (.*)$", body, re.MULTILINE)}


def _type(key: str, annotation) -> str:
    text = " or ".join(TYPE_TEXT[kind] for kind in _kinds(annotation))
    if key in CHOICES:
        text += ": " + ", ".join(f"`{word}`" for word in CHOICES[key])
    least = f", at least {SMALLEST[key]}" if key in SMALLEST else ""
    return text + least + (f", at most {LARGEST[key]}" if key in LARGEST else "")


def _kinds(annotation) -> list:
    if annotation in TYPE_TEXT:
        return [annotation]
    return [kind for kind in get_args(annotation) if kind is not NoneType]


def _default(f) -> str:
    if f.default_factory is not MISSING:
        return f"`{_toml(f.default_factory())}`"
    if f.default is MISSING:
        return "needed"
    return "not given" if f.default is None else f"`{_toml(f.default)}`"


def _toml(value) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return str(value).lower() if isinstance(value, bool) else f'"{value}"' if isinstance(value, str) else str(value)


def schema() -> str:
    """The JSON Schema of a chip file, as text."""
    sections = {name: _schema_of(name, kind) for name, kind in chip_sections.SECTIONS.items()}
    needed = {name: _needed(kind) for name, kind in chip_sections.SECTIONS.items()}
    text = {"type": "string"}
    top = {
        "name": {**text, "description": "name of the chip in messages and reports"},
        "description": {**text, "description": "one line about the chip"},
        "base": {
            "enum": Chip.shipped(),
            "description": "a shipped chip; this file contains only the changes",
        },
        "proposed": {"type": "boolean", "description": "whether a refusal on another chip may propose this one"},
        "board_of": {**text, "description": "the chip that this board consists of"},
        "sources": {"type": "object", "additionalProperties": text, "description": "sources of the figures"},
    }
    whole = {
        "required": ["name", *(name for name, keys in needed.items() if keys)],
        "properties": {name: {"required": keys} for name, keys in needed.items() if keys},
    }
    doc = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "a chip file of nwcompile",
        "type": "object",
        "additionalProperties": False,
        "properties": {**top, **sections},
        "if": {"not": {"required": ["base"]}},
        "then": whole,
    }
    return json.dumps(doc, indent=1) + "\n"


def _schema_of(name: str, kind) -> dict:
    comments = _comments(kind.__name__)
    about = inspect.cleandoc(kind.__doc__).split("\n\n")[0].replace("\n", " ")
    keys = {f.name: _schema_key(f"{name}.{f.name}", f, comments[f.name]) for f in fields(kind)}
    return {"type": "object", "description": about, "additionalProperties": False, "properties": keys}


def _needed(kind) -> list[str]:
    return [f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING]


def _schema_key(key: str, f, comment: str) -> dict:
    types = [_schema_type(key, kind) for kind in _kinds(f.type)]
    default = f.default_factory() if f.default_factory is not MISSING else f.default
    about = {"description": comment.replace("\\|", "|")}
    if default is not MISSING and default is not None:
        about["default"] = default
    return {**about, **(types[0] if len(types) == 1 else {"anyOf": types})}


def _schema_type(key: str, kind) -> dict:
    if kind == dict[str, int]:
        return {"type": "object", "additionalProperties": _schema_type(key, int), "required": ["1"]}
    if get_args(kind):
        items = _schema_type(key, get_args(kind)[0])
        if key in ZERO_IN_LISTS:
            items |= {"minimum": 0}
            del items["exclusiveMinimum"]
        return {"type": "array", "items": items}
    if key in CHOICES and kind is str:
        return {"enum": list(CHOICES[key])}
    names = {int: "integer", float: "number", str: "string", bool: "boolean"}
    return {"type": names[kind], **(_schema_bounds(key) if kind in (int, float) else {})}


def _schema_bounds(key: str) -> dict:
    least, is_above, largest = find_bounds(key)
    return {"exclusiveMinimum" if is_above else "minimum": least, "maximum": largest}


if __name__ == "__main__":
    (HWMODELS / "chip.schema.json").write_text(schema())
    (HERE / "chip-file.md").write_text(page())
