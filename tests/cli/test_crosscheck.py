"""`nwcompile crosscheck`: what it prints and returns for models and programs that agree, differ or do not compare."""

import json

import numpy as np
import pytest

import nwcompile as nw
from nwcompile.cli.arguments import parse_arguments
from nwcompile.cli.inputs.load import collect_neuron
from nwcompile.errors import unknown_choice
from nwcompile.sim import simulate
from tests.made.lava_files import dense, write
from tests.made.nir_graphs import graph, inputs, lif, linear, outputs

ALL = "float,reference,cycle,sequence"


@pytest.fixture
def nir_file(folder):
    """m.nir: 6-4-3 in snnTorch's reading; crosscheck it with NIR."""
    import nir

    net = graph("input > a > hidden > b > out > output", input=inputs(6), a=linear(4, 6), hidden=lif(4),
                b=linear(3, 4), out=lif(3), output=outputs(3))  # fmt: skip
    nir.write(folder / "m.nir", net)
    return "m.nir"


NIR = "--dt 1e-4 --dialect snntorch --neuron reset=zero"


def broken_cycle(monkeypatch):
    """The cycle backend, wrong by one in the membrane of neuron 3 of fc1 in step 2 of sample 1."""
    import nwcompile.sim.crosscheck as module

    def wrong(model, x, backend, *rest, **more):
        run = simulate(model, x, backend, *rest, **more)
        if backend == "cycle":
            run.states["fc1"]["v"][1, 2, 3] += 1
        return run

    monkeypatch.setattr(module, "simulate", wrong)


def test_cli_crosscheck_prints_every_layer_of_a_program(command, folder):
    run = nw.simulate(nw.Program.load("net.nwc"), np.load("data.npz")["x"])
    code, out, err = command("crosscheck net.nwc --input data.npz")
    lines = out.splitlines()
    assert (code, err) == (0, "")
    assert lines[0].startswith("reference, cycle, sequence agree bit for bit on 3 samples (")
    *_, head, one, two = lines
    assert head.split("  ")[0] == "layer" and head.endswith("states")
    fired = {layer: str(np.count_nonzero(spikes)) for layer, spikes in run.spikes.items()}
    assert one.split() == ["fc1", "8", "120", *[fired["fc1"]] * 3, "equal"]
    assert two.split() == ["fc2", "4", "60", *[fired["fc2"]] * 3, "equal"]


def test_cli_crosscheck_returns_1_and_names_step_neuron_core_and_values(command, folder, monkeypatch):
    broken_cycle(monkeypatch)
    code, out, _ = command("crosscheck net.nwc --input data.npz --against reference cycle")
    v = int(nw.simulate(nw.Program.load("net.nwc"), np.load("data.npz")["x"], record="all").states["fc1"]["v"][1, 2, 3])
    where = f"step 2, layer fc1, neuron 3, sample 1, core 0: v reference={v}, cycle={v + 1}"
    assert code == 1
    text = " ".join(out.split())
    assert text.startswith(f"reference, cycle disagree first at {where} ") and text.count(where) == 2
    assert out.splitlines()[-1].endswith("  equal")
    code, out, _ = command("crosscheck net.nwc --input data.npz --against reference,cycle --json")
    doc = json.loads(out)
    assert code == 1 and doc["agree"] is False and doc["layers"][1]["first_difference"] is None
    assert doc["first_difference"] == {"quantity": "v", "step": 2, "sample": 1, "layer": "fc1", "neuron": 3,
                                       "core": 0, "values": {"reference": v, "cycle": v + 1}}  # fmt: skip


def test_cli_crosscheck_compiles_a_nir_file_and_tells_what_quantizing_changed(command, nir_file):
    line = f"crosscheck {nir_file} {NIR} --chip tiny --input data.npz --calibration data.npz"
    code, out, _ = command(f"{line} --against {ALL} --json")
    doc = json.loads(out)
    assert code == 0 and doc["agree"] and doc["backends"] == ["reference", "cycle", "sequence"]
    x, y = (np.load("data.npz")[key] for key in "xy")
    network = nw.from_nir(nir_file, dt=1e-4, dialect="snntorch", neuron={"reset": "zero"})
    program = nw.compile(network, "tiny", calibration=x)
    a, b = nw.simulate(network, x), nw.simulate(program, x)
    gap = doc["float_difference"]
    for row in gap["layers"]:
        wanted, got = a.spikes[row["layer"]], b.spikes[row["layer"]]
        assert row["spikes_float"] == wanted.sum() > 0 and row["n_differing"] == (wanted != got).sum()
    assert gap["answers_float"] == a.output.sum(1).argmax(1).tolist()
    assert gap["accuracy"]["chip"] == np.mean(b.output.sum(1).argmax(1) == y)
    code, out, _ = command(f"{line} --against {ALL}")
    assert code == 0 and f"\n\nanswer: float and chip agree on {gap['n_alike']} of 3 samples; accuracy float " in out


