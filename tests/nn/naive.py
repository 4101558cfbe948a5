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


def relaxed_lif(current, v0, beta, threshold, reset, detach_reset=False, floor=False):
    """Spikes, mem and the last membrane as `nn.surrogate.eventprop` defines them."""
    before, late, n_steps = v0, torch.zeros_like(v0), current.shape[1]
    all_spikes, all_mem = [], []
    for t in range(n_steps):
        free = beta * before + current[:, t]
        in_reset = late.detach() if detach_reset else late
        v = free - in_reset * ((1 - beta) * threshold if reset == "subtraction" else free)
        fired = v >= threshold
        crosses = fired & (before < threshold) & (t < n_steps - 1)
        x = (threshold - before) / torch.where(crosses, v - before, 1.0)
        y = torch.where(crosses, x - x.detach(), 0.0)
        all_spikes.append(fired.to(v.dtype) - y + late)
        before = torch.where(fired, v - threshold if reset == "subtraction" else 0.0, v)
        if floor:
            before = torch.where(before >= 0, before, 0.0)
        in_reset = y.detach() if detach_reset else y
        all_mem.append(before + in_reset * (threshold if reset == "subtraction" else v))
        late = y
    return torch.stack(all_spikes, 1), torch.stack(all_mem, 1), before[None]
