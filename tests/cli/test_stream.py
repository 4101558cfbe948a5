"""`nwcompile simulate --stream`: text, .npy and .npz, files and standard input; figures, and what is refused."""

import io
import json
import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import nwcompile as nw
from nwcompile import nn
from nwcompile.cli import main
from tests.frontend.frameworks import framework
from tests.made.nets import dense_net
from tests.made.recordings import nmnist


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A program, the steps of a sample as three files, and the lines of its output."""
    at = tmp_path_factory.mktemp("stream")
    program = nw.compile(dense_net(4, 3, 2), nw.Chip.load("loihi1"))
    program.save(at / "net.nwc")
    x = (np.random.default_rng(0).random((150, 4)) < 0.4).astype(np.int8)
    np.save(at / "x.npy", x)
    np.savez_compressed(at / "x.npz", x=x[None])
    (at / "x.txt").write_text("".join(" ".join(map(str, np.flatnonzero(step))) + "\n" for step in x))
    output = nw.simulate(program, x[None]).output[0]
    lines = "".join(" ".join(map(str, np.flatnonzero(step))) + "\n" for step in output)
    return SimpleNamespace(at=at, x=x, run=nw.simulate(program, x[None], "cycle"), lines=lines)


def call(*words) -> int:
    return main(["simulate", *map(str, words)])


@pytest.mark.parametrize("name", ["x.txt", "x.npy", "x.npz"])
def test_stream_of_a_file_writes_the_output_of_the_run(folder, tmp_path, capsys, name):
    assert call(folder.at / "net.nwc", "--stream", folder.at / name, "-o", tmp_path / "out.txt", "--json") == 0
    assert (tmp_path / "out.txt").read_text() == folder.lines
    figures, run = json.loads(capsys.readouterr().out), folder.run
    assert figures["counters"] == {name: int(c.sum()) for name, c in run.counters.items()}
    assert figures["spikes"] == {name: int(s.sum()) for name, s in run.spikes.items()}
    assert (figures["n_steps"], figures["n_events"]) == (150, int(folder.x.sum()))


def test_stream_of_standard_input_goes_to_standard_output(folder, monkeypatch, capsys):
    text = (folder.at / "x.txt").read_text().removesuffix("\n")  # a last line without an end is a step
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert call(folder.at / "net.nwc", "--stream", "-", "-o", "-", "--model-dt", "1e-6") == 0
    out, err = capsys.readouterr()
    assert out == folder.lines
    assert err.startswith(f"a stream of 150 steps with {folder.x.sum()} events; backend cycle\n")
    assert "latency from input to output: mean" in err
    assert re.search(r"hardware step: mean [\d.]+ us \(fitted; .* % on Quartz MNIST\), longest\s+[\d.]+ us \(of", err)
    assert re.search(r"\nenergy of the cores: [\d. ]+ nJ \(fitted; .* % on Quartz MNIST\)\n", err)
    assert "most that the chip bears in real time: " in err


def test_stream_takes_values_and_says_where_a_line_is_wrong(folder, tmp_path, capsys):
    path = tmp_path / "in.txt"
    for text, said in (
        ("0 1\n\n2 x\n", "line 3: 'x' is no event; write the numbers of the input lines that spike in the step, "
         "like 3 17, or with a value, like 3:2"),
        ("0\n4\n", "line 2: there is no input line 4; the lines are 0..3"),
        ("0\n1:-2\n", "line 2: input 'in' has values -2..0, but "),
        ("0\n1:2.5\n", "line 2: '1:2.5' is no event; "),
        (b"\xff\n", "line 1: '\ufffd' is no event; "),
    ):  # fmt: skip
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        assert call(folder.at / "net.nwc", "--stream", path) == 2
        assert f"nwcompile: error[NW6004]: {path}: {said}" in capsys.readouterr().err
    path.write_text((folder.at / "x.txt").read_text() + "x\n0\n")
    assert call(folder.at / "net.nwc", "--stream", path, "-o", tmp_path / "out.txt") == 2
    assert ": line 151: " in capsys.readouterr().err
    assert (tmp_path / "out.txt").read_text().splitlines() == folder.lines.splitlines()[:-2]  # it is two steps deep
    path.write_text("0:1 2\n 1:1 \n")
    assert call(folder.at / "net.nwc", "--stream", path) == 0


def test_stream_refuses_what_it_cannot_read(folder, tmp_path, capsys):
    np.save(tmp_path / "flat.npy", folder.x[:, :3])
    np.save(tmp_path / "columns.npy", np.asfortranarray(folder.x))
    np.savez(tmp_path / "other.npz", z=folder.x)
    (tmp_path / "cut.npy").write_bytes((folder.at / "x.npy").read_bytes()[:-9])
    (tmp_path / "no.npy").write_text("hello")
    (tmp_path / "no.npz").write_text("hello")
    (tmp_path / "empty.txt").write_text("")
    for name, said in (
        ("flat.npy", "input 'in' of a stream must be [T, 4], steps of one sample, got [150, 3]"),
        (
            "columns.npy",
            "input 'in' is column by column (Fortran order); a stream is read from numbers, step after step",
        ),
        ("other.npz", "holds no array 'in'; store each input of the network by its name"),
        ("cut.npy", "is cut off; it has fewer steps than it says"),
        ("no.npy", "cannot be read: ValueError: "),
        ("no.npz", "cannot be read: BadZipFile: File is not a zip file"),
        ("none.txt", "cannot be read: No such file or directory"),
        ("empty.txt", "it holds no step"),
    ):
        assert call(folder.at / "net.nwc", "--stream", tmp_path / name) == 2
        assert f"{tmp_path / name}: {said}" in capsys.readouterr().err


def test_stream_does_not_go_with_flags_of_batches(folder, capsys):
    net, x = folder.at / "net.nwc", folder.at / "x.txt"
    assert call(net, "--stream", x, "--steps", "3", "--record", "all") == 2
    text = "--stream is one sample step by step, and does not go with --steps, --record"
    assert capsys.readouterr().err == f"nwcompile: error[NW1002]: {text}\n"
    assert call("toy:make", "--stream", x) == 2
    assert capsys.readouterr().err == "nwcompile: error[NW1002]: --stream runs a program; compile toy:make first\n"
    assert call(net, "--stream", x, "--model-dt", "0") == 2
    assert "--model-dt 0 must be a time in seconds above 0" in capsys.readouterr().err


def test_stream_without_standard_input_or_onto_its_own_file_is_refused(folder, tmp_path, monkeypatch, capsys):
    net, path = folder.at / "net.nwc", tmp_path / "x.txt"
    path.write_text("0 1\n")
    assert call(net, "--stream", path, "-o", f"{tmp_path}/../{tmp_path.name}/x.txt") == 2
    assert "x.txt: is the file that --stream reads; write the output to another one" in capsys.readouterr().err
    assert path.read_text() == "0 1\n"
    monkeypatch.setattr("sys.stdin", None)
    assert call(net, "--stream", "-") == 2
    assert "--stream -: there is no standard input to read from; give a file, or let a pipe" in capsys.readouterr().err


@pytest.mark.parametrize("name, layout", [("x.txt", "BT"), ("x.npy", "BT"), ("x.npz", "BT"), ("x.txt", "TB")])
def test_report_of_a_stream_is_that_of_one_sample(folder, tmp_path, capsys, name, layout):
    np.savez(tmp_path / "one.npz", x=np.expand_dims(folder.x, layout.index("B")))
    program, docs = nw.Program.load(folder.at / "net.nwc"), []
    replace(program, network=program.network.change_layout(layout, None)).save(tmp_path / "net.nwc")
    for flag, file in (("--stream", folder.at / name), ("--input", tmp_path / "one.npz")):
        assert main(["report", f"{tmp_path}/net.nwc", flag, f"{file}", "-o", f"{tmp_path}/{flag}", "--json"]) == 0
        docs.append(json.loads(capsys.readouterr().out))
    for key in ("time", "energy", "traffic"):
        assert docs[0][key] == docs[1][key]
    assert docs[0]["run"]["n_samples"] == 1
    assert (tmp_path / "--stream" / "report.html").is_file()


def test_report_of_a_stream_refuses_flags_of_batches_and_a_stream_without_a_step(folder, tmp_path, capsys):
    program, empty = str(folder.at / "net.nwc"), tmp_path / "empty.txt"
    empty.write_text("")
    for words, said in (
        (["--stream", "x.txt", "--input", "x.npz", "--samples", "3"],
         "--stream is one sample, and does not go with --input, --samples"),
        (["--stream", str(empty)], f"--stream {empty}: it holds no step"),
    ):  # fmt: skip
        assert main(["report", program, *words, "-o", str(tmp_path / "out")]) == 2
        assert said in capsys.readouterr().err


def test_reports_of_two_programs_are_compared_on_a_stream(folder, capsys):
    program = str(folder.at / "net.nwc")
    assert main(["report", "--diff", program, program, "--stream", str(folder.at / "x.txt"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["source"] == "measured"


def test_stream_that_is_interrupted_tells_of_the_steps_until_then(folder, monkeypatch, capsys):
    def given(*_):
        yield {"in": folder.x[:5]}
        raise KeyboardInterrupt

    monkeypatch.setattr("nwcompile.cli.simulate.read_steps", given)
    assert call(folder.at / "net.nwc", "--stream", "-") == 130
    out, err = capsys.readouterr()
    assert err == "nwcompile: interrupted after 5 steps\n"
    assert out.startswith("a stream of 5 steps with ")


def test_stream_of_an_event_file_is_the_run_of_its_bins(tmp_path, capsys):
    framework("tonic")
    rng = np.random.default_rng(0)
    time = np.sort(rng.integers(7, 90_000, 600))  # ends within a bin, and has bins without events
    time[time > 40_000] += 5_000
    events = np.stack([time, *(rng.integers(0, n, 600) for n in (4, 3, 2))], 1).tolist()
    (tmp_path / "a.bin").write_bytes(nmnist(events))
    synapses = nw.Dense("in", "out", rng.normal(0, 1, (5, 24)).astype(np.float32))
    network = nw.Network.from_arrays({"out": nw.NeuronSpec(threshold=2.0, beta=0.5)}, [synapses], {"in": (2, 3, 4)})
    program = nw.compile(network, nw.Chip.load("loihi1"))
    program.save(tmp_path / "net.nwc")
    binning = nn.data.Binning((4, 3, 2), bin_length=500, include_incomplete=True)
    x = binning(nn.data.read_events(tmp_path / "a.bin"))
    output = nw.simulate(program, x.reshape(1, -1, 2, 3, 4)).output[0]
    text = "".join(" ".join(map(str, np.flatnonzero(step))) + "\n" for step in output)
    stream = (tmp_path / "net.nwc", "--stream", tmp_path / "a.bin")
    assert call(*stream, "--model-dt", "500e-6", "-o", tmp_path / "out.txt") == 0
    assert (tmp_path / "out.txt").read_text() == text and len(x) > 128 and output.any()
    (tmp_path / "b.bin").write_bytes(nmnist([(123 * k, 1, 1, 1) for k in range(9)]))  # one in each step
    capsys.readouterr()
    assert call(tmp_path / "net.nwc", "--stream", tmp_path / "b.bin", "--model-dt", "123e-6", "--json") == 0
    figures = json.loads(capsys.readouterr().out)
    assert (figures["n_steps"], figures["n_events"]) == (9, 9)
    assert call(*stream) == 2
    assert f"--stream {tmp_path / 'a.bin'}: give --model-dt, the seconds of a step, into" in capsys.readouterr().err
    (tmp_path / "a.bin").write_bytes(nmnist([(3, 9, 0, 0)]))
    assert call(*stream, "--model-dt", "500e-6") == 2
    assert f"{tmp_path / 'a.bin'}: event 0 has x = 9, outside a sensor of 4x3x2" in capsys.readouterr().err
    (tmp_path / "a.bin").write_bytes(b"")
    assert call(*stream, "--model-dt", "500e-6") == 2
    assert f"{tmp_path / 'a.bin'}: holds no events" in capsys.readouterr().err


def test_stream_of_an_event_file_needs_one_input_of_pixels(folder, capsys):
    assert call(folder.at / "net.nwc", "--stream", folder.at / "a.aedat4", "--model-dt", "1e-3") == 2
    assert (
        "a.aedat4: a recording of events is for one input [polarities, height, width] or [height, width], and the "
        "program has in [4]"
    ) in capsys.readouterr().err
