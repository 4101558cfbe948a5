"""`nwcompile robustness`: what it prints, what it keeps at Ctrl-C, and what it says to wrong input."""

import json

import numpy as np
import pytest

import nwcompile as nw
from nwcompile.cli import robustness as verb


@pytest.fixture
def labeled(folder):
    """data.npz with the answers of net.nwc to 50 samples as labels."""
    x = (np.random.default_rng(0).random((50, 5, 6)) < 0.5).astype(np.int8)
    run = nw.simulate(nw.Program.load("net.nwc"), x)
    np.savez("data.npz", x=x, y=run.output.sum(1).argmax(1))
    return folder


def test_robustness_prints_the_distribution_of_the_devices(labeled, command):
    code, out, err = command("robustness net.nwc --input data.npz --samples 10 --weight 0.5 --dead 0.1")
    assert code == 0
    lines = out.splitlines()
    assert lines[0] == ("tiny: weight 50 %, dead 10 %; 10 devices (seed 0), 50 samples, backend sequence")
    names = [line.rsplit("  ", 1)[0].strip() for line in lines[2:13]]
    assert names == ["accuracy", "ideal device", "mean of devices", "standard deviation", "worst device",
                     *(f"{n} % of devices below" for n in (5, 25, 50, 75, 95)), "best device"]  # fmt: skip
    assert lines[3].split()[-1] == "100.00"
    figures = [float(line.split()[-1]) for line in lines[6:13]]
    assert figures == sorted(figures)
    head, _, counts = lines[-1].partition(": ")
    assert head == f"devices from {figures[0]:.2f} % to {figures[-1]:.2f} %, in 10 equal bins"
    assert sum(map(int, counts.split())) == 10
    assert err.splitlines()[0] == "ideal device: 100.00 %"
    assert [line.split(":")[0] for line in err.splitlines()[1:]] == [f"{n} of 10 devices" for n in range(1, 11)]


def test_robustness_prints_json_with_every_accuracy(labeled, command):
    code, out, _ = command("robustness net.nwc --input data.npz --samples 4 --seed 2 --weight 0.5 --json")
    doc = json.loads(out)
    program = nw.Program.load("net.nwc")
    with np.load("data.npz") as data:
        wanted = nw.robustness(program, data["x"], data["y"], samples=4, seed=2, weight=0.5)
    assert code == 0 and doc["accuracies"] == list(wanted.accuracies)
    assert (doc["ideal"], doc["mean"], doc["std"], doc["min"], doc["max"]) == (
        1.0, wanted.mean, wanted.std, wanted.min, max(wanted.accuracies))  # fmt: skip
    assert doc["quantiles"]["0.5"] == wanted.quantile(0.5)
    assert doc["variation"] == {"weight": 0.5, "threshold": None, "leak": None, "stuck": None, "dead": None,
                                "levels": None, "jitter": None, "noise": None, "drift": None}  # fmt: skip
    assert (doc["seed"], doc["n_devices"], doc["n_devices_wanted"], doc["n_samples"]) == (2, 4, 4, 50)
    assert sum(doc["histogram"]["counts"]) == 4 and len(doc["histogram"]["edges"]) == 11


def test_robustness_prints_a_row_for_each_point(labeled, command):
    line = "robustness net.nwc --input data.npz --samples 3 --levels 2,129 --noise 0,0.5 --jitter 1"
    code, out, err = command(line)
    program = nw.Program.load("net.nwc")
    with np.load("data.npz") as data:
        found = [
            nw.robustness(program, data["x"], data["y"], 3, noise=noise, jitter=1, levels=n)
            for n in (2, 129)
            for noise in (0.0, 0.5)
        ]
    names = [(n, noise) for n in ("2", "129") for noise in ("0 %", "50 %")]
    rows = [
        [*name, *(f"{100 * x:.2f}" for x in (r.mean, r.std, r.min)), "3"] for name, r in zip(names, found, strict=True)
    ]
    assert code == 0 and len({tuple(row[2:]) for row in rows}) == 4
    head, ideal, _, columns, *lines = out.splitlines()
    assert head == "tiny: jitter 1 steps; 3 devices (seed 0), 50 samples, backend sequence"
    assert ideal == "ideal device: 100.00 %"
    assert cells(columns) == ["levels", "noise", "mean %", "standard deviation", "worst %", "devices"]
    assert [cells(line) for line in lines[-4:]] == rows
    assert err.splitlines()[-1] == f"12 of 12 devices: row 4 of 4, mean {rows[-1][2]} %"
    doc = json.loads(command(f"{line} --json")[1])
    assert [point["variation"]["levels"] for point in doc["points"]] == [2, 2, 129, 129]
    assert [point["accuracies"] for point in doc["points"]] == [list(r.accuracies) for r in found]


def cells(line: str) -> list[str]:
    return [word.strip() for word in line.split("  ") if word.strip()]


