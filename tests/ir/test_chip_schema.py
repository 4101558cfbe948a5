"""The JSON Schema of chip files: it takes every shipped file, and refuses what the reader refuses."""

import json
import tomllib

import jsonschema
import pytest

from nwcompile.errors import ChipError
from nwcompile.ir.chip import HWMODELS, Chip

SCHEMA = json.loads((HWMODELS / "chip.schema.json").read_text())
MINE = """
name = "mine"
[noc]
columns = 2
rows = 1
[core]
max_neurons = 256
[neuron]
reset = ["subtract"]
[sources]
noc = "data sheet"
core = "data sheet"
neuron = "data sheet"
"""


@pytest.mark.parametrize("name", Chip.names())
def test_schema_takes_every_shipped_chip(name):
    jsonschema.validate(tomllib.loads((HWMODELS / f"{name}.toml").read_text()), SCHEMA)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("rows = 1\n", ""),
        ("rows = 1", "row = 1"),
        ("rows = 1", 'rows = "1"'),
        ("rows = 1", "rows = 4000"),
        ("rows = 1", "rows = 0"),
        ("rows = 1", "rows = 1\nhop_cycles_ew = -1"),
        ("max_neurons = 256", "max_neurons = [256, -1]"),
        ("max_neurons = 256", f"max_neurons = {1 << 41}"),
        ("rows = 1", 'rows = 1\ntopology = "ring"'),
        ('["subtract"]', '["softly"]'),
        ("max_neurons = 256", "max_neurons = 256.5"),
        ("[core]\nmax_neurons = 256\n", ""),
        ('name = "mine"', 'name = "mine"\nbase = "lohi1"'),
        ('name = "mine"', 'name = "mine"\nproposed = "yes"'),
        ('noc = "data sheet"', "noc = 3"),
    ],
)
def test_schema_refuses_what_the_reader_refuses(old, new, tmp_path):
    jsonschema.validate(tomllib.loads(MINE), SCHEMA)
    text = MINE.replace(old, new, 1)
    (tmp_path / "mine.toml").write_text(text)
    with pytest.raises(ChipError):
        Chip.load(tmp_path / "mine.toml")
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(tomllib.loads(text), SCHEMA)


def test_schema_takes_a_core_out_of_use_as_the_reader_does():
    text = MINE.replace("max_neurons = 256", "max_neurons = [256, 0]")
    assert Chip.from_toml(text, "mine.toml").limit("max_neurons").tolist() == [256, 0]
    jsonschema.validate(tomllib.loads(text), SCHEMA)


def test_schema_of_a_file_with_a_base_needs_no_sections():
    jsonschema.validate({"name": "mine", "base": "loihi1", "noc": {"columns": 4}}, SCHEMA)


def test_cli_chips_schema_prints_it(capsys):
    from nwcompile.cli import main

    assert main(["chips", "schema"]) == 0
    assert json.loads(capsys.readouterr().out) == SCHEMA
