"""Checkpoints: work that was killed goes on to the same bytes; one process a folder; what is damaged is made again."""

import shutil
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest

import nwcompile as nw
from nwcompile.checkpoint import Checkpoint, keeping, kept
from nwcompile.errors import ArtifactError, NwWarning, OptionError
from tests.nets import dense_net

N_KILLS = 10
PARTS = "clusters-*.nwk"


def small():
    """A network that is annealed in a moment, and samples for it."""
    x = (np.random.default_rng(1).random((9, 6, 12)) < 0.4).astype(np.int8)
    return dense_net(12, 40, 30, 5), x


def options(**more) -> nw.Options:
    return nw.Options(n_cores=3, **more)


def test_what_is_kept_is_not_computed_again(tmp_path):
    calls = []

    def make():
        calls.append(1)
        return {"a": np.arange(3)}

    for _ in range(2):
        with keeping(tmp_path):
            assert kept("part", [np.zeros(2), "x", 1], make)["a"].tolist() == [0, 1, 2]
    assert len(calls) == 1
    with keeping(tmp_path):
        kept("part", [np.zeros(2, np.float32), "x", 1], make)
        kept("part", [np.zeros((2, 1)), "x", 1], make)
        kept("part", [np.zeros(2), "x", 2], make)
        kept("other", [np.zeros(2), "x", 1], make)
    assert len(calls) == 5
    kept("part", [np.zeros(2), "x", 1], make)  # no checkpoint
    assert len(calls) == 6


def test_another_version_is_computed_again_and_said(tmp_path, monkeypatch):
    with keeping(tmp_path):
        kept("part", [], lambda: {"a": np.zeros(1)})
    monkeypatch.setattr("nwcompile.checkpoint.code_version", lambda: "9.9")
    said = r"was made by another version of nwcompile; what it holds is computed again"
    with pytest.warns(NwWarning, match=said), keeping(tmp_path):
        assert kept("part", [], lambda: {"a": np.ones(1)})["a"][0] == 1


def test_what_is_damaged_is_computed_again_and_said(tmp_path):
    with keeping(tmp_path):
        kept("part", [], lambda: {"a": np.zeros(1)})
        (file,) = tmp_path.glob("part-*.nwk")
        file.write_bytes(file.read_bytes()[:-70])
        with pytest.warns(NwWarning, match=r"part-\w+\.nwk is damaged; computing that part again"):
            assert kept("part", [], lambda: {"a": np.ones(1)})["a"][0] == 1
        assert kept("part", [], lambda: {"a": np.zeros(1)})["a"][0] == 1


def test_what_a_killed_process_left_half_written_goes(tmp_path):
    left = tmp_path / ".part-12.nwk.abcd"
    left.write_bytes(b"half")
    with Checkpoint(tmp_path):
        assert not left.exists()


def test_two_processes_with_one_folder_are_refused(tmp_path):
    with Checkpoint(tmp_path), pytest.raises(ArtifactError) as e:
        nw.compile(dense_net(4, 3), "tiny", checkpoint=tmp_path)
    assert str(e.value) == (
        f"checkpoint {tmp_path} is being used by another process; wait until that is done, or choose another folder"
    )
    with Checkpoint(tmp_path):
        pass


def test_a_checkpoint_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ArtifactError, match=r"^checkpoint \S+/file cannot be used: File exists; choose a folder"):
        nw.compile(dense_net(4, 3), "tiny", checkpoint=tmp_path / "file")


def test_a_clock_and_a_checkpoint_do_not_go_together(tmp_path):
    with pytest.raises(OptionError, match="with time_budget_s the clock decides what is found"):
        nw.compile(dense_net(4, 3), "tiny", options=nw.Options(time_budget_s=1), checkpoint=tmp_path)


@pytest.mark.parametrize("optimize", ["time", pytest.param("traffic", marks=pytest.mark.long)])
def test_compile_goes_on_to_the_same_bytes(tmp_path, optimize, monkeypatch):
    network, x = small()
    wanted = nw.compile(network, "loihi1", x, options(optimize=optimize)).data
    assert nw.compile(network, "loihi1", x, options(optimize=optimize), checkpoint=tmp_path).data == wanted
    files = sorted(tmp_path.glob("*.nwk"), key=lambda file: file.stat().st_mtime_ns)
    assert len(files) > 2
    for file in files[1::2]:
        file.unlink()
    assert nw.compile(network, "loihi1", x, options(optimize=optimize), checkpoint=tmp_path).data == wanted
    for module in ("moves.anneal_clusters", "placement.anneal_cores", "traffic_anneal.minimize_hops"):
        monkeypatch.setattr(f"nwcompile.kernels.mapping.{module}", None)
    assert nw.compile(network, "loihi1", x, options(optimize=optimize), checkpoint=tmp_path).data == wanted


def test_another_seed_takes_nothing_of_the_first(tmp_path):
    network, x = small()
    nw.compile(network, "loihi1", x, options(), checkpoint=tmp_path)
    wanted = nw.compile(network, "loihi1", x, options(seed=5)).data
    assert nw.compile(network, "loihi1", x, options(seed=5), checkpoint=tmp_path).data == wanted


