"""Forward and backward of a DelayedLinear against the same in plain PyTorch, a conv1d over time, on one CPU thread.

    python -m benchmarks.delays

The peer holds every weight at its place of a kernel as long as the longest delay, as DCLS constructs it: two taps of
linear interpolation, scattered into it, so that autograd goes on to weights and delays. Both have the same weights and
delays, and their results and gradients are compared. Times are CPU seconds of the process, in turn in one run.
"""

import argparse
import statistics
import time

import torch

from benchmarks.record import save
from nwcompile import nn
from nwcompile.nn.ops.delays import compute_taps

RATE = 0.1  # of the steps in which an input spikes


def by_convolution(x: torch.Tensor, weight: torch.Tensor, delay: torch.Tensor, max_delay: int) -> torch.Tensor:
    """What a DelayedLinear of these numbers gives."""
    start, shares = compute_taps(delay, max_delay, 1.0, "linear")
    n_in, n_out = weight.shape
    places = max_delay - start.long()[..., None] - torch.arange(2)
    kernel = torch.zeros(n_in, n_out, max_delay + 1).scatter_add(2, places, weight[..., None] * shares)
    sent = torch.nn.functional.pad(x.transpose(1, 2), (max_delay, 0))
    return torch.nn.functional.conv1d(sent, kernel.transpose(0, 1)).transpose(1, 2)


def timed(forward, x: torch.Tensor, parameters: list[torch.Tensor], grad: torch.Tensor):
    """CPU seconds of forward and backward, and what they gave."""
    start = time.process_time()
    out = forward(x)
    gradients = torch.autograd.grad(out, [x, *parameters], grad)
    return time.process_time() - start, [out.detach(), *gradients]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--delays", type=int, nargs="+", default=[30])
    repeats, delays = vars(parser.parse_args()).values()
    torch.set_num_threads(1)
    rows = []
    for n_delays in delays:
        torch.manual_seed(0)
        layer = nn.DelayedLinear(512, 512, n_delays - 1)
        parameters = [layer.weight, layer.delays.steps]
        x = (torch.rand(128, 100, 512) < RATE).float().requires_grad_()
        grad = torch.randn(128, 100, 512)
        ways = {"ours": lambda x, layer=layer: prepared(layer)(x),
                "conv1d": lambda x, p=parameters, n=n_delays: by_convolution(x, *p, n - 1)}  # fmt: skip
        seconds: dict[str, list[float]] = {name: [] for name in ways}
        for k in range(repeats + 1):
            results = []
            for name, forward in ways.items():
                took, given = timed(forward, x, parameters, grad)
                results.append(given)
                seconds[name] += [took] * (k > 0)  # the first compiles
        for ours, theirs in zip(*results, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3 * float(theirs.abs().max()))
        medians = {name: statistics.median(times) for name, times in seconds.items()}
        rows.append({"B, T, N": "128, 100, 512", "delays": n_delays, "ours (s)": medians["ours"],
                     "conv1d (s)": medians["conv1d"], "ratio": medians["conv1d"] / medians["ours"]})  # fmt: skip
    save("delays", rows, {"repeats": repeats, "rate": RATE, "threads": 1, "surrogate": "linear, width 1"})


def prepared(layer: nn.DelayedLinear) -> nn.DelayedLinear:
    """The layer, ready for a new batch."""
    nn.prepare_net(layer)
    return layer


if __name__ == "__main__":
    main()
