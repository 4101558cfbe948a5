"""NIR graphs become networks: structure, shapes, recurrence, and errors that name the node."""

import subprocess
import sys
import warnings

import h5py
import nir
import numpy as np
import pytest
import torch

from nwcompile.errors import ModelError, NwWarning
from nwcompile.frontend.nir import from_nir
from nwcompile.frontend.nir.file import PARAMETERS
from nwcompile.ir.connection import Conv1d, Conv2d, Dense, Pool2d, Scale, Sparse
from nwcompile.sim import simulate
from tests.made.nir_graphs import conv, graph, if_node, inputs, lif, linear, one_layer, outputs, weights

POOL = nir.SumPool2d(np.array([1, 1]), np.array([1, 1]), np.array([0, 0]))
ZERO = {"dt": 1e-4, "dialect": "snntorch", "neuron": {"reset": "zero", "reset_timing": "now"}}


def edges(network):
    """(source, target, kind, delay) of every connection."""
    return [(c.source, c.target, type(c), c.aligned_delay) for c in network.connections]


def error(source, **options) -> str:
    with pytest.raises(ModelError) as caught:
        from_nir(source, **{**ZERO, **options})
    return str(caught.value)


def test_file_and_graph_give_the_same_network(tmp_path):
    g = one_layer(lif(3))
    nir.write(tmp_path / "a.nir", g)
    network = from_nir(tmp_path / "a.nir", **ZERO)
    assert network.hash == from_nir(str(tmp_path / "a.nir"), **ZERO).hash == from_nir(g, **ZERO).hash
    assert network.layers == ("n",)
    assert network.inputs["input"].shape == (2,)


def test_one_operation_between_layers_is_one_connection():
    g = graph(
        "input > 0 > 1 > 10 > 2 > output",
        **{"input": inputs(4), "0": linear(3, 4), "1": lif(3), "10": linear(2, 3), "2": lif(2), "output": outputs(2)},
    )
    network = from_nir(g, **ZERO)
    assert network.layers == ("1", "2")
    assert edges(network) == [("input", "1", Dense, 0), ("1", "2", Dense, 0)]
    assert np.array_equal(network.connections[1].weight, g.nodes["10"].weight)


def test_chain_of_operations_has_junctions_between():
    g = graph(
        "input > c > lif > pool > d > out > output",
        type_check=False,
        input=inputs(1, 6, 6),
        c=conv(weights(2, 1, 3, 3), input_shape=(6, 6)),
        lif=lif(2, 4, 4),
        pool=nir.AvgPool2d(np.array(2), np.array(2), np.array([0, 0])),
        d=conv(weights(3, 2, 2, 2), input_shape=(2, 2)),
        out=lif(3, 1, 1),
        output=outputs(3, 1, 1),
    )
    network = from_nir(g, **ZERO)
    expected = [("input", "lif", Conv2d, 0), ("lif", "pool", Pool2d, 0), ("pool", "out", Conv2d, 0)]
    assert edges(network) == expected
    assert network.node("pool").neuron is None
    assert network.node("pool").shape == (2, 2, 2)


def test_flat_recurrence_acts_one_step_late():
    g = graph(
        "input > fc > r.lif > output, r.lif > r.w > r.lif",
        **{"input": inputs(2), "fc": linear(3, 2), "r.lif": lif(3), "r.w": linear(3, 3), "output": outputs(3)},
    )
    network = from_nir(g, **ZERO)
    assert edges(network) == [("input", "r.lif", Dense, 0), ("r.lif", "r.lif", Dense, 1)]


def nested(tmp_path, inner_name="lif"):
    """A file with a nested graph `r`, as nir 0.2.0 wrote it; `inner_name` is what its edges call the neuron."""
    nir.write(tmp_path / "n.nir", one_layer(lif(3)))
    with h5py.File(tmp_path / "n.nir", "r+") as f:
        nodes = f["node/nodes"]
        f.move("node/nodes/n", "node/nodes/r/nodes/lif")
        nodes["r/type"] = "NIRGraph"
        for name, kind in (("input", "Input"), ("output", "Output")):
            nodes[f"r/nodes/{name}/type"], nodes[f"r/nodes/{name}/shape"] = kind, [3]
        nodes["r/nodes/w/type"], nodes["r/nodes/w/weight"] = "Linear", weights(3, 3)
        text = h5py.string_dtype()
        pairs = [("input", inner_name), (inner_name, "w"), ("w", inner_name), (inner_name, "output")]
        nodes["r"].create_dataset("edges", data=np.array(pairs, object), dtype=text)
        del f["node/edges"]
        outer = [("input", "fc"), ("fc", "r"), ("r", "output")]
        f["node"].create_dataset("edges", data=np.array(outer, object), dtype=text)
    return tmp_path / "n.nir"


