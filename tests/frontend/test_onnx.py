"""ONNX files become torch modules with the values of onnx's reference evaluator, and convert like any ReLU network."""

from pathlib import Path

import numpy as np
import pytest
import torch

import nwcompile as nw
from tests.frontend.frameworks import framework

onnx = framework("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

DRAW = np.random.default_rng(0)
IMAGE = (2, 7, 6)


def draw(*shape: int) -> np.ndarray:
    return DRAW.normal(size=shape).astype(np.float32)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def write(path: Path, nodes: list, arrays: dict[str, np.ndarray], shape: tuple, batch="B", opset: int = 18) -> Path:
    """Write a graph from "x" to "y"; a node is (operator, inputs, attributes), and its result goes to the next one."""
    made, last = [], "x"
    for i, (kind, inputs, attributes) in enumerate(nodes):
        name = "y" if i == len(nodes) - 1 else f"v{i}"
        made.append(helper.make_node(kind, [last, *inputs], [name], f"/{kind.lower()}{i}", **attributes))
        last = name
    graph = helper.make_graph(
        made,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, *shape])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    return save(graph, path, opset)


def save(graph, path: Path, opset: int = 18) -> Path:
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    onnx.save(onnx.shape_inference.infer_shapes(model), str(path))
    return path


def compare(path: Path, shape: tuple, n: int = 3) -> torch.nn.Module:
    module = nw.load_onnx(path)
    evaluator = ReferenceEvaluator(str(path))
    for scale in (1, 8):
        x = scale * draw(n, *shape)
        (wanted,) = evaluator.run(None, {"x": x})
        with torch.no_grad():
            found = module(torch.from_numpy(x)).numpy()
        assert found.shape == wanted.shape and found.dtype == wanted.dtype
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())
    return module


