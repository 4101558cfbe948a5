"""Streams: whatever a sample is cut into, in every backend, its chunks are the run of the whole, bit for bit."""

import copy
import os
import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import nwcompile as nw
from nwcompile.errors import ModelError
from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Dense
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import NeuronSpec
from nwcompile.ir.program import Program
from nwcompile.sim import BACKENDS, simulate
from nwcompile.sim.session import Session
from tests import long
from tests.made.acceptance import agreement
from tests.made.float_networks import networks
from tests.made.gated_neurons import gated_neurons
from tests.made.nets import dense_net
from tests.made.nir_files import imported
from tests.made.ranc_cases import case, recorded_input, recorded_program
from tests.made.random_neurons import whole_neurons
from tests.made.random_programs import OF_PROGRAMS, buses, inputs, programs
from tests.made.recordings import raster, recorded_frames
from tests.made.streams import SHORT, assert_is_run, everything, spikes_in, stream


def assert_streams(program: Program, x: np.ndarray, backend: str, *cuts):
    run = simulate(program, x[None], backend, record="all")
    for sizes in cuts:
        assert_is_run(stream(program, x, backend, sizes), run)


@pytest.mark.parametrize("execution", ["pipelined", "phased"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_session_of_any_chunks_is_the_run_of_the_whole(backend, execution):
    program = everything(execution)
    x = spikes_in(program, 70)
    run = simulate(program, x[None], backend)
    assert all(run.spikes[name].any() and not run.spikes[name].all() for name in program.network.layers)
    assert_streams(program, x, backend, *([[7]] if execution == "phased" else [[1], [7], [64], [70]]))


@SHORT
@given(data=st.data())
def test_session_of_a_drawn_program_is_its_run(data):
    assert_drawn(data, programs())


@pytest.mark.long
@pytest.mark.parametrize("of", ["neurons", "buses", "programs", "gates"])
@settings(OF_PROGRAMS, max_examples=long.EXAMPLES)
@given(data=st.data())
def test_session_of_any_drawn_program_is_its_run(of, data):
    drawn = {
        "neurons": programs(),
        "buses": programs(buses),
        "programs": programs(neurons=whole_neurons),
        "gates": programs(neurons=gated_neurons),
    }
    assert_drawn(data, drawn[of])


def assert_drawn(data, strategy) -> None:
    program = data.draw(strategy)
    x = np.concatenate([*data.draw(inputs(program)), *data.draw(inputs(program))])
    sizes = data.draw(st.lists(st.integers(1, 7), min_size=1, max_size=3))
    for backend in BACKENDS:
        try:
            run = simulate(program, x[None], backend, record="all")
        except nw.ModelError:  # more spikes at once than messages tell
            with pytest.raises(nw.ModelError):
                stream(program, x, backend, sizes)
            continue
        for cut in ([1], sizes, [len(x)]):
            assert_is_run(stream(program, x, backend, cut), run)


def carried(session: Session) -> dict[str, np.ndarray]:
    """Every array that a session takes from one chunk to the next, by a name that says whose it is."""
    of = {f"aligned {name}": line.waiting for name, line in session._spikes.items()}
    return of | session._state.arrays | getattr(session._state, "waiting", {})


N_CARRIED = {"reference": 27, "cycle": 9, "sequence": 29}
# Neurons without a refractory time, and programs, have nothing to know of their last spike.
NOT_NEEDED = {"reference": {"layers/gated/since_spike"}, "cycle": set(), "sequence": {"3/since", "4/since"}}


@pytest.mark.parametrize("backend", BACKENDS)
def test_session_that_forgets_anything_between_chunks_is_not_the_run(backend):
    """Each carried array, cleared after every chunk, changes what the stream gives: none is carried in vain."""
    program = everything()
    x = spikes_in(program, 9)
    run = simulate(program, x[None], backend, record="all")
    n_cleared = 0
    short = Session(program, backend)
    short.feed(x[:1])
    for name in carried(short):
        session, chunks, is_cleared = Session(program, backend, "all"), [], False
        for t in range(len(x)):
            chunks.append(session.feed(x[t : t + 1]))
            array = carried(session)[name]
            is_cleared |= bool(array.any())
            array[...] = 0
        chunks.append(session.close())
        n_cleared += is_cleared
        if is_cleared and name not in NOT_NEEDED[backend]:
            with pytest.raises(AssertionError):
                assert_is_run(chunks, run)
                print(name, "is carried in vain")  # where nothing is raised
    assert n_cleared == N_CARRIED[backend]


def small() -> tuple[Program, np.ndarray]:
    program = nw.compile(dense_net(4, 3, 2), Chip.load("tiny"))
    return program, spikes_in(program, 9)


@pytest.mark.parametrize("duplicate", [pickle.dumps, copy.copy, copy.deepcopy])
def test_session_that_is_copied_says_where_to_begin_one(duplicate):
    session = Session(dense_net(3, 2))
    with pytest.raises(ModelError) as caught:
        duplicate(session)
    assert str(caught.value) == (
        "a Session cannot be copied or pickled, as its backend is at work in it; begin one where it is used: "
        "nw.Session(program)"
    )


def test_session_takes_events_as_lists_of_lines():
    program, x = small()
    whole, session = simulate(program, x[None]), Session(program)
    events = [np.flatnonzero(step) for step in x]
    chunks = [session.feed_events(events[:4]), session.feed_events(events[4:]), session.close()]
    assert np.array_equal(np.concatenate([c.output for c in chunks], 1), whole.output)
    with pytest.raises(nw.ModelError, match=r"^step 1 of the events names line 4; the lines are 0..3$"):
        Session(program).feed_events([[], [3, 4]])
    for wrong in ([[0.5]], [3, 2], [None], [[[1], [2, 3]]]):
        with pytest.raises(
            nw.ModelError, match="^step 0 of the events must be a list of whole numbers, the lines that"
        ):
            Session(program).feed_events(wrong)
    with pytest.raises(nw.ModelError, match="^events are 3, must be a list of steps, each a list of lines that spike"):
        Session(program).feed_events(3)


def test_session_goes_on_after_an_input_that_it_refused():
    program, x = small()
    session = Session(program, "cycle")
    first = session.feed(x[:5])
    for wrong, text in (
        (x[:2, :3], r"^input 'in' of a stream must be \[n, 4\], n steps of one sample, got shape \[2, 3\]$"),
        (x[0, 0], r"^input 'in' of a stream must be \[n, 4\], n steps of one sample, got shape \[\]$"),
        ([[1], [2, 3]], r"^input 'in' of a stream must be \[n, 4\], n steps of one sample, lists differ in length$"),
        (x + 0.5, "^input 'in' has the value 0.5, but the integer program"),
        ({"on": x[:1]}, "^there is no input 'on'; inputs: in$"),
        (None, r"^no input: give x, \[n, \*shape\], or steps=n for n silent steps$"),
        (x[:0], r"^input 'in' of a stream must be \[n, 4\], n steps of one sample, got shape \[0, 4\]$"),
    ):
        with pytest.raises(nw.ModelError, match=text):
            session.feed(wrong)
    assert repr(session) == "Session (cycle, open): 5 steps fed, 3 given back"
    assert_is_run([first, session.feed(x[5:]), session.close()], simulate(program, x[None], "cycle"))


def test_session_that_is_closed_takes_nothing_more():
    program, x = small()
    session = Session(program)
    with pytest.raises(
        nw.ModelError, match="^the session was fed nothing, so there is no sample to end; feed it a step"
    ):
        session.close()
    session.feed(steps=3)
    session.close()
    for use in (session.close, lambda: session.feed(x)):
        with pytest.raises(nw.ModelError, match=r"^the session is closed; begin another one: nw.Session\(program\)$"):
            use()


def test_session_says_what_it_cannot_stream():
    program, _ = small()
    with pytest.raises(nw.OptionError, match="^a Session takes a Program or a Network, not dict$"):
        Session({})
    text = "^a network that is not compiled can be streamed on backend 'reference' only, not 'cycle'; compile it"
    with pytest.raises(nw.BackendError, match=text):
        Session(program.network, "cycle")
    with pytest.raises(nw.BackendError, match="^unknown backend 'cicle'; choose one of: cycle, reference, sequence$"):
        Session(program, "cicle")
    with pytest.raises(nw.OptionError, match="^unknown record 'totals'; choose one of: all, spikes$"):
        Session(program, record="totals")
    for wrong in (0, "1"):
        with pytest.raises(nw.OptionError, match=f"^model_dt={wrong!r} must be a time in seconds above 0$"):
            Session(program, model_dt=wrong)


def test_session_refuses_a_program_whose_input_the_host_computes():
    weight = np.random.default_rng(0).normal(size=(3, 4))
    network = Network.from_arrays({"a": NeuronSpec(threshold=1.0)}, [Dense("in", "a", weight)], {"in": (4,)})
    program = nw.compile(network, "loihi1", np.random.default_rng(1).random((2, 5, 4)))
    with pytest.raises(nw.ModelError) as refused:
        Session(program)
    assert str(refused.value) == (
        f"the host computes the input of this program from whole samples ({program.host.summary}), so it cannot be a "
        "stream; encode the input into spikes (nwcompile.encode), and compile for those"
    )


@pytest.mark.parametrize("layout", ["TB", "B"])
def test_session_is_fed_steps_of_one_sample_whatever_the_layout(layout):
    program, x = small()
    laid_out = replace(program, network=replace(program.network, layout=layout))
    assert_is_run(stream(laid_out, x, "reference", [4], "spikes"), simulate(program, x[None]))


@pytest.mark.parametrize("sizes", [[7], *(pytest.param([n], marks=pytest.mark.long) for n in (1, 64))])
def test_stream_of_the_recorded_digit_through_the_published_network_gives_its_spikes(reference, sizes):
    """The NIR paper's CNN as it is published, in float: the spikes of the whole, and the counts that are stored."""
    folder = reference / "nir" / "02_cnn"
    network, frames = imported(folder / "cnn_sinabs.nir", dt=1.0, dialect="sinabs"), recorded_frames(folder)
    chunks = stream(network, frames[0], "reference", sizes, "spikes")
    assert_is_run(chunks, simulate(network, frames))
    counts = sum(chunk.output.sum((0, 1), np.int64) for chunk in chunks)
    assert (int(counts.argmax()), int(counts[4]), int(counts.sum())) == (4, 1483, 1752)


@settings(OF_PROGRAMS, max_examples=8, phases=[Phase.explicit, Phase.generate])
@given(network=networks(), sizes=st.lists(st.integers(1, 5), min_size=1, max_size=3), seed=st.integers(0, 99))
def test_stream_of_a_network_that_is_not_compiled_is_its_run(network, sizes, seed):
    """Float networks of any connections, delays and loops, with junctions and several inputs."""
    rng = np.random.default_rng(seed)
    x = {name: (rng.random((11, *node.shape)) < 0.5).astype(np.float32) for name, node in network.inputs.items()}
    session, chunks, first = Session(network, record="all"), [], 0
    while first < 11:
        n = min(sizes[len(chunks) % len(sizes)], 11 - first)
        chunks.append(session.feed({name: array[first : first + n] for name, array in x.items()}, steps=n))
        assert (chunks[-1].first_step, chunks[-1].n_steps, chunks[-1].n_hardware_steps) == (first, n, 0)
        first += n
    run = simulate(network, {name: array[None] for name, array in x.items()}, steps=11, record="all")
    assert_is_run([*chunks, session.close()], run)


@pytest.mark.long
@pytest.mark.parametrize("backend", ["cycle", "sequence"])
def test_stream_of_a_million_steps_holds_no_more_memory(backend):
    """5 MiB would be five bytes a step."""
    program, _ = small()
    session, rng = Session(program, backend), np.random.default_rng(0)
    while session.n_steps < 1_000_000:
        session.feed((rng.random((1000, 4)) < 0.4).astype(np.int8))
        if session.n_steps == 20_000:
            settled = pages_held()
    assert (pages_held() - settled) * os.sysconf("SC_PAGESIZE") < 5 << 20


def pages_held() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1])


