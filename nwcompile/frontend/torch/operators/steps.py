"""Tensors with an axis of steps, as one operator for each step."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch

from nwcompile.frontend.torch.operators.ops import Op, aten, list_leaves, make_op


class Layout(NamedTuple):
    """The place of the steps in a tensor: its `axis` holds `[left, n, right]`."""

    axis: int
    n: int
    left: int
    right: int


@dataclass(eq=False)
class Steps:
    """A tensor with an axis of steps: `entries[t]` has the part of step t.

    The tensor's `axis` holds `[left, step, right]`; an entry has `left * right` there.
    """

    entries: list[Op]
    axis: int
    left: int = 1
    right: int = 1

    @property
    def shape(self) -> list[int]:
        """Shape of the whole tensor."""
        shape = list(self.entries[0].value.shape)
        shape[self.axis] = self.n_inside * len(self.entries)
        return shape

    @property
    def n_inside(self) -> int:
        """Entries of the axis that belong to one step."""
        return self.left * self.right

    @property
    def layout(self) -> Layout:
        """The place of the steps."""
        return Layout(axis=self.axis, n=len(self.entries), left=self.left, right=self.right)


def set_times(entries: list[Op], n_steps: int) -> list[Op]:
    """Move the entries of all steps to their steps, if all are as many steps early.

    A spike that is told by the state of the step before depends on earlier input only, but is of this step.
    """
    early = {t - e.step for t, e in enumerate(entries) if e.depends}
    if len(entries) != n_steps or len(early) != 1 or min(early) < 1:
        return entries
    moved = (make_op(aten.reshape.default, (e, list(e.value.shape)), {}, e.value, e.site) for e in entries)
    return [replace(m, step=t) if e.depends else e for t, (e, m) in enumerate(zip(entries, moved, strict=True))]


def was_moved(entry: Op) -> bool:
    """Return whether `set_times` moved an entry to a later step."""
    return entry.name == "reshape" and entry.operands[0].step < entry.step


def cut_value(value: torch.Tensor, layout: Layout) -> list[torch.Tensor] | None:
    """Return the part of each step of a tensor with this layout; None if it has no axis of steps."""
    axis, n, left, right = layout
    if value.ndim <= axis or value.shape[axis] != n * left * right:
        return None
    parts = value.unflatten(axis, (left, n, right)).unbind(axis + 1)
    return [part.flatten(axis, axis + 1) for part in parts]


def find_steps(value) -> list[Steps]:
    """Return the tensors with steps in nested tuples, lists and dicts."""
    return [leaf for leaf in list_leaves(value) if isinstance(leaf, Steps)]
