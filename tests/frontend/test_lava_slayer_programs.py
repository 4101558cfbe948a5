"""ALIF, resonators and graded spikes of lava-dl: what lava's processes stored, and SLAYER's own rules on drawn nets.

The rules are restated from lava-dl d825ac5 (BSD-3): `slayer/neuron/dynamics/` (`_li_dynamics_fwd`, `_ath_dynamics_fwd`,
`_res_dynamics_fwd`, `_APTHDynamicsFwd`, `_AdResDynamicsFwd`), `slayer/spike/spike.py` and `slayer/spike/complex.py`,
and a step of delay between blocks (`slayer/block/base.py`).
"""

import numpy as np
import pytest

import nwcompile as nw
from nwcompile.frontend.lava import from_lava
from nwcompile.frontend.lava.neurons import LARGEST_PART
from nwcompile.frontend.lava.wires import largest_sum
from nwcompile.sim.sequence.run import trace_layers
from tests.made.lava_files import NEURON, dense, write

SCALE = 4096  # SLAYER's states times this are whole numbers; the file's weights and thresholds are its times 64.
N_STEPS = 50
KINDS = ("CUBA", "ALIF", "RF_PHASE", "RF_IZHIKEVICH", "ADRF_PHASE", "ADRF_IZHIKEVICH")


def to_zero(values: np.ndarray) -> np.ndarray:
    """`utils/int_utils.py` (`right_shift_to_zero`), by 12 bits."""
    return np.sign(values) * (np.abs(values) >> 12)


def block(x: np.ndarray, layer: dict) -> np.ndarray:
    """What a dense block sends, [T, n], for what it hears, x [T, m]: a spike is SCALE / 64 of the file's weight units.

    Graded spikes are whole numbers here, SCALE times SLAYER's.
    """
    neuron, is_graded = layer["neuron"], x.dtype == np.int64
    parts = layer["weight"] if isinstance(layer["weight"], dict) else {"real": layer["weight"], "imag": 0}
    sums = [x.astype(object) @ np.asarray(parts[p]).astype(int).T.astype(object) for p in ("real", "imag") if p in parts
            and np.ndim(parts[p])]  # fmt: skip
    drive = [(np.trunc((s / 64).astype(float)) if is_graded else 64 * s).astype(np.int64) for s in sums]
    base = 64 * neuron["vThMant"]
    keep = {key: 4096 - neuron[key] for key in ("iDecay", "vDecay", "thDecay", "refDecay") if key in neuron}
    zero = np.zeros(drive[0].shape[1], np.int64)
    real, imag, refractory, threshold = zero, zero, zero, zero + base
    sent = np.zeros(drive[0].shape, np.int64)
    for t in range(len(x)):
        limit = zero + base
        if "thDecay" in neuron:
            refractory = to_zero(refractory * keep["refDecay"])
            threshold = to_zero((threshold - base) * keep["thDecay"]) + base
            limit = threshold + refractory
        if "iDecay" in neuron:  # real is the current, imag the voltage
            real = to_zero(real * keep["iDecay"]) + drive[0][t]
            imag = to_zero(imag * keep["vDecay"]) + real
            value = imag
            fired = value > limit if neuron["type"] == b"CUBA" else value >= limit  # cuba.py: threshold_eps
        else:
            before, sin, cos = imag, neuron["sinDecay"], neuron["cosDecay"]
            real, imag = (
                to_zero(cos * real) - to_zero(sin * imag) + drive[0][t],
                to_zero(sin * real) + to_zero(cos * imag) + drive[1][t],
            )
            crosses = neuron["type"].endswith(b"PHASE")
            value = real if crosses else imag
            fired = (value >= limit) & ((imag >= 0) & (before < 0) if crosses else True)
        sent[t] = np.where(fired, value, 0) if neuron["gradedSpike"] else fired
        if neuron["type"] == b"CUBA":
            imag = np.where(fired, 0, imag)
        elif neuron["type"] == b"RF_IZHIKEVICH":
            real, imag = np.where(fired, 0, real), np.where(fired, base - 1, imag)
        if "thDecay" in neuron:
            refractory = refractory + 2 * threshold * fired
            threshold = threshold + 64 * neuron["vThStep"] * fired
    return sent if neuron["gradedSpike"] else sent.astype(np.int8)


