"""Options: what is refused, word for word."""

import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from nwcompile.errors import NwWarning, OptionError
from nwcompile.ir.options import Options

LARGEST = 9223372036854775807


@pytest.mark.parametrize(
    "given, text",
    [
        ({"seed": -1}, f"seed=-1 must be a whole number from 0 to {LARGEST}"),
        ({"seed": 1 << 64}, f"seed=18446744073709551616 must be a whole number from 0 to {LARGEST}"),
        ({"seed": 1.5}, f"seed=1.5 must be a whole number from 0 to {LARGEST}"),
        ({"seed": None}, f"seed=None must be a whole number from 0 to {LARGEST}"),
        ({"seed": True}, f"seed=True must be a whole number from 0 to {LARGEST}"),
        ({"bits": 0}, "bits=0 must be a whole number from 1 to 16"),
        ({"bits": 17}, "bits=17 must be a whole number from 1 to 16"),
        ({"bits": 3.5}, "bits=3.5 must be a whole number from 1 to 16"),
        ({"layer_bits": {"fc1": 0}}, "layer_bits['fc1']=0 must be a whole number from 1 to 16"),
        ({"layer_bits": 4}, "layer_bits=4 must be {layer: bits}"),
        ({"n_cores": 0}, f"n_cores=0 must be a whole number from 1 to {LARGEST}"),
        ({"n_cores": "2"}, f"n_cores='2' must be a whole number from 1 to {LARGEST}"),
        ({"time_budget_s": -1}, "time_budget_s=-1 must be a number of seconds, 0 or more"),
        ({"time_budget_s": float("nan")}, "time_budget_s=nan must be a number of seconds, 0 or more"),
        ({"time_budget_s": float("inf")}, "time_budget_s=inf must be a number of seconds, 0 or more"),
        ({"time_budget_s": "1"}, "time_budget_s='1' must be a number of seconds, 0 or more"),
        (
            {"fixed_sites": {"out": [(0, 1)]}},
            "fixed_sites={'out': [(0, 1)]} must be {layer: [(x, y, port), ...]}, whole numbers from 0 on",
        ),
        ({"fixed_sites": 3}, "fixed_sites=3 must be {layer: [(x, y, port), ...]}, whole numbers from 0 on"),
        ({"execution": "phasd"}, "unknown execution 'phasd'; choose one of: phased, pipelined"),
        ({"optimize": None}, "unknown optimize 'None'; choose one of: cores, edp, energy, time, traffic"),
        ({"on_multi_spike": "grade"}, "unknown on_multi_spike 'grade'; choose one of: graded, refuse, repeat"),
    ],
)
def test_options_refuse_in_one_sentence(given, text):
    with pytest.raises(OptionError) as error:
        Options(**given)
    assert str(error.value) == text


def test_options_take_whole_numbers_of_numpy_and_are_json():
    options = Options(seed=np.int64(3), bits=np.uint8(8), layer_bits={"fc1": np.int64(2)}, n_cores=np.int32(2))
    assert options == Options(seed=3, bits=8, layer_bits={"fc1": 2}, n_cores=2)
    assert json.loads(json.dumps(options.to_dict())) == options.to_dict()


def test_options_take_times_of_any_kind_and_are_json():
    options = Options(optimize="cores", step_limit_us=np.float32(2.5), time_budget_s=Fraction(1, 2))
    assert options == Options(optimize="cores", step_limit_us=2.5, time_budget_s=0.5)
    assert json.loads(json.dumps(options.to_dict())) == options.to_dict()


@pytest.mark.parametrize(
    "given, text",
    [
        ({"step_limit_us": 0.0}, "step_limit_us=0.0 must be a number of microseconds above 0"),
        ({"step_limit_us": "5"}, "step_limit_us='5' must be a number of microseconds above 0"),
        ({"step_limit_us": 10**309}, f"step_limit_us={10**309} must be a number of microseconds above 0"),
        ({"step_limit_us": 5.0}, "step_limit_us goes with optimize='traffic' or 'cores', not 'time'"),
    ],
)
def test_a_step_limit_is_a_time_beside_another_objective(given, text):
    with pytest.raises(OptionError) as error:
        Options(**given)
    assert str(error.value) == text


def test_options_take_the_old_name_of_optimize_and_warn():
    text = "Options.optimise is called optimize now; the old name goes with the next release"
    with pytest.warns(NwWarning, match=text):
        assert Options(optimise="traffic") == Options(optimize="traffic")
    with pytest.warns(NwWarning, match=text):
        assert replace(Options(seed=2), optimise="cores") == Options(seed=2, optimize="cores")
    with pytest.warns(NwWarning, match=text):
        assert Options(optimize="energy").optimise == "energy"
    assert Options(0, None, None, "metis", "anneal", 4, "traffic") == Options(
        partitioner="metis", n_cores=4, optimize="traffic"
    )
