"""The export for Xylo: its arrays, run by the vendor's simulator, give what the files say that the chip does."""

import io
import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

import nwcompile as nw
from nwcompile import cli
from nwcompile.errors import ChipError, ModelError
from nwcompile.report.export.xylo import xylo_files
from tests.frontend.frameworks import framework
from tests.long import EXAMPLES
from tests.made.pool_nets import HIDDEN, OUT, pool_net
from tests.made.xylo import Case, with_vendor


@cache
def deep() -> nw.Program:
    """Three hidden layers, of which the last is fed by inputs and the first by the last, too, and biases."""
    rng = np.random.default_rng(3)
    sizes = {"in": 7, "a": 20, "b": 15, "c": 12, "o": 4}
    ends = [("in", "a", 0), ("a", "b", 0), ("b", "c", 0), ("c", "o", 0), ("b", "b", 1), ("c", "a", 3)]
    edges = [
        nw.Dense(s, t, rng.normal(0.05, 0.4, (sizes[t], sizes[s])).astype(np.float32), delay=d) for s, t, d in ends
    ]
    layers = {name: (HIDDEN.replace(bias=rng.normal(0, 0.05, n)), (n,)) for name, n in sizes.items() if name in "abc"}
    network = nw.Network.from_arrays(layers | {"o": (OUT, (4,))}, edges, {"in": (7,)})
    x = (rng.random((6, 30, 7)) < 0.2).astype(np.int8)
    return nw.compile(network, "xylo_audio2", x)


def read(data: bytes) -> dict[str, np.ndarray]:
    return dict(np.load(io.BytesIO(data)))


def test_xylo_export_is_what_the_vendors_simulator_runs():
    program, rng = deep(), np.random.default_rng(5)
    files = {path.name: data for path, data in xylo_files(program, "it", {"in": rng.poisson(0.4, (40, 7))}).items()}
    spec, expected = (read(files[f"{name}.npz"]) for name in ("specification", "expected"))
    raster = np.load(io.BytesIO(files["raster.npy"]))
    n_hidden = len(spec["threshold"])
    assert spec["weights_in"].shape == (7, n_hidden) and spec["weights_in"].dtype == np.int8
    assert expected["sim_out_spikes"].any() and expected["sim_rec_spikes"].max() > 1
    assert "bias_hidden" in spec and differing(spec, raster, expected) == []
    assert b"No sum of these events depends on the order" in files["README.txt"]


def differing(spec: dict, raster: np.ndarray, expected: dict) -> list[str]:
    """The arrays of `expected` that the vendor's simulator does not give for a specification and its events."""
    case = Case({
        "version": np.array(2), "has_bias": np.array("bias_hidden" in spec), "x": raster,
        **{f"w_{group}": spec[f"weights_{group}"].reshape(*spec[f"weights_{group}"].shape[:2], 1)
           for group in ("in", "rec", "out")},
        **{f"shift_{group}": spec[f"weight_shift_{group}"] for group in ("in", "rec", "out")},
        **{name: spec[name] for name in ("threshold", "threshold_out", "dash_mem", "dash_mem_out")},
        "dash_syn": spec["dash_syn"][:, None], "dash_syn_out": spec["dash_syn_out"][:, None],
        "bias": spec.get("bias_hidden", np.zeros_like(spec["threshold"])),
        "bias_out": spec.get("bias_out", np.zeros_like(spec["threshold_out"])),
    })  # fmt: skip
    vendor = with_vendor(case)
    return [name for name, a in expected.items() if not np.array_equal(a, vendor.arrays[name].reshape(a.shape))]