def later(sent: np.ndarray) -> np.ndarray:
    return np.concatenate([np.zeros_like(sent[:1]), sent[:-1]])


def drawn_neuron(rng, kind: str, is_graded: bool, n: int) -> dict:
    """Decays of each neuron, where SLAYER's `shared_param` is off, or of all."""

    def decay(low, high):
        return rng.integers(low, high, n) if rng.random() < 0.5 else int(rng.integers(low, high))

    values = {"type": kind.encode(), "vThMant": int(rng.integers(15, 100)), "gradedSpike": is_graded}
    if kind in ("CUBA", "ALIF"):
        values |= {"iDecay": decay(200, 4096), "vDecay": decay(50, 2048), "refDelay": 1}
    else:
        angle, size = 2 * np.pi / rng.uniform(4, 20), 4096 * rng.uniform(0.7, 0.99)
        values |= {"sinDecay": int(size * np.sin(angle)), "cosDecay": int(size * np.cos(angle))}
    if kind not in ("CUBA", "RF_PHASE", "RF_IZHIKEVICH"):
        values |= {"thDecay": decay(100, 2048), "refDecay": decay(100, 3600), "vThStep": int(rng.integers(3, 64))}
    if is_graded:
        values["vThMant"] = int(rng.integers(5, 40))
    return values


def drawn(rng, kind: str, is_graded: bool) -> tuple[list[dict], np.ndarray]:
    """Three dense layers of one kind, the first two of graded spikes if that is wanted, and input spikes."""
    sizes = rng.integers(5, 25, 4)
    layers = []
    for i, (m, n) in enumerate(zip(sizes[:-1], sizes[1:], strict=True)):
        low, high = (
            (-6, 8) if is_graded else (-30, 40)
        )  # graded spikes of large weights leave 24 bits, which SLAYER may
        real, imag = (2 * rng.integers(low, high, (n, m)).astype(np.float32) for _ in range(2))
        weight = real if kind in ("CUBA", "ALIF") else {"real": real, "imag": imag}
        neuron = drawn_neuron(rng, kind, is_graded and i < 2, n)
        layers.append(dense(real, weight=weight, neuron=neuron))
    return layers, (rng.random((N_STEPS, sizes[0])) < 0.3).astype(np.int8)


def assert_as_in_slayer(tmp_path, kind: str, is_graded: bool, n_nets: int) -> None:
    rng = np.random.default_rng(len(kind) + is_graded)
    n_sent = n_steps = 0
    for _ in range(n_nets):
        layers, x = drawn(rng, kind, is_graded)
        network = from_lava(write(tmp_path / "a.net", layers))
        spikes = nw.simulate(network, x[None]).spikes
        in_sequence = trace_layers(network, x[None])[0]
        for index, layer in enumerate(layers):
            x = later(block(x, layer))
            assert np.array_equal(spikes[f"layer{index}"][0], x), index
            assert np.array_equal(in_sequence[f"layer{index}"][0], x), index
            n_sent += np.count_nonzero(x)
            n_steps += x.size
    assert 0.01 * n_steps < n_sent < 0.99 * n_steps


def test_drawn_adaptive_neurons_of_graded_spikes_send_what_slayer_does(tmp_path):
    assert_as_in_slayer(tmp_path, "ALIF", True, 3)


def test_drawn_resonators_send_what_slayer_does(tmp_path):
    assert_as_in_slayer(tmp_path, "ADRF_PHASE", False, 3)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_fifty_drawn_nets_send_what_slayer_does(tmp_path, kind):
    assert_as_in_slayer(tmp_path, kind, False, 50)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["CUBA", "ALIF"])
def test_fifty_drawn_nets_of_graded_spikes_send_what_slayer_does(tmp_path, kind):
    assert_as_in_slayer(tmp_path, kind, True, 50)


def resonator(kind: bytes, threshold: int, period: float) -> dict:
    """The decays as lava.proc.rf rounds them (alpha 0.05, 12 bits)."""
    sin, cos = (int(0.95 * f(2 * np.pi / period) * 4096) for f in (np.sin, np.cos))
    return {"type": kind, "vThMant": threshold, "sinDecay": sin, "cosDecay": cos, "gradedSpike": False}


