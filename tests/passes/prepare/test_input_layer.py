"""Real-valued, static and signed input: every way that a chip can go, on three backends, against the framework."""

import re

import numpy as np
import pytest
import torch

import nwcompile as nw
from nwcompile.cost.energy import predict
from nwcompile.errors import ModelError, OptionError
from nwcompile.ir.manifest import HOST
from nwcompile.passes.stages.run import REAL_EXAMPLE
from nwcompile.report.host import host_text
from nwcompile.report.json.collect import collect_report
from nwcompile.report.text import format_verdict
from tests.frontend.frameworks import framework
from tests.made.nets import float_net

snn = framework("snntorch")
N_STEPS, CHIPS = 8, ("loihi1", "loihi2", "spinnaker2", "speck")
STEPS_FIRST = "[T, B, 6] (layout 'TB', as the network was imported: steps first, then samples)"
STATIC_OR_NOT = "[B, 6], the same in every step, or [B, T, 6] (layout 'B', as the network was imported)"
WITHOUT_NUMBERS = ("loihi1", "speck")  # Their messages carry no numbers.


class Static(torch.nn.Module):
    """snnTorch's fifth tutorial, smaller: one image, in every step of a loop inside, and dense leaky layers."""

    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = torch.nn.Linear(12, 16), torch.nn.Linear(16, 4)
        leak = {"beta": 0.75, "reset_mechanism": "zero", "reset_delay": False, "threshold": 0.5}
        self.lif1, self.lif2 = snn.Leaky(**leak), snn.Leaky(**leak)

    def forward(self, x):
        mem1, mem2, spikes = self.lif1.init_leaky(), self.lif2.init_leaky(), []
        for _ in range(N_STEPS):
            spk1, mem1 = self.lif1(self.fc1(x), mem1)
            spk2, mem2 = self.lif2(self.fc2(spk1), mem2)
            spikes.append(spk2)
        return torch.stack(spikes)


class Regression(torch.nn.Module):
    """snnTorch's regression, smaller: another real number in every step, recurrent leaky neurons, a dense readout."""

    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = torch.nn.Linear(1, 10), torch.nn.Linear(10, 1)
        self.rlif = snn.RLeaky(beta=0.75, linear_features=10, reset_mechanism="zero", reset_delay=False, threshold=0.3)

    def forward(self, x):
        spk, mem = self.rlif.init_rleaky()
        outputs = []
        for step in x:
            spk, mem = self.rlif(self.fc1(step), spk, mem)
            outputs.append(self.fc2(spk))
        return torch.stack(outputs)


def static():
    torch.manual_seed(3)
    module, x = Static(), torch.rand(5, 12)
    return module, nw.from_torch(module, x[:2], layout="B"), x


def regression():
    torch.manual_seed(4)
    module, x = Regression(), torch.randn(N_STEPS, 5, 1) + 0.5
    return module, nw.from_torch(module, x[:, :2], layout="TB"), x


def runs_alike(program, x) -> nw.Run:
    """All backends give the same; the run of the reference."""
    assert nw.crosscheck(program, x).agree
    return nw.simulate(program, x)


