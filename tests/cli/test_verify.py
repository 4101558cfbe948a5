"""`nwcompile verify`: logs of spikes against a program, the first difference, and what is refused."""

import json

import numpy as np
import pytest

import nwcompile as nw
from nwcompile.ir.connection import Dense
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import FixedPoint, NeuronSpec
from tests.made.neuron_programs import every_operation, integrator


@pytest.fixture
def command(command):
    """Run one command line; wrapped lines of its stdout are joined."""

    def run(line: str):
        code, out, err = command(line)
        return code, out.replace("\n  ", " "), err

    return run


@pytest.fixture
def ranc(folder, command):
    """`ranc/` as `export` writes it: 6-8-4 neurons on RANC with a sample of 9 steps."""
    rng = np.random.default_rng(2)
    spec = NeuronSpec(threshold=1.0, reset="subtract", strict=False)
    edges = [
        Dense("in", "fc1", rng.normal(0.3, 0.4, (8, 6)).astype(np.float32)),
        Dense("fc1", "fc2", rng.normal(0.2, 0.4, (4, 8)).astype(np.float32)),
    ]
    x = (rng.random((2, 9, 6)) < 0.6).astype(np.int8)
    network = Network.from_arrays({"fc1": (spec, (8,)), "fc2": (spec, (4,))}, edges, {"in": (6,)})
    nw.compile(network, "ranc_dense", x).save("ranc.nwc")
    np.savez("x.npz", x=x)
    assert command("export ranc.nwc --to ranc --input x.npz --sample 1 -o ranc")[0] == 0
    return folder / "ranc"


def test_verify_takes_what_ranc_is_expected_to_print(command, ranc):
    spikes = (ranc / "expected_spikes.csv").read_text()
    for name, numbers in (("expected_spikes.csv", f"{9 * 12} numbers compared"),
                          ("expected_outputs.csv", f"{9 * 4} numbers compared; it tells nothing of fc1")):  # fmt: skip
        n = len((ranc / name).read_text().splitlines()) - 1
        code, out, err = command(f"verify ranc --log ranc/{name}")
        assert (code, out, err) == (0, f"the log equals the program: {n} spikes, {numbers}\n", "")
    (ranc / "log.csv").write_text("\ufeff" + spikes.replace("\n", "\r\n"))  # as other tools write it
    assert command("verify ranc --log ranc/log.csv --json")[0] == 0


def test_verify_takes_the_texts_of_rancs_testbench(command, ranc):
    n = len((ranc / "expected_outputs.csv").read_text().splitlines()) - 1
    code, out, _ = command("verify ranc --log ranc/tb_correct.txt")
    text = f"the log equals the program: {n} spikes, {9 * 4} numbers compared; it tells nothing of fc1\n"
    assert n > 3 and (code, out) == (0, text)
    words = (ranc / "tb_correct.txt").read_text().split()
    other = ["11" if words[3] == "10" else "10"]
    (ranc / "log.txt").write_text("\n".join([*words[:3], *other, *words[4:]]))
    code, out, _ = command("verify ranc --log ranc/log.txt")
    assert code == 1 and out.startswith("the log differs first at step ") and "of layer fc2" in out
    for text, message in (
        ("\n".join(words[1:]), f"ranc/log.txt: has {n - 1} outputs, and the ticks of tb_num_outputs.txt have {n}"),
        ("012", "ranc/log.txt: '012' is no binary number"),
    ):
        (ranc / "log.txt").write_text(text)
        code, _, err = command("verify ranc --log ranc/log.txt")
        assert code == 2 and err.endswith(f"{message}\n")
    (ranc / "tb_num_outputs.txt").unlink()
    code, _, err = command("verify ranc --log ranc/tb_correct.txt")
    assert code == 2 and err.endswith("ranc/tb_num_outputs.txt: cannot be read: No such file or directory\n")


