"""Programs and mappings: saved and loaded unchanged, and refused when they do not fit together."""

import copy
import hashlib
import io
import json
import pickle
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import nwcompile as nw
from nwcompile.errors import ArtifactError, ModelError
from nwcompile.ir import artifact
from nwcompile.ir.activity import Activity
from nwcompile.ir.connection import MatMul
from nwcompile.ir.host import Encoding, Host
from nwcompile.ir.program import KINDS
from nwcompile.passes.emit import emit
from nwcompile.passes.prepare.input_layer import READOUT
from nwcompile.passes.prepare.schedule import schedule
from tests.made.nets import FIXED, conv_net, dense_net, feed_forward, sparse_edge
from tests.made.neuron_programs import every_operation
from tests.made.saved import first_difference, verify_saved


def float_net() -> nw.Network:
    weight = np.random.default_rng(1).normal(size=(4, 5)).astype(np.float32)
    edges = [nw.Dense("in", "a", weight), nw.Dense("a", "b", weight.T)]
    return nw.Network.from_arrays({"a": nw.NeuronSpec(beta=0.9), "b": nw.NeuronSpec(beta=0.5)}, edges, {"in": 5})


def program(network=None) -> nw.Program:
    network = network or dense_net(5, 4, 3, recurrent=True)
    cores = {name: np.arange(network.node(name).n_neurons) % 2 for name in network.layers}
    mapping = nw.Mapping.from_arrays(cores, [[0, 0, 0], [1, 0, 0]])
    chip = nw.Chip.load("tiny").replace({"core.max_neurons": 1000})
    return emit(network, feed_forward(network), mapping, chip, Activity.uniform(network), {"warnings": ["one"]})


@pytest.mark.parametrize("network", [dense_net(5, 4, 3, recurrent=True), conv_net(stride=2, padding=1)])
def test_program_comes_back_as_it_was_saved(network, tmp_path):
    made = program(network)
    made.save(tmp_path / "net.nwc")
    loaded = nw.Program.load(tmp_path / "net.nwc")
    assert loaded.data == made.data and loaded.hash == made.hash and loaded.warnings == ["one"]
    assert loaded.network.hash == made.network.hash and loaded.chip == made.chip
    x = np.random.default_rng(0).integers(0, 2, (2, 6, *network.node("in").shape))
    assert np.array_equal(nw.simulate(loaded, x).output, nw.simulate(made, x).output)


IMAGE, ROWS = (2, 4, 4), (2, 16)  # shapes of the source
HOST_MAPS = [
    (IMAGE, nw.Pool2d("x", "a", 2, kind="avg")),
    (IMAGE, nw.Pool2d("x", "a", (2, 1), stride=1, padding=(1, 0), kind="sum")),
    (IMAGE, nw.MaxPool2d("x", "a", 2, stride=(1, 2))),
    (IMAGE, nw.Conv2d("x", "a", np.ones((2, 1, 3, 2), np.float32), stride=(1, 2), padding=1, groups=2)),
    (ROWS, nw.Conv1d("x", "a", np.ones((4, 2, 3), np.float32), bias=np.arange(4.0), dilation=2)),
    (ROWS, nw.Dense("x", "a", np.ones((3, 32), np.float32), delay=2)),
    (ROWS, MatMul("x", "a", (2, 2, 4), (2, 4, 2))),
    (ROWS, nw.Scale("x", "a", scale=[0.5, 2.0], shift=-1.0)),
    (ROWS, nw.Sparse("x", "a", [0, 31], [1, 0], [0.5, -0.5], bias=0.25)),
]


@pytest.mark.parametrize("shape, edge", HOST_MAPS)
def test_program_comes_back_with_the_maps_of_its_host(shape, edge, tmp_path):
    host_net = nw.Network.from_arrays({"a": (READOUT, edge.output_shape(shape) or (2,))}, [edge], {"x": shape})
    made = program(dense_net(host_net.node("a").n_neurons, 4, 3))
    gives = {"in": Encoding("a", scale=2.0, high=9)}
    made = replace(made, network=replace(made.network, host=Host("graded", host_net, gives)))
    verify_saved(made, tmp_path / "net.nwc")