@pytest.mark.parametrize("way", ["bias", "graded", "host", None])
@pytest.mark.parametrize("chip", CHIPS)
def test_a_static_image_comes_to_a_chip_in_every_way(chip, way, tmp_path):
    module, network, x = static()
    if way == "graded" and chip in WITHOUT_NUMBERS:
        with pytest.raises(ModelError, match=f"graded: messages of {chip} carry no numbers"):
            nw.compile(network, chip, x, nw.Options(input_layer=way))
        return
    program = nw.compile(network, chip, x, nw.Options(input_layer=way))
    run, wanted = runs_alike(program, x), nw.simulate(network, x)
    assert program.host.way == (way or "bias") and "\n  input: " in repr(program)
    assert wanted.output.any() and run.output.shape == (5, N_STEPS, 4)
    labels = {row["label"] for row in program.manifest["legalization"]}
    assert HOST in labels
    if way == "host":
        with torch.no_grad():
            mem, spikes = module.lif1.init_leaky(), []
            for _ in range(N_STEPS):
                spk, mem = module.lif1(module.fc1(x), mem)
                spikes.append(spk)
        np.testing.assert_array_equal(run.spikes["lif1"], torch.stack(spikes, 1).numpy())
        assert run.host.n_macs == 5 * N_STEPS * 12 * 16 and run.host.layers == ("lif1",)
    elif way != "graded":
        assert (run.spikes["lif1"] != wanted.spikes["lif1"]).mean() < 0.02
        assert run.host.n_macs == 5 * 12 * 16 and 0 < run.host.n_writes <= 5 * 16 and run.host.n_clipped == 0
    program.save(tmp_path / "net.nwc")
    again = nw.Program.load(tmp_path / "net.nwc")
    assert again.hash == program.hash and (again.network.layout, again.network.n_steps) == ("B", N_STEPS)
    in_every_step = np.repeat(x.numpy()[:, None], N_STEPS, 1)
    for name, spikes in nw.simulate(again, in_every_step, "sequence").spikes.items():
        np.testing.assert_array_equal(spikes, run.spikes[name])


@pytest.mark.parametrize("way", ["bias", "graded", "host", None])
@pytest.mark.parametrize("chip", ["loihi2", "spinnaker2"])
def test_real_numbers_in_every_step_come_to_a_recurrent_layer(chip, way):
    module, network, x = regression()
    program = nw.compile(network, chip, x, nw.Options(input_layer=way))
    run, wanted = runs_alike(program, x), nw.simulate(network, x)
    with torch.no_grad():
        expected = module(x).transpose(0, 1).numpy()
    np.testing.assert_allclose(wanted.output, expected, atol=1e-5)
    assert program.host.way == (way or "bias") and program.network.layout == "TB"
    if way == "host":
        np.testing.assert_array_equal(run.spikes["rlif"], wanted.spikes["rlif"])
        assert not collect_report(program, nw.simulate(program, x, "cycle"))["host"]["lands"]
    elif way != "graded":
        assert run.host.n_writes > 5 * 10 and (run.spikes["rlif"] != wanted.spikes["rlif"]).mean() < 0.05


