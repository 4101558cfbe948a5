"""Prove that a readout, or an output, is the module's result: on other samples, and on other numbers of steps."""

import sys
from collections.abc import Callable
from contextlib import suppress
from math import isclose
from types import CodeType, FrameType
from typing import Any, NamedTuple

import numpy as np
import torch

from nwcompile.errors import ModelError
from nwcompile.frontend.torch.modules import preserve_state
from nwcompile.frontend.torch.operators import ModuleFailedError
from nwcompile.frontend.torch.operators.ops import PACKAGE, TORCH
from nwcompile.frontend.torch.operators.parts import Part
from nwcompile.frontend.torch.operators.readout import (
    CLOSE,
    compare_layers,
    find_factor,
    is_close,
    record_layers,
    verify_readout,
)
from nwcompile.frontend.torch.operators.runs import draw_like, group_results, prepare_run, record_spikes
from nwcompile.ir.network import Network
from nwcompile.ir.readout import Readout
from nwcompile.sim import simulate

ERROR_CODE = "NW2309"
MORE_STEPS = 3  # by which a sample is a little longer
SCALES = (0.0, 0.01, 100.0)
DENSITIES = (0.05, 0.15, 0.3, 0.5, 0.7, 0.9)  # of drawn spikes
MIN_LENGTHS = 2  # other lengths on which a readout must be right to be for any number of steps
ROUNDED = 0.1  # part of a result that may differ: at most 0.07 in SpikingJelly's MaxFormer, whose sums round otherwise
MOST_STEPS = 1000  # of a sample that is longer than the numbers in the module's code
MOST_VALUES = 10_000_000  # of all neurons in all its steps
DIFFERENT = "the module's code reads a value that depends on the input, and its result then differs from the network's"
Pair = tuple[torch.Tensor, torch.Tensor]  # a result, and the output that it may be a multiple of


class BatchError(ModelError):
    """The result of a sample depends on the other samples of its batch."""