def test_nested_graph_is_flattened(tmp_path):
    network = from_nir(nested(tmp_path), **ZERO)
    assert edges(network) == [("input", "r.lif", Dense, 0), ("r.lif", "r.lif", Dense, 1)]


def test_edges_that_miss_the_only_unused_node_mean_it(tmp_path):
    with pytest.warns(NwWarning) as caught:
        network = from_nir(nested(tmp_path, "cell"), **ZERO)
    assert str(caught[0].message) == (
        "NIR graph 'r': edges name 'r.cell', which is no node; taken as 'r.lif', the one node without edges"
    )
    assert network.layers == ("r.lif",)


def test_feedback_over_layers_is_late_where_its_cycle_is_entered():
    g = graph(
        "input > f > a > g > b > output, b > back > a",
        input=inputs(2), f=linear(3, 2), a=lif(3), g=linear(4, 3), b=lif(4), back=linear(3, 4), output=outputs(4),
    )  # fmt: skip
    delays = {(source, target): delay for source, target, _, delay in edges(from_nir(g, **ZERO))}
    assert delays == {("input", "a"): 0, ("a", "b"): 0, ("b", "a"): 1}


def test_feedback_into_shared_weights_meets_the_input_in_a_junction():
    g = graph("input > fc > n > output, n > fc", input=inputs(3), fc=linear(3, 3), n=lif(3), output=outputs(3))
    network = from_nir(g, **ZERO)
    assert edges(network) == [("input", "fc.sum", Scale, 0), ("n", "fc.sum", Scale, 1), ("fc.sum", "n", Dense, 0)]


def test_delay_node_in_a_cycle_is_the_only_delay():
    g = graph(
        "input > fc > n > output, n > w > d > n",
        input=inputs(3), fc=linear(3, 3), n=lif(3), w=linear(3, 3), d=nir.Delay(np.full(3, 2e-4)), output=outputs(3),
    )  # fmt: skip
    assert edges(from_nir(g, **ZERO)) == [("input", "n", Dense, 0), ("w", "n", Scale, 2), ("n", "w", Dense, 0)]


@pytest.mark.parametrize("second", [None, [0, 0, 0], [1e-4] * 3])
def test_delay_node_in_a_cycle_has_at_least_a_step_for_each_neuron_unless_another_one_has(second):
    path = "n > w > d > n" if second is None else "n > w > d > e > n"
    parts = {} if second is None else {"e": nir.Delay(np.array(second))}
    g = graph(
        f"input > fc > n > output, {path}",
        input=inputs(3), fc=linear(3, 3), n=lif(3), w=linear(3, 3), d=nir.Delay(np.array([0, 1e-4, 2e-4])),
        output=outputs(3), **parts,
    )  # fmt: skip
    delays = np.zeros(3, int)
    for c in from_nir(g, **ZERO).connections:
        if (c.source, c.target) not in (("input", "n"), ("n", "w")):
            delays[getattr(c, "post", slice(None))] += c.delay
    assert delays.tolist() == ([1, 2, 3] if second and any(second) else [1, 1, 2])


@pytest.mark.parametrize(
    ("paths", "why"),
    [
        ("n > w > d > e > n", "so does another Delay node of it"),
        ("n > w > d > n, d > m", "it also leads out of the cycle"),
    ],
)
def test_delay_nodes_that_leave_the_delay_of_a_cycle_open_are_refused(paths, why):
    parts = {"e": nir.Delay(np.array([0, 0, 1e-4]))} if "e" in paths else {"m": lif(3)}
    g = graph(
        f"input > fc > n > output, {paths}",
        input=inputs(3), fc=linear(3, 3), n=lif(3), w=linear(3, 3), d=nir.Delay(np.array([0, 1e-4, 2e-4])),
        output=outputs(3), **parts,
    )  # fmt: skip
    with pytest.raises(ModelError, match=rf"'d' \(Delay\): it delays some neurons of a cycle by 0 steps, and {why};"):
        from_nir(g, **ZERO)


def test_delays_per_neuron_are_lines_of_their_own():
    g = graph(
        "input > d > n > output", input=inputs(3), d=nir.Delay(np.array([0, 1e-4, 0])), n=lif(3), output=outputs(3)
    )
    network = from_nir(g, **ZERO)
    assert [(type(c), c.delay, c.pre.tolist(), c.post.tolist()) for c in network.connections] == [
        (Sparse, 0, [0, 2], [0, 2]), (Sparse, 1, [1], [1]),
    ]  # fmt: skip


