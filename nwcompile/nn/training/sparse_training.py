"""Dynamic sparse training: synapses are taken away and grown elsewhere while a network learns, so that it fits a chip.

Every neuron keeps equally many inputs, as in M. Lasby, A. Golubeva, U. Evci, M. Nica, Y. Ioannou, "Dynamic Sparse
Training with Structured Sparsity", arXiv 2305.02299: then no core can hold more than another, wherever synapses go.
"""

from dataclasses import dataclass
from math import ceil, cos, pi
from typing import Any

import numpy as np
import torch
from torch.nn.utils import parametrize

from nwcompile.argument_types import checked
from nwcompile.cost.traffic.memory import row_bits
from nwcompile.errors import ModelError, OptionError, check_int, shown
from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Dense
from nwcompile.nn.layers.lif import LIFSynapse
from nwcompile.nn.training.pruning import Mask, weights_of
from nwcompile.passes.analyze.core_rules import has_rules
from nwcompile.passes.prepare.prune_zeros import most_listed

HALVINGS = 60  # Of the interval in which the density is searched: more than a float has digits.
FIRST_PART = 0.3  # Of a neuron's inputs, moved in a round: zeta of SET, and alpha of RigL.


class GrownMask(Mask):
    """A mask that can be set anew; with `is_watched` it keeps the gradient of all weights, also of those left out."""

    gradient: torch.Tensor | None = None
    is_watched = False
    is_used_anew = False  # Whether a graph was made after the last gradient: the next one begins another sum.

    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        masked = weight * self.mask
        if self.is_watched and masked.requires_grad:
            self.is_used_anew = True
            masked.register_hook(self._keep)
        return masked

    def _keep(self, gradient: torch.Tensor) -> None:
        """Add up the gradients of all uses in a graph: a network that goes step by step has one for each step."""
        self.gradient = gradient if self.is_used_anew or self.gradient is None else self.gradient + gradient
        self.is_used_anew = False


@dataclass(frozen=True, eq=False)
class SparseWeight:
    """A weight of which every neuron keeps `n_inputs`; `heard`, bool[n_out, n_in]: synapses that axons allow."""

    name: str
    module: torch.nn.Module
    attribute: str
    by_output: bool  # Whether rows are outputs, as torch.nn.Linear has them.
    n_in: int
    n_out: int
    n_inputs: int
    heard: torch.Tensor

    @property
    def parameter(self) -> torch.nn.Parameter:
        """The one that an optimizer knows."""
        if parametrize.is_parametrized(self.module, self.attribute):
            return self._list.original
        return getattr(self.module, self.attribute)

    @property
    def mask(self) -> GrownMask:
        """The one that decides which synapses there are."""
        return next(m for m in self._list if isinstance(m, GrownMask))

    @property
    def _list(self) -> Any:
        return self.module.get_submodule(f"parametrizations.{self.attribute}")

    def rows(self, values: torch.Tensor) -> torch.Tensor:
        """A tensor of the weight's shape as `[n_out, n_in]`, a view."""
        return values if self.by_output else values.T


