"""Runs with a checkpoint: killed in the middle of a sample, they go on to the same Run, in every backend."""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, is_dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nwcompile as nw
from nwcompile import checkpoint
from nwcompile.checkpoint import Checkpoint, Pace, Recorded, Steps
from nwcompile.errors import OptionError
from nwcompile.sim import BACKENDS, simulate
from nwcompile.sim.cycle.machine import CycleMachine
from nwcompile.sim.sequence import tables
from tests import long
from tests.made.float_networks import networks
from tests.made.gated_neurons import gated_neurons
from tests.made.nets import dense_net
from tests.made.programs import all_to_one
from tests.made.ranc_cases import case, recorded_input, recorded_program
from tests.made.random_neurons import whole_neurons
from tests.made.random_programs import OF_PROGRAMS, buses, chips_of_neighbors, inputs, programs
from tests.made.streams import SHORT, assert_same, everything, spikes_in

RECORDED = [(backend, record) for backend in BACKENDS for record in ("spikes", "all")] + [("cycle", "totals")]
# Of fewer samples than cores, cores share the steps.
CASES = [
    ("aligned", "pipelined", 1),
    ("aligned", "pipelined", 3),
    pytest.param("hardware", "pipelined", 3, marks=pytest.mark.long),
    pytest.param("aligned", "phased", 1, marks=pytest.mark.long),
]


@pytest.fixture(autouse=True)
def a_file_for_every_call(monkeypatch):
    monkeypatch.setattr(checkpoint, "PART_SECONDS", 0.0)


def values(noun):
    """All arrays and numbers of a noun, as dicts of arrays."""
    if is_dataclass(noun):
        return {f.name: values(getattr(noun, f.name)) for f in fields(noun)}
    if isinstance(noun, dict):
        return {name: values(value) for name, value in noun.items()}
    return None if noun is None or callable(noun) else np.asarray(noun)


def samples_for(program, n_samples: int, n_steps: int) -> np.ndarray:
    one = spikes_in(program, n_steps)
    return np.stack([np.roll(one, 3 * b, 0) for b in range(n_samples)])


def killed(monkeypatch, n_files: int, *run, **how):
    """A run that ends when it has kept so many files."""
    n, store = 0, Checkpoint.store

    def stored(*args):
        nonlocal n
        if n == n_files:
            raise KeyboardInterrupt
        n += 1
        store(*args)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Checkpoint, "store", stored)
        simulate(*run, **how)


@pytest.mark.parametrize("window, execution, n_samples", CASES)
@pytest.mark.parametrize("backend, record", RECORDED)
def test_a_run_killed_in_the_middle_of_samples_is_the_run(
    tmp_path, monkeypatch, backend, record, window, execution, n_samples
):
    program = everything(execution)
    x, how = samples_for(program, n_samples, 25), {"record": record, "window": window}
    wanted = values(simulate(program, x, backend, **how))
    moments = np.random.default_rng(3).integers(1, 8, 3)
    for n_files in moments:
        killed(monkeypatch, n_files, program, x, backend, checkpoint=tmp_path, **how)
    assert len(list(tmp_path.glob("*.nwk"))) == moments.sum()
    assert_same(values(simulate(program, x, backend, checkpoint=tmp_path, **how)), wanted, "run")
    monkeypatch.setattr(Pace, "go", None)  # nothing is computed again
    assert_same(values(simulate(program, x, backend, checkpoint=tmp_path, **how)), wanted, "run")


N_ARRAYS = {"reference": 24, "cycle": 6, "sequence": 18}
# Neurons without a refractory time, and programs, have nothing to know of their last spike.
NOT_NEEDED = {
    "reference": {"state/layers/gated/since_spike"},
    "cycle": set(),
    "sequence": {"state/3/since", "state/4/since"},
}


@pytest.mark.parametrize("backend", BACKENDS)
def test_without_any_array_of_its_state_a_run_goes_on_to_another(tmp_path, monkeypatch, backend):
    """Each array that a file keeps of the state, cleared after every step, changes the run: none is kept in vain."""
    program = everything()
    x = samples_for(program, 1, 14)
    wanted = values(simulate(program, x, backend, record="all"))
    seen, needed, go, left_by = set(), set(), Pace.go, Steps.left_by

    def tells(self, steps):
        left = left_by(self, steps)
        seen.update(name for name, a in left.items() if name.startswith("state/") and a.any())
        return left

    with monkeypatch.context() as patched:
        patched.setattr(Steps, "left_by", tells)
        simulate(program, x, backend, record="all", checkpoint=tmp_path)
    for cleared in seen:

        def forgets(self, work, first, name=cleared):
            left = go(self, work, first)
            work.take(first, {**left, name: np.zeros_like(left[name])})
            return left

        with monkeypatch.context() as patched:
            patched.setattr(Pace, "go", forgets)
            patched.setattr(Checkpoint, "store", lambda *_: None)
            patched.setattr(Checkpoint, "stored", lambda *_: None)
            run = values(simulate(program, x, backend, record="all", checkpoint=tmp_path))
        try:
            assert_same(run, wanted, "run")
        except AssertionError:
            needed.add(cleared)
    assert len(seen) == N_ARRAYS[backend] and seen - needed == NOT_NEEDED[backend]


