"""Fuzz: random programs through all backends, damaged chip files and programs. `make test-long`; LONG_EXAMPLES each."""

import copy
import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nwcompile.errors import ArtifactError, ChipError
from nwcompile.ir import artifact
from nwcompile.ir.activity import Activity
from nwcompile.ir.chip import HWMODELS, Chip
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.program import Program
from nwcompile.passes.emit import emit
from nwcompile.sim.crosscheck import crosscheck
from tests.nets import dense_net, feed_forward
from tests.random_programs import inputs, programs

pytestmark = pytest.mark.long
PATIENT = settings(suppress_health_check=list(HealthCheck))
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 70), 1 << 70),
    st.floats(),
    st.text(max_size=5),
    st.lists(st.integers(-3, 3), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)
KEYS = ("weight", "shape", "array", "reset", "source", "")


def small_program() -> Program:
    network = dense_net(5, 4, 3, recurrent=True)
    mapping = Mapping.from_arrays({"fc1": [0, 0, 1, 1], "fc2": [1, 1, 1]}, [[0, 0, 0], [1, 0, 0]])
    return emit(network, feed_forward(network), mapping, Chip.load("tiny"), Activity.uniform(network), {"warnings": []})


WHOLE = small_program().data


@pytest.mark.parametrize("window", ["aligned", "hardware"])
@PATIENT
@given(data=st.data())
def test_fuzz_backends_agree(window, data):
    program = data.draw(programs())
    result = crosscheck(program, data.draw(inputs(program)), window=window)
    assert result.agree, str(result)


def places(value, path=()):
    """Paths to every value inside nested dicts and lists."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*path, key))


def broken(draw, table: dict) -> dict:
    """The table with one to three of its values replaced, removed or added to."""
    table = copy.deepcopy(table)
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from([p for p in places(table) if p]))
        parent = table
        for key in path[:-1]:
            parent = parent[key]
        action = draw(st.sampled_from(("replace", "remove", "add")))
        if action == "replace":
            parent[path[-1]] = draw(VALUES)
        elif action == "remove":
            del parent[path[-1]]
        elif isinstance(parent, dict):
            parent[draw(st.sampled_from(KEYS))] = draw(VALUES)
    return table


@PATIENT
@given(data=st.data())
def test_fuzz_chip_is_refused_with_a_sentence_or_usable(data):
    table = broken(data.draw, Chip.load(data.draw(st.sampled_from(Chip.names()))).to_dict())
    try:
        chip = Chip.from_dict(table, "fuzz")
    except ChipError as e:
        assert str(e).startswith("fuzz: ")
        return
    assert Chip.from_dict(chip.to_dict()) == chip and max(chip.ticks) >= 1


@PATIENT
@given(data=st.data())
def test_fuzz_chip_text_is_refused_with_a_sentence_or_usable(data):
    text = (HWMODELS / "tiny.toml").read_text()
    at = data.draw(st.integers(0, len(text)))
    text = text[:at] + data.draw(st.text(max_size=5)) + text[at + data.draw(st.integers(0, 9)) :]
    try:
        Chip.from_toml(text, "fuzz.toml")
    except ChipError as e:
        assert "fuzz.toml" in str(e)


@PATIENT
@given(data=st.data())
def test_fuzz_damaged_program_is_refused(data, tmp_path_factory):
    at = data.draw(st.integers(0, len(WHOLE) - 1))
    damaged = data.draw(
        st.sampled_from(
            (WHOLE[:at], WHOLE[at:], WHOLE[:at] + bytes([WHOLE[at] ^ 1]) + WHOLE[at + 1 :], WHOLE + WHOLE[:at])
        )
    )
    path = tmp_path_factory.getbasetemp() / "damaged.nwc"
    path.write_bytes(damaged)
    if damaged != WHOLE:
        with pytest.raises(ArtifactError):
            Program.load(path)


@PATIENT
@given(data=st.data())
def test_fuzz_program_of_another_hand_is_refused_or_consistent(data, tmp_path_factory):
    """A file whose sum is right but whose content was made up: an ArtifactError, or a program that verifies."""
    manifest, arrays = artifact.decode(WHOLE, "whole")
    manifest = broken(data.draw, manifest)
    if data.draw(st.booleans()):
        name = data.draw(st.sampled_from(sorted(arrays)))
        change = data.draw(st.sampled_from(("cut", "float", "negative", "missing", "deeper")))
        array = arrays.pop(name)
        if change != "missing":
            arrays[name] = {
                "cut": array[:-1] if array.ndim else array,
                "float": array.astype(np.float64) + 0.5,
                "negative": -1 - array.astype(np.int64),
                "deeper": array[None],
            }[change]
    path = tmp_path_factory.getbasetemp() / "made_up.nwc"
    path.write_bytes(artifact.encode(json.loads(json.dumps(manifest)), arrays))
    try:
        program = Program.load(path)
    except ArtifactError as e:
        assert str(path) in str(e)
        return
    program.verify()
