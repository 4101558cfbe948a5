"""One network over several processes: each owns consecutive layers, and time passes through them in chunks.

The engine is `torch.distributed.pipelining`; its microbatches are chunks of time here. Unlike microbatches, chunks are
not independent: a layer's state passes from one chunk to the next, and the gradient of the state passes back. So the
backward pass must take chunks from last to first. Among torch's schedules `ScheduleLoopedBFS` does this (breadth first,
arXiv 2211.05953); GPipe and 1F1B go from first to last. Inside a stage the graph is cut between chunks: a chunk starts
from a leaf, and the previous chunk later takes the leaf's gradient as the gradient of its last state.

docs/pipeline.md and benchmarks/pipeline.py show how to choose the number of chunks.
"""

from collections.abc import Callable
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from typing import cast

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, ScheduleLoopedBFS

from nwcompile.errors import BackendError, ModelError, OptionError
from nwcompile.nn.layers.lif import LIFLayer
from nwcompile.nn.layers.prepare import Prepared, prepare_net
from nwcompile.nn.layers.sequential import Sequential
from nwcompile.nn.ops.surrogate import eventprop


class Chunk(torch.nn.Module):
    """A process' layers on one chunk of time, with a graph of its own that begins where the previous chunk ended."""

    def __init__(self, layers: Sequential, is_last: bool):
        super().__init__()
        self.layers, self.is_last = layers, is_last

    def forward(self, x: torch.Tensor):
        result = self.layers(x)
        results = to_tuple(result) if self.is_last else to_tuple(result)[:1]
        spiking = [m for m in self.layers.modules() if isinstance(m, LIFLayer)]
        states, leaves = zip(*(layer.cut_graph() for layer in spiking), strict=True)
        for module in self.layers.modules():
            if isinstance(module, Prepared):
                module.forget_values()
        if torch.is_grad_enabled():
            results = _Tie.apply(leaves, len(results), *results, *states)
        return results if self.is_last and isinstance(result, tuple) else results[0]


class _Tie(torch.autograd.Function):
    """Pass results on; in the backward pass, take the states' gradients from the leaves of the next chunk."""

    @staticmethod
    def forward(ctx, leaves, n_results, *results_and_states):
        ctx.leaves = leaves
        return tuple(t.view_as(t) for t in results_and_states[:n_results])

    @staticmethod
    def backward(ctx, *grads):
        return None, None, *grads, *(leaf.grad for leaf in ctx.leaves)


class WholeLoss:
    """The loss of a whole sequence, for an engine that expects one loss per chunk.

    The last chunk computes the loss of the whole sequence, and stores the gradient of every chunk's result. The loss
    that the engine sees for a chunk is 0, with that gradient.
    """

    def start_sequence(self, loss_fn: Callable, n_chunks: int, n_steps: int) -> None:
        self.loss_fn, self.n_chunks, self.n_steps = loss_fn, n_chunks, n_steps
        self.leaves: list[tuple[torch.Tensor, ...]] = []
        self.value: torch.Tensor | None = None

    def __call__(self, result, target) -> torch.Tensor:
        results = to_tuple(result)
        leaves = tuple(t.detach().requires_grad_() for t in results)
        self.leaves.append(leaves)
        if len(self.leaves) == self.n_chunks:
            whole = tuple(torch.cat(parts, 1)[:, : self.n_steps] for parts in zip(*self.leaves, strict=True))
            try:
                loss = self.loss_fn(whole if isinstance(result, tuple) else whole[0])
                if not (isinstance(loss, torch.Tensor) and loss.numel() == 1 and loss.requires_grad):
                    raise ModelError(
                        f"loss_fn must return one number that depends on the result, not {_describe_loss(loss)}"
                    )
                loss.backward()
            except RuntimeError as e:  # wrapped, as the engine wraps errors of layers, to differ from its own errors
                raise RuntimeError("the loss has failed") from e
            self.value = loss.detach()
        return _Seed.apply(leaves, *results)


