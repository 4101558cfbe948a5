"""The ways in which a lava-dl `.net` file can be wrong or unsupported: one sentence each."""

import h5py
import numpy as np
import pytest

import nwcompile as nw
from nwcompile.frontend.lava import from_lava
from tests.made.lava_files import LOIHI, NEURON, dense, pool, write

COMPLEX = {"real": np.ones((1, 1), np.float32), "imag": np.ones((1, 1), np.float32)}
RESONATOR = {"type": b"RF_PHASE", "sinDecay": 1000, "cosDecay": 3000, "vThMant": 10, "gradedSpike": False}


@pytest.mark.parametrize(
    "layers, text",
    [
        ([dense([[1]], weight=None)], "lava-dl layer 0 (dense): weight is missing; export the model again"),
        (
            [dense([[1]]), {"type": [b"norm"], "shape": [1]}],
            "lava-dl layer 1: type 'norm' is not supported; supported: input, dense, dense_rec, recurrent, conv, "
            "pool, convT, unpool, flatten, average",
        ),
        (
            [dense([[1]]), {"type": [b"concat"], "shape": [1], "layers": [0]}],
            "lava-dl layer 1 (concat): the format lists it, but no version of lava-dl writes or runs it; give each "
            "source its own connection in a Network.from_arrays",
        ),
        (
            [
                {"type": [b"input"], "shape": [1, 2, 2]},
                {**pool([1, 6, 4], [2, 2]), "type": [b"unpool"]},
            ],
            "lava-dl layer 1 (unpool): weight (1, 1, 2, 2) does not give shape (1, 6, 4) for a source (1, 2, 2)",
        ),
        (
            [dense([[1]], weight={"real": [[1.0]], "imag": [[1.0]]})],
            "lava-dl layer 0 (dense): weight is complex, which only dense and conv layers of resonators (RF, ADRF) are",
        ),
        (
            [dense([[1]], neuron={**NEURON, "weight_exp": -8.0})],
            "lava-dl layer 0 (dense): neuron/weight_exp is not 0: a batch norm that scales; train it with a norm of "
            "the mean only",
        ),
        (
            [{"type": [b"input"], "shape": [1, 4, 4]}, pool([1, 2, 2], [2, 2], stride=[1, 2])],
            "lava-dl layer 1 (pool): windows of 2 rows, stride 1, padding 0, dilation 1 do not tile 4 rows, so SLAYER "
            "mixes channels there; pool with stride = kernel and padding 0",
        ),
        (
            [{"type": [b"input"], "shape": [1, 4, 4]}, pool([1, 2, 3], [2, 2])],
            "lava-dl layer 1 (pool): it gives shape (1, 2, 2), but declares (1, 2, 3)",
        ),
        (
            [dense([[1]]), {"type": [b"average"], "shape": [1]}, dense([[1]])],
            "lava-dl layer 1 (average): an average must come last, because it gives numbers, not spikes",
        ),
        (
            [dense([[1], [1]]), {"type": [b"average"], "shape": [3]}],
            "lava-dl layer 1 (average): 2 neurons do not divide into 3 groups, or are over 50 000 000",
        ),
        (
            [{"type": [b"input"], "shape": [1 << 20, 1 << 20]}, dense([[1]])],
            "lava-dl layer 0 (input): shape (1048576, 1048576) must be whole numbers >= 1 of at most 2147483647 "
            "neurons together",
        ),
        (
            [dense([[1, 0.5]])],
            "lava-dl layer 0 (dense): weight has 1 values that are not whole numbers within +-2147483647, the first "
            "0.5; export the model quantized",
        ),
        (
            [dense([[1, np.nan]])],
            "lava-dl layer 0 (dense): weight has 1 values that are not whole numbers within +-2147483647, the first "
            "nan; export the model quantized",
        ),
        ([dense([[1]], weight="x")], "lava-dl layer 0 (dense): weight must be real numbers"),
        (
            [dense([[1]]), dense([[1, 2, 3]])],
            "lava-dl layer 1 (dense): weight (1, 3) does not join 1 inputs to 1 neurons",
        ),
        (
            [dense([[1]], neuron={**NEURON, "type": b"RF"})],
            "lava-dl layer 0 (dense): neuron type 'RF' is not supported; supported: CUBA, LOIHI, SDNN, ALIF, RF_PHASE, "
            "RF_IZHIKEVICH, ADRF_PHASE, ADRF_IZHIKEVICH",
        ),
        (
            [pool([1, 1, 1], [1, 1], neuron=None)],
            "lava-dl layer 0 (pool): the file does not tell the input's shape; give input_shape=(channels, rows, "
            "columns)",
        ),
        (
            [{"type": [b"input"], "shape": [1, 1, 1]}, pool([1, 1, 1], [1, 1], neuron=None)],
            "lava-dl layer 1 (pool): it has no neuron; export the model with a CUBA or LOIHI neuron in every layer",
        ),
        (
            [dense([[1]], neuron={**NEURON, "vThMant": None})],
            "lava-dl layer 0 (dense): neuron/vThMant is missing; export the model again",
        ),
        (
            [dense([[1]], neuron={**LOIHI, "gradedSpike": True})],
            "lava-dl layer 0 (dense): gradedSpike is supported of CUBA neurons, not of these; train and export it with "
            "binary spikes, or give neuron={'layer0': {'spikes': 'binary'}} for what lava's netx runs",
        ),
        (
            [dense([[1]], neuron={**NEURON, "gradedSpike": True}), dense([[1]], neuron=LOIHI)],
            "lava-dl layer 1 (dense): LOIHI neurons do not take graded spikes; train and export them as CUBA neurons",
        ),
        (
            [dense([[1]], neuron={**NEURON, "gradedSpike": True}), {"type": [b"average"], "shape": [1]}],
            "lava-dl layer 1 (average): an average of graded spikes is not supported; end in a layer of neurons",
        ),
        (
            [dense([[1]], neuron={**NEURON, "gradedSpike": True}), dense([[1]], weight=COMPLEX, neuron=RESONATOR)],
            "lava-dl layer 1 (dense): complex weights of graded spikes are not supported; train the layer before with "
            "binary ones",
        ),
        (
            [dense([[1]], neuron=RESONATOR)],
            "lava-dl layer 0 (dense): resonators need complex weights, weight/real and weight/imag, of a dense or conv "
            "layer",
        ),
        (
            [dense([[1]], weight=COMPLEX, neuron={**RESONATOR, "sinDecay": None})],
            "lava-dl layer 0 (dense): neuron/sinDecay is missing; export the model again",
        ),
        (
            [dense([[1]], neuron={**NEURON, "type": b"ALIF", "weight_exp": 1})],
            "lava-dl layer 0 (dense): neuron/weight_exp is not 0: a batch norm that scales; train it with a norm of "
            "the mean only",
        ),
        (
            [dense([[1, 1], [1, 1]], delay=[1.0, 2.0, 0.0])],
            "lava-dl layer 0 (dense): delay has shape (3,); this layer takes 1, 2 values (its neurons), or 2 (its "
            "inputs)",
        ),
        (
            [dense([[1]], delay=[2.0], bias=[1.0])],
            "lava-dl layer 0 (dense): a delay on the spikes of the last layer is not supported where it has a bias or "
            "feeds itself; export it as 0",
        ),
        (
            [dense([[1], [1]], bias=[1.0, 2.0, 3.0])],
            "lava-dl layer 0 (dense): bias has 3 values; a layer of shape (2,) takes 1 or 2",
        ),
        (
            [dense([[1]], type=[b"conv"])],
            "lava-dl layer 0 (conv): weight (1, 1) and shape (1,) must be [C_out, C_in, rows, columns] and [C, H, W]",
        ),
        (
            [{"type": [b"input"], "shape": [1, 2, 2]}, dense([[1]], type=[b"conv"])],
            "lava-dl layer 1 (conv): weight (1, 1) must be [C_out, C_in/groups, rows, columns, 1]",
        ),
    ],
)
def test_lava_unusable_model_is_one_sentence(tmp_path, layers, text):
    with pytest.raises(nw.ModelError) as error:
        from_lava(write(tmp_path / "a.net", layers))
    assert str(error.value) == text


