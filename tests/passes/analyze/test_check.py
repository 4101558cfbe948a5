"""Every limit that is exceeded is named, with layer, core, used, limit and advice; what fits passes."""

import tracemalloc

import numpy as np
import pytest

from nwcompile.errors import FitError, ModelError
from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Conv2d, Dense, Sparse
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import FixedPoint, NeuronSpec
from nwcompile.ir.schedule import Schedule
from nwcompile.passes.analyze.check import check, estimate, least_cores
from tests.made.chips import small_chip
from tests.made.nets import FIXED, dense_net, feed_forward, integers
from tests.made.violations import lines

ADVICE = "or take a chip whose neuron."


def one_layer(**changes) -> Network:
    return dense_net(2, 3, spec=FIXED.replace(**changes))


def test_check_passes_what_fits():
    assert lines(dense_net(4, 8, 3, recurrent=True), small_chip()) == []


def test_check_lists_every_violation_at_once():
    chip = small_chip(core__max_neurons=4, core__max_in_axons=8, core__max_out_axons=3, core__synapse_bits=500)
    network = dense_net(9, 5, 2, spec=FIXED.replace(strict=False))
    mapping = Mapping.from_arrays({"fc1": [0] * 5, "fc2": [1] * 2}, chip.sites[:2])
    with pytest.raises(FitError) as error:
        check(network, chip, feed_forward(network), mapping)
    strict = "must be v > threshold, is v >= threshold  change the threshold of {0} by one and its strict to True"
    assert str(error.value) == "\n".join([
        "6 limits exceeded on small",
        f"  strict  fc1  {strict.format('fc1')}, {ADVICE}strict has it",
        f"  strict  fc2  {strict.format('fc2')}, {ADVICE}strict has it",
        "  neurons  fc1 -> core 0  5 of 4  split fc1 over 2 cores or raise core.max_neurons",
        "  fan-in axons  fc1 -> core 0  9 of 8  one neuron of fc1 alone takes 9: give it fewer inputs or raise "
        "core.max_in_axons",
        "  fan-out axons  fc1 -> core 0  5 of 3  split fc1 over 2 cores or raise core.max_out_axons",
        "  synapse memory  fc1 -> core 0  576 of 500  one neuron of fc1 alone takes 576: give it fewer inputs or "
        "raise core.synapse_bits",
    ])  # fmt: skip


def test_check_judges_each_core_by_its_own_site():
    chip = small_chip(core__max_neurons=[2, 9] * 6)
    network = dense_net(3, 5)
    assert lines(network, chip, mapping=Mapping.from_arrays({"fc1": [0] * 5}, chip.sites[1:2])) == []
    assert lines(network, chip, mapping=Mapping.from_arrays({"fc1": [0] * 5}, chip.sites[2:3])) == [
        "neurons  fc1 -> core 0  5 of 2  split fc1 over 3 cores or raise core.max_neurons"
    ]


def test_check_shows_the_worst_five_cores_and_counts_the_others():
    chip = small_chip(core__max_neurons=1)
    network = dense_net(2, 24)
    core_of = np.repeat(np.arange(8), [2, 3, 2, 6, 2, 4, 3, 2])
    found = lines(network, chip, mapping=Mapping.from_arrays({"fc1": core_of}, chip.sites[:8]))
    advice = "split fc1 over 24 cores or raise core.max_neurons"
    assert found == [
        f"neurons  fc1 -> core {c}  {n} of 1  {advice}" for c, n in ((3, 6), (5, 4), (1, 3), (6, 3), (0, 2))
    ] + [f"neurons  fc1 -> 3 more cores  2 of 1  {advice}"]


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ((1, 1024), []),
        ((1, 1025), ["neurons  fc1 -> core 0  1025 of 1024  split fc1 over 2 cores or raise core.max_neurons"]),
        ((4096, 1), []),
        ((4097, 1), ["fan-in axons  fc1 -> core 0  4097 of 4096  one neuron of fc1 alone takes 4097: give it fewer "
                     "inputs or raise core.max_in_axons"]),
    ],
)  # fmt: skip
def test_check_knows_the_limits_of_loihi(sizes, expected):
    spec = NeuronSpec(threshold=64, fixed=FixedPoint())
    network = dense_net(*sizes, spec=spec)
    network = Network(network.inputs, network.nodes, tuple(c.replace(weight=c.weight * 2) for c in network.connections))
    assert lines(network, Chip.load("loihi1")) == expected