class Tries:
    """Runs of a module, one sample at a time, on the example and on drawn samples of the same and of other lengths.

    `samples` `[S, T, *shape]`, and the first result for each, `results` `[S, *]`. `other_lengths`: samples of other
    numbers of steps with their results, none if the module fixes the number; the longest has more steps than any number
    in the code that runs, such as 15 in `x[:, :15]`. `depth`: see `run_samples`. `has_reads`: whether the module reads
    values of the input, which may decide what it computes; then more inputs are tried. `takes_spikes`: whether only
    inputs of 0 and 1 are tried. Raises ModuleFailedError if the module fails on the example.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        x: torch.Tensor,
        lead: str,
        network: Network,
        depth: int,
        has_reads: bool,
        takes_spikes: bool,
    ):
        self.module, self.lead, self.depth, self.has_reads = module, lead, depth, has_reads
        samples = torch.cat([x, *draw_like(x), *(_vary(x) if has_reads else [])])
        if takes_spikes:
            samples = samples[((samples == 0) | (samples == 1)).flatten(1).all(1)]
        if lead == "once":
            samples = samples[:, :1].expand_as(samples).contiguous()
        given = [(sample, result) for sample in samples.split(1) if (result := self._run(sample)) is not None]
        if not given or not torch.equal(given[0][0], samples[:1]):
            raise ModuleFailedError("the module fails on one sample, or gives no tensor")
        given = [pair for pair in given if pair[1].shape == given[0][1].shape]
        self.samples, self.results = (torch.cat(parts) for parts in zip(*given, strict=True))
        self.other_lengths: list[tuple[torch.Tensor, torch.Tensor]] = []
        lengths = []
        if lead != "once":
            limit = min(MOST_STEPS, MOST_VALUES // sum(network.node(name).n_neurons for name in network.layers))
            numbers = find_numbers(module, lambda: self._run(self.samples[:1]))
            lengths = _change_lengths(self.samples, max((n for n in numbers if n <= limit), default=0))
        self.batch = self._find_batch()
        for others in lengths:
            results = [result for result in self._run_each(others) if result is not None]
            if len(results) == len(others) and len({result.shape for result in results}) == 1:
                self.other_lengths.append((others, torch.cat(results)))

    def _find_batch(self) -> "Batch | None":
        """Return where the result of a batch has those of its samples; None if the module takes no batches.

        Raises BatchError if the results of two samples, or of all if the code reads values, depend on each other.
        """
        batch = None
        for n_samples in {min(2, len(self.samples)), len(self.samples) if self.has_reads else 1} - {1}:
            whole = self._run(self.samples[:n_samples])
            if whole is None:
                continue
            whole, *alone = (result.double().nan_to_num(0, 0, 0) for result in (whole, *self.results[:n_samples]))
            batch = _match_batch(whole[0], alone)
            if batch is None:
                text = "depends on the other samples of its batch, or is another one alone"
                raise BatchError(f"the module's result for a sample {text}")
        return batch

    def _run_each(self, samples: torch.Tensor) -> list[torch.Tensor | None]:
        """Return the result of each sample, from one run if the module takes batches and reads no values."""
        if self.batch is None or self.has_reads:
            return [self._run(sample) for sample in samples.split(1)]
        whole = self._run(samples)
        return [] if whole is None else [part[None] for part in self.batch.split(whole[0], len(samples))]

    def prove_output(self, network: Network) -> bool:
        """Return whether the result is an output of the network on other numbers of steps too, if it is one on these.

        Half of the samples of each length must agree. If some of the example's length differ already, samples agree if
        no more than `ROUNDED` of their results differs.
        """
        pairs_of_sample = _pair_outputs(network, self.samples, self.results)
        rows = [{place: find_factor(*pair) for place, pair in pairs.items()} for pairs in pairs_of_sample]
        factors = next(({place: f for place, f in row.items() if f} for row in rows if any(row.values())), {})
        is_exact = all(any(row.values()) for row in rows)
        if self.has_reads and not any(
            all(isclose(row.get(place, 0), f, rel_tol=CLOSE) for row in rows) for place, f in factors.items()
        ):
            raise ModelError(DIFFERENT)

        def agrees(pair: Pair, factor: float) -> bool:
            """Return whether a result is `factor` times an output, but for spikes that sums round otherwise."""
            if is_exact:
                return isclose(find_factor(*pair), factor, rel_tol=CLOSE)
            values = pair[0].float()
            return bool((values - factor * pair[1]).abs().sum() <= ROUNDED * values.abs().sum())

        for samples, results in self.other_lengths if factors else []:
            rates = (1.0, self.samples.shape[1] / samples.shape[1])  # of a sum, and of a mean
            wanted = [(place, factor * rate) for place, factor in factors.items() for rate in rates]
            agreed = [
                any(place in pairs and agrees(pairs[place], factor) for place, factor in wanted)
                for pairs in _pair_outputs(network, samples, results)
            ]
            if sum(agreed) * 2 < len(agreed):
                return False
        return True

    def verify_results(self, network: Network, readout: Readout, parts: list[Part]) -> None:
        """Raise ModelError unless a readout gives the module's results on all samples of the example's length.

        Drawn samples on which rounding changes spikes of `parts`, which are all layers, do not count.
        """
        try:
            verify_readout(readout, record_layers(network, self.samples), self.results)
        except ModelError:
            for s, (sample, result) in enumerate(zip(self.samples.split(1), self.results.split(1), strict=True)):
                run, spikes = record_layers(network, sample), record_spikes(self.module, sample, self.lead, parts)
                if s == 0 or spikes is None or all(compare_layers(run, spikes)):
                    verify_readout(readout, run, result)

    def allow_other_lengths(self, network: Network, readout: Readout) -> Readout:
        """Return the readout for any number of steps, if it gives the module's results on samples of other lengths."""
        if len(self.other_lengths) < MIN_LENGTHS:
            return readout
        runs = [(record_layers(network, samples), results) for samples, results in self.other_lengths]
        proven = []
        for general in readout.for_any_length():
            with suppress(ModelError):
                for run, results in runs:
                    verify_readout(general, run, results)
                proven.append(general)
        return proven[0] if len(proven) == 1 or (proven and proven[0].after == proven[-1].after) else readout

    def _run(self, x: torch.Tensor) -> torch.Tensor | None:
        return run_samples(self.module, x, self.lead, self.depth)


class Batch(NamedTuple):
    """The axis on which a batch's result has those of its samples side by side, around or inside of other entries."""

    axis: int
    is_inside: bool

    def split(self, whole: torch.Tensor, n: int) -> list[torch.Tensor]:
        """Return the results of `n` samples; none if their axis has no multiple of `n` entries."""
        size = whole.shape[self.axis] // n
        if whole.shape[self.axis] != n * size:
            return []
        sizes = (size, n) if self.is_inside else (n, size)
        return [*whole.unflatten(self.axis, sizes).unbind(self.axis + self.is_inside)]


def _match_batch(whole: torch.Tensor, alone: list[torch.Tensor]) -> Batch | None:
    """Return where a batch's result has those of its samples alone, or None."""
    for batch in (Batch(axis, is_inside) for axis in range(whole.ndim) for is_inside in (False, True)):
        parts = batch.split(whole, len(alone))
        if parts and all(
            one.shape == part.shape and is_close(one, part) for one, part in zip(parts, alone, strict=True)
        ):
            return batch
    return None


