"""The device of `device="cuda"`, and its memory."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

import torch

from nwcompile.errors import BackendError
from nwcompile.memory import SMALL_BYTES, bytes_text

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


@contextmanager
def room_on_gpu(device: torch.device, work: str, n_bytes: int) -> Iterator[None]:
    """Run on a GPU what needs at least `n_bytes`. Raises BackendError if they are not free, or memory runs out."""
    if n_bytes >= SMALL_BYTES and n_bytes > _free_bytes(device):
        raise _too_little_memory(device, work, n_bytes)
    try:
        with torch.cuda.device(device):  # kernels launch there
            yield
    except torch.OutOfMemoryError:
        raise _too_little_memory(device, work, n_bytes) from None


def _free_bytes(device: torch.device) -> int:
    held = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)  # by torch, for later tensors
    return torch.cuda.mem_get_info(device)[0] + held


def _too_little_memory(device: torch.device, work: str, n_bytes: int) -> BackendError:
    return BackendError(
        f"{work} needs {bytes_text(n_bytes)} or more on device 'cuda', where {bytes_text(_free_bytes(device))} are "
        "free; give fewer samples or steps, or use device='cpu'",
        code="NW1009",
    )
