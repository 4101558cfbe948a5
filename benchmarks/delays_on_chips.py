"""How often a chip's spikes differ from those of a module with delays: the table of docs/delays.md.

    python -m benchmarks.delays_on_chips

Networks of 20-48-10 neurons with drawn delays and weights, which are multiples of 1/8, so that the chips' integers hold
them. Five seeds, 32 samples of 100 steps each. An entry is a neuron of the last layer in a step of a sample.
"""

import math

import numpy as np
import torch

import nwcompile as nw
from nwcompile import nn

CHIPS = ("loihi1", "loihi2")
SIZES = (20, 48, 10)
TAUS = {"none": math.inf, "20 steps": 20e-3, "4 steps": 4e-3}
N_SEEDS, N_SAMPLES, N_STEPS, RATE = 5, 32, 100, 0.15


def draw_net(seed: int, tau: float) -> tuple[nn.Sequential, torch.Tensor]:
    """A network in eval mode with drawn weights and delays, and its input spikes."""
    torch.manual_seed(seed)
    parts: list[torch.nn.Module] = []
    for n_in, n_out in zip(SIZES, SIZES[1:], strict=False):
        synapses = nn.DelayedLinear(n_in, n_out, max_delay=10)
        with torch.no_grad():
            synapses.weight.normal_(0.0, 1.5 / math.sqrt(n_in))
            synapses.weight.copy_((synapses.weight * 8).round() / 8)
        parts += [synapses, nn.LIFLayer(n_out, tau, reset_mechanism="zero")]
    net = nn.Sequential(*parts).eval()
    nn.freeze_delays(net)
    return net, (torch.rand(N_SAMPLES, N_STEPS, SIZES[0]) < RATE).float()


def main() -> None:
    for chip in CHIPS:
        for leak, tau in TAUS.items():
            shares, rates = [], []
            for seed in range(N_SEEDS):
                net, x = draw_net(seed, tau)
                program = nw.compile(nw.from_torch(net, x[:2]), chip, x.numpy())
                spikes = nw.simulate(program, x.numpy()).output
                nn.prepare_net(net)
                with torch.no_grad():
                    expected = net(x)[0].numpy()
                shares.append(100 * float(np.mean(spikes != expected)))
                rates.append(float(expected.mean()))
            print(f"{chip}, leak {leak}: {min(shares):.2f} to {max(shares):.2f} % of the entries differ; "
                  f"{np.mean(rates):.2f} spikes per neuron and step", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
