"""The cases that are interpreted elsewhere, on the GPU."""

import pytest
import torch

if not torch.cuda.is_available():
    pytest.skip("no GPU that torch can use", allow_module_level=True)

from tests.kernels.gpu.interpreted_eventprop import *  # noqa: F403
