"""Plain PyTorch loops: the oracles of the layers' tests."""

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


def delayed(x, taps, start, source, target, n_out):
    """[B, T, n_out]: of every synapse and tap the source's steps, moved and weighed, added to the target's."""
    n_steps = x.shape[1]
    out = [torch.zeros(x.shape[:2], dtype=x.dtype) for _ in range(n_out)]
    for s, (i, o) in enumerate(zip(source.tolist(), target.tolist(), strict=True)):
        for j in range(taps.shape[1]):
            late = int(start[s]) + j
            sent = torch.nn.functional.pad(x[:, :, i], (late, 0))[:, :n_steps]
            out[o] = out[o] + taps[s, j] * sent
    return torch.stack(out, 2)