def test_cli_crosscheck_differences_of_quantizing_are_no_failure(command, nir_file):
    line = f"crosscheck {nir_file} {NIR} --chip tiny --bits 2 --input data.npz --against {ALL} --json"
    code, out, _ = command(line)
    doc = json.loads(out)
    assert code == 0 and sum(row["n_differing"] for row in doc["float_difference"]["layers"]) > 0
    assert any(text.startswith("no calibration samples") for text in doc["warnings"])


def test_cli_crosscheck_compares_a_program_with_the_model_that_is_named(command, nir_file):
    command(f"compile {nir_file} {NIR} --chip tiny -o build")
    wanted = json.loads(command(f"crosscheck {nir_file} {NIR} --chip tiny --input data.npz --against {ALL} --json")[1])
    line = f"crosscheck build/net.nwc --model {nir_file} {NIR} --input data.npz --against {ALL} --json"
    code, out, _ = command(line)
    assert code == 0 and json.loads(out) == wanted


def test_cli_crosscheck_of_a_lava_net(command, folder):
    write(folder / "a.net", [dense(np.eye(6))])
    code, out, _ = command("crosscheck a.net --chip tiny --input data.npz")
    assert code == 0 and "\nlayer0" in out


def test_cli_evaluate_of_a_nir_file_tells_what_crosscheck_tells(command, nir_file):
    line = f"{nir_file} {NIR} --chip tiny --input data.npz --calibration data.npz --json"
    told = json.loads(command(f"crosscheck {line} --against float,sequence")[1])["float_difference"]["accuracy"]
    code, out, _ = command(f"evaluate {line}")
    assert code == 0 and json.loads(out)["accuracy"] == told


def test_cli_show_and_check_take_models_and_programs(command, nir_file):
    shown = command(f"show {nir_file} {NIR} --chip tiny --core 0 --json")
    assert shown[0] == 0 and list(json.loads(shown[1])["neurons"]) == ["hidden", "out"]
    code, out, _ = command("check net.nwc")
    assert code == 0 and out.startswith("fits tiny: 2 of 4 cores")


@pytest.mark.parametrize(
    "line, text",
    [
        ("net.nwc --steps 3 --against cycle", "crosscheck needs two backends or more, got cycle"),
        (
            "net.nwc --steps 3 --against cycle,refrence",
            "crosscheck: argument --against: unknown backend 'refrence'; choose one of: reference, cycle, float, "
            "sequence",
        ),
        (
            "net.nwc --steps 3 --against float,cycle",
            "'float' needs the network as it was before quantization, which a program does not hold; give it as "
            "network=, or with --model on the command line",
        ),
        (
            "net.nwc --steps 3 --model m.nir",
            "--model: the float model of a .nwc program; compare it with --against float,cycle",
        ),
        (
            f"net.nwc --steps 3 --model m.nir {NIR} --against float,cycle",
            "the program was not made from this network: layer 'fc1' has shape [8] in the program and none in the "
            "network; give the one that was compiled",
        ),
        (
            f"m.nir {NIR} --chip tiny --steps 3 --against float,cycle --model m.nir",
            "--model: the float model of a .nwc program; m.nir is a model itself",
        ),
        (
            f"m.nir {NIR} --chip tiny --steps 3 --against float,cycle --window hardware",
            "a float network has no window 'hardware'; leave 'float' out, or use window='aligned'",
        ),
        (
            "a.net --chip tiny --steps 3 --against float,cycle",
            "the network came in integers, so there is no float network to compare with; leave 'float' out of the "
            "backends",
        ),
        ("m.nir --steps 3", "--chip is missing: name the chip to compile m.nir for (only a .nwc file has its own)"),
        (
            "net.nwc --steps 3 --chip tiny",
            "--chip: a .nwc program has its chip; change keys with --set, or compile the model again",
        ),
        (
            "net.nwc --steps 3 --dt 1",
            "--dt, --dialect and --neuron say how to read a .nir file; name it with --model",
        ),
        (
            "m.nir --dialect sntorch --chip tiny --steps 3",
            "crosscheck: argument --dialect: unknown dialect 'sntorch'; choose one of: snntorch, lava, nir, norse, "
            "rockpool, sinabs, spikingjelly, spyx",
        ),
        ("missing.nir --dialect nir --dt 1 --chip tiny --steps 3", "NIR file missing.nir: there is no such file"),
        ("m.nir --chip tny --steps 3",
         f"{unknown_choice('chip', 'tny', nw.Chip.names())}, or give the path of a .toml file"),
        (f"m.nir {NIR} --chip tiny --input wide.npz", "input 'input' must be [B, T, 6], got shape [3, 5, 7]"),
        (
            f"m.nir {NIR} --chip tiny --input labels.npz --against float,cycle",
            "labels y are 0..3, but the output has 3 neurons, 0..2",
        ),
        (
            f"m.nir {NIR} --chip tiny --input nan.npz",
            "input 'input' has NaN or infinite values; clean the data first",
        ),
    ],
)  # fmt: skip
def test_cli_crosscheck_of_wrong_input_is_one_sentence(command, nir_file, folder, line, text):
    write(folder / "a.net", [dense(np.eye(6))])
    np.savez("wide.npz", x=np.zeros((3, 5, 7)))
    np.savez("labels.npz", x=np.zeros((3, 5, 6)), y=np.array([0, 3, 1]))
    np.savez("nan.npz", x=np.full((3, 5, 6), np.nan))
    code, out, err = command(f"crosscheck {line}")
    assert (code, out) == (2, "")
    assert err.splitlines()[-1] == f"nwcompile: error: {text}"


