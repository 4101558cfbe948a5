"""What may be approximated, at which price, and how input comes in: the options and what they refuse."""

import pytest

from nwcompile.errors import OptionError
from nwcompile.ir.options import APPROXIMATIONS, INPUT_LAYERS, Options


def test_options_approximate_takes_one_text_several_words_or_all():
    assert Options().approximate == ()
    assert Options(approximate=" timing, reset").approximate == ("reset", "timing")
    assert Options(approximate=["timing", "reset"]).approximate == ("reset", "timing")
    everything = tuple(word for word in APPROXIMATIONS if word != "delay")  # which relay neurons do exactly
    assert Options(approximate="all").approximate == everything
    assert Options(approximate=("reset", "all")).approximate == everything
    assert Options(approximate="delay,all").approximate == APPROXIMATIONS


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"approximate": "resett"}, "unknown approximate 'resett'; choose one of: reset, all, bias, decay, "
         "delay, multi-spike, pool, program, refractory, strict, timing, v_min"),
        ({"approximate": 3}, "approximate=3 must be words like 'reset,timing', or 'all'"),
        ({"max_loss": 2}, "max_loss=2 must be points of accuracy like '0.5pt', or a share of the spikes like '2%'"),
        ({"max_loss": "2"}, "max_loss='2' must be points of accuracy like '0.5pt', or a share of the spikes like '2%'"),
        ({"input_layer": "hostt"}, "unknown input_layer 'hostt'; choose one of: host, bias, exact, graded"),
    ],
)  # fmt: skip
def test_options_of_legalization_refuse_what_they_do_not_know(given, text):
    with pytest.raises(OptionError) as error:
        Options(**given)
    assert str(error.value) == text


@pytest.mark.parametrize("name", INPUT_LAYERS)
def test_options_input_layer_is_kept(name):
    assert Options(input_layer=name, max_loss="0.5pt").to_dict()["input_layer"] == name