def test_a_recurrent_net_of_sinabs_is_what_the_vendors_simulator_runs():
    """From the framework's own module, two hidden layers and decays that no shift gives, to the vendor's numbers."""
    layers, activation = framework("sinabs.layers"), framework("sinabs.activation")
    torch.manual_seed(1)

    def linear(n: int, m: int) -> torch.nn.Linear:
        return torch.nn.Linear(n, m, bias=False)

    inner = linear(30, 30)
    neurons = {"tau_mem": 10.0, "tau_syn": 4.0, "norm_input": False}
    module = torch.nn.Sequential(
        linear(6, 30), layers.LIFRecurrent(rec_connect=inner, **neurons), linear(30, 20), layers.LIF(**neurons),
        linear(20, 4), layers.LIF(spike_fn=activation.SingleSpike, **neurons),
    )  # fmt: skip
    with torch.no_grad():
        inner.weight.mul_(0.5)
    x = np.random.default_rng(0).poisson(0.5, (20, 40, 6)).astype(np.float32)
    network = nw.from_torch(module, x[:1])
    program = nw.compile(network, "xylo_imu", x, nw.Options(approximate="multi-spike"))
    (name,) = network.inputs
    files = {path.name: data for path, data in xylo_files(program, "it", {name: x[0].astype(np.int64)}).items()}
    spec, expected = (read(files[f"{key}.npz"]) for key in ("specification", "expected"))
    assert expected["sim_rec_spikes"].sum() > 300 and expected["sim_out_spikes"].any()
    assert differing(spec, np.load(io.BytesIO(files["raster.npy"])), expected) == []


def test_xylo_export_puts_what_inputs_feed_first_and_what_feeds_outputs_last():
    files = {path.name: data for path, data in xylo_files(deep(), "it").items()}
    places = json.loads(files["neurons.json"])
    assert places["hidden"]["a"] == [*range(20)] and places["hidden"]["c"] == [*range(35, 47)]
    assert places["inputs"] == {"in": [*range(7)]} and places["outputs"] == {"o": [*range(4)]}
    assert "raster.npy" not in files and b"give one with --input" in files["README.txt"]
    spec = read(files["specification.npz"])
    assert json.loads(files["specification.json"]) == {name: array.tolist() for name, array in spec.items()}


def test_xylo_export_puts_what_is_fed_and_read_where_both_rows_reach():
    """The tool of XyloIMU takes the first 128 columns of what comes in and the last 128 rows of what goes out."""
    program = nw.compile(pool_net(4, 60, 3, [("h", "b", 0), ("b", "h", 2)], b=(HIDDEN, 130)), "xylo_imu")
    files = {path.name: data for path, data in xylo_files(program, "it").items()}
    spec, places = read(files["specification.npz"]), json.loads(files["neurons.json"])["hidden"]
    assert spec["weights_in"].shape == (4, 128, 1) and spec["weights_out"].shape == (190, 3)
    assert places["h"] == [*range(62, 122)] and sorted(places["h"] + places["b"]) == [*range(190)]
    assert spec["weights_in"][:, places["h"]].all() and spec["weights_out"][places["h"]].all()
    assert not spec["weights_out"][:62].any()
    narrow = program.chip.replace({"core.max_output_sources": 59})
    with pytest.raises(ModelError) as error:
        xylo_files(replace(program, chip=narrow), "it")
    assert "outputs read them from number" in str(error.value)


@pytest.mark.parametrize("chip, axes", [("xylo_audio2", ()), ("xylo_audio3", (1,)), ("xylo_imu", (1,))])
def test_xylo_export_has_the_shapes_that_the_tool_of_each_chip_takes(chip, axes):
    """An axis of synaptic currents, but not on XyloAudio 2, whose tool reads a second current where there is one."""
    program = nw.compile(pool_net(4, 10, 3, [("h", "h", 1)]), chip)
    spec = read({path.name: data for path, data in xylo_files(program, "it").items()}["specification.npz"])
    shapes = {name: spec[name].shape for name in ("weights_in", "weights_rec", "weights_out", "weight_shift_in")}
    assert shapes == {"weights_in": (4, 10, *axes), "weights_rec": (10, 10, *axes), "weights_out": (10, 3),
                      "weight_shift_in": ()}  # fmt: skip


