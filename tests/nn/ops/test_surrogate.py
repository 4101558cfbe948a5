from functools import partial

import pytest
import torch

from nwcompile.errors import OptionError
from nwcompile.nn.ops import surrogate


@pytest.mark.parametrize(
    ("function", "primitive"),
    [
        (surrogate.atan, lambda x: torch.atan(torch.pi / 2 * 2.0 * x) / torch.pi),
        (surrogate.fast_sigmoid, lambda x: x / (1 + 25 * x.abs())),
        (surrogate.sigmoid, lambda x: torch.sigmoid(4 * x)),
        (surrogate.piecewise_linear, lambda x: (0.5 * x + 0.5).clamp(0, 1)),
        (partial(surrogate.atan, slope=7.0), lambda x: torch.atan(torch.pi / 2 * 7.0 * x) / torch.pi),
    ],
)
def test_surrogate_is_the_derivative_of_its_step(function, primitive):
    x = torch.tensor([-2.3, -0.7, -0.1, 0.2, 0.9, 1.7], dtype=torch.float64, requires_grad=True)
    primitive(x).sum().backward()
    torch.testing.assert_close(function(x.detach()), x.grad)


def test_triangular_falls_from_its_slope_to_zero():
    x = torch.tensor([-0.5, -0.25, 0.0, 0.25, 0.5])
    assert surrogate.triangular(x, slope=2.0).tolist() == [0, 1, 2, 1, 0]


def test_surrogate_of_an_unknown_name_lists_the_names():
    with pytest.raises(OptionError) as error:
        surrogate.look_up_surrogate("atann")
    assert str(error.value) == (
        "unknown surrogate 'atann'; choose one of: atan, fast_sigmoid, piecewise_linear, sigmoid, triangular"
    )