@pytest.mark.parametrize("record", ["spikes", "all"])
def test_simulate_goes_on_to_the_same_run(tmp_path, record, monkeypatch):
    monkeypatch.setattr("nwcompile.sim.cycle.run.MOST_KEPT", 3)
    network, x = small()
    program = nw.compile(network, "loihi1", x, options())
    wanted = nw.simulate(program, x, "cycle", record=record)
    nw.simulate(program, x, "cycle", record=record, checkpoint=tmp_path)
    files = sorted(tmp_path.glob("samples-*.nwk"))
    assert len(files) >= 2
    files[0].unlink()
    run = nw.simulate(program, x, "cycle", record=record, checkpoint=tmp_path)
    for name, spikes in wanted.spikes.items():
        assert run.spikes[name].dtype == spikes.dtype and np.array_equal(run.spikes[name], spikes)
        for state, values in wanted.states.get(name, {}).items():
            assert np.array_equal(run.states[name][state], values)
    assert all(np.array_equal(run.counters[name], values) for name, values in wanted.counters.items())
    assert np.array_equal(run.step_cycles, wanted.step_cycles) and run.seconds == wanted.seconds
    assert np.array_equal(run.link_flits, wanted.link_flits) and run.energy_pj == wanted.energy_pj
    monkeypatch.setattr("nwcompile.sim.cycle.run.run_samples", None)
    assert nw.simulate(program, x, "cycle", record=record, checkpoint=tmp_path).seconds == wanted.seconds


def test_what_a_checkpoint_does_not_keep_is_refused(tmp_path):
    with pytest.raises(OptionError) as e:
        nw.simulate(dense_net(4, 3), steps=2, checkpoint=tmp_path)
    assert str(e.value) == (
        "checkpoint keeps the samples of a run of backend 'cycle' that are done, with record='spikes' or 'all' and "
        "without a profile, not of 'reference' with record='spikes', profile=False; leave checkpoint out"
    )


def test_a_full_disk_is_one_sentence_and_leaves_the_earlier_file(tmp_path):
    """RLIMIT_FSIZE stands for a full disk: a write of more bytes fails as one there does."""
    code = """
        import resource, signal, sys
        from nwcompile.ir.artifact import write_files
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        try:
            write_files({sys.argv[1]: b"y" * 10, sys.argv[2]: b"x" * 2000})
        except Exception as e:
            print(type(e).__name__, e)
    """
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_text("earlier")
    command = [sys.executable, "-c", textwrap.dedent(code), str(first), str(second)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said == (
        f"ArtifactError {second} cannot be written: File too large; free space there, or choose another folder\n"
    )
    assert first.read_text() == "earlier" and [p.name for p in tmp_path.iterdir()] == ["first"]


LONG = """
    import sys
    import numpy as np
    import nwcompile as nw
    from nwcompile.cli import main
    from tests.nets import dense_net
    what, folder, *more = sys.argv[1:]
    rng = np.random.default_rng(1)
    if what == "compile":
        x = (rng.random((4, 32, 200)) < 0.2).astype(np.int8)
        program = nw.compile(dense_net(200, 1500, 1500, 10), "loihi1", x, checkpoint=more[0] if more else None)
        program.save(f"{folder}/out")
    else:
        program, samples = f"{folder}/../net.nwc", f"{folder}/../x.npy"
        flags = ["--checkpoint", more[0]] if more else []
        sys.exit(main(["simulate", program, "--input", samples, "-o", f"{folder}/out.npz", *flags]))
"""


@pytest.mark.long
@pytest.mark.parametrize("what", ["compile", "simulate"])
def test_kill_9_at_ten_drawn_moments(tmp_path, what):
    """Killed at ten drawn moments of the time that it takes alone; whenever it comes to its end, it begins anew."""
    if what == "simulate":
        x = (np.random.default_rng(2).random((600, 100, 200)) < 0.2).astype(np.int8)
        np.save(tmp_path / "x.npy", x)
        nw.compile(dense_net(200, 400, 400, 10), "loihi1", x[:4], nw.Options(partitioner="sequential")).save(
            tmp_path / "net.nwc"
        )
    whole, killed, folder = (tmp_path / name for name in ("whole", "killed", "kept"))
    whole.mkdir()
    killed.mkdir()
    command = [sys.executable, "-c", textwrap.dedent(LONG), what]
    start = time.monotonic()
    subprocess.run([*command, str(whole)], check=True, stdout=subprocess.DEVNULL)
    seconds = time.monotonic() - start
    (wanted,) = whole.iterdir()
    done = killed / wanted.name
    rng, n_killed, n_whole = np.random.default_rng(9), 0, 0
    while n_killed < N_KILLS or n_whole == 0:
        last = n_killed == N_KILLS
        process = subprocess.Popen([*command, str(killed), str(folder)], stdout=subprocess.DEVNULL)
        try:
            assert process.wait(None if last else seconds * rng.uniform(0.1, 0.9)) == 0
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            n_killed += 1
            assert not done.exists() or done.read_bytes() == wanted.read_bytes()
            continue
        assert done.read_bytes() == wanted.read_bytes()
        n_whole += 1
        done.unlink()
        if n_killed < N_KILLS:
            shutil.rmtree(folder)
            n_whole = 0
    print(f"{what}: {seconds:.0f} s alone, killed {n_killed} times")
    assert seconds > 20
