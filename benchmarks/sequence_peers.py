"""LIF layers as other frameworks compute them, for benchmarks/sequence.py; on a GPU PyTorch and SpikingJelly.

An adapter takes the synapses' weights (`[n_in, n_out]`; none: the scan alone) and an input `[T, B, n]`, and gives a
call that computes the spikes: float32, threshold 1, beta 0.9, reset by subtraction, arctangent surrogate of slope 2
where these can be chosen. All have time first, as they want it.
"""

import os
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version

import torch

BETA, THRESHOLD = 0.9, 1.0


class EagerScan(torch.autograd.Function):
    """The scan in torch operations as fast as they go: in place, with a backward pass of its own; time first."""

    @staticmethod
    def forward(ctx, current):
        before, spikes = torch.empty_like(current), torch.empty_like(current)
        v = torch.zeros_like(current[0])
        for t in range(len(current)):
            torch.add(current[t], v, alpha=BETA, out=before[t])
            torch.ge(before[t], THRESHOLD, out=spikes[t])
            torch.sub(before[t], spikes[t], alpha=THRESHOLD, out=v)
        ctx.save_for_backward(before)
        return spikes

    @staticmethod
    def backward(ctx, grad):
        (before,) = ctx.saved_tensors
        slope = (before - THRESHOLD).mul_(torch.pi).square_().add_(1).reciprocal_()
        out = grad * slope
        keep = slope.mul_(-THRESHOLD).add_(1).mul_(BETA)
        for t in range(len(grad) - 2, -1, -1):
            out[t].addcmul_(keep[t], out[t + 1])
        return out


def eager(weights: list[torch.Tensor], x: torch.Tensor) -> Callable:
    """torch itself: one product for all steps, then `EagerScan`."""

    def run():
        s = x
        for w in weights or [None]:
            s = EagerScan.apply(s if w is None else s @ w)
        return s

    return run


def spikingjelly(weights: list[torch.Tensor], x: torch.Tensor) -> Callable:
    """SpikingJelly's multi-step LIFNode, as it chooses for the CPU; on a GPU its Triton kernels."""
    os.environ["SJ_LIF_CUDA_IMPLEMENTATION"] = "triton"
    from spikingjelly.activation_based import functional, layer, neuron, surrogate

    modules = []
    for w in weights or [None]:
        if w is not None:
            modules.append(layer.Linear(*w.shape, bias=False, step_mode="m"))
            modules[-1].weight.data = w.T.contiguous()
        modules.append(
            neuron.LIFNode(
                tau=1 / (1 - BETA),
                decay_input=False,
                v_reset=None,
                v_threshold=THRESHOLD,
                step_mode="m",
                surrogate_function=surrogate.ATan(alpha=2.0),
                detach_reset=False,
            )
        )
    net = torch.nn.Sequential(*modules).to(x.device)

    def run():
        functional.reset_net(net)
        return net(x)

    return run


def snntorch(weights: list[torch.Tensor], x: torch.Tensor) -> Callable:
    """snnTorch's Leaky in its documented loop over steps, its products step by step."""
    import snntorch as snn

    linear = [torch.nn.Linear(*w.shape, bias=False) for w in weights] or [torch.nn.Identity()]
    for module, w in zip(linear, weights, strict=False):
        module.weight.data = w.T.contiguous()
    leaky = [snn.Leaky(beta=BETA, threshold=THRESHOLD, spike_grad=snn.surrogate.atan(alpha=2.0)) for _ in linear]

    def run():
        mem = [layer.init_leaky() for layer in leaky]
        out = []
        for s in x.unbind(0):
            for i, (module, layer) in enumerate(zip(linear, leaky, strict=True)):
                s, mem[i] = layer(module(s), mem[i])
            out.append(s)
        return torch.stack(out)

    return run


def spyx(weights: list[torch.Tensor], x: torch.Tensor) -> Callable:
    """Spyx' LIF under jax.jit and lax.scan, forward only."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["XLA_FLAGS"] = (
        f"--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads={torch.get_num_threads()}"
    )
    import jax
    import jax.numpy as jnp
    import spyx.nn as sn
    from flax import nnx

    sizes = [w.shape[1] for w in weights] or [x.shape[2]]
    layers = [sn.LIF((n,), beta=BETA, threshold=THRESHOLD, rngs=nnx.Rngs(0)) for n in sizes]
    ws, given = [jnp.asarray(w.numpy()) for w in weights] or [None], jnp.asarray(x.numpy())

    def scan(lif, current):
        return jax.lax.scan(lambda v, i: lif(i, v)[::-1], jnp.zeros(current.shape[1:]), current)[1]

    @jax.jit
    def run(s):
        for w, lif in zip(ws, layers, strict=True):
            s = scan(lif, s if w is None else s @ w)
        return s

    return lambda: jax.block_until_ready(run(given))


PEERS = {"eager torch": eager, "spikingjelly": spikingjelly, "snntorch": snntorch, "spyx": spyx}


def installed() -> dict[str, str]:
    """Versions of the peers that are here."""
    found = {"eager torch": torch.__version__}
    for name in ("spikingjelly", "snntorch", "spyx"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def peers(
    weights: list[torch.Tensor], x: torch.Tensor, trains: bool = False, only: tuple[str, ...] = tuple(PEERS)
) -> dict[str, Callable]:
    """Each peer's call on `x` `[B, T, n]`: its spikes, time first, and where it `trains` its input as well."""
    late = x.transpose(0, 1).contiguous().requires_grad_(trains)
    names = [name for name in installed() if name in only and not (trains and name == "spyx")]
    runs = {name: PEERS[name](weights, late) for name in names}
    return {name: lambda run=run: (run(), late) for name, run in runs.items()} if trains else runs
