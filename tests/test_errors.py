"""Errors are shown as they are, whatever a file has put into them."""

import pytest

from nwcompile.errors import ChipError, FitError, ModelError, Violation
from nwcompile.ir.chip import Chip


def test_errors_escape_what_a_terminal_would_obey():
    assert str(ModelError("layer 'a\x1b[2J\n\u202e': é漢")) == "layer 'a\\x1b[2J\\n\\u202e': é漢"
    violation = Violation("neurons", "a\nb", 3, 2, "split it")
    assert str(FitError("tiny", [violation])) == "1 limit exceeded on tiny\n  neurons  a\\nb  3 of 2  split it"


def test_errors_about_a_chip_file_show_its_keys_in_one_line():
    with pytest.raises(ChipError) as caught:
        Chip.from_toml('name = "a"\n[noc]\n"x\\u001b" = 3\n[core]\n[neuron]', "a.toml")
    assert str(caught.value).startswith("a.toml: noc.x\\x1b: unknown key")
