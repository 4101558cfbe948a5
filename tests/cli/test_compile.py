"""What compiling from the command line writes, prints and refuses."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import nwcompile as nw
from nwcompile.cli.outputs.progress import STAGES
from nwcompile.errors import unknown_choice
from nwcompile.ir.options import CORES_RULE
from nwcompile.passes.partition.partition import PARTITIONERS
from nwcompile.passes.place.place import PLACERS

COMPILE = "compile toy:make --chip tiny --calibration data.npz"


def test_cli_compile_writes_a_program_and_its_report(command, model, folder):
    code, out, err = command(f"{COMPILE} --seed 3 --cores 2 -o build --json")
    assert code == 0
    assert [line.split()[1] for line in err.splitlines()] == list(STAGES)
    made = json.loads(out)
    program = nw.Program.load("build/net.nwc")
    assert made["program_hash"] == program.hash and program.manifest["options"]["seed"] == 3
    assert program.mapping.n_cores == 2 and made["verdict"].startswith("fits tiny: 2 of 4 cores; at least ")
    assert json.loads((folder / "build/report.json").read_text())["verdict"] == made["verdict"]
    assert (folder / "build/report.html").stat().st_size > 10_000


def test_cli_compile_predicts_exactly_what_the_calibration_counts(command, model):
    made = json.loads(command(f"{COMPILE} -o build --json")[1])
    run = json.loads(command("simulate build/net.nwc --input data.npz --json")[1])
    assert made["events_per_sample"]["synops"] == pytest.approx(run["counters"]["synops"] / 3)


def test_cli_compile_is_repeatable_in_new_processes(model, folder):
    hashes = set()
    for seed, threads in (("1", "1"), ("2", "2")):
        env = {**os.environ, "PYTHONHASHSEED": seed, "OMP_NUM_THREADS": threads, "NUMBA_NUM_THREADS": threads}
        line = [sys.executable, "-m", "nwcompile", *COMPILE.split(), "-o", f"build{seed}"]
        subprocess.run(line, env=env, check=True, capture_output=True)
        hashes.add((folder / f"build{seed}/net.nwc").read_bytes())
    assert len(hashes) == 1


def test_cli_compile_that_does_not_fit_returns_1_and_writes_nothing(command, model, folder):
    code, out, err = command("compile toy:make --chip tiny --set core.max_neurons=1 --set noc.rows=1 -o build")
    assert (code, out) == (1, "")
    assert err.split("\n", 2)[2] == (  # after the lines of the first two stages
        "nwcompile: error: 1 limit exceeded on tiny\n"
        "  neurons  network -> tiny  4 of 2  make out smaller or raise noc.columns\n"
        "it fits with 2 neurons in out instead of 4, or 2 more cores (noc.columns=4)\n"
    )
    assert not (folder / "build").exists()
    found = json.loads(command("check toy:make --chip tiny --set core.max_neurons=1 --set noc.rows=1 --json")[1])
    assert found["error"] == "FitError"
    assert found["violations"] == [
        {"what": "neurons", "where": "network -> tiny", "used": 4, "limit": 2,
         "advice": "make out smaller or raise noc.columns", "unit": ""}
    ]  # fmt: skip
    assert found["change"] == "2 neurons in out instead of 4, or 2 more cores (noc.columns=4)"


@pytest.mark.parametrize(
    "line, text",
    [
        (
            "compile toy:make --chip tiny --partitioner mets -o build",
            f"compile: argument --partitioner: {unknown_choice('partitioner', 'mets', PARTITIONERS)}",
        ),
        (
            "compile toy:make --chip tiny --placer aneal -o build",
            f"compile: argument --placer: {unknown_choice('placer', 'aneal', PLACERS)}",
        ),
        ("compile toy:make --chip tiny", "compile: give -o/--output or --plan-only"),
        (
            "compile toy:make --chip tiny --seed -1 -o build",
            "seed=-1 must be a whole number from 0 to 9223372036854775807",
        ),
        (
            "compile toy:make --chip tiny --dt 0.1 -o build",
            "--dt, --dialect and --neuron say how to read a .nir file; a factory's module says it itself",
        ),
        ("compile toy:make --chip tiny -o data.npz/build", "-o data.npz/build: data.npz is not a folder; "
         "choose a folder you may write to"),
    ],
)  # fmt: skip
def test_cli_wrong_compile_is_one_sentence_and_writes_nothing(command, model, folder, line, text):
    code, out, err = command(line)
    assert (code, out) == (2, "")
    assert err.replace(f"{folder}/", "") == f"nwcompile: error: {text}\n"
    assert not (folder / "build").exists()


def test_cli_compile_that_cannot_write_all_leaves_the_earlier_result(command, model, folder):
    (folder / "build" / "report.html").mkdir(parents=True)
    (folder / "build" / "net.nwc").write_text("earlier")
    code, out, err = command("compile toy:make --chip tiny -o build")
    assert (code, out) == (2, "")
    assert err.endswith(
        "nwcompile: error: build/report.html cannot be written: there is a folder of that name; "
        "choose a folder you may write to\n"
    )
    assert sorted(path.name for path in (folder / "build").iterdir()) == ["net.nwc", "report.html"]
    assert (folder / "build" / "net.nwc").read_text() == "earlier"


def test_cli_compile_of_a_file_that_is_not_nir_is_one_sentence(command, folder):
    (folder / "bad.nir").write_text("not HDF5")
    code, out, err = command("compile bad.nir --chip tiny --dialect nir --dt 1e-4 -o build")
    assert (code, out) == (2, "") and err.startswith("nwcompile: error: NIR file bad.nir: ") and err.count("\n") == 1
    assert not (folder / "build").exists()


def test_cli_check_prints_the_fit(command, model):
    code, out, _ = command("check toy:make --chip tiny --calibration data.npz")
    assert code == 0 and out.startswith("fits tiny: 1 of 4 cores") and "synapse memory" in out
    assert json.loads(command("check toy:make --chip tiny --json")[1])["fits"] is True


def test_cli_report_measures_and_compares_with_the_float_model(command, model, folder):
    command(f"{COMPILE} -o build")
    code, out, _ = command("report build/net.nwc --input data.npz --model toy:make -o report --json")
    doc = json.loads(out)
    assert code == 0 and doc["time"]["source"] == "measured"
    x, y = np.load("data.npz")["x"], np.load("data.npz")["y"]
    import toy

    runs = {"float": nw.simulate(toy.make(), x), "chip": nw.simulate(nw.Program.load("build/net.nwc"), x)}
    expected = {name: float(np.mean(run.output.sum(1).argmax(1) == y)) for name, run in runs.items()}
    assert {name: doc["accuracy"][name] for name in expected} == expected
    assert doc["accuracy"]["n_samples"] == len(y) and set(doc["accuracy"]["interval"]) == set(expected)
    assert sorted(p.name for p in (folder / "report").iterdir()) == ["report.html", "report.json"]


def test_cli_report_counts_membrane_updates_unless_states_would_take_too_much_memory(command, model, monkeypatch):
    command(f"{COMPILE} -o build")
    program = nw.Program.load("build/net.nwc")
    n_states = np.load("data.npz")["x"][:, :, 0].size * sum(
        program.network.node(n).n_neurons for n in program.network.layers
    )
    counted = []
    for largest in (n_states, n_states - 1):
        monkeypatch.setattr("nwcompile.cli.report.LARGEST_STATES", largest)
        doc = json.loads(command("report build/net.nwc --input data.npz -o report --json")[1])
        counted.append(doc["neurobench"]["membrane_updates_per_sample"] is not None)
    assert counted == [True, False]


def test_cli_evaluate_compiles_a_model_and_compares(command, model):
    code, out, _ = command("evaluate toy:make --chip tiny --calibration data.npz --input data.npz --json")
    result = json.loads(out)
    assert code == 0 and set(result["accuracy"]) == {"float", "chip"} and result["chip"] == "tiny"
    code, out, _ = command("evaluate toy:make --input data.npz")
    assert code == 0 and out.splitlines()[1].startswith("float") and len(out.splitlines()) == 4
    assert out.splitlines()[3] == "class = output neuron with most spikes over all steps"
    assert result["answer_rule"] == "class = output neuron with most spikes over all steps" and result["left_out"] == ""


VOTING = """
import torch
from nwcompile import nn