def test_robustness_prints_the_accuracy_over_the_time_since_programming(labeled, command):
    drift = " ".join(f"--set crossbar.drift_{key}" for key in ("exponent=0.2", "spread=0.05", "start_s=20"))
    code, out, _ = command(f"robustness net.nwc --input data.npz --samples 2 --drift 0,20,1e9 {drift}")
    rows = [cells(line) for line in out.splitlines()[-3:]]
    assert code == 0 and [row[0] for row in rows] == ["0 s", "20 s", "1e+09 s"]
    assert rows[0][1:] == rows[1][1:] == ["100.00", "0.00", "100.00", "2"] != rows[2][1:]


def test_robustness_of_equal_devices_has_bins_too(labeled, command):
    code, out, _ = command("robustness net.nwc --input data.npz --samples 3 --set variation.weight=0")
    assert code == 0 and out.startswith("tiny: no variation; 3 devices (seed 0), 50 samples, backend sequence\n")
    assert out.splitlines()[-1] == "devices from 98.00 % to 100.00 %, in 10 equal bins: 0 0 0 0 0 0 0 0 0 3"


def test_robustness_gives_what_is_done_at_ctrl_c(labeled, command, monkeypatch):
    def interrupted(after):
        def parts(*args):
            yield from [0.9, 0.8, 0.7, 0.6][:after]
            raise KeyboardInterrupt

        return parts

    monkeypatch.setattr(verb, "iter_accuracies", interrupted(4))
    line = "robustness net.nwc --input data.npz --samples 20 --weight 0.5 --json"
    code, out, err = command(line)
    doc = json.loads(out)
    assert code == 130 and "nwcompile: interrupted after 3 devices" in err
    assert (doc["ideal"], doc["accuracies"], doc["n_devices"], doc["n_devices_wanted"]) == (0.9, [0.8, 0.7, 0.6], 3, 20)
    code, out, err = command("robustness net.nwc --input data.npz --samples 2 --weight 0.1,0.2,0.3")
    assert code == 130 and "nwcompile: interrupted after 3 devices" in err
    assert [cells(row) for row in out.splitlines()[-2:]] == [
        ["10 %", "75.00", "5.00", "70.00", "2"], ["20 %", "60.00", "0.00", "60.00", "1"]]  # fmt: skip
    monkeypatch.setattr(verb, "iter_accuracies", interrupted(1))
    code, out, err = command(line)
    assert code == 130 and out == "" and err.endswith("nwcompile: interrupted; nothing was half-written\n")


@pytest.mark.parametrize(
    "line, text",
    [
        (
            "net.nwc --input data.npz",
            "tiny does not say how its devices differ: give weight, threshold, leak, stuck, dead, levels, jitter, "
            "noise or drift (on the command line --weight 0.1, ...), or write them into the [variation] of its chip "
            "file",
        ),
        (
            "net.nwc --input data.npz --weight 30",
            "weight=30.0 must be a number from 0 to 1: a standard deviation as a part of the value, 0.1 for 10 %",
        ),
        ("net.nwc --input data.npz --jitter -1", "jitter=-1.0 must be a number of steps from 0 to 65536"),
        ("net.nwc --input data.npz --levels 4,1", "levels=1 must be a whole number from 2 to 65536"),
        ("net.nwc --input data.npz --levels 4,130", "levels=130: weights of 8 bits on tiny have at most 129 levels; "
         "give at most that many"),
        ("net.nwc --input data.npz --set variation.drift=60", "tiny: variation.drift: the chip does not say how its "
         "memory cells drift; set crossbar.drift_exponent, crossbar.drift_spread and crossbar.drift_start_s"),
        ("net.nwc --input data.npz --set variation.levels=130", "tiny: variation.levels: weights of 8 bits have at "
         "most 129 levels, not 130"),
        ("net.nwc --input data.npz --levels 4,", "robustness: argument --levels: expected a whole number, got ''"),
        ("net.nwc --input data.npz --weight x", "robustness: argument --weight: expected a number, got 'x'"),
        (
            "net.nwc --input data.npz --weight 0.1 --samples 0",
            "samples=0 must be a whole number from 1 to 1000000",
        ),
        ("net.nwc --weight 0.1", "robustness: the following arguments are required: --input"),
        ("toy:make --input data.npz --weight 1", "toy:make: expected a .nwc program, as `nwcompile compile` makes it"),
        (
            "net.nwc --input x.npy --weight 0.1",
            "x.npy: no labels; robustness needs them under the key y of a .npz file",
        ),
        ("net.nwc --input data.npz --leek 0.1",
         "robustness: unknown flag '--leek'; choose one of: --leak, --backend, --dead, --device, --drift, --help, "
         "--input, --jitter, --json, --levels, --noise, --samples, --seed, --set, --stuck, --threshold, --weight, -h"),
    ],
)  # fmt: skip
def test_robustness_wrong_input_is_one_sentence(labeled, command, line, text):
    np.save("x.npy", np.zeros((2, 5, 6), np.int8))
    code, out, err = command(f"robustness {line}")
    assert (code, out, err) == (2, "", f"nwcompile: error: {text}\n")
