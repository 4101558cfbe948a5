"""`--profile`, `--trace` and `--model-dt` on the command line."""

import json

import numpy as np
import pytest

import nwcompile as nw


def test_cli_simulate_profile_tells_where_the_cycles_go(command, folder):
    code, out, err = command("simulate net.nwc --input data.npz --profile --json -o run.npz")
    assert (code, err) == (0, "")
    figures = json.loads(out)
    units = figures["profile"]["phases"]["cycles"]
    assert np.array_equal(np.sum(list(units["send"].values()), 0)[:, 0], figures["step_cycles"])
    with np.load("run.npz") as written:
        assert written["phases/send/visit"].tolist() == units["send"]["visit"]
    assert figures["profile"]["latency_cycles"]["n_messages"] == figures["counters"]["messages_out"]
    assert figures["real_time"] is None
    _, text, _ = command("simulate net.nwc --input data.npz --profile")
    assert "latency in cycles: p50 " in text and "critical path of the slowest step " in text
    _, plain, _ = command("simulate net.nwc --input data.npz")
    assert "p50" not in plain and text.startswith(plain.rstrip())


def test_cli_report_writes_profile_trace_and_real_time(command, folder):
    code, out, _ = command(
        "report net.nwc --input data.npz -o rep --trace t.json --trace-steps 4 --model-dt 0.001 --json"
    )
    doc = json.loads(out)
    assert code == 0 and doc["trace"] == "t.json"
    assert doc["profile"]["critical_paths"][0]["text"].startswith("step ")
    run = nw.simulate(nw.Program.load("net.nwc"), np.load("data.npz")["x"], backend="cycle")
    assert doc["real_time"]["model_s"] == pytest.approx(3 * 5 * 0.001)
    assert doc["real_time"]["hardware_factor"] == pytest.approx(run.seconds / 0.015)
    assert doc["real_time"]["simulator_factor"] > 0
    assert doc["energy"]["pj_per_synop"] == pytest.approx(run.energy_pj["total"] / run.counters["synops"].sum())
    first = nw.simulate(nw.Program.load("net.nwc"), np.load("data.npz")["x"][:1], backend="cycle")
    with open("t.json") as stream:
        steps = [e for e in json.load(stream)["traceEvents"] if e["ph"] == "X" and e["tid"] == 0]
    ns = nw.Program.load("net.nwc").chip.core.cycle_ns
    assert [s["dur"] * 1000 for s in steps] == pytest.approx((first.step_cycles[:4] * ns).tolist())
    with open("rep/report.html") as stream:
        page = stream.read()
    assert all(f"<h2>{title}</h2>" in page for title in ("Phases of the cores", "Critical paths", "Real time"))
    assert "Phases of the cores" not in page.replace("<h2>Phases of the cores</h2>", "")


def test_cli_report_of_a_backend_without_times_has_no_profile(command, folder):
    code, out, _ = command("report net.nwc --input data.npz -o rep --backend reference --model-dt 0.001 --json")
    doc = json.loads(out)
    assert code == 0 and doc["profile"] is None and doc["real_time"]["hardware_factor"] is None
    _, text, _ = command("report net.nwc --input data.npz -o rep --backend reference --model-dt 0.001")
    told = "a second of model time (steps of 0.001 s) takes an unknown time on the chip and "
    assert told in " ".join(text.split())


@pytest.mark.parametrize(
    "line, text",
    [
        (
            "--trace t.json --backend reference",
            "--trace needs times, and only backend 'cycle' measures them, not 'reference'",
        ),
        (
            "--profile --backend sequence",
            "--profile needs times, and only backend 'cycle' measures them, not 'sequence'",
        ),
        ("--trace-steps 3", "--trace-steps says how many steps --trace OUT.json shows; give both"),
        ("--trace t.json --trace-steps 0", "--trace-steps 0 must be 1 or more"),
        ("--model-dt 0", "--model-dt 0 must be a time in seconds above 0"),
        ("--model-dt nan", "--model-dt nan must be a time in seconds above 0"),
        ("--profile --set cost.visit_cycles=none", "--profile needs times, and tiny gives no cost.visit_cycles"),
        ("--trace t.json --set cost.visit_cycles=none", "--trace needs times, and tiny gives no cost.visit_cycles"),
    ],
)
def test_cli_profile_flags_that_cannot_be(command, folder, line, text):
    code, _, err = command(f"simulate net.nwc --input data.npz {line}")
    assert (code, err) == (2, f"nwcompile: error: {text}\n")
    assert not (folder / "t.json").exists()


def test_cli_model_dt_needs_a_program(command, model):
    code, _, err = command("simulate toy:make --input data.npz --model-dt 0.001")
    expected = "--model-dt compares with a chip's time, and a float network has none; compile it first"
    assert (code, err) == (2, f"nwcompile: error: {expected}\n")


def test_cli_simulate_keeps_totals_of_very_many_steps(command, folder):
    code, out, err = command("simulate net.nwc --steps 2e3 --record totals --profile --model-dt 1e-3 --json -o run.npz")
    figures = json.loads(out)
    assert (code, err) == (0, "") and figures["n_steps"] == 2000 and len(figures["step_cycles"]) == 1
    assert figures["profile"]["latency_cycles"]["n_messages"] == figures["counters"]["messages_out"]
    assert figures["real_time"]["model_s"] == pytest.approx(2)
    with np.load("run.npz") as written:
        assert written["counters/neuron_visits"].sum() == 12 * 2002 and not any("phases" in key for key in written)
    _, text, _ = command("simulate net.nwc --input data.npz --record totals --profile")
    _, steps, _ = command("simulate net.nwc --input data.npz --profile")
    assert "(of 7 steps and all samples)" in " ".join(text.split())
    mean = "hardware step: mean "
    assert text.partition(mean)[2].split()[0] == steps.partition(mean)[2].split()[0]
    assert text.partition("messages: ")[2].split("\n")[0] == steps.partition("messages: ")[2].split("\n")[0]
    assert text.split("hardware step")[0] == steps.split("hardware step")[0]
