"""What the verbs that work on a program print and return."""

import json
import os
import platform
import re
import subprocess
import sys

import numpy as np
import pytest

import nwcompile as nw
from nwcompile import cli
from nwcompile.cli.arguments import PARSERS, Parser
from nwcompile.cli.outputs.terminal import wrap_page
from nwcompile.cli.outputs.text import format_table
from nwcompile.errors import ERROR_PAGES
from nwcompile.ir.run import COUNTERS
from nwcompile.sim.accuracy import share_interval
from tests.made.lava_files import NEURON, dense, write


def test_cli_without_arguments_lists_the_verbs(command):
    code, out, _ = command("")
    assert code == 2
    assert [line.split()[0] for line in out.splitlines()[2:]] == list(cli.VERBS)


def test_cli_version(command):
    code, out, err = command("--version")
    assert (code, err) == (0, "") and out.startswith(
        f"nwcompile {nw.__version__}\nPython {platform.python_version()} on "
    )
    assert f"numpy {np.__version__}, " in out and max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize("verb", cli.VERBS)
def test_cli_help_of_every_verb(verb, capsys):
    with pytest.raises(SystemExit) as caught:
        cli.main([verb, "--help"])
    assert caught.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: nwcompile {verb} ")


@pytest.mark.parametrize("verb", cli.VERBS)
def test_cli_help_explains_every_argument(verb):
    parser = Parser()
    PARSERS[verb](parser)
    assert [action.dest for action in parser._actions if not action.help] == []


