"""The whole compiler: the program spikes like the input network, and every run gives the same program."""

import ast
import os
import pickle
import subprocess
import sys
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest

from nwcompile import flow
from nwcompile.cli.outputs import progress
from nwcompile.errors import ChipError, FitError, ModelError, OptionError
from nwcompile.flow import compile
from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Conv2d, Dense, Pool2d, Scale
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import FixedPoint, NeuronSpec
from nwcompile.ir.options import Options
from nwcompile.ir.program import Program
from nwcompile.passes.stages.draft import Draft, Missing
from nwcompile.passes.stages.run import NO_CALIBRATION, run
from nwcompile.passes.stages.run import STAGES as ALL_STAGES
from nwcompile.sim import simulate
from tests.made.spikes import spikes

SPEC = NeuronSpec(threshold=1.0, beta=0.5)
STAGES = ["normalize", "legalize", "estimate", "schedule", "quantize", "prove", "calibrate", "partition", "place",
          "check", "interleave", "emit"]  # fmt: skip


STAGE_FUNCTIONS = {
    "nwcompile.passes.prepare.input_layer": {"legalize_input"},
    "nwcompile.passes.prepare.normalize": {"normalize"},
    "nwcompile.passes.prepare.schedule": {"schedule"},
    "nwcompile.passes.legalize.legalize": {"legalize"},
    "nwcompile.passes.legalize.prove": {"prove"},
    "nwcompile.passes.quantize.approximate.approximate": {"approximate"},
    "nwcompile.passes.fit.relay_delays": {"relay_delays"},
    "nwcompile.passes.quantize.compare_currents": {"compare_currents"},
    "nwcompile.passes.fit.split_fan_in": {"split_fan_in"},
    "nwcompile.passes.quantize.quantize": {"quantize_once"},
    "nwcompile.passes.analyze.check": {"estimate", "check"},
    "nwcompile.passes.fit.merge_axons": {"merge_axons"},
    "nwcompile.passes.partition.partition": {"partition"},
    "nwcompile.passes.fit.copy_neurons": {"copy_neurons"},
    "nwcompile.passes.place.place": {"place"},
    "nwcompile.passes.emit": {"interleave_visits", "emit"},
}


def dyadic(rng, *shape):
    return rng.integers(-4, 5, shape).astype(np.float32) / 8


def image_net() -> Network:
    """A convolution with batch norm and pooling, a skip, and a recurrent layer; all numbers are dyadic."""
    rng = np.random.default_rng(0)
    return Network.from_arrays(
        {"bn": (None, (2, 4, 4)), "conv": (SPEC, (2, 4, 4)), "pool": (None, (2, 2, 2)), "fc": SPEC, "out": SPEC},
        [Conv2d("in", "bn", dyadic(rng, 2, 1, 3, 3), padding=1, bias=dyadic(rng, 2)),
         Scale("bn", "conv", scale=np.array([1.0, 0.5]), shift=np.array([0.25, 0.0])),
         Pool2d("conv", "pool", 2), Dense("pool", "fc", dyadic(rng, 6, 8)), Dense("fc", "fc", dyadic(rng, 6, 6)),
         Dense("fc", "out", dyadic(rng, 3, 6)), Dense("conv", "out", dyadic(rng, 3, 32))],
        {"in": (1, 4, 4)},
    )  # fmt: skip


X = spikes(4, 6, 1, 4, 4, seed=1, rate=0.4, dtype=np.float32)


@pytest.mark.parametrize("execution", ["pipelined", "phased"])
def test_compile_gives_a_program_that_spikes_like_the_float_network(execution):
    network = image_net()
    program = compile(network, "tiny", X, Options(execution=execution))
    wanted, got = simulate(network, X), simulate(program, X)
    for name in network.layers:
        np.testing.assert_array_equal(wanted.spikes[name], got.spikes[name])
    assert program.schedule.execution == execution
    assert {row["layer"]: row["spike_agreement_percent"] for row in program.manifest["quantization"]} == {
        "conv": 100.0, "fc": 100.0, "out": 100.0,
    }  # fmt: skip


