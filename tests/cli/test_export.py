"""`nwcompile export`: what it writes, prints and refuses."""

import json

import numpy as np
import yaml

from nwcompile.frontend.lava import from_lava
from nwcompile.frontend.nir import from_nir
from nwcompile.ir.program import Program
from tests.made.lava_files import dense, write


def test_cli_export_writes_both_files(command, folder):
    line = "export net.nwc --to sanafe --input data.npz -o out --set cost.word_cycles=0"
    code, out, err = command(f"{line} --sample 1 --json")
    assert (code, err) == (0, "")
    made = json.loads(out)
    assert made["to"] == "sanafe" and made["files"] == ["out/arch.yaml", "out/snn.yaml"]
    assert made["note"].startswith("SANA-FE neither wraps nor saturates")
    arch, network = (yaml.safe_load((folder / name).read_text()) for name in made["files"])
    assert arch["architecture"]["name"] == "tiny"
    assert {"fc1", "fc2"} < {group["name"] for group in network["network"]["groups"]}
    code, out, _ = command(line)
    assert (code, out.splitlines()[:2]) == (0, ["out/arch.yaml", "out/snn.yaml"])


def test_cli_export_refuses_in_one_sentence_and_writes_nothing(command, folder):
    for line, text in (
        ("export net.nwc --to sana -o out",
         "export: argument --to: unknown format 'sana'; choose one of: sanafe, nir, ranc, xylo"),
        ("export net.nir --to sanafe -o out", "net.nir: expected a .nwc program, as `nwcompile compile` makes it"),
        ("export net.nwc --to nir --input data.npz -o out",
         "--input: a NIR file holds the network alone, no samples and no chip"),
        ("export net.nwc --to nir --set cost.word_cycles=1 -o out",
         "--set: a NIR file holds the network alone, no samples and no chip"),
        ("export net.nwc --to nir --dt 1e-3 -o out",
         "--dt, --dialect and --neuron say how to read a .nir file; export reads a program"),
        ("export net.nwc --to sanafe --input data.npz --sample 3 -o out",
         "--sample 3: the file has samples 0..2"),
        ("export net.nwc --to sanafe -o out --set cost.word_cycles=0",
         "the network reads input 'in', and SANA-FE's file holds its spikes; give a sample with --input"),
        ("export net.nwc --to sanafe --input data.npz -o out --set cost.word_cycles=1",
         "tiny: cost.word_cycles: SANA-FE has no cost of a memory word; set it to 0"),
    ):  # fmt: skip
        code, out, err = command(line)
        assert (code, out, err) == (2, "", f"nwcompile: error: {text}\n")
        assert not (folder / "out").exists()


def test_cli_export_to_nir_takes_a_program_or_a_model_and_says_what_others_miss(command, folder):
    write(
        folder / "lava.net", [dense(np.ones((2, 4)), neuron={"type": b"CUBA", "iDecay": 0, "vDecay": 9, "vThMant": 1})]
    )
    code, out, err = command("export lava.net --to nir -o out")
    assert (code, err) == (0, "") and out.splitlines() == [
        "out/lava.nir",
        "",
        "other readers do not see rounded decays, 24-bit states (u wraps, v saturates), 1",
        "  step of delay of 'layer0'; from_nir reads it from the metadata",
    ]
    assert from_nir(folder / "out" / "lava.nir").hash == from_lava(folder / "lava.net").hash
    code, out, err = command("export net.nwc --to nir -o out --json")
    assert (code, err, json.loads(out)["files"]) == (0, "", ["out/net.nir"])
    assert from_nir(folder / "out" / "net.nir").hash == Program.load(folder / "net.nwc").network.hash
