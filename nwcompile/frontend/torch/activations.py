"""The ReLUs of an artificial network, each a module of its own, and how far they go on samples."""

from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import torch

from nwcompile.errors import ModelError
from nwcompile.frontend.torch.functional import FUNCTIONS
from nwcompile.frontend.torch.inputs import uncompiled, unwrapped
from nwcompile.frontend.torch.kinds import is_foreign_neuron, kind_of
from nwcompile.frontend.torch.linear import is_linear
from nwcompile.frontend.torch.moves import MOVES
from nwcompile.frontend.torch.operations import IDENTITIES, MAKERS, SHAPERS
from nwcompile.frontend.torch.track import CASTS, MAXIMA, RELUS
from nwcompile.nn import LIFSynapse, QuantizedReLU

RELU = (torch.nn.ReLU, QuantizedReLU)
UNSPIKING = (LIFSynapse, torch.nn.MaxPool1d, torch.nn.MaxPool2d, torch.nn.LPPool2d)
MODULES = tuple(kind for kind in (*MAKERS, *IDENTITIES, *SHAPERS, *RELU) if kind not in UNSPIKING)
PLAIN = ("getattr", "getitem", "size", "dim", "floordiv", "neg")  # of shapes, or followed by from_torch
CONVERTS = (
    "convert takes Linear, Conv1d, Conv2d, BatchNorm1d, BatchNorm2d, AvgPool1d, AvgPool2d, AdaptiveAvgPool2d, Flatten, "
    "Unflatten, Dropout, Identity, ReLU, QuantizedReLU, sums of tensors, and views"
)
BATCH = 256
MOST_ENTRIES = 1 << 24  # of a layer, that percentiles are taken over


class _Tracer(torch.fx.Tracer):
    """Goes into modules of the user's own, not into neurons or quantized ReLUs."""

    def is_leaf_module(self, m: torch.nn.Module, module_qualified_name: str) -> bool:
        is_neuron = kind_of(m) is not None or is_foreign_neuron(m)
        return is_neuron or isinstance(m, MODULES) or super().is_leaf_module(m, module_qualified_name)


@dataclass(frozen=True, eq=False)
class Traced:
    """A copy of the network in eval mode in which every ReLU is a module that is called once; their paths, in order."""

    module: torch.fx.GraphModule
    relus: tuple[str, ...]


def traced(ann: torch.nn.Module) -> Traced:
    """The network with its ReLUs apart. ModelError names all modules and functions that no spikes can stand for."""
    ann = deepcopy(unwrapped(ann)).eval()
    kind = type(ann).__name__
    root = ann if not isinstance(ann, MODULES) else torch.nn.Sequential(ann)
    try:
        with uncompiled():
            graph = _Tracer().trace(root)
    except Exception as e:
        text = (str(e).strip().splitlines() or [type(e).__name__])[0]
        raise ModelError(
            f"{kind} cannot be traced ({text}); give convert a module whose forward does the same for every input"
        ) from e
    found = torch.fx.GraphModule(root, graph, kind)
    _verify(found, kind)
    relus: list[str] = []
    for node in graph.nodes:
        if not _is_relu(node, found):
            continue
        path = str(node.target) if node.op == "call_module" else _place(node)
        module = deepcopy(found.get_submodule(path)) if node.op == "call_module" else torch.nn.ReLU()
        if node.op != "call_module" or path in relus:
            taken = {name for name, _ in found.named_modules()}
            path = next(name for k in range(1, len(taken) + 2) if (name := f"{path}_{k}") not in taken)
        found.add_submodule(path, module)
        node.op, node.target, node.args, node.kwargs = "call_module", path, node.args[:1], {}
        relus.append(path)
    if not relus:
        raise ModelError(f"{kind} has no ReLU, and spiking neurons stand for nothing else; {CONVERTS}")
    found.recompile()
    return Traced(found, tuple(relus))


def _verify(module: torch.fx.GraphModule, kind: str) -> None:
    """Raise ModelError with all that cannot be converted."""
    wrong = []
    for node in module.graph.nodes:
        if node.op == "call_module":
            part = module.get_submodule(str(node.target))
            if not isinstance(part, MODULES) or isinstance(part, UNSPIKING):
                wrong.append(f"{str(node.target)!r} ({type(part).__name__})")
        elif node.op in ("call_function", "call_method"):
            name = _name(node)
            known = name in FUNCTIONS or name in MOVES or name in CASTS or name in RELUS or name.strip("_") in PLAIN
            if name in MAXIMA or name == "lp_pool2d" or not (known or is_linear(name)):
                wrong.append(f"function {name!r}{_where(node)}")
    if wrong:
        pools = any("axPool" in text or "max_pool" in text for text in wrong)
        hint = "; replace maximum pooling by average pooling and train again" if pools else ""
        raise ModelError(f"{kind} has {', '.join(dict.fromkeys(wrong))}; {CONVERTS}{hint}")


def _is_relu(node: torch.fx.Node, module: torch.fx.GraphModule) -> bool:
    if node.op == "call_module":
        return isinstance(module.get_submodule(str(node.target)), RELU)
    return node.op in ("call_function", "call_method") and _name(node) in RELUS


def _name(node: torch.fx.Node) -> str:
    return node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))


def _place(node: torch.fx.Node) -> str:
    """The path of a function that is called in a module's forward."""
    inside = list((node.meta.get("nn_module_stack") or {}).values())
    return ".".join(filter(None, (inside[-1][0] if inside else "", _name(node).strip("_"))))


def _where(node: torch.fx.Node) -> str:
    inside = list((node.meta.get("nn_module_stack") or {}).values())
    return f" in {inside[-1][0]!r}" if inside and inside[-1][0] else ""


@torch.no_grad()
def activations(net: Traced, samples: torch.Tensor) -> dict[str, np.ndarray]:
    """What every ReLU gives above 0 on `samples` [B, *shape], by path: float32, at most MOST_ENTRIES, evenly spread.

    Raises ModelError where the samples do not go through the network or give NaN.
    """
    found: dict[str, list[np.ndarray]] = {path: [] for path in net.relus}

    def hook(path):
        def take(_module, _args, result: torch.Tensor) -> None:
            flat = result.reshape(-1)
            every = max(1, -(-flat.numel() * -(-len(samples) // BATCH) // MOST_ENTRIES))
            values = flat[::every].float().cpu().numpy()
            found[path].append(values[~(values <= 0)])  # NaN stays

        return take

    handles = [net.module.get_submodule(path).register_forward_hook(hook(path)) for path in net.relus]
    try:
        for start in range(0, len(samples), BATCH):
            net.module(samples[start : start + BATCH])
    except Exception as e:
        text = (str(e).strip().splitlines() or [type(e).__name__])[0]
        raise ModelError(
            f"calibration of shape {list(samples.shape)} does not go through the network ({type(e).__name__}: {text}); "
            "give samples [B, *shape] as it was trained on"
        ) from e
    finally:
        for handle in handles:
            handle.remove()
    return {path: np.concatenate(parts) for path, parts in found.items()}
