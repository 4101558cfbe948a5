"""H1v1 and H1v2: synapses and layers under the constraints of two analog chips.

The definition is this project's own. It follows the constraints that the chips' maker publishes: weight limits, one
sign per block of 5 neurons, a membrane that is never below 0, one threshold, 5-bit weights, reset by subtraction, taus
from a list (sdk.neuronovatech.com, SDK 1.0.0a0). Unpublished details are defined here; the chips may differ.
"""

import math
from functools import cache

import torch

from nwcompile.argument_types import checked
from nwcompile.errors import ModelError, shown
from nwcompile.ir.chip import Chip
from nwcompile.nn.layers.lif import LIFLayer, LIFSynapse
from nwcompile.nn.layers.prepare import Mismatch
from nwcompile.nn.ops.torch_ops import is_plain, straight_through

BLOCK_NEURONS = 5  # An input of the chip has one sign for this many consecutive neurons.
THRESHOLD = 1.0  # Every neuron of the chips has this threshold.
TAUS = [tau * 1e-6 for tau in Chip.load("h1v2").neuron.taus_us or ()]  # seconds
assert TAUS, "the chip file lists them"


class H1v1Synapse(LIFSynapse):
    """Synapses of the H1 chips: current = spikes @ w, with w computed from `weight` `[n_in, n_out]` once per batch.

    `prepare_net` starts a batch. The effective weights w are computed in five steps:

      1. Divide by `lif_threshold`: `weight` belongs to a float net with that threshold, and the chip's threshold is 1.
      2. Take each input's weights to each block of 5 consecutive neurons. Set weights to 0 if their sign differs from
         the sign of their sum (+ if it is 0). In training under a `SignAnnealing`, compute |h| * tanh(alpha * m)
         instead; h is the result of step 1 and m is the block's sum divided by the sum of its magnitudes.
      3. Clip to +-limit: 0.9 for H1v1, 1.66 for H1v2.
      4. With `quantization_bits` b, round to a multiple of limit / (2^(b-1) - 1).
      5. With `stddev`, in training, multiply by 1 + stddev * e, with e normally distributed: device mismatch.

    The gradient passes straight through steps 2 (the annealing has its own), 3 and 4. Mismatch is a constant factor.
    Without an `init` (as in LIFSynapse) weights are uniform in +-1/sqrt(n_in), with one sign per block.
    Raises ModelError for arguments out of range.
    """

    limit = 0.9

    @checked()
    def __init__(
        self,
        n_in: int,
        n_out: int,
        device: str = "cpu",
        lif_threshold: float = 1.0,
        quantization_bits: int | None = None,
        stddev: float | None = None,
        init=None,
    ):
        super().__init__(n_in, n_out, device, init)
        if not 0 < lif_threshold < math.inf:
            raise ModelError(f"{self._where}: lif_threshold is {lif_threshold}, must be a number > 0")
        if quantization_bits is not None and not 2 <= quantization_bits <= 16:
            raise ModelError(
                f"{self._where}: quantization_bits is {shown(quantization_bits)}, must be 2..16, or None for none"
            )
        self.lif_threshold, self.quantization_bits = lif_threshold, quantization_bits
        self.mismatches["weight"] = Mismatch(self._where, "stddev", stddev)
        self.annealing: tuple[float, int] | None = None  # alpha and block of an active SignAnnealing

    def _draw_weights(self) -> torch.Tensor:
        return unify_block_signs(super()._draw_weights())

    def effective_weight(self) -> torch.Tensor:
        """Return the weights that spikes are multiplied with, `[n_in, n_out]`."""
        return self._make_once("weight", self.weight, self._make_weight, self._weight_settings)

    def _weight_settings(self) -> tuple | None:
        """Return what effective weights depend on besides `weight`; None if they change with every batch."""
        if (self.training and self.annealing is not None) or self.mismatches["weight"].is_active(self.training):
            return None
        return self.lif_threshold, self.limit, self.quantization_bits

    def _make_weight(self, spent: bool) -> torch.Tensor:
        source = self.weight * (1 / self.lif_threshold)
        if self.annealing is not None and self.training:
            source = soften_signs(source, *self.annealing)
            value = source.detach()
        else:
            value = keep_sum_sign(source.detach())
        value = value.clamp(-self.limit, self.limit)
        if self.quantization_bits is not None:
            value = quantize_weights(value, self.limit, self.quantization_bits)
        factor = self._draw_factor(value)
        return straight_through(source, value * factor, factor, spent)

    def _draw_factor(self, weight: torch.Tensor) -> torch.Tensor:
        return self.mismatches["weight"].draw(weight, self.training)


class H1v2Synapse(H1v1Synapse):
    __doc__ = H1v1Synapse.__doc__
    limit = 1.66


class H1v1Frontend(H1v1Synapse):
    """The chip's front end, in which each of 16 filters drives one neuron.

    It is an H1 synapse that uses and trains only the diagonal of `weight` `[16, 16]`. Arguments are those of the
    synapse, with one size. Without an `init` the weights are 0.5.
    """

    @checked()
    def __init__(
        self,
        nb_inputs: int = 16,
        quantization_bits: int | None = None,
        stddev: float | None = None,
        init=None,
        lif_threshold: float = 1.0,
        device: str = "cpu",
    ):
        super().__init__(nb_inputs, nb_inputs, device, lif_threshold, quantization_bits, stddev, init)
        with torch.no_grad():
            self.weight.mul_(torch.eye(nb_inputs, device=self.weight.device))

    def _draw_weights(self) -> torch.Tensor:
        return torch.eye(self.n_in) / 2

    def _draw_factor(self, weight: torch.Tensor) -> torch.Tensor:
        return super()._draw_factor(weight) * torch.eye(self.n_in, dtype=weight.dtype, device=weight.device)


