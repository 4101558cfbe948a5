"""Random tensors, their comparison, and modules whose weights have few bits."""

import torch


def random(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def equal(found, expected):
    return all(torch.equal(x, y) and x.dtype == y.dtype for x, y in zip(found, expected, strict=True))


def on_grid(module):
    """Round a module's weights to multiples of 1/64, so that no sum is rounded."""
    for part in module.modules():
        for name in ("weight", "bias", "w_rec"):
            value = getattr(part, name, None)
            if isinstance(value, torch.nn.Parameter):
                value.data = (value.data * 160).round() / 64
    return module
