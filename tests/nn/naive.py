"""The LIF equations as a plain PyTorch loop: the oracle of the layers' tests."""

import torch


class Spike(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, surrogate):
        ctx.save_for_backward(x)
        ctx.surrogate = surrogate
        return (x >= 0).to(x.dtype)

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.surrogate(ctx.saved_tensors[0]), None


def lif(current, v, beta, threshold, reset, surrogate, detach_reset=False, w_rec=None, floor=False):
    """Spikes and membranes [B, T, N] for current [B, T, N] and first membrane v [B, N]."""
    out, mem, s = [], [], torch.zeros_like(v)
    for i in current.unbind(1):
        v = beta * v + (i if w_rec is None else i + s @ w_rec)
        s = Spike.apply(v - threshold, surrogate)
        r = s.detach() if detach_reset else s
        if reset == "subtraction":
            v = v - r * threshold
        if reset == "zero":
            v = v * (1 - r)
        if floor:
            v = v.clamp(min=0)
        out.append(s)
        mem.append(v)
    return torch.stack(out, 1), torch.stack(mem, 1)
