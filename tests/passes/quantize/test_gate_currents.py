"""Products of currents and single spikes on chips whose neurons send numbers: exact in every backend, or refused."""

import numpy as np
import pytest

import nwcompile as nw
from nwcompile.errors import FitError, ModelError
from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import MatMul
from nwcompile.passes.prepare.normalize import normalize
from nwcompile.passes.quantize.gate_currents import build_gate, build_mark, gate_currents, is_gate, is_mark
from nwcompile.report import collect_report

ROWS, INNER, COLUMNS = 3, 4, 5
SAMPLES = (np.random.default_rng(3).random((4, 7, 8)) < 0.4).astype(np.float32)
SPEC = nw.NeuronSpec(beta=0.5, threshold=0.5)


def dual(currents="left", bias=0.0, delay=0, spec=SPEC, out=SPEC):
    """Spikes of a layer times weighted sums of them, as in the attention of SpikingResformer, and neurons behind.

    Weights are multiples of a power of two, so that float32 rounds nothing. `delay`: of the spikes and the product.
    """
    rng = np.random.default_rng(1)
    sizes = {"left": ROWS * INNER, "right": INNER * COLUMNS}
    n = sum(sizes.values())
    rows = {"left": np.arange(ROWS * INNER), "right": np.arange(ROWS * INNER, n)}
    other = "right" if currents == "left" else "left"
    weight = np.zeros((n, n), np.float32)
    weight[rows[currents]] = rng.integers(-4, 6, (sizes[currents], n)) / 8
    shift = np.zeros(n, np.float32)
    shift[rows[currents]] = bias * rng.integers(-2, 3, sizes[currents])
    picked = nw.Sparse(
        "s", "both", pre=rows[other], post=rows[other], weight=np.ones(sizes[other], np.float32), delay=delay
    )
    edges = [
        nw.Dense("x", "s", rng.integers(-4, 8, (n, 8)).astype(np.float32) / 8),
        nw.Dense("s", "both", weight, shift),
        picked,
        MatMul("both", "product", left=(1, ROWS, INNER), right=(1, INNER, COLUMNS), delay=delay),
        nw.Scale("product", "out", 0.5),
    ]
    layers = {"s": (spec, n), "both": (None, n), "product": (None, ROWS * COLUMNS), "out": (out, ROWS * COLUMNS)}
    return nw.Network.from_arrays(layers, edges, {"x": 8})


@pytest.mark.parametrize(
    "changes", [{}, {"currents": "right"}, {"bias": 0.25}, {"bias": 0.125, "delay": 2, "currents": "right"}]
)
def test_gates_multiply_currents_by_spikes(changes):
    net = dual(**changes)
    gated, rows = gate_currents(normalize(net), Chip.load("loihi2"), nw.Options())
    wanted, made = (nw.simulate(n, SAMPLES).spikes for n in (net, gated))
    np.testing.assert_array_equal(made["out"], wanted["out"])
    assert 0.05 < wanted["out"].mean() < 0.95 and "both" not in gated.nodes
    n_currents, n_spikes = (20, 12) if changes.get("currents") == "right" else (12, 20)
    how = f"{n_currents} neurons send currents, {n_spikes} send spikes, 60 send the products"
    assert [(row.layer, row.how, row.label) for row in rows] == [("product", how, "exact")]


@pytest.mark.parametrize(("chip", "least"), [("loihi2", 0.97), ("spinnaker2", 0.9)])
@pytest.mark.parametrize("changes", [{"bias": 0.25}, {"currents": "right", "delay": 1}])
def test_products_of_integers_are_exact_in_every_backend(chip, least, changes):
    net = dual(**changes)
    program = nw.compile(net, chip, SAMPLES)
    nw.crosscheck(program, SAMPLES)
    spikes = nw.simulate(program, SAMPLES, backend="sequence").spikes
    currents, marks, gates = (spikes[f"product/{name}"] for name in ("currents", "marks", "gates"))
    assert (currents < 0).any() and np.abs(currents).max() > 16, "numbers of either sign, not single spikes"
    gates, spike = gates.reshape(4, 7, ROWS, INNER, COLUMNS), marks > 0
    if currents.shape[-1] == ROWS * INNER:
        current, spike = currents.reshape(4, 7, ROWS, INNER, 1), spike.reshape(4, 7, 1, INNER, COLUMNS)
    else:
        current, spike = currents.reshape(4, 7, 1, INNER, COLUMNS), spike.reshape(4, 7, ROWS, INNER, 1)
    np.testing.assert_array_equal(gates, current * spike)
    assert (spikes["out"] == nw.simulate(net, SAMPLES).spikes["out"]).mean() > least


