"""to_nir: nir reads the file, from_nir reads the very network; what other readers miss is said."""

import json
import warnings
from dataclasses import replace

import h5py
import nir
import numpy as np
import pytest
import torch
from hypothesis import given

import nwcompile as nw
from nwcompile.errors import ModelError, NwError, NwWarning
from nwcompile.frontend.nir import from_nir, nearest
from nwcompile.frontend.nir.write import render_nir, to_nir
from nwcompile.ir.connection import Conv2d, Dense, Scale, Sparse
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import NeuronSpec
from nwcompile.sim import simulate
from tests.made.float_networks import networks
from tests.made.nets import dense_net
from tests.made.nir_files import CASES, imported, options


@given(networks())
def test_any_float_network_survives(tmp_path_factory, network):
    path = tmp_path_factory.getbasetemp() / "any.nir"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NwWarning)
        to_nir(network, path)
    graph = nir.read(path)
    assert from_nir(path).hash == from_nir(graph).hash == network.hash


def test_scale_of_a_shape_survives_behind_a_layer_that_is_flat_in_the_file(tmp_path):
    weight, scale = np.eye(24, dtype=np.float32), np.arange(24, dtype=np.float32).reshape(2, 4, 3)
    layers = dict.fromkeys("ab", (LEAKY, (2, 4, 3)))
    net = Network.from_arrays(layers, [Dense("x", "a", weight), Scale("a", "b", scale=scale)], {"x": 24})
    to_nir(net, tmp_path / "net.nir")
    assert from_nir(tmp_path / "net.nir").hash == net.hash


LEAKY = NeuronSpec(beta=0.9, reset="zero")
W = np.arange(6, dtype=np.float32).reshape(3, 2) / 4


def network(spec: NeuronSpec = LEAKY, *more, **fields) -> Network:
    """Input `x` of 2 lines, a Dense to `fc` of 3 neurons."""
    return Network.from_arrays({"fc": (spec, (3,))}, [Dense("x", "fc", W, **fields), *more], {"x": 2})


def nodes_of(path) -> dict:
    return nir.read(path).nodes


def said(net: Network, path) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        to_nir(net, path)
    assert all(w.category is NwWarning and w.filename == __file__ for w in caught)
    return [str(w.message) for w in caught]


def refused(*arguments, **options) -> str:
    with pytest.raises(NwError) as caught:
        to_nir(*arguments, **options)
    return str(caught.value)


@pytest.mark.parametrize("case", CASES)
def test_imported_network_survives(reference, case, tmp_path):
    with np.load(reference / "frameworks" / f"{case}.npz") as data:
        told = options(case, json.loads(str(data["meta"])))
    net = imported(reference / "frameworks" / f"{case}.nir", **told)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NwWarning)
        to_nir(net, tmp_path / "a.nir")
    nir.read(tmp_path / "a.nir")
    assert from_nir(tmp_path / "a.nir").hash == net.hash


def test_standard_nodes_are_what_frameworks_write(tmp_path):
    assert said(network(bias=np.ones(3, np.float32)), tmp_path / "a.nir") == []
    nodes = nodes_of(tmp_path / "a.nir")
    assert {name: type(node).__name__ for name, node in nodes.items()} == {
        "x": "Input", "x_to_fc": "Affine", "fc": "LIF", "output": "Output"
    }  # fmt: skip
    np.testing.assert_allclose(nodes["fc"].tau, [1e-3] * 3)
    np.testing.assert_allclose(nodes["fc"].r, [10] * 3)
    assert nodes["fc"].v_reset.tolist() == nodes["fc"].v_leak.tolist() == [0, 0, 0]
    assert np.array_equal(nodes["x_to_fc"].weight, W)


