"""Matrix products of spikes on chips: pair neurons, exact in every backend, or a refusal that says what is missing."""

import numpy as np
import pytest

import nwcompile as nw
from nwcompile.errors import FitError
from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import MatMul
from nwcompile.passes.analyze.nonlinear import find_products, largest_counts
from nwcompile.passes.legalize.legalize import legalize
from nwcompile.passes.legalize.multiply_spikes import PAIRS, move_factors, verify_pairs
from nwcompile.passes.prepare.normalize import normalize
from nwcompile.passes.quantize.quantize import quantize

HEADS, TOKENS, FEATURES = 2, 5, 3
N = HEADS * TOKENS * FEATURES
SAMPLES = (np.random.default_rng(3).random((4, 6, 8)) < 0.4).astype(np.float32)


def attention(spec=None, gain=0.25, query="qkv", factor=1.0, query_factor=1.0, bias=None):
    """Spikes q, k, v of one layer, `(v @ k.T) @ q` of every head times `gain`, and neurons that are driven by it.

    `factor` and `bias`: of the scores between the products; `query_factor`: of q.
    """
    weight = np.random.default_rng(1).integers(-4, 8, (3 * N, 8)).astype(np.float32) / 8
    v, k, q = np.split(np.arange(3 * N), 3)
    turned = k.reshape(HEADS, FEATURES, TOKENS).transpose(0, 2, 1).ravel()
    spec = spec or nw.NeuronSpec(beta=0.5, threshold=0.4)
    layers = {"qkv": spec, "first": (None, 2 * N), "scores": (None, HEADS * FEATURES**2), "second": (None, 18 + N)}
    edges = [
        nw.Dense("x", "qkv", weight),
        picked("qkv", "first", np.concatenate([v, turned])),
        MatMul("first", "scores", left=(HEADS, FEATURES, TOKENS), right=(HEADS, TOKENS, FEATURES)),
        picked("scores", "second", np.arange(18), weight=factor, bias=bias),
        picked(query, "second", q if query == "qkv" else q % 8, 18, weight=query_factor),
        MatMul("second", "product", left=(HEADS, FEATURES, FEATURES), right=(HEADS, FEATURES, TOKENS)),
        nw.Scale("product", "out", gain),
    ]
    layers |= {"product": (None, N), "out": (nw.NeuronSpec(beta=0.5, threshold=0.9), N)}
    return nw.Network.from_arrays(layers, edges, {"x": 8})


def picked(source, target, pre, first=0, weight=1.0, bias=None):
    weight = np.broadcast_to(np.float32(weight), len(pre))
    return nw.Sparse(source, target, pre=pre, post=first + np.arange(len(pre)), weight=weight, bias=bias)


@pytest.fixture(scope="module")
def program():
    return nw.compile(attention(), "loihi2", SAMPLES)


def test_multiply_spikes_is_exact_in_every_backend(program):
    nw.crosscheck(program, SAMPLES)
    wanted = nw.simulate(attention(), SAMPLES)
    run = nw.simulate(program, SAMPLES, backend="sequence")
    for layer in ("qkv", "out"):
        assert 0.1 < wanted.spikes[layer].mean() < 0.9
        np.testing.assert_array_equal(run.spikes[layer], wanted.spikes[layer])
    v, k, q = np.split(run.spikes["qkv"].reshape(4, 6, 3 * HEADS, -1).astype(int), 3, axis=2)
    v, k, q = (s.reshape(4, 6, HEADS, FEATURES, TOKENS) for s in (v, k, q))
    scores = v @ k.swapaxes(-1, -2)
    assert scores.max() > 2
    pairs = run.spikes[PAIRS.format("scores")].reshape(4, 6, HEADS, FEATURES, TOKENS, FEATURES)
    np.testing.assert_array_equal(pairs, v[..., None] * k.swapaxes(-1, -2)[..., None, :, :])
    gated = run.spikes[PAIRS.format("product")].reshape(4, 6, HEADS, FEATURES, FEATURES, TOKENS)
    np.testing.assert_array_equal(gated, scores[..., None] * q[..., None, :, :])