def test_check_knows_the_last_bit_of_synapse_memory():
    edge = Sparse("in", "a", np.arange(3), np.arange(3), integers(3))
    network = Network.from_arrays({"a": (FIXED, (3,))}, [edge], {"in": (3,)})
    assert lines(network, small_chip(core__synapse_bits=192)) == []
    assert lines(network, small_chip(core__synapse_bits=191)) == [
        "synapse memory  a -> core 0  192 of 191  split a over 2 cores or raise core.synapse_bits"
    ]


def test_check_knows_out_axons_exactly():
    network = dense_net(1, 2, 4)
    mapping = Mapping.from_arrays({"fc1": [0, 0], "fc2": [1, 2, 3, 3]}, small_chip().sites[:4])
    assert lines(network, small_chip(core__max_out_axons=6), mapping=mapping) == []
    assert lines(network, small_chip(core__max_out_axons=5), mapping=mapping) == [
        "fan-out axons  fc1 -> core 0  6 of 5  split fc1 over 2 cores or raise core.max_out_axons"
    ]


def test_check_counts_cores():
    network, chip = dense_net(1, 13), small_chip()
    mapping = Mapping.from_arrays({"fc1": np.arange(13)}, np.zeros((13, 3)))
    assert lines(network, chip, mapping=mapping) == [
        "cores  network -> small  13 of 12  make fc1 smaller or raise noc.columns"
    ]