def test_xylo_export_refuses_other_chips_and_late_synapses():
    x = np.ones((1, 4, 6), np.int8)
    tiny = nw.compile(pool_net(6, 4, 2, hidden=OUT.replace(alpha=None), out=OUT.replace(alpha=None)), "tiny", x)
    with pytest.raises(ChipError) as error:
        xylo_files(tiny, "it")
    assert str(error.value).startswith("tiny: not a chip of the Xylo family, whose decays are shifts (state.decay)")
    late = nw.compile(pool_net(extra=[("h", "h", 3)]), nw.Chip.load("xylo_imu").replace({"neuron.delay_max_steps": 3}))
    with pytest.raises(ModelError) as error:
        xylo_files(late, "it")
    assert str(error.value) == (
        "connection 'h' -> 'h' acts 3 hardware steps after its spike; on a Xylo chip all act after one"
    )


def test_export_to_xylo_writes_its_files(tmp_path, capsys):
    deep().save(tmp_path / "net.nwc")
    np.savez(tmp_path / "x.npz", x=np.ones((1, 9, 7), np.int8))
    run = ["export", str(tmp_path / "net.nwc"), "--to", "xylo", "-o", str(tmp_path / "out"), "--input",
           str(tmp_path / "x.npz")]  # fmt: skip
    assert cli.main(run) == 0
    written = {path.name for path in Path(tmp_path / "out").iterdir()}
    assert written == {"specification.npz", "specification.json", "neurons.json", "raster.npy", "expected.npz",
                       "README.txt", "net.nwc", "sample.npz"}  # fmt: skip
    assert "no board was at hand" in " ".join(capsys.readouterr().out.split())


def test_verify_takes_what_a_pool_records(tmp_path, capsys):
    """Arrays as the vendor's tools name them, row 0 of which is the empty step before the sample."""
    x = np.random.default_rng(4).poisson(0.4, (1, 20, 7))
    deep().save(tmp_path / "net.nwc")
    np.savez(tmp_path / "x.npz", x=x)
    export = ["export", str(tmp_path / "net.nwc"), "--to", "xylo", "-o", str(tmp_path / "out"), "--input"]
    assert cli.main([*export, str(tmp_path / "x.npz")]) == 0
    arrays = dict(np.load(tmp_path / "out" / "expected.npz"))
    verify = ["verify", str(tmp_path / "out"), "--log", str(tmp_path / "log.npz")]

    def verified(*more: str, **arrays) -> tuple[int, str, str]:
        np.savez(tmp_path / "log.npz", **arrays)
        capsys.readouterr()
        code = cli.main([*verify, *more])
        out, err = capsys.readouterr()
        return code, out.replace("\n  ", " "), err  # wrapped lines are joined

    n_spikes = arrays["sim_rec_spikes"].sum() + arrays["sim_out_spikes"].sum()
    text = f"the log equals the program: {n_spikes} spikes, {21 * 51 * 3} numbers compared\n"
    assert verified(**arrays) == (0, text, "")
    assert verified(sim_out_spikes=arrays["sim_out_spikes"])[0] == 0
    places = json.loads((tmp_path / "out" / "neurons.json").read_text())
    v = arrays["sim_v"].copy()
    slot = places["hidden"]["b"][3]
    v[9, slot] += 1
    code, out, _ = verified(**arrays | {"sim_v": v})
    first = f"the log differs first at step 9 of layer b (tick 9), neuron 3 (core 0, slot {slot}): v is {v[9, slot]} in"
    assert code == 1 and out.startswith(first)
    n_early = sum(arrays[key].reshape(21, -1)[:6].sum() for key in ("sim_rec_spikes", "sim_out_spikes"))
    early = f"the log equals the program: {n_early} spikes, {6 * 51 * 3} numbers compared\n"
    assert verified("--steps", "5", **arrays)[:2] == (0, early)
    for wrong, shape in ((v[1:], "[20, 47]"), (v.T, "[47, 21]")):
        code, _, err = verified(sim_v=wrong)
        assert code == 2 and err.endswith(
            f"sim_v of shape {shape} must be [21, 47], an empty step, those of the sample, and neurons\n"
        )
    code, _, err = verified(sim_v=v, b=v)
    assert code == 2 and err.endswith(
        "log.npz: has sim_v beside b; give what the chip's tools record, or arrays by layer\n"
    )