def test_several_edges_into_a_layer_add_up():
    g = graph(
        "input > a > n > output, input > b > n",
        input=inputs(2),
        a=linear(3, 2),
        b=linear(3, 2),
        n=lif(3),
        output=outputs(3),
    )
    x = np.ones((1, 5, 2), np.float32)
    run = simulate(from_nir(g, **ZERO), x, record="all")
    w = g.nodes["a"].weight + g.nodes["b"].weight
    both = graph("input > a > n > output", input=inputs(2), a=nir.Linear(w), n=lif(3), output=outputs(3))
    np.testing.assert_allclose(
        run.states["n"]["v"], simulate(from_nir(both, **ZERO), x, record="all").states["n"]["v"], rtol=1e-5
    )


def test_operation_with_two_readers_is_computed_once():
    g = graph("input > f > a > g > b > output, f > b",
              input=inputs(2), f=linear(3, 2), a=lif(3), g=linear(3, 3), b=lif(3), output=outputs(3))  # fmt: skip
    kinds = edges(from_nir(g, **ZERO))
    assert kinds.count(("input", "f", Dense, 0)) == 1
    assert ("f", "a", Scale, 0) in kinds and ("f", "b", Scale, 0) in kinds


def test_layers_are_in_the_order_of_computation_not_of_names():
    chain = {"9": lif(2), "10": linear(2, 2), "2": lif(2), "1": linear(2, 2), "0": lif(2)}
    g = graph("in > w > 9 > 10 > 2 > 1 > 0 > out", **{"in": inputs(2), "w": linear(2, 2), "out": outputs(2)}, **chain)
    assert from_nir(g, **ZERO).layers == ("9", "2", "0")


@pytest.mark.parametrize("shape", [(5, 2), (1, 2), (1, 1, 2)])
def test_batch_dimension_of_the_input_is_dropped(shape):
    g = graph("input > fc > n > output", type_check=False,
              input=inputs(*shape), fc=linear(3, 2), n=lif(3), output=outputs(1, 3))  # fmt: skip
    with pytest.warns(NwWarning) as caught:
        network = from_nir(g, **ZERO)
    assert network.inputs["input"].shape == (2,)
    assert str(caught[0].message) == (f"NIR node 'input' (Input): shape {shape} read as (2,), the rest as a batch size")


def test_scalar_parameters_hold_for_every_neuron():
    g = graph("input > fc > n > output", type_check=False, input=inputs(2), fc=linear(3, 2), n=lif(), output=outputs(3))
    network = from_nir(g, **ZERO)
    assert network.node("n").shape == (3,)
    assert network.node("n").neuron.beta == pytest.approx(0.9)


def test_parameters_per_neuron_stay_per_neuron():
    taus = np.array([1e-3, 2e-3, 4e-3])
    n = nir.LIF(tau=taus, r=taus / 1e-4, v_leak=np.zeros(3), v_threshold=np.ones(3))
    spec = from_nir(one_layer(n), **ZERO).node("n").neuron
    assert np.array_equal(spec.beta, (1 - 1e-4 / taus).astype(np.float32))
    assert spec.gain == 1.0


def test_convolution_shapes_are_computed_whatever_the_file_says():
    c = conv(weights(6, 2, 3, 5), groups=2, input_shape=(99, 99))
    g = graph("input > c > n > output", type_check=False,
              input=inputs(4, 10, 12), c=c, n=lif(6, 8, 8), output=outputs(6, 8, 10))  # fmt: skip
    network = from_nir(g, **ZERO)
    assert network.node("n").shape == (6, 8, 8)
    assert network.connections[0].groups == 2


def test_conv_without_input_shape_and_with_same_padding():
    g = graph("input > c > n > output", type_check=False, input=inputs(1, 5, 7),
              c=conv(weights(2, 1, 3, 5), padding="same"), n=lif(), output=outputs(2, 5, 7))  # fmt: skip
    network = from_nir(g, **ZERO)
    assert network.node("n").shape == (2, 5, 7)
    assert network.connections[0].padding == (1, 2)


@pytest.mark.filterwarnings("ignore:Using padding='same' with even:UserWarning")
@pytest.mark.parametrize("kernel, dilation", [((2, 2), 1), ((2, 3), 1), ((4, 3), (3, 2)), ((3, 2), (2, 1))])
def test_same_padding_of_an_even_kernel_is_torch_s(kernel, dilation):
    w, x = weights(2, 1, *kernel), np.random.default_rng(0).integers(-3, 4, (1, 1, 1, 9, 8)).astype(np.float32)
    c = conv(w, padding="same", dilation=dilation)
    n = nir.LI(np.array(1e-4), np.array(1.0), np.array(0.0))
    g = graph("input > c > n > output", type_check=False, input=inputs(1, 9, 8), c=c, n=n, output=outputs(2, 9, 8))
    found = simulate(from_nir(g, **ZERO), x).output[0, 0]
    expected = torch.nn.functional.conv2d(torch.tensor(x[0]), torch.tensor(w), padding="same", dilation=dilation)
    np.testing.assert_allclose(found, expected[0].numpy(), atol=1e-5)