@pytest.mark.parametrize(
    "spec, kind, values",
    [
        (NeuronSpec(), "IF", {"r": 1e4, "v_threshold": 1, "v_reset": 0}),
        (NeuronSpec(beta=0.75, leak=0.1, bias=0.15), "LIF", {"tau": 4e-4, "r": 4, "v_leak": 1}),
        (NeuronSpec(membrane="euler", k=0.25, r=3, v_leak=0.5), "LIF", {"tau": 4e-4, "r": 3, "v_leak": 0.5}),
        (NeuronSpec(beta=1.0, leak=0.5), "LIF", {"tau": 1e-4 * 2**26, "r": 2.0**26, "v_leak": 2.0**25}),
        (NeuronSpec(alpha=0.5, w_in=2, beta=0.75), "CubaLIF", {"tau_syn": 2e-4, "w_in": 4, "tau_mem": 4e-4, "r": 4}),
        (NeuronSpec(alpha=0.5, beta=0.75, current_order="add_then_decay"), "CubaLIF", {"w_in": 1}),
        (NeuronSpec(reset="value", reset_value=-0.5), "IF", {"v_reset": -0.5}),
        (NeuronSpec(fires=False, beta=0.75, reset="none"), "LI", {"tau": 4e-4, "r": 4}),
        (NeuronSpec(fires=False, reset="none"), "I", {"r": 1e4}),
        (NeuronSpec(fires=False, alpha=0.5, beta=0.5, reset="none"), "CubaLI", {"tau_syn": 2e-4, "r": 2}),
        (NeuronSpec(beta=0.0, reset="none", threshold=0.25), "Threshold", {"threshold": 0.25}),
    ],
)
def test_neuron_is_the_nearest_node(tmp_path, spec, kind, values):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NwWarning)
        to_nir(network(spec), tmp_path / "a.nir")
    node = nodes_of(tmp_path / "a.nir")["fc"]
    assert type(node).__name__ == kind
    for key, value in values.items():
        np.testing.assert_allclose(getattr(node, key), np.full(3, value), err_msg=key)


def test_time_step_scales_the_constants(tmp_path):
    to_nir(network(), tmp_path / "a.nir", dt=1e-3)
    assert nodes_of(tmp_path / "a.nir")["fc"].tau == pytest.approx([1e-2] * 3)
    assert from_nir(tmp_path / "a.nir").hash == network().hash


def test_other_readers_see_the_same_network(tmp_path):
    """Without its notes the file gives the same spikes: conv with groups, a flat kernel, delays, recurrence, a list."""
    rng = np.random.default_rng(0)
    lif = NeuronSpec(beta=0.75, reset="zero")
    net = Network.from_arrays(
        {"c": lif, "j": (None, (4, 3, 4)), "d": (lif, (5,)), "s": (lif, (2,))},
        [
            Conv2d("x", "c", rng.normal(0.4, 0.6, (4, 1, 3, 5)).astype(np.float32), padding=(1, 2), groups=2),
            Scale("c", "j"), Scale("c", "j", 0.5, delay=2),
            Dense("j", "d", rng.normal(0.1, 0.4, (5, 48)).astype(np.float32), np.ones(5, np.float32) / 4),
            Dense("d", "d", rng.normal(0, 0.5, (5, 5)).astype(np.float32)),
            Sparse("d", "s", [0, 0, 4], [1, 0, 1], np.array([0.5, 1, 1], np.float32)),
        ],
        {"x": (2, 3, 4)},
    )  # fmt: skip
    assert said(net, tmp_path / "a.nir") == []
    graph = nir.read(tmp_path / "a.nir")
    graph.metadata = {}
    read = from_nir(graph, dt=1e-4, dialect="nir")
    x = (rng.random((2, 20, 2, 3, 4)) < 0.4).astype(np.float32)
    expected, found = simulate(net, x), simulate(read, x)
    assert all(expected.spikes[name].any() for name in net.layers)
    assert all(np.array_equal(found.spikes[name], expected.spikes[name]) for name in net.layers)


def test_delay_of_a_recurrence_goes_without_saying(tmp_path):
    """One step from a layer to itself or back to an earlier one is what a cycle of NIR means; two steps are not."""
    back = [Dense("b", "a", np.eye(3, dtype=np.float32), delay=1), Dense("a", "a", np.eye(3, dtype=np.float32))]
    late = [Scale("x", "c", delay=1), Scale("c", "c", 0.5, delay=2)]
    layers = dict.fromkeys(("a", "b"), (LEAKY, (3,))) | {"c": (LEAKY, (2,))}
    to_nir(
        Network.from_arrays(layers, [Dense("x", "a", W), Scale("a", "b"), *back, *late], {"x": 2}), tmp_path / "a.nir"
    )
    delays = {name: node.delay for name, node in nodes_of(tmp_path / "a.nir").items() if isinstance(node, nir.Delay)}
    assert {name: delay.tolist() for name, delay in delays.items()} == {
        "x_to_c_delay": [1e-4, 1e-4], "c_to_c_delay": [2e-4, 2e-4]
    }  # fmt: skip


