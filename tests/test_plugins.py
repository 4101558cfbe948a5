"""Plugins: another package provides a chip, a partitioner, a placer, a front end and an exporter."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

import nwcompile as nw
from nwcompile import plugins
from nwcompile.cli.export import look_up_exporter
from nwcompile.errors import ChipError, OptionError

PLUGIN = '''
from pathlib import Path

import numpy as np
import nwcompile as nw
from nwcompile.passes.partition.sequential import cut_slices
from nwcompile.passes.place.direct import row_major

CHIP = """
name = "mychip"
base = "tiny"
description = "a chip of a plugin"
"""
AS_CHIP = nw.Chip.from_dict({**nw.Chip.load("loihi1").to_dict(), "name": "second"})


def partition(network, chip, activity, options):
    return {name: np.zeros(network.node(name).n_neurons, int) for name in network.layers}


def read(path):
    weight = np.array(Path(path).read_text().split(), np.float32)[None]
    return nw.Network.from_arrays({"out": nw.NeuronSpec(threshold=1.0)}, [nw.Dense("in", "out", weight)],
                                  {"in": weight.size})


EXPORTER = (lambda program, folder, spikes: {folder / "cores.txt": str(program.mapping.n_cores).encode()},
            lambda program: f"cores of {program.chip.name}")
'''
ENTRIES = """
[nwcompile.chips]
mychip = my_plugin:CHIP
second = my_plugin:AS_CHIP
[nwcompile.partitioners]
one-core = my_plugin:partition
[nwcompile.placers]
mine = my_plugin:row_major
[nwcompile.frontends]
weights = my_plugin:read
[nwcompile.exporters]
cores = my_plugin:EXPORTER
"""
BROKEN = """
[nwcompile.chips]
tiny = other:CHIP
gone = no_such_module:CHIP
wrong = other:NUMBER
mychip = other:CHIP
[nwcompile.partitioners]
gone = no_such_module:partition
"""


def install(folder, package: str, module: str, source: str, entries: str) -> None:
    """Write a package like pip: a module and its entry points."""
    (folder / f"{module}.py").write_text(source)
    info = folder / f"{package}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(entries)


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder with the installed plugin on the path of this process; its names are removed afterwards."""
    install(tmp_path, "my-plugin", "my_plugin", PLUGIN, ENTRIES)
    monkeypatch.syspath_prepend(tmp_path)
    plugins.find_entry_points.cache_clear()
    yield tmp_path
    plugins.find_entry_points.cache_clear()
    for name in ("my_plugin", "other"):
        sys.modules.pop(name, None)


def nwcompile(folder, line: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "nwcompile", *line.split()]
    paths = os.pathsep.join([str(folder), os.getcwd()])
    return subprocess.run(command, cwd=folder, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True)