def test_verify_shows_the_first_difference_with_what_the_neuron_had(command, ranc):
    header, *rows = (ranc / "expected_spikes.csv").read_text().splitlines()
    table = [line.split(",") for line in (ranc / "neurons.csv").read_text().splitlines()[1:]]
    late = next(i for i, text in enumerate(rows) if int(text.split(",")[0]) >= 4)
    tick, core, slot = rows[late].split(",")
    layer, index, _, _, first, _ = next(entry for entry in table if entry[2:4] == [core, slot])
    (ranc / "log.csv").write_text("\n".join([header, *rows[:late], *rows[late + 1 :]]))
    code, out, _ = command("verify ranc --log ranc/log.csv")
    step = int(tick) - int(first)
    run = nw.simulate(nw.Program.load("ranc.nwc"), np.load("x.npz")["x"], record="all")
    v = run.states[layer]["v"][1, :, int(index)]
    place = f"step {step} of layer {layer} (tick {tick}), neuron {index} (core {core}, slot {slot})"
    text = f"the log differs first at {place}: spikes is 0 in the log and 1 in the program ("
    assert code == 1 and out.startswith(text)
    assert f"v before={v[step - 1]}, v after={v[step]}, threshold=" in out
    (ranc / "log.csv").write_text("\n".join([header, f"0,{table[-1][2]},{table[-1][3]}", *rows]))
    code, out, _ = command("verify ranc --log ranc/log.csv --json")
    difference = json.loads(out)["first_difference"]
    assert code == 1 and (difference["layer"], difference["step"], difference["tick"]) == ("fc2", -1, 0)
    assert not any("before" in name or "after" in name for name in difference["values"])
    assert "threshold" in difference["values"]
    out = command("verify ranc --log ranc/log.csv")[1]
    assert ", before the layer's first step)" in out and "before=" not in out


def test_verify_takes_exports_that_leave_out_neurons_that_nobody_hears(command, folder):
    spec = NeuronSpec(threshold=5, reset="subtract", strict=False, fixed=FixedPoint(24, 12, 0, "modulo"))
    last = np.arange(12, dtype=np.int16).reshape(3, 4) * np.array([1, 0, 1, 1], np.int16)
    edges = [Dense("in", "fc1", np.arange(8, dtype=np.int16).reshape(4, 2)), Dense("fc1", "fc2", last)]
    network = Network.from_arrays({"fc1": (spec, (4,)), "fc2": (spec, (3,))}, edges, {"in": (2,)})
    x = np.ones((1, 6, 2), np.int8)
    program = nw.compile(network, "ranc_dense", x)
    program.save("net.nwc")
    np.savez("x.npz", x=x)
    assert command("export net.nwc --to ranc --input x.npz -o out")[0] == 0
    assert "fc1,1," not in (folder / "out" / "neurons.csv").read_text()
    code, out, err = command("verify out --log out/expected_spikes.csv")
    assert (code, err) == (0, "") and out.endswith(f" {6 * 6} numbers compared\n")
    spikes = nw.simulate(program, x).spikes["fc1"][0].copy()
    spikes[:, 1] = 0  # its slot is empty
    np.savez("log.npz", fc1=spikes)
    assert command("verify out --log log.npz")[0] == 0


@pytest.mark.parametrize("chip, to", [("ranc_dense", "ranc"), ("xylo_imu", "xylo")])
def test_verify_takes_exports_of_networks_whose_samples_lie_by_steps_first(chip, to, command, folder):
    """As snnTorch's own loops take them, [T, B, n]; what is written is of the sample asked for, all its steps."""
    spec = NeuronSpec(threshold=1.0, reset="subtract", strict=False)
    if to == "xylo":
        spec = spec.replace(alpha=0.5, beta=0.75, current_order="add_then_decay")
    hidden = spec.replace(spikes="multi", max_spikes=31) if to == "xylo" else spec
    rng = np.random.default_rng(1)
    edges = [Dense(a, b, rng.normal(0.4, 0.4, shape).astype(np.float32))
             for a, b, shape in (("in", "fc1", (8, 6)), ("fc1", "fc2", (4, 8)))]  # fmt: skip
    network = Network.from_arrays({"fc1": (hidden, (8,)), "fc2": (spec, (4,))}, edges, {"in": (6,)}).change_layout("TB")
    x = (rng.random((9, 3, 6)) < 0.6).astype(np.int8)
    program = nw.compile(network, chip, x)
    program.save("net.nwc")
    np.savez("x.npz", x=x)
    assert command(f"export net.nwc --to {to} --input x.npz --sample 1 -o out")[0] == 0
    run = nw.simulate(program, x, record="all")
    n = int(run.spikes["fc2"][1].sum())
    np.savez("log.npz", fc2=run.spikes["fc2"][1])
    code, out, err = command("verify out --log log.npz")
    text = f"the log equals the program: {n} spikes, {9 * 4} numbers compared; it tells nothing of fc1\n"
    assert n > 3 and (code, out, err) == (0, text, "")
    log = "expected_spikes.csv" if to == "ranc" else "expected.npz"
    n_compared = 9 * 12 if to == "ranc" else 10 * 3 * 12
    code, out, err = command(f"verify out --log out/{log}")
    assert (code, err) == (0, "") and out.endswith(f", {n_compared} numbers compared\n")