def test_nouns_are_pickled_and_copied_whole():
    steps = np.repeat(np.random.default_rng(0).normal(size=(2, 1, 5)), 4, 1)
    hosted = nw.compile(float_net(), "loihi1", steps)
    of_programs = nw.Network.from_arrays({"a": (every_operation(), 10)}, [sparse_edge("in", "a", 5, 10, 20)], {"in": 5})
    spikes = np.ones((2, 4, 5), int)
    programmed = nw.compile(of_programs, "loihi2", spikes, nw.Options(optimize="cores"))
    nouns = [nw.Chip.load("loihi1"), nw.Options(seed=3, approximate="reset")]
    nouns += [of_programs, hosted, hosted.loaded_program]
    nouns += [programmed, nw.simulate(hosted, steps, "cycle"), nw.simulate(programmed, spikes, record="all")]
    for noun in nouns:
        _ = repr(noun)
        for again in (pickle.loads(pickle.dumps(noun)), copy.deepcopy(noun), copy.copy(noun)):
            assert first_difference(noun, again, type(noun).__name__) is None
    again = pickle.loads(pickle.dumps(hosted))
    assert again.data == hosted.data and nw.crosscheck(again, steps).agree
    assert np.array_equal(nw.simulate(again, steps, "cycle").output, nw.simulate(hosted, steps, "cycle").output)


def test_every_kind_of_connection_is_saved_with_a_host():
    assert {type(edge).__name__ for _, edge in HOST_MAPS} == set(KINDS)


