"""Error texts are safe to print, whatever a file has put into them."""

import copy
import pickle
import re
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
import torch

import nwcompile as nw
from nwcompile.errors import (
    ChipError,
    FitError,
    ModelError,
    NwError,
    NwWarning,
    OptionError,
    Violation,
    check_int,
    first_places,
    unknown_choice,
)
from nwcompile.flow import compile
from nwcompile.frontend.encode import encode
from nwcompile.frontend.torch.operations import UnfollowableError
from nwcompile.frontend.torch.operators import ModuleFailedError
from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Dense
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import FixedPoint
from nwcompile.ir.options import Options
from nwcompile.sim import simulate
from tests.made.nets import FIXED, dense_net


def test_errors_escape_what_a_terminal_would_obey():
    assert str(ModelError("layer 'a\x1b[2J\n\u202e': é漢")) == "layer 'a\\x1b[2J\\n\\u202e': é漢"
    violation = Violation("neurons", "a\nb", 3, 2, "split it")
    assert (
        str(FitError("tiny", [violation, violation])) == "1 limit exceeded on tiny\n  neurons  a\\nb  3 of 2  split it"
    )


def every_kind(kind: type) -> set[type]:
    return {kind}.union(*map(every_kind, kind.__subclasses__()))


def copies(value) -> list:
    return [pickle.loads(pickle.dumps(value)), copy.deepcopy(value), copy.copy(value)]


@pytest.mark.parametrize(
    "used, limit, unit, text",
    [(3, 2, "", "3 of 2"), (24, "32", "", "must be 32, is 24"), (0.25, 0.125, " us", "0.25 us of 0.125 us")],
)
def test_a_limit_is_printed_as_a_limit_and_a_rule_as_a_rule(used, limit, unit, text):
    assert str(Violation("width", "a", used, limit, "change it", unit)) == f"width  a  {text}  change it"


VIOLATIONS = [Violation("neurons", "a", 3, 2, "split it")]
RAISED = [
    *(kind("two\x1b", "lines") for kind in sorted(every_kind(NwError) - {FitError}, key=lambda kind: kind.__name__)),
    FitError("tiny", VIOLATIONS, "2 cores", "loihi1 takes it"),
    NwWarning("two lines"),
    UnfollowableError("which is not supported"),
    ModuleFailedError("RuntimeError: shape"),
]


@pytest.mark.parametrize("error", RAISED, ids=lambda error: type(error).__name__)
def test_error_is_copied_and_pickled_as_it_is(error):
    for copied in copies(error):
        assert type(copied) is type(error) and str(copied) == str(error) and copied.args == error.args
        assert vars(copied) == vars(error)


def test_every_exception_of_the_package_is_copied_by_a_test():
    classes = re.compile(r"^class (\w*(?:Error|Warning|Exception))\b", re.MULTILINE)
    named = {name for path in Path(nw.__file__).parent.rglob("*.py") for name in classes.findall(path.read_text())}
    inside = {"_RefusedError", "_ClosedError", "RecordError"}  # caught inside their own folder
    assert named - inside == {type(error).__name__ for error in RAISED}


def test_error_of_another_process_has_its_code_and_its_violations():
    with ProcessPoolExecutor(1, get_context("spawn")) as pool, pytest.raises(FitError) as unfit:
        pool.submit(compile, dense_net(3, 300), "tiny").result()
    assert str(unfit.value).startswith("1 limit exceeded on tiny") and unfit.value.violations[0].used == 300
    with pytest.raises(ChipError) as wrong:
        Chip.load("tiny").replace({"core.max_neurons": 0})
    assert ChipError("made here").code != wrong.value.code == "NW4002"
    assert {copied.code for copied in copies(wrong.value)} == {"NW4002"}


def test_errors_about_a_chip_file_show_its_keys_in_one_line():
    with pytest.raises(ChipError) as caught:
        Chip.from_toml('name = "a"\n[noc]\n"x\\u001b" = 3\n[core]\n[neuron]', "a.toml")
    assert str(caught.value).startswith("a.toml: noc.x\\x1b: unknown key")


@pytest.mark.parametrize("value", [3, np.int8(3), np.array(3)])
def test_whole_takes_any_whole_number_as_an_int(value):
    assert check_int("n", value, 3, 3) == check_int("n", value, 0) == 3 and type(check_int("n", value, 0)) is int


@pytest.mark.parametrize("value", [True, 3.0, "3", None, -1, 9, np.array([3, 4])])
def test_whole_refuses_the_rest(value):
    with pytest.raises(OptionError) as error:
        check_int("n", value, 0, 8)
    assert str(error.value) == f"n={value!r} must be a whole number from 0 to 8"


HUGE = 10**5000  # Python refuses to print this many digits
SHOWN = "<int of more than 4300 digits>"


def one_layer(layer=FIXED, **edge) -> Network:
    return Network.from_arrays({"a": layer}, [Dense("in", "a", np.ones((1, 3), int), **edge)], {"in": 3})