def test_what_others_do_not_see_is_said_once(tmp_path):
    odd = NeuronSpec(
        beta=1.5, strict=False, spikes="multi", reset="subtract", refractory=2, v_min=np.array([-1.0, 0, 0])
    )
    net = Network.from_arrays(
        {"a": (odd, (3,)), "b": (NeuronSpec(reset="subtract", reset_timing="both"), (3,)), "c": (LEAKY, (3,))},
        [Dense("x", "a", W), Scale("a", "b", 1.0, 0.5), Scale("b", "c")],
        {"x": 2},
    )
    path = tmp_path / "a.nir"
    assert said(net, path) == [
        f"{path}: other readers do not see refractory=2, v_min=per neuron, beta=1.5, strict=False, spikes='multi', "
        "reset='subtract' of 'a'; reset='subtract', reset_timing='both' of 'b'; shift=0.5 of 'a' -> 'b'; from_nir "
        "reads it from the metadata"
    ]


def test_kernel_that_nir_cannot_type_is_a_matrix_or_said(tmp_path, monkeypatch):
    net = Network.from_arrays({"c": LEAKY}, [Conv2d("x", "c", np.ones((1, 1, 1, 2)))], {"x": (1, 3, 4)})
    assert said(net, tmp_path / "a.nir") == []
    assert nodes_of(tmp_path / "a.nir")["x_to_c"].weight.shape == (9, 12)
    monkeypatch.setattr(nearest, "MAX_MATRIX_ENTRIES", 100)
    path = tmp_path / "b.nir"
    assert said(net, path) == [
        f"{path}: other readers do not see the shapes of kernels that are not square (nir.read needs "
        "type_check=False); from_nir reads it from the metadata"
    ]
    assert nir.read(path, type_check=False).nodes["x_to_c"].weight.shape == (1, 1, 1, 2)
    assert from_nir(path).hash == from_nir(tmp_path / "b.nir").hash == net.hash


def test_list_of_synapses_that_is_too_large_is_refused(tmp_path):
    edge = Sparse("x", "fc", [0], [0], [1.0])
    net = Network.from_arrays({"fc": (LEAKY, (10_000,))}, [edge], {"x": 10_000})
    assert refused(net, tmp_path / "a.nir") == (
        "connection 'x' -> 'fc': NIR has no node for this Sparse, and a matrix of 10000 x 10000 values is more than "
        "the 67108864 that are written; write a model without it"
    )
    assert not list(tmp_path.iterdir())


def test_names_that_hdf5_or_nir_would_misread_are_kept(tmp_path):
    net = Network.from_arrays(
        {"a/b": (LEAKY, (3,)), "a_b": (LEAKY, (3,)), ".": (LEAKY, (3,)), "output": (LEAKY, (3,))},
        [Dense("in/1", "a/b", W), Scale("a/b", "a_b"), Scale("a_b", "."), Scale(".", "output")],
        {"in/1": 2},
    )
    to_nir(net, tmp_path / "a.nir")
    assert from_nir(tmp_path / "a.nir").hash == net.hash
    assert set(nodes_of(tmp_path / "a.nir")) == {"in_1", "in_1_to_a_b", "a_b", "a_b_2", "_", "output", "output_2"}


def test_several_inputs_and_outputs_are_kept(tmp_path):
    net = Network.from_arrays(
        {"a": (LEAKY, (3,)), "b": (LEAKY, (3,)), "alone": (LEAKY, (2, 2))},
        [Dense("x", "a", W), Dense("y", "b", W), Scale("a", "b", delay=3)],
        {"x": 2, "y": 2, "unused": (1, 5)},
    )
    to_nir(net, tmp_path / "a.nir")
    assert from_nir(tmp_path / "a.nir").hash == net.hash
    graph = nir.read(tmp_path / "a.nir")
    assert set(graph.inputs) == {"x", "y", "unused", "input_alone"}
    assert set(graph.outputs) == {"output_b", "output_unused", "output_alone"}


@pytest.mark.parametrize("layout, n_steps", [("TB", None), ("B", 25)])
def test_layout_of_samples_is_kept(tmp_path, layout, n_steps):
    to_nir(network().change_layout(layout, n_steps), tmp_path / "a.nir")
    again = from_nir(tmp_path / "a.nir")
    assert (again.layout, again.n_steps) == (layout, n_steps) and again.hash == network().hash


