"""The synapse memory of Loihi 2 against what Intel's compiler printed for PilotNet (lava-dl d825ac5, BSD-3).

`tutorials/lava/lib/dl/netx/pilotnet_snn/benchmark.ipynb` shows, for every layer, how many cores it takes, how many
neurons (columns x rows x channels) and how many words of synapses are on each. The network's `.net` is among lava-dl's
test data; the bits of its weights follow from `optimize_weight_bits` of `src/lava/utils/weightutils.py` (lava-nc),
restated here.
"""

import numpy as np
import pytest

import nwcompile as nw
from nwcompile.cost.traffic.axons import build_axons
from nwcompile.ir.flat import cores_of_sources, neuron_offsets
from nwcompile.passes.analyze import capacity

# layer: (cores, columns a core, words a core that the notebook shows, words that its public weights give)
PUBLISHED = {
    "layer1": (25, 4, 81, 81),
    "layer2": (13, 4, 864, 864),
    "layer3": (3, 8, 1620, 1296),  # 1,620 would be a word more in each of 324 rows: weights of 5 bits, these have 4
    "layer4": (3, 8, 2160, 2160),
    "layer5": (2, 16, 2880, 2880),
}
BITS = {"layer1": 5, "layer2": 4, "layer3": 4, "layer4": 4, "layer5": 4}


def weight_bits(weight: np.ndarray) -> int:
    """The bits in which Lava stores weights of both signs: scaled to fill 8 bits, without low bits that are all 0."""
    scale_bits = int(np.floor(np.log2(min(127 / weight.max(), -128 / weight.min())))) + 1
    n_low_zeros = max(n for n in range(9) if not (weight % (1 << n)).any())
    return 8 - scale_bits - (n_low_zeros - 1)


@pytest.fixture(scope="module")
def pilotnet(reference):
    return nw.from_lava(reference / "lava_gts" / "pilotnet_lif" / "network.net")


def with_intels_bits(network: nw.Network) -> nw.Network:
    """The convolutions in the bits that Lava gives them."""
    connections = [
        c.replace(weight_bits=weight_bits(np.asarray(c.weight))) if c.target in PUBLISHED else c
        for c in network.connections
    ]
    return nw.Network(network.inputs, network.nodes, tuple(connections))


def intels_cut(network: nw.Network) -> tuple[np.ndarray, dict[str, range]]:
    """int32[neuron]: a core for so many columns of a map, as in the notebook; other layers on one of their own."""
    core_of, cores, first = [], {}, 0
    for name in network.layers:
        n_cores, width = PUBLISHED.get(name, (1, 1 << 20))[:2]
        channels, rows, columns = (
            network.node(name).shape if name in PUBLISHED else (1, 1, network.node(name).n_neurons)
        )
        of_column = np.arange(columns) // width
        assert of_column.max() + 1 == n_cores, name
        core_of.append(first + np.tile(of_column, channels * rows))
        cores[name] = range(first, first + n_cores)
        first += n_cores
    return np.concatenate(core_of).astype(np.int32), cores


def test_lavas_rule_gives_the_bits_of_pilotnet(pilotnet):
    weights = {c.target: np.asarray(c.weight) for c in pilotnet.connections}
    assert {name: weight_bits(weights[name]) for name in PUBLISHED} == BITS


def test_words_of_pilotnet_are_those_of_intels_compiler(pilotnet):
    network, chip = with_intels_bits(pilotnet), nw.Chip.load("loihi2")
    core_of, cores = intels_cut(network)
    n_cores = int(core_of.max()) + 1
    held, *_ = capacity.count_usage(network, chip, core_of, n_cores)
    axons = build_axons(network, cores_of_sources(network, core_of), n_cores, chip)
    for name, (_, _, shown, words) in PUBLISHED.items():
        assert set(held["synapse_bits"][list(cores[name])]) == {words * 64}
        assert set(axons.kernel_bits[list(cores[name])]) == {words * 64}
        assert (words == shown) == (name != "layer3")
        assert held["neurons"][list(cores[name])].max() <= chip.core.max_neurons
    first = neuron_offsets(network)["layer3"]
    assert held["neurons"][core_of[first]] == 2688


def test_a_row_has_a_header_and_the_weights_of_the_channels_in_the_core(pilotnet):
    """Of layer 5, whose 64 channels of 4 bits take 4 words in each of 576 rows, half the channels take 2."""
    network, chip = with_intels_bits(pilotnet), nw.Chip.load("loihi2")
    core_of, cores = intels_cut(network)
    n = network.node("layer5").n_neurons
    first = neuron_offsets(network)["layer5"]
    core_of[first : first + n] = cores["layer5"][0] + (np.arange(n) >= n // 2)
    held, *_ = capacity.count_usage(network, chip, core_of, int(core_of.max()) + 1)
    assert held["synapse_bits"][list(cores["layer5"])].tolist() == [576 * (1 + 2) * 64] * 2


@pytest.mark.long
@pytest.mark.parametrize("n_words", [12_000, 16_000])
def test_our_cut_of_pilotnet_takes_fewer_cores_than_intels(pilotnet, n_words):
    """Intel's compiler takes 61 without the 13 of its input; the input layer shares cores with others here."""
    chip = nw.Chip.load("loihi2").replace({"core.synapse_bits": n_words * 64})
    program = nw.compile(pilotnet, chip, options=nw.Options(optimize="cores"))
    cores = [program.mapping.core_of[name] for name in program.network.layers if name != "layer0"]
    assert len(np.unique(np.concatenate(cores))) <= 45 and program.mapping.n_cores <= 45
    held = program.axons.kernel_bits + np.bincount(program.axons.core, program.axons.row_bits).astype(np.int64)
    assert held.max() <= n_words * 64
