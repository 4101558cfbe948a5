"""Dynamic sparse training within a chip's memory: synapses are removed and grown elsewhere while a network learns.

Neurons of a layer have equally many inputs, as in M. Lasby, A. Golubeva, U. Evci, M. Nica, Y. Ioannou, "Dynamic
Sparse Training with Structured Sparsity", arXiv 2305.02299. So all cores stay equally full, wherever synapses grow.
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
from nwcompile.passes.analyze.core_rules import has_rules
from nwcompile.passes.prepare.weights import most_listed

HALVINGS = 60  # Bisection steps of the density search; more than a float has bits.
FIRST_PART = 0.3  # Upper bound of the share of a neuron's inputs that a round moves: zeta of SET, alpha of RigL.


class Mask(torch.nn.Module):
    """A parametrization that sets weights to 0 where `mask` is False; gradients reach only the others."""

    mask: torch.Tensor

    def __init__(self, mask: torch.Tensor):
        super().__init__()
        self.register_buffer("mask", mask)

    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        return weight * self.mask


@checked()
def prune(model: torch.nn.Module, sparsity: float | dict[str, float], together: bool = False) -> float:
    """Set the smallest weights of `model` to 0 up to a `sparsity`; return the share of weights that are 0.

    `sparsity`, 0..1, applies to every parameter with two axes or more (weights, not biases), or to the named ones,
    `{"fc1.weight": 0.9}`. With `together` weights compete across all layers, else within their layer.
    Pruned weights stay 0 in training: a mask (torch.nn.utils.parametrize) hides them, and the optimizer keeps its
    parameter. Prune again for more; pruned weights do not come back. The masked model can be compiled (`compile` stores
    connections as lists of synapses if that is cheaper); `finish_pruning` leaves plain weights.
    Raises ModelError for unknown names, OptionError for a sparsity out of range.
    """
    places = find_weights(model)
    wanted = sparsity if isinstance(sparsity, dict) else dict.fromkeys(places, sparsity)
    for name, part in wanted.items():
        if name not in places:
            raise ModelError(
                f"prune: {type(model).__name__} has no weights {name!r}; it has {', '.join(places) or 'none'}"
            )
        if not 0 <= part < 1:
            raise OptionError(f"prune: sparsity {shown(part)} of {name!r} must be at least 0 and below 1")
    if not wanted:
        raise ModelError(f"prune: {type(model).__name__} has no parameter with two axes or more")
    if together and isinstance(sparsity, dict):
        raise OptionError("prune: together takes one sparsity for all weights, not one for each")
    groups = [list(wanted)] if together else [[name] for name in wanted]
    with torch.no_grad():
        for names in groups:
            size = torch.cat([getattr(*places[name]).abs().flatten() for name in names])
            kept = torch.ones_like(size, dtype=torch.bool)
            kept[size.argsort(stable=True)[: round(wanted[names[0]] * len(size))]] = False
            for name, mask in zip(names, kept.split([getattr(*places[name]).numel() for name in names]), strict=True):
                _apply_mask(*places[name], mask)
        weights = [getattr(*places[name]) for name in wanted]
        return sum(int((w == 0).sum()) for w in weights) / sum(w.numel() for w in weights)


@checked()
def finish_pruning(model: torch.nn.Module) -> None:
    """Remove the masks and leave their zeros in plain parameters; an optimizer must be made again."""
    for module, name in find_weights(model).values():
        if _find_mask(module, name) is not None:
            shared = type(module)  # copies of the module share the class and keep their masks
            module.__class__ = type(shared.__name__, shared.__bases__, dict(vars(shared)))
            parametrize.remove_parametrizations(module, name, leave_parametrized=True)


def find_weights(model: torch.nn.Module) -> dict[str, tuple[torch.nn.Module, str]]:
    """Return the module and attribute of every weight with two axes or more, by its name without masks."""
    places: dict[str, tuple[torch.nn.Module, str]] = {}
    for path, module in model.named_modules():
        if isinstance(module, parametrize.ParametrizationList):
            continue
        names = [name for name, _ in module.named_parameters(recurse=False)]
        if parametrize.is_parametrized(module):
            names += list(module.parametrizations)
        places |= {f"{path}.{name}".removeprefix("."): (module, name) for name in names}
    return {path: place for path, place in places.items() if getattr(*place).ndim >= 2}


def _apply_mask(module: torch.nn.Module, name: str, kept: torch.Tensor) -> None:
    """Keep the weights where `kept`, bool in any shape, is True and an earlier mask kept them too."""
    kept = kept.reshape(getattr(module, name).shape)
    mask = _find_mask(module, name)
    if mask is None:
        parametrize.register_parametrization(module, name, Mask(kept))
    else:
        mask.mask &= kept


def _find_mask(module: Any, name: str) -> Mask | None:
    if not parametrize.is_parametrized(module, name):
        return None
    return next((m for m in module.parametrizations[name] if isinstance(m, Mask)), None)


class GrownMask(Mask):
    """A mask that can change; with `is_watched` it stores the gradient of all weights, including masked ones."""

    gradient: torch.Tensor | None = None
    is_watched = False
    is_used_anew = False  # Whether a graph was built after the last gradient, so the next one starts a new sum.

    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        masked = weight * self.mask
        if self.is_watched and masked.requires_grad:
            self.is_used_anew = True
            masked.register_hook(self._add_gradient)
        return masked

    def _add_gradient(self, gradient: torch.Tensor) -> None:
        """Sum the gradients of all uses in a graph; a network that runs step by step has one per step."""
        self.gradient = gradient if self.is_used_anew or self.gradient is None else self.gradient + gradient
        self.is_used_anew = False


@dataclass(frozen=True, eq=False)
class SparseWeight:
    """A weight with `n_inputs` synapses per neuron; `heard`, bool[n_out, n_in]: synapses that axons allow."""

    name: str
    module: torch.nn.Module
    attribute: str
    by_output: bool  # Whether rows are outputs, as in torch.nn.Linear.
    n_in: int
    n_out: int
    n_inputs: int
    heard: torch.Tensor

    @property
    def parameter(self) -> torch.nn.Parameter:
        """The parameter that the optimizer trains."""
        if parametrize.is_parametrized(self.module, self.attribute):
            return self._parametrization_list.original
        return getattr(self.module, self.attribute)

    @property
    def mask(self) -> GrownMask:
        """The mask of the current synapses."""
        return next(m for m in self._parametrization_list if isinstance(m, GrownMask))

    @property
    def _parametrization_list(self) -> Any:
        return self.module.get_submodule(f"parametrizations.{self.attribute}")

    def by_neuron(self, values: torch.Tensor) -> torch.Tensor:
        """Return a view of a tensor in the weight's shape as `[n_out, n_in]`."""
        return values if self.by_output else values.T