def drawn(seed: int) -> tuple[nw.Network, int]:
    """Up to three hidden layers of up to 90 neurons, loops, late resets and biases, and the number of input lines."""
    rng = np.random.default_rng(seed)
    hidden = [f"h{i}" for i in range(rng.integers(1, 4))]
    sizes = {"in": int(rng.integers(1, 17))} | {name: int(rng.integers(1, 91)) for name in hidden} | {"o": 5}
    spec = nw.NeuronSpec(threshold=1.0, reset="subtract", strict=False, alpha=0.6, beta=0.85)
    layers = {
        name: (spec.replace(beta=float(rng.choice([0.5, 0.9])), bias=float(rng.choice([0, 0.04])),
                            reset_timing=str(rng.choice(["now", "next"]))), (n,))
        for name, n in sizes.items() if name != "in"
    }  # fmt: skip
    ends = [(a, b, 0) for a, b in zip(["in", *hidden], [*hidden, "o"], strict=True)]
    ends += [(hidden[-1], hidden[0], len(hidden))] if rng.random() < 0.5 else []
    edges = []
    for source, target, delay in ends:
        shape, share = (sizes[target], sizes[source]), min(1, 30 / sizes[target])
        weight = rng.normal(0.1, 1, shape) / np.sqrt(sizes[source] * share) * (rng.random(shape) < share)
        edges.append(nw.Dense(source, target, weight.astype(np.float32), delay=delay))
    return nw.Network.from_arrays(layers, edges, {"in": (sizes["in"],)}), sizes["in"]


def as_taken(spec: dict, chip: nw.Chip) -> dict:
    """The specification as the chip's tool takes it: the first neurons are fed, and the last are read."""
    n_first, n_last = chip.core.max_input_targets, chip.core.max_output_sources
    first, last = (spec[f"weights_{group}"].reshape(*spec[f"weights_{group}"].shape[:2]) for group in ("in", "out"))
    fed = np.zeros((len(first), len(last)), first.dtype)
    fed[:, : min(n_first, first.shape[1])] = first[:, :n_first]
    read_rows = np.where(np.arange(len(last))[:, None] >= len(last) - n_last, last, 0)
    return spec | {"weights_in": fed, "weights_out": read_rows}


@pytest.mark.long
@pytest.mark.parametrize("name", ["xylo_audio2", "xylo_audio3", "xylo_imu"])
def test_exports_of_drawn_networks_are_what_the_vendors_simulator_runs(name):
    """Every array is equal where no sum depends on the order of its spikes."""
    chip, n_equal, n = nw.Chip.load(name), 0, max(4, EXAMPLES // 12)
    for seed in range(n):
        network, n_lines = drawn(seed)
        x = np.random.default_rng(seed).poisson(0.4, (5, 25, n_lines)).clip(0, 15).astype(np.int8)
        try:
            program = nw.compile(network, chip, x, nw.Options(approximate="all"))
        except nw.FitError:
            continue  # wider than what inputs reach and outputs read
        files = {path.name: data for path, data in xylo_files(program, "it", {"in": x[0].astype(np.int64)}).items()}
        spec, expected = (read(files[f"{key}.npz"]) for key in ("specification", "expected"))
        if b"No sum of these events" in files["README.txt"]:
            assert differing(as_taken(spec, chip), np.load(io.BytesIO(files["raster.npy"])), expected) == [], seed
            n_equal += bool(expected["sim_rec_spikes"].any())
    assert n_equal > n // 2