def test_verify_takes_logs_of_every_chip(command, folder):
    """By layer and step, by core and hardware step, and arrays with states."""
    program = nw.Program.load("net.nwc")
    run = nw.simulate(program, np.load("data.npz")["x"], record="all")
    by_step, by_core = ["step,layer,neuron"], ["tick,core,neuron,v"]
    places = {core: [] for core in range(2)}
    for neuron in program.visiting_order:
        places[program.core_of[neuron]].append(neuron)
    for name in program.network.layers:
        for step, i in np.argwhere(run.spikes[name][2]):
            source = program.network.offsets[name] + i
            core = program.core_of[source]
            by_step.append(f"{step},{name},{i}")
            by_core.append(f"{step + program.schedule.offset[name]},{core},{places[core].index(source)},7")
    (folder / "steps.csv").write_text("\n".join(by_step))
    (folder / "cores.csv").write_text("\n".join(by_core))
    arrays = {"fc1": run.spikes["fc1"][2], "fc2.v": run.states["fc2"]["v"][2]}
    np.savez("log.npz", **arrays)
    for log in ("steps.csv", "cores.csv", "log.npz"):
        code, out, err = command(f"verify net.nwc --log {log} --input data.npz --sample 2")
        assert (code, err) == (0, "") and out.startswith("the log equals the program: "), (log, out)
    arrays["fc2.v"][3, 1] += 1
    np.savez("log.npz", **arrays)
    code, out, _ = command("verify net.nwc --log log.npz --input data.npz --sample 2")
    assert code == 1 and "step 3 of layer fc2" in out and ": v is " in out
    assert command("verify net.nwc --log log.npz --input data.npz --sample 2 --steps 3")[0] == 0


def test_verify_shows_the_states_and_numbers_of_neuron_programs(command, folder):
    """By their names, and before step 0 what a sample begins with; readouts tell nothing by spikes."""
    layers = {"a": (every_operation(), (10,)), "b": (integrator.program(), (3,))}
    weight = np.arange(-30, 30, dtype=np.int16)
    edges = [Dense("in", "a", weight.reshape(10, 6) % 7), Dense("a", "b", weight[:30].reshape(3, 10) % 5)]
    x = (np.random.default_rng(0).random((1, 5, 6)) < 0.6).astype(np.int8)
    program = nw.compile(Network.from_arrays(layers, edges, {"in": (6,)}), "loihi2", x)
    program.save("program.nwc")
    np.savez("x.npz", x=x)
    run = nw.simulate(program, x, record="all")
    arrays = {"a": run.spikes["a"][0], "a.w": run.states["a"]["w"][0].copy(), "b.v": run.states["b"]["v"][0]}
    np.savez("log.npz", **arrays)
    code, out, _ = command("verify program.nwc --log log.npz --input x.npz")
    assert code == 0 and out.endswith(" spikes, 115 numbers compared\n")
    arrays["a.w"][0, 2] += 1
    np.savez("log.npz", **arrays)
    code, out, _ = command("verify program.nwc --log log.npz --input x.npz --json")
    difference = json.loads(out)["first_difference"]
    v, w = (int(run.states["a"][name][0, 0, 2]) for name in "vw")
    had = {"v before": 5, "v after": v, "w before": -1, "w after": w, "k": -3}
    assert code == 1 and (difference["quantity"], difference["values"]) == ("w", had)
    (folder / "log.csv").write_text("tick,core,neuron\n")
    code, out, _ = command("verify program.nwc --log log.csv --input x.npz --json")
    assert code == 1 and json.loads(out)["untold"] == ["b"]