@pytest.mark.parametrize(
    "refused, text",
    [
        (lambda: check_int("n", HUGE, 0, 8), f"n={SHOWN} must be a whole number from 0 to 8"),
        (lambda: Options(layer_bits={"a": HUGE}), f"layer_bits['a']={SHOWN} must be a whole number from 1 to 16"),
        (lambda: Options(layer_bits={HUGE: 0}), f"layer_bits[{SHOWN}]=0 must be a whole number from 1 to 16"),
        (lambda: Options(layer_bits=HUGE), f"layer_bits={SHOWN} must be {{layer: bits}}"),
        (lambda: Options(time_budget_s=HUGE), f"time_budget_s={SHOWN} must be a number of seconds, 0 or more"),
        (lambda: Options(step_limit_us=HUGE), f"step_limit_us={SHOWN} must be a number of microseconds above 0"),
        (
            lambda: Options(fixed_sites={"a": [(HUGE, -1, 0)]}),
            "fixed_sites=<dict of more than 4300 digits> must be {layer: [(x, y, port), ...]}, whole numbers from 0 on",
        ),
        (
            lambda: simulate(dense_net(3, 4), None, steps=HUGE),
            f"steps={SHOWN} must be a whole number from 1 to 2147483647",
        ),
        (lambda: encode([[1.0]], HUGE), f"steps={SHOWN} of 1 samples do not fit in memory; encode fewer"),
        (lambda: one_layer(FIXED.replace(threshold=HUGE)), f"layer 'a': threshold={SHOWN} must be a number"),
        (
            lambda: one_layer(FIXED.replace(fixed=FixedPoint(HUGE))),
            f"layer 'a': state_bits={SHOWN} must be a whole number 2..32",
        ),
        (
            lambda: one_layer((FIXED, (HUGE,))),
            f"'a': shape <tuple of more than 4300 digits> has {SHOWN} neurons; the limit is 2147483647",
        ),
        (
            lambda: one_layer(delay=-HUGE),
            f"connection 'in' -> 'a': delay {SHOWN} must be a whole number of steps, 0..2147483647",
        ),
        (
            lambda: one_layer(exponent=HUGE),
            f"connection 'in' -> 'a': exponent={SHOWN} must be a whole number -32..32",
        ),
        (
            lambda: Chip.load("tiny").replace({"noc.columns": HUGE}),
            f"tiny: noc.columns: {SHOWN} is above the largest supported, 1024",
        ),
        (
            lambda: Chip.load("tiny").replace({"weights.bits": -HUGE}),
            f"tiny: weights.bits: {SHOWN} must be 2 or more",
        ),
        (
            lambda: Chip.load("tiny").replace({"neuron.strict": HUGE}),
            f"tiny: neuron.strict: expected a list of true/false, got {SHOWN}",
        ),
        (
            lambda: Chip.from_dict(Chip.load("tiny").to_dict() | {"noc": {HUGE: 2}}),
            f"chip: noc.{SHOWN}: unknown key (keys are texts)",
        ),
        (lambda: Chip.from_dict({"name": HUGE}), "chip: noc: missing key; every chip file needs it"),
        (lambda: Chip.from_dict(HUGE), f"chip: expected a table of keys, got {SHOWN}"),
        (
            lambda: one_layer(nw.NeuronProgram(HUGE, (), (), "s", "binary")),
            f"layer 'a': program {SHOWN}: its name must be a text of printable characters",
        ),
        (
            lambda: nw.from_lava("net.net", neuron=HUGE),
            f"neuron={SHOWN} must be a dict of NeuronSpec fields, or of such dicts by layer",
        ),
        (
            lambda: nw.from_nir("net.nir", neuron=HUGE),
            f"neuron={SHOWN} must be a dict of NeuronSpec fields, or of such dicts by node name",
        ),
        (
            lambda: nw.from_torch(torch.nn.Linear(1, 1), torch.ones(1, 2, 1), relu=HUGE),
            f"relu={SHOWN} must be an nw.NeuronSpec, the neuron that stands for every ReLU",
        ),
        (
            lambda: nw.convert(torch.nn.Linear(1, 1), np.ones((1, 1)), 4, unit=HUGE),
            f"unit={SHOWN} is out of the range of float32; scale the samples to 0..1",
        ),
        (
            lambda: nw.Session(dense_net(3, 4), model_dt=HUGE),
            f"model_dt={SHOWN} must be a time in seconds above 0",
        ),
    ],
)
def test_a_number_of_too_many_digits_to_write_is_refused_in_a_sentence(refused, text):
    with pytest.raises(NwError) as error:
        refused()
    assert str(error.value) == text


def test_a_choice_of_too_many_digits_to_write_is_unknown():
    assert unknown_choice("kind", HUGE, ["b", "a"]) == f"unknown kind '{SHOWN}'; choose one of: a, b"


def test_a_path_with_a_zero_character_is_refused_in_a_sentence(tmp_path):
    program = compile(dense_net(3, 4), "tiny")
    for use in (program.save, nw.Program.load):
        with pytest.raises(OptionError) as error:
            use("a\0b")
        assert str(error.value).endswith("path='a\\x00b' must be a path")


@pytest.mark.parametrize(("n", "more"), [(1, []), (5, []), (6, ["1 more core"]), (9, ["4 more cores"])])
def test_first_places_are_five_and_the_number_of_the_others(n, more):
    places = [f"core {c}" for c in range(n)]
    assert first_places(places, "core") == places[:5] + more
