"""CUBA neurons against SLAYER's own rule, in the floating-point torch arithmetic in which it is written.

Restated from lava-dl d825ac5 (BSD-3): `slayer/neuron/cuba.py` (scales, `threshold_eps`, `dynamics`, `spike`),
`slayer/neuron/dynamics/leaky_integrator.py` (`_li_dynamics_fwd`), `slayer/utils/int_utils.py` (`right_shift_to_zero`)
and `slayer/block/base.py` (a step of delay between blocks). The epsilon is there since 301ac5d (#78, July 2022), which
is in v0.3.0 and every release after it.
"""

import numpy as np
import pytest
import torch

import nwcompile as nw
from nwcompile.frontend.lava import from_lava
from tests.made.lava_files import NEURON, dense, write
from tests.made.recordings import raster

W_SCALE = 64  # The file's weights and thresholds are SLAYER's times this.
S_SCALE = 64 * W_SCALE  # SLAYER's states times this are whole numbers.
SINCE_V0_3 = 0.01 / S_SCALE  # cuba.py adds this to the threshold.
BEFORE_V0_3 = 0.0


def leaky_integrator(x: torch.Tensor, decay: torch.Tensor, threshold: float | None = None) -> torch.Tensor:
    """The states [n, T] of leaky integrators fed with x [n, T]; with a threshold, each is zeroed after it fires."""
    state = torch.zeros(x.shape[0], dtype=torch.int64)
    out = torch.zeros_like(x)
    for t in range(x.shape[1]):
        decayed = state * (4096 - decay)
        sign = 2 * (decayed > 0) - 1
        new = sign * ((sign * decayed) >> 12) + (S_SCALE * x[:, t]).to(torch.int64)
        state = new if threshold is None else new * ~(new >= threshold * S_SCALE)
        out[:, t] = new / S_SCALE
    return out


def cuba(x: np.ndarray, layer: dict, epsilon: float) -> np.ndarray:
    """Spikes [T, n] of a dense block of CUBA neurons for the spikes x [T, m] of the block before it."""
    weight, neuron = torch.as_tensor(np.asarray(layer["weight"])) / W_SCALE, layer["neuron"]
    threshold = neuron["vThMant"] / W_SCALE
    decay_u, decay_v = (torch.as_tensor(neuron[key], dtype=torch.int64) for key in ("iDecay", "vDecay"))
    current = leaky_integrator(weight @ torch.as_tensor(x.T, dtype=torch.float32), decay_u)
    voltage = leaky_integrator(current, decay_v, threshold + epsilon)
    return (voltage >= threshold + epsilon).numpy().T.astype(np.int8)


def later(spikes: np.ndarray) -> np.ndarray:
    """The spikes one step later."""
    return np.concatenate([np.zeros_like(spikes[:1]), spikes[:-1]])


def draw(rng) -> list[dict]:
    """Two dense layers whose membranes often stop right at the threshold: small even weights, whole-number decays."""
    sizes = rng.integers(5, 25, 3)
    layers = []
    for n_source, n in zip(sizes[:-1], sizes[1:], strict=True):
        neuron = {**NEURON, "iDecay": int(rng.choice([4096, 4096, 2048, 300])),
                  "vDecay": int(rng.choice([0, 0, 2048, 128])), "vThMant": int(rng.integers(3, 40))}  # fmt: skip
        layers.append(dense(2 * rng.integers(-5, 9, (n, n_source)), neuron=neuron))
    return layers


@pytest.mark.parametrize("epsilon, asked", [(SINCE_V0_3, None), (BEFORE_V0_3, {"strict": False})])
def test_drawn_nets_spike_as_in_slayer(tmp_path, epsilon, asked):
    rng = np.random.default_rng(18)
    n_spikes = n_other = 0
    for _ in range(6):
        layers = draw(rng)
        x = rng.integers(0, 2, (60, layers[0]["weight"].shape[1])).astype(np.int8)
        run = nw.simulate(from_lava(write(tmp_path / "a.net", layers), neuron=asked), x[None])
        first = cuba(x, layers[0], epsilon)
        second = cuba(later(first), layers[1], epsilon)
        for name, spikes in (("layer0", later(first)), ("layer1", later(second))):
            assert np.array_equal(run.spikes[name][0], spikes), name
        n_spikes += first.sum() + second.sum()
        n_other += np.count_nonzero(first != cuba(x, layers[0], SINCE_V0_3 if asked else BEFORE_V0_3))
    assert n_spikes > 500 and n_other > 10  # the other rule gives other spikes on these nets


def test_oxford_gives_the_spikes_of_slayer(reference):
    """9,632 spikes, as live SLAYER 0.6 gave, and its rule here; 3,014 of them differ from the 10,178 of before v0.3."""
    folder = reference / "models" / "lava_oxford"
    network = from_lava(folder / "network.net")
    x = raster(np.load(folder / "input.npy"), 2000, 200)
    spikes = x
    for connection in network.connections:
        spec = network.nodes[connection.target].neuron
        assert spec.strict
        neuron = {"iDecay": spec.decay_u, "vDecay": spec.decay_v, "vThMant": spec.threshold // 64}
        layer = dense(connection.weight, neuron=neuron)
        spikes = later(cuba(spikes, layer, SINCE_V0_3))
    assert spikes.sum() == 9_632
    assert np.array_equal(nw.simulate(network, x[None]).output[0], spikes)
    before = raster(np.load(folder / "ground_truth.npy"), 2000, 200)
    assert np.count_nonzero(before != spikes) == 3_014