NORM = {"s": draw(2), "o": draw(2), "m": draw(2), "v": np.abs(draw(2)) + 0.1}
KERNEL = {"w": draw(4, 2, 3, 3), "b": draw(4)}
STEP_2 = {"kernel_shape": [2, 2], "strides": [2, 2]}
CASES = {
    "Gemm": ([("Gemm", ["w", "b"], {"transB": 1, "alpha": 0.5, "beta": 2.0})], {"w": draw(3, 6), "b": draw(3)}, (6,)),
    "Gemm without bias": ([("Gemm", ["w"], {})], {"w": draw(6, 3)}, (6,)),
    "MatMul, Add": ([("MatMul", ["w"], {}), ("Add", ["b"], {})], {"w": draw(6, 3), "b": draw(3)}, (6,)),
    "Conv": ([("Conv", ["w", "b"], {"pads": [1, 1, 1, 1], "strides": [2, 1]})], KERNEL, IMAGE),
    "Conv, uneven pads": ([("Conv", ["w"], {"pads": [0, 1, 2, 0], "dilations": [2, 1]})], KERNEL, IMAGE),
    "Conv, groups": ([("Conv", ["w"], {"group": 2})], {"w": draw(4, 1, 3, 3)}, IMAGE),
    "Conv of one axis": ([("Conv", ["w"], {"pads": [1, 0]})], {"w": draw(4, 2, 3)}, (2, 9)),
    "Relu": ([("Relu", [], {})], {}, IMAGE),
    "Clip": ([("Clip", ["low", "high"], {})], {"low": np.float32(0), "high": np.float32(0.5)}, IMAGE),
    "Clip above": ([("Clip", ["", "high"], {})], {"high": np.float32(0.5)}, IMAGE),
    "MaxPool": ([("MaxPool", [], {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1], "strides": [2, 2]})], {}, IMAGE),
    "MaxPool, ceil_mode": ([("MaxPool", [], {**STEP_2, "ceil_mode": 1})], {}, IMAGE),
    "AveragePool": ([("AveragePool", [], {"kernel_shape": [2, 3], "strides": [2, 1]})], {}, IMAGE),
    "AveragePool, pads": ([("AveragePool", [], {"kernel_shape": [3, 3], "pads": [1, 1, 0, 1]})], {}, IMAGE),
    "AveragePool, pads count": (
        [("AveragePool", [], {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1})], {}, IMAGE
    ),
    "AveragePool, SAME_UPPER": ([("AveragePool", [], {**STEP_2, "auto_pad": "SAME_UPPER"})], {}, IMAGE),
    "AveragePool, SAME_LOWER": ([("AveragePool", [], {**STEP_2, "auto_pad": "SAME_LOWER"})], {}, IMAGE),
    "GlobalAveragePool": ([("GlobalAveragePool", [], {})], {}, IMAGE),
    "BatchNormalization": ([("BatchNormalization", [*NORM], {"epsilon": 1e-3})], NORM, IMAGE),
    "Flatten": ([("Flatten", [], {})], {}, IMAGE),
    "Flatten, axis 2": ([("Flatten", [], {"axis": 2})], {}, IMAGE),
    "Reshape": ([("Reshape", ["shape"], {})], {"shape": ints(0, 3, -1)}, (4, 6)),
    "Transpose": ([("Transpose", [], {"perm": [0, 2, 3, 1]})], {}, IMAGE),
    "Pad": ([("Pad", ["pads", "v"], {})], {"pads": ints(0, 0, 1, 2, 0, 1, 0, 0), "v": np.float32(0.5)}, IMAGE),
    "Pad, edge": ([("Pad", ["pads"], {"mode": "edge"})], {"pads": ints(0, 0, 1, 2, 0, 0, 2, 1)}, IMAGE),
    "Pad, reflect, axes": (
        [("Pad", ["pads", "", "axes"], {"mode": "reflect"})], {"pads": ints(1, 2, 2, 1), "axes": ints(3, 2)}, IMAGE
    ),
    "Concat": ([("Concat", ["x", "x"], {"axis": -1})], {}, IMAGE),
    "Softmax": ([("Softmax", [], {})], {}, (6,)),
    "LogSoftmax": ([("LogSoftmax", [], {"axis": 1})], {}, IMAGE),
    "Sigmoid": ([("Sigmoid", [], {})], {}, (6,)),
    "Dropout": ([("Dropout", [], {})], {}, (6,)),
    "Identity": ([("Identity", [], {})], {}, (6,)),
    "Sum, Neg": ([("Sum", ["a", "a"], {}), ("Neg", [], {})], {"a": draw(6)}, (6,)),
    "Max, Min": ([("Max", ["a", "b"], {}), ("Min", ["c"], {})], {"a": draw(1), "b": draw(6), "c": draw(6)}, (6,)),
    "Sub, Mul, Div": ([("Sub", ["a"], {}), ("Mul", ["b"], {}), ("Div", ["b"], {})], {"a": draw(6), "b": draw(1)}, (6,)),
    "Slice": (
        [("Slice", ["starts", "ends", "axes", "steps"], {})],
        {"starts": ints(1, -1), "ends": ints(9, -99), "axes": ints(2, 3), "steps": ints(2, -2)}, IMAGE
    ),
    "Slice of all": ([("Slice", ["starts", "ends"], {})], {"starts": ints(0, 1), "ends": ints(99, 2)}, IMAGE),
    "Cast": ([("Cast", [], {"to": TensorProto.INT64}), ("Cast", [], {"to": TensorProto.FLOAT})], {}, (6,)),
    "ReduceMean": ([("ReduceMean", ["axes"], {"keepdims": 0})], {"axes": ints(2, 3)}, IMAGE),
    "Squeeze, Unsqueeze": ([("Unsqueeze", ["a"], {}), ("Squeeze", ["b"], {})], {"a": ints(1, -1), "b": ints(1)}, (6,)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_onnx_operator_gives_the_values_of_the_reference_evaluator(name, tmp_path):
    nodes, arrays, shape = CASES[name]
    compare(write(tmp_path / "net.onnx", nodes, arrays, shape), shape)


@pytest.mark.parametrize(
    "auto_pad, kernel, pads",
    [("SAME_UPPER", (3, 3), [1, 0, 1, 1]), ("SAME_LOWER", (2, 4), [1, 1, 0, 1]), ("VALID", (3, 3), [0, 0, 0, 0])],
)
def test_onnx_convolution_with_auto_pad_has_the_pads_of_the_standard(auto_pad, kernel, pads, tmp_path):
    """The evaluator of onnx 1.19 is wrong here: it takes other axes for SAME, and pads for VALID."""
    arrays, strides = {"w": draw(4, 2, *kernel)}, {"strides": [2, 2]}
    net = nw.load_onnx(write(tmp_path / "a.onnx", [("Conv", ["w"], {"auto_pad": auto_pad, **strides})], arrays, IMAGE))
    path = write(tmp_path / "b.onnx", [("Conv", ["w"], {"pads": pads, **strides})], arrays, IMAGE)
    x = draw(3, *IMAGE)
    with torch.no_grad():
        found = net(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(found, ReferenceEvaluator(str(path)).run(None, {"x": x})[0], atol=1e-5)


@pytest.mark.parametrize("kind", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("pads", [(1, 1, 1, 1), (1, 0, 1, 1), (0, 0, 0, 0)])
def test_onnx_pooling_that_rounds_up_has_no_window_that_begins_behind_the_input(kind, pads, tmp_path):
    given = {"kernel_shape": [3, 3], "strides": [3, 3], "pads": list(pads), "ceil_mode": 1}
    path = write(tmp_path / "net.onnx", [(kind, [], given)], {}, (2, 8, 6))
    x = torch.from_numpy(draw(3, 2, 8, 6))
    if len(set(pads)) == 1:  # torch has the standard's rule
        pool = torch.nn.MaxPool2d if kind == "MaxPool" else torch.nn.AvgPool2d
        more = {} if kind == "MaxPool" else {"count_include_pad": False}
        wanted = pool(3, 3, pads[0], ceil_mode=True, **more)(x)
        torch.testing.assert_close(nw.load_onnx(path)(x), wanted)
    found = nw.load_onnx(path)(x)
    assert found.isfinite().all() and found.shape == (3, 2, 3, 3 if pads[1] else 2)


@pytest.mark.parametrize("mode", ["reflect", "edge", "wrap"])
def test_onnx_pads_any_axis(mode, tmp_path):
    pads = {"p": ints(0, 1, 1, 0, 0, 2, 0, 1)}  # channels last, and one more channel
    compare(write(tmp_path / "net.onnx", [("Pad", ["p"], {"mode": mode})], pads, (5, 4, 3)), (5, 4, 3))


def test_onnx_clip_without_bounds_and_parts_with_names_of_torch(tmp_path):
    path = write(tmp_path / "net.onnx", [("Clip", [], {}), ("Relu", [], {})], {}, (4,))
    model = onnx.load(path)
    for node, name in zip(model.graph.node, ("forward", "training"), strict=True):
        node.name = name
    onnx.save(model, path)
    compare(path, (4,))


def small_net(path: Path, batch="B", opset: int = 18, last: str = "Softmax") -> Path:
    """A channels-last network as Keras writes it: Transpose, Conv, Clip at 0 and 1, pooling, Reshape, MatMul, Add."""
    axis = {"axis": 1} if opset < 13 else {}
    clip = ("Clip", [], {"min": 0.0, "max": 1.0}) if opset < 11 else ("Clip", ["low", "high"], {})
    nodes = [
        ("Transpose", [], {"perm": [0, 3, 1, 2]}), ("Conv", ["w", "b"], {"pads": [1, 1, 1, 1], "strides": [2, 2]}),
        clip, ("AveragePool", [], {**STEP_2, "auto_pad": "SAME_UPPER"}),
        ("Transpose", [], {"perm": [0, 2, 3, 1]}), ("Reshape", ["shape"], {}), ("MatMul", ["m"], {}),
        ("Add", ["n"], {}), (last, [], axis if last == "Softmax" else {}),
    ]  # fmt: skip
    draw = np.random.default_rng(1).normal
    arrays = {"w": draw(size=(4, 2, 3, 3)), "b": draw(size=4), "m": draw(size=(16, 3)), "n": draw(size=3)}
    arrays |= {"low": np.array(0), "high": np.array(1)} if opset >= 11 else {}
    arrays = {name: array.astype(np.float32) for name, array in arrays.items()}
    return write(path, nodes, {**arrays, "shape": ints(-1 if batch == "B" else batch, 16)}, (7, 7, 2), batch, opset)


@pytest.mark.parametrize("batch", ["B", 1])
@pytest.mark.parametrize("opset", [9, 13, 21])
def test_onnx_network_converts_to_the_numbers_of_the_file(opset, batch, tmp_path):
    path = small_net(tmp_path / "net.onnx", batch, opset)
    net = compare(path, (7, 7, 2), 3 if batch == "B" else 1)
    x = (torch.rand(20, 7, 7, 2, generator=torch.Generator().manual_seed(0)) * 256).round() / 256
    network = nw.convert(net, x, method="max", unit=1 / 256, neuron="sigma-delta", levels=32767)
    assert network.layers == ("clip2", "add7")
    found = nw.read_out(nw.simulate(network, nw.encode(x, 1, "delta", 1 / 256), record="all"))
    evaluator = ReferenceEvaluator(str(path))
    wanted = np.concatenate([evaluator.run(None, {"x": sample[None].numpy()})[0] for sample in x])
    np.testing.assert_allclose(found.reshape(wanted.shape), wanted, atol=1e-4)


def test_onnx_network_divides_by_a_constant_and_drops_axes_of_one_entry(tmp_path):
    nodes = [
        ("Div", ["c"], {}), ("Conv", ["k"], {}), ("Relu", [], {}), ("GlobalAveragePool", [], {}), ("Squeeze", [], {}),
        ("MatMul", ["w"], {}),
    ]  # fmt: skip
    path = write(tmp_path / "a.onnx", nodes, {"c": draw(1) + 3, "k": draw(4, 2, 3, 3), "w": draw(4, 3)}, IMAGE, 1)
    module, x = nw.load_onnx(path), torch.rand(5, *IMAGE)
    network = nw.convert(module, x, 200, "max")
    run = nw.simulate(network, np.repeat(x[:, None].numpy(), 200, 1))
    with torch.no_grad():
        np.testing.assert_allclose(run.output.mean(1), module(x), atol=0.02 * float(module(x).abs().max()))


@pytest.mark.parametrize("name", ["place", "numbers", "calls", "forward"])
def test_onnx_node_may_have_the_name_of_an_attribute(name, tmp_path):
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"], name)],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["B", 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(draw(3, 4), "w")],
    )
    save(graph, tmp_path / "a.onnx")
    compare(tmp_path / "a.onnx", (3,))


@pytest.mark.parametrize("shape", [(1, 4, 1, 1), (1, -1, 1, 1)])
def test_onnx_shapes_of_one_sample_hold_for_any_number_of_them(shape, tmp_path):
    """A file for one sample may reshape constants to the same shape, which stay as they are."""
    nodes = [
        helper.make_node("Reshape", ["b", "s"], ["bias"]),
        helper.make_node("Add", ["x", "bias"], ["h"]),
        helper.make_node("Reshape", ["h", "s"], ["r"]),
        helper.make_node("Reshape", ["b", "s"], ["factor"]),
        helper.make_node("Mul", ["r", "factor"], ["y"]),
    ]
    module = compare(one_sample(nodes, {"b": draw(4), "s": ints(*shape)}, tmp_path / "a.onnx"), (4, 1, 1), 1)
    x = torch.rand(5, 4, 1, 1)
    torch.testing.assert_close(module(x)[2:3], module(x[2:3]))


@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("n_tokens", [-1, 4])
def test_onnx_shapes_of_a_file_may_merge_samples_and_tokens(batch, n_tokens, tmp_path):
    """A layer for every token, as Keras writes it, and tokens that change places with features."""
    nodes = [
        ("Reshape", ["rows"], {}), ("MatMul", ["w"], {}), ("Relu", [], {}), ("Reshape", ["tokens"], {}),
        ("Transpose", [], {"perm": [0, 2, 1]}), ("Reshape", ["flat"], {}), ("MatMul", ["v"], {}),
    ]  # fmt: skip
    arrays = {"w": draw(6, 3), "v": draw(12, 5), "flat": ints(batch, 12), "tokens": ints(batch, n_tokens, 3)}
    arrays["rows"] = ints(-1 if n_tokens < 0 else 4 * batch, 6)
    path = write(tmp_path / "a.onnx", nodes, arrays, (4, 6), batch)
    module, x = compare(path, (4, 6), batch), torch.rand(8, 4, 6)
    wanted = [ReferenceEvaluator(str(path)).run(None, {"x": part.numpy()})[0] for part in x.split(batch)]
    np.testing.assert_allclose(module(x), np.concatenate(wanted), rtol=1e-4, atol=1e-5)
    network = nw.convert(module, x, neuron="sigma-delta", levels=32767, method="max")
    np.testing.assert_allclose(nw.simulate(network, x[:, None].numpy()).output[:, -1], module(x), atol=2e-3)


@pytest.mark.parametrize("shape", [(1, 4, 1, 1), (1, 2, 2, 1)])
def test_onnx_shapes_of_one_sample_whose_axis_was_moved_are_refused(shape, tmp_path):
    nodes = [
        helper.make_node("Transpose", ["x"], ["h"], perm=[1, 0, 2, 3]),
        helper.make_node("Reshape", ["h", "s"], ["y"]),
    ]
    with pytest.raises(nw.ModelError, match="the nodes hold for 1 sample at a time, as the file's input says; export"):
        nw.load_onnx(one_sample(nodes, {"s": ints(*shape)}, tmp_path / "a.onnx"))


def test_onnx_shapes_are_checked_with_numbers_of_the_input(tmp_path):
    whole = helper.make_tensor_value_info("x", TensorProto.INT64, [2, 3])
    nodes = [helper.make_node("Gather", ["e", "x"], ["h"]), helper.make_node("Flatten", ["h"], ["y"])]
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    table = [numpy_helper.from_array(draw(5, 4), "e")]
    path = save(helper.make_graph(nodes, "net", [whole], [result], table), tmp_path / "a.onnx")
    assert nw.load_onnx(path)(torch.tensor([[0, 4, 2]])).shape == (1, 12)
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])
    nodes = [helper.make_node("Squeeze", ["x"], ["h"]), helper.make_node("Softmax", ["h"], ["y"], axis=1)]
    with pytest.raises(nw.ModelError, match="the nodes hold for 2 samples at a time"):
        nw.load_onnx(save(helper.make_graph(nodes, "net", [given], [result]), tmp_path / "b.onnx"))