def whole_file(manifest: dict, arrays: dict) -> bytes:
    """The oracle: every entry at once, all in memory."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        entries = {"manifest.json": json.dumps(manifest, sort_keys=True, indent=1).encode()}
        for name in sorted(arrays):
            array = io.BytesIO()
            np.lib.format.write_array(array, np.ascontiguousarray(arrays[name]), allow_pickle=False)
            entries[f"{name}.npy"] = array.getvalue()
        for name, body in entries.items():
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), body, zipfile.ZIP_DEFLATED)
        archive.comment = b"0" * artifact.DIGEST_BYTES
    body = buffer.getvalue()[: -artifact.DIGEST_BYTES]
    return body + hashlib.sha256(body).hexdigest().encode()


def test_file_written_in_pieces_has_the_bytes_of_one_written_at_once():
    rng = np.random.default_rng(0)
    long = np.repeat(rng.integers(0, 9, 1 << 16, np.int16), 150)  # beyond the 16 MiB that NumPy writes at once
    arrays = {"long": long, "drawn": rng.integers(0, 99, (3, 7000)), "none": np.zeros(0, np.int8)}
    data = artifact.encode({"a": [1]}, arrays)
    assert data == whole_file({"a": [1]}, arrays)
    manifest, again = artifact.decode(data, "net")
    assert manifest == {"a": [1]} and all(np.array_equal(again[name], arrays[name]) for name in arrays)


def test_program_is_saved_without_a_copy_of_the_file_in_memory(monkeypatch, tmp_path):
    made, path = program(), tmp_path / "net.nwc"
    monkeypatch.setattr(artifact, "encode", lambda *_: pytest.fail("the file was made in memory"))
    made.save(path)
    monkeypatch.undo()
    assert path.read_bytes() == made.data and made.hash == made.data[-artifact.DIGEST_BYTES :].decode()


def test_program_of_numpy_numbers_keeps_its_hash(tmp_path):
    spec = FIXED.replace(threshold=(64, 128), bias=np.int64(1), strict=np.bool_(True), v_min=np.float32(-9))
    edge = nw.Dense("in", "a", [[1, 2], [3, 4]], delay=np.int64(1), exponent=np.int8(0))
    made = program(nw.Network.from_arrays({"a": spec}, [edge], {"in": 2}))
    made.save(tmp_path / "net.nwc")
    assert nw.Program.load(tmp_path / "net.nwc").hash == made.hash


def test_program_of_another_schema_is_refused(tmp_path):
    manifest, arrays = artifact.decode(program().data, "net")
    path = tmp_path / "net.nwc"
    path.write_bytes(artifact.encode({**manifest, "schema": 99}, arrays))
    with pytest.raises(ArtifactError) as caught:
        nw.Program.load(path)
    assert str(caught.value) == (
        f"{path}: schema 99 is not 2, 3 with a host, 4 with neuron programs, 5 with a readout, "
        "6 with staggered layers, "
        "nor 1 of the release before, which this version reads; compile again"
    )


@pytest.mark.parametrize("options", [5, None, [1], "all"])
def test_program_of_the_schema_before_with_options_that_are_no_table_is_refused(tmp_path, options):
    manifest, arrays = artifact.decode(program().data, "net")
    path = tmp_path / "net.nwc"
    path.write_bytes(artifact.encode({**manifest, "schema": 1, "options": options}, arrays))
    with pytest.raises(ArtifactError, match="content is not consistent .*; compile the network again"):
        nw.Program.load(path)


def test_program_of_the_schema_before_is_read_with_its_options_renamed(tmp_path):
    # compiled by the release before: two float layers for tiny, Options(optimise="traffic", seed=3)
    old = Path(__file__).parent / "data" / "schema_1.nwc"
    loaded = nw.Program.load(old)
    assert artifact.decode(old.read_bytes(), "old")[0]["options"]["optimise"] == "traffic"
    assert loaded.manifest["options"]["optimize"] == "traffic" and "optimise" not in loaded.manifest["options"]
    loaded.save(tmp_path / "new.nwc")
    manifest, arrays = artifact.decode((tmp_path / "new.nwc").read_bytes(), "new")
    assert manifest["schema"] == 2
    before = artifact.decode(old.read_bytes(), "old")[1]
    assert sorted(arrays) == sorted(before) and all(np.array_equal(arrays[name], before[name]) for name in arrays)
    x = np.array([[1, 1, 0], [0, 0, 1], [0, 0, 0], [0, 0, 1], [1, 0, 0], [1, 0, 0]])[None]
    spikes = nw.simulate(nw.Program.load(tmp_path / "new.nwc"), x, "reference").spikes["a"]
    assert np.argwhere(spikes[0]).tolist() == [[0, 2], [1, 0], [3, 0], [5, 2]]  # as the release before computed


@pytest.mark.parametrize(
    "change, text",
    [
        ({"axons_core": np.full(32, 7, np.int32)}, "the axon table does not fit the network; compile it again"),
        ({"axons_core": 0 * program().axons.core}, "the axon table does not fit the network; compile it again"),
        ({"axons_core": program().axons.core.astype(np.int8)},
         "the axon table does not fit the network; compile it again"),
        ({"axons_words": np.full(3, 1, np.int32)}, "the axon table does not fit the network; compile it again"),
        ({"core_of0": np.array([0, 1, 2, 0], np.int32)}, "mapping: layer 'fc1' names core 2; site_of has 2 cores"),
        ({"site_of": np.zeros((2, 3), np.int32)},
         "mapping: two cores share one site; give every core a site of its own"),
        ({"activity0": np.zeros((10, 4), np.int32)},
         "activity: counts of 'in' are missing, negative or not of shape [T, 5]"),
        ({"activity1": np.full((10, 4), 101, np.int32)},
         "activity: counts of 'fc1' reach 101 in a step of 100 samples"),
        ({"connection1_weight": np.ones((3, 4), np.int64)},
         "connection 'fc1' -> 'fc2': a program holds weights of 8, 16 or 32 bits without exponent and bias; "
         "compile it again"),
    ],
)  # fmt: skip
def test_program_whose_parts_do_not_fit_is_refused(change, text, tmp_path):
    manifest, arrays = artifact.decode(program().data, "net")
    path = tmp_path / "net.nwc"
    path.write_bytes(artifact.encode(manifest, {**arrays, **change}))
    with pytest.raises(ArtifactError) as caught:
        nw.Program.load(path)
    assert str(caught.value) == f"{path}: content is not consistent ({text}); compile the network again"


SCHEDULE = "the schedule is not one of this network; schedule it again"
WEIGHTS = "a program holds weights of 8, 16 or 32 bits without exponent and bias; compile it again"
OF_HOST = "host: input 'in' is not made of a layer of the host network; compile it again"


@pytest.mark.parametrize(
    "path, value, text",
    [
        (("connections", 0, "delay"), 1, SCHEDULE),
        (("connections", 0, "delay"), 1 << 30, SCHEDULE),
        (("schedule", "delay", 1), 7, SCHEDULE),
        (("schedule", "offset", "fc2"), 5, SCHEDULE),
        (("schedule", "offset", "in"), 1, SCHEDULE),
        (("schedule", "period"), 4, SCHEDULE),
        (("schedule", "execution"), "now", SCHEDULE),
        (("connections", 1, "bias"), 1, f"connection 'fc1' -> 'fc2': {WEIGHTS}"),
        (("connections", 1, "exponent"), 2, f"connection 'fc1' -> 'fc2': {WEIGHTS}"),
        (("nodes", 1, 2), None, "a program holds layers of whole numbers and no junctions; compile the network again"),
        (("activity", "n_samples"), 9, "activity: counts of 'in' reach 10 in a step of 9 samples"),
        (("activity", "n_samples"), True, "activity: n_samples=True must be a whole number >= 1"),
        (("host", "gives", 0, 1, "register"), "fc3", OF_HOST),
        (("host", "gives", 0, 1, "register"), "fc1", OF_HOST),  # of 4 neurons, not 5
        (("host", "gives", 0, 1, "neurons"), 3, OF_HOST),
        (("host", "gives", 0, 1, "shift_bits"), -1, OF_HOST),
        (("host", "gives", 0, 1, "high"), 2.5, OF_HOST),
        (("host", "nodes", 0, 2, "fires"), True, OF_HOST),
        (("host", "gives", 0, 0), "other", OF_HOST.replace("'in'", "'other'")),
    ],
)
def test_program_of_what_the_compiler_never_makes_is_refused(path, value, text, tmp_path):
    made = program()
    host_net = nw.Network.from_arrays({"a": (READOUT, 5)}, [nw.Scale("x", "a")], {"x": 5})
    host = Host("graded", host_net, {"in": Encoding("a", scale=2.0, high=9)})
    manifest, arrays = artifact.decode(replace(made, network=replace(made.network, host=host)).data, "net")
    *outer, last = path
    table = manifest
    for key in outer:
        table = table[key]
    table[last] = value
    file = tmp_path / "net.nwc"
    file.write_bytes(artifact.encode(manifest, arrays))
    with pytest.raises(ArtifactError) as caught:
        nw.Program.load(file)
    assert str(caught.value) == f"{file}: content is not consistent ({text}); compile the network again"


def test_program_whose_counts_of_several_spikes_are_others_than_its_messages_is_refused():
    made = program()
    spikes = {name: np.full((2, 3, made.network.node(name).n_neurons), 2) for name in made.network.offsets}
    for repeats in (False, True):
        activity = Activity.from_spikes(made.network, spikes, repeats)
        replace(made, activity=activity).verify()
        several = activity.multi["fc1"]
        for factor in (0, 9):  # fewer spikes than messages, more steps with a spike than messages
            multi = activity.multi | {"fc1": replace(several, by_source=several.by_source * factor)}
            with pytest.raises(ModelError, match="activity: the counts of several spikes of 'fc1' are not of this net"):
                replace(made, activity=replace(activity, multi=multi)).verify()
        updates = {name: np.full((3, made.network.node(name).n_neurons), 3) for name in made.network.layers}
        with pytest.raises(ModelError, match="activity: updates of 'fc1' reach 3 in a step of 2 samples"):
            replace(made, activity=replace(activity, updates=updates)).verify()


def test_program_that_is_no_archive_is_refused(tmp_path):
    path = tmp_path / "net.nwc"
    path.write_text("hello")
    with pytest.raises(ArtifactError) as caught:
        nw.Program.load(path)
    assert str(caught.value) == (f"{path}: not a .nwc file; make one with `nwcompile compile MODEL --chip NAME -o DIR`")


def test_program_schedule_must_be_that_of_its_network():
    made = program()
    with pytest.raises(ModelError, match="the schedule is not one of this network; schedule it again"):
        replace(made, schedule=replace(made.schedule, delay=(0, 1, 1, 1))).verify()
    late = replace(made.schedule, offset={name: steps + 1 for name, steps in made.schedule.offset.items()})
    for other in (late, replace(schedule(made.network, "phased"), execution="pipelined")):
        with pytest.raises(ModelError, match="the schedule is not one of this network; schedule it again"):
            replace(made, schedule=other).verify()
    with pytest.raises(ModelError, match="the schedule's period 2 does not hold its phases; schedule it again"):
        replace(made, schedule=replace(made.schedule, execution="phased", period=2, delay=(1, 1, 2, 2))).verify()


@pytest.mark.parametrize(
    "core_of, site_of, text",
    [
        ([0.5], [[0, 0, 0]], "mapping: core_of['a'] must be whole numbers, got float64 [0.5]..."),
        (["x"], [[0, 0, 0]], "mapping: core_of['a'] must be whole numbers, got <U1 ['x']..."),
        ([0], [[0, 0]], "mapping: site_of of shape (1, 2) must be [core, 3], (x, y, port) of every core"),
        ([0], [[0, 0, 1 << 40]], "mapping: site_of must be whole numbers, got int64 [0, 0, 1099511627776]..."),
    ],
)
def test_mapping_from_arrays_refuses_what_is_no_core_or_site(core_of, site_of, text):
    with pytest.raises(ModelError) as caught:
        nw.Mapping.from_arrays({"a": core_of}, site_of)
    assert str(caught.value) == text


def test_mapping_negative_core_is_named():
    mapping = nw.Mapping.from_arrays({"a": [0, -1]}, [[0, 0, 0]])
    network = nw.Network.from_arrays({"a": (FIXED, 2)}, [])
    with pytest.raises(ModelError, match="mapping: layer 'a' names core -1; site_of has 1 cores"):
        mapping.verify(network, nw.Chip.load("tiny"))


def test_mapping_refuses_notes_that_are_no_texts():
    network = nw.Network.from_arrays({"a": (FIXED, 2)}, [])
    mapping = replace(nw.Mapping.from_arrays({"a": [0, 0]}, [[0, 0, 0]]), note={0: ["full"]})
    with pytest.raises(ModelError, match="mapping: notes must be texts by core"):
        mapping.verify(network, nw.Chip.load("tiny"))


def test_mapping_says_where_and_who():
    mapping = nw.Mapping.from_arrays({"a": [0, 1, 1]}, [[0, 0, 0], [1, 0, 2]])
    assert mapping.where("a", 2) == (1, (1, 0, 2)) and mapping.who(1)["a"].tolist() == [1, 2]
    with pytest.raises(ModelError, match="there is no neuron 3 in a layer 'a'; layers: a"):
        mapping.where("a", 3)


def test_programs_of_numbers_in_either_byte_order_are_equal():
    """Also those of layers on the host, whose weights are kept as they were given."""
    rng, x = np.random.default_rng(0), np.full((1, 4, 3), 0.3, np.float32)
    weights = rng.normal(0.5, 0.5, (2, 3)), rng.normal(0.5, 0.5, (2, 2))

    def program(dtype: str) -> nw.Program:
        first, second, threshold = (a.astype(dtype) for a in (*weights, np.array([0.5, 1.0])))
        edges = [nw.Dense("in", "a", first, threshold), nw.Dense("a", "b", second)]
        layers = {"a": nw.NeuronSpec(threshold=threshold), "b": nw.NeuronSpec()}
        network = nw.Network.from_arrays(layers, edges, {"in": (3,)})
        assert network.connections[0].weight.dtype.isnative
        return nw.compile(network, "loihi2", x, nw.Options(input_layer="host"))

    small, big = program("<f4"), program(">f4")
    assert small.data == big.data == pickle.loads(pickle.dumps(big)).data