def assert_kept(folder, program, x, **how):
    """Runs of all backends with a checkpoint, and again from every second file: those without, or they say the same."""
    for backend in BACKENDS:
        try:
            wanted = simulate(program, x, backend, **how)
        except nw.ModelError:  # more spikes at once than messages tell
            with pytest.raises(nw.ModelError):
                simulate(program, x, backend, checkpoint=folder, **how)
            continue
        for _ in range(2):
            run = simulate(program, x, backend, checkpoint=folder, **how)
            assert_same(values(run), values(wanted), "run")
            for path in sorted(folder.glob("*.nwk"))[::2]:
                path.unlink()


@pytest.mark.parametrize("backend, record", RECORDED)
def test_a_file_between_others_that_is_gone_is_made_again(tmp_path, backend, record):
    program = everything()
    x = samples_for(program, 2, 12)
    wanted = values(simulate(program, x, backend, record=record))
    simulate(program, x, backend, record=record, checkpoint=tmp_path)
    for path in sorted(tmp_path.glob("*.nwk"), key=lambda path: path.stat().st_mtime_ns)[1::2]:
        path.unlink()
    assert_same(values(simulate(program, x, backend, record=record, checkpoint=tmp_path)), wanted, "run")


@SHORT
@given(data=st.data())
def test_a_drawn_program_with_a_checkpoint_is_its_run(tmp_path_factory, data):
    program = data.draw(programs())
    assert_kept(tmp_path_factory.mktemp("kept"), program, data.draw(inputs(program)), record="all")


