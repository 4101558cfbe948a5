"""Chunks of time as microbatches of torch's pipeline engine: states and losses that cross chunk boundaries."""

from collections.abc import Callable

import torch

from nwcompile.errors import ModelError
from nwcompile.nn.layers.lif import LIFLayer
from nwcompile.nn.layers.prepare import Prepared
from nwcompile.nn.layers.sequential import Sequential


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