def test_multiply_spikes_says_what_it_made(program):
    rows = [(row["layer"], row["how"], row["label"]) for row in program.manifest["legalization"]]
    assert rows == [
        ("scores", "90 pair neurons, one for every product of two", "exact"),
        ("product", "90 pair neurons, one for every product of two", "exact"),
    ]


@pytest.mark.parametrize(
    ("factor", "query_factor"), [(0.125, 1.0), (-0.5, 1.0), (0.3, -2 / 3), (np.tile([0.25, 0.75], 9), 1.0)]
)
def test_factors_of_counts_move_behind_the_product(factor, query_factor):
    net = attention(gain=0.25 / np.ravel(factor)[0] / query_factor, factor=factor, query_factor=query_factor)
    moved = move_factors(normalize(net))
    (product,) = [c for c in find_products(moved) if "product" in c.target]
    assert largest_counts(moved, product) == (TOKENS * (3 if np.size(factor) > 1 else 1), 1)
    wanted = nw.simulate(net, SAMPLES).spikes["out"]
    np.testing.assert_array_equal(nw.simulate(moved, SAMPLES).spikes["out"], wanted)
    program = nw.compile(net, "loihi2", SAMPLES)
    nw.crosscheck(program, SAMPLES)
    np.testing.assert_array_equal(nw.simulate(program, SAMPLES, backend="sequence").spikes["out"], wanted)
    assert 0.05 < wanted.mean() < 0.95


@pytest.mark.parametrize(
    "changes", [{"factor": np.linspace(0.1, 0.9, 18)}, {"factor": 0.125, "bias": np.full(18 + N, 0.5)}, {}]
)
def test_numbers_that_are_no_multiples_of_counts_do_not_move(changes):
    network = normalize(attention(**changes))
    assert move_factors(network) is network


def test_largest_counts_follows_sums_of_spikes_only():
    first, second = find_products(network := normalize(attention()))
    assert (first.target, second.target) == ("scores", "product")
    assert largest_counts(network, first) == (1, 1) and largest_counts(network, second) == (TOKENS, 1)
    assert largest_counts(normalize(attention(query="x")), second) is None


def test_two_products_of_one_layer_have_pair_neurons_each():
    rng = np.random.default_rng(0)
    first, second = rng.permutation(32), rng.permutation(32)
    spec = nw.NeuronSpec(beta=0.5, threshold=0.5)
    edges = [
        nw.Dense("x", "s", rng.integers(-4, 8, (32, 8)).astype(np.float32) / 8),
        picked("s", "a", first),
        picked("s", "b", second),
        *(MatMul(name, "out", left=(1, 3, 4), right=(1, 4, 5)) for name in "ab"),
    ]
    layers = {"s": (spec, 32), "a": (None, 32), "b": (None, 32), "out": (spec.replace(threshold=2.5), 15)}
    net = nw.Network.from_arrays(layers, edges, {"x": 8})
    program, wanted = nw.compile(net, "loihi2", SAMPLES), nw.simulate(net, SAMPLES).spikes["out"]
    assert {PAIRS.format("out"), PAIRS.format("out/2")} <= {*program.network.layers}
    np.testing.assert_array_equal(nw.simulate(program, SAMPLES).spikes["out"], wanted)
    assert 0.05 < wanted.mean() < 0.95


def shrunk(chip, n_neurons):
    one_core = {"noc.columns": 1, "noc.rows": 1, "noc.cores_per_router": 1}
    return Chip.load(chip).replace({"core.max_neurons": n_neurons, **one_core})