@pytest.mark.parametrize(
    ("network", "overrides", "expected"),
    [
        (one_layer(reset="value", reset_value=3), {},
         f"reset  fc1  must be zero or subtract or none, is value  train fc1 with reset 'zero', {ADVICE}reset has it "
         "(loihi2, spinnaker2, truenorth)"),
        (one_layer(reset_timing="next"), {},
         f"reset timing  fc1  must be now, is next  train fc1 with reset_timing 'now', {ADVICE}reset_timing has it"),
        (one_layer(spikes="multi"), {},
         "spikes  fc1  must be binary, is multi  compile with on_multi_spike='graded' (a message carries the count) "
         "or 'repeat' (n spikes are n messages), use binary spikes in fc1, or take a chip whose "
         "neuron.spikes has 'multi'"),
        (one_layer(spikes="bipolar"), {},
         "spikes  fc1  must be binary, is bipolar  compile with on_multi_spike='graded' (a message carries the sign; "
         "a negative "
         "spike cannot be repeated), use binary spikes in fc1, or take a chip whose neuron.spikes has 'bipolar'"),
        (one_layer(strict=False), {},
         "strict  fc1  must be v > threshold, is v >= threshold  change the threshold of fc1 by one and its strict to "
         "True, "
         f"{ADVICE}strict has it"),
        (one_layer(strict=False), {"neuron__threshold_shift_bits": 6},
         "strict  fc1  must be v > threshold, is v >= threshold  train fc1 with strict=True (thresholds are multiples "
         "of 64), "
         f"{ADVICE}strict has it"),
        (one_layer(refractory=np.array([1, 16, 2])), {},
         "refractory steps  fc1  16 of 15  shorten refractory of fc1 or raise neuron.refractory_max_steps"),
        (one_layer(v_min=0), {},
         "v_min  fc1  must be no clamp, is clamp at 0  train fc1 without v_min, or take a chip whose neuron.v_min is "
         "any"),
        (one_layer(), {"neuron__v_min": "zero"},
         "v_min  fc1  must be clamp at 0, is no clamp  train fc1 with v_min=0: this chip clamps every membrane at 0"),
        (one_layer(decay_v=np.array([0, 1024, 0])), {"neuron__leak": False},
         "leak  fc1  must be none, is up to 25 % per step  train fc1 without a leak (beta=1), "
         "or take a chip whose membranes have one"),
        (one_layer(v_min=-9, clamp="reset"), {"neuron__v_min": "any"},
         "v_min  fc1  must be clamp, is reset at -9  train fc1 without v_min, or take a chip whose "
         "neuron.v_min is reset"),
        (one_layer(v_min=-9), {"neuron__v_min": "reset"},
         "v_min  fc1  must be reset, is clamp at -9  train fc1 without v_min, or take a chip whose "
         "neuron.v_min is any"),
        (one_layer(bias=1), {"neuron__bias": False},
         f"bias  fc1  must be no bias, is a bias  train fc1 without bias, {ADVICE}bias has it"),
        (one_layer(threshold=65), {"neuron__threshold_shift_bits": 6, "neuron__threshold_bits": 4},
         "threshold  fc1  must be 0..960 in steps of 64, is 65  scale fc1 down or round its threshold"),
        (one_layer(threshold=1 << 23), {},
         "threshold  fc1  must be 0..8388607, is 8388608  scale fc1 down or round its threshold"),
        (one_layer(threshold=np.array([1, 2, -1])), {},
         "threshold  fc1  must be 0..8388607, is -1  scale fc1 down or round its threshold"),
        (one_layer(bias=np.array([0, 33, 62])), {"neuron__bias_bits": 6, "neuron__bias_exponent_max": 1},
         "bias  fc1  must be a 6-bit mantissa << 0..1, is 33  scale fc1 down or round its bias"),
        (one_layer(bias_u=2), {"neuron__bias_bits": 7},
         "bias  fc1  must be a 7-bit mantissa, is 128  scale fc1 down or round its bias"),
        (one_layer(decay_u=0), {"state__decay_offset": 1},
         "decay_u  fc1  must be 1 or more, is 0  let the current of fc1 decay faster"),
        (one_layer(fixed=FixedPoint(state_bits=16)), {},
         "bits  fc1  must be 24, is 16  quantize fc1 for this chip or set state.bits to 16"),
        (one_layer(fixed=FixedPoint(overflow="saturate")), {},
         "overflow  fc1  must be wrap, is saturate  quantize fc1 for this chip or set state.overflow to saturate"),
    ],
)  # fmt: skip
def test_check_names_what_a_neuron_lacks(network, overrides, expected):
    assert lines(network, small_chip(**overrides)) == [expected]


def test_check_asks_nothing_of_the_spikes_of_a_readout():
    spec = FIXED.replace(fires=False, reset="value", reset_value=9, spikes="multi", strict=False, threshold=1 << 24)
    assert lines(dense_net(2, 3, spec=spec), small_chip()) == []


def test_check_takes_a_reset_to_zero_value_for_a_reset_to_zero():
    assert lines(one_layer(reset="value"), small_chip()) == []


def weighted(weight, **more) -> Network:
    edge = Dense("in", "a", np.asarray(weight, np.int16).reshape(-1, 1), **more)
    return Network.from_arrays({"a": FIXED}, [edge], {"in": (1,)})


@pytest.mark.parametrize(
    ("network", "expected"),
    [
        (weighted([-256, 254, 0]), None),
        (weighted([255], sign_mode="exc"), None),
        (weighted([-256, 256]), "weight  in -> a  must be -256..254, is 256  scale the weights down or quantize again"),
        (weighted([-258, 4]), "weight  in -> a  must be -256..254, is -258  scale the weights down or quantize again"),
        (weighted([4, 7]), "weight  in -> a  must be multiples of 2, is 7  round the weights to the chip's grid"),
        (
            weighted([-1], sign_mode="exc"),
            "weight  in -> a  must be 0..255, is -1  scale the weights down or quantize again",
        ),
        (
            weighted([32, 48], weight_bits=4),
            "weight  in -> a  must be multiples of 32, is 48  round the weights to the chip's grid",
        ),
        (weighted([2], exponent=8), "weight exponent  in -> a  must be -7..7, is 8  rescale the weights"),
        (weighted([2], weight_bits=9), "weight bits  in -> a  9 of 8  quantize to fewer bits or raise weights.bits"),
    ],
)
def test_check_knows_the_weights_a_synapse_holds(network, expected):
    chip = small_chip(weights__step=2, weights__exponent_min=-7, weights__exponent_max=7)
    assert lines(network, chip) == ([] if expected is None else [expected])


