"""Record the operators of a ReLU network, find its ReLUs, and measure their activations on samples."""

from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from math import inf, nan
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from nwcompile.errors import ModelError, NwError
from nwcompile.frontend.torch.modules import disable_compile, unwrap_module
from nwcompile.frontend.torch.operators.graph import MOVES, Node, Ref, find_operand_nodes, run_node
from nwcompile.frontend.torch.operators.neurons import is_elementwise, is_linear
from nwcompile.frontend.torch.operators.ops import is_op, map_leaves
from nwcompile.frontend.torch.operators.record import OperatorRecorder
from nwcompile.frontend.torch.operators.roll import COPIES
from nwcompile.frontend.torch.operators.unroll import NO_MAP
from nwcompile.nn import QuantizedReLU

ERROR_CODE = "NW2305"
# Bounds of what each operator returns, from its arguments after the first; NaN: they are not numbers.
CLIPS: dict[str, Callable] = {
    "relu": lambda: (0.0, inf),
    "threshold": lambda limit, value: (0.0 if limit == value == 0 else nan, inf),
    "hardtanh": lambda low=-1.0, high=1.0: (low, high),
    "clamp": lambda low=None, high=None: (-inf if low is None else low, inf if high is None else high),
    "clamp_min": lambda low: (low, inf),
    "clamp_max": lambda high: (-inf, high),
}
EITHER = {"maximum": "clamp_min", "fmax": "clamp_min", "minimum": "clamp_max", "fmin": "clamp_max"}  # takes the bound
ON_HOST = ("_softmax", "_log_softmax", "sigmoid")  # operators that the host computes after the last layer
CONVERTS = (
    "convert takes ReLUs (clipped ones and nn.QuantizedReLU too), every linear map between them, and softmax or "
    "sigmoid at the end"
)
POOLING = "replace maximum pooling by average pooling and train again"
BATCH_SAMPLES = 256  # Samples per batch, which bounds the memory of the layers.
MAX_ENTRIES = 1 << 24  # A percentile uses at most this many entries of a layer, which bounds memory.


@dataclass(frozen=True, eq=False)
class Relu:
    """A ReLU, or a function that is linear from `low` to `high` and constant outside.

    `clipped`: ReLUs before it whose result only it takes; the bounds are those of all of them. `place`: its number
    among all operators that may clip, in the order in which they run. `quantized`: its module, if that is one.
    """

    node: Node
    low: float
    high: float
    place: int
    quantized: QuantizedReLU | None
    clipped: tuple[Node, ...] = ()


@dataclass(frozen=True, eq=False)
class ReluNet:
    """A ReLU network: a copy of the module in eval mode, and the operators that it runs on one sample, in order.

    `relus`: by the names of their layers. `tail`: operators after `output` that the host computes.
    """

    module: torch.nn.Module
    nodes: list[Node]
    relus: dict[str, Relu]
    output: Node
    tail: list[Node]

    def run_sample(self, x: torch.Tensor, takes_levels: bool = True) -> dict[Node, Any]:
        """Return the results of all operators on a sample `[1, *shape]`; with `takes_levels`, ReLUs are quantized."""
        values: dict[Node, Any] = {self.nodes[0]: x}
        quantized = {r.node: r.quantized for r in self.relus.values() if r.quantized is not None and takes_levels}
        for node in (*self.nodes[1:], *self.tail):
            if node in quantized:
                values[node] = QuantizedReLU.forward(quantized[node], values[node.refs[0].node])
            else:
                result = run_node(node, lambda ref: values[ref.node])
                values[node] = result.contiguous() if isinstance(result, torch.Tensor) else result  # for views
        return values


def may_clip(name: str) -> bool:
    """Return whether an operator clips for some arguments."""
    return name.strip("_") in (*CLIPS, *EITHER)


def read_clip(name: str, args: tuple) -> tuple[float, float] | None:
    """Return the bounds (low, high) of an operator that only clips, each perhaps infinite; None for others."""
    kind, bounds = name.strip("_"), args[1:]
    if kind in EITHER:
        kind, bounds = EITHER[kind], args[:1] if _read_number(args[1]) is nan else args[1:]
    if kind not in CLIPS:
        return None
    low, high = CLIPS[kind](*map(_read_number, bounds))
    return (low, high) if low < high else None


def _read_number(operand) -> float | None:
    """Return the one value of an operand that does not depend on the input, or None; NaN if it has none."""
    value = operand.value if is_op(operand) and not operand.depends else operand
    if isinstance(value, torch.Tensor) and value.numel() and value.min() == value.max():
        value = value.min().item()
    return value if value is None or isinstance(value, int | float) else nan


