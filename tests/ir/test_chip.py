"""Chip files: what is shipped, what the self-check says, and what overriding a key does."""

import re
import tomllib

import numpy as np
import pytest

from nwcompile.errors import ChipError
from nwcompile.ir.chip import HWMODELS, Chip
from nwcompile.ir.chip_sections import KEYS

MINIMAL = """
name = "mine"
[noc]
columns = 2
rows = 1
[core]
max_neurons = 8
[neuron]
reset = ["zero"]
[sources]
noc = "assumed: a test"
core = "assumed: a test"
neuron = "assumed: a test"
"""


def edited(old: str, new: str) -> str:
    assert old in MINIMAL
    return MINIMAL.replace(old, new)


def message(text: str) -> str:
    with pytest.raises(ChipError) as caught:
        Chip.from_toml(text, "mine.toml")
    return str(caught.value)


@pytest.mark.parametrize("name", Chip.names())
def test_chip_shipped_file_loads_and_names_itself(name):
    chip = Chip.load(name)
    assert chip.name == name
    assert Chip.load(HWMODELS / f"{name}.toml") == chip
    assert Chip.from_dict(chip.to_dict()).hash == chip.hash


@pytest.mark.parametrize("name", [name for name in Chip.names() if not Chip.load(name).is_board])
def test_chip_shipped_file_writes_every_key_of_its_sections_with_a_source(name):
    table = tomllib.loads((HWMODELS / f"{name}.toml").read_text())
    chip = Chip.load(name)
    written = [f"{section}.{key}" for section, keys in table.items() if isinstance(keys, dict) for key in keys]
    given = [key for key in KEYS if chip.value(key) is not None and chip.has_key(key)]
    assert [key for key in given if key.partition(".")[0] in table] == [key for key in KEYS if key in written]
    assert all(chip.source_of(key) for key in KEYS if chip.value(key) is not None and key in written)


def test_chip_loihi1_has_the_published_limits_and_costs():
    chip = Chip.load("loihi1")
    assert chip.n_cores == 128 and (chip.noc.columns, chip.noc.rows) == (8, 4)
    limits = {
        name: int(chip.limit(name)[0]) for name in ("max_neurons", "max_in_axons", "max_out_axons", "synapse_bits")
    }
    assert limits == {"max_neurons": 1024, "max_in_axons": 4096, "max_out_axons": 4096, "synapse_bits": 1048576}
    assert [chip.barrier_cycles(n) for n in (1, 2, 3, 4, 28, 29, 32)] == [
        6000,
        10000,
        10000,
        14000,
        14000,
        18000,
        18000,
    ]
    assert chip.ticks == (1, 1)
    assert chip.has_times and chip.has_energies


def test_chip_h1v2_has_cores_of_unequal_size_and_gives_no_times():
    chip = Chip.load("h1v2")
    assert chip.limit("max_neurons").tolist() == [50, 50, 100]
    assert chip.sites.tolist() == [[0, 0, 0], [1, 0, 0], [2, 0, 0]]
    assert chip.limit("max_in_axons") is None
    assert not chip.has_times and not chip.has_energies


def test_chip_sites_count_port_then_x_then_y():
    chip = Chip.load("loihi1")
    assert chip.sites[[0, 3, 4, 32]].tolist() == [[0, 0, 0], [0, 0, 3], [1, 0, 0], [0, 1, 0]]
    assert (chip.site_index(chip.sites) == np.arange(128)).all()


def test_chip_ticks_divide_both_clocks():
    chip = Chip.load("tiny").replace({"core.cycle_ns": 0.3, "noc.cycle_ns": 0.2})
    assert chip.ticks == (3, 2)


