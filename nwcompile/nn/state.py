"""What a spiking layer keeps from one call to the next."""

import torch


class Kept:
    """`mem` and `spikes`, `[B, N]`, after the last step; with their graph until a backward pass has used it."""

    def __init__(self, mem: torch.Tensor, spikes: torch.Tensor, used: "Used | None" = None):
        self.mem, self.spikes, self.used = mem, spikes, used or Used()

    def constant(self) -> "Kept":
        """The same numbers without a graph."""
        return Kept(self.mem.detach(), self.spikes.detach())

    def after(self, spikes: torch.Tensor, mem: torch.Tensor) -> "Kept":
        """What to keep after a call that gave `spikes` and `mem`, `[B, T, N]`."""
        for tensor in (spikes, mem):
            if tensor.requires_grad:
                tensor.register_hook(self.used.see)
        return Kept(mem[:, -1].clone(), spikes[:, -1].clone(), self.used)


class Used:
    """Whether a backward pass has come by; one object for all calls whose graphs hang together."""

    def __init__(self):
        self.value = False

    def see(self, _grad: torch.Tensor) -> None:
        """A tensor hook."""
        self.value = True