def trace_relus(ann: torch.nn.Module, samples: torch.Tensor) -> ReluNet:
    """Return the ReLUs of a network and the operators between them, as it runs on the first of `samples`.

    Raises ModelError that names all modules and functions that spikes cannot replace.
    """
    module = deepcopy(unwrap_module(ann)).eval()
    kind, plain = type(module).__name__, deepcopy(module).cpu()
    for part in plain.modules():
        if type(part).forward is QuantizedReLU.forward:
            part.forward = torch.relu  # its levels are those of the spikes
    paths = {part: path for path, part in plain.named_modules()}
    example = samples[:1].cpu().clone()
    recorder = OperatorRecorder(example, paths, takes_choices=False)
    with disable_compile():
        result = _run_module(plain, example, lambda _: recorder.record(plain, example))
    if recorder.reads:
        raise recorder.refuse_reading(recorder.reads[0])
    if not is_op(result):
        raise ModelError(f"the network gives a {type(result).__name__}, not one tensor; convert takes one output")
    node_of = {recorder.input: Node(recorder.input)}
    for op in recorder.ops[1:]:
        if op.name in COPIES and op.depends:
            node_of[op] = node_of[op.operands[0]]
        elif op.depends:
            args, kwargs = map_leaves(
                lambda a: Ref(node_of[a], 0) if is_op(a) and a.depends else a, (op.args, op.kwargs)
            )
            node_of[op] = Node(op, args, kwargs)
    if not result.depends:
        raise ModelError("the network gives the same for every input; convert takes one that uses it")
    needed = find_operand_nodes([node_of[result]])
    nodes = [node for node in dict.fromkeys(node_of.values()) if node in needed]
    parts = dict(plain.named_modules())
    relus = _find_relus(recorder, {node.op: node for node in nodes}, parts)
    output, tail = _split_tail(node_of[result], {relu.node for relu in relus.values()})
    nodes = [node for node in nodes if node not in tail]
    _verify_supported(nodes, {node for relu in relus.values() for node in (relu.node, *relu.clipped)}, parts, kind)
    if not relus:
        raise ModelError(f"{kind} has no ReLU, and only ReLUs become spiking neurons; {CONVERTS}")
    return ReluNet(module, nodes, relus, output, tail)


def _find_relus(recorder: OperatorRecorder, nodes: dict, parts: dict[str, torch.nn.Module]) -> dict[str, Relu]:
    """Return the ReLUs among the nodes, by the path of their module, or by that of the module that calls a function."""
    relus: dict[str, Relu] = {}
    n_users = Counter(ref.node for node in nodes.values() for ref in node.refs)
    for place, op in enumerate(op for op in recorder.ops if may_clip(op.name)):
        clip = read_clip(op.name, op.args)
        if clip is None or op not in nodes or nodes[op].shape != nodes[op].refs[0].node.shape:
            continue
        low, high = clip
        path = op.site.path
        part = parts.get(path)
        relu = Relu(nodes[op], low, high, place, part if isinstance(part, QuantizedReLU) else None)
        first = relu.node.refs[0].node
        before = next((name for name, r in relus.items() if r.node is first and n_users[first] == 1), None)
        joined = _join_relus(relus[before], relu) if before else None
        if before and joined:
            relus[before] = joined
            continue
        is_alone = bool(path) and not any(parts[path].children())
        name = stem = path if is_alone else ".".join(filter(None, (path, "relu")))
        k = 0
        while name in relus or (k and name in parts):
            k += 1
            name = f"{stem}_{k}"
        relus[name] = relu
    return {name: relu for name, relu in relus.items() if relu.low > -inf}


def _join_relus(first: Relu, second: Relu) -> Relu | None:
    """Return the ReLU that computes one and then the other; None if there is none."""
    low, high = max(first.low, second.low), min(first.high, second.high)
    if low >= high or first.quantized is not None or second.quantized is not None:
        return None
    return replace(second, low=low, high=high, clipped=(*first.clipped, first.node))


def _split_tail(node: Node, relus: set[Node]) -> tuple[Node, list[Node]]:
    """Return the last node of the network, and those after it that the host computes."""
    tail: list[Node] = []
    moves: list[Node] = []
    output = node
    while node not in relus and len(node.refs) == 1 and node.name in (*ON_HOST, *MOVES):
        moves.append(node)
        node = node.refs[0].node
        if moves[-1].name in ON_HOST:
            tail, moves, output = [*tail, *moves], [], node
    return output, tail[::-1]