class SparseTraining:
    """Trains the weights of `model` within the synapse memory and the axons of `n_cores` cores of a chip.

    `method`, what a round takes away and grows, of every neuron equally many:

    - "set": the smallest weights; grown anywhere (D. C. Mocanu et al., Nature Communications 9, 2383, 2018).
    - "rigl": the smallest weights; grown where the gradient of the loss is largest (U. Evci et al., ICML 2020, arXiv
      1911.11134), that of the last backward pass.
    - "cht": the smallest weights; grown where most paths of three synapses end, each worth 1 / sqrt((1 + e1) (1 + e2)),
      e the links of a neuron on it that leave the neurons of all such paths: CH3-L3 (Y. Zhang et al., "Epitopological
      learning and Cannistraci-Hebb network shape intelligence", ICLR 2024). Needs no gradient.

    In round r, 1 to `n_rounds`, the part of a neuron's inputs that moves is FIRST_PART / 2 * (1 + cos(pi r /
    n_rounds)), as in RigL; later rounds move none. Densities of layers go as (n_in + n_out) / (n_in n_out), as in SET,
    and are the largest at which all weights fit whatever their masks are: neurons of a layer dealt over the cores in
    turn (partitioner "striped"), rows in the chip's words. Where cores have fewer axons than the model has sources,
    each core hears some of them only.

    `weights`: names of parameters of torch.nn.Linear and LIFSynapse; None takes all, and the model may have no others.
    `bits`: of a weight (None: the chip's). What fits as it is stays dense; `density` tells by name. Raises OptionError
    where n_cores cannot be enough, and ModelError for names and modules.
    """

    @checked()
    def __init__(
        self,
        model: torch.nn.Module,
        chip: Chip | str,
        n_cores: int,
        n_rounds: int,
        method: str = "rigl",
        bits: int | None = None,
        weights: list[str] | None = None,
        seed: int = 0,
    ):
        if method not in GROWN:
            raise OptionError(f"SparseTraining: unknown method {shown(method)}; known: {', '.join(GROWN)}")
        chip = chip if isinstance(chip, Chip) else Chip.load(chip)
        self.method, self.n_rounds, self.round = method, check_int("n_rounds", n_rounds, 1, 10**9), 0
        n_cores = check_int("n_cores", n_cores, 1, chip.n_cores)
        self._random = torch.Generator().manual_seed(check_int("seed", seed, 0, 2**31 - 1))
        places = _places(model, weights)
        budget = Budget.of(chip, n_cores, bits)
        shapes = {name: _shape(*place) for name, place in places.items()}
        n_reached, n_inputs = budget.n_reached(shapes), budget.n_inputs(shapes)
        self.weights: list[SparseWeight] = []
        for name, (module, attribute) in places.items():
            (n_in, n_out), by_output = shapes[name], isinstance(module, torch.nn.Linear)
            heard = budget.heard(n_in, n_out, n_reached)
            weight = SparseWeight(
                name=name,
                module=module,
                attribute=attribute,
                by_output=by_output,
                n_in=n_in,
                n_out=n_out,
                n_inputs=n_inputs[name],
                heard=heard,
            )
            if weight.n_inputs < n_in:
                self._begin(weight)
        self.density = {name: n_inputs[name] / n_in for name, (n_in, _) in shapes.items()}

    def _begin(self, weight: SparseWeight) -> None:
        """The largest weights of every neuron are those that it begins with."""
        with torch.no_grad():
            size = weight.rows(getattr(weight.module, weight.attribute)).abs()
            kept = _largest(size.masked_fill(~weight.heard, -1.0), weight.n_inputs)
            mask = GrownMask(weight.rows(kept).contiguous())
            mask.is_watched = self.method == "rigl"
            parametrize.register_parametrization(weight.module, weight.attribute, mask)
        self.weights.append(weight)

    def step(self, optimizer: torch.optim.Optimizer | None = None) -> int:
        """One round, after `backward` and before the optimizer's step: how many synapses moved.

        What grows begins at 0, and so do the averages that `optimizer` keeps of it (Adam's, momentum).
        """
        self.round += 1
        part = FIRST_PART / 2 * (1 + cos(pi * min(self.round / self.n_rounds, 1.0)))
        return sum(self._move(weight, part, optimizer) for weight in self.weights)

    @torch.no_grad()
    def _move(self, weight: SparseWeight, part: float, optimizer: torch.optim.Optimizer | None) -> int:
        mask = weight.mask
        kept = weight.rows(mask.mask)
        n_free = int((weight.heard & ~kept).sum(1).min())
        n_moved = min(int(part * weight.n_inputs), n_free)
        if not n_moved:
            return 0
        size = weight.rows(weight.parameter).abs().masked_fill(~kept, -1.0)
        left = _largest(size, weight.n_inputs - n_moved)
        worth = GROWN[self.method](weight, left, mask, self._random)
        grown = _largest(worth.masked_fill(~weight.heard | kept, -torch.inf), n_moved)
        weight.rows(weight.parameter.data)[grown] = 0
        for state in optimizer.state.get(weight.parameter, {}).values() if optimizer is not None else ():
            if isinstance(state, torch.Tensor) and state.shape == weight.parameter.shape:
                weight.rows(state)[grown] = 0
        mask.mask.copy_(weight.rows(left | grown))
        return n_moved * weight.n_out