def test_same_padding_of_an_even_kernel_in_one_dimension():
    c = nir.Conv1d(8, weights(3, 2, 2), 1, "same", 1, 1, np.zeros(3))
    g = graph("input > c > n > output", type_check=False, input=inputs(2, 8), c=c, n=lif(3, 8), output=outputs(3, 8))
    (edge,) = from_nir(g, **ZERO).connections
    assert (edge.padding, edge.weight.shape) == (1, (3, 2, 3)) and not edge.weight[..., 0].any()


@pytest.mark.parametrize("shape", [(2, 1, 1), (2,), (3,), (1, 1, 3), (2, 4, 3)])
def test_parameters_per_channel_or_column_broadcast(shape):
    given = np.arange(1, 1 + np.prod(shape)).reshape(shape) / 2
    n = nir.IF(np.ones(shape), given)
    g = graph("input > p > n > output", type_check=False, input=inputs(2, 4, 3), p=POOL, n=n, output=outputs(2, 4, 3))
    threshold = from_nir(g, **ZERO).node("n").neuron.threshold
    expected = given.reshape(2, 1, 1) if shape == (2,) else given
    assert np.array_equal(np.broadcast_to(threshold, (2, 4, 3)), np.broadcast_to(expected, (2, 4, 3)))


def test_parameters_for_channels_or_columns_must_be_told():
    n = nir.IF(np.ones(3), np.arange(1.0, 4.0))
    g = graph("input > p > n > output", type_check=False, input=inputs(3, 4, 3), p=POOL, n=n, output=outputs(3, 4, 3))
    assert error(g) == (
        "NIR node 'n' (IF): its parameters of shape (3,) may be for the channels or for the columns of (3, 4, 3); "
        "write them in shape (3, 1, 1) or (1, 1, 3)"
    )


def test_conv1d_is_read():
    c = nir.Conv1d(8, weights(3, 2, 3), np.array([2]), 1, 1, 1, np.zeros(3))
    g = graph("input > c > n > output", type_check=False, input=inputs(2, 8), c=c, n=lif(3, 4), output=outputs(3, 4))
    network = from_nir(g, **ZERO)
    assert edges(network) == [("input", "n", Conv1d, 0)]
    assert (network.connections[0].stride, network.connections[0].padding) == (2, 1)


def test_flatten_before_weights_is_no_junction():
    flat = nir.Flatten({"input": np.array([2, 3, 3])}, 0)
    g = graph("input > s > f > w > n > output", type_check=False, input=inputs(2, 3, 3), s=if_node(2, 3, 3), f=flat,
              w=linear(4, 18), n=if_node(4), output=outputs(4))  # fmt: skip
    assert edges(from_nir(g, **ZERO)) == [("input", "s", Scale, 0), ("s", "n", Dense, 0)]


def test_flatten_between_operations_reshapes():
    flat = nir.Flatten({"input": np.array([2, 3, 3])}, 1)
    c = nir.Conv1d(9, weights(3, 2, 3), 1, 0, 1, 1, np.zeros(3))
    g = graph("input > f > c > n > output", type_check=False,
              input=inputs(2, 3, 3), f=flat, c=c, n=if_node(3, 7), output=outputs(3, 7))  # fmt: skip
    network = from_nir(g, **ZERO)
    assert network.node("f").shape == (2, 9)
    assert simulate(network, np.ones((1, 3, 2, 3, 3))).output.shape == (1, 3, 3, 7)


def test_scale_is_per_element():
    g = graph(
        "input > s > n > output", input=inputs(3), s=nir.Scale(np.array([1.0, 2, 3])), n=if_node(3), output=outputs(3)
    )
    assert from_nir(g, **ZERO).connections[0].scale.tolist() == [1, 2, 3]


def test_weights_before_the_output_are_a_readout():
    g = graph(
        "input > f > n > w > output", input=inputs(2), f=linear(3, 2), n=lif(3), w=linear(2, 3), output=outputs(2)
    )
    network = from_nir(g, **ZERO)
    run = simulate(network, np.ones((1, 6, 2)))
    assert network.layers == ("n", "output")
    expected = run.spikes["n"][0].astype(np.float32) @ g.nodes["w"].weight.T
    assert expected.any()
    np.testing.assert_allclose(run.output[0], expected, rtol=1e-6)


def test_leaky_integrator_at_the_output_gives_its_membrane():
    li = nir.LI(np.full(2, 4e-4), np.full(2, 4.0), np.zeros(2))
    g = graph("input > li > output", input=inputs(2), li=li, output=outputs(2))
    run = simulate(from_nir(g, **ZERO), np.ones((1, 3, 2)))
    np.testing.assert_allclose(run.output[0, :, 0], [1, 1.75, 2.3125])


