"""Make every ReLU of an artificial network a separate module, and measure its activations on samples."""

from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import torch

from nwcompile.errors import ModelError, NwError
from nwcompile.frontend.torch.functions import FUNCTIONS, is_linear
from nwcompile.frontend.torch.kinds import find_kind, is_foreign_neuron
from nwcompile.frontend.torch.modules import disable_compile, unwrap_module
from nwcompile.frontend.torch.moves import MOVES
from nwcompile.frontend.torch.operations import IDENTITIES, MAKERS, SHAPERS
from nwcompile.frontend.torch.track import CASTS, RELUS
from nwcompile.nn import LIFSynapse, QuantizedReLU

ERROR_CODE = "NW2305"
RELU = (torch.nn.ReLU, QuantizedReLU)
UNSPIKING = (LIFSynapse, torch.nn.MaxPool1d, torch.nn.MaxPool2d, torch.nn.LPPool2d)
MODULES = tuple(kind for kind in (*MAKERS, *IDENTITIES, *SHAPERS, *RELU) if kind not in UNSPIKING)
MAXIMA = ("max_pool1d", "max_pool2d")  # A maximum does not tell how often a neuron fires.
PLAIN = ("getattr", "getitem", "size", "dim", "floordiv", "neg")  # on shapes, or followed by from_torch
CONVERTS = (
    "convert takes Linear, Conv1d, Conv2d, BatchNorm1d, BatchNorm2d, AvgPool1d, AvgPool2d, AdaptiveAvgPool2d, Flatten, "
    "Unflatten, Dropout, Identity, ReLU, QuantizedReLU, sums of tensors, and views"
)
BATCH_SAMPLES = 256  # Samples per batch, which bounds the memory of the layers.
MAX_ENTRIES = 1 << 24  # A percentile uses at most this many entries of a layer, which bounds memory.


class _Tracer(torch.fx.Tracer):
    """Traces into user modules, but not into neurons or modules that `convert` supports."""

    def is_leaf_module(self, m: torch.nn.Module, module_qualified_name: str) -> bool:
        is_neuron = find_kind(m) is not None or is_foreign_neuron(m)
        return is_neuron or _is_instance(m, MODULES) or super().is_leaf_module(m, module_qualified_name)


@dataclass(frozen=True, eq=False)
class Traced:
    """A copy of the network in eval mode, and an equal `module` in which every ReLU is a module that is called once.

    `relus`: the paths of these ReLUs, in order.
    """

    copy: torch.nn.Module
    module: torch.fx.GraphModule
    relus: tuple[str, ...]


def trace_relus(ann: torch.nn.Module) -> Traced:
    """Return the network with separate ReLUs; ModelError names all modules and functions that spikes cannot replace."""
    kind = type(unwrap_module(ann)).__name__
    try:
        ann = deepcopy(unwrap_module(ann)).eval()
        root = torch.nn.Sequential(ann) if _is_instance(ann, MODULES) else ann
        with disable_compile():
            graph = _Tracer().trace(root)
    except Exception as e:
        text = (str(e).strip().splitlines() or [type(e).__name__])[0]
        raise ModelError(
            f"{kind} cannot be traced ({text}); give convert a module whose forward does the same for every input"
        ) from e
    traced = torch.fx.GraphModule(root, graph, kind)
    traced.graph.eliminate_dead_code(lambda node: node.is_impure() or _op_name(node).endswith("_"))
    _verify_supported(traced, kind)
    relus = _separate_relus(traced)
    if not relus:
        raise ModelError(f"{kind} has no ReLU, and only ReLUs become spiking neurons; {CONVERTS}")
    return Traced(root, traced, relus)


def _separate_relus(module: torch.fx.GraphModule) -> tuple[str, ...]:
    """Make every ReLU of the graph a separate module that changes no tensor in place; return their paths."""
    relus: list[str] = []
    order = {node: i for i, node in enumerate(module.graph.nodes)}
    for node in module.graph.nodes:
        if not _is_relu(node, module):
            continue
        called = module.get_submodule(str(node.target)) if node.op == "call_module" else None
        path = ".".join(filter(None, (_calling_path(node), _op_name(node).strip("_"))))
        path = str(node.target) if called is not None else path
        if called is None or path in relus:
            taken = {name for name, _ in module.named_modules()}
            path = next(name for k in range(1, len(taken) + 2) if (name := f"{path}_{k}") not in taken)
        options = (*node.args[1:], *node.kwargs.values(), _op_name(node) == "relu_", getattr(called, "inplace", False))
        if True in options:
            node.args[0].replace_all_uses_with(node, lambda user, node=node: order[user] > order[node])
        module.add_submodule(path, deepcopy(called) if isinstance(called, QuantizedReLU) else torch.nn.ReLU())
        node.op, node.target, node.args, node.kwargs = "call_module", path, node.args[:1], {}
        relus.append(path)
    module.recompile()
    return tuple(relus)