@dataclass(frozen=True)
class Budget:
    """What a core holds; None for what the chip does not limit."""

    chip: Chip
    n_cores: int
    bits: int
    synapse_bits: int | None
    in_axons: int | None
    out_axons: int | None
    neurons: int | None

    @classmethod
    def of(cls, chip: Chip, n_cores: int, bits: int | None) -> "Budget":
        """The least of the `n_cores` cores that hold most."""
        if has_rules(chip) or chip.has_pool_times or chip.core.axon_merge is not None or chip.weights.axon_types:
            raise OptionError(f"SparseTraining: {chip.name} has rules of cores or axons that training does not keep")
        bits = chip.weights.bits if bits is None else check_int("bits", bits, 1, chip.weights.bits)
        limits = {}
        for key in ("synapse_bits", "max_in_axons", "max_out_axons", "max_neurons"):
            limit = chip.limit(key)
            limits[key] = None if limit is None else int(np.sort(limit)[-n_cores])
        return cls(chip, n_cores, bits, *limits.values())

    def n_inputs(self, shapes: dict[str, tuple[int, int]]) -> dict[str, int]:
        """By weight, how many inputs each of its neurons keeps; n_in where it stays dense."""
        neurons = sum(ceil(n_out / self.n_cores) for _, n_out in shapes.values())
        if self.neurons is not None and neurons > self.neurons:
            raise self._refused(f"neurons {neurons} of {self.neurons} a core")
        low, high = 0.0, float(max(n_in * n_out for n_in, n_out in shapes.values()))
        if self._fits(shapes, high):
            return self._at(shapes, high)
        if not self._fits(shapes, low):
            used = self._memory(shapes, self._at(shapes, low))
            raise self._refused(f"synapse memory {used} of {self.synapse_bits} bits a core with one input a neuron")
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if self._fits(shapes, middle) else (low, middle)
        return self._at(shapes, low)

    def heard(self, n_in: int, n_out: int, n_reached: int) -> torch.Tensor:
        """bool[n_out, n_in]: from which sources a neuron may have synapses, if each reaches `n_reached` cores."""
        return torch.from_numpy(self._hears(n_in, n_reached)[np.arange(n_out) % self.n_cores])

    def _hears(self, n_in: int, n_reached: int) -> np.ndarray:
        """bool[core, source]: one source after the other takes the next cores in turn."""
        n_reached = self._reaches(n_in, n_reached)
        core, source = np.ogrid[: self.n_cores, :n_in]
        return (core - source * n_reached) % self.n_cores < n_reached

    def _reaches(self, n_in: int, n_reached: int) -> int:
        """`n_reached`, or more of a layer so small that some core would hear none of its neurons."""
        return max(n_reached, ceil(self.n_cores / n_in))

    def n_reached(self, shapes: dict[str, tuple[int, int]]) -> int:
        """How many cores each source reaches at most, so that no core has more axons than it holds."""
        sources = [n_in for n_in, _ in shapes.values()]
        for n in range(self.n_cores, 0, -1):
            received = sum(self._hears(n_in, n).sum(1) for n_in in sources).max()
            sent = sum(ceil(n_in / self.n_cores) * self._reaches(n_in, n) for n_in in sources)
            if received <= (self.in_axons or received) and sent <= (self.out_axons or sent):
                return n
        used = f"fan-in axons {received} of {self.in_axons}, fan-out axons {sent} of {self.out_axons} a core"
        raise self._refused(f"{used} where each source reaches as few cores as it can")

    def _at(self, shapes: dict[str, tuple[int, int]], density: float) -> dict[str, int]:
        """The inputs of a neuron at densities `density` (n_in + n_out) / (n_in n_out)."""
        n_reached, kept = self.n_reached(shapes), {}
        for name, (n_in, n_out) in shapes.items():
            wanted = density * (n_in + n_out) / n_out
            edge = Dense("source", "target", np.zeros((1, 1), np.float32), weight_bits=self.bits)
            n_listed = most_listed(n_in * n_out, n_in, edge, self.chip) // n_out
            largest = min(n_listed, self._hears(n_in, n_reached).sum(1).min())
            is_heard = self._reaches(n_in, n_reached) == self.n_cores
            kept[name] = n_in if wanted >= n_in and is_heard else max(int(min(wanted, largest)), 1)
        return kept

    def _fits(self, shapes: dict[str, tuple[int, int]], density: float) -> bool:
        return self.synapse_bits is None or self._memory(shapes, self._at(shapes, density)) <= self.synapse_bits

    def _memory(self, shapes: dict[str, tuple[int, int]], kept: dict[str, int]) -> int:
        """Bits that the fullest core needs at most, whichever synapses are kept.

        A row of n synapses takes at most n bits_each + ceil(n / block_synapses) (block_overhead_bits + word_bits - 1),
        and at most what a row of all neurons takes.
        """
        core, weights, used = self.chip.core, self.chip.weights, 0
        for name, (n_in, n_out) in shapes.items():
            n_neurons = ceil(n_out / self.n_cores)
            n = kept[name] * n_neurons
            bits_each = self.bits + (weights.index_bits if kept[name] < n_in else 0)
            n_blocks = n // core.block_synapses + min(n_in, n)
            scattered = n * bits_each + n_blocks * (core.block_overhead_bits + core.word_bits - 1)
            used += min(scattered, n_in * int(row_bits(np.int64(n_neurons), bits_each, self.chip)))
        return used

    def _refused(self, why: str) -> OptionError:
        return OptionError(
            f"SparseTraining: {self.n_cores} cores of {self.chip.name} cannot hold the network: {why}; "
            "take more cores, fewer bits or a smaller network"
        )