@pytest.mark.parametrize(
    "text, expected",
    [
        (edited("columns = 2", "colums = 2"), "mine.toml: noc.colums: unknown key (did you mean 'noc.columns'?)"),
        (edited("[core]", "[cores]"), "mine.toml: cores: unknown key (did you mean 'core'?)"),
        (edited("rows = 1\n", ""), "mine.toml: noc.rows: missing key; every chip file needs it"),
        (edited('[neuron]\nreset = ["zero"]\n', ""), "mine.toml: neuron: missing key; every chip file needs it"),
        (edited('"mine"', "3"), "mine.toml: name: expected a text, got 3"),
        (edited("columns = 2", 'columns = "2"'), "mine.toml: noc.columns: expected a whole number, got '2'"),
        (edited("columns = 2", "columns = 2.0"), "mine.toml: noc.columns: expected a whole number, got 2.0"),
        (edited("columns = 2", "columns = true"), "mine.toml: noc.columns: expected a whole number, got True"),
        (
            edited("max_neurons = 8", "max_neurons = []"),
            "mine.toml: core.max_neurons: expected a whole number or a list of whole numbers, got []",
        ),
        (edited('["zero"]', '"zero"'), "mine.toml: neuron.reset: expected a list of texts, got 'zero'"),
        (
            edited('["zero"]', '["zeor"]'),
            "mine.toml: neuron.reset: unknown value 'zeor'; choose one of: zero, none, subtract, value",
        ),
        (edited("max_neurons = 8", "max_neurons = -8"), "mine.toml: core.max_neurons: -8 must be above 0"),
        (edited('name = "mine"', 'name = ""'), "mine.toml: name: expected a text, got ''"),
        (edited("columns = 2", "columns = 0"), "mine.toml: noc.columns: 0 must be above 0"),
        (edited("rows = 1", "rows = 1025"), "mine.toml: noc.rows: 1025 is above the largest supported, 1024"),
        (
            edited("rows = 1", "rows = 1024\ncores_per_router = 32").replace("columns = 2", "columns = 1024"),
            "mine.toml: noc: 33554432 cores are above the largest supported, 1048576",
        ),
        (
            edited("max_neurons = 8", "max_neurons = [8, 8, 8]"),
            "mine.toml: core.max_neurons: a list needs one entry for each of the 2 cores, got 3",
        ),
        (edited("rows = 1", "rows = 1\ncycle_ns = nan"), "mine.toml: noc.cycle_ns: nan is not a finite number"),
        (
            edited("rows = 1", "rows = 1\ncycle_ns = 0.00037"),
            "mine.toml: noc.cycle_ns: 0.00037 against core.cycle_ns 1.0 is no ratio of whole numbers up to 1000; "
            "round one of them",
        ),
        (
            MINIMAL + "[cost]\nvisit_cycles = 3\n",
            'mine.toml: cost.visit_cycles: has no source; add sources.cost or sources."cost.visit_cycles" '
            '("assumed: <reason>" is allowed)',
        ),
        (
            MINIMAL + "[cost]\nvisit_cycles = 3\nspike_cycles = 2\n[variation]\nweight = 0.3\n",
            "mine.toml: cost.visit_cycles, cost.spike_cycles, variation.weight: have no source; add sources.cost or "
            'sources."cost.visit_cycles" and so on ("assumed: <reason>" is allowed)',
        ),
        (
            MINIMAL + 'costs = "x"\n',
            "mine.toml: sources.costs: there is no such section or key (did you mean 'cost'?)",
        ),
        (
            MINIMAL + 'cost = " "\n',
            'mine.toml: sources: expected texts, like noc = "..." for a section or "noc.rows" = "..." (in quotes)',
        ),
        (
            MINIMAL + 'cost = "a test"\n[cost]\nbarrier_cycles = { 2 = 10 }\n',
            'mine.toml: cost.barrier_cycles: the table needs an entry for "1"',
        ),
        (
            MINIMAL + 'cost = "a test"\n[cost]\nbarrier_cycles = { one = 10 }\n',
            "mine.toml: cost.barrier_cycles: expected a table like { 1 = 6000, 4 = 14000 }, got {'one': 10}",
        ),
        (
            MINIMAL.replace("[neuron]\n", "[neuron]\nmax_synapse_types = 2\n"),
            "mine.toml: neuron.max_synapse_types: only neuron programs read several sums; "
            "set neuron.programmable = true, or leave the key out",
        ),
        (
            MINIMAL + 'weights = "a test"\n[weights]\nexponent_min = 3\nexponent_max = 2\n',
            "mine.toml: weights.exponent_min: 3 is above weights.exponent_max, 2",
        ),
        (
            MINIMAL + "[variation]\nweight = 0.3\n",
            'mine.toml: variation.weight: has no source; add sources.variation or sources."variation.weight" '
            '("assumed: <reason>" is allowed)',
        ),
        (edited("name =", "nam ="), "mine.toml: nam: unknown key (did you mean 'name'?)"),
    ],
)
def test_chip_wrong_file_is_refused_with_the_path_of_the_key(text, expected):
    assert message(text) == expected


def test_chip_has_sources_of_what_its_file_says_and_none_of_defaults():
    text = MINIMAL.replace("[core]", 'topology = "mesh"\n[core]')
    chip = Chip.from_toml(text, "mine.toml")
    assert chip.source_of("noc.columns") == chip.source_of("noc.topology") is not None  # written, if as the default
    assert chip.source_of("noc.routing") is None and chip.value("noc.routing") == "xy"
    changed = chip.replace({"noc.buffer_flits": 3})
    assert changed.source_of("noc.buffer_flits") == "set by the user" and changed.source_of("noc.routing") is None
    assert changed.source_of("noc.columns") == chip.source_of("noc.columns")


