"""Network files as their authors published them land on the chips that the reference's README names."""

from dataclasses import replace

import numpy as np
import pytest

import nwcompile as nw

FILES = {
    "braille_th1": ("loihi1", "loihi2"),  # a recurrent layer of SLAYER 1
    "ntidigits": ("loihi1", "spinnaker2"),  # delays of axons, refractory neurons
    "ndns_sdnn_delay": ("loihi2", "spinnaker2"),  # sigma-delta neurons, delays up to 64 steps
}
LARGEST = {"braille_th1": 1, "ntidigits": 1, "ndns_sdnn_delay": 1000}  # values of the input
QUICK = nw.Options(partitioner="sequential", placer="hilbert")


@pytest.mark.parametrize(("name", "chip"), [(name, chip) for name, chips in FILES.items() for chip in chips])
def test_published_files_land_and_all_backends_agree(reference, name, chip):
    network = nw.from_lava(reference / "net_files" / f"{name}.net")
    rng = np.random.default_rng(0)
    x = LARGEST[name] * (rng.random((1, 72, *network.inputs["input"].shape)) < 0.2).astype(np.int32)
    result = nw.crosscheck(nw.compile(network, chip, x, QUICK), x)
    assert result.agree, str(result)
    assert all(row.fired["cycle"] for row in result.layers if row.layer not in network.outputs)


def test_the_longest_delay_of_a_published_file_is_kept_by_relays_and_clamped_on_request(reference):
    network = nw.from_lava(reference / "net_files" / "ndns_sdnn_delay.net")
    longest = max(connection.aligned_delay for connection in network.connections)
    assert longest == 65 > nw.Chip.load("loihi2").neuron.delay_max_steps
    x = np.zeros((1, 4, 257), np.int32)
    exact, clamped = (nw.compile(network, "loihi2", x, replace(QUICK, approximate=a)) for a in ((), ("delay",)))
    assert len(exact.network.layers) > len(network.layers) == len(clamped.network.layers)
