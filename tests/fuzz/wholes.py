"""Whole files of every kind that is fuzzed: small, and with every part that the readers know."""

import tempfile
import warnings
from functools import cache
from pathlib import Path

import h5py
import numpy as np

from nwcompile.errors import NwWarning
from nwcompile.frontend.nir.write import to_nir
from nwcompile.ir.activity import Activity
from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Dense, Sparse
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import FixedPoint, NeuronSpec
from nwcompile.passes.emit import emit
from nwcompile.passes.prepare.schedule import schedule
from tests.fuzz.trees import read_tree
from tests.made.lava_files import LOIHI, NEURON, dense, pool, write
from tests.made.nets import conv_net, dense_net, sparse_edge
from tests.made.neuron_programs import cuba as cuba_program
from tests.made.nir_graphs import conv, cuba, graph, if_node, inputs, lif, linear, one_layer, outputs, weights


@cache
def nir_trees() -> list[dict]:
    """Trees of NIR files that hold every node type between them, one with a nested graph, three with notes."""
    import nir

    bias = np.zeros(3, np.float32)
    affine = nir.Affine(weights(3, 3), bias)
    flat = nir.Flatten({"input": np.array([2, 2, 2])}, 0, -1)
    image = graph(
        "input > c > s > p > a > d > f > g > out > output", type_check=False, input=inputs(1, 8, 8),
        c=conv(weights(2, 1, 3, 3), stride=(1, 1), padding="same", input_shape=(8, 8)), s=if_node(2, 8, 8),
        p=nir.SumPool2d(np.array([2, 2]), np.array([2, 2]), np.array([0, 0])), a=nir.Threshold(np.ones((2, 4, 4))),
        d=nir.AvgPool2d(np.array([2, 2]), np.array([2, 2]), np.array([0, 0])), f=flat, g=linear(3, 8), out=lif(3),
        output=outputs(3),
    )  # fmt: skip
    series = graph(
        "input > c > n > f > g > k > r > output", type_check=False, input=inputs(2, 6),
        c=nir.Conv1d(6, weights(2, 1, 3), 1, 0, 1, 2, np.zeros(2)), n=lif(2, 4),
        f=nir.Flatten({"input": np.array([2, 4])}, 0, -1), g=linear(3, 8), k=nir.Scale(np.ones(3)), r=nir.I(np.ones(3)),
        output=outputs(3),
    )  # fmt: skip
    recurrent = graph(
        "input > a > c > w > c, c > z > b > l > output", input=inputs(2), a=linear(3, 2), c=cuba(3), w=affine,
        z=nir.Delay(np.full(3, 2e-4)), b=linear(2, 3), l=nir.LI(*(np.full(2, v) for v in (1e-3, 1.0, 0.0))),
        output=outputs(2),
    )  # fmt: skip
    readout = one_layer(nir.CubaLI(*(np.full(3, v) for v in (2e-4, 4e-4, 4.0, 0.0, 2.0))))
    trees = []
    with tempfile.TemporaryDirectory() as folder:
        for made in (one_layer(lif(3)), image, series, recurrent, readout):
            nir.write(f"{folder}/a.nir", made)
            with h5py.File(f"{folder}/a.nir") as file:
                trees.append(read_tree(file))
    outer, inner = trees[0]["node"], trees[3]["node"]
    edges = np.array([(b"input", b"r"), (b"r", b"output")], object)
    nodes = {"input": outer["nodes"]["input"], "r": inner, "output": inner["nodes"]["output"]}
    trees.append({**trees[0], "node": {**outer, "nodes": nodes, "edges": edges}})
    spec = NeuronSpec(beta=0.75, reset="subtract", reset_timing="next", v_min=-1.0, refractory=2)
    whole = NeuronSpec(threshold=np.array([64, 128, 192]), decay_v=300, bias=5, fixed=FixedPoint())
    integers = np.arange(6, dtype=np.int8).reshape(3, 2)
    return [
        *trees,
        _noted_tree(spec, NeuronSpec(alpha=0.5), weights(3, 2), weights(3)),
        _noted_tree(whole, whole.replace(threshold=70), integers, np.array([3, -2, 5])),
        _noted_tree(cuba_program(320, 512, 128), cuba_program(64, 4096, 0), integers, np.array([3, -2, 5])),
    ]


def _noted_tree(first, second, weight: np.ndarray, listed: np.ndarray) -> dict:
    """The tree of a file of to_nir, whose nodes have notes of what NIR cannot say."""
    edges = [Dense("x", "a", weight), Sparse("a", "b", [0, 2, 2], [1, 0, 0], listed, delay=2)]
    network = Network.from_arrays({"a": (first, (3,)), "b": (second, (2,))}, edges, {"x": (2,)})
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", NwWarning)
        to_nir(network, f"{folder}/a.nir")
        with h5py.File(f"{folder}/a.nir") as file:
            return read_tree(file)


@cache
def lava_trees() -> list[dict]:
    """Trees of `.net` files that hold every layer type and neuron type between them."""
    rng = np.random.default_rng(0)

    def some(*shape: int) -> np.ndarray:
        return 2.0 * rng.integers(-3, 9, shape)

    geometry = {"stride": [1, 1], "padding": [0, 0], "dilation": [1, 1], "groups": 1}
    image = [
        {"type": [b"input"], "shape": [2, 6, 6], "weight": [4.0], "bias": [1.0], "neuron": LOIHI},
        {"type": [b"conv"], "shape": [3, 4, 4], "weight": some(3, 2, 3, 3, 1), **geometry, "bias": [1.0, -2.0, 3.0],
         "neuron": LOIHI},
        pool([3, 2, 2], [2, 2]),
        {"type": [b"flatten"], "shape": [12]},
        dense(some(4, 12), neuron={**LOIHI, "wgtExp": 1}),
    ]  # fmt: skip
    plain = [dense(some(5, 4), delay=[1.0]), dense(some(3, 5), bias=[1.0]), {"type": [b"average"], "shape": [3]}]
    loop = [dense(some(4, 3)), dense(some(4, 4), type=[b"dense_rec"], weight_rec=some(4, 4))]
    other = [dense(some(3, 4), neuron={**NEURON, "refDelay": 3, "iDecay": 700}), dense(some(2, 3), neuron=LOIHI)]
    trees = []
    with tempfile.TemporaryDirectory() as folder:
        for layers in (image, plain, loop, other):
            with h5py.File(write(Path(folder) / "a.net", layers)) as file:
                trees.append(read_tree(file))
    return trees


@cache
def program_files() -> list[bytes]:
    """Programs of a recurrent, a convolutional and a sparse network, pipelined and phased."""
    sparse = dense_net(5, 4)
    edge = sparse_edge("fc1", "fc1", 4, 4, 9, delay=1)
    networks = [
        dense_net(5, 4, 3, recurrent=True),
        conv_net(),
        Network(sparse.inputs, sparse.nodes, (*sparse.connections, edge)),
    ]
    files = []
    for network, execution in zip(networks, ("pipelined", "phased", "pipelined"), strict=True):
        of = {name: np.arange(network.node(name).n_neurons) % 3 for name in network.layers}
        mapping = Mapping.from_arrays(of, [[0, 0, 0], [1, 0, 0], [1, 1, 0]])
        timing = schedule(network, execution)
        activity = Activity.uniform(network)
        manifest = {"warnings": [], "options": {}, "quantization": [{"layer": "fc1", "scale": 1.0}]}
        files.append(emit(network, timing, mapping, Chip.load("tiny"), activity, manifest).data)
    return files