def test_threshold_node_is_a_stateless_comparison():
    g = graph("input > t > output", input=inputs(2), t=nir.Threshold(np.array([0.5, 1.0])), output=outputs(2))
    x = np.array([[[0.5, 2], [0.6, 1.0], [0, 0]]])
    assert simulate(from_nir(g, **ZERO), x).output[0].tolist() == [[0, 1], [1, 0], [0, 0]]


def test_nested_node_of_a_name_that_is_taken_is_a_model_error():
    inner = graph("input > b > output", input=inputs(3), b=lif(3), output=outputs(3))
    g = graph("input > fc > a > a.b > output", type_check=False,
              **{"input": inputs(2), "fc": linear(3, 2), "a": inner, "a.b": lif(3), "output": outputs(3)})  # fmt: skip
    assert error(g) == "NIR graph: two nodes are named 'a.b'; give each its own name"


def test_input_of_a_huge_shape_is_refused_before_anything_is_allocated():
    g = graph("input > c > n > output", type_check=False, input=inputs(1, 1 << 20, 1 << 20),
              c=conv(weights(1, 1, 3, 3)), n=lif(), output=outputs(1))  # fmt: skip
    assert error(g) == "'input': shape (1, 1048576, 1048576) has 1099511627776 neurons; the limit is 2147483647"


@pytest.mark.parametrize(
    "build, text",
    [
        (lambda: graph("input > a > output, input > b > output, b > a, a > b",
                       input=inputs(2), a=if_node(2), b=if_node(2), output=outputs(2)),
         "NIR graph: the cycle through 'a', 'b' is entered at more than one node, so which of its edges acts one "
         "step late is not defined; put a Delay node of one step (delay=dt) into the cycle"),
        (lambda: graph("input > v > n > output, v > w > v", type_check=False,
                       input=inputs(2), v=linear(2, 2), w=linear(2, 2), n=if_node(2), output=outputs(2)),
         "NIR graph: the cycle through 'v', 'w' has no neuron layer; only spikes can be fed back"),
        (lambda: graph("input > a > o1", type_check=False, input=inputs(2), a=if_node(2), o1=outputs(2), o2=outputs(2)),
         "NIR node 'o2' (Output): no edge leads to it; connect it or remove it"),
        (lambda: graph("a > w > b > output", type_check=False,
                       a=if_node(2), w=linear(2, 2), b=if_node(2), output=outputs(2)),
         "NIR graph: it has no Input node; add one before the first weights"),
        (lambda: graph("input > n > output, n > w", type_check=False,
                       input=inputs(2), n=if_node(2), w=linear(2, 2), output=outputs(2)),
         "NIR node 'w' (Linear): it leads nowhere; connect it to an Output or remove it"),
        (lambda: graph("input > a > output, b > w > b", type_check=False,
                       input=inputs(2), a=if_node(2), b=if_node(2), w=linear(2, 2), output=outputs(2)),
         "NIR nodes 'b', 'w': no Input reaches them; connect or remove them"),
        (lambda: graph("input > li > w > n > output", type_check=False, input=inputs(2), w=linear(2, 2),
                       li=nir.LI(np.full(2, 1e-3), np.ones(2), np.zeros(2)), n=if_node(2), output=outputs(2)),
         "NIR node 'li' (LI): it gives its membrane value to 'w', but only spikes can be sent on; "
         "supported: a path to an Output alone, or IF, LIF, CubaLIF in its place"),
        (lambda: graph("input > w > n > output", type_check=False,
                       input=inputs(2), w=linear(3, 2), n=lif(4), output=outputs(4)),
         None),
        (lambda: graph("input > a > w > n > output", type_check=False,
                       input=inputs(2), a=if_node(2), w=linear(3, 5), n=lif(3), output=outputs(3)),
         "connection 'a' -> 'w': weight (3, 5) takes 5 inputs, 'a' has (2,)"),
        (lambda: graph("input > c > n > output", type_check=False, input=inputs(1, 4, 4),
                       c=conv(weights(1, 1, 2, 2), padding="same", stride=2), n=lif(), output=outputs(1)),
         "NIR node 'c' (Conv2d): padding 'same' needs stride 1, not (2, 2)"),
        (lambda: graph("input > d > n > output",
                       input=inputs(2), d=nir.Delay(np.full(2, 2.5e-4)), n=if_node(2), output=outputs(2)),
         "NIR node 'd' (Delay): delay 0.00025 is 2.5 steps of dt=0.0001; it must be a whole number of steps >= 0"),
        (lambda: graph("input > d > n > output",
                       input=inputs(2), d=nir.Delay(np.array([0, -2e-4])), n=if_node(2), output=outputs(2)),
         "NIR node 'd' (Delay): delay -0.0002 is -2 steps of dt=0.0001; it must be a whole number of steps >= 0"),
        (lambda: graph("input > d > n > output",
                       input=inputs(2), d=nir.Delay(np.array([0, 1e300])), n=if_node(2), output=outputs(2)),
         "NIR node 'd' (Delay): delay 1e+300 is 1e+304 steps of dt=0.0001, more than 2147483647"),
        (lambda: graph("input > w > n > output", input=inputs(2), n=if_node(2), output=outputs(2),
                       w=nir.Linear(np.full((2, 2), 1e300))),
         "NIR node 'w' (Linear): weight has values beyond float32, which networks compute with; choose smaller units"),
        (lambda: graph("input > n > output", input=inputs(2), n=lif(2, v_threshold=np.array([1, 1e300])),
                       output=outputs(2)),
         "NIR node 'n' (LIF): v_threshold has values beyond float32, which networks compute with; choose smaller "
         "units"),
        (lambda: graph("input > n > output", type_check=False, input=inputs(-2), n=if_node(), output=outputs(2)),
         "NIR node 'input' (Input): shape [-2.0] must be whole numbers >= 1"),
    ],
    ids=["cycle", "no neuron", "outputs", "no input", "dead end", "island", "membrane", "per neuron", "chain", "same",
         "delay", "past", "far", "weight", "threshold", "shape"],
)  # fmt: skip
def test_unusable_graph_is_a_model_error(build, text):
    found = error(build())
    assert found == (text or "NIR node 'n' (LIF): shape (4,) of its parameters does not fit its input of shape (3,)")