def test_cli_help_tells_defaults(capsys):
    with pytest.raises(SystemExit):
        cli.main(["compile", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    for default in ("(default: floorline)", "(default: anneal)", "(default: time)", "(default: pipelined)"):
        assert default in text


def test_cli_simulate_runs_a_float_model(command, model):
    code, out, _ = command("simulate toy:make --input data.npz --json")
    figures = json.loads(out)
    assert code == 0 and figures["backend"] == "reference" and figures["counters"] == {}
    import toy

    run = nw.simulate(toy.make(), np.load("data.npz")["x"])
    assert figures["spikes"] == {"out": int(run.spikes["out"].sum())}


def test_cli_simulate_gives_what_the_function_gives(command, folder):
    code, out, err = command("simulate net.nwc --input data.npz --record all -o run.npz --json")
    assert (code, err) == (0, "")
    run = nw.simulate(nw.Program.load("net.nwc"), np.load("data.npz")["x"], backend="cycle", record="all")
    figures = json.loads(out)
    assert figures["counters"] == {name: int(c.sum()) for name, c in run.counters.items()}
    assert figures["step_cycles"] == run.step_cycles.tolist() and figures["seconds"] == run.seconds
    assert figures["energy_pj"] == run.energy_pj and figures["output"] == "run.npz"
    with np.load("run.npz") as written:
        assert np.array_equal(written["output"], run.output)
        assert np.array_equal(written["states/fc1/v"], run.states["fc1"]["v"])
        assert np.array_equal(written["counters/synops"], run.counters["synops"])


def test_cli_simulate_text_names_units(command, folder):
    _, out, _ = command("simulate net.nwc --input data.npz --samples 2")
    assert out.startswith("2 samples, 5 steps; backend cycle on cpu, window aligned\n")
    assert "hardware step: mean " in out and " us (of 7 steps)" in out
    assert re.search(r"mean [\d.]+ us \(assumed\), longest [\d.]+ us", out)
    assert re.search(r"\nenergy of the cores: [\d.]+ nJ per sample \(assumed\)\n", out)


def test_cli_data_may_name_its_inputs(command, folder):
    data = np.load("data.npz")
    np.savez("named.npz", **{"in": data["x"], "y": data["y"]})
    np.save("plain.npy", data["x"])
    results = [command(f"simulate net.nwc --samples 2 --json --input {file}")[1] for file in ("data.npz", "named.npz")]
    assert results[0] == results[1] and json.loads(results[0])["n_samples"] == 2
    assert command("simulate net.nwc --samples 2 --json --input plain.npy")[1] == results[0]


def test_cli_set_changes_the_costs_of_a_program(command, folder):
    slow = json.loads(command("simulate net.nwc --input data.npz --json --set cost.visit_cycles=1000")[1])
    fast = json.loads(command("simulate net.nwc --input data.npz --json")[1])
    assert sum(slow["step_cycles"]) > sum(fast["step_cycles"]) and slow["counters"] == fast["counters"]


def test_cli_unwritable_output_leaves_nothing(command, folder):
    (folder / "file").write_text("")
    code, out, err = command("simulate net.nwc --steps 3 -o file/run.npz")
    assert (code, out) == (2, "")
    assert err == ("nwcompile: error: -o file: file is not a folder; choose a folder you may write to\n")
    assert sorted(p.name for p in folder.iterdir()) == ["data.npz", "file", "net.nwc"]


def test_cli_interrupt_is_one_line_and_130(command, folder, monkeypatch):
    import nwcompile.cli.simulate as verb

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(verb, "simulate", interrupted)
    code, out, err = command("simulate net.nwc --steps 3")
    assert (code, out, err) == (130, "", "nwcompile: interrupted; nothing was half-written\n")


def test_cli_evaluate_counts_output_spikes(command, folder):
    output = nw.simulate(nw.Program.load("net.nwc"), np.load("data.npz")["x"]).output
    expected = float(np.mean(output.sum(1).argmax(1) == np.load("data.npz")["y"]))
    code, out, _ = command("evaluate net.nwc --input data.npz --json")
    assert code == 0
    found = json.loads(out)
    low, high = found.pop("interval")["chip"]
    rule = "class = output neuron with most spikes over all steps"
    assert (found.pop("answer_rule"), found.pop("left_out")) == (rule, "")
    assert found == {"n_samples": 3, "accuracy": {"chip": expected}, "chip": "tiny", "backend": "sequence"}
    assert (low, high) == pytest.approx(share_interval(expected, 3))


def test_cli_show_lists_cores_and_one_core(command, folder):
    code, out, _ = command("show net.nwc")
    assert code == 0 and out.startswith("2 cores of 4 on tiny\n")
    core = json.loads(command("show net.nwc --core 1 --json")[1])
    assert core["neurons"] == {"fc1": [4, 5, 6, 7], "fc2": [0, 1, 2, 3]} and core["site"] == [1, 1, 0]
    assert core["used"] == {"neurons": 8, "in_axons": 14, "out_axons": 4, "synapse_bits": 896}
    assert [(row["source"], row["axons"], row["synapses"]) for row in core["in_axons"]] == [
        ("in", 6, 24),
        ("fc1", 8, 32),
    ]
    assert core["out_axons"] == [{"core": 1, "site": [1, 1, 0], "axons": 4, "hops": 0}]
    assert core["registers"]["fc2"]["threshold >> 0"] == 64 and core["registers"]["fc2"]["reset"] == "zero"
    text = command("show net.nwc --core 1")[1]
    assert "fc1          4  4-7" in text and "register of fc2" in text


def test_cli_chips_list_and_show(command):
    names = [row["name"] for row in json.loads(command("chips list --json")[1])]
    assert command("chips --json") == command("chips list --json")
    assert names == nw.Chip.names() and {"h1v2", "loihi1", "tiny"} <= set(names)
    code, out, _ = command("chips show h1v2")
    assert code == 0 and re.search(r"core.max_neurons +50, 50, 100\n", out)
    assert re.search(r"core.max_neurons +published +sdk.neuronovatech.com", out)
    assert "no times: the file lacks some of the figures they need" in out
    doc = json.loads(command("chips show loihi1 --json --set noc.buffer_flits=4")[1])
    keys, rows = doc["keys"], [(row["quantity"], row["error_percent"]) for row in doc["silicon"]]
    assert len(rows) == 8 and ("static power", -52.68) in rows  # without those whose times the buffers change
    assert keys["noc.buffer_flits"] == {"value": 4, "basis": "assumed", "source": "set by the user"}
    assert all(entry["source"] for entry in keys.values())
    shown = command("chips show loihi1")[1]
    assert re.search(r"\ntime of Quartz MNIST, 48 cores: [\d.]+ us per step, on silicon 3.27 \([+-]\d+ %; ", shown)
    changed = command("chips show loihi1 --set cost.spike_cycles=1 --set energy.spike_pj=1")[1]
    assert "\nstatic power of Quartz MNIST, " in changed and not re.search(r"\n(time|energy) of .* on silicon", changed)
    assert command("chips show speck")[1].count("\nlatency of a spike through 3 x 3 kernels, ") == 2
    assert re.search(r"weights.bits +8 +assumed +default\n", command("chips show mesh_def")[1])


@pytest.mark.parametrize(
    "redirect, code, error",
    [
        ("> /dev/full", 2, "nwcompile: error[NW1000]: the system refuses to read or write: No space left on device\n"),
        (">&-", 0, ""),
        ("| head -c 1", 0, ""),
    ],
)
def test_cli_output_that_cannot_be_printed_gives_no_traceback(redirect, code, error):
    line = f"set -o pipefail; {sys.executable} -m nwcompile chips show loihi1 {redirect}"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (code, error)


def test_cli_prints_what_the_terminal_cannot_show_as_question_marks(folder):
    line = [sys.executable, "-m", "nwcompile", "estimate", "demo", "--chips", "loihi2"]
    done = subprocess.run(line, capture_output=True, env={**os.environ, "PYTHONIOENCODING": "latin-1"})
    assert done.returncode == 0 and b"  ?  " in done.stdout


def test_cli_simulate_runs_a_lava_net_with_a_field_changed(command, folder):
    write(folder / "a.net", [dense(np.eye(6), neuron={**NEURON, "vDecay": 4096})])
    outputs = []
    for flags in (" --neuron strict=false", ""):
        assert command(f"simulate a.net --input data.npz -o run.npz{flags}")[0] == 0
        with np.load("run.npz") as run:
            outputs.append(run["output"].any())
    assert outputs == [True, False]  # v is at the threshold, and never above it


def test_no_line_for_people_is_wider_than_a_terminal(command, model, folder):
    net, data = "build/net.nwc", "--input data.npz"
    lines = [
        "compile toy:make --chip tiny --calibration data.npz -o build --explain",
        "check toy:make --chip tiny",
        f"estimate toy:make {data}",
        f"simulate {net} {data} --backend cycle --profile --model-dt 0.001",
        f"evaluate {net} {data} --model toy:make",
        f"crosscheck {net} {data} --model toy:make --against float,cycle,reference",
        f"report {net} {data} -o rep --model-dt 0.001",
        f"report --diff {net} {net}",
        f"show {net}",
        "noc --chip mesh_la --traffic uniform --load 0.1,0.2 --cycles 100",
        "chips list",
        "chips show loihi1",
        "--help",
        "explain NW2101",
        "--version",
    ]
    for line in lines:
        code, out, _ = command(line)
        wide = [text for text in out.splitlines() if len(text) > 80 and len(text.split()) > 1]
        assert code == 0 and wide == [], line


def test_a_refusal_is_wrapped_on_a_terminal_only(command, terminal, model):
    _, _, piped = command("check toy:make --chip nowhere")
    _, _, shown = terminal("check toy:make --chip nowhere")
    assert piped.count("\n") == 1 and max(map(len, shown.splitlines())) <= 80
    assert shown.split() == piped.split()


def test_an_unknown_flag_without_a_verb_is_called_a_flag(command):
    said = "nwcompile: error: unknown flag '--verson'; choose one of: --version, --help, -h\n"
    assert command("--verson") == (2, "", said)


def test_explain_wraps_paragraphs_and_leaves_code_and_tables(command, tmp_path, monkeypatch):
    page = "# NW4001: A title\n\n" + "Words of a\nparagraph. " * 8 + "\n```python\n" + "x = 1  # long " * 9
    page += "\n\ny = 2\n```\n\n| a | b |\n| - | - |\n| " + "cell " * 20 + "| 1 |\n\nThe\nend.\n"
    (tmp_path / "NW4001.md").write_text(page)
    monkeypatch.setattr("nwcompile.cli.explain.ERROR_PAGES", tmp_path)
    _, shown, _ = command("explain NW4001")
    first = shown.partition("\n```python")[0].splitlines()
    assert first[2] == "Words of a paragraph. " * 3 + "Words of a" and max(map(len, first)) <= 80
    assert page[page.index("```python") : page.index("The\nend")] in shown and shown.endswith("\n\nThe end.\n")


@pytest.mark.parametrize("page", sorted(ERROR_PAGES.glob("NW*.md")), ids=lambda path: path.stem)
def test_every_page_of_an_error_keeps_its_words_and_its_code(page):
    text = page.read_text()
    (wrapped,) = wrap_page(text.rstrip().split("\n"))
    assert wrapped.split() == text.split() and wrapped.split("```")[1::2] == text.split("```")[1::2]
    assert max(len(line) for part in wrapped.split("```")[::2] for line in part.splitlines()) <= 80


def test_tables_set_thousands_of_integers_apart():
    lines = format_table(("counter", "total"), [("synops", np.int64(2306312)), ("is known", True)]).splitlines()
    assert lines[1].split("  ")[-1] == "2 306 312" and lines[2].split()[-1] == "True"


def test_evaluate_says_by_what_each_network_was_simulated(command, folder):
    _, out, _ = command("evaluate net.nwc --input data.npz")
    assert out.splitlines()[0].endswith("simulated by")


def test_simulate_names_the_counters_that_are_zero_below_the_others(command, folder):
    code, out, _ = command("simulate net.nwc --input data.npz")
    table, zero = out.split("\n\n")[2].split("\nzero: ")
    names = [line.partition("  ")[0] for line in table.splitlines()[1:]]
    absent = " ".join(zero.split()).split(", ")
    assert code == 0 and "synops" in names and "messages io" in absent
    assert sorted([*names, *absent]) == sorted(name.replace("_", " ") for name in COUNTERS)
