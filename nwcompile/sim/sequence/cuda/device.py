"""The device of `device="cuda"`."""

from importlib.util import find_spec

import torch

from nwcompile.errors import BackendError

ERROR_CODE = "NW6102"


def find_gpu() -> torch.device:
    """Return the GPU. Raises BackendError if torch finds none, or Triton is missing."""
    if not torch.cuda.is_available():
        raise BackendError(
            f"device 'cuda' needs a GPU that torch can use, and torch {torch.__version__} finds none; use device='cpu'"
        )
    if find_spec("triton") is None:
        raise BackendError(
            "device 'cuda' needs Triton, which is not installed; pip install 'nwcompile[cuda]', or use device='cpu'"
        )
    return torch.device("cuda")