class H1v2Frontend(H1v1Frontend):
    __doc__ = H1v1Frontend.__doc__
    limit = H1v2Synapse.limit


class H1v1Layer(LIFLayer):
    """Neurons of the H1 chips: currents in, `(spikes, mem)` out; calls and state work as in LIFLayer.

      v = beta*v + i;  s = 1 if v >= 1 else 0;  v = v - s;  v = max(v, 0), which is `mem`;  beta = exp(-dt / tau).
    With `ileak_mismatch`, in training, the leak current of each neuron differs: beta = exp(-dt / tau * max(1 +
    ileak_mismatch * e, 0)). `prepare_net` draws e from a normal distribution. With `layer_topology="RC"`
    spikes(t-1) @ w is added to i. Then w is computed from `w_rec` as in H1v1Synapse, without steps 1, 4 and 5.
    `taus` in seconds, a number or `[n_neurons]`. The reset of H1v1 is not published; subtraction is that of H1v2.
    """

    floor = True
    limit = H1v1Synapse.limit

    @checked()
    def __init__(
        self,
        n_neurons: int,
        taus=20e-3,
        dt: float = 1e-3,
        ileak_mismatch: float | None = None,
        layer_topology: str = "FF",
        device: str = "cpu",
        surrogate="fast_sigmoid",
        detach_reset: bool = False,
    ):
        super().__init__(
            n_neurons, taus, THRESHOLD, "subtraction", dt, layer_topology, False, False, surrogate, device, detach_reset
        )
        self.mismatches["leak"] = Mismatch(self._where, "ileak_mismatch", ileak_mismatch)

    def _draw_weights(self) -> torch.Tensor:
        return unify_block_signs(super()._draw_weights())

    def effective_w_rec(self) -> torch.Tensor | None:
        """Return the recurrent weights that spikes are multiplied with, `[N, N]`; None without recurrence."""
        if self.layer_topology != "RC":
            return None
        return self._make_once("w_rec", self.w_rec, self._make_w_rec, self._w_rec_settings)

    def _w_rec_settings(self) -> tuple | None:
        return None if self.mismatches["weight"].is_active(self.training) else (self.limit,)

    def _make_w_rec(self, spent: bool) -> torch.Tensor:
        value = keep_sum_sign(self.w_rec.detach()).clamp(-self.limit, self.limit)
        factor = self.mismatches["weight"].draw(value, self.training)
        return straight_through(self.w_rec, value * factor, factor, spent)


class H1v2Layer(H1v1Layer):
    __doc__ = (
        (H1v1Layer.__doc__ or "")
        + """Each tau is replaced by the closest one, by ratio, in the list `neuron.taus_us` of hwmodels/h1v2.toml.
    """
    )
    limit = H1v2Synapse.limit

    def effective_taus(self) -> torch.Tensor:
        """Return the chip's time constants for `taus`, in seconds, `[N]`."""
        device = self.taus.device
        profiles = cached_tau_profiles(device) if is_plain(self.taus) else make_tau_profiles(device)
        ratio = (self.taus.double()[:, None].log() - profiles.log()).abs()
        return profiles[ratio.argmin(1)].to(self.taus.dtype)


def make_tau_profiles(device: torch.device) -> torch.Tensor:
    """Return `TAUS` as a float64 tensor."""
    with torch.inference_mode(False):
        return torch.tensor(TAUS, dtype=torch.float64, device=device)


cached_tau_profiles = cache(make_tau_profiles)  # a CUDA graph cannot copy from the host during capture


def keep_sum_sign(weight: torch.Tensor) -> torch.Tensor:
    """Set weights of `[n_in, n_out]` to 0 if their sign differs from that of the sum over their input and block."""
    is_negative = expand_blocks(divide_blocks(weight.double()).sum(2), weight) < 0
    return torch.where((weight < 0) == is_negative, weight, torch.zeros_like(weight))


def soften_signs(weight: torch.Tensor, alpha: float, block: int = BLOCK_NEURONS) -> torch.Tensor:
    """Return |weight| * tanh(alpha * m); m is the sum of a block's weights over the sum of their magnitudes."""
    blocks = divide_blocks(weight, block)
    share = blocks.sum(2) / blocks.abs().sum(2).clamp(min=torch.finfo(weight.dtype).tiny)
    return weight.abs() * expand_blocks(torch.tanh(alpha * share), weight, block)


def quantize_weights(weight: torch.Tensor, limit: float, bits: int) -> torch.Tensor:
    """Round to the nearest multiple of limit / (2^(bits-1) - 1), ties to even."""
    n_levels = 2 ** (bits - 1) - 1
    return (weight * (n_levels / limit)).round() * (limit / n_levels)


def unify_block_signs(weight: torch.Tensor) -> torch.Tensor:
    """Give all weights of a block the sign of its first weight."""
    first = divide_blocks(weight)[:, :, 0]
    return weight.abs() * expand_blocks(torch.where(first < 0, -1.0, 1.0), weight)


def divide_blocks(weight: torch.Tensor, block: int = BLOCK_NEURONS) -> torch.Tensor:
    """Return each input's weights to each block of neurons, `[n_in, n_blocks, block]`; pad the last block with 0."""
    n_in, n_out = weight.shape
    n_blocks = -(-n_out // block)
    return torch.nn.functional.pad(weight, (0, n_blocks * block - n_out)).reshape(n_in, n_blocks, block)


def expand_blocks(of_block: torch.Tensor, weight: torch.Tensor, block: int = BLOCK_NEURONS) -> torch.Tensor:
    """Expand one number per block, `[n_in, n_blocks]`, to the shape of `weight`, `[n_in, n_out]`."""
    return of_block.repeat_interleave(block, 1)[:, : weight.shape[1]]