def add_answer(net: Traced) -> tuple[str, str] | None:
    """Add a ReLU after the output, so that it becomes a layer; return its path and the name of its input.

    Returns None if the network ends in a ReLU, which is that layer.
    """
    module = net.module
    (output,) = (node for node in module.graph.nodes if node.op == "output")
    given = last = output.args[0]
    while last.op == "call_module" and _is_instance(module.get_submodule(str(last.target)), IDENTITIES):
        last = last.args[0]
    if last.target in net.relus:
        return None
    taken = {name for name, _ in module.named_modules()}
    path = next(name for k in range(len(taken) + 1) if (name := f"answer{k or ''}") not in taken)
    module.add_submodule(path, torch.nn.ReLU())
    with module.graph.inserting_before(output):
        output.args = (module.graph.call_module(path, (given,)),)
    module.recompile()
    return path, str(given.target) if given.op == "call_module" else path


def _verify_supported(module: torch.fx.GraphModule, kind: str) -> None:
    """Raise ModelError with everything that cannot be converted."""
    wrong = []
    for node in module.graph.nodes:
        if node.op == "call_module":
            part = module.get_submodule(str(node.target))
            if not _is_instance(part, MODULES):
                wrong.append(f"{str(node.target)!r} ({type(part).__name__})")
        elif node.op in ("call_function", "call_method"):
            name = _op_name(node)
            known = name in FUNCTIONS or name in MOVES or name in CASTS or name in RELUS or name.strip("_") in PLAIN
            if name in MAXIMA or name == "lp_pool2d" or not (known or is_linear(name)):
                path = _calling_path(node)
                wrong.append(f"function {name!r} in {path!r}" if path else f"function {name!r}")
    if wrong:
        pools = any("axPool" in text or "max_pool" in text for text in wrong)
        hint = "; replace maximum pooling by average pooling and train again" if pools else ""
        raise ModelError(f"{kind} has {', '.join(dict.fromkeys(wrong))}; {CONVERTS}{hint}")


def _is_instance(module: torch.nn.Module, kinds: tuple[type[torch.nn.Module], ...]) -> bool:
    """Return whether a module computes the same as one of these classes."""
    return any(isinstance(module, kind) and type(module).forward is kind.forward for kind in kinds)


def _is_relu(node: torch.fx.Node, module: torch.fx.GraphModule) -> bool:
    if node.op == "call_module":
        return _is_instance(module.get_submodule(str(node.target)), RELU)
    return node.op in ("call_function", "call_method") and _op_name(node) in RELUS


def _op_name(node: torch.fx.Node) -> str:
    return node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))


def _calling_path(node: torch.fx.Node) -> str:
    """Return the path of the module whose forward calls a function."""
    inside = list((node.meta.get("nn_module_stack") or {}).values())
    return inside[-1][0] if inside else ""


@torch.no_grad()
def record_activations(net: Traced, samples: torch.Tensor) -> dict[str, np.ndarray]:
    """Return every ReLU's outputs above 0 on `samples` [B, *shape], by path: float32, at most MAX_ENTRIES of each.

    The entries are evenly spaced. NaN is kept. Raises ModelError if the samples do not pass through the network.
    """
    inputs_of: dict[str, list[np.ndarray]] = {path: [] for path in net.relus}

    def make_hook(path):
        def collect_values(_module, _args, result: torch.Tensor) -> None:
            flat = result.reshape(-1)
            every = max(1, -(-flat.numel() * -(-len(samples) // BATCH_SAMPLES) // MAX_ENTRIES))
            values = flat[::every].float().cpu().numpy()
            inputs_of[path].append(values[~(values <= 0)])  # NaN stays

        return collect_values

    handles = [net.module.get_submodule(path).register_forward_hook(make_hook(path)) for path in net.relus]
    try:
        for start in range(0, len(samples), BATCH_SAMPLES):
            net.module(samples[start : start + BATCH_SAMPLES].clone())
    except NwError:
        raise
    except Exception as e:
        text = (str(e).strip().splitlines() or [type(e).__name__])[0]
        raise ModelError(
            f"calibration of shape {list(samples.shape)} does not go through the network ({type(e).__name__}: {text}); "
            "give samples [B, *shape] as it was trained on"
        ) from e
    finally:
        for handle in handles:
            handle.remove()
    return {path: np.concatenate(parts) for path, parts in inputs_of.items()}


@torch.no_grad()
def verify_same(net: Traced, samples: torch.Tensor) -> None:
    """Raise ModelError unless the network and the traced one return the same single tensor on `samples` [B, *shape]."""
    wanted = net.copy(samples.clone())
    given = net.module(samples.clone())
    if not isinstance(wanted, torch.Tensor):
        raise ModelError(f"the network gives a {type(wanted).__name__}, not one tensor; convert takes one output")
    if wanted.ndim < 2 or len(wanted) != len(samples):
        raise ModelError(
            f"the network gives shape {list(wanted.shape)} for {len(samples)} samples, not [B, *shape]; remove "
            "functions that drop or merge axes after its last layer"
        )
    largest = float(wanted.nan_to_num(0, 0, 0).abs().max())
    if not torch.allclose(wanted, given, 1e-4, 1e-5 * largest, equal_nan=True):
        raise ModelError(
            "the network gives other numbers than the trace of its functions, for example because a tensor is changed "
            "in place; use functions without inplace"
        )