def broken(tmp_path, change):
    """A file whose HDF5 tree was changed by hand."""
    nir.write(tmp_path / "b.nir", one_layer(lif(3)))
    with h5py.File(tmp_path / "b.nir", "r+") as f:
        change(f, f["node/nodes"])
    return tmp_path / "b.nir"


def replaced(nodes, name, value):
    del nodes[name]
    nodes[name] = value


@pytest.mark.parametrize(
    "change, text",
    [
        (lambda f, n: replaced(n, "fc/weight", np.full((3, 2), np.nan)),
         "NIR node 'fc' (Linear): weight has NaN or infinite values; the model is not usable, train or export it "
         "again"),
        (lambda f, n: replaced(n, "n/type", "AdLIF"),
         "NIR node 'n': type 'AdLIF' is not supported; supported: Affine, AvgPool2d, Conv1d, Conv2d, CubaLI, CubaLIF, "
         "Delay, Flatten, I, IF, Identity, Input, LI, LIF, Linear, Output, Scale, SumPool2d, Threshold, NIRGraph"),
        (lambda f, n: n["n"].__delitem__("tau"),
         "NIR node 'n' (LIF): parameter 'tau' is missing; write the file again with nir.write"),
        (lambda f, n: replaced(n, "n/tau", np.array([1e-3, 1e-3])),
         "NIR node 'n' (LIF): parameters differ in shape: r (3,), tau (2,), v_leak (3,), v_reset (3,), v_threshold "
         "(3,); give all the layer's shape"),
        (lambda f, n: replaced(n, "n/tau", "long"), "NIR node 'n' (LIF): tau is the text 'long'; it must be numbers"),
        (lambda f, n: replaced(n, "n/tau", np.full(3, -1.0)),
         "NIR node 'n' (LIF): tau is -1; a time constant must be above 0"),
        (lambda f, n: replaced(n, "n/tau", np.full(3, 1e-5)),
         "NIR node 'n' (LIF): tau 1e-05 is below dt 0.0001, which is unstable; give dt in the unit of the file's tau"),
        (lambda f, n: replaced(n, "fc/weight", np.ones(4)),
         "NIR node 'fc' (Linear): weight has shape (4,); it must have 2 dimensions"),
        (lambda f, n: f.move("node/nodes/fc", "node/nodes/gc"),
         None),
        (lambda f, n: n.__delitem__("fc"),
         "NIR graph: edge 'input' -> 'fc' names 'fc', which is no node; nodes: input, n, output"),
        (lambda f, n: replaced(f, "node/edges", np.array([["input", "fc"]] * 2, "S9")),
         "NIR graph: edge 'input' -> 'fc' is given twice; give it once"),
        (lambda f, n: replaced(f, "node/edges", np.ones(3)),
         "NIR graph: edges must be pairs of node names; write the file again with nir.write"),
        (lambda f, n: f.move("node", "other"),
         "NIR file b.nir: the HDF5 file has no group 'node'; write the model with nir.write"),
        (lambda f, n: n.__setitem__("x", h5py.ExternalLink("/etc/passwd", "/")),
         "NIR file b.nir: /node/nodes/x is a link to elsewhere; such links are not read"),
        (lambda f, n: n["fc"].create_dataset("big", (1 << 40,), "f8", chunks=(1 << 16,)),
         None),
    ],
    ids=["nan", "type", "missing", "shapes", "text", "negative", "unstable", "weight", "renamed", "dangling", "twice",
         "edges", "no node", "link", "huge"],
)  # fmt: skip
def test_unusable_file_is_a_model_error(tmp_path, monkeypatch, change, text, request):
    broken(tmp_path, change)
    monkeypatch.chdir(tmp_path)
    case = request.node.callspec.id
    if case == "renamed":
        with pytest.warns(NwWarning, match="taken as 'gc', the one node without edges"):
            from_nir("b.nir", **ZERO)
    elif case == "huge":
        assert error("b.nir").startswith(
            "NIR file b.nir: /node/nodes/fc/big declares 8796093022208 bytes, more than a file of "
        )
    else:
        assert error("b.nir") == text


