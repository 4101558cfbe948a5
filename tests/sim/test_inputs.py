"""What a person may feed a network, and what each wrong array is told."""

import numpy as np
import pytest
import torch

from nwcompile.errors import BackendError, ModelError, OptionError
from nwcompile.ir.activity import Activity
from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Dense
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.network import Network
from nwcompile.passes.emit import emit
from nwcompile.sim import simulate
from nwcompile.sim.crosscheck import crosscheck
from nwcompile.sim.inputs import prepare_inputs
from tests.made.nets import FIXED, dense_net, feed_forward

NETWORK = dense_net(3, 2)
BINARY = Chip.load("loihi1")


def program():
    mapping = Mapping.from_arrays({"fc1": [0, 0]}, [[0, 0, 0]])
    return emit(NETWORK, feed_forward(NETWORK), mapping, BINARY, Activity.uniform(NETWORK), {})


def refused(x, steps=None, network=NETWORK) -> str:
    with pytest.raises(ModelError) as error:
        prepare_inputs(network, x, steps, BINARY)
    return str(error.value)


ONES = np.ones((2, 5, 3))


@pytest.mark.parametrize(
    "x, text",
    [
        (ONES.astype(object), "input 'in' of dtype object must be numbers of shape [B, T, 3]"),
        (ONES.astype(str), "input 'in' of dtype <U32 must be numbers of shape [B, T, 3]"),
        (ONES.astype(complex), "input 'in' of dtype complex128 must be numbers of shape [B, T, 3]"),
        (ONES.astype("m8[s]"), "input 'in' of dtype timedelta64[s] must be numbers of shape [B, T, 3]"),
        (torch.ones(2, 5, 3, dtype=torch.bfloat16),
         "input 'in' must be numbers of shape [B, T, 3]: Got unsupported ScalarType BFloat16"),
        ([[[1], [1, 1]]],
         "input 'in' must be numbers of shape [B, T, 3]: setting an array element with a sequence. The requested array "
         "has an inhomogeneous shape after 2 dimensions. The detected shape was (1, 2) + inhomogeneous part."),
        (ONES * np.nan, "input 'in' has NaN or infinite values; clean the data first"),
        (ONES * 0.1, "input 'in' has the value 0.1, but the integer program takes whole numbers; "
         "encode real values into spikes first (nwcompile.encode does), or compile the model with calibration "
         "samples of such values"),
        (ONES * 1.0000001, "input 'in' has the value 1.0000001, but the integer program takes whole numbers; "
         "encode real values into spikes first (nwcompile.encode does), or compile the model with calibration "
         "samples of such values"),
        (ONES * 2.0**62, "input 'in' has values up to 4611686018427387904; the limit is 8388607"),
        (ONES * 300, "input 'in' has values 300..300, but loihi1 takes spikes 0..1; compile with "
         "on_multi_spike='graded' or 'repeat', encode graded values into spikes, or choose a chip whose neuron.spikes "
         "has 'multi'"),
        (-ONES, "input 'in' has values -1..-1, but loihi1 takes spikes 0..1; compile with "
         "on_multi_spike='graded', encode graded values into spikes, or choose a chip whose neuron.spikes has 'multi'"),
        (ONES[:0], "input 'in' must be [B, T, 3], got shape [0, 5, 3] (give a sample or more)"),
        (ONES[:, :0], "input 'in' must be [B, T, 3], got shape [2, 0, 3] (give a step or more)"),
        (ONES[0], "input 'in' must be [B, T, 3], got shape [5, 3] (is the time axis missing?)"),
        ({"x": ONES}, "there is no input 'x'; inputs: in"),
        (None, "no input: give x of shape [B, T, *shape], or x=None with steps=N"),
    ],
)  # fmt: skip
def test_input_is_refused_in_one_sentence(x, text):
    assert refused(x) == text


@pytest.mark.parametrize("steps", [0, -1, 1.0, "3", True, 1 << 40])
def test_input_steps_are_refused_in_one_sentence(steps):
    assert refused(None, steps) == f"steps={steps!r} must be a whole number from 1 to 2147483647"


def test_input_steps_must_be_those_of_x():
    assert refused(ONES, 3) == "steps=3 but x has T = 5; leave steps out or make them equal"


def test_inputs_of_several_names_must_be_alike():
    edges = [Dense(name, "out", np.ones((1, 3), np.int8)) for name in "ab"]
    network = Network.from_arrays({"out": FIXED}, edges, {"a": 3, "b": 3})
    assert refused(ONES, network=network) == "the network has 2 inputs (a, b); give x as a dict by input name"
    assert refused({"a": ONES, "b": ONES[:1]}, network=network) == (
        "inputs differ in [B, T]: [1, 5], [2, 5]; give them all alike"
    )
    arrays, *sizes = prepare_inputs(network, {"a": ONES}, None)
    assert sizes == [2, 5] and arrays["b"].shape == (2, 5, 3) and not arrays["b"].any()


@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint64, np.float16, np.float64, ">f4"])
def test_input_of_any_kind_of_number_is_the_same(dtype):
    arrays, n_samples, n_steps = prepare_inputs(NETWORK, ONES.astype(dtype), None, BINARY)
    assert (n_samples, n_steps) == (2, 5)
    assert arrays["in"].dtype == np.int32 and (arrays["in"] == 1).all()


@pytest.mark.parametrize(
    "given, kind, text",
    [
        ({"backend": "cyle"}, BackendError, "unknown backend 'cyle'; choose one of: cycle, reference, sequence"),
        ({"device": "gpu"}, OptionError, "unknown device 'gpu'; choose one of: cpu, cuda"),
        ({"device": "cuda"}, BackendError,
         "backend 'reference' has no CUDA kernels; use backend='sequence', or device='cpu'"),
        ({"window": "hard"}, OptionError, "unknown window 'hard'; choose one of: hardware, aligned"),
        ({"record": "al"}, OptionError, "unknown record 'al'; choose one of: all, spikes, totals"),
    ],
)  # fmt: skip
def test_simulate_refuses_unknown_choices(given, kind, text):
    with pytest.raises(kind) as error:
        simulate(program(), ONES, **given)
    assert str(error.value) == text


@pytest.mark.parametrize(
    "against, text",
    [
        ("cycle", "crosscheck needs two backends or more, got cycle"),
        ((), "crosscheck needs two backends or more, got none"),
        (("cycle", "sequense"), "unknown backend 'sequense'; choose one of: sequence, cycle, float, reference"),
    ],
)
def test_crosscheck_refuses_what_it_cannot_compare(against, text):
    with pytest.raises(BackendError) as error:
        crosscheck(program(), ONES, against)
    assert str(error.value) == text