class SparseTraining:
    """Trains the weights of `model` within the synapse memory and the axons of `n_cores` cores of a chip.

    Each round removes the smallest weights of every neuron and grows as many new ones. `method` says where:

    - "set": anywhere (D. C. Mocanu et al., Nature Communications 9, 2383, 2018).
    - "rigl": where the gradient of the loss in the last backward pass is largest (U. Evci et al., ICML 2020, arXiv
      1911.11134).
    - "cht": where most paths of three synapses end. A path counts 1 / sqrt((1 + e1) (1 + e2)), where e is the number of
      links from a neuron on the path to neurons outside all such paths: CH3-L3 (Y. Zhang et al., "Epitopological
      learning and Cannistraci-Hebb network shape intelligence", ICLR 2024). Needs no gradient.

    Round r of 1 to `n_rounds` moves the share FIRST_PART / 2 * (1 + cos(pi r / n_rounds)) of a neuron's inputs, as in
    RigL; later rounds move none. Densities of layers are proportional to (n_in + n_out) / (n_in n_out), as in SET. They
    are the largest ones at which all weights fit with any masks, with the neurons of a layer dealt over the cores in
    turn (partitioner "striped") and rows in the chip's words. If cores have fewer axons than the model has sources,
    each core receives only some sources.

    `weights`: names of parameters of torch.nn.Linear and LIFSynapse. None takes all; then the model may have no others.
    `bits`: width of a weight (None: the chip's). Weights that fit stay dense; `density` holds the density by name.
    Raises OptionError if n_cores cannot be enough, ModelError for unknown names and unsuitable modules.
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
        places = _choose_weights(model, weights)
        budget = Budget.from_chip(chip, n_cores, bits)
        shapes = {name: _weight_shape(*place) for name, place in places.items()}
        n_reached, n_inputs = budget.n_reached(shapes), budget.n_inputs(shapes)
        self.weights: list[SparseWeight] = []
        for name, (module, attribute) in places.items():
            (n_in, n_out), by_output = shapes[name], isinstance(module, torch.nn.Linear)
            heard = budget.allowed_synapses(n_in, n_out, n_reached)
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
                self._register_mask(weight)
        self.density = {name: n_inputs[name] / n_in for name, (n_in, _) in shapes.items()}

    def _register_mask(self, weight: SparseWeight) -> None:
        """Mask all but the largest weights of every neuron."""
        with torch.no_grad():
            size = weight.by_neuron(getattr(weight.module, weight.attribute)).abs()
            kept = _select_largest(size.masked_fill(~weight.heard, -1.0), weight.n_inputs)
            mask = GrownMask(weight.by_neuron(kept).contiguous())
            mask.is_watched = self.method == "rigl"
            parametrize.register_parametrization(weight.module, weight.attribute, mask)
        self.weights.append(weight)

    def step(self, optimizer: torch.optim.Optimizer | None = None) -> int:
        """Run one round after `backward` and before the optimizer's step; return the number of moved synapses.

        New synapses start at 0, and so do their averages in `optimizer` (Adam's, momentum).
        """
        self.round += 1
        part = FIRST_PART / 2 * (1 + cos(pi * min(self.round / self.n_rounds, 1.0)))
        return sum(self._move_synapses(weight, part, optimizer) for weight in self.weights)

    @torch.no_grad()
    def _move_synapses(self, weight: SparseWeight, part: float, optimizer: torch.optim.Optimizer | None) -> int:
        mask = weight.mask
        kept = weight.by_neuron(mask.mask)
        n_free = int((weight.heard & ~kept).sum(1).min())
        n_moved = min(int(part * weight.n_inputs), n_free)
        if not n_moved:
            return 0
        size = weight.by_neuron(weight.parameter).abs().masked_fill(~kept, -1.0)
        left = _select_largest(size, weight.n_inputs - n_moved)
        worth = GROWN[self.method](weight, left, mask, self._random)
        grown = _select_largest(worth.masked_fill(~weight.heard | kept, -torch.inf), n_moved)
        weight.by_neuron(weight.parameter.data)[grown] = 0
        for state in optimizer.state.get(weight.parameter, {}).values() if optimizer is not None else ():
            if isinstance(state, torch.Tensor) and state.shape == weight.parameter.shape:
                weight.by_neuron(state)[grown] = 0
        mask.mask.copy_(weight.by_neuron(left | grown))
        return n_moved * weight.n_out


@dataclass(frozen=True)
class Budget:
    """The limits of a core; None for a resource that the chip does not limit."""

    chip: Chip
    n_cores: int
    bits: int
    synapse_bits: int | None
    in_axons: int | None
    out_axons: int | None
    neurons: int | None

    @classmethod
    def from_chip(cls, chip: Chip, n_cores: int, bits: int | None) -> "Budget":
        """Take the smallest limits among the `n_cores` largest cores."""
        of_axons = chip.core.axon_merge is not None or chip.weights.axon_types or chip.weights.source_sign
        if has_rules(chip) or chip.family.has_own_times or of_axons:
            raise OptionError(f"SparseTraining: {chip.name} has rules of cores or axons that training does not keep")
        bits = chip.weights.bits if bits is None else check_int("bits", bits, 1, chip.weights.bits)
        limits = {}
        for key in ("synapse_bits", "max_in_axons", "max_out_axons", "max_neurons"):
            limit = chip.limit(key)
            limits[key] = None if limit is None else int(np.sort(limit)[-n_cores])
        return cls(chip, n_cores, bits, *limits.values())

    def n_inputs(self, shapes: dict[str, tuple[int, int]]) -> dict[str, int]:
        """Return the number of inputs per neuron, by weight; n_in for a dense weight."""
        neurons = sum(ceil(n_out / self.n_cores) for _, n_out in shapes.values())
        if self.neurons is not None and neurons > self.neurons:
            raise self._make_error(f"neurons {neurons} of {self.neurons} a core")
        low, high = 0.0, float(max(n_in * n_out for n_in, n_out in shapes.values()))
        if self._fits(shapes, high):
            return self._inputs_at(shapes, high)
        if not self._fits(shapes, low):
            used = self._n_bits(shapes, self._inputs_at(shapes, low))
            raise self._make_error(f"synapse memory {used} of {self.synapse_bits} bits a core with one input a neuron")
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if self._fits(shapes, middle) else (low, middle)
        return self._inputs_at(shapes, low)

    def allowed_synapses(self, n_in: int, n_out: int, n_reached: int) -> torch.Tensor:
        """Return where synapses may be, bool[n_out, n_in], if each source reaches `n_reached` cores."""
        return torch.from_numpy(self._core_sources(n_in, n_reached)[np.arange(n_out) % self.n_cores])

    def _core_sources(self, n_in: int, n_reached: int) -> np.ndarray:
        """Return which core receives which source, bool[core, source]; sources take the next cores in turn."""
        n_reached = self._cores_per_source(n_in, n_reached)
        core, source = np.ogrid[: self.n_cores, :n_in]
        return (core - source * n_reached) % self.n_cores < n_reached

    def _cores_per_source(self, n_in: int, n_reached: int) -> int:
        """Return `n_reached`, or more for a small layer, so that every core receives one of its sources."""
        return max(n_reached, ceil(self.n_cores / n_in))

    def n_reached(self, shapes: dict[str, tuple[int, int]]) -> int:
        """Return the largest number of cores that each source can reach within the axons of every core."""
        sources = [n_in for n_in, _ in shapes.values()]
        for n in range(self.n_cores, 0, -1):
            received = sum(self._core_sources(n_in, n).sum(1) for n_in in sources).max()
            sent = sum(ceil(n_in / self.n_cores) * self._cores_per_source(n_in, n) for n_in in sources)
            if received <= (self.in_axons or received) and sent <= (self.out_axons or sent):
                return n
        used = f"fan-in axons {received} of {self.in_axons}, fan-out axons {sent} of {self.out_axons} a core"
        raise self._make_error(f"{used} where each source reaches as few cores as it can")

    def _inputs_at(self, shapes: dict[str, tuple[int, int]], density: float) -> dict[str, int]:
        """Return the inputs of a neuron, by weight, at densities `density` (n_in + n_out) / (n_in n_out)."""
        n_reached, kept = self.n_reached(shapes), {}
        for name, (n_in, n_out) in shapes.items():
            wanted = density * (n_in + n_out) / n_out
            edge = Dense("source", "target", np.zeros((1, 1), np.float32), weight_bits=self.bits)
            n_listed = most_listed(n_in * n_out, n_in, edge, self.chip) // n_out
            largest = min(n_listed, self._core_sources(n_in, n_reached).sum(1).min())
            is_heard = self._cores_per_source(n_in, n_reached) == self.n_cores
            kept[name] = n_in if wanted >= n_in and is_heard else max(int(min(wanted, largest)), 1)
        return kept

    def _fits(self, shapes: dict[str, tuple[int, int]], density: float) -> bool:
        return self.synapse_bits is None or self._n_bits(shapes, self._inputs_at(shapes, density)) <= self.synapse_bits

    def _n_bits(self, shapes: dict[str, tuple[int, int]], kept: dict[str, int]) -> int:
        """Return an upper bound of the bits in the fullest core, whichever synapses are kept.

        A row of n synapses takes at most n bits_each + ceil(n / block_synapses) (block_overhead_bits + word_bits - 1),
        and no more than a row of all neurons.
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

    def _make_error(self, why: str) -> OptionError:
        return OptionError(
            f"SparseTraining: {self.n_cores} cores of {self.chip.name} cannot hold the network: {why}; "
            "take more cores, fewer bits or a smaller network"
        )


def _score_randomly(weight: SparseWeight, left: torch.Tensor, mask: GrownMask, random: torch.Generator) -> torch.Tensor:
    return torch.rand(left.shape, generator=random)


def _score_gradient(weight: SparseWeight, left: torch.Tensor, mask: GrownMask, random: torch.Generator) -> torch.Tensor:
    if mask.gradient is None:
        raise ModelError(f"SparseTraining: {weight.name} has no gradient yet; call step() after backward()")
    worth, mask.gradient = weight.by_neuron(mask.gradient).abs(), None
    return worth


def _score_paths(weight: SparseWeight, left: torch.Tensor, mask: GrownMask, random: torch.Generator) -> torch.Tensor:
    """Return the CH3-L3 score of every missing synapse from source v to neuron u, float32[n_out, n_in].

    Paths go u, z1 (a source of u), z2 (a neuron that z1 and v feed), v. The links of z1 to u and to neurons that v
    feeds stay within the paths, so 1 + e1 is the degree of z1 minus the number of links to the latter; z2 likewise.
    """
    a = left.float()
    of_source = (a.sum(0)[:, None] - a.T @ a).clamp_(min=1).rsqrt_()  # [z1, v]
    of_neuron = (a.sum(1)[:, None] - a @ a.T).clamp_(min=1).rsqrt_()  # [z2, u]
    score = -torch.rand(a.shape, generator=random)  # pairs without a path come last, in random order
    for u in range(len(a)):
        sources = left[u].nonzero()[:, 0]
        through = (a[:, sources] * of_neuron[:, u, None]).T @ a  # [z1, v]: summed over z2
        worth = (through * of_source[sources]).sum(0)
        score[u] = torch.where(worth > 0, worth, score[u])
    return score


GROWN = {"set": _score_randomly, "rigl": _score_gradient, "cht": _score_paths}


def _select_largest(values: torch.Tensor, n: int) -> torch.Tensor:
    """Return a bool mask of the `n` largest values in every row."""
    chosen = torch.zeros(values.shape, dtype=torch.bool)
    return chosen.scatter_(1, values.topk(n, dim=1).indices, True)


def _choose_weights(model: torch.nn.Module, names: list[str] | None) -> dict[str, tuple[torch.nn.Module, str]]:
    places = find_weights(model)
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
    """Raise ModelError for a weight that the model uses in several places, as a chip stores it for each of them."""
    names: dict[int, set[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), set()).add(name)
    for name, place in chosen.items():
        if others := sorted(names.get(id(getattr(*place)), set()) - {name}):
            raise ModelError(
                f"SparseTraining: {name} is also {', '.join(others)}, and a chip stores it for each of them; give each "
                "layer a weight of its own"
            )


def _weight_shape(module: torch.nn.Module, attribute: str) -> tuple[int, int]:
    """Return the numbers of inputs and outputs of a weight."""
    rows, columns = getattr(module, attribute).shape
    return (columns, rows) if isinstance(module, torch.nn.Linear) else (rows, columns)
