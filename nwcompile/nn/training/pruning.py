"""Magnitude pruning: the smallest weights become 0 and stay 0 in training."""

from typing import Any

import torch
from torch.nn.utils import parametrize

from nwcompile.argument_types import checked
from nwcompile.errors import ModelError, OptionError, shown


class Mask(torch.nn.Module):
    """A parametrization that sets weights to 0 where `mask` is False; gradients reach only the others."""

    mask: torch.Tensor

    def __init__(self, mask: torch.Tensor):
        super().__init__()
        self.register_buffer("mask", mask)

    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        return weight * self.mask


@checked()
def prune(model: torch.nn.Module, sparsity: float | dict[str, float], together: bool = False) -> float:
    """Set the smallest weights of `model` to 0 up to a `sparsity`; return the share of weights that are 0.

    `sparsity`, 0..1, applies to every parameter with two axes or more (weights, not biases), or to the named ones,
    `{"fc1.weight": 0.9}`. With `together` weights compete across all layers, else within their layer.
    Pruned weights stay 0 in training: a mask (torch.nn.utils.parametrize) hides them, and the optimizer keeps its
    parameter. Prune again for more; pruned weights do not come back. The masked model can be compiled (`compile` stores
    connections as lists of synapses if that is cheaper); `finish_pruning` leaves plain weights.
    Raises ModelError for unknown names, OptionError for a sparsity out of range.
    """
    places = find_weights(model)
    wanted = sparsity if isinstance(sparsity, dict) else dict.fromkeys(places, sparsity)
    for name, part in wanted.items():
        if name not in places:
            raise ModelError(
                f"prune: {type(model).__name__} has no weights {name!r}; it has {', '.join(places) or 'none'}"
            )
        if not 0 <= part < 1:
            raise OptionError(f"prune: sparsity {shown(part)} of {name!r} must be at least 0 and below 1")
    if not wanted:
        raise ModelError(f"prune: {type(model).__name__} has no parameter with two axes or more")
    if together and isinstance(sparsity, dict):
        raise OptionError("prune: together takes one sparsity for all weights, not one for each")
    groups = [list(wanted)] if together else [[name] for name in wanted]
    with torch.no_grad():
        for names in groups:
            size = torch.cat([getattr(*places[name]).abs().flatten() for name in names])
            kept = torch.ones_like(size, dtype=torch.bool)
            kept[size.argsort(stable=True)[: round(wanted[names[0]] * len(size))]] = False
            for name, mask in zip(names, kept.split([getattr(*places[name]).numel() for name in names]), strict=True):
                _apply_mask(*places[name], mask)
        weights = [getattr(*places[name]) for name in wanted]
        return sum(int((w == 0).sum()) for w in weights) / sum(w.numel() for w in weights)


@checked()
def finish_pruning(model: torch.nn.Module) -> None:
    """Remove the masks and leave their zeros in plain parameters; an optimizer must be made again."""
    for module, name in find_weights(model).values():
        if _find_mask(module, name) is not None:
            shared = type(module)  # copies of the module share the class and keep their masks
            module.__class__ = type(shared.__name__, shared.__bases__, dict(vars(shared)))
            parametrize.remove_parametrizations(module, name, leave_parametrized=True)


def find_weights(model: torch.nn.Module) -> dict[str, tuple[torch.nn.Module, str]]:
    """Return the module and attribute of every weight with two axes or more, by its name without masks."""
    places: dict[str, tuple[torch.nn.Module, str]] = {}
    for path, module in model.named_modules():
        if isinstance(module, parametrize.ParametrizationList):
            continue
        names = [name for name, _ in module.named_parameters(recurse=False)]
        if parametrize.is_parametrized(module):
            names += list(module.parametrizations)
        places |= {f"{path}.{name}".removeprefix("."): (module, name) for name in names}
    return {path: place for path, place in places.items() if getattr(*place).ndim >= 2}


def _apply_mask(module: torch.nn.Module, name: str, kept: torch.Tensor) -> None:
    """Keep the weights where `kept`, bool in any shape, is True and an earlier mask kept them too."""
    kept = kept.reshape(getattr(module, name).shape)
    mask = _find_mask(module, name)
    if mask is None:
        parametrize.register_parametrization(module, name, Mask(kept))
    else:
        mask.mask &= kept


def _find_mask(module: Any, name: str) -> Mask | None:
    if not parametrize.is_parametrized(module, name):
        return None
    return next((m for m in module.parametrizations[name] if isinstance(m, Mask)), None)