def run_samples(module: torch.nn.Module, x: torch.Tensor, lead: str, depth: int | None = None) -> torch.Tensor | None:
    """Return a module's first result for samples `[B, T, *shape]`, with an axis of 1 in front; None if it fails.

    If the module returns a list with one tensor per step, they are stacked: `[1, T, *]`. `depth`: the number of lists
    around it; -1 if there is no such list, None if it is not known.
    """
    with preserve_state(module), torch.no_grad():
        try:
            do, given = prepare_run(module, x, lead)
            tensors = group_results(do(given), x.shape[1], lambda _, at: depth in (None, at))
        except Exception:  # of the module: it does not take such samples
            return None
    if not tensors or not tensors[0]:
        return None
    return (torch.stack(tensors[0]) if len(tensors[0]) > 1 else tensors[0][0])[None]


def _vary(x: torch.Tensor) -> list[torch.Tensor]:
    """Return the example in other scales, and drawn spikes of other densities."""
    draw = torch.Generator().manual_seed(0)
    drawn = torch.rand(len(DENSITIES), *x.shape[1:], generator=draw).to(x.dtype)
    spikes = [(part < density).to(x.dtype) for part, density in zip(drawn.split(1), DENSITIES, strict=True)]
    return [*(scale * x for scale in SCALES), *spikes]


def _change_lengths(samples: torch.Tensor, number: int) -> list[torch.Tensor]:
    """Return drawn samples that are shorter, a little longer, much longer, and longer than a number of steps.

    One of the last is silent for that number of steps: a result such as tanh of a sum shows no more than a few.
    """
    n_steps, drawn = samples.shape[1], samples[1:]
    longer = [torch.cat([drawn, drawn.flip(1)[:, :MORE_STEPS]], 1), torch.cat([drawn[:2], drawn[:2].flip(1)] * 2, 1)]
    if number + MORE_STEPS > longer[1].shape[1]:
        late = drawn[:2].repeat(1, 1 - -number // n_steps, *[1] * (samples.ndim - 2))
        late[1:, :number] = 0
        longer.append(late)
    return [drawn[:, : (n_steps + 1) // 2], *longer] if len(drawn) else []


def find_numbers(module: torch.nn.Module, run: Callable[[], Any]) -> set[int]:
    """Return the whole numbers that the code of `run` may use: constants, arguments, globals, attributes of modules.

    Torch leaves no trace of `x[:, :15]` if the tensor is shorter, and `range(min(T, 15))` never leaves one.
    """
    parts: list[Any] = list(module.modules())
    parts += [value for part in parts for value in vars(part).values() if hasattr(value, "__dict__")]
    attributes = [vars(owner) for part in parts for owner in (*type(part).__mro__, part)]
    numbers: set[int] = set()
    seen: set[CodeType] = set()

    def note_code(frame: FrameType, event: str, _) -> None:
        code = frame.f_code
        if event == "call" and code not in seen and not code.co_filename.startswith((TORCH, PACKAGE)):
            seen.add(code)
            scopes = [frame.f_globals, *attributes]
            named = [scope[name] for name in code.co_names for scope in scopes if name in scope]
            values = [*code.co_consts, *frame.f_locals.values(), *named]
            numbers.update(abs(value) for value in values if type(value) is int)

    before = sys.getprofile()
    sys.setprofile(note_code)
    try:
        run()
    finally:
        getattr(before, "enable", lambda: sys.setprofile(before))()  # cProfile's profiler is no function
    return numbers


def _pair_outputs(network: Network, samples: torch.Tensor, results: torch.Tensor) -> list[dict[tuple, Pair]]:
    """Return each sample's result next to the outputs, by output, axis of steps, and whether the output is summed.

    Samples on which all outputs and results are 0 are left out.
    """
    run = simulate(network, samples.float().cpu().numpy())
    outputs = run.output if isinstance(run.output, dict) else {network.outputs[0]: run.output}
    rows: list[dict[tuple, Pair]] = []
    for s, result in enumerate(results):
        row, is_silent = {}, not result.any()
        for name, output in outputs.items():
            record = torch.from_numpy(np.asarray(output[s], np.float32)).flatten(1)
            is_silent &= not record.any()
            for axis in range(result.ndim):
                order = result.movedim(axis, 0)
                for is_sum, target in enumerate((record, record.sum(0, keepdim=True))):
                    if order.numel() == target.numel():
                        row[name, axis, is_sum] = order.reshape(target.shape), target
        if not is_silent:
            rows.append(row)
    return rows
