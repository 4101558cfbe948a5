"""Train a torch module of any framework with quantized weights (quantization-aware training)."""

import numpy as np
import torch

from nwcompile.errors import ModelError
from nwcompile.frontend.torch import from_torch
from nwcompile.frontend.torch.inputs import parse_layout
from nwcompile.frontend.torch.modules import verify_modules
from nwcompile.ir.chip import Chip
from nwcompile.ir.network import LAYOUTS, Network
from nwcompile.nn import LIFLayer, LIFSynapse
from nwcompile.nn.qat.network import QuantizedNetwork

ERROR_CODE = "NW2306"


def quantize_aware(
    model: torch.nn.Module | Network, chip: Chip | str, calibration=None, *, layout: str = "BT", **choices
) -> QuantizedNetwork:
    """Return a module that computes the chip's integers and trains float weights, initialized from `model`.

    `model` is a module that `nw.from_torch` accepts, or a float Network; it is left unchanged. `layout`: the module's
    input layout, as in `from_torch`. `calibration`: sample input in this layout, real values too, on which the compiler
    chooses the input mode (see `input_layer`) and the scales. Without it, scales follow the largest weights, and the
    model must begin with a Linear or LIFSynapse. `choices`: keyword arguments of `QuantizedNetwork`, such as bits=4.
    surrogate and detach_reset default to those of the nwcompile.nn layers if these agree. The result takes samples in
    the same layout and returns the spikes of the last layer, or a readout's membrane, `[B, T, *shape]`. `nw.compile`
    takes `result.network()` unchanged. Raises ModelError as `from_torch` does.
    """
    if isinstance(model, Network):
        return QuantizedNetwork(model, chip, calibration, **choices)
    if not isinstance(model, torch.nn.Module):
        raise ModelError(f"quantize_aware takes a torch.nn.Module or an nw.Network, not {type(model).__name__}")
    verify_modules(model)
    network = from_torch(model, _choose_example(model, calibration, parse_layout(layout)), layout)
    return QuantizedNetwork(network, chip, calibration, **_gradient_choices(model) | choices)


def _gradient_choices(model: torch.nn.Module) -> dict:
    """Return the surrogate and detach_reset if all nwcompile.nn layers of the model share them."""
    surrogates = {(m.surrogate, m.detach_reset) for m in model.modules() if isinstance(m, LIFLayer)}
    return dict(zip(("surrogate", "detach_reset"), surrogates.pop(), strict=True)) if len(surrogates) == 1 else {}


def _choose_example(model: torch.nn.Module, calibration, layout: str):
    """Return the input on which `from_torch` runs the module."""
    if calibration is None:
        first = next((m for m in model.modules() if next(m.parameters(False), None) is not None), None)
        n_in = getattr(first, "in_features" if isinstance(first, torch.nn.Linear) else "n_in", None)
        if n_in is None or not isinstance(first, torch.nn.Linear | LIFSynapse):
            raise ModelError(
                "calibration: a module that does not begin with a Linear or LIFSynapse does not tell the shape of its "
                "input; give some samples [B, T, *shape]"
            )
        return torch.zeros((2, n_in) if layout == "B" else (2, 2, n_in))
    axes = LAYOUTS[layout]
    try:
        x = torch.as_tensor(calibration, dtype=torch.float32)
    except (TypeError, ValueError, RuntimeError, KeyError):
        raise ModelError(f"calibration must be one array of numbers {axes}") from None
    if x.ndim < len(layout) + 1 or 0 in x.shape:
        raise ModelError(
            f"calibration must be {axes} with at least one sample and step, not {list(np.shape(calibration))}"
        )
    return x[:, :2] if layout == "TB" else x[:2]
