"""The nets, inputs and rows that benchmarks/sequence.py and benchmarks/sequence_cuda.py share."""

from collections.abc import Callable, Iterator

import numpy as np
import torch

from benchmarks.sequence_peers import BETA, THRESHOLD
from nwcompile import nn
from nwcompile.nn.ops.scan import LIFNeurons
from nwcompile.nn.ops.surrogate import atan

FAMILIES = {"lif": (nn.LIFSynapse, nn.LIFLayer), "h1v1": (nn.H1v1Synapse, nn.H1v1Layer),
            "h1v2": (nn.H1v2Synapse, nn.H1v2Layer)}  # fmt: skip
WRITTEN_BYTES = {"float": 4, "uint8": 1, "bits": 1 / 8, "float and mem": 8}
SIZES = (16, 24, 8)
SWEEP = (100, 500, 1000, 2000, 5000, 10_000)
Row = dict[str, object]


def rows(work: str, times: dict[str, float], ours: dict, theirs: dict, more: dict[str, Row]) -> Iterator[Row]:
    """A row for each contender; those of ours say how many times as long each peer takes."""
    for name in ours:
        ratios = {f"{peer} / ours": f"{times[peer] / times[name]:.1f}" for peer in theirs}
        yield {"work": work, "contender": f"nwcompile {name}", "ms": times[name], **more.get(name, {}), **ratios}
    for name in theirs:
        yield {"work": work, "contender": name, "ms": times[name], **more.get(name, {})}


def neurons(n: int) -> LIFNeurons:
    return LIFNeurons(torch.full((n,), BETA), torch.full((n,), THRESHOLD), "subtraction", atan)


def currents(shape: tuple[int, ...]) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)).abs() * 0.2


def trained(run: Callable) -> Callable:
    """A call that goes back from the sum of the spikes and gives the input's gradient; `run` gives spikes and input."""

    def step():
        spikes, x = run()
        x.grad = None
        spikes.sum().backward()
        return x.grad

    return step


def network(family: str) -> torch.nn.ModuleList:
    """The tutorial's 16-24-8 net."""
    torch.manual_seed(0)
    synapse, layer = FAMILIES[family]
    tau = -1e-3 / np.log(BETA)
    pairs = zip(SIZES, SIZES[1:], strict=False)
    return torch.nn.ModuleList(part for n, m in pairs for part in (synapse(n, m), layer(m, tau, dt=1e-3)))


def whole(net: torch.nn.ModuleList, x: torch.Tensor) -> torch.Tensor:
    """All steps at once, as the tutorial's forward_gpu."""
    nn.prepare_net(net)
    for synapse, layer in zip(net[::2], net[1::2], strict=True):
        x, _ = layer(synapse(x))
    return x


def spikes(n_samples: int, n_steps: int) -> torch.Tensor:
    return (torch.rand(n_samples, n_steps, SIZES[0], generator=torch.Generator().manual_seed(1)) < 0.2).float()


def fitted(times: list[float]) -> str:
    """a and b of a + b*T, for the milliseconds that the lengths of `SWEEP` took."""
    ms, n_steps = np.array(times), np.array(SWEEP)
    (a, b), *_ = np.linalg.lstsq(np.stack([1 / ms, n_steps / ms], 1), np.ones(len(ms)), rcond=None)
    residual = np.abs((a + b * n_steps) / ms - 1).max()
    return f"{a:.3f} ms + {1e6 * b:.0f} ns a step, residual {residual:.0%}"
