import pytest
import torch

from nwcompile.errors import BackendError, ModelError, OptionError
from nwcompile.nn.layers.surrogate import atan
from nwcompile.nn.ops.fused import fire_weighed
from nwcompile.nn.ops.scan import Neurons


class OnGpu(torch.Tensor):
    """A tensor that says that it lies on a GPU; refusals come before anything is computed."""

    is_cuda = True


def arguments(n_in=3, n=2, n_steps=4, **options):
    x = torch.zeros(1, n_steps, n_in).as_subclass(OnGpu)
    return x, torch.zeros(n_in, n), torch.zeros(1, 1, n), Neurons(torch.ones(n), torch.ones(n), "zero", atan, **options)


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ([torch.zeros(1, 4, 3), *arguments()[1:]], "device 'cpu'"),
        (arguments(w_rec=torch.zeros(2, 2)), "neurons with recurrent weights"),
        (arguments(513), "513 inputs and 2 neurons, of 512 each"),
        (arguments(3, 513), "3 inputs and 513 neurons, of 512 each"),
    ],
)
def test_what_has_no_kernel_is_named(given, what):
    with pytest.raises(BackendError) as error:
        fire_weighed(*given, "bits")
    assert str(error.value) == (
        f"currents that are not written have no kernel for {what}; use nwcompile.nn.ops.spike_matmul.weigh and "
        "nwcompile.nn.ops.scan.fire"
    )


def test_spikes_that_do_not_fit_are_named():
    with pytest.raises(OptionError, match="unknown form 'bit'; choose one of: bits, float, uint8"):
        fire_weighed(*arguments(), "bit")
    x, *rest = arguments()
    for bits, n_steps in ((x.to(torch.int32), None), (x.to(torch.int32), 32)):
        with pytest.raises(ModelError) as error:
            fire_weighed(bits, *rest, "bits", n_steps)
        assert str(error.value) == (
            f"spikes of shape (1, 4, 3) and type torch.int32 are not those of 3 inputs in {n_steps} steps"
        )
