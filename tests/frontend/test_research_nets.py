"""The networks of research code in the reference, imported as their users would."""

import numpy as np
import pytest

import nwcompile as nw
from nwcompile.errors import ModelError
from tests.frontend.frameworks import lack_package
from tests.research_nets import compare_layers, compile_net, import_net, load_net

IMPORTED = {
    "adaptive_srnn": 3, "biclab_item_assignment": 5, "brain_style_nodes": 3, "calibrated_spike_modules": 3,
    "dcls_delays": 3, "decolle_traces": 7, "drone_policy": 3, "eeg_temporal_buffer": 4, "einsum_loop": 2,
    "flownet_hybrid": 3, "gated_spiking_unit": 3, "graph_snapshots": 1, "integer_spikes_yolo": 4, "lsnn_readout": 2,
    "metaformer_repconv": 4, "own_readout_neuron": 2, "plif_voting": 6, "snntorch_lstm": 2, "spiking_lstm": 8,
    "qcfs_converted": 3, "resformer_dssa": 7, "sew_iand_events": 14, "spike_driven_attention": 14,
    "spike_driven_events": 18, "spikformer_ssa": 12, "stbp_functional": 4, "tdbn_time_last": 5, "tet_vgg": 5,
    "vae_encoder_conv3d": 3, "series_rnn": 4, "sliding_psn": 2, "rockpool_lif": 2,
}  # fmt: skip
NOT_OPERATORS = "own_readout_neuron", "sliding_psn"  # whose spikes are not recorded
REFUSED = {
    "bntt_per_step_norm": r"bntt_per_step_norm\.py:41: torch's batch_norm: step 2 of the example computes",
    "gated_lif": r"gated_lif\.py:34: torch's mul: step 2 of the example computes something else than step 1",
    "rates_between_layers": r"rates_between_layers\.py:17: layer 'l2' is fed by torch's mean of several steps",
    "rwkv_block": r"rwkv_block\.py:35: torch's layer_norm normalizes every sample and step",
    "spiking_ssm": r"spiking_ssm\.py:36: torch's add joins one step with all steps",
    "temporal_attention": r"temporal_attention\.py:17: layer 'sn1' is fed by torch's mm of several steps",
}


def skip_without_framework(name):
    try:
        load_net(name)
    except ImportError as e:
        lack_package(e.name)


@pytest.mark.parametrize("name", IMPORTED)
def test_network_of_research_code_is_imported_with_its_layers_and_every_spike(reference, name):
    """The spikes of one sample, the last, which the import has not followed."""
    skip_without_framework(name)
    network = import_net(name)
    assert len(network.layers) == IMPORTED[name]
    assert name in NOT_OPERATORS or compare_layers(name, network, slice(-1, None)) == 0


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in IMPORTED if name not in NOT_OPERATORS])
def test_three_samples_of_research_code_have_the_modules_spikes(reference, name):
    skip_without_framework(name)
    assert compare_layers(name, import_net(name)) == 0


@pytest.mark.parametrize("name", ["gated_spiking_unit", "snntorch_lstm", "spiking_lstm"])
def test_research_code_with_gates_lands_on_a_chip_of_several_synapse_types(reference, name):
    skip_without_framework(name)
    network, x = import_net(name), load_net(name).make()[1]
    program = compile_net(network, x, "spinnaker2")
    assert max(program.network.node(layer).n_inputs for layer in program.network.layers) > 1
    result = nw.crosscheck(program, np.asarray(x))
    assert result.agree, str(result)


@pytest.mark.parametrize("name", REFUSED)
def test_network_of_research_code_that_no_chip_computes_is_refused_by_name(reference, name):
    skip_without_framework(name)
    with pytest.raises(ModelError, match=REFUSED[name]):
        import_net(name)