def _anywhere(weight: SparseWeight, left: torch.Tensor, mask: GrownMask, random: torch.Generator) -> torch.Tensor:
    return torch.rand(left.shape, generator=random)


def _gradient(weight: SparseWeight, left: torch.Tensor, mask: GrownMask, random: torch.Generator) -> torch.Tensor:
    if mask.gradient is None:
        raise ModelError(f"SparseTraining: {weight.name} has no gradient yet; call step() after backward()")
    worth, mask.gradient = weight.rows(mask.gradient).abs(), None
    return worth


def _paths(weight: SparseWeight, left: torch.Tensor, mask: GrownMask, random: torch.Generator) -> torch.Tensor:
    """CH3-L3 of every missing synapse from source v to neuron u, float32[n_out, n_in].

    Paths go u, z1 (a source of u), z2 (a neuron that z1 and v feed), v. Of the links of z1 those to neurons that v
    feeds stay within the paths, and so does the one to u: 1 + e1 is its degree less their number. Likewise for z2.
    """
    a = left.float()
    of_source = (a.sum(0)[:, None] - a.T @ a).clamp_(min=1).rsqrt_()  # [z1, v]
    of_neuron = (a.sum(1)[:, None] - a @ a.T).clamp_(min=1).rsqrt_()  # [z2, u]
    score = -torch.rand(a.shape, generator=random)  # in drawn order, after all, where no path ends
    for u in range(len(a)):
        sources = left[u].nonzero()[:, 0]
        through = (a[:, sources] * of_neuron[:, u, None]).T @ a  # [z1, v]: summed over z2
        worth = (through * of_source[sources]).sum(0)
        score[u] = torch.where(worth > 0, worth, score[u])
    return score


GROWN = {"set": _anywhere, "rigl": _gradient, "cht": _paths}


def _largest(values: torch.Tensor, n: int) -> torch.Tensor:
    """bool: the `n` largest of every row."""
    chosen = torch.zeros(values.shape, dtype=torch.bool)
    return chosen.scatter_(1, values.topk(n, dim=1).indices, True)


def _places(model: torch.nn.Module, names: list[str] | None) -> dict[str, tuple[torch.nn.Module, str]]:
    places = weights_of(model)
    known = {name: place for name, place in places.items() if isinstance(place[0], torch.nn.Linear | LIFSynapse)}
    others = [name for name in (places if names is None else names) if name not in known]
    chosen = known if names is None else {name: known[name] for name in names if name in known}
    if others or not chosen:
        raise ModelError(
            f"SparseTraining: {', '.join(others) or type(model).__name__}: no weight of torch.nn.Linear or LIFSynapse; "
            f"name those to train sparse, weights=[...] of {', '.join(known) or 'none'}; others are not counted"
        )
    _verify_used_once(model, chosen)
    masked = [name for name, (module, attribute) in chosen.items() if parametrize.is_parametrized(module, attribute)]
    if masked:
        raise ModelError(f"SparseTraining: {', '.join(masked)} is pruned or parametrized; call finish_pruning first")
    return chosen


def _verify_used_once(model: torch.nn.Module, chosen: dict[str, tuple[torch.nn.Module, str]]) -> None:
    """Raise ModelError for a weight that the model has in several places: compiled, it is stored for each of them."""
    names: dict[int, set[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), set()).add(name)
    for name, place in chosen.items():
        if others := sorted(names.get(id(getattr(*place)), set()) - {name}):
            raise ModelError(
                f"SparseTraining: {name} is also {', '.join(others)}, and a chip stores it for each of them; give each "
                "layer a weight of its own"
            )


def _shape(module: torch.nn.Module, attribute: str) -> tuple[int, int]:
    """Inputs and outputs of a weight."""
    rows, columns = getattr(module, attribute).shape
    return (columns, rows) if isinstance(module, torch.nn.Linear) else (rows, columns)