def test_compile_reports_each_stage_in_order_with_what_it_made():
    seen = []
    program = compile(image_net(), "tiny", X, on_stage=lambda *stage: seen.append(stage))
    assert [name for name, _, _ in seen] == ["input", *STAGES]
    assert seen[-1][1].program is program and all(seconds >= 0 for _, _, seconds in seen)


def test_a_prefix_of_the_stages_can_be_run():
    given = Draft(given=image_net(), chip=Chip.load("tiny"), options=Options(), calibration=X)
    seen = []
    draft = run(given, until="estimate", on_stage=lambda name, *_: seen.append(name))
    assert seen == ["input", "normalize", "legalize", "estimate"] and draft.passed == ("estimate",)
    assert set(draft.legal.layers) == {"conv", "fc", "out"} and draft.table == []
    with pytest.raises(AssertionError, match="no stage has made program of this Draft, and its axons is read"):
        _ = draft.program.axons
    assert isinstance(pickle.loads(pickle.dumps(deepcopy(draft))).program, Missing)
    with pytest.raises(OptionError, match="unknown until 'estimat'; choose one of: estimate, "):
        run(given, until="estimat")


def test_a_draft_goes_on_from_any_stage():
    given = Draft(given=image_net(), chip=Chip.load("tiny"), options=Options(), calibration=X)
    half = run(given, until="quantize")
    seen = []
    whole = run(half, after="quantize", on_stage=lambda name, *_: seen.append(name)).program
    assert seen[:2] == ["prove", "calibrate"] and seen[-1] == "emit"
    assert whole.hash == compile(image_net(), "tiny", X).hash
    with pytest.raises(OptionError, match="unknown after 'schedul'; choose one of: schedule, "):
        run(half, after="schedul")


def test_the_order_of_the_stages_is_written_once():
    """`flow.py` is the loop; progress lines count the stages of every network, in order."""
    text = Path(flow.__file__).read_text()
    assert len(text.splitlines()) <= 100 and text.count("\nfrom ") + text.count("\nimport ") <= 15
    names = [stage.name for stage in ALL_STAGES]
    assert set(names) == {"input", "approximate", "limit", "stagger", *progress.STAGES, *progress.REPEATS}
    assert [name for name in names if name in progress.STAGES] == [*progress.STAGES] == STAGES
    files = [Path(flow.__file__), *Path(flow.__file__).parent.glob("passes/stages/*.py")]
    assert [file.name for file in files if "except FitError" in file.read_text()] == ["run.py"]


def test_only_the_stages_call_several_functions_of_stages():
    """Code that needs part of the compiler runs a prefix of the pipeline."""
    root = Path(flow.__file__).parent
    called = {}
    for file in root.rglob("*.py"):
        text = file.read_text()
        for line in ast.walk(ast.parse(text)) if any(module in text for module in STAGE_FUNCTIONS) else ():
            if isinstance(line, ast.ImportFrom) and line.module in STAGE_FUNCTIONS:
                names = {name.name for name in line.names} & STAGE_FUNCTIONS[line.module]
                called.setdefault(file.relative_to(root).as_posix(), set()).update(names)
    stages = {file for file in called if file.startswith("passes/stages/")}
    assert set().union(*(called[file] for file in stages)) == set().union(*STAGE_FUNCTIONS.values())
    assert {file for file, names in called.items() if len(names) > 1} - stages == {"warm_up.py"}  # random program


def test_compile_counts_the_activity_of_the_fixed_point_network():
    program = compile(image_net(), "tiny", X)
    run = simulate(program, X)
    for name in ("in", *program.network.layers):
        np.testing.assert_array_equal(program.activity.counts[name], run.activity.counts[name])
    assert program.activity.n_samples == 4
    assert sum(int(u.sum()) for u in program.activity.updates.values()) == run.counters["neuron_updates"].sum()


