"""Device names of the layers: "cpu", and "gpu" or "cuda", which are one thing; and what a GPU's kernels can hold."""

import torch

from nwcompile.errors import BackendError, OptionError, unknown_choice

ERROR_CODE = "NW6102"
DEVICES = ("cpu", "gpu", "cuda")
# The registers of one program on a GPU hold the weights of so many neurons onto themselves.
MAX_RECURRENT_NEURONS = 128


def torch_device(name: str) -> torch.device:
    """The torch device of that name. Raises BackendError for a GPU where torch finds none, OptionError otherwise."""
    if name not in DEVICES:
        raise OptionError(unknown_choice("device", name, DEVICES))
    if name == "cpu":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        built = f"was built for CUDA {torch.version.cuda}" if torch.version.cuda else "was built without CUDA"
        raise BackendError(
            f"device {name!r} needs a GPU and torch with CUDA: torch {torch.__version__} {built} and finds no GPU; "
            "use device='cpu'"
        )
    return torch.device("cuda")


class Movable(torch.nn.Module):
    """A module with `to_gpu()`."""

    def to_gpu(self):
        """Move to the GPU in place and return self. Raises BackendError where there is none."""
        return self.to(torch_device("gpu"))
