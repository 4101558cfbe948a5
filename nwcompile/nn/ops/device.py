"""Device names of the layers ("cpu", and "gpu" = "cuda"), and the limits of the GPU kernels."""

import torch

from nwcompile.errors import BackendError, OptionError, unknown_choice

ERROR_CODE = "NW6102"
DEVICES = ("cpu", "gpu", "cuda")
# The largest recurrent layer whose weights fit into the registers of one GPU program.
MAX_RECURRENT_NEURONS = 128


def torch_device(name: str) -> torch.device:
    """Return the torch device. Raises OptionError for an unknown name, BackendError if torch finds no GPU."""
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
        """Move to the GPU in place and return self. Raises BackendError without a GPU."""
        return self.to(torch_device("gpu"))