def test_check_names_the_only_weight_exponent_of_a_chip():
    chip = small_chip(weights__exponent_min=0, weights__exponent_max=0)
    assert lines(weighted([2], exponent=3), chip) == ["weight exponent  in -> a  must be 0, is 3  rescale the weights"]


def test_check_measures_delays_beyond_the_pipeline():
    edges = [
        Dense("in", "a", integers((2, 1)), delay=4),
        Dense("a", "b", integers((2, 2))),
        Dense("in", "b", integers((2, 1))),
    ]
    network = Network.from_arrays({"a": FIXED, "b": FIXED}, edges, {"in": (1,)})
    where = "delay steps  in -> "
    assert lines(network, small_chip(neuron__delay_max_steps=4)) == []
    assert lines(network, small_chip(neuron__delay_max_steps=0)) == [
        where + "a  4 of 0  shorten the delay or raise neuron.delay_max_steps",
        where + "b  1 of 0  feed the skipped layers instead, use execution='phased' or raise neuron.delay_max_steps",
    ]
    phased = Schedule("phased", 2, {"in": 0, "a": 0, "b": 1}, (8, 1, 1))
    assert lines(network, small_chip(neuron__delay_max_steps=3), phased) == []
    assert lines(network, small_chip(neuron__delay_max_steps=2), phased) == [
        where + "a  3 of 2  shorten the delay or raise neuron.delay_max_steps"
    ]


def test_check_refuses_a_float_network():
    network = Network.from_arrays({"a": NeuronSpec()}, [Dense("in", "a", np.ones((2, 2), np.float32))], {"in": (2,)})
    with pytest.raises(ModelError) as error:
        check(network, small_chip(), feed_forward(network), Mapping.from_arrays({"a": [0, 0]}, [(0, 0, 0)]))
    assert str(error.value) == "only a fixed-point network can be checked; quantize it first"


def test_estimate_refuses_a_hopeless_network_without_a_number_for_each_neuron():
    weight = np.ones((64, 64, 3, 3), np.float32)
    edge = Conv2d("in", "a", weight, padding=1)
    network = Network.from_arrays({"a": NeuronSpec(v_min=0.0)}, [edge], {"in": (64, 4000, 4000)})
    tracemalloc.start()
    with pytest.raises(FitError) as error:
        estimate(network, small_chip())
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 10_000_000  # of a billion neurons
    n_synapses = 64 * 64 * (3 * 4000 - 2) ** 2
    assert str(error.value) == "\n".join([
        "4 limits exceeded on small",
        "  v_min  a  must be no clamp, is clamp at 0  train a without v_min, or take a chip whose neuron.v_min is any",
        "  neurons  network -> small  1024000000 of 768  make a smaller or raise noc.columns",
        f"  synapse memory  network -> small  {8 * n_synapses} of 1572864  make in -> a smaller, use fewer weight "
        "bits or raise core.synapse_bits",
        "  fan-in axons  in -> a  576 of 256  one neuron of a alone takes 576: give it fewer inputs or raise "
        "core.max_in_axons",
    ])  # fmt: skip


def test_estimate_counts_the_layers_that_cores_run():
    layers = [f"fc{i}" for i in range(1, 26)]
    edges = [Dense(a, b, np.ones((2, 2), np.float32)) for a, b in zip(["in", *layers], layers, strict=False)]
    network = Network.from_arrays(dict.fromkeys(layers, NeuronSpec()), edges, {"in": (2,)})
    estimate(network, small_chip(core__max_layers=3))
    with pytest.raises(FitError) as error:
        estimate(network, small_chip(core__max_layers=2))
    assert [str(v) for v in error.value.violations] == [
        "cores  network -> small  13 of 12  use at most 24 layers or raise noc.columns"
    ]
    assert least_cores(dense_net(1, 65, 1), small_chip(core__max_layers=1)) == 3  # of 64 neurons each: 64, 1 and 1