class Voting(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.fc = torch.nn.Linear(6, 8)
        self.lif = nn.LIFLayer(8, taus=20e-3, thresholds=1.0, reset_mechanism="zero", dt=1e-3)

    def forward(self, x):
        return self.lif(self.fc(2 * x))[0].sum(1).view(-1, 4, 2).mean(-1)


def make():
    return Voting(), (torch.rand(4, 10, 6) < 0.5).float()
"""


def test_cli_readout_is_the_modules_or_the_rule_of_the_flag(command, model, folder):
    (folder / "votes.py").write_text(VOTING)
    x = (np.random.default_rng(0).random((20, 10, 6)) < 0.5).astype(np.float32)
    made: dict = {}
    exec(VOTING, made)
    network = nw.from_torch(*made["make"]())
    labels = nw.read_out(nw.simulate(network, x)).reshape(20, 4).argmax(1)
    np.savez(folder / "votes.npz", x=x, y=labels)
    assert command("compile votes:make --chip loihi1 --calibration votes.npz -o votes")[0] == 0
    for what in ("votes:make", "votes/net.nwc"):
        result = json.loads(command(f"evaluate {what} --input votes.npz --json")[1])
        assert set(result["accuracy"].values()) == {1.0}
        assert result["answer_rule"] == "class = largest of sum, mean of 'lif', as in the module"
        code, out, _ = command(f"evaluate {what} --input votes.npz --readout sum:4 --json")
        assert code == 0 and json.loads(out)["accuracy"] == result["accuracy"]
        assert json.loads(out)["answer_rule"].endswith("in 4 groups (readout='sum:4')")
    report = command("report votes/net.nwc --input votes.npz -o report")[1]
    assert "class = largest of sum, mean of 'lif', as in the module" in report


def test_cli_plan_only_prints_the_mapping_and_writes_nothing(command, model, folder):
    before = sorted(p.name for p in folder.iterdir())
    code, out, _ = command(f"{COMPILE} --cores 2 --plan-only")
    assert code == 0
    assert out.startswith("fits tiny: 2 of 4 cores") and "2 cores of 4 on tiny" in out
    rows = [line.split() for line in out.splitlines() if line.split()[:1] in (["0"], ["1"])]
    assert [row[4:6] for row in rows] == [["out", "2"], ["out", "2"]] and "%" in rows[0][-1]
    explained = command(f"{COMPILE} --cores 2 --plan-only --explain")[1].partition("why this mapping\n")[2].splitlines()
    words = [line.partition("  ")[0] for line in explained[: explained.index("")]]
    assert list(filter(None, words)) == ["binds", "tried", "chosen", "next best", "bound"]
    assert "chosen     2 cores: as n_cores=2 asks" in explained and "why this" not in out
    made = json.loads(command(f"{COMPILE} --cores 2 --plan-only --json")[1])
    assert [row["layers"] for row in made["mapping"]] == [{"out": 2}, {"out": 2}]
    assert sorted(p.name for p in folder.iterdir()) == before


def test_cli_old_flags_work_and_are_told_of(command, model):
    line = f"{COMPILE} --cores 2 --plan-only --json"
    new = json.loads(command(f"{line} --fixed-sites out=1,1,0+0,1,0 --optimize traffic")[1])
    code, out, err = command(f"{line} --fix out=1,1,0+0,1,0 --optimise=traffic")
    assert code == 0 and json.loads(out)["mapping"] == new["mapping"]
    assert [text for text in err.splitlines() if "warning" in text][:2] == [
        "nwcompile: warning: --fix is called --fixed-sites now; the next release removes the old flag",
        "nwcompile: warning: --optimise is called --optimize now; the next release removes the old flag",
    ]


def test_cli_fixed_sites_keeps_cores_at_their_sites(command, model):
    line = f"{COMPILE} --cores 2 --plan-only --json"
    made = json.loads(command(f"{line} --fixed-sites out=1,1,0+0,1,0")[1])
    assert [row["site"] for row in made["mapping"]] == [[1, 1, 0], [0, 1, 0]]
    for given, text in (
        ("out=1,1", "fixed_sites={'out': [(1, 1)]} must be {layer: [(x, y, port), ...]}, whole numbers from 0 on"),
        ("out", "compile: argument --fixed-sites: expected LAYER=X,Y,PORT, got 'out'"),
        ("oat=1,1,0", "fixed_sites: unknown layer 'oat'; choose one of: out"),
    ):
        code, out, err = command(f"{COMPILE} --plan-only --fixed-sites {given}")
        assert (code, out) == (2, "") and err.splitlines()[-1] == f"nwcompile: error: {text}"


def test_the_rule_of_cores_is_the_same_sentence_in_help_and_docs(command, capsys):
    page = (Path(__file__).resolve().parents[2] / "docs" / "mapping.md").read_text()
    with pytest.raises(SystemExit):
        command("compile --help")
    assert CORES_RULE in page.replace("`", "") and CORES_RULE in " ".join(capsys.readouterr().out.split())
