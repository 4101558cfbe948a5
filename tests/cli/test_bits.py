"""Choosing the width of weights from the command line: `--bits`, and what `nwcompile bits` finds."""

import json

import numpy as np
import pytest

import nwcompile as nw

COMPILE = "compile toy:make --chip tiny --calibration data.npz"


def widths(path="build/net.nwc"):
    return [c.weight_bits for c in nw.Program.load(path).network.connections]


def test_bits_of_a_number_narrows_every_layer(command, model):
    code, out, _ = command(f"{COMPILE} --bits 4 -o build --json")
    assert code == 0 and widths() == [4] and nw.Program.load("build/net.nwc").manifest["options"]["bits"] == 4
    assert json.loads(out)["layers"][0]["quantization"]["bits"] == 4


def test_bits_of_a_file_gives_each_layer_its_own(command, model, folder):
    (folder / "layers.toml").write_text('bits = 6\n[layers]\n"out" = 3\n')
    assert command(f"{COMPILE} --bits layers.toml -o build")[0] == 0 and widths() == [3]
    (folder / "all.toml").write_text("bits = 6\n")
    assert command(f"{COMPILE} --bits all.toml -o build")[0] == 0 and widths() == [6]


def test_bits_of_one_run_alike_in_every_backend(command, model):
    code, out, _ = command(f"{COMPILE} --bits 1 -o build")
    assert code == 0 and widths() == [1]
    weight = nw.Program.load("build/net.nwc").network.connections[0].weight
    assert len(np.unique(np.abs(weight))) == 1 and (weight < 0).any() and (weight > 0).any()
    code, out, _ = command("crosscheck build/net.nwc --input data.npz --json")
    assert code == 0 and json.loads(out)["agree"] is True


@pytest.mark.parametrize(
    "flag, content, text",
    [
        ("0", None, "bits=0 must be a whole number from 1 to 16"),
        ("17", None, "bits=17 must be a whole number from 1 to 16"),
        ("four", None, "--bits four: expected a number of bits or a .toml file of widths"),
        ("9", None, "9-bit weights into layer 'out' are wider than those of tiny, which have 8; give 1 to 8, or set "
                    "weights.bits = 9"),
        ("no.toml", None, "--bits no.toml: cannot be read: No such file or directory"),
        ("b.toml", "bits = ", "--bits b.toml: cannot be read: Invalid value (at end of document)"),
        ("b.toml", "layer = 3", "--bits b.toml: unknown key 'layer'; choose one of: layers, bits"),
        ("b.toml", "layers = 3", "--bits b.toml: layers=3 must be a table of layers and their bits"),
        ("b.toml", "bits = 0", "bits=0 must be a whole number from 1 to 16"),
        ("b.toml", "[layers]\nout = 2.5", "layer_bits['out']=2.5 must be a whole number from 1 to 16"),
        ("b.toml", "[layers]\nuot = 2", "layer_bits: unknown layer 'uot'; choose one of: out"),
    ],
)  # fmt: skip
def test_bits_that_cannot_be_are_one_sentence(command, model, folder, flag, content, text):
    if content is not None:
        (folder / flag).write_text(content)
    code, out, err = command(f"{COMPILE} --bits {flag} -o build")
    assert (code, out, err) == (2, "", f"nwcompile: error: {text}\n")
    assert not (folder / "build").exists()


BITS = "bits toy:make --chip tiny --input data.npz"


def test_bits_searches_widths_and_writes_a_file_that_compile_reads(command, model, folder):
    code, out, err = command(f"{BITS} --calibration data.npz --drop 99% -o layers.toml")
    assert code == 0 and (folder / "layers.toml").read_text().endswith('\n[layers]\n"out" = 1\n')
    assert err.splitlines()[0].startswith("out 8 bits: ") and err.splitlines()[-1].startswith("out 1 bits: ")
    rows = [line.split() for line in out.splitlines()[:3]]
    assert rows[1:] == [["out", "24", "8", "1", "192", "24"], ["all", "24", "192", "24"]]
    assert "accuracy on all 3 samples; calibrated on data.npz" in out and out.endswith(
        "layers.toml (give it to --bits)\n"
    )
    assert command(f"{COMPILE} --bits layers.toml -o build")[0] == 0 and widths() == [1]


def test_bits_splits_samples_so_that_none_both_calibrates_and_counts(command, model, monkeypatch):
    from nwcompile.cli import bits

    x = (np.random.default_rng(1).random((20, 5, 6)) < 0.5).astype(np.int8)
    x[:, 0, :5] = (np.arange(20)[:, None] >> np.arange(5)) & 1  # no two alike
    np.savez("many.npz", x=x)
    np.save("y.npy", np.arange(20) % 4)
    given, searched = [], bits.find_narrowest
    monkeypatch.setattr(bits, "find_narrowest", lambda *args: given.append(args) or searched(*args))
    line = "bits toy:make --chip tiny --input many.npz --labels y.npy --drop 50 -o layers.toml --seed 3 --json"
    code, out, _ = command(line)
    calibration, rest, labels = given[0][2:5]
    assert len(calibration) == 4 and len(rest) == len(labels) == 16
    assert len(np.unique(np.concatenate([calibration, rest]), axis=0)) == 20
    assert [np.flatnonzero((x == row).all((1, 2)))[0] % 4 for row in rest] == labels.tolist()
    doc = json.loads(out)
    assert doc["split"] == "calibrated on 4 of the 20 samples, drawn with seed 3; accuracy on the others"
    assert doc["n_samples"] == 16 and doc["tries"][0]["layers"] == {"out": 8} and doc["file"] == "layers.toml"