def test_compile_without_calibration_says_what_it_assumes():
    program = compile(image_net(), "tiny")
    assert program.warnings == [NO_CALIBRATION]
    assert NO_CALIBRATION == (
        "no calibration samples: scales follow the largest weights, and the mapping assumes that every neuron spikes "
        "in 10 % of its steps; give calibration samples for closer spikes and a faster mapping"
    )
    assert (program.activity.counts["fc"] == 10).all()


def test_compile_writes_a_manifest_that_survives_saving(tmp_path):
    program = compile(image_net(), "tiny", X, Options(seed=3))
    program.save(tmp_path / "net.nwc")
    again = Program.load(tmp_path / "net.nwc")
    assert again.manifest == program.manifest and again.hash == program.hash
    assert again.manifest["tool"] == "nwcompile" and again.manifest["seed"] == 3
    assert again.manifest["options"]["partitioner"] == "floorline"
    assert set(again.output_scale) == {"conv", "fc", "out"}


def test_compile_keeps_a_mapping_made_elsewhere():
    mapping = Mapping.from_arrays(
        {"conv": np.zeros(32, int), "fc": np.ones(6, int), "out": np.full(3, 2)}, [[1, 1, 0], [0, 0, 0], [1, 0, 0]]
    )
    seen = []
    program = compile(image_net(), "tiny", X, mapping=mapping, on_stage=lambda name, *_: seen.append(name))
    assert "place" not in seen and "partition" not in seen
    for name, cores in mapping.core_of.items():
        assert np.array_equal(program.mapping.core_of[name], cores)
    assert np.array_equal(program.mapping.site_of, mapping.site_of)


def test_compile_refuses_a_mapping_made_elsewhere_that_does_not_fit_and_changes_nothing():
    """The refusal proposes no relay layers, which have no cores in the mapping, and no chips that do not fit it."""
    chip = Chip.load("tiny")
    n = chip.core.max_neurons + 1
    spec = NeuronSpec(threshold=64, fixed=chip.fixed_point)
    edges = [Dense("in", "a", np.ones((n, 4), np.int8)), Dense("a", "b", np.ones((2, n), np.int8), delay=99)]
    network = Network.from_arrays({"a": spec, "b": spec}, edges, {"in": 4})
    mapping = Mapping.from_arrays({"a": np.zeros(n, int), "b": [1, 1]}, [[0, 0, 0], [1, 0, 0]])
    with pytest.raises(FitError) as error:
        compile(network, chip, mapping=mapping)
    told = [(violation.what, violation.used, violation.limit) for violation in error.value.violations]
    assert told[:2] == [("delay steps", 97, 15), ("neurons", n, n - 1)]
    assert error.value.change is None and error.value.elsewhere is None


def test_compile_takes_a_chip_or_a_name_and_a_dict_of_inputs():
    by_name = compile(image_net(), "tiny", {"in": X})
    assert by_name.hash == compile(image_net(), Chip.load("tiny"), X).hash


def test_compile_takes_a_fixed_point_network_as_it_is():
    spec = NeuronSpec(threshold=128, fixed=FixedPoint(), decay_v=1024)
    weight = np.array([[3, -2], [1, 4]])
    network = Network.from_arrays({"a": spec}, [Dense("in", "a", weight)], {"in": 2})
    x = spikes(3, 8, 2, seed=2, rate=0.4, dtype=np.float32)
    program = compile(network, "tiny", x)
    np.testing.assert_array_equal(simulate(program, x).output, simulate(network, x).output)
    np.testing.assert_array_equal(program.network.connections[0].weight, weight)


