"""Modules with attention, their numbers put on a grid, and their spikes beside those of the imported networks."""

import numpy as np
import torch

import nwcompile as nw
from nwcompile.frontend.torch.kinds import find_kind
from nwcompile.frontend.torch.modules import clear_state

WEIGHTS = (torch.nn.Linear, torch.nn.Conv1d, torch.nn.Conv2d)
NORMS = (torch.nn.BatchNorm1d, torch.nn.BatchNorm2d)


def on_grid(module, x):
    """The module with norms fitted to x, and numbers of so few bits that float32 sums are exact in any order.

    Weights are whole numbers -8..8, and norms divide by powers of two; so a wrong spike is no matter of rounding.
    """
    norms = [part for part in module.modules() if isinstance(part, NORMS)]
    for part in module.modules():
        if isinstance(part, WEIGHTS):
            part.weight.data = (part.weight * 8 / part.weight.abs().max()).round()
            if part.bias is not None:
                part.bias.data.zero_()
    for norm in norms:
        norm.momentum = 1.0
        norm.weight.data.fill_(2.0)
        norm.bias.data.fill_(1.0)
    clear_state(module.train())
    with torch.no_grad():
        module(x)
    for norm in norms:
        varies = norm.running_var > 0  # where nothing came, a norm divides by 1 and makes neurons fire
        scale = 2.0 ** torch.where(varies, norm.running_var, 1.0).sqrt().log2().round()
        norm.bias.data[~varies] = 4.0
        norm.running_mean.copy_((norm.running_mean / scale * 4).round() * scale / 4)
        norm.running_var.copy_(scale**2)
        norm.eps = 0.0
    clear_state(module.eval())
    return module


def with_wrong_spikes(module, network, x, layout):
    """{layer: (number of wrong spikes, the module's rate)} of every neuron module of `module`, run on x.

    `x` is [T, B, *shape] in layout "TB"; in "B" it is [B, T, *shape], and the module is called step by step.
    """
    given = {name: [] for name, part in module.named_modules() if find_kind(part) is not None}
    hooks = [
        module.get_submodule(name).register_forward_hook(
            lambda _m, _x, y, name=name: given[name].append((y[0] if isinstance(y, tuple) else y).detach().clone())
        )
        for name in given
    ]
    clear_state(module)
    with torch.no_grad():
        if layout == "TB":
            module(x)
        else:
            for x_t in x.unbind(1):
                module(x_t)
    for hook in hooks:
        hook.remove()
    clear_state(module)
    run = nw.simulate(network, x.numpy())
    wrong = {}
    for name, parts in given.items():
        expected = parts[0].transpose(0, 1) if layout == "TB" else torch.stack(parts, 1)
        got = run.spikes[name]
        expected = expected.reshape(got.shape).numpy()
        wrong[name] = (int(np.count_nonzero(got != expected)), float(expected.mean()))
    return wrong