def one_sample(nodes: list, arrays: dict[str, np.ndarray], path: Path) -> Path:
    """Write a graph from "x" [1, 4, 1, 1] to "y"."""
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4, 1, 1])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    return save(graph, path)


def test_onnx_shapes_that_a_file_computes(tmp_path):
    """x.view(x.size(0), -1), as torch writes it."""
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]), helper.make_node("Shape", ["r"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"]), helper.make_node("Unsqueeze", ["n", "zeros"], ["rows"]),
        helper.make_node("Concat", ["rows", "rest"], ["shape"], axis=0),
        helper.make_node("Reshape", ["r", "shape"], ["f"]), helper.make_node("Gemm", ["f", "w"], ["y"]),
    ]  # fmt: skip
    given, result = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["B", *shape])
        for name, shape in (("x", (4, 6)), ("y", (3,)))
    )
    arrays = {"zero": np.array(0, np.int64), "zeros": ints(0), "rest": ints(-1), "w": draw(24, 3)}
    graph = helper.make_graph(
        nodes, "net", [given], [result], [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), tmp_path / "net.onnx"
    )
    net = compare(tmp_path / "net.onnx", (4, 6))
    network = nw.convert(net, torch.randn(20, 4, 6), 16)
    assert network.layers == ("Relu_0", "Gemm_6")