def test_file_that_is_missing_or_not_hdf5_is_a_model_error(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.nir").write_text("weights: 1")
    (tmp_path / "empty.nir").write_bytes(b"")
    assert error("none.nir") == "NIR file none.nir: there is no such file"
    for name in ("text.nir", "empty.nir", "."):
        assert error(name) == f"NIR file {name}: this is not an HDF5 file; give a file that its framework exported"
    assert error(3) == "from_nir takes the path of a NIR file or a nir.NIRGraph, not int"


def test_truncated_file_is_a_model_error(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    nir.write("a.nir", one_layer(lif(3)))
    data = (tmp_path / "a.nir").read_bytes()
    for n in (9, 100, 2000, len(data) - 1):
        (tmp_path / "a.nir").write_bytes(data[:n])
        assert error("a.nir").startswith("NIR file a.nir: damaged or truncated (")
        assert error("a.nir").endswith("); copy or write it again")


def test_parameter_that_is_unknown_is_said(tmp_path):
    path = broken(tmp_path, lambda f, n: n.__setitem__("n/adaptation", np.ones(3)))
    with pytest.warns(NwWarning) as caught:
        from_nir(path, **ZERO)
    assert str(caught[0].message) == "NIR node 'n' (LIF): adaptation is no parameter of it and is not used"


def test_import_loads_no_framework():
    heavy = "('torch', 'nir', 'h5py', 'networkx')"
    loaded = f"import sys, nwcompile.frontend.nir; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_reading_leaves_no_warning_where_all_is_said():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        from_nir(one_layer(lif(3)), **ZERO)


def test_an_output_behind_a_flatten_shows_the_layer_before_it():
    ends = {"flat": nir.Flatten({"input": np.array([3])}, 0), "output": outputs(3)}
    source = graph("input > f > n > flat > output", type_check=False, input=inputs(2), f=linear(3, 2), n=lif(3), **ends)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert from_nir(source, **ZERO).outputs == ("n",)


@pytest.mark.parametrize(
    "path, more, text",
    [
        ("input > f > n > output, n > w > z", {"z": lif(2), "w": linear(2, 3)},
         "its Output shows 'n', but the outputs of a network are the layers that feed no other, 'z'; read the others "
         "from run.spikes, and remove nodes that are left over"),
        ("input > f > n > w > output, n > v > z", {"w": linear(3, 3), "v": linear(2, 3), "z": lif(2)},
         "its Output shows 'output', but "),
        ("input > f > n > output, n > w > z > v > z", {"z": lif(2), "w": linear(2, 3), "v": linear(2, 2)},
         "its Output shows 'n', but the outputs of a network are the layers that feed no other, 'z'; "),
        ("input > f > n > output, n > w > z > o", {"z": lif(2), "w": linear(2, 3), "o": outputs(2)},
         "its Outputs show 'n', 'z', but the outputs of a network are the layers that feed no other, 'z'; read "),
        ("input > f > n > output", {"z": lif(2)},
         "no edge names 'z', so the network has it as an output; remove it if it is left over"),
        ("input > f > n, z > v > y", {"z": lif(2), "v": linear(2, 2), "y": lif(2), "x": lif(2)},
         "no edge names 'x', so the network has it as an output; remove it if it is left over"),
    ],
)  # fmt: skip
def test_outputs_that_the_graph_does_not_show_are_said(path, more, text):
    ends = {"output": outputs(3)} if "output" in path else {}
    source = graph(path, type_check=False, input=inputs(2), f=linear(3, 2), n=lif(3), **ends, **more)
    with pytest.warns(NwWarning) as caught:
        from_nir(source, **ZERO)
    (said,) = [str(warning.message) for warning in caught]
    assert said.startswith(f"NIR graph: {text}")


def test_several_outputs_are_the_outputs_of_the_network():
    """A layer each, the second behind an Identity, and weights, which become a readout of the Output's name."""
    same = nir.ir.graph.Identity({"output": np.array([2])})
    g = graph(
        "input > f > n > one, n > w > sum, input > v > z > same > two", type_check=False, input=inputs(2),
        f=linear(3, 2), n=lif(3), one=outputs(3), w=linear(4, 3), sum=outputs(4),
        v=linear(2, 2), z=lif(2), same=same, two=outputs(2),
    )  # fmt: skip
    with pytest.warns(NwWarning, match="its Outputs show 'n', 'sum', 'z', but "):
        network = from_nir(g, **ZERO)
    assert set(network.outputs) == {"sum", "z"} and network.layers == ("n", "z", "sum")
    run = simulate(network, np.ones((1, 12, 2)))
    np.testing.assert_allclose(run.output["sum"][0], run.spikes["n"][0].astype(np.float32) @ g.nodes["w"].weight.T)
    assert run.output["z"].any() and run.spikes["n"].any()


def test_outputs_of_layers_apart_need_no_warning():
    g = graph("input > f > n > one, input > v > z > two", input=inputs(2), f=linear(3, 2), n=lif(3), one=outputs(3),
              v=linear(2, 2), z=lif(2), two=outputs(2))  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert set(from_nir(g, **ZERO).outputs) == {"n", "z"}


EXAMPLES = {
    "Input": None,
    "Output": None,
    "Linear": lambda a: nir.Linear(np.eye(2)),
    "Affine": lambda a: nir.Affine(np.eye(2), a(0.5)),
    "Scale": lambda a: nir.Scale(a(2.0)),
    "Identity": lambda a: nir.ir.graph.Identity({"output": np.array([2])}),
    "Flatten": lambda a: nir.Flatten({"input": np.array([2])}, 0, -1),
    "Delay": lambda a: nir.Delay(a(1e-4)),
    "Threshold": lambda a: nir.Threshold(a(0.5)),
    "IF": lambda a: nir.IF(a(1.0), a(0.5)),
    "LIF": lambda a: nir.LIF(a(4e-4), a(4.0), a(0.0), a(0.5), a(0.0)),
    "CubaLIF": lambda a: nir.CubaLIF(a(4e-4), a(4e-4), a(4.0), a(0.0), a(0.5), a(0.0), a(4.0)),
    "I": lambda a: nir.I(a(1.0)),
    "LI": lambda a: nir.LI(a(4e-4), a(4.0), a(0.0)),
    "CubaLI": lambda a: nir.CubaLI(a(4e-4), a(4e-4), a(4.0), a(0.0), a(4.0)),
    "Conv1d": lambda a: nir.Conv1d(2, np.ones((2, 1, 1)), 1, 0, 1, 1, np.full(2, 0.5)),
    "Conv2d": lambda a: nir.Conv2d((1, 2), np.ones((2, 1, 1, 1)), 1, 0, 1, 1, np.full(2, 0.5)),
    "SumPool2d": lambda a: nir.SumPool2d(*map(np.array, (1, 1, 0))),
    "AvgPool2d": lambda a: nir.AvgPool2d(*map(np.array, (1, 1, 0))),
    "NIRGraph": lambda a: graph("in > n > out", **{"in": inputs(2), "n": if_node(2), "out": outputs(2)}),
}
SHAPES = {"Conv1d": (1, 2), "Conv2d": (1, 1, 2), "SumPool2d": (1, 1, 2), "AvgPool2d": (1, 1, 2)}
MEMBRANES = ("I", "LI", "CubaLI")  # They give no spikes, so they stand before the output.


def node_types(kind=nir.ir.NIRNode) -> set[str]:
    """The names of all types of nodes that the nir package has."""
    return {name for c in kind.__subclasses__() for name in (c.__name__, *node_types(c)) if c.__module__[:4] == "nir."}


@pytest.mark.parametrize("kind", sorted({*EXAMPLES, *node_types()}))
def test_every_node_type_of_nir_is_read_with_arrays_and_scalars(kind):
    """A type that a new release of nir brings fails here until the reader knows it, and it stands in docs/nir.md."""
    assert kind in (*PARAMETERS, "NIRGraph")
    if EXAMPLES[kind] is None:
        return
    shape = SHAPES.get(kind, (2,))
    runs = []
    for size in ((2,), ()):
        made = EXAMPLES[kind](lambda value, size=size: np.full(size, value))
        chain = "input > k > output" if kind in MEMBRANES else "input > k > n > output"
        g = graph(chain, type_check=False, input=inputs(*shape), k=made, n=nir.IF(*map(np.array, (1.0, 0.75))),
                  output=outputs(2))  # fmt: skip
        if kind in MEMBRANES:
            del g.nodes["n"]
        network = from_nir(g, **ZERO)
        runs.append(simulate(network, np.ones((1, 6, *shape)), record="all"))
    assert runs[0].output.any() and np.array_equal(runs[0].output, runs[1].output)


def test_module_that_an_exporter_left_empty_is_named():
    g = one_layer(lif(3))
    g.nodes["fc"] = None  # as norse's exporter does for a Flatten
    assert error(g) == "NIR graph: node 'fc' is None; its exporter has no NIR node for that module"