def test_chip_on_a_base_has_no_sources_of_its_defaults():
    chip = Chip.from_toml('name = "mine"\nbase = "mesh_def"\n', "mine.toml")
    base = Chip.load("mesh_def")
    unwritten = [key for key in KEYS if base.value(key) is not None and base.source_of(key) is None]
    assert unwritten and all(chip.source_of(key) is None for key in unwritten)
    assert chip.source_of("noc.columns") == base.source_of("noc.columns") is not None


def test_chip_minimal_file_takes_the_defaults():
    chip = Chip.from_toml(MINIMAL, "mine.toml")
    assert chip.weights.bits == 8 and chip.noc.buffer_flits == 8
    assert chip.source_of("noc.columns") == "assumed: a test" and chip.source_of("weights.bits") is None


def test_chip_text_that_is_not_toml_is_refused():
    assert message("name = \n") == "chip file mine.toml is not TOML: Invalid value (at line 1, column 8)"
    assert message("a = " + "[" * 100_000) == "chip file mine.toml is not TOML: nested too deeply"


def test_chip_unknown_name_lists_the_chips_nearest_first():
    with pytest.raises(ChipError) as caught:
        Chip.load("lohi1")
    assert str(caught.value) == (
        f"unknown chip 'lohi1'; choose one of: loihi1, {', '.join(n for n in Chip.names() if n != 'loihi1')}, or give "
        "the path of a .toml file"
    )


def test_chip_missing_or_binary_file_is_refused(tmp_path):
    path = tmp_path / "mine.toml"
    with pytest.raises(ChipError, match=re.escape(f"chip file {path} cannot be read: No such file or directory")):
        Chip.load(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ChipError, match=re.escape(f"chip file {path} cannot be read: not UTF-8 text")):
        Chip.load(path)


def test_chip_replace_changes_the_figure_its_source_and_the_hash():
    chip = Chip.load("loihi1")
    changed = chip.replace({"noc.buffer_flits": 4, "core.max_neurons": np.full(128, 7), "core.max_in_axons": None})
    assert changed.noc.buffer_flits == 4 and changed.limit("max_neurons").tolist() == [7] * 128
    assert changed.limit("max_in_axons") is None
    assert changed.source_of("noc.buffer_flits") == "set by the user"
    assert changed.hash != chip.hash and chip.noc.buffer_flits == 8
    assert Chip.load("loihi1").hash == chip.hash


@pytest.mark.parametrize(
    "changes, expected",
    [
        ({"noc.bufer_flits": 4}, "loihi1: noc.bufer_flits: unknown key (did you mean 'noc.buffer_flits'?)"),
        ({"noc.bufer": 4}, "loihi1: noc.bufer: unknown key (did you mean 'noc.buffer_flits'?)"),
        ({"buffer_flits": 4}, "loihi1: buffer_flits: unknown key (did you mean 'noc.buffer_flits'?)"),
        ({"noc.buffer_flits": "four"}, "loihi1: noc.buffer_flits: expected a whole number, got 'four'"),
        ({"noc.columns": None}, "loihi1: noc.columns: expected a whole number, got None"),
        ({"core.synapse_bits": -1}, "loihi1: core.synapse_bits: -1 must be above 0"),
        ({"weights.bits": 1}, "loihi1: weights.bits: 1 must be 2 or more"),
        ({"state.bits": 1}, "loihi1: state.bits: 1 must be 2 or more"),
        ({"variation.weight": -0.1}, "loihi1: variation.weight: -0.1 must be 0 or more"),
        ({"variation.leak": float("nan")}, "loihi1: variation.leak: nan is not a finite number"),
        ({"variation.threshold": 30}, "loihi1: variation.threshold: 30.0 is above the largest supported, 1"),
        ({"variation.dead": 1.5}, "loihi1: variation.dead: 1.5 is above the largest supported, 1"),
        ({"variation.weigth": 0.1}, "loihi1: variation.weigth: unknown key (did you mean 'variation.weight'?)"),
        ({"neuron.bias_bits": 0}, "loihi1: neuron.bias_bits: 0 must be 2 or more"),
    ],
)
def test_chip_replace_is_checked_like_a_file(changes, expected):
    with pytest.raises(ChipError) as caught:
        Chip.load("loihi1").replace(changes)
    assert str(caught.value) == expected


def test_chip_variation_may_be_0_and_is_not_known_unless_given():
    chip = Chip.load("loihi1")
    assert chip.variation.weight is None
    changed = chip.replace({"variation.weight": 0, "variation.stuck": 1})
    assert (changed.variation.weight, changed.variation.stuck, changed.variation.dead) == (0, 1, None)


def test_chip_file_may_start_with_a_byte_order_mark(tmp_path):
    (tmp_path / "mine.toml").write_text(MINIMAL, encoding="utf-8-sig")
    assert Chip.load(tmp_path / "mine.toml").name == "mine"