@pytest.mark.long
@pytest.mark.parametrize("of", ["neurons", "buses", "programs", "gates", "neighbors"])
@settings(OF_PROGRAMS, max_examples=max(long.EXAMPLES // 5, 1))
@given(data=st.data())
def test_any_drawn_program_with_a_checkpoint_is_its_run(tmp_path_factory, of, data):
    drawn = {
        "neurons": programs(),
        "buses": programs(buses),
        "programs": programs(neurons=whole_neurons),
        "gates": programs(neurons=gated_neurons),
        "neighbors": programs(chips_of_neighbors, executions=["pipelined"]),
    }
    program = data.draw(drawn[of])
    how = {
        "record": data.draw(st.sampled_from(["spikes", "all"])),
        "window": data.draw(st.sampled_from(nw.sim.WINDOWS)),
    }
    assert_kept(tmp_path_factory.mktemp("kept"), program, data.draw(inputs(program)), **how)


def test_messages_that_are_lost_are_lost_again(tmp_path, monkeypatch):
    program, x = all_to_one(noc__on_full="drop"), np.ones((3, 6, 3), np.int8)
    wanted = simulate(program, x, "cycle")
    assert wanted.n_dropped
    killed(monkeypatch, 3, program, x, "cycle", checkpoint=tmp_path)
    assert_same(values(simulate(program, x, "cycle", checkpoint=tmp_path)), values(wanted), "run")


def test_routers_that_merge_go_on(tmp_path, monkeypatch):
    rtl = case("grid3x3_congested")
    program, x = recorded_program(rtl)[0], recorded_input(rtl)
    wanted = simulate(program, x, "cycle")
    killed(monkeypatch, 4, program, x, "cycle", checkpoint=tmp_path)
    assert_same(values(simulate(program, x, "cycle", checkpoint=tmp_path)), values(wanted), "run")


def test_cores_that_wait_for_neighbors_only_keep_whole_samples(tmp_path):
    program = everything()
    chip = program.chip.replace({"cost.sync": "neighbors", "cost.barrier_cycles": None})
    program, x = replace(program, chip=chip), samples_for(program, 3, 9)
    wanted = values(simulate(program, x, "cycle"))
    for _ in range(2):
        assert_same(values(simulate(program, x, "cycle", checkpoint=tmp_path)), wanted, "run")
        assert len(list(tmp_path.glob("*.nwk"))) == 1


@settings(OF_PROGRAMS, max_examples=6)
@given(network=networks(), seed=st.integers(0, 99))
def test_a_network_that_is_not_compiled_goes_on(tmp_path_factory, network, seed):
    folder, rng = tmp_path_factory.mktemp("kept"), np.random.default_rng(seed)
    x = {name: (rng.random((3, 11, *node.shape)) < 0.5).astype(np.float32) for name, node in network.inputs.items()}
    how = {"steps": 11, "record": "all"}
    wanted = values(simulate(network, x, **how))
    for _ in range(3):
        assert_same(values(simulate(network, x, checkpoint=folder, **how)), wanted, "run")
        for path in sorted(folder.glob("*.nwk"))[::2]:
            path.unlink()


@pytest.mark.parametrize("n_samples", [1, 2])
def test_a_checkpoint_of_one_thread_is_taken_by_many(tmp_path, monkeypatch, n_samples):
    program = everything()
    x = samples_for(program, n_samples, 12)
    wanted = values(simulate(program, x, "cycle"))
    for n_threads in (1, 4, 1):
        monkeypatch.setattr("nwcompile.sim.cycle.machine.n_threads", lambda n=n_threads: n)
        killed(monkeypatch, 3, program, x, "cycle", checkpoint=tmp_path)
    n_files = len(list(tmp_path.glob("*.nwk")))
    assert_same(values(simulate(program, x, "cycle", checkpoint=tmp_path)), wanted, "run")
    assert n_files == 9 and len(list(tmp_path.glob("*.nwk"))) == 12 + program.schedule.depth


def test_threads_share_the_states_of_the_neurons(monkeypatch):
    """Each of them may be the first to need the states; with states of its own its updates would be lost."""
    program = nw.compile(dense_net(4, 3), "tiny")
    machine = CycleMachine(program, False, "aligned", 8)
    build = tables.initial_state

    def build_slowly(*given):
        time.sleep(0.05)
        return build(*given)

    monkeypatch.setattr(tables, "initial_state", build_slowly)
    state = machine.start(4)
    with ThreadPoolExecutor(4) as pool:
        assert len({id(neurons) for neurons in pool.map(lambda _: state.neurons, range(4))}) == 1


def test_groups_of_samples_are_one_after_the_other(tmp_path, monkeypatch):
    monkeypatch.setattr("nwcompile.sim.runs.LEAST_SAMPLES", 2)
    program = everything()
    x = samples_for(program, 5, 6)
    for backend in ("cycle", "sequence"):
        wanted = values(simulate(program, x, backend, record="all"))
        killed(monkeypatch, 11, program, x, backend, record="all", checkpoint=tmp_path)
        assert_same(values(simulate(program, x, backend, record="all", checkpoint=tmp_path)), wanted, "run")
    wanted = values(simulate(program, x, "cycle", record="totals"))
    killed(monkeypatch, 11, program, x, "cycle", record="totals", checkpoint=tmp_path)
    assert_same(values(simulate(program, x, "cycle", record="totals", checkpoint=tmp_path)), wanted, "run")


def test_a_step_that_fails_says_the_same_with_a_checkpoint(tmp_path):
    chip = everything().chip.replace({"noc.max_step_cycles": 30})
    program = replace(everything(), chip=chip)
    x = samples_for(program, 1, 20)
    with pytest.raises(nw.BackendError) as wanted:
        simulate(program, x, "cycle")
    for record in ("spikes", "totals"):
        with pytest.raises(nw.BackendError) as e:
            simulate(program, x, "cycle", record=record, checkpoint=tmp_path)
        assert str(e.value) == str(wanted.value)


def test_pace_closes_a_part_in_time_and_does_more_steps_at_once_while_they_are_short(monkeypatch):
    monkeypatch.setattr(checkpoint, "PART_SECONDS", 10.0)
    now, done = 0.0, []

    def work(seconds: float) -> Steps:
        def go(steps: slice) -> None:
            nonlocal now
            done.append(steps.stop - steps.start)
            now += seconds * done[-1]

        return Steps(40, go, {"a": Recorded(np.zeros(40))}, dict)

    monkeypatch.setattr(checkpoint, "perf_counter", lambda: now)
    pace = Pace()
    assert int(pace.go(work(1.0), 0)["end"][0]) == 11 and done == [1, 2, 4, 4]
    done.clear()
    assert int(pace.go(work(3.0), 11)["end"][0]) == 15 and done == [4] and pace.n_steps == 2
    done.clear()
    assert int(pace.go(work(0.1), 15)["end"][0]) == 40 and done == [2, 4, 8, 11]


@pytest.mark.parametrize(
    "how, wanted",
    [
        ({"backend": "cycle", "profile": True}, "with a profile; leave one of them out"),
        ({"backend": "sequence", "device": "cuda"}, "with device='cuda'; leave one of them out"),
    ],
)
def test_what_a_checkpoint_does_not_keep_of_programs_is_refused(tmp_path, how, wanted):
    with pytest.raises(OptionError) as e:
        simulate(everything(), steps=3, checkpoint=tmp_path, **how)
    assert str(e.value) == f"checkpoint keeps nothing of a run {wanted}"


def test_a_checkpoint_of_a_float_network_is_of_the_reference(tmp_path):
    with pytest.raises(OptionError) as e:
        simulate(dense_net(4, 3), steps=2, backend="sequence", checkpoint=tmp_path)
    assert str(e.value) == (
        "checkpoint keeps nothing of a run with a float network on backend 'sequence'; use backend='reference', or "
        "leave checkpoint out"
    )
