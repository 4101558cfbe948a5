"""One sentence for every wrong input, and nothing half-written."""

import io
import json
import pickle
import zipfile

import numpy as np
import pytest

from nwcompile.cli import VERBS
from nwcompile.ir.chip import Chip


def zip_of_text() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("x.txt", "hello")
    return buffer.getvalue()


@pytest.mark.parametrize(
    "line, text",
    [
        (
            "simulat net.nwc",
            f"unknown verb 'simulat'; choose one of: simulate, {', '.join(sorted({*VERBS} - {'simulate'}))}",
        ),
        ("chips shw", "chips: argument list|show|schema: unknown action 'shw'; choose one of: show, list, schema; "
         "`nwcompile chips show NAME` shows one chip"),
        ("chips show", f"chips show: give a name: {', '.join(Chip.names())}, or a .toml file"),
        (
            "chips show lohi1",
            f"unknown chip 'lohi1'; choose one of: loihi1, {', '.join(n for n in Chip.names() if n != 'loihi1')}, "
            "or give the path of a .toml file",
        ),
        ("chips list --jsn", "chips: unknown flag '--jsn'; choose one of: --json, --help, --set, -h"),
        (
            "chips tiny",
            "chips: argument list|show|schema: unknown action 'tiny'; choose one of: list, schema, show; "
            "`nwcompile chips show NAME` shows one chip",
        ),
        ("chips list tiny", "chips list: unexpected argument 'tiny'; `chips show tiny` shows one chip"),
        ("chips list --set noc.rows=3", "--set changes one chip; `chips show NAME --set KEY=VALUE` shows it"),
        ("chips show tiny x", "chips: unexpected argument 'x'"),
        ("chips show tiny --set noc.rows", "chips: argument --set: expected KEY=VALUE, got 'noc.rows'"),
        ("chips show tiny --set noc.row=3", "tiny: noc.row: unknown key (did you mean 'noc.rows'?)"),
        ("chips show tiny --set noc.rows=-3", "tiny: noc.rows: -3 must be above 0"),
        ("chips show tiny --set noc.rows=x", "tiny: noc.rows: expected a whole number, got 'x'"),
        ("show", "show: the following arguments are required: MODEL"),
        ("show net.nwc --core one", "show: argument --core: expected a whole number, got 'one'"),
        ("show net.nwc --core 2", "there is no core 2; the mapping uses cores 0..1"),
        ("show data.npz", "data.npz: expected a .nir, .net or .nwc file, package.module:factory, or demo"),
        ("compile net.onnx --chip tiny -o build",
         "net.onnx: an ONNX network has no spiking neurons; convert it in a factory that returns "
         "nw.convert(nw.load_onnx('net.onnx'), images, steps=32), and give package.module:factory"),
        ("show toy:make", "--chip is missing: name the chip to compile toy:make for (only a .nwc file has its own)"),
        ("check net.nwc --cores 3",
         "net.nwc is compiled already; give --calibration and the compiler's options to compile"),
        ("compile net.nwc --chip tiny -o build", "net.nwc is compiled already; compile its model again to change how"),
        ("report data.npz --steps 3 -o build", "data.npz: expected a .nwc program, as `nwcompile compile` makes it"),
        ("show none.nwc", "none.nwc cannot be read: No such file or directory"),
        ("simulate net.nwc", "no input: give --input X.npz, or --steps N to run without input"),
        (
            "simulate net.nwc --steps 3 --backend cyle",
            "simulate: argument --backend: unknown backend 'cyle'; choose one of: cycle, reference, sequence",
        ),
        (
            "simulate net.nwc --steps 3 --window hard",
            "simulate: argument --window: unknown window 'hard'; choose one of: hardware, aligned",
        ),
        ("simulate net.nwc --steps 0", "steps=0 must be a whole number from 1 to 2147483647"),
        ("simulate net.nwc --input none.npz", "none.npz: cannot be read: No such file or directory"),
        ("simulate net.nwc --input net.nwc", "net.nwc: expected a .npz or .npy file of shape [B, T, *shape]"),
        ("simulate net.nwc --input data.npz --samples 0", "--samples 0 must be 1 or more"),
        ("simulate net.nwc --steps 3 --samples 2", "--samples 2: there is no input to take samples of"),
        ("estimate toy:make --input data.npz --samples -1", "--samples -1 must be 1 or more"),
        ("estimate toy:make --samples 2", "--samples 2: there is no input to take samples of"),
        ("estimate toy:make --set noc.rows=2", "--set changes chips that are named; name them with --chips"),
        (
            "simulate net.nwc --steps 3 --set core.max_neurons=4",
            "--set core.max_neurons: this key is fixed when compiling; give it to `nwcompile compile`",
        ),
        ("simulate net.nwc --steps 3 --dt 1",
         "--dt, --dialect and --neuron say how to read a .nir file; net.nwc is a program"),
        ("simulate net.nwc --steps 3 -o .", "-o .: is a folder; give the name of a file in it"),
        ("simulate net.txt --steps 3", "net.txt: expected a .nir, .net or .nwc file, package.module:factory, or demo"),
        ("simulate :make --steps 3", ":make: expected a .nir, .net or .nwc file, package.module:factory, or demo"),
        ("simulate toy: --steps 3", "toy:: expected a .nir, .net or .nwc file, package.module:factory, or demo"),
        ("simulate my/toy.py:make --steps 3",
         "my/toy.py:make: give the module's name, not its file: my.toy:make"),
        ("simulate toy.py --steps 3", "toy.py: give the module's name, not its file: toy:factory"),
        ("simulate none.net --steps 3", "lava-dl file none.net: there is no such file"),
        ("simulate none.net --steps 3 --dt 1",
         "--dt and --dialect say how to read a .nir file; a .net file says it itself"),
        ("simulate none.nir --steps 3 --dt 0 --dialect nir",
         "dt=0.0 must be a number above 0, in the unit of the file's time constants"),
        (
            "simulate nowhere:make --steps 3",
            "nowhere:make: no module nowhere is in this folder, in PYTHONPATH or installed",
        ),
        ("evaluate net.nwc --steps 3", "no input: no labels; evaluate needs them under the key y of a .npz file"),
        (
            "evaluate net.nwc --input data.npz --chip tiny",
            "--chip: a .nwc program has its chip; change keys with --set, or compile the model again",
        ),
        ("evaluate net.nwc --input data.npz --dt 1",
         "--dt, --dialect and --neuron say how to read a .nir file; name it with --model"),
        ("evaluate net.nwc --input data.npz --seed 3",
         "net.nwc is compiled already; give --calibration and the compiler's options to compile"),
        ("evaluate toy:make --input data.npz --model toy:make",
         "--model: the float model of a .nwc program; toy:make is a model itself"),
        ("evaluate toy:make --input data.npz --device cuda",
         "without --chip only the float model runs, on the CPU; leave out the flags of a program"),
        ("report net.nwc --steps 3 -o build --model toy:make",
         "--model: its accuracy needs labels; give them under the key y of the file of --input"),
        ("report net.nwc --steps 3 -o build --neuron reset=zero",
         "--dt, --dialect and --neuron say how to read a .nir file; name it with --model"),
        ("compile toy:make --chp tiny -o build",
         "compile: unknown flag '--chp'; choose one of: --chip, --approximate, --bits, --calibration, "
         "--checkpoint, --cores, --dialect, --dt, --execution, --explain, --fixed-sites, --help, --input-layer, "
         "--json, --max-loss, --neuron, --on-multi-spike, --optimize, --output, --partitioner, --placer, --plan-only, "
         "--readout, --seed, --set, --stagger, --step-limit, --time-budget, -h, -o"),
        (
            "report net.nwc --steps 3 -o net.nwc",
            "-o net.nwc: net.nwc is not a folder; choose a folder you may write to",
        ),
    ],
)  # fmt: skip
def test_cli_wrong_usage_is_one_sentence(command, folder, line, text):
    code, out, err = command(line)
    assert (code, out) == (2, "")
    assert err.replace(f"{folder}/", "") == f"nwcompile: error: {text}\n"