def _verify_supported(nodes: list[Node], relus: set[Node], parts: dict[str, torch.nn.Module], kind: str) -> None:
    """Raise ModelError with everything that is neither a ReLU nor a linear map."""
    wrong = []
    for node in nodes:
        is_nonlinear = node.name in NO_MAP or _is_maximum(node) or (is_elementwise(node) and not is_linear(node))
        is_product = len(node.refs) > 1 and not is_elementwise(node) and node.name not in MOVES
        if node not in relus and (is_nonlinear or is_product):
            path = node.op.site.path
            part = type(parts.get(path))
            is_known = part.__module__.startswith(("torch.nn.modules", "nwcompile")) and not any(parts[path].children())
            wrong.append(f"{path!r} ({part.__name__})" if is_known else f"{node.op.site}: {node.op.title}")
    if wrong:
        hint = f"; {POOLING}" if any(map(_is_maximum, nodes)) else ""
        raise ModelError(f"{kind} has {', '.join(dict.fromkeys(wrong))}; {CONVERTS}{hint}")


def _is_maximum(node: Node) -> bool:
    return "max_pool" in node.name or node.name in ("amax", "max")


def _run_module(module: torch.nn.Module, samples: torch.Tensor, run):
    """Return `run(samples)`; raise ModelError if the samples do not pass through the network."""
    try:
        return run(samples)
    except NwError:
        raise
    except Exception as e:
        text = (str(e).strip().splitlines() or [type(e).__name__])[0]
        what = (
            f"calibration of shape {list(samples.shape)}" if len(samples) > 1 else f"one sample {list(samples.shape)}"
        )
        raise ModelError(
            f"{what} does not go through the network ({type(e).__name__}: {text}); "
            "give samples [B, *shape] as it was trained on"
        ) from e


class _ReluRecorder(TorchDispatchMode):
    """Collects the positive activations of ReLUs, minus the lower bound of each: `low`, by the ReLU's place."""

    def __init__(self, low: dict[int, float], n_batches: int):
        super().__init__()
        self.low, self.n_batches = low, n_batches
        self.place = 0
        self.above: dict[int, list[np.ndarray]] = {place: [] for place in low}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False: otherwise torch loads its compiler, which takes seconds, to disable it in this mode."""
        return False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if may_clip(func.overloadpacket.__name__):
            if self.place in self.above:
                every = max(1, -(-result.numel() * self.n_batches // MAX_ENTRIES))
                values = result.reshape(-1)[::every].float().cpu().numpy() - self.low[self.place]
                self.above[self.place].append(values[~(values <= 0)])  # NaN stays
            self.place += 1
        return result


@torch.no_grad()
def record_activations(net: ReluNet, samples: torch.Tensor) -> dict[str, np.ndarray]:
    """Return what every ReLU gives on `samples` [B, *shape], above its least, by layer: float32, at most MAX_ENTRIES.

    Entries are evenly spaced. NaN is kept. Raises ModelError if the samples do not pass through the network.
    """
    recorder = _ReluRecorder({relu.place: relu.low for relu in net.relus.values()}, -(-len(samples) // BATCH_SAMPLES))
    with disable_compile(), recorder:
        for start in range(0, len(samples), BATCH_SAMPLES):
            recorder.place = 0
            _run_module(net.module, samples, lambda x, at=start: net.module(x[at : at + BATCH_SAMPLES].clone()))
    return {name: np.concatenate(recorder.above[relu.place]) for name, relu in net.relus.items()}


@torch.no_grad()
def verify_same(net: ReluNet, samples: torch.Tensor) -> None:
    """Raise ModelError unless the network returns on `samples` [B, *shape] what its operators give for each sample.

    It runs a batch, of which the first and the last sample are compared.
    """
    batch = samples[:BATCH_SAMPLES]
    wanted = net.module(batch.clone()).cpu()
    if wanted.ndim < 2 or len(wanted) != len(batch):
        raise ModelError(
            f"the network gives shape {list(wanted.shape)} for {len(batch)} samples, not [B, *shape]; remove "
            "functions that drop or merge axes after its last layer"
        )
    last = (*net.nodes, *net.tail)[-1]
    ends = [0, len(batch) - 1]
    wanted = wanted[ends]
    given = torch.stack([net.run_sample(batch[i : i + 1].cpu())[last].reshape(wanted.shape[1:]) for i in ends])
    largest = float(wanted.nan_to_num(0, 0, 0).abs().max())
    if not torch.allclose(wanted, given, 1e-4, 1e-5 * largest, equal_nan=True):
        raise ModelError(
            "the output for a sample depends on the other samples of the batch, or is random; use functions that "
            "compute every sample alike (batch norm with running statistics, F.dropout with training=self.training)"
        )