def test_onnx_nodes_that_cannot_be_read_are_named(tmp_path):
    path = write(tmp_path / "net.onnx", [("Relu", [], {}), ("Erf", [], {}), ("Sin", [], {})], {}, (6,))
    with pytest.raises(nw.ModelError) as error:
        nw.load_onnx(path)
    assert str(error.value).startswith(f"{path}: not read: node 1 '/erf1' (Erf), node 2 '/sin2' (Sin); read are Gemm, ")
    assert error.value.code == "NW2310"
    kinds = [("AveragePool", [], {**STEP_2, "dilations": dilations}) for dilations in ([1, 1], [2, 1])]
    with pytest.raises(nw.ModelError, match=r"read: node 1 '/averagepool1' \(AveragePool with dilations=\[2, 1\]\);"):
        nw.load_onnx(write(path, kinds, {}, (2, 9, 9), opset=19))
    nodes = [("Dropout", ["ratio", "trains"], {})]
    with pytest.raises(nw.ModelError, match=r"not read: node 0 '/dropout0' \(Dropout with training_mode=True\);"):
        nw.load_onnx(write(path, nodes, {"ratio": np.float32(0.5), "trains": np.array(True)}, (6,)))
    nw.load_onnx(write(path, nodes, {"ratio": np.float32(0.5), "trains": np.array(False)}, (6,)))
    model = onnx.load(write(path, [("BatchNormalization", ["s", "o", "m", "v"], {"training_mode": 0})], NORM, IMAGE))
    model.graph.node[0].attribute[0].i = 1
    onnx.save(model, path)
    with pytest.raises(nw.ModelError, match=r"\(BatchNormalization with training_mode=1\);"):
        nw.load_onnx(path)