def test_cli_json_error_is_json_too(command):
    code, out, err = command("chips show lohi1 --json")
    assert code == 2 and err.startswith("nwcompile: error: unknown chip")
    message = err.removeprefix("nwcompile: error: ").rstrip()
    assert json.loads(out) == {"error": "ChipError", "code": "NW4001", "message": message}


@pytest.mark.parametrize("verb", ["evaluate", "crosscheck"])
def test_cli_real_valued_input_needs_calibration_before_anything_is_compiled(command, model, folder, verb):
    np.savez("real.npz", x=np.full((3, 5, 6), 0.5, np.float32), y=np.arange(3))
    line = f"{verb} toy:make --chip tiny --input real.npz"
    assert command(line) == (
        2,
        "",
        "nwcompile: error: real.npz has real values, and without calibration samples toy:make is compiled for whole "
        "numbers; give such samples with --calibration, or --input-layer host\n",
    )
    assert command(f"{line} --calibration real.npz")[0] == 0


@pytest.mark.parametrize("damage", ["cut", "flip"])
def test_cli_damaged_program_is_refused(command, folder, damage):
    data = bytearray((folder / "net.nwc").read_bytes())
    if damage == "cut":
        del data[-100:]
    else:
        data[len(data) // 2] ^= 1
    (folder / "net.nwc").write_bytes(data)
    code, _, err = command("simulate net.nwc --steps 3")
    assert code == 2
    assert err == (
        "nwcompile: error: net.nwc: damaged or cut short (its SHA-256 does not match); compile the network again\n"
    )


@pytest.mark.parametrize(
    "array, text",
    [
        ({"x": np.zeros((3, 5, 7))}, "input 'in' must be [B, T, 6], got shape [3, 5, 7]"),
        ({"x": np.full((3, 5, 6), 0.5)}, "input 'in' has the value 0.5, but the integer program takes whole numbers; "
         "encode real values into spikes first (nwcompile.encode does), or compile the model with calibration "
         "samples of such values"),
        ({"x": np.full((3, 5, 6), np.nan)}, "input 'in' has NaN or infinite values; clean the data first"),
        ({"x": np.full((3, 5, 6), "a")}, "input 'in' of dtype <U1 must be numbers of shape [B, T, 6]"),
        ({"x": np.zeros(3)}, "bad.npz: x of shape [3] must be [B, T, *shape]"),
        ({"y": np.zeros(3)}, "bad.npz: holds no samples; store them under the key x, as [B, T, *shape]"),
        ({"x": np.zeros((3, 5, 6)), "y": np.zeros(2)}, "bad.npz: labels y of shape [2] must be [B], the number of a "
         "class for each sample of x [3, 5, 6] ([B, T, *shape])"),
        ({"out": np.zeros((3, 5, 6))}, "there is no input 'out'; inputs: in"),
        ({"x": np.array([object()])},
         "bad.npz: cannot be read: ValueError: Object arrays cannot be loaded when allow_pickle=False"),
    ],
)  # fmt: skip
def test_cli_unusable_data_is_one_sentence(command, folder, array, text):
    np.savez("bad.npz", **array)
    assert command("simulate net.nwc --input bad.npz") == (2, "", f"nwcompile: error: {text}\n")


@pytest.mark.parametrize(
    "name, content, text",
    [
        ("bad.npy", b"", "bad.npy: cannot be read: ValueError: neither written by numpy.savez nor by numpy.save"),
        ("bad.npz", pickle.dumps(3),
         "bad.npz: cannot be read: ValueError: neither written by numpy.savez nor by numpy.save"),
        ("bad.npz", zip_of_text(), "bad.npz: x.txt is not an array; write the file with numpy.savez"),
    ],
)  # fmt: skip
def test_cli_file_that_holds_no_arrays_is_one_sentence(command, folder, name, content, text):
    (folder / name).write_bytes(content)
    assert command(f"simulate net.nwc --input {name}") == (2, "", f"nwcompile: error: {text}\n")


@pytest.mark.parametrize(
    "labels, text",
    [
        ([0, 1, 4], "labels y are 0..4, but the output has 4 neurons, 0..3"),
        ([0, -1, 3], "labels y are -1..3, but the output has 4 neurons, 0..3"),
        ([0, 0.5, 3], "bad.npz: labels y must be whole numbers, each the index of an output neuron"),
        ([0, np.nan, 3], "bad.npz: labels y must be whole numbers, each the index of an output neuron"),
        (["a", "b", "c"], "bad.npz: labels y must be whole numbers, each the index of an output neuron"),
    ],
)
def test_cli_unusable_labels_are_one_sentence(command, folder, labels, text):
    np.savez("bad.npz", x=np.load("data.npz")["x"], y=np.array(labels))
    assert command("evaluate net.nwc --input bad.npz") == (2, "", f"nwcompile: error: {text}\n")


def test_cli_file_that_is_not_an_archive_is_refused(command, folder):
    (folder / "bad.npz").write_bytes(b"PK\x03\x04 not a zip")
    code, out, err = command("simulate net.nwc --input bad.npz")
    assert (code, out) == (2, "") and err.startswith("nwcompile: error: bad.npz: cannot be read: BadZipFile")


@pytest.mark.parametrize(
    "factory, text",
    [
        ("broken", "toy:broken: raised ZeroDivisionError: division by zero (toy.py, line 11)"),
        ("leaves", "toy:leaves: raised SystemExit: 3 (toy.py, line 14)"),
        ("mak", "toy:mak: there is no function 'mak' in toy; functions: make, broken, leaves, nothing"),
        ("nothing", "toy:nothing: gave NoneType, not a torch module, (module, example input), or a Network"),
        ("number", "toy:number: there is no function 'number' in toy; functions: broken, leaves, make, nothing"),
    ],
)
def test_cli_broken_factory_is_one_sentence(command, model, factory, text):
    assert command(f"simulate toy:{factory} --steps 3") == (2, "", f"nwcompile: error: {text}\n")


@pytest.mark.parametrize("flag", ["partitioner", "placer"])
@pytest.mark.parametrize(
    "spec, text",
    [
        ("toy:mak", "toy:mak: there is no function 'mak' in toy; functions: make, broken, leaves, nothing"),
        ("toys:make", "toys:make: no module toys is in this folder, in PYTHONPATH or installed"),
        ("toy:make", "toy:make: raised TypeError: make() takes 0 positional arguments but {n} were given"),
    ],
)
def test_cli_broken_method_is_one_sentence(command, model, flag, spec, text):
    text = text.format(n=4 if flag == "partitioner" else 5)
    code, out, err = command(f"compile toy:make --chip tiny --plan-only --{flag} {spec}")
    assert (code, out, err.splitlines()[-1]) == (2, "", f"nwcompile: error: {text}")
    code, out, err = command(f"estimate toy:make --chips tiny --{flag} {spec}")
    assert (code, out, err.splitlines()[-1]) == (2, "", f"nwcompile: error: {text}")