def test_lava_unusable_file_or_call_is_one_sentence(tmp_path):
    path, empty, pointer = tmp_path / "a.net", tmp_path / "b.net", tmp_path / "c.net"
    path.write_text("not HDF5")
    pointer.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:9b0bbd50\nsize 2701856\n")
    h5py.File(empty, "w").close()
    for call, text in (
        (
            lambda: from_lava(path),
            f"lava-dl file {path}: this is not an HDF5 file; give a file that its framework exported",
        ),
        (
            lambda: from_lava(pointer),
            f"lava-dl file {pointer}: this is a pointer of Git LFS, not the file; run 'git lfs pull' in its repository",
        ),
        (
            lambda: from_lava(empty),
            f"lava-dl file {empty}: the HDF5 file has no group 'layer' with layers; export the model again",
        ),
        (lambda: from_lava(3), "from_lava takes the path of a lava-dl .net file, not int"),
        (lambda: from_lava(path, neuron=3), "neuron=3 must be a dict of NeuronSpec fields, or of such dicts by layer"),
    ):
        with pytest.raises(nw.ModelError) as error:
            call()
        assert str(error.value) == text
    with pytest.raises(nw.ModelError, match="unknown neuron field 'decay_w'; choose one of: decay_"):
        from_lava(path, neuron={"layer0": {"decay_w": 1}})
    write(path, [dense([[1]])])
    with pytest.raises(nw.ModelError, match="unknown neuron layer 'layer1'; choose one of: layer0"):
        from_lava(path, neuron={"layer1": {"strict": True}})
    with pytest.raises(nw.ModelError, match=r"input_shape=\(0, 1\) must be whole numbers >= 1"):
        from_lava(path, input_shape=(0, 1))
