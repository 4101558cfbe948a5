"""Rules of neurons: as few as there are different neurons, whatever the size of their layer."""

import numpy as np

from nwcompile.ir.network import Network
from nwcompile.ir.neuron import FixedPoint, NeuronSpec
from nwcompile.sim.sequence.tables import neuron_tables


def test_neurons_have_the_rules_of_their_layers_and_share_them():
    rng = np.random.default_rng(0)
    bias, threshold = rng.integers(-9, 9, (3, 1, 1)), rng.integers(1, 4, (3, 4, 5))
    plain = NeuronSpec(threshold=64, fixed=FixedPoint(), decay_v=100)
    mixed = plain.replace(bias=bias, threshold=threshold, v_min=-7, reset="value", reset_value=5)
    layers = {"a": (plain, (3, 4, 5)), "b": (plain.replace(bias=bias), (3, 4, 5)), "c": (mixed, (3, 4, 5))}
    network = Network.from_arrays(layers, [], {"in": 1})
    made = neuron_tables(network, ["a", "b", "c"])
    assert made.rule_of.dtype == np.int32 and len(made.rule_of) == 180
    pairs = np.unique(np.stack([np.broadcast_to(bias, (3, 4, 5)), threshold]).reshape(2, -1), axis=1).shape[1]
    assert len(made.rule) == 1 + len(np.unique(bias)) + pairs
    for i, name in enumerate("abc"):
        rules = made.rule[made.rule_of[60 * i : 60 * i + 60]]
        spec = network.node(name).neuron
        for number in ("threshold", "decay_u", "decay_v", "bias", "bias_u", "refractory"):
            assert np.array_equal(rules[number], spec.array(number, (3, 4, 5)).reshape(-1)), number
    assert set(rules["v_min"]) == {-7} and set(rules["reset_value"]) == {5}