@pytest.mark.parametrize(
    "flags, start",
    [
        ("", "from_nir needs dialect=, because "),
        ("--dialect snntorch", "NIR node 'hidden' (LIF): needs the time step; give dt= "),
        (
            "--dialect snntorch --dt 1e-4 --neuron reset=zro",
            "neuron field reset: unknown reset 'zro'; choose one of: zero, ",
        ),
        ("--dialect snntorch --dt 1e-4 --neuron rset=zero", "unknown neuron field 'rset'; choose one of: reset, "),
        (f"{NIR} --neuron hiden={{beta=1}}", "unknown neuron node 'hiden'; choose one of: hidden, out"),
    ],
)
def test_cli_crosscheck_says_what_the_importer_says(command, nir_file, flags, start):
    code, out, err = command(f"crosscheck {nir_file} {flags} --chip tiny --steps 3")
    assert (code, out) == (2, "") and err.splitlines()[-1].startswith(f"nwcompile: error: {start}")


@pytest.mark.parametrize("verb", ["crosscheck", "compile -o build", "check", "evaluate", "show", "simulate"])
@pytest.mark.parametrize("name", ["m.pt", "m.ckpt", "m.nir"])
def test_cli_pickled_module_is_refused_and_not_unpickled(command, folder, verb, name):
    import torch

    torch.save(torch.nn.Linear(2, 2), name)
    chip = "" if verb == "simulate" else "--chip tiny"
    samples = "--input data.npz" if verb in ("crosscheck", "evaluate", "simulate") else ""
    word, _, rest = verb.partition(" ")
    code, out, err = command(f"{word} {name} {chip} {samples} {rest}")
    assert (code, out) == (2, "")
    assert err == (
        f"nwcompile: error: {name}: a pickled file; nothing is unpickled, because that runs code which the file holds; "
        "export the model to NIR, or in Python load its weights with torch.load(path, weights_only=True) into the "
        "module and give that to nw.from_torch\n"
    )


def test_cli_crosscheck_refuses_samples_of_the_wrong_shape_before_it_compiles(command, nir_file):
    for verb in ("crosscheck", "evaluate"):
        np.savez("wide.npz", x=np.zeros((3, 5, 7)), y=np.zeros(3))
        code, _, err = command(f"{verb} {nir_file} {NIR} --chip tiny --input wide.npz")
        assert (code, err) == (2, "nwcompile: error: input 'input' must be [B, T, 6], got shape [3, 5, 7]\n")


def test_cli_crosscheck_that_is_interrupted_says_so_and_returns_130(command, folder, monkeypatch):
    import nwcompile.cli.crosscheck as verb

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(verb, "crosscheck", interrupted)
    code, out, err = command("crosscheck net.nwc --steps 3")
    assert (code, out, err) == (130, "", "nwcompile: interrupted; nothing was half-written\n")


def test_cli_crosscheck_of_a_model_that_does_not_fit_returns_1(command, nir_file):
    code, out, err = command(f"crosscheck {nir_file} {NIR} --chip tiny --set core.max_neurons=1 --input data.npz")
    assert (code, out) == (1, "") and "exceeded on tiny\n" in err


@pytest.mark.parametrize(
    "flags, neuron",
    [
        ("--neuron reset=none", {"reset": "none"}),
        ("--neuron reset=zero --neuron v_min=none", {"reset": "zero", "v_min": None}),
        ("--neuron reset=zero --neuron lif2.reset=subtract --neuron rec.lif.threshold=0.5",
         {"reset": "zero", "lif2": {"reset": "subtract"}, "rec.lif": {"threshold": 0.5}}),
        ("", None),
    ],
)  # fmt: skip
def test_cli_neuron_flags_state_fields_of_all_nodes_or_of_one(flags, neuron):
    args = parse_arguments("crosscheck", "", f"m.nir --chip tiny --input x.npz --dialect snnTorch {flags}".split())
    assert collect_neuron(args.neuron) == neuron
    assert args.dialect == "snntorch"
