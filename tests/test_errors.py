"""Errors are shown as they are, whatever a file has put into them."""

import numpy as np
import pytest

from nwcompile.errors import ChipError, FitError, ModelError, OptionError, Violation, whole
from nwcompile.ir.chip import Chip


def test_errors_escape_what_a_terminal_would_obey():
    assert str(ModelError("layer 'a\x1b[2J\n\u202e': é漢")) == "layer 'a\\x1b[2J\\n\\u202e': é漢"
    violation = Violation("neurons", "a\nb", 3, 2, "split it")
    assert str(FitError("tiny", [violation])) == "1 limit exceeded on tiny\n  neurons  a\\nb  3 of 2  split it"


def test_errors_about_a_chip_file_show_its_keys_in_one_line():
    with pytest.raises(ChipError) as caught:
        Chip.from_toml('name = "a"\n[noc]\n"x\\u001b" = 3\n[core]\n[neuron]', "a.toml")
    assert str(caught.value).startswith("a.toml: noc.x\\x1b: unknown key")


@pytest.mark.parametrize("value", [3, np.int8(3), np.array(3)])
def test_whole_takes_any_whole_number_as_an_int(value):
    assert whole("n", value, 3, 3) == whole("n", value, 0) == 3 and type(whole("n", value, 0)) is int


@pytest.mark.parametrize("value", [True, 3.0, "3", None, -1, 9, np.array([3, 4])])
def test_whole_refuses_the_rest(value):
    with pytest.raises(OptionError) as error:
        whole("n", value, 0, 8)
    assert str(error.value) == f"n={value!r} must be a whole number from 0 to 8"
