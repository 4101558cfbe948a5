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