def test_onnx_results_that_nothing_reads_are_left_out(tmp_path):
    path = write(tmp_path / "net.onnx", [("Dropout", [], {}), ("Relu", [], {})], {}, (6,))
    model = onnx.load(path)
    model.graph.node[0].output.append("mask")
    onnx.save(model, path)
    compare(path, (6,))
    model.graph.node.append(helper.make_node("Not", ["mask"], ["other"]))
    onnx.save(model, path)
    with pytest.raises(nw.ModelError, match=r"not read: node 0 '/dropout0' \(Dropout\), node 2 '' \(Not\)"):
        nw.load_onnx(path)


def test_onnx_files_that_cannot_be_read(tmp_path):
    (tmp_path / "broken.onnx").write_bytes(b"no onnx file")
    with pytest.raises(nw.ModelError, match=r"broken.onnx: onnx cannot read the file \("):
        nw.load_onnx(tmp_path / "broken.onnx")
    with pytest.raises(nw.ModelError, match=r"none.onnx: onnx cannot read the file \(.*No such file"):
        nw.load_onnx(tmp_path / "none.onnx")
    with pytest.raises(nw.ModelError, match="load_onnx takes the path of a file, not NoneType"):
        nw.load_onnx(None)
    known = onnx.defs.onnx_opset_version()
    with pytest.raises(nw.ModelError, match=rf"operator set 99; the installed onnx knows {known}: upgrade it\)"):
        nw.load_onnx(write(tmp_path / "new.onnx", [("Relu", [], {})], {}, (4,), opset=99))
    nodes = [("Cast", [], {"to": TensorProto.BFLOAT16}), ("Cast", [], {"to": TensorProto.FLOAT})]
    with pytest.raises(nw.ModelError, match=r"not read: node 0 '/cast0' \(Cast of a type that torch does not take\)"):
        nw.load_onnx(write(tmp_path / "cast.onnx", nodes, {}, (4,)))


def test_onnx_network_with_a_node_that_no_spikes_replace(tmp_path):
    nodes = [("Conv", ["w"], {}), ("Relu", [], {}), ("MaxPool", [], {"kernel_shape": [2, 2]}), ("Flatten", [], {})]
    net = nw.load_onnx(write(tmp_path / "net.onnx", nodes, {"w": draw(4, 2, 3, 3)}, IMAGE))
    with pytest.raises(nw.ModelError) as error:
        nw.convert(net, torch.rand(4, *IMAGE), 8)
    assert str(error.value).startswith("OnnxModule has 'maxpool2' (MaxPool); convert takes ReLUs")
    assert str(error.value).endswith("replace maximum pooling by average pooling and train again")