@pytest.fixture(scope="module")
def stored(reference) -> dict:
    data = np.load(reference / "lava_gts" / "complex_dense" / "traces.npz")
    return {name: data[name].T for name in data}


def complex_dense(stored: dict, path) -> nw.Network:
    weight = {part: stored[name].T.astype(np.float32) for part, name in (("real", "weight_r"), ("imag", "weight_img"))}
    layer = dense(weight["real"], weight=weight, neuron=resonator(b"RF_PHASE", 25, 11))
    return from_lava(write(path, [layer]))


def test_complex_dense_gives_every_stored_spike(tmp_path, stored):
    network = complex_dense(stored, tmp_path / "a.net")
    x = stored["in"][None]
    assert np.array_equal(trace_layers(network, x, keep_states=False)[0]["layer0"][0], stored["out"])
    run = nw.simulate(network, x[:, :200])
    assert np.array_equal(run.spikes["layer0"][0], stored["out"][:200]) and stored["out"][:200].sum() > 3_000


@pytest.mark.long
def test_compiled_complex_dense_gives_every_stored_spike_in_the_cycle_backend(tmp_path, stored):
    program = nw.compile(complex_dense(stored, tmp_path / "a.net"), "loihi2", stored["in"][None, :200])
    x = stored["in"][None]
    assert nw.crosscheck(program, x[:, :200]).agree
    assert np.array_equal(nw.simulate(program, x, "cycle").spikes["layer0"][0], stored["out"])


def test_resonator_input_gives_every_stored_spike(tmp_path, stored):
    """lava's threshold of 1.1 is no whole number of the file's units, so it is set here: int(1.1 * 2**6)."""
    entry = {"type": [b"input"], "shape": [200], "weight": 1, "neuron": resonator(b"RF_IZHIKEVICH", 1, 7)}
    network = from_lava(write(tmp_path / "a.net", [entry]))
    node = network.nodes["layer0"]
    program = node.neuron.replace(parameters={**node.neuron.parameters, "threshold": 70})
    alone = [c.replace(delay=0) for c in network.connections]  # the stored block has no connection before it
    network = nw.Network.from_arrays({"layer0": (program, (200,))}, alone, {"input": (200,)})
    x = stored["in"][None]
    assert np.array_equal(trace_layers(network, x, keep_states=False)[0]["layer0"][0], stored["current"])


def test_large_complex_sums_fill_the_state_as_they_would_unpacked(tmp_path):
    """Real sums beyond what is packed saturate, and leave the imaginary ones as they are."""
    rng = np.random.default_rng(3)
    weight = {part: 2.0 * rng.integers(-128, 127, (6, 9)).astype(np.float32) for part in ("real", "imag")}
    layer = dense(weight["real"], weight=weight, neuron=resonator(b"RF_IZHIKEVICH", 1 << 16, 9))
    network = from_lava(write(tmp_path / "a.net", [layer]))
    x = rng.integers(-9_000, 9_000, (1, 40, 9))
    run = nw.simulate(network, x, record="all")
    spec = layer["neuron"]
    limit = (1 << 23) - 1
    real = imag = np.zeros(6, np.int64)
    drive = {part: 64 * x[0] @ w.astype(int).T for part, w in weight.items()}
    assert max(np.abs(d).max() for d in drive.values()) > 64 * LARGEST_PART
    for t in range(1, 40):
        cos, sin = spec["cosDecay"], spec["sinDecay"]
        real, imag = (
            np.clip(to_zero(cos * real) - to_zero(sin * imag) + drive["real"][t - 1], -limit, limit),
            np.clip(to_zero(sin * real) + to_zero(cos * imag) + drive["imag"][t - 1], -limit, limit),
        )
        fired = imag >= 64 * spec["vThMant"]
        assert np.array_equal(run.spikes["layer0"][0, t], fired)
        real, imag = np.where(fired, 0, real), np.where(fired, 64 * spec["vThMant"] - 1, imag)
        assert np.array_equal(run.states["layer0"]["real"][0, t], real)
        assert np.array_equal(run.states["layer0"]["imag"][0, t], imag)


