"""Mismatch injection: training a network on another device in every batch."""

from dataclasses import asdict
from typing import Any

import torch
from torch.nn.utils import parametrize

from nwcompile.argument_types import checked
from nwcompile.errors import ModelError
from nwcompile.ir.chip_sections import Variation
from nwcompile.nn.layers.lif import LIFLayer, LIFSynapse
from nwcompile.nn.layers.prepare import Mismatch, Prepared
from nwcompile.nn.qat.network import QuantizedNetwork
from nwcompile.sim.variation import verify_variation

ERROR_CODE = "NW8002"
WEIGHED = (torch.nn.Linear, torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d)


class DeviatingWeight(Prepared):
    """A torch parametrization: the weight of a layer times its mismatch factors, drawn by `prepare_net`."""

    def __init__(self, where: str, deviation: float):
        super().__init__()
        self.mismatch = Mismatch(where, "weight", deviation, waits=True)

    def prepare(self, name: str, seed: int | None, mismatch_in_eval: bool) -> None:
        super().prepare(name, seed, mismatch_in_eval)
        self.mismatch.prepare(name, seed, mismatch_in_eval)

    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        return self._apply_mismatch("weight", weight, self.mismatch)


@checked()
def inject_mismatch(
    model: torch.nn.Module, weight: float | None = None, threshold: float | None = None, leak: float | None = None
) -> torch.nn.Module:
    """Inject device mismatch into `model`, so that every batch trains on another device; return the changed model.

    Standard deviations are relative, as in `nw.robustness`. `weight` is for every weight in Linear, Conv* and
    LIFSynapse, and for recurrent weights in a LIFLayer. `threshold` and `leak` are for every neuron in a LIFLayer (leak
    rates 1/tau). 0 removes an injection, None leaves it unchanged; an H1 layer's own `stddev` or `ileak_mismatch` is
    replaced. Biases do not deviate. For gradients the factors are constants.

    `prepare_net(model, seed)`, called before the forward pass of each batch, draws the devices. In training, a forward
    pass before the first call raises ModelError. In eval mode there is no mismatch unless `prepare_net` requests it.
    The weight of a Linear or Conv becomes a parametrization (torch.nn.utils.parametrize): optimizers keep their
    parameter, but its name in a state_dict changes, so save the model after `inject_mismatch(model, weight=0)`.
    Raises OptionError for numbers out of range. Raises ModelError if nothing in the model can deviate as requested, and
    for a QuantizedNetwork, whose integers are the program's.
    """
    given = Variation(weight, threshold, leak)
    verify_variation(given)
    wanted = {kind: float(deviation) for kind, deviation in asdict(given).items() if deviation is not None}
    if any(wanted.values()):
        _refuse_quantized(model)
    for kind, deviation in wanted.items():
        if deviation and not any(_has_place(module, kind) for module in model.modules()):
            layers = "Linear, Conv or LIFSynapse" if kind == "weight" else "LIFLayer"
            raise ModelError(f"{kind}={deviation:g}: the model has no {layers} whose {kind} could deviate")
    for kind, deviation in wanted.items():
        _inject_kind(model, kind, deviation)
    return model


def _refuse_quantized(model: torch.nn.Module) -> None:
    quantized_path = next(
        (name for name, module in model.named_modules() if isinstance(module, QuantizedNetwork)), None
    )
    if quantized_path is not None:
        raise ModelError(
            f"{quantized_path or 'the model'} (QuantizedNetwork) computes the integers of the compiled program, which "
            "cannot deviate; inject into the float model that nn.quantize_aware is given, train it, and take the "
            "mismatch back with weight=0 before nn.quantize_aware; nwcompile robustness measures the result on devices"
        )


def _has_place(module: torch.nn.Module, kind: str) -> bool:
    is_ours = isinstance(module, LIFSynapse | LIFLayer) and kind in module.mismatches
    return is_ours or (isinstance(module, WEIGHED) and kind == "weight")


def _inject_kind(model: torch.nn.Module, kind: str, deviation: float) -> None:
    """Inject one kind of mismatch into all modules."""
    for name, module in list(model.named_modules()):
        where = f"{name or 'the model'} ({type(module).__name__})"
        if isinstance(module, LIFSynapse | LIFLayer) and kind in module.mismatches:
            module.mismatches[kind] = Mismatch(where, kind, deviation, waits=True)
            module.forget_values()
        elif isinstance(module, WEIGHED) and kind == "weight":
            _remove_injection(module)
            if deviation:
                parametrize.register_parametrization(module, "weight", DeviatingWeight(where, deviation), unsafe=True)


def _remove_injection(module: Any) -> None:
    """Remove an injection from a Linear or Conv; keep other parametrizations."""
    if not parametrize.is_parametrized(module, "weight"):
        return
    kept = [p for p in module.parametrizations.weight if not isinstance(p, DeviatingWeight)]
    if not kept:
        parametrize.remove_parametrizations(module, "weight", leave_parametrized=False)
        return
    for p in module.parametrizations.weight:
        if isinstance(p, DeviatingWeight):
            p.mismatch = Mismatch("", "weight")