@pytest.mark.long
def test_a_convolutional_net_of_spikingjelly_takes_static_images():
    functional, layer, neuron = (
        framework(f"spikingjelly.activation_based.{part}") for part in ("functional", "layer", "neuron")
    )
    torch.manual_seed(5)

    class Csnn(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = torch.nn.Sequential(
                layer.Conv2d(1, 4, 3, padding=1, bias=False), layer.BatchNorm2d(4), neuron.IFNode(), layer.MaxPool2d(2)
            )
            self.fc = torch.nn.Sequential(layer.Flatten(), layer.Linear(64, 5, bias=False), neuron.IFNode())
            functional.set_step_mode(self, "m")

        def forward(self, x):
            return self.fc(self.conv(x.unsqueeze(0).repeat(N_STEPS, 1, 1, 1, 1))).mean(0)

    module, x = Csnn().eval(), torch.rand(3, 1, 8, 8) * 3
    network = nw.from_torch(module, x, layout="B")
    functional.reset_net(module)
    with torch.no_grad():
        expected = module(x).numpy()
    for chip in ("loihi1", "loihi2", "spinnaker2"):
        for way in ("bias", "host"):
            program = nw.compile(network, chip, x, nw.Options(input_layer=way))
            run = runs_alike(program, x)
            if way == "host":
                first = network.layers[0]
                np.testing.assert_array_equal(run.spikes[first], nw.simulate(network, x).spikes[first])
            assert np.abs(run.output.mean(1) - expected).max() <= 2 / N_STEPS


def integrators(shape=(6,)) -> nw.Network:
    rng = np.random.default_rng(1)
    weight = rng.integers(-3, 4, (8, int(np.prod(shape)))).astype(np.float32)
    spec = nw.NeuronSpec(threshold=4.0, beta=0.75)
    behind = np.repeat(weight[:, :1], 8, 1)
    edges = [nw.Dense("in", "a", weight), nw.Dense("a", "b", behind)]
    return nw.Network.from_arrays({"a": spec, "b": spec}, edges, {"in": shape})


@pytest.mark.parametrize("chip", ["loihi1", "speck"])
def test_signed_spikes_come_on_two_lines_where_messages_have_no_sign(chip):
    network, x = integrators(), np.random.default_rng(2).integers(-1, 2, (4, 9, 6))
    program = nw.compile(network, chip, x)
    run = runs_alike(program, x)
    assert tuple(program.network.inputs) == ("in/positive", "in/negative") and program.host.way == "exact"
    np.testing.assert_array_equal(run.spikes["a"], nw.simulate(network, x).spikes["a"])
    assert run.host.n_macs == 0 and run.spikes["a"].any()
    with pytest.raises(ModelError) as error:
        nw.simulate(program, x * 0.5)
    assert "takes whole numbers" in str(error.value)


@pytest.mark.parametrize("example, is_real", [(np.full((2, 3, 6), 0.5, np.float32), True), (np.ones((2, 3, 6)), False)])
def test_a_model_of_real_valued_input_is_not_made_one_of_spikes_in_silence(example, is_real):
    lif = nw.nn.LIFLayer(4, taus=20e-3, thresholds=1.0, reset_mechanism="zero", dt=1e-3)
    network = nw.from_torch(torch.nn.Sequential(torch.nn.Linear(6, 4), lif), example)
    assert (REAL_EXAMPLE in nw.compile(network, "loihi1").warnings) == is_real
    assert REAL_EXAMPLE not in nw.compile(network, "loihi1", example).warnings
    assert REAL_EXAMPLE not in nw.compile(network, "loihi1", options=nw.Options(input_layer="exact")).warnings


def test_signed_spikes_stay_as_they_are_where_messages_carry_a_sign():
    network, x = integrators(), np.random.default_rng(2).integers(-1, 2, (4, 9, 6))
    program = nw.compile(network, "loihi2", x)
    assert program.host is None
    np.testing.assert_array_equal(runs_alike(program, x).spikes["a"], nw.simulate(network, x).spikes["a"])


def test_registers_run_alike_in_every_window_execution_and_record():
    _, network, x = regression()
    for options in (nw.Options(), nw.Options(execution="phased")):
        program = nw.compile(network, "spinnaker2", x, options)
        run = runs_alike(program, x)
        assert nw.crosscheck(program, x, window="hardware").agree
        totals = nw.simulate(program, x, "cycle", record="totals")
        np.testing.assert_array_equal(totals.spikes["rlif"][:, 0], run.spikes["rlif"].sum(1))
        assert not any(name.endswith("/bias") for name in run.activity.counts)


def test_registers_hold_larger_numbers_than_messages_do():
    network, x = float_net(6, 20, 4), np.random.default_rng(0).random((2, 1, 6)).astype(np.float32).repeat(8, 1)
    program = nw.compile(network, "spinnaker2_48", x, nw.Options(input_layer="bias"))
    assert program.host.gives["fc1/bias"].high > 2**24
    run, wanted = runs_alike(program, x), nw.simulate(network, x)
    np.testing.assert_array_equal(run.spikes["fc1"], wanted.spikes["fc1"])


@pytest.mark.parametrize("field", ["gain", "w_in", "bias"])
def test_the_register_of_one_neuron_takes_its_parameters_as_arrays_or_numbers(field):
    edges = [nw.Dense("in", "a", np.full((1, 3), 0.5, np.float32))]
    x = np.random.default_rng(0).random((2, 9, 3)).astype(np.float32)
    given = set()
    for value in (1.125, np.array([1.125])):
        spec = nw.NeuronSpec(beta=0.75, alpha=0.5, **{field: value})
        network = nw.Network.from_arrays({"a": (spec, (1,))}, edges, {"in": (3,)})
        program = nw.compile(network, "spinnaker2", x, nw.Options(input_layer="bias"))
        runs_alike(program, x)
        given.add(str(program.host.gives))
    assert len(given) == 1


def test_a_maximum_before_the_first_layer_runs_on_the_host():
    spec = nw.NeuronSpec(threshold=1.0, beta=0.75)
    kernel = np.random.default_rng(3).normal(size=(2, 1, 3, 3)).astype(np.float32)
    edges = [
        nw.Conv2d("in", "sum", kernel, padding=1),
        nw.MaxPool2d("sum", "a", kernel=2),
        nw.Dense("a", "b", np.random.default_rng(4).normal(size=(5, 18)).astype(np.float32)),
    ]
    network = nw.Network.from_arrays(
        {"sum": (None, (2, 6, 6)), "a": (spec, (2, 3, 3)), "b": spec}, edges, {"in": (1, 6, 6)}
    )
    x = (np.random.default_rng(5).random((3, 7, 1, 6, 6)) < 0.4).astype(np.float32)
    wanted = nw.simulate(network, x).spikes
    for way in ("bias", "host"):
        run = runs_alike(nw.compile(network, "loihi2", x, nw.Options(input_layer=way)), x)
        assert (run.spikes["a"] != wanted["a"]).mean() < 0.02 and wanted["a"].any()
    assert nw.compile(network, "loihi2", x).host.way == "bias"


@pytest.mark.parametrize(
    ("chip", "keys", "way", "text"),
    [
        ("loihi1", {}, "exact", "exact: its values are not whole numbers"),
        ("loihi1", {}, "graded", "graded: messages of loihi1 carry no numbers (neuron.spikes)"),
        (
            "speck",
            {},
            "bias",
            "bias: it changes from step to step, and speck writes biases once (neuron.bias_per_step)",
        ),
        ("loihi1", {"neuron.bias": False}, "bias", "bias: neurons of loihi1 have no bias"),
    ],
)
def test_a_closed_way_says_why(chip, keys, way, text):
    x = np.random.default_rng(0).normal(size=(3, 6, 6)).astype(np.float32)
    with pytest.raises(ModelError) as error:
        nw.compile(integrators(), nw.Chip.load(chip).replace(keys), x, nw.Options(input_layer=way))
    low, high = float(x.min()), float(x.max())
    assert str(error.value) == f"input with values {low:g}..{high:g} cannot come to {chip}: {text}"


def test_what_no_way_serves_names_all_of_them():
    network = nw.Network.from_arrays(
        {"a": nw.NeuronSpec(threshold=1.0)}, [nw.Dense("in", "a", np.eye(3, dtype=np.float32))], {"in": 3}
    )
    x = np.linspace(0, 1, 2 * 4 * 3).reshape(2, 4, 3)
    with pytest.raises(ModelError) as error:
        nw.compile(network, "speck", x)
    assert str(error.value) == (
        "input with values 0..1 cannot come to speck: exact: its values are not whole numbers; bias: it changes from "
        "step to step, and speck writes biases once (neuron.bias_per_step); graded: messages of speck carry no numbers "
        "(neuron.spikes); host: no layer would be left for the chip"
    )


@pytest.mark.parametrize("way", ["bias", "graded"])
def test_ways_that_choose_a_scale_need_samples(way):
    with pytest.raises(OptionError) as error:
        nw.compile(integrators(), "loihi2", None, nw.Options(input_layer=way))
    assert str(error.value) == (
        f"input_layer={way!r} chooses its scale on calibration samples; give some of what the chip will get"
    )


def of_layers(edges: dict[tuple[str, str], int], **inputs: int) -> nw.Network:
    """Layers of 3 neurons with a bias, and connections {(source, target): delay} between them and these inputs."""
    sizes = {**dict.fromkeys(("a", "b", "c"), 3), **inputs}
    connections = [
        nw.Dense(source, target, np.full((3, sizes[source]), 0.7, np.float32), delay=delay)
        for (source, target), delay in edges.items()
    ]
    layers = {name: (nw.NeuronSpec(threshold=1.0, beta=0.5, bias=0.6), (3,)) for name in ("a", "b", "c")}
    return nw.Network.from_arrays(layers, connections, inputs)


@pytest.mark.parametrize("way", ["bias", "graded", "host"])
@pytest.mark.parametrize("inputs", [{}, {"idle": 2}])
def test_a_network_whose_inputs_feed_nothing_has_none_to_serve(inputs, way):
    network = of_layers({("a", "b"): 0, ("b", "c"): 0}, **inputs)
    with pytest.raises(OptionError) as error:
        nw.compile(network, "loihi2", None, nw.Options(input_layer=way))
    assert str(error.value) == (
        f"no input of the network feeds a layer, so input_layer={way!r} has no effect; leave it out"
    )
    assert nw.crosscheck(nw.compile(network, "loihi2"), None, steps=5).agree


@pytest.mark.parametrize(
    "way, text",
    [
        ("bias", "junction 'j' feeds no layer, so a chip cannot show it"),
        ("graded", "junction 'j' feeds no layer, so a chip cannot show it"),
        ("host", "host: no layer would be left for the chip"),
        (None, "input 'real' has the value 0.5, but the integer program takes whole numbers"),
    ],
)
def test_real_numbers_into_a_junction_that_feeds_no_layer_are_refused(way, text):
    edges = [nw.Dense(source, target, np.eye(3, dtype=np.float32)) for source, target in (("in", "a"), ("real", "j"))]
    layers = {"a": (nw.NeuronSpec(), (3,)), "j": (None, (3,))}
    x = {"in": np.ones((1, 2, 3)), "real": np.full((1, 2, 3), 0.5)}
    network = nw.Network.from_arrays(layers, edges, {"in": 3, "real": 3})
    with pytest.raises(ModelError, match=text):
        nw.compile(network, "loihi2", x, nw.Options(input_layer=way))


@pytest.mark.parametrize(
    "edges, reason",
    [
        (
            {("in", "a"): 0, ("in", "b"): 0, ("b", "c"): 0},
            "output layer 'a' reads the input, so it would not be on the chip",
        ),
        ({("in", "a"): 0, ("a", "b"): 0, ("b", "a"): 3}, "the layers left for the chip would get no input"),
    ],
)
def test_the_host_takes_no_layer_that_the_chip_hears_nothing_of(edges, reason):
    with pytest.raises(ModelError) as error:
        nw.compile(of_layers(edges, **{"in": 4}), "loihi2", None, nw.Options(input_layer="host"))
    assert str(error.value) == f"input cannot come to loihi2: host: {reason}"


def test_totals_of_layers_on_the_host_count_spikes_of_either_sign():
    spec, edges = nw.NeuronSpec(spikes="bipolar"), {("in", "a"): 0, ("a", "b"): 0}
    edges = [nw.Dense(*ends, 2 * np.eye(2, dtype=np.float32)) for ends in edges]
    network = nw.Network.from_arrays({"a": (spec, (2,)), "b": (nw.NeuronSpec(), (2,))}, edges, {"in": (2,)})
    x = np.array([[[1.5, -1.5], [-1.5, 1.5], [1.5, 0]]], np.float32)
    options = nw.Options(input_layer="host", on_multi_spike="graded")
    program = nw.compile(network, "loihi2", x, options)
    assert program.host.layers == ("a",)
    whole, totals = (nw.simulate(program, x, "cycle", record=record) for record in ("spikes", "totals"))
    assert whole.spikes["a"].min() == -1
    assert np.array_equal(totals.spikes["a"], np.abs(whole.spikes["a"]).sum(1, keepdims=True))


def test_the_host_sends_no_count_that_a_message_cannot_hold():
    spec = nw.NeuronSpec(threshold=2.0**-10, spikes="multi", reset="subtract")
    edges = [nw.Dense(a, b, np.ones((1, 1), np.float32)) for a, b in (("in", "a"), ("a", "b"))]
    network = nw.Network.from_arrays({"a": (spec, (1,)), "b": (nw.NeuronSpec(), (1,))}, edges, {"in": (1,)})
    with pytest.raises(ModelError) as error:
        nw.compile(network, "loihi2", np.full((1, 2, 1), 2.0**21), nw.Options(input_layer="host"))
    assert str(error.value) == f"input 'a' has values up to {2**31}; the limit is {2**23 - 1}"


@pytest.mark.parametrize(
    "way, chip", [("bias", "loihi1"), ("bias", "speck"), ("graded", "loihi2"), ("host", "loihi2"), (None, "loihi2")]
)
def test_an_input_that_feeds_nothing_may_have_any_values(way, chip, tmp_path):
    network = of_layers({("in", "a"): 0, ("a", "b"): 0, ("c", "b"): 0}, **{"in": 4, "idle": 2})
    rng = np.random.default_rng(1)
    x = {"in": rng.random((2, 1, 4)).repeat(6, 1), "idle": rng.normal(size=(2, 6, 2)).astype(np.float32)}
    program = nw.compile(network, chip, x, nw.Options(input_layer=way))
    program.save(tmp_path / "net.nwc")
    run, other = runs_alike(program, x), {"in": x["in"], "idle": 9 * x["idle"]}
    for name, spikes in nw.simulate(nw.Program.load(tmp_path / "net.nwc"), other).spikes.items():
        np.testing.assert_array_equal(spikes, run.spikes[name])
    assert program.host.way == (way or "bias")


def test_a_program_that_writes_biases_once_refuses_input_that_changes():
    _, network, x = static()
    program = nw.compile(network, "speck", x)
    changing = np.random.default_rng(0).random((2, N_STEPS, 12))
    with pytest.raises(ModelError) as error:
        nw.simulate(program, changing)
    assert str(error.value) == (
        "the input changes from step to step, but this program writes its neurons' biases once for a sample; give the "
        "same input in all steps, or compile with input_layer='host'"
    )


@pytest.mark.parametrize(
    ("layout", "shape", "text"),
    [
        ("TB", (4, 6), f"{STEPS_FIRST}, got shape [4, 6] (is the time axis missing?)"),
        ("B", (4, 5), f"{STATIC_OR_NOT}, got shape [4, 5]"),
        ("B", (0, 6), f"{STATIC_OR_NOT}, got shape [0, 6] (give a sample or more)"),
    ],
)
def test_a_wrong_shape_is_told_with_the_layout(layout, shape, text):
    network = integrators().change_layout(layout, 4 if layout == "B" else None)
    with pytest.raises(ModelError) as error:
        nw.simulate(network, np.zeros(shape))
    assert str(error.value) == f"input 'in' must be {text}"


def test_a_static_sample_needs_a_number_of_steps():
    network = integrators().change_layout("B")
    with pytest.raises(ModelError) as error:
        nw.simulate(network, np.zeros((2, 6)))
    assert str(error.value) == (
        "input 'in' of shape [2, 6] is the same in every step, and nothing says how many steps there are; give steps=N"
    )
    assert nw.simulate(network, np.zeros((2, 6)), steps=3).output.shape == (2, 3, 8)


@pytest.mark.parametrize(("way", "once"), [("bias", ", done once per sample"), ("host", "")])
def test_figures_of_the_host_are_the_same_before_and_after_simulation(way, once):
    """The image stays, so the linear map is computed once a sample; its layer of leaky neurons in every step."""
    _, network, x = static()
    program = nw.compile(network, "loihi1", x, nw.Options(input_layer=way))
    predicted, measured = (
        collect_report(program, run)["host"] for run in (predict(program), nw.simulate(program, x, "cycle"))
    )
    of_runs = ("macs_once", "writes_per_step", "clipped")
    assert {k: v for k, v in predicted.items() if k not in of_runs} == {
        k: v for k, v in measured.items() if k not in of_runs
    }
    assert predicted["macs_per_step"] == program.host.macs == 12 * 16 and "192 mult" in program.host.summary
    assert measured["macs_once"] == (once != "")
    assert host_text(measured).startswith(f"host ({way}): 192 MACs per step{once}, ")
    assert re.match(rf"host \({way}\): 192 MACs per step[,;] (?!done)", host_text(predicted))


def test_the_report_states_the_work_of_the_host():
    _, network, x = static()
    program = nw.compile(network, "loihi1", x, nw.Options(input_layer="host"))
    run = nw.simulate(program, x, "cycle")
    doc = collect_report(program, run)
    host = doc["host"]
    on_chip = sum(run.counters[f"synops_{kind}"].sum() for kind in ("dense", "sparse", "conv")) / len(x)
    share = 100 * on_chip / (on_chip + 12 * 16 * N_STEPS)
    assert host["synops_on_chip_percent"] == pytest.approx(share) and 0 < share < 50
    assert host["macs_per_step"] == 12 * 16 and host["layers"] == ["lif1"] and host["lands"]
    assert host["neurons_on_chip_percent"] == 20.0 and host["messages_per_step"] > 0
    said = dict(doc["verdict_rows"])["host"]
    assert "host (host): 192 MACs per step" in said and "on the chip 20.0 % of the neurons" in said
    assert "not landed (all spiking layers on the host)" in format_verdict(doc | {"host": host | {"lands": False}})


@pytest.mark.parametrize("way", ["bias", "host"])
def test_quantize_aware_trains_the_chips_layers_and_the_maps_of_the_host(way):
    from nwcompile import nn

    module, _, x = static()
    net = nn.quantize_aware(module, "loihi1", x, layout="B", input_layer=way)
    optimizer = torch.optim.Adam(net.parameters(), 1e-2)
    before = {name: p.detach().clone() for name, p in net.named_parameters()}
    for _ in range(3):
        loss = (net(x).sum(1) - torch.arange(4.0)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    changed = {name for name, p in net.named_parameters() if (p != before[name]).any()}
    assert changed == before.keys()  # the first layer, where the host computes all of it, is no parameter
    assert ("host.weights.0" in changed) == (way == "bias") and net.layers[-1].weights[0].requires_grad
    program, recorded = nw.compile(net.network(), "loihi1", x), net.record(x)
    run = nw.simulate(program, x, record="all")
    for name, states in recorded.items():
        np.testing.assert_array_equal(states["spikes"], run.spikes[name])
        np.testing.assert_array_equal(states["v"], run.states[name]["v"])
    assert nw.crosscheck(program, x).agree and program.host.way == way


def factory():
    """What the command line compiles: a module, an example, and the layout of both."""
    module, _, x = static()
    return module, x, "B"


def test_the_command_line_takes_samples_in_the_layout_of_the_network(tmp_path, capsys):
    from nwcompile.cli import main

    _, network, x = static()
    data, folder = tmp_path / "data.npz", tmp_path / "out"
    np.savez(data, x=x.numpy(), y=np.arange(5) % 4)
    model = f"{__name__}:factory"
    assert main(["compile", model, "--chip", "loihi1", "--calibration", str(data), "-o", str(folder)]) == 0
    printed = capsys.readouterr()
    assert "host (bias): " in printed.out and "input: the host computes the linear map into lif1" in printed.err
    assert main(["simulate", str(folder / "net.nwc"), "--input", str(data), "--samples", "3"]) == 0
    assert capsys.readouterr().out.startswith(f"3 samples, {N_STEPS} steps")
    chip = ["--chip", "loihi1", "--calibration", str(data), "--input", str(data), "--input-layer", "host"]
    assert main(["evaluate", model, *chip]) == 0
    assert main(["crosscheck", model, *chip, "--against", "reference,sequence,float"]) == 0
    assert "lif1" in capsys.readouterr().out and network.layout == "B"


def test_real_valued_input_of_neuron_programs_comes_in_messages():
    weight = np.random.default_rng(1).normal(size=(5, 6)).astype(np.float32)

    @nw.neuron
    def rising(state, x):
        v = 0.9 * state.v + x
        fired = (v > 1.0 + state.a).float()
        return {"v": v * (1 - fired), "a": 0.8 * state.a + 0.2 * fired}, fired

    network = nw.Network.from_arrays({"a": rising.program()}, [nw.Dense("in", "a", weight)], {"in": 6})
    x = np.random.default_rng(0).normal(size=(4, 12, 6)).astype(np.float32)
    program = nw.compile(network, "loihi2", x)
    assert program.host.way == "graded"
    wanted, run = nw.simulate(network, x).spikes["a"], runs_alike(program, x).spikes["a"]
    assert wanted.any() and (run != wanted).mean() < 0.02
    with pytest.raises(ModelError, match="bias: the neurons of 'a' are programs, which have no bias register$"):
        nw.compile(network, "loihi2", x, nw.Options(input_layer="bias"))