def test_real_parts_of_spikes_need_no_neurons_of_their_own(tmp_path):
    layers, _ = drawn(np.random.default_rng(2), "RF_PHASE", False)
    network = from_lava(write(tmp_path / "a.net", layers))
    assert list(network.nodes) == [
        "layer0/imag", "layer0/real", "layer0", "layer1/imag", "layer1", "layer2/imag", "layer2"
    ]  # fmt: skip
    assert max(largest_sum(c) for c in network.into("layer1") if c.source == "layer0") <= LARGEST_PART


def test_a_complex_convolution_over_the_whole_map_is_a_dense_layer(tmp_path):
    layers, x = drawn(np.random.default_rng(1), "RF_IZHIKEVICH", False)
    parts = {part: np.tile(w, 12)[:, :12] for part, w in layers[0]["weight"].items()}
    n = len(parts["real"])
    flat = dense(parts["real"], weight=parts, neuron=layers[0]["neuron"])
    kernels = {part: w.reshape(n, 1, 3, 4, 1) for part, w in parts.items()}
    conv = {**flat, "type": [b"conv"], "weight": kernels, "shape": [n, 1, 1]}
    spikes = np.resize(x, (N_STEPS, 12))
    wide = from_lava(write(tmp_path / "a.net", [{"type": [b"input"], "shape": [1, 3, 4]}, conv]))
    sent = nw.simulate(wide, spikes.reshape(1, N_STEPS, 1, 3, 4)).output[0].reshape(N_STEPS, n)
    assert np.array_equal(sent, later(block(spikes, flat))) and sent.any()


def test_a_compiled_net_of_all_kinds_agrees_on_loihi2(tmp_path):
    rng = np.random.default_rng(4)
    layers = []
    for m, n, kind in ((12, 14, "ALIF"), (14, 10, "ADRF_PHASE"), (10, 6, "ALIF")):
        real, imag = (2 * rng.integers(-30, 40, (n, m)).astype(np.float32) for _ in range(2))
        weight = real if kind == "ALIF" else {"real": real, "imag": imag}
        layers.append(dense(real, weight=weight, neuron=drawn_neuron(rng, kind, False, n)))
    x = (rng.random((1, 30, 12)) < 0.3).astype(np.int8)
    program = nw.compile(from_lava(write(tmp_path / "a.net", layers)), "loihi2", x)
    assert nw.crosscheck(program, x).agree
    sent = x[0]
    for layer in layers:
        sent = later(block(sent, layer))
    assert np.array_equal(nw.simulate(program, x).output[0], sent) and sent.any()


@pytest.mark.parametrize("kind", ["ALIF", "RF_PHASE"])
def test_a_threshold_out_of_reach_makes_a_readout(tmp_path, kind):
    """As SLAYER exports Affine blocks (`slayer/block/base.py`): the largest threshold that 18 bits hold."""
    layers, x = drawn(np.random.default_rng(6), kind, False)
    layers[-1]["neuron"]["vThMant"] = (1 << 18) - 1
    network = from_lava(write(tmp_path / "a.net", layers))
    node = network.nodes["layer2"].neuron
    assert not node.fires and node.readout == ("v" if kind == "ALIF" else "real")
    assert nw.simulate(network, x[None]).output.any()


def test_neuron_fields_of_a_program_are_refused(tmp_path):
    graded = dense([[2]], neuron={**NEURON, "gradedSpike": True})
    path = write(tmp_path / "a.net", [graded])
    with pytest.raises(nw.ModelError) as error:
        from_lava(path, neuron={"layer0": {"refractory": 2}})
    assert str(error.value) == (
        "lava-dl layer 0 (dense): its neurons are a neuron program, which has no field refractory; leave them out of "
        "neuron="
    )
    strict, loose = (from_lava(path, neuron={"strict": value}).nodes["layer0"].neuron for value in (True, False))
    assert [o.kind for o in strict.operations if o.result == "fired"] == ["lt"]
    assert [o.kind for o in loose.operations if o.result == "fired"] == ["le"]
    assert from_lava(path, neuron={"spikes": "binary"}).nodes["layer0"].neuron.spikes == "binary"