def test_report_says_that_currents_are_numbers():
    program = nw.compile(dual(), "loihi2", SAMPLES)
    text = collect_report(program, nw.simulate(program, SAMPLES))["multi_spike"]["text"]
    senders = [f"layer product/{name}" for name in ("currents", "marks", "gates")]
    assert text.startswith(f"{senders[0]} sends numbers beyond 1 in ") and "several spikes" not in text
    assert all(name in text for name in senders)


def test_a_chip_that_sends_no_numbers_refuses_products_of_currents():
    with pytest.raises(FitError) as error:
        nw.compile(dual(), "loihi1", SAMPLES)
    assert (
        "product of spikes  both -> product  must be counts times spikes, is currents times spikes  use a chip whose "
        "neurons are programs and send signed numbers, such as loihi2 or spinnaker2" in str(error.value)
    )


def test_currents_of_several_spikes_per_step_are_refused():
    several = nw.NeuronSpec(beta=0.5, threshold=0.5, spikes="multi", reset="subtract")
    with pytest.raises(FitError, match="must be a product with spikes, is a product of other numbers"):
        nw.compile(dual(spec=several), "loihi2", SAMPLES)


def test_currents_of_unknown_size_need_samples():
    with pytest.raises(ModelError, match="sends currents as numbers.*; give calibration samples"):
        nw.compile(dual(), "loihi2")


def test_currents_that_marks_do_not_exceed_are_refused():
    chip = Chip.load("spinnaker2").replace({"state.bits": 12})
    with pytest.raises(
        FitError, match=r"product of spikes  product \(its currents\)  \d+ of 511  use fewer weight bits"
    ):
        nw.compile(dual(), chip, SAMPLES)


def test_programs_of_the_same_names_are_the_users():
    mark, gate = (build(8.0, False) for build in (build_mark, build_gate))
    assert is_mark(mark) and is_gate(gate) and not is_mark(gate) and not is_gate(mark)
    for program, judge in ((mark, is_mark), (gate, is_gate)):
        other = nw.NeuronProgram(program.name, (), program.operations[:1], program.operations[0].result, "graded")
        assert not judge(other) and not judge(SPEC)


def test_messages_that_are_repeated_carry_no_currents():
    with pytest.raises(FitError, match="is currents times spikes  leave out on_multi_spike='repeat'"):
        nw.compile(dual(), "loihi2", SAMPLES, nw.Options(on_multi_spike="repeat"))


def test_messages_too_narrow_for_currents_are_refused():
    chip = Chip.load("loihi2").replace({"noc.payload_bits": 8})
    with pytest.raises(
        FitError, match=r"payload bits  product \(its currents\)  14 of 8  raise noc.payload_bits, or use fewer"
    ):
        nw.compile(dual(), chip, SAMPLES)


@pytest.mark.parametrize("chip", ["loihi2", "spinnaker2"])
def test_currents_without_weights_are_constants(chip):
    net = dual(bias=0.5)
    edges = [c.replace(weight=np.zeros_like(c.weight)) if c.target == "both" and c.bias is not None else c
             for c in net.connections]  # fmt: skip
    net = nw.Network(net.inputs, net.nodes, tuple(edges))
    program, wanted = nw.compile(net, chip, SAMPLES), nw.simulate(net, SAMPLES).spikes["out"]
    np.testing.assert_array_equal(nw.simulate(program, SAMPLES).spikes["out"], wanted)
    assert wanted.any()


def test_training_in_integers_has_no_products_of_currents():
    with pytest.raises(FitError, match="is currents times spikes  train it in float and compile it; training in int"):
        nw.nn.QuantizedNetwork(dual(), "loihi2", SAMPLES)