def test_bits_takes_samples_in_the_layout_of_the_network(command, model, folder):
    text = (folder / "toy.py").read_text()
    (folder / "toy.py").write_text(f"{text}\ndef late():\n    return make().change_layout('TB')\n")
    rng = np.random.default_rng(2)
    np.savez("late.npz", x=(rng.random((5, 7, 6)) < 0.5).astype(np.int8), y=np.arange(7) % 4)
    np.save("y.npy", np.arange(7) % 4)
    for labels in ("", "--labels y.npy "):
        code, _, err = command(f"bits toy:late --chip tiny --input late.npz {labels}--drop 99% -o b.toml")
        assert code == 0 and "bits" in err


@pytest.mark.parametrize(
    "line, text",
    [
        (f"{BITS} --drop 1o% -o b.toml",
         "--drop 1o%: expected the percentage of accuracy that may be lost, 0 to 100, like 1%"),
        (f"{BITS} --drop -1 -o b.toml",
         "--drop -1: expected the percentage of accuracy that may be lost, 0 to 100, like 1%"),
        (f"{BITS} --drop 100% -o b.toml",
         "--drop 100%: expected the percentage of accuracy that may be lost, 0 to 100, like 1%"),
        (f"{BITS} --drop nan -o b.toml",
         "--drop nan: expected the percentage of accuracy that may be lost, 0 to 100, like 1%"),
        (f"{BITS} -o b.toml", "bits: the following arguments are required: --drop"),
        ("bits toy:make --chip tiny --drop 1% -o b.toml", "bits: the following arguments are required: --input"),
        ("bits toy:make --chip tiny --input x.npy --drop 1% -o b.toml",
         "x.npy: no labels; give them with --labels Y.npy, or under the key y of a .npz file"),
        (f"{BITS} --labels x.npy --drop 1% -o b.toml",
         "x.npy: expected one array of labels, of shape [B], under the key y"),
        (f"{BITS} --labels few.npy --drop 1% -o b.toml", "few.npy: 2 labels for the 3 samples of data.npz"),
        (f"{BITS} --labels half.npy --drop 1% -o b.toml",
         "half.npy: labels y must be whole numbers, each the index of an output neuron"),
        (f"{BITS} --labels large.npy --drop 1% -o b.toml",
         "labels y are 0..9, but the output has 4 neurons, 0..3"),
        (f"{BITS} --samples 1 --drop 1% -o b.toml",
         "data.npz: 1 sample cannot both calibrate and be evaluated; give --calibration"),
        ("bits net.nwc --chip tiny --input data.npz --drop 1% -o b.toml",
         "net.nwc is compiled already; widths are searched for its model"),
        (f"{BITS} --drop 1% -o layers", "-o layers: give the name of a .toml file, so that --bits can read it"),
        (f"{BITS} --drop 1% -o data.npz/b.toml",
         "-o data.npz: data.npz is not a folder; choose a folder you may write to"),
    ],
)  # fmt: skip
def test_bits_refuses_in_one_sentence(command, model, folder, line, text):
    np.save("x.npy", np.zeros((3, 5, 6), np.int8))
    for name, y in (("few", [0, 1]), ("half", [0, 0.5, 1]), ("large", [0, 1, 9])):
        np.save(f"{name}.npy", np.array(y))
    code, out, err = command(line)
    assert (code, out) == (2, "") and err.replace(f"{folder}/", "") == f"nwcompile: error: {text}\n"
    assert not (folder / "b.toml").exists()


def test_bits_says_that_the_widest_weights_are_not_enough(command, model, folder):
    command("check toy:make --chip tiny")  # imports it
    import toy

    x = (np.random.default_rng(2).random((30, 12, 6)) < 0.4).astype(np.int8)
    y = nw.simulate(toy.make(), x).output.sum(1).argmax(1)
    np.savez("own.npz", x=x, y=y)
    line = "bits toy:make --chip tiny --input own.npz --calibration own.npz --bits 1 --drop 0% -o b.toml"
    code, out, err = command(line)
    assert (code, out) == (2, "") and not (folder / "b.toml").exists()
    assert err.splitlines()[-1].startswith("nwcompile: error: at its widest weights (out 1 bits) the network is at ")
    assert err.endswith(" below float (100.00 %), and --drop allows 0; allow more, or give more calibration samples\n")