@pytest.mark.long
@pytest.mark.parametrize("backend", ["cycle", "sequence"])
def test_stream_of_the_oxford_net_gives_the_spikes_of_its_ground_truth(reference, backend):
    folder = reference / "models" / "lava_oxford"
    x = raster(np.load(folder / "input.npy"), 2000, 200)
    expected = raster(np.load(folder / "ground_truth.npy"), 2000, 200)
    program, _ = agreement(nw.from_lava(folder / "network.net", neuron={"strict": False}), x[None])
    chunks = stream(program, x, backend, [7], "spikes")
    assert np.array_equal(np.concatenate([chunk.output for chunk in chunks], 1)[0], expected)


@pytest.mark.long
@pytest.mark.parametrize("sizes", [[1], [64]])
def test_stream_of_the_recorded_digit_is_the_run_and_answers_as_published(reference, sizes):
    """The published CNN in Loihi 2's integers, of several spikes per step: class 4, as in float, and the run's bits."""
    folder = reference / "nir" / "02_cnn"
    network = imported(folder / "cnn_sinabs.nir", dt=1.0, dialect="sinabs")
    frames = recorded_frames(folder)
    program = nw.compile(network, Chip.load("loihi2"), calibration=frames, options=nw.Options(partitioner="sequential"))
    x = frames[0].astype(np.int32)
    chunks = stream(program, x, "cycle", sizes)
    assert_is_run(chunks, simulate(program, x[None], "cycle", record="all"))
    counts = sum(chunk.output.sum((0, 1), np.int64) for chunk in chunks)
    assert (int(counts.argmax()), int(counts[4]), int(counts.sum())) == (4, 1446, 1738)


@pytest.mark.long
@pytest.mark.parametrize("name", ["five_8x8_a", "five_8x8_lost", "grid3x3_congested"])
def test_stream_on_a_chip_of_merges_is_the_run(name):
    """Two of them lose messages."""
    rtl = case(name)
    program, _ = recorded_program(rtl)
    assert_streams(program, recorded_input(rtl)["in"][0], "cycle", [1], [3])