def test_stated_fields_change_what_was_noted(tmp_path):
    to_nir(network(), tmp_path / "a.nir")
    changed = from_nir(tmp_path / "a.nir", neuron={"threshold": 2.0, "fc": {"strict": False}})
    spec = changed.node("fc").neuron
    assert (spec.threshold, spec.strict, spec.beta) == (2.0, False, 0.9)
    with pytest.raises(ModelError, match="^unknown neuron node 'fd'; choose one of: fc$"):
        from_nir(tmp_path / "a.nir", neuron={"fd": {"strict": False}})


def test_dialect_that_is_not_needed_is_not_used_and_said(tmp_path):
    path = tmp_path / "a.nir"
    to_nir(network(), path)
    for told in ({"dialect": "sinabs"}, {"dt": 1e-3}, {"dialect": "nir", "dt": 1e-4}):
        with pytest.warns(NwWarning) as caught:
            assert from_nir(path, **told).hash == network().hash
        assert [str(w.message) for w in caught] == [
            f"NIR file {path}: to_nir wrote it and noted its neurons exactly; dialect= and dt= are not needed and not "
            "used"
        ]
    assert from_nir(path, dt=1e-4).hash == network().hash


def changed(tmp_path, change):
    """A file that to_nir wrote and somebody edited."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NwWarning)
        to_nir(network(NeuronSpec(beta=0.9, reset="subtract"), bias=np.ones(3)), tmp_path / "a.nir")
    with h5py.File(tmp_path / "a.nir", "r+") as f:
        change(f["node"], f["node/nodes"])
    return tmp_path / "a.nir"


def put(group, name, value):
    del group[name]
    group[name] = value


@pytest.mark.parametrize(
    "change, text",
    [
        (lambda g, n: put(n, "fc/tau", np.full(3, 2e-3)),
         "node 'fc' changed after it was written, so its notes do not hold"),
        (lambda g, n: (put(n, "fc/v_threshold", np.full(3, 2.0)), n.move("output", "out")),
         "nodes 'fc', 'output', 'out' changed after it was written, so its notes do not hold"),
        (lambda g, n: put(g, "edges", np.array([["x", "x_to_fc"], ["fc", "output"]], "S9")),
         "the edges changed after it was written, so its notes do not hold"),
        (lambda g, n: put(n, "x/shape", [3]),
         "connection 'x' -> 'fc': weight (3, 2) takes 2 inputs, 'x' has (3,)"),
        (lambda g, n: put(n, "fc/metadata/nwcompile", "{}"),
         "node 'fc' changed after it was written, so its notes do not hold"),
        (lambda g, n: n["fc"].__delitem__("metadata"), None),
        (lambda g, n: put(g, "metadata/nwcompile", "[1"),
         "its notes cannot be read (JSONDecodeError: Expecting ',' delimiter: line 1 column 3 (char 2))"),
        (lambda g, n: put(g, "metadata/nwcompile", '{"format": 3}'),
         "its notes are of format 3, this version reads 1, 2"),
        (lambda g, n: put(n, "x_to_fc/metadata/nwcompile", '{"bias": {"inline": ["2,,", [0], ""]}}'),
         "its notes cannot be read (ValueError: type '2,,')"),
        (lambda g, n: put(g, "metadata/nwcompile", "[" * 100_000), None),
        (lambda g, n: n.__delitem__("x_to_fc"), "its notes cannot be read (KeyError: 'x_to_fc')"),
    ],
    ids=["tau", "two", "edges", "shape", "note", "no note", "cut", "format", "dtype", "deep", "gone"],
)  # fmt: skip
def test_edited_file_is_refused_or_read_as_others_read_it(tmp_path, change, text):
    path = changed(tmp_path, change)
    with pytest.raises(ModelError) as caught:
        from_nir(path)
    found = str(caught.value)
    assert found.startswith(f"NIR file {path}: to_nir wrote it, but ")
    assert found.endswith("; to read its parameters alone, give dialect= and dt=")
    if text:
        assert (
            found
            == f"NIR file {path}: to_nir wrote it, but {text}; to read its parameters alone, give dialect= and dt="
        )


def test_edited_parameters_count_where_a_dialect_reads_them(tmp_path):
    path = changed(tmp_path, lambda g, n: put(n, "fc/tau", np.full(3, 2e-3)))
    with pytest.warns(NwWarning) as caught:
        net = from_nir(path, dt=1e-4, dialect="nir")
    assert net.node("fc").neuron.beta == pytest.approx(0.95)
    assert str(caught[0].message) == (
        f"NIR file {path}: to_nir wrote it, but node 'fc' changed after it was written, so its notes do not hold; its "
        "parameters are read with dialect 'nir'"
    )


class Populations(torch.nn.Module):
    """The largest membranes over the steps, weighted in groups: a readout with an array."""

    def __init__(self):
        super().__init__()
        self.fc, self.out = torch.nn.Linear(4, 8), torch.nn.Linear(8, 6)
        self.register_buffer("weight", torch.tensor([[1.0, 0.5, 0, 0, 0, 0], [0, 0, 1.0, 2.0, 0, 0]]))

    def forward(self, x):
        v, u, membranes = 0.0, 0.0, []
        for step in x.unbind(1):
            v = 0.9 * v + 2 * self.fc(step)
            s = (v > 0.5).float()
            v, u = v - 0.5 * s, 0.8 * u + self.out(s)
            membranes.append(u)
        return (torch.stack(membranes, 1).amax(1) @ self.weight.T).softmax(1)


def test_the_readout_is_in_the_file(tmp_path):
    torch.manual_seed(0)
    x = torch.randint(0, 2, (5, 12, 4)).float()
    floats = nw.from_torch(Populations().eval(), x)
    for network in (floats, nw.compile(floats, "loihi2", x).network):
        assert network.readout.arrays
        with pytest.warns(NwWarning, match="do not see .*the readout of the module's answer; from_nir reads it from"):
            to_nir(network, tmp_path / "a.nir")
        read, fields = from_nir(tmp_path / "a.nir"), vars(network.readout)
        assert {**vars(read.readout), "arrays": None} == {**fields, "arrays": None}
        runs = [nw.simulate(net, x.numpy().astype(np.int8), record="all") for net in (network, read)]
        answers = [nw.read_out(run) for run in runs]
        assert np.array_equal(*answers) and np.ptp(answers[0]) > 0.01
    for edit, text in [
        (lambda readout: readout["per_step"][0].update(layer="other"), "the readout reads layer 'other', which"),
        (lambda readout: readout.update(arrays=[]), "the readout refers to {'array': 0}, which it does not have"),
        (lambda readout: readout.pop("shape"), r"its notes cannot be read \(KeyError: 'shape'\)"),
    ]:
        (tmp_path / "a.nir").write_bytes(render_nir(floats, 1e-4)[0])
        with h5py.File(tmp_path / "a.nir", "r+") as f:
            head = json.loads(f["node/metadata/nwcompile"][()])
            edit(head["readout"])
            put(f["node/metadata"], "nwcompile", json.dumps(head))
        with pytest.raises(ModelError, match=text):
            from_nir(tmp_path / "a.nir")


def test_edited_weights_are_simply_read(tmp_path):
    to_nir(network(), tmp_path / "a.nir")
    with h5py.File(tmp_path / "a.nir", "r+") as f:
        put(f["node/nodes"], "x_to_fc/weight", 2 * W)
    assert np.array_equal(from_nir(tmp_path / "a.nir").connections[0].weight, 2 * W)


def test_wrong_arguments_are_told(tmp_path):
    assert refused("net", tmp_path / "a.nir") == "to_nir takes a Network, not str"
    assert refused(network(), 3) == "to_nir takes the path of the file to write, not int"
    for dt in (0, -1e-4, np.inf, "1e-4", True):
        assert refused(network(), tmp_path / "a.nir", dt=dt) == f"dt={dt!r} must be a number above 0, in seconds"
    on_host = replace(dense_net(3, 2), host=object())
    assert refused(on_host, tmp_path / "a.nir") == (
        "to_nir: the host computes the first layers, and a NIR file has one part; write the model"
    )
    assert refused(network(), tmp_path) == (
        f"{tmp_path} cannot be written: there is a folder of that name; choose a folder you may write to"
    )
    assert not list(tmp_path.iterdir())


def test_file_is_replaced_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "a.nir"
    path.write_text("before")

    def fails(*arguments, **options):
        raise OSError("no space")

    with monkeypatch.context() as broken:
        broken.setattr("os.replace", fails)
        with pytest.raises(NwError):
            to_nir(network(), path)
    assert [p.name for p in tmp_path.iterdir()] == ["a.nir"] and path.read_text() == "before"
    to_nir(network(), path)
    assert [p.name for p in tmp_path.iterdir()] == ["a.nir"] and from_nir(path).hash == network().hash