def test_plugin_gives_all_that_a_command_line_names(site, monkeypatch, capsys):
    from nwcompile import cli

    (site / "net.weights").write_text("1 2 0.5")
    done = nwcompile(site, "compile net.weights --chip mychip --partitioner one-core --placer mine -o build")
    assert done.returncode == 0 and done.stdout.startswith("fits mychip: 1 of 4 cores; "), done.stderr
    options = nw.Program.load(site / "build" / "net.nwc").manifest["options"]
    assert (options["partitioner"], options["placer"]) == ("one-core", "mine")
    monkeypatch.chdir(site)
    assert cli.main(["export", "build/net.nwc", "--to", "cores", "-o", "out", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said == {"to": "cores", "files": ["out/cores.txt"], "note": "cores of mychip"}
    assert (site / "out" / "cores.txt").read_text() == "1"


def test_plugin_names_are_listed_and_suggested(site, capsys):
    from nwcompile import cli

    assert cli.main(["chips", "list"]) == 0
    assert "a chip of a plugin" in capsys.readouterr().out
    assert nw.Chip.names()[-2:] == ["mychip", "second"] and nw.Chip.load("second").n_cores == 128
    with pytest.raises(ChipError, match=r"^unknown chip 'mychp'; choose one of: mychip, h1v1, "):
        nw.Chip.load("mychp")
    line = ["compile", "x.nir", "--chip", "tiny", "--plan-only", "--partitioner", "onecore"]
    assert cli.main(line) == 2
    assert "unknown partitioner 'onecore'; choose one of: one-core, coarse, floorline, " in capsys.readouterr().err
    assert cli.main(["check", "net.wights", "--chip", "tiny"]) == 2
    text = "net.wights: expected a .nir, .net, .nwc or .weights file, package.module:factory, or demo\n"
    assert capsys.readouterr().err.endswith(text)
    assert cli.main(["check", "net.weights", "--dt", "1", "--chip", "tiny"]) == 2
    text = "say how to read a .nir file; what a .weights file leaves unsaid its plugin decides\n"
    assert capsys.readouterr().err.endswith(text)


def test_estimate_for_all_chips_has_those_of_plugins(site, monkeypatch):
    install(
        site,
        "broken",
        "other",
        "NUMBER = 3\n",
        "[nwcompile.chips]\ngone = no_such_module:CHIP\ntruenorth = other:NUMBER\n",
    )
    plugins.find_entry_points.cache_clear()
    monkeypatch.setattr(
        nw.Chip, "shipped", staticmethod(lambda: ["loihi1", "tiny", "truenorth"])
    )  # few chips: a fast test
    (site / "net.weights").write_text("1 2 0.5")
    network = plugins.load_plugin(plugins.FRONTENDS, "suffix", "weights")(site / "net.weights")
    made = nw.estimate(network)
    rows = {row.chip: row for row in made.chips}
    assert list(rows)[-4:] == ["mychip", "second", "gone", "truenorth"] and len(rows) == len(made.chips)
    alone = nw.estimate(network, ["mychip", "second"]).chips
    assert (rows["mychip"], rows["second"]) == alone and alone[0].fits and alone[1].fits
    assert rows["gone"].reason.startswith("plugin broken cannot give chip 'gone': importing no_such_module:CHIP failed")
    assert rows["truenorth"].reason.startswith("plugin broken: chip 'truenorth' is the name of a built-in one")


def test_sweep_goes_over_methods_of_plugins(site):
    (site / "net.weights").write_text("1 2 0.5")
    (site / "plan.toml").write_text(
        'model = "net.weights"\nchip = "mychip"\n[grid]\npartitioner = ["one-core", "floorline"]\nplacer = "mine"\n'
    )
    done = nwcompile(site, "sweep plan.toml -o made --processes 1 --json")
    rows = json.loads(done.stdout)["rows"]
    assert [(row["partitioner"], row["error"]) for row in rows] == [("one-core", None), ("floorline", None)]


def test_exporter_of_a_plugin_that_is_no_pair_of_functions_is_refused(site):
    install(site, "broken", "other", "NUMBER = 3\n", "[nwcompile.exporters]\nnumber = other:NUMBER\n")
    plugins.find_entry_points.cache_clear()
    with pytest.raises(OptionError) as caught:
        look_up_exporter("number")
    assert str(caught.value) == (
        "format 'number' of a plugin is a pair of functions, files and note, not int; see docs/plugins.md"
    )
    assert caught.value.code == "NW1103"


def test_board_has_the_shipped_chip_as_its_base_whatever_a_plugin_calls_by_its_name(site):
    install(site, "broken", "other", "NUMBER = 3\n", "[nwcompile.chips]\nloihi1 = other:NUMBER\n")
    plugins.find_entry_points.cache_clear()
    assert nw.Chip.from_dict({"name": "own", "base": "loihi1"}).n_cores == 128


def test_plugin_that_fails_is_one_sentence_and_in_the_way_of_nothing_else(site, capsys):
    from nwcompile import cli

    install(site, "broken", "other", "CHIP = 'name = 3\\n'\nNUMBER = 3\n", BROKEN)
    plugins.find_entry_points.cache_clear()
    failed = "importing no_such_module:CHIP failed: ModuleNotFoundError: No module named 'no_such_module'"
    for name, kind, text in (
        ("gone", OptionError, f"plugin broken cannot give chip 'gone': {failed}"),
        ("tiny", OptionError, "plugin broken: chip 'tiny' is the name of a built-in one; give it another name"),
        ("mychip", OptionError, "plugin my-plugin and plugin broken both give chip 'mychip'; uninstall one of them"),
        ("wrong", ChipError, "chip 'wrong' of a plugin is a Chip, or the text or path of its TOML, not int"),
    ):
        with pytest.raises(kind) as caught:
            nw.Chip.load(name)
        assert sorted(str(caught.value).replace("plugin ", "").split()) == sorted(text.replace("plugin ", "").split())
        assert caught.value.code == "NW1103"
    assert cli.main(["chips", "list"]) == 0
    listed = capsys.readouterr()
    assert "loihi1" in listed.out and "second" in listed.out and listed.err.count("nwcompile: warning: ") == 4
    assert nw.Chip.load("loihi1").n_cores == 128
    with pytest.raises(
        OptionError, match="^plugin broken cannot give partitioner 'gone': importing no_such_module:part"
    ):
        plugins.look_up(plugins.PARTITIONERS, "partitioner", "gone", {})


def test_plugin_chip_has_the_name_of_its_entry_point(site):
    install(
        site, "misnamed", "other", 'CHIP = \'name = "a"\\nbase = "tiny"\\n\'\n', "[nwcompile.chips]\nb = other:CHIP\n"
    )
    plugins.find_entry_points.cache_clear()
    with pytest.raises(ChipError, match="^chip 'b' of a plugin calls itself 'a'; give both one name$"):
        nw.Chip.load("b")


def test_plugin_front_end_gives_a_network(site, monkeypatch, capsys):
    from nwcompile import cli

    install(site, "wrong", "other", "def read(path):\n    return 3\n", "[nwcompile.frontends]\nbin = other:read\n")
    plugins.find_entry_points.cache_clear()
    assert cli.main(["check", "net.bin", "--chip", "tiny"]) == 2
    assert capsys.readouterr().err == "nwcompile: error[NW1103]: net.bin: its plugin gave int, not a Network\n"


def test_plugins_are_looked_up_only_where_a_name_is():
    code = "import sys; from nwcompile import cli; cli.main(['--help']); print('importlib.metadata' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"


def test_plugin_partitioner_is_chosen_by_its_name_in_python(site):
    weight = np.ones((3, 2), np.float32)
    network = nw.Network.from_arrays({"out": nw.NeuronSpec(threshold=1.0)}, [nw.Dense("in", "out", weight)], {"in": 2})
    program = nw.compile(network, "mychip", options=nw.Options(partitioner="one-core", placer="mine"))
    assert program.mapping.n_cores == 1
    with pytest.raises(OptionError, match="^unknown placer 'mne'; choose one of: mine, anneal, "):
        nw.compile(network, "mychip", options=nw.Options(placer="mne"))