class _Seed(torch.autograd.Function):
    """Return 0 with the gradients of `leaves`."""

    @staticmethod
    def forward(ctx, leaves, *results):
        ctx.leaves = leaves
        return results[0].new_zeros(())

    @staticmethod
    def backward(ctx, grad):
        return None, *(leaf.grad for leaf in ctx.leaves)


def _describe_loss(loss) -> str:
    if not isinstance(loss, torch.Tensor):
        return f"a {type(loss).__name__}"
    return f"a tensor of shape {tuple(loss.shape)}" + ("" if loss.requires_grad else " without a gradient")


def to_tuple(result) -> tuple[torch.Tensor, ...]:
    return result if isinstance(result, tuple) else (result,)


def join_chunks(result: torch.Tensor, n_chunks: int) -> torch.Tensor:
    """Join chunks that are stacked along the batch axis into `[B, T, *]`."""
    return result.unflatten(0, (n_chunks, -1)).transpose(0, 1).flatten(1, 2)


class TimePipeline:
    """A network whose layers are split over the processes of a group; every process makes one from the same net.

    Process r owns range r of `split_layers(net, n_processes)`. A sequence of T steps passes in `n_chunks` chunks of
    ceil(T / n_chunks) steps, the last one padded with zeros; there are fewer chunks if fewer hold all steps. Spikes
    equal those of the net in one process, bit for bit if sums do not depend on their order, as with weights on a grid
    of 2^-8. Gradients differ only by the order of sums. Every call begins with `prepare_net(net)`.

    group: a group of `torch.distributed`, its processes in the order of the layers; None for all. The call is
    collective: all processes of the group must make it. timeout_s: the time that a process waits for another before it
    raises BackendError. After that this object is unusable; the remaining processes may make a new one.
    Raises BackendError without a process group, ModelError for a net that is not a `nwcompile.nn.Sequential`,
    OptionError for more processes than layers, and in all processes if their layers or `n_chunks` differ.
    """

    def __init__(self, net: Sequential, n_chunks: int, group=None, timeout_s: float = 60.0):
        if not isinstance(net, Sequential):
            raise ModelError(f"a pipeline takes a nwcompile.nn.Sequential, not a {type(net).__name__}")
        if not (isinstance(n_chunks, int) and n_chunks >= 1):
            raise OptionError(f"n_chunks is {n_chunks}, must be a whole number >= 1")
        if not 0 < timeout_s < 1e6:
            raise OptionError(f"timeout_s is {timeout_s}, must be a number of seconds > 0")
        if not dist.is_initialized():
            raise BackendError("a pipeline needs processes: call torch.distributed.init_process_group first")
        self.net, self.n_chunks, self.timeout_s = net, n_chunks, timeout_s
        self.rank = dist.get_rank(group)
        self.n_ranks = dist.get_world_size(group)
        first, last = split_layers(net, self.n_ranks)[self.rank]
        self.is_first = self.rank == 0
        self.is_last = self.rank == self.n_ranks - 1
        self.layers = net[first:last]
        self._first = first
        with self._translate_errors():
            self._group = dist.new_group(
                dist.get_process_group_ranks(group), timedelta(seconds=timeout_s), use_local_synchronization=True
            )
        self._verify_agreement({"n_chunks": n_chunks, "layers": str(net)})
        self._loss = WholeLoss()
        self._schedules: dict[tuple, ScheduleLoopedBFS] = {}

    def forward(self, x: torch.Tensor):
        """Return the net's result for `x` `[B, T, *shape]` in the last process, None in the others; no gradients.

        Only the first process uses the numbers of x; in the others a tensor of the same shape suffices, on any device.
        Raises ModelError as the net does, and for BatchNorm that computes statistics of its input: they would be the
        statistics of chunks. Raises BackendError if another process has stopped, and OptionError in all processes if
        their shapes differ or if not all call `forward`.
        """
        with torch.no_grad():
            n_chunks, length = self._begin_sequence(x, "forward")
            schedule = self._build_schedule(x, n_chunks, length, trains=False)
            with self._translate_errors():
                result = schedule.eval(*self._chunk_input(x, n_chunks, length))
        if not self.is_last:
            return None
        whole = [join_chunks(r, n_chunks)[:, : x.shape[1]] for r in to_tuple(result)]
        return tuple(whole) if isinstance(result, tuple) else whole[0]

    def step(self, x: torch.Tensor, loss_fn: Callable) -> torch.Tensor | None:
        """Run forward and backward; add gradients to the parameters of `layers`, which this process owns.

        loss_fn: a function of the net's whole result, called in the last process. That process returns the detached
        loss, the others None. x and errors are as in `forward`. Also raises OptionError in torch.inference_mode, and
        ModelError for a loss that is not a number with a gradient and for layers with EventProp in several chunks.
        """
        if torch.is_inference_mode_enabled():
            raise OptionError("step computes gradients, but torch.inference_mode is on; call it outside, or forward")
        n_chunks, length = self._begin_sequence(x, "step")
        schedule = self._build_schedule(x, n_chunks, length, trains=True)
        self._loss.start_sequence(loss_fn, n_chunks, x.shape[1])
        with self._translate_errors(), torch.enable_grad():
            target = torch.zeros(n_chunks) if self.is_last else None
            schedule.step(*self._chunk_input(x, n_chunks, length), target=target, return_outputs=False)
        return self._loss.value if self.is_last else None

    def _begin_sequence(self, x: torch.Tensor, call: str) -> tuple[int, int]:
        """Begin a sequence; return the number and length of its chunks."""
        if not isinstance(x, torch.Tensor) or x.ndim < 3 or 0 in x.shape:
            given = f"shape {tuple(x.shape)}" if isinstance(x, torch.Tensor) else f"a {type(x).__name__}"
            raise ModelError(f"a pipeline takes whole sequences [B, T, *shape], got {given}")
        for name, module in self.net.named_modules():
            if _takes_statistics(module):
                raise ModelError(
                    f"{name}: {type(module).__name__} would take its statistics from chunks; give it running "
                    "statistics and call eval() on it, or remove it"
                )
        self._verify_agreement({"method": call, "shape of x": tuple(x.shape)})
        length = -(-x.shape[1] // self.n_chunks)
        n_chunks = -(-x.shape[1] // length)
        for name, module in self.net.named_modules():
            if call == "step" and n_chunks > 1 and isinstance(module, LIFLayer) and module.surrogate is eventprop:
                raise ModelError(
                    f"{name}: surrogate 'eventprop' has no gradient across the bounds of chunks, as a spike's is a "
                    "difference of steps; give n_chunks=1 or another surrogate"
                )
        prepare_net(self.net)
        return n_chunks, length

    def _verify_agreement(self, settings: dict) -> None:
        """Raise OptionError unless all processes have equal settings; the engine would mix up their messages."""
        of_rank = [settings] * self.n_ranks
        with self._translate_errors():
            dist.all_gather_object(of_rank, settings, self._group)
        for rank, other in enumerate(of_rank):
            for name, value in of_rank[0].items():
                if other[name] != value:
                    differ = f"{name} {other[name]}, process 0 with {value}"
                    if name == "layers":
                        differ = "other layers than process 0"
                    raise OptionError(f"pipeline: process {rank} called with {differ}; give all the same")

    def _chunk_input(self, sequences: torch.Tensor, n_chunks: int, length: int) -> tuple[torch.Tensor, ...]:
        """Stack the chunks along the first axis, which the engine splits into microbatches."""
        if not self.is_first:
            return ()
        rest = n_chunks * length - sequences.shape[1]
        if rest:
            sequences = torch.cat([sequences, sequences.new_zeros(len(sequences), rest, *sequences.shape[2:])], 1)
        return (sequences.unflatten(1, (n_chunks, length)).transpose(0, 1).flatten(0, 1),)

    def _build_schedule(self, x: torch.Tensor, n_chunks: int, length: int, trains: bool) -> ScheduleLoopedBFS:
        """Build or reuse the engine for sequences of this shape, with the shapes that pass between processes."""
        key = (tuple(x.shape), x.dtype, n_chunks, trains)
        if key not in self._schedules:
            self._schedules = {k: s for k, s in self._schedules.items() if k[3] != trains}  # keep one of each kind
            device = next((p.device for p in self.net.parameters()), torch.device("cpu"))
            passed = self._probe_shapes(x, device)

            def empty_chunk(of: torch.Tensor, needs_grad: bool) -> torch.Tensor:
                size = (len(x), length, *of.shape[2:])
                return torch.empty(size, dtype=of.dtype, device="meta", requires_grad=needs_grad)

            stage = PipelineStage(
                Chunk(cast(Sequential, self.layers), self.is_last),
                self.rank,
                self.n_ranks,
                device,
                input_args=tuple(empty_chunk(t, trains and not self.is_first) for t in passed[0]),
                output_args=tuple(empty_chunk(t, trains) for t in passed[1]),
                group=self._group,
            )
            self._schedules[key] = ScheduleLoopedBFS(
                [stage], n_chunks, loss_fn=self._loss if trains else None, scale_grads=False
            )
        return self._schedules[key]

    def _probe_shapes(self, x: torch.Tensor, device: torch.device) -> tuple[tuple, tuple]:
        """Run one step of one sample; return tensors as before and after this process' layers. Leaves no state."""
        with torch.no_grad():
            given = torch.zeros(1, 1, *x.shape[2:], dtype=x.dtype, device=device)
            before = to_tuple(self.net[: self._first](given))[0]
            after = to_tuple(self.layers(before))
        for module in self.net.modules():
            if isinstance(module, LIFLayer):
                module.reset_state()
        return (before,), after if self.is_last else after[:1]

    @contextmanager
    def _translate_errors(self):
        """Turn a failure of the engine into the error of the layer, or into BackendError if a process is gone."""
        try:
            yield
        except RuntimeError as e:
            if e.__cause__ is not None:  # the engine wraps errors of layers and of the loss
                raise e.__cause__ from None
            raise BackendError(
                f"pipeline, process {self.rank} of {self.n_ranks}: another process has stopped or did not answer in "
                f"{self.timeout_s:g} s; see its own error, then start all of them again"
            ) from e


def split_layers(net: Sequential, n_ranks: int) -> list[tuple[int, int]]:
    """Split after spiking layers into ranges (first, last) of modules, one per process; the largest is minimal.

    The size of a module is its number of parameters and neurons. Raises OptionError for more processes than spiking
    layers.
    """
    ends = [i + 1 for i, module in enumerate(net) if any(isinstance(m, LIFLayer) for m in module.modules())]
    if len(ends) < n_ranks:
        raise OptionError(f"{n_ranks} processes for {len(ends)} spiking layers; a pipeline takes one of each at least")
    ends[-1] = len(net)
    size = [sum(map(_count_numbers, list(net)[first:last])) for first, last in zip([0, *ends], ends, strict=False)]

    @cache
    def split_groups(i: int, n: int) -> tuple[int, tuple[int, ...]]:
        """Split the groups from i on into n shares; return the size of the largest share, and the ends of all."""
        if n == 1:
            return sum(size[i:]), (len(size),)
        tails = ((j, split_groups(j, n - 1)) for j in range(i + 1, len(size) - n + 2))
        return min((max(sum(size[i:j]), largest), (j, *cuts)) for j, (largest, cuts) in tails)

    cuts = [ends[j - 1] for j in split_groups(0, n_ranks)[1]]
    return list(zip([0, *cuts], cuts, strict=False))


def _count_numbers(module: torch.nn.Module) -> int:
    neurons = sum(m.n_neurons for m in module.modules() if isinstance(m, LIFLayer))
    return neurons + sum(p.numel() for p in module.parameters())


def _takes_statistics(module: torch.nn.Module) -> bool:
    """Return whether a layer computes statistics over time, or counts its calls."""
    if not isinstance(module, torch.nn.modules.batchnorm._NormBase):
        return False
    is_over_time = isinstance(module, torch.nn.modules.batchnorm._BatchNorm)
    return (
        is_over_time and module.running_mean is None or module.training and (is_over_time or module.track_running_stats)
    )