def test_verify_refuses_a_table_of_places_of_another_program(command, ranc):
    table = (ranc / "neurons.csv").read_text()
    text = "nwcompile: error: ranc/neurons.csv: is not of this program, or not the whole of it; export it again\n"
    assert "fc1,3," in table
    for other in (table.replace("fc1,3,", "fc1,300,"), table[: table.rindex("\n", 0, -1) + 1]):
        (ranc / "neurons.csv").write_text(other)
        assert command("verify ranc --log ranc/expected_spikes.csv") == (2, "", text)


def test_verify_refuses_in_one_sentence(command, folder):
    (folder / "odd.csv").write_text("time,who\n1,2\n")
    (folder / "far.csv").write_text("tick,core,neuron\n1,0,99\n")
    (folder / "text.csv").write_text("tick,core,neuron\n1,0,x\n")
    (folder / "long.csv").write_text("tick,core,neuron\n99999999999999999999,0,1\n")
    (folder / "square.csv").write_text("tick,core,neuron\n1,0,\u00b2\n", encoding="utf-8")
    (folder / "twice.csv").write_text("tick,core,neuron,tick\n1,0,1,2\n")
    (folder / "silent.csv").write_text("step,layer,neuron\n")
    for name, values in (("half", np.full((5, 4), 0.5)), ("text", np.full((5, 4), "a")), ("turned", np.zeros((4, 5)))):
        np.savez(f"{name}.npz", fc2=values)
    np.savez("none.npz")
    (folder / "short.csv").write_text("tick,core,neuron\n1,0\n")
    np.savez("other.npz", fc9=np.zeros((5, 4)))
    for line, text in (
        ("verify . --log far.csv",
         "no input: give --input X.npz, the sample that the log is of, or --steps N without input"),
        ("verify nowhere --log far.csv",
         "nowhere/net.nwc: there is no such program; name a folder of `nwcompile compile` or `export`, or a .nwc"),
        ("verify . --log odd.csv --input data.npz",
         "odd.csv: its first line must name the columns tick, core, neuron; or tick, output; or step, layer, neuron; "
         "it is time, who"),
        ("verify . --log far.csv --input data.npz",
         "the log has a spike of core 0, neuron 99 at tick 1, where the program has no neuron"),
        ("verify . --log text.csv --input data.npz",
         "text.csv: column neuron has 'x', which is no whole number of at most 18 digits"),
        ("verify . --log long.csv --input data.npz",
         "long.csv: column tick has '99999999999999999999', which is no whole number of at most 18 digits"),
        ("verify . --log square.csv --input data.npz",
         "square.csv: column neuron has '\u00b2', which is no whole number of at most 18 digits"),
        ("verify . --log twice.csv --input data.npz",
         "twice.csv: its first line names a column twice; it is tick, core, neuron, tick"),
        ("verify . --log silent.csv --input data.npz",
         "silent.csv: tells of no layer; give tick, core, neuron, which tells of all"),
        ("verify . --log half.npz --input data.npz", "half.npz: fc2 has 0.5, which is no whole number below 2**62"),
        ("verify . --log text.npz --input data.npz", "text.npz: fc2 must hold whole numbers, and is of type <U1"),
        ("verify . --log turned.npz --input data.npz",
         "turned.npz: fc2 of shape [4, 5] must be [5, 4], steps and neurons"),
        ("verify . --log none.npz --input data.npz",
         "none.npz: has no arrays; give one of spikes, [T, n], under the name of a layer"),
        ("verify . --log far.csv --input data.npz --steps -3", "--steps -3 must be 1 or more"),
        ("verify . --log short.csv --input data.npz", "short.csv: line 2 has 2 columns, the first line names 3"),
        ("verify . --log none.csv --input data.npz", "none.csv: cannot be read: No such file or directory"),
        ("verify . --log far.csv --input data.npz --sample 3", "--sample 3: there are samples 0..2"),
        ("verify . --log other.npz --input data.npz",
         "other.npz: 'fc9' is no layer of the program, nor LAYER.STATE; its layers and their states: fc1 (u, v), fc2 "
         "(u, v)"),
    ):  # fmt: skip
        code, out, err = command(line)
        assert (code, out, err) == (2, "", f"nwcompile: error: {text}\n"), line