def test_estimate_counts_large_cores_before_small_ones():
    network = dense_net(1, 56)
    assert least_cores(network, small_chip(core__max_neurons=[2, 9] * 6)) == 7
    assert least_cores(dense_net(1, 70), small_chip(core__max_neurons=[2, 9] * 6)) == 13


def test_estimate_adds_up_what_a_neuron_reads_from_all_its_sources():
    pre, post = np.arange(4), np.zeros(4, np.int64)
    edges = [
        Dense("in", "a", np.ones((3, 5), np.float32)), Dense("in", "a", np.ones((3, 5), np.float32), delay=1),
        Dense("other", "a", np.ones((3, 4), np.float32)),
        Sparse("third", "a", pre[[0, 1, 2, 3, 3]], np.zeros(5, np.int64), np.ones(5, np.float32)),
        Sparse("fourth", "a", pre[:2], post[:2], np.ones(2, np.float32)),
    ]  # fmt: skip
    network = Network.from_arrays({"a": NeuronSpec()}, edges, {"in": 5, "other": 4, "third": 4, "fourth": 2})
    estimate(network, small_chip(core__max_in_axons=13))
    with pytest.raises(FitError) as error:
        estimate(network, small_chip(core__max_in_axons=12))
    assert [str(v) for v in error.value.violations] == [
        "fan-in axons  3 sources -> a  13 of 12  one neuron of a alone takes 13: give it fewer inputs or raise "
        "core.max_in_axons"
    ]


def test_estimate_stores_a_shared_kernel_once_and_forgives_strictness():
    edges = [Conv2d("in", "a", np.ones((2, 1, 3, 3), np.float32))]
    network = Network.from_arrays({"a": NeuronSpec(strict=False)}, edges, {"in": (1, 12, 12)})
    chip = small_chip(weights__sharing=True, core__synapse_bits=[1, *[13] * 11])
    estimate(network, chip)
    with pytest.raises(FitError, match="synapse memory  network -> small  144 of 143  make in -> a smaller"):
        estimate(network, chip.replace({"core.synapse_bits": [11, *[12] * 11]}))


def test_estimate_promises_nothing_about_parallel_connections():
    edges = [Dense("in", "a", np.ones((10, 10), np.float32)) for _ in range(2)]
    network = Network.from_arrays({"a": NeuronSpec()}, edges, {"in": (10,)})
    estimate(network, small_chip(core__synapse_bits=[800, *[1] * 11]))


def test_estimate_finds_the_bias_of_a_connection():
    edge = Dense("in", "a", np.ones((2, 2), np.float32), np.ones(2, np.float32))
    network = Network.from_arrays({"a": NeuronSpec()}, [edge], {"in": (2,)})
    with pytest.raises(FitError, match="bias  a  must be no bias, is a bias  train a without bias"):
        estimate(network, small_chip(neuron__bias=False))


@pytest.mark.parametrize(("spec", "kept"), [
    (NeuronSpec(alpha=0.5), "50"), (FIXED.replace(decay_u=np.array([4096, 1024, 4096])), "75"), (NeuronSpec(), None),
    (FIXED, None),
])  # fmt: skip
def test_check_finds_a_current_where_neurons_have_none(spec, kept):
    network = (
        Network.from_arrays({"a": (spec, (3,))}, [Dense("in", "a", integers((3, 2)))], {"in": (2,)})
        if spec.fixed
        else (Network.from_arrays({"a": (spec, (3,))}, [Dense("in", "a", np.ones((3, 2), np.float32))], {"in": (2,)}))
    )
    estimate(network, small_chip())
    if kept is None:
        estimate(network, small_chip(neuron__current=False))
        return
    with pytest.raises(FitError) as error:
        estimate(network, small_chip(neuron__current=False))
    assert [str(v) for v in error.value.violations] == [
        f"current  a  must be no current, is a current that keeps up to {kept} % per step  train a without one, or "
        "take a chip whose neurons have it"
    ]