@pytest.mark.long
def test_compile_gives_the_same_program_whatever_the_hash_seed_and_the_thread_count():
    code = "from tests.test_flow import *; print(compile(image_net(), 'tiny', X, Options(seed=5)).hash)"
    hashes = set()
    for seed, threads in (("0", "1"), ("7", "2")):
        env = {**os.environ, "PYTHONHASHSEED": seed, "OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads}
        run = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
        hashes.add(run.stdout.strip())
    assert len(hashes) == 1


def test_compile_refuses_what_is_no_network():
    with pytest.raises(ModelError) as error:
        compile([1, 2], "tiny")
    assert str(error.value) == ("compile takes a Network, not list; make one with nw.from_torch(module, example_input)")


@pytest.mark.parametrize(
    ("calibration", "text"),
    [
        (X[:, 0], "input 'in' must be [B, T, 1, 4, 4], got shape [4, 1, 4, 4] (is the time axis missing?)"),
        (X * np.nan, "input 'in' has NaN or infinite values; clean the data first"),
        ({"image": X}, "there is no input 'image'; inputs: in"),
    ],
)
def test_compile_refuses_unusable_calibration_before_any_work(calibration, text):
    seen = []
    with pytest.raises(ModelError) as error:
        compile(image_net(), "tiny", calibration, on_stage=lambda name, *_: seen.append(name))
    assert str(error.value) == text and not seen


def test_compile_refuses_graded_input_on_a_chip_of_binary_spikes():
    with pytest.raises(ModelError) as error:
        compile(image_net(), "loihi1", X * 3)
    assert str(error.value) == (
        "input 'in' has values 0..3, but loihi1 takes spikes 0..1; compile with on_multi_spike='graded' or 'repeat', "
        "encode graded values into spikes, or choose a chip whose neuron.spikes has 'multi'"
    )


def test_compile_tells_of_a_reset_that_the_chip_lacks_before_any_work():
    network = Network.from_arrays({"a": SPEC.replace(reset="subtract")}, [Dense("in", "a", np.eye(2))], {"in": 2})
    seen = []
    with pytest.raises(FitError) as error:
        compile(network, "loihi1", on_stage=lambda name, *_: seen.append(name))
    assert [v.what for v in error.value.violations] == ["reset"] and seen == ["input", "normalize", "legalize"]


def test_compile_tells_what_no_mapping_can_do_before_any_is_searched_for(monkeypatch):
    chip = Chip.load("tiny").replace({"core.max_neurons": 8, "core.max_out_axons": 1, "neuron.delay_max_steps": 3})
    spec = NeuronSpec(threshold=64, fixed=chip.fixed_point)
    ones = np.ones((16, 16), np.int8)  # b feeds only itself: with relay neurons after it, it would be no output
    edges = [Dense("in", "a", np.ones((16, 4), np.int8)), Dense("a", "b", ones), Dense("b", "b", ones, delay=9)]
    network = Network.from_arrays({"a": spec, "b": spec}, edges, {"in": 4})
    monkeypatch.setattr("nwcompile.passes.stages.run.partition", lambda *_: pytest.fail("searched"))
    with pytest.raises(FitError) as error:
        compile(network, chip)
    assert [violation.what for violation in error.value.violations] == ["delay steps"]


@pytest.mark.parametrize(
    "given, kind, text",
    [
        ({"chip": None}, ChipError, "a chip is a shipped name or the path of a .toml file, not NoneType"),
        ({"options": {"seed": 1}}, OptionError, "options must be an nw.Options(...), not dict"),
        ({"mapping": {}}, ModelError, "mapping must be an nw.Mapping, not dict; see nw.Mapping.from_arrays"),
        ({"options": Options(partitioner=lambda *_: None)}, ModelError,
         "partitioner: gave NoneType, not the core of every neuron as {layer: int[n]}"),
        ({"options": Options(placer=lambda *_: None)}, ModelError, "placer: gave NoneType, not a Mapping"),
    ],
)  # fmt: skip
def test_compile_refuses_arguments_of_another_kind(given, kind, text):
    with pytest.raises(kind) as error:
        compile(**{"network": image_net(), "chip": "tiny", **given})
    assert str(error.value) == text


def test_mapping_from_arrays_takes_a_table_of_layers():
    with pytest.raises(ModelError) as error:
        Mapping.from_arrays([0, 1], [[0, 0, 0]])
    assert str(error.value) == "mapping: core_of must be {layer: core of each neuron}, not list"
