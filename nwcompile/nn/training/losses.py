"""Loss terms that move weights and firing rates into the limits of chips, and the annealing of signs."""

import torch

from nwcompile.argument_types import checked
from nwcompile.errors import ModelError, OptionError
from nwcompile.nn.layers.h1 import BLOCK_NEURONS, H1v1Synapse, divide_blocks
from nwcompile.nn.layers.lif import LIFSynapse


@checked()
def weight_magnitude_loss(model: torch.nn.Module | torch.Tensor, limit: float = 0.9) -> torch.Tensor:
    """Return the mean of max(|w| - limit, 0)^2 over the weights of all synapses in `model`, or of a weight tensor.

    Weights of H1 synapses are divided by their `lif_threshold`, as on the chip. Raises ModelError for a model without
    synapses.
    """
    excess = [(w.abs() - float(limit)).clamp(min=0).square().flatten() for w in _find_weights(model)]
    return torch.cat(excess).mean()


@checked()
def topology_loss(model: torch.nn.Module | torch.Tensor, block: int = BLOCK_NEURONS) -> torch.Tensor:
    """Measure how far weights are from one sign per input and block of consecutive neurons; 0 if they have it.

    Returns the mean of sum|w| - |sum w| over inputs and blocks of all synapses in `model` (or of a tensor of weights):
    twice the smaller one of the sums of positive and of negative magnitudes. Raises ModelError without synapses.
    """
    if block < 1:
        raise OptionError(f"block is {block}, must be >= 1")
    mixed = []
    for weight in _find_weights(model):
        if weight.ndim != 2:
            raise ModelError(f"topology_loss: weights of shape {tuple(weight.shape)} must be [n_in, n_out]")
        blocks = divide_blocks(weight, min(block, max(weight.shape[1], 1)))
        mixed.append((blocks.abs().sum(2) - blocks.sum(2).abs()).flatten())
    return torch.cat(mixed).mean()


@checked()
def firing_rate_target_mse_loss(spikes: torch.Tensor, target: float | torch.Tensor) -> torch.Tensor:
    """Return the mean of (rate - target)^2 over samples and neurons.

    The rate is the mean of `spikes` `[B, T, *]` over the steps. `target`: spikes per step, one number or one a neuron.
    """
    if spikes.ndim < 2:
        raise ModelError(f"firing_rate_target_mse_loss: spikes of shape {tuple(spikes.shape)} must be [B, T, ...]")
    rates = spikes.mean(1)
    if isinstance(target, torch.Tensor) and target.ndim and target.shape != rates.shape[-target.ndim :]:
        raise ModelError(
            f"firing_rate_target_mse_loss: target of shape {tuple(target.shape)} must be a number or one for each "
            f"neuron, {tuple(rates.shape[1:])}"
        )
    target = target if isinstance(target, torch.Tensor) else float(target)
    return (rates - target).square().mean()


class SignAnnealing:
    """Anneals the weights of every H1 synapse in `model` to one sign per input and block of neurons.

    While it is active, training computes with |w| * tanh(alpha * m) (see `H1v1Synapse`). Each of the `n_steps` calls of
    `step()` multiplies alpha by the same factor, from `alpha_start` to `alpha_end`. At first all weights of a block
    move together; at the end its sign is all or nothing. After the last step, and in eval mode, signs are those of the
    chip. It adds no parameters, so it may be made before or after the optimizer. A step takes effect at the next
    `prepare_net`.
    Raises ModelError for a model without H1 synapses, OptionError for numbers out of range.
    """

    @checked()
    def __init__(
        self,
        model: torch.nn.Module,
        n_steps: int,
        alpha_start: float = 0.5,
        alpha_end: float = 20.0,
        block: int = BLOCK_NEURONS,
    ):
        self.synapses = [m for m in model.modules() if isinstance(m, H1v1Synapse)]
        if not self.synapses:
            raise ModelError(f"SignAnnealing: {type(model).__name__} has no H1v1Synapse or H1v2Synapse")
        if min(n_steps, block) < 1 or not 0 < alpha_start <= alpha_end:
            raise OptionError(
                f"SignAnnealing: n_steps={n_steps}, alpha_start={alpha_start}, alpha_end={alpha_end}, block={block}: "
                "must be n_steps >= 1, 0 < alpha_start <= alpha_end and block >= 1"
            )
        self.n_steps, self.alpha_start, self.alpha_end, self.block = n_steps, alpha_start, alpha_end, block
        self.n_done = 0
        self._update_synapses()

    @property
    def alpha(self) -> float | None:
        """The current steepness; None after the last step."""
        if self.n_done >= self.n_steps:
            return None
        return self.alpha_start * (self.alpha_end / self.alpha_start) ** (self.n_done / max(1, self.n_steps - 1))

    def step(self) -> None:
        """Advance by one step, for example once per epoch."""
        self.n_done += 1
        self._update_synapses()

    def _update_synapses(self) -> None:
        for synapse in self.synapses:
            synapse.annealing = None if self.alpha is None else (self.alpha, self.block)


def _find_weights(model: torch.nn.Module | torch.Tensor) -> list[torch.Tensor]:
    if isinstance(model, torch.Tensor):
        return [model]
    synapses = [m for m in model.modules() if isinstance(m, LIFSynapse)]
    if not synapses:
        raise ModelError(f"{type(model).__name__} has no synapses of nwcompile.nn")
    return [m.weight / getattr(m, "lif_threshold", 1.0) for m in synapses]
