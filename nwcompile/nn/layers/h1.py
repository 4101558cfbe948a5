"""H1v1 and H1v2: synapses and layers under the constraints of two analog chips.

They are this project's own definition, made from what the chips' maker publishes: limits of weights, one sign for each
block of 5 neurons, a membrane that is never below 0, one threshold, 5-bit weights, reset by subtraction, taus from a
list (sdk.neuronovatech.com, SDK 1.0.0a0). What is not published is defined here; the chips may differ.
"""

import math
from functools import cache

import torch

from nwcompile.argument_types import checked
from nwcompile.errors import ModelError, shown
from nwcompile.ir.chip import Chip
from nwcompile.nn.layers.lif import LIFLayer, LIFSynapse
from nwcompile.nn.layers.mismatch import Mismatch
from nwcompile.nn.ops.torch_ops import is_plain, straight_through

BLOCK_NEURONS = 5  # A chip's input has one sign for so many consecutive neurons.
THRESHOLD = 1.0  # Every neuron of the chips has this threshold.
TAUS = [tau * 1e-6 for tau in Chip.load("h1v2").neuron.taus_us or ()]  # seconds


class H1v1Synapse(LIFSynapse):
    """current = spikes @ w, w made from `weight` `[n_in, n_out]` once for a batch (see `prepare_net`):

      1. h = weight / lif_threshold: `weight` belongs to a float net whose threshold is `lif_threshold`, and the chip's
         threshold is 1.
      2. Of each input's weights to each block of 5 consecutive neurons those whose sign is not that of their sum (+ if
         it is 0) become 0. While a `SignAnnealing` is under way, in training: |h| * tanh(alpha * m) instead, where m is
         the block's sum over the sum of its magnitudes.
      3. Clipped to +-limit: 0.9 for H1v1, 1.66 for H1v2.
      4. With `quantization_bits` b rounded to a multiple of limit / (2^(b-1) - 1).
      5. With `stddev`, in training, times 1 + stddev * e, e drawn from a normal distribution: the mismatch of devices.

    The gradient goes straight through 2 (but the annealing has its own), 3 and 4; mismatch is a constant factor.
    Without an `init` (as in LIFSynapse) weights are uniform in +-1/sqrt(n_in), each block of one sign.
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
        where = f"{type(self).__name__}({n_in}, {n_out})"
        if not 0 < lif_threshold < math.inf:
            raise ModelError(f"{where}: lif_threshold is {lif_threshold}, must be a number > 0")
        if quantization_bits is not None and not 2 <= quantization_bits <= 16:
            raise ModelError(
                f"{where}: quantization_bits is {shown(quantization_bits)}, must be 2..16, or None for none"
            )
        self.lif_threshold, self.quantization_bits = lif_threshold, quantization_bits
        self.mismatches["weight"] = Mismatch(where, "stddev", stddev)
        self.annealing: tuple[float, int] | None = None  # alpha and block of a SignAnnealing under way

    def _draw_weights(self) -> torch.Tensor:
        return unify_block_signs(super()._draw_weights())

    def effective_weight(self) -> torch.Tensor:
        """The weights that spikes are multiplied with, `[n_in, n_out]`."""
        return self._make_once("weight", self.weight, self._make_weight, self._weight_settings)

    def _weight_settings(self) -> tuple | None:
        """What effective weights are made of beside `weight`; None where they are others in every batch."""
        if (self.training and self.annealing is not None) or self.mismatches["weight"].is_active(self.training):
            return None
        return self.lif_threshold, self.limit, self.quantization_bits

    def _make_weight(self, spent: bool) -> torch.Tensor:
        source = self.weight * (1 / self.lif_threshold)
        if self.annealing is not None and self.training:
            source = soften_signs(source, *self.annealing)
            value = source.detach()
        else:
            value = keep_majority_sign(source.detach())
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
    """The chip's front end: each of 16 filters drives one neuron. An H1 synapse whose `weight` `[16, 16]` is diagonal:

    only its diagonal is used and trained. Arguments are those of the synapse, with one size. Without an `init` its
    weights are 0.5.
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
    """Neurons of the chip: currents in, `(spikes, mem)` out; calls and kept state are those of LIFLayer.

      v = beta*v + i;  s = 1 if v >= 1 else 0;  v = v - s;  v = max(v, 0), which is `mem`;  beta = exp(-dt / tau).
    With `ileak_mismatch`, in training, the leak current of each neuron differs: beta = exp(-dt / tau * max(1 +
    ileak_mismatch * e, 0)), e drawn from a normal distribution in every `prepare_net`. With `layer_topology="RC"`
    spikes(t-1) @ w is added to i, w made from `w_rec` as a synapse's from its weights, without steps 1, 4 and 5.
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
        self.mismatches["leak"] = Mismatch(f"{type(self).__name__}({n_neurons})", "ileak_mismatch", ileak_mismatch)

    def _draw_weights(self) -> torch.Tensor:
        return unify_block_signs(super()._draw_weights())

    def effective_w_rec(self) -> torch.Tensor | None:
        """The recurrent weights that spikes are multiplied with, `[N, N]`; None in a layer without."""
        if self.layer_topology != "RC":
            return None
        return self._make_once("w_rec", self.w_rec, self._make_w_rec, self._w_rec_settings)

    def _w_rec_settings(self) -> tuple | None:
        return None if self.mismatches["weight"].is_active(self.training) else (self.limit,)

    def _make_w_rec(self, spent: bool) -> torch.Tensor:
        value = keep_majority_sign(self.w_rec.detach()).clamp(-self.limit, self.limit)
        factor = self.mismatches["weight"].draw(value, self.training)
        return straight_through(self.w_rec, value * factor, factor, spent)


class H1v2Layer(H1v1Layer):
    __doc__ = (
        (H1v1Layer.__doc__ or "")
        + """Each tau is that of the list `neuron.taus_us` of hwmodels/h1v2.toml that is the least ratio away from it.
    """
    )
    limit = H1v2Synapse.limit

    def effective_taus(self) -> torch.Tensor:
        """The time constants that the chip has for `taus`, in seconds, `[N]`."""
        device = self.taus.device
        profiles = cached_tau_profiles(device) if is_plain(self.taus) else make_tau_profiles(device)
        ratio = (self.taus.double()[:, None].log() - profiles.log()).abs()
        return profiles[ratio.argmin(1)].to(self.taus.dtype)


def make_tau_profiles(device: torch.device) -> torch.Tensor:
    """`TAUS`, float64."""
    with torch.inference_mode(False):
        return torch.tensor(TAUS, dtype=torch.float64, device=device)


cached_tau_profiles = cache(make_tau_profiles)  # a graph that a GPU captures can copy nothing from the host


def keep_majority_sign(weight: torch.Tensor) -> torch.Tensor:
    """`weight` `[n_in, n_out]` with 0 for every weight whose sign is not that of its input's and block's sum."""
    is_negative = expand_blocks(divide_blocks(weight.double()).sum(2), weight) < 0
    return torch.where((weight < 0) == is_negative, weight, torch.zeros_like(weight))


def soften_signs(weight: torch.Tensor, alpha: float, block: int = BLOCK_NEURONS) -> torch.Tensor:
    """|weight| * tanh(alpha * m), m the sum of each input's and block's weights over the sum of their magnitudes."""
    blocks = divide_blocks(weight, block)
    share = blocks.sum(2) / blocks.abs().sum(2).clamp(min=torch.finfo(weight.dtype).tiny)
    return weight.abs() * expand_blocks(torch.tanh(alpha * share), weight, block)


def quantize_weights(weight: torch.Tensor, limit: float, bits: int) -> torch.Tensor:
    """The nearest multiples of limit / (2^(bits-1) - 1), ties to even."""
    n_levels = 2 ** (bits - 1) - 1
    return (weight * (n_levels / limit)).round() * (limit / n_levels)


def unify_block_signs(weight: torch.Tensor) -> torch.Tensor:
    """The magnitudes of `weight`, each block with the sign of its first weight."""
    first = divide_blocks(weight)[:, :, 0]
    return weight.abs() * expand_blocks(torch.where(first < 0, -1.0, 1.0), weight)


def divide_blocks(weight: torch.Tensor, block: int = BLOCK_NEURONS) -> torch.Tensor:
    """`[n_in, n_blocks, block]`: the weights of each input to each block of neurons, the last one filled up with 0."""
    n_in, n_out = weight.shape
    n_blocks = -(-n_out // block)
    return torch.nn.functional.pad(weight, (0, n_blocks * block - n_out)).reshape(n_in, n_blocks, block)


def expand_blocks(of_block: torch.Tensor, weight: torch.Tensor, block: int = BLOCK_NEURONS) -> torch.Tensor:
    """The number of its block `[n_in, n_blocks]` at every place of `weight` `[n_in, n_out]`."""
    return of_block.repeat_interleave(block, 1)[:, : weight.shape[1]]
