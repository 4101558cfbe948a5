"""NeuronSpec: arrays of one number per channel, per neuron, or broadcast, mean the same in every backend."""

import numpy as np
import pytest

from nwcompile import flow
from nwcompile.errors import ModelError
from nwcompile.ir.connection import Conv2d
from nwcompile.ir.network import Network, Node
from nwcompile.ir.neuron import FixedPoint, NeuronSpec
from nwcompile.sim import BACKENDS, simulate
from tests.made.nets import integers

SHAPE = (3, 2, 3)  # as many channels as columns
FLOAT = NeuronSpec(threshold=1.0, reset="value", beta=0.5, refractory=0)
FIXED = NeuronSpec(threshold=256, reset="value", fixed=FixedPoint())
PER_CHANNEL = {
    "float": {"threshold": [1.0, 2.0, 4.0], "beta": [0.0, 0.5, 1.0], "bias": [0.5, -0.5, 0.25], "v_min": [-1.0, 0, -9]},
    "fixed": {"threshold": [64, 200, 300], "decay_v": [0, 2048, 4096], "bias": [9, -64, 1], "reset_value": [1, -5, 9],
              "refractory": [0, 1, 3], "v_min": [-100, 0, -900], "bias_u": [1, 0, -1], "decay_u": [4096, 0, 300]},
}  # fmt: skip


def net(spec: NeuronSpec, fields: dict) -> Network:
    weight = integers((3, 1, 3, 3), 3)
    edge = Conv2d("in", "a", weight if spec.fixed is not None else weight.astype(np.float32) / 4, padding=(1, 1))
    return Network.from_arrays({"a": spec.replace(**fields)}, [edge], {"in": (1, *SHAPE[1:])})


@pytest.mark.parametrize("kind", ["float", "fixed"])
def test_neuron_array_of_one_number_per_channel_is_not_one_per_column(kind):
    spec = {"float": FLOAT, "fixed": FIXED}[kind]
    flat = {name: np.array(values) for name, values in PER_CHANNEL[kind].items()}
    whole = {name: np.broadcast_to(values[:, None, None], SHAPE) for name, values in flat.items()}
    x = np.random.default_rng(0).integers(0, 2, (2, 20, 1, *SHAPE[1:]))
    wanted = simulate(net(spec, whole), x, record="all")
    columns = {name: np.broadcast_to(values, SHAPE) for name, values in flat.items()}
    assert not np.array_equal(simulate(net(spec, columns), x).spikes["a"], wanted.spikes["a"])
    network = net(spec, flat)
    run = simulate(network, x, record="all")
    assert np.array_equal(run.spikes["a"], wanted.spikes["a"])
    assert np.array_equal(run.states["a"]["v"], wanted.states["a"]["v"])
    one_by_one = net(spec, {name: values.reshape(-1) for name, values in whole.items()})
    assert np.array_equal(simulate(one_by_one, x).spikes["a"], wanted.spikes["a"])
    program = flow.compile(network, "tiny", x)
    if kind == "fixed":
        for backend in BACKENDS:
            assert np.array_equal(simulate(program, x, backend).spikes["a"], wanted.spikes["a"]), backend
    else:
        assert np.array_equal(simulate(program, x, "cycle").spikes["a"], wanted.spikes["a"])


def test_neuron_array_of_another_length_broadcasts_or_is_refused():
    spec = FLOAT.replace(threshold=np.array([1.0, 2.0]))
    assert Node("a", (2, 3, 5), spec).neuron.array("threshold", (2, 3, 5))[1].min() == 2
    assert Node("a", (4, 2), spec).neuron.array("threshold", (4, 2))[:, 1].tolist() == [2, 2, 2, 2]
    assert Node("a", (2,), spec).neuron is spec
    with pytest.raises(ModelError) as error:
        spec.verify("a", (3, 4, 5))
    assert str(error.value) == "layer 'a': threshold of shape (2,) does not broadcast to the layer's shape (3, 4, 5)"


@pytest.mark.parametrize(
    "fields, text",
    [
        ({"v_min": 1}, "v_min <= 0, not 1"),
        (
            {"v_min": -1, "reset_timing": "next"},
            "a reset, reset_timing='now' and spikes='binary', not 'zero', 'next' and 'binary'",
        ),
    ],
)
def test_negative_threshold_errors_say_what_it_needs(fields, text):
    with pytest.raises(ModelError) as error:
        NeuronSpec(clamp="reset", **fields).verify("a", (1,))
    assert str(error.value) == f"layer 'a': clamp='reset' needs {text}"