REFUSED = {
    "counts on a chip of single spikes": (
        lambda: attention(),
        "loihi1",
        "product of spikes  second -> product  must be one spike per step, is counts up to 5  use a chip whose neurons "
        "send counts, or attention by masks",
    ),
    "another factor": (
        lambda: attention(query="x"),
        "loihi2",
        "product of spikes  second -> product  must be a product with spikes, is a product of other numbers  multiply "
        "the spikes of layers only, as they are or added up, one factor of them single spikes",
    ),
    "several spikes per step": (
        lambda: attention(nw.NeuronSpec(spikes="multi", reset="subtract", threshold=0.4)),
        "loihi2",
        "product of spikes  first -> scores  must be a product with spikes, is a product of other numbers  multiply",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_products_that_no_neurons_can_be_are_refused(name):
    make, chip, text = REFUSED[name]
    with pytest.raises(FitError) as error:
        nw.compile(make(), chip, SAMPLES)
    assert text in str(error.value)


def test_products_of_more_pairs_than_neurons_are_refused():
    with pytest.raises(FitError) as error:
        nw.compile(attention(), shrunk("loihi2", 299), SAMPLES)
    assert (
        "product of spikes  first -> scores and 1 more  300 neurons, with one for every product of two, of 299  use "
        "fewer tokens or features, or attention by masks; else it takes cores" in str(error.value)
    )
    assert "the spikes of one factor write the weights that those of the other read, which no chip file has" in str(
        error.value
    )


@pytest.mark.parametrize(
    ("pre", "left", "right"),
    [
        ([[0], [0]], (1, 1, 1), (1, 1, 1)),  # every neuron times itself
        ([[0, 1], [0, 1]], (2, 1, 1), (2, 1, 1)),
        ([[0, 1], [0, 1]], (1, 2, 1), (1, 1, 2)),  # some of them
        ([[0, 1], [0]], (1, 1, 1), (1, 1, 1)),  # a count of two, one of them the other factor
        ([[0], []], (1, 1, 1), (1, 1, 1)),  # a factor that no neuron drives
    ],
)
def test_neurons_times_themselves_are_exact(pre, left, right):
    spec = nw.NeuronSpec(beta=0.5, threshold=0.5)
    n_left, n_right = int(np.prod(left)), int(np.prod(right))
    post = [*(k % n_left for k in range(len(pre[0]))), *(n_left + k for k in range(len(pre[1])))]
    gather = nw.Sparse("s", "f", pre=sum(pre, []), post=post, weight=np.ones(len(post), np.float32))
    weight = np.random.default_rng(1).integers(1, 8, (2, 8)).astype(np.float32) / 8
    layers = {"s": (spec, 2), "f": (None, n_left + n_right), "o": (spec, left[0] * left[1] * right[2])}
    edges = [nw.Dense("x", "s", weight), gather, MatMul("f", "o", left=left, right=right)]
    net = nw.Network.from_arrays(layers, edges, {"x": 8})
    program = nw.compile(net, "loihi2", SAMPLES)
    nw.crosscheck(program, SAMPLES)
    wanted = nw.simulate(net, SAMPLES).spikes["o"]
    np.testing.assert_array_equal(nw.simulate(program, SAMPLES, backend="sequence").spikes["o"], wanted)
    assert wanted.any() == bool(pre[1])


@pytest.mark.parametrize(("layer", "changes"), [("scores", {"threshold": 2.0}), ("product", {"bias": 0.2})])
def test_verify_pairs_finds_neurons_that_do_not_multiply(layer, changes):
    chip = Chip.load("loihi2")
    legal = legalize(normalize(attention()), chip, nw.Options()).network
    fixed = quantize(legal, chip, None, nw.Options()).network
    verify_pairs(fixed, chip)
    name = PAIRS.format(layer)
    spec = fixed.node(name).neuron
    wrong = {key: np.asarray(getattr(spec, key) * value, np.int64) for key, value in changes.items()}
    nodes = {**fixed.nodes, name: type(fixed.node(name))(name, fixed.node(name).shape, spec.replace(**wrong))}
    with pytest.raises(
        FitError,
        match=f"product of spikes  {name}  must be counts of 8 bits, is counts to [0-9]+  use fewer tokens or features",
    ):
        verify_pairs(nw.Network(fixed.inputs, nodes, fixed.connections), chip)
