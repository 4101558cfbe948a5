"""Checkpoints: killed work resumes with the same bytes; one process per folder; damaged files are computed again."""

import errno
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

import nwcompile as nw
from nwcompile.checkpoint import Checkpoint, load_or_compute, use_checkpoint
from nwcompile.cli import main
from nwcompile.errors import ArtifactError, NwWarning, OptionError
from tests.long import EXAMPLES
from tests.made.nets import dense_net

ROOT = Path(__file__).resolve().parents[1]
N_KILLS = 10


def small():
    """A network that anneals quickly, and samples for it."""
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
        with use_checkpoint(tmp_path):
            assert load_or_compute("part", [np.zeros(2), "x", 1], make)["a"].tolist() == [0, 1, 2]
    assert len(calls) == 1
    with use_checkpoint(tmp_path):
        load_or_compute("part", [np.zeros(2, np.float32), "x", 1], make)
        load_or_compute("part", [np.zeros((2, 1)), "x", 1], make)
        load_or_compute("part", [np.zeros(2), "x", 2], make)
        load_or_compute("other", [np.zeros(2), "x", 1], make)
    assert len(calls) == 5
    load_or_compute("part", [np.zeros(2), "x", 1], make)  # no checkpoint
    assert len(calls) == 6


def test_another_version_is_computed_again_and_said(tmp_path, monkeypatch):
    with use_checkpoint(tmp_path):
        load_or_compute("part", [], lambda: {"a": np.zeros(1)})
    monkeypatch.setattr("nwcompile.checkpoint.code_version", lambda: "9.9")
    said = r"was made by another version of nwcompile; what it holds is computed again"
    with pytest.warns(NwWarning, match=said), use_checkpoint(tmp_path):
        assert load_or_compute("part", [], lambda: {"a": np.ones(1)})["a"][0] == 1


def test_what_is_damaged_is_computed_again_and_said(tmp_path):
    with use_checkpoint(tmp_path):
        load_or_compute("part", [], lambda: {"a": np.zeros(1)})
        (file,) = tmp_path.glob("part-*.nwk")
        file.write_bytes(file.read_bytes()[:-70])
        with pytest.warns(NwWarning, match=r"part-\w+\.nwk is damaged; computing that part again"):
            assert load_or_compute("part", [], lambda: {"a": np.ones(1)})["a"][0] == 1
        assert load_or_compute("part", [], lambda: {"a": np.zeros(1)})["a"][0] == 1


@pytest.mark.parametrize("content", [b"", b"garbage", bytes(200)])
def test_garbage_is_computed_again_and_said(tmp_path, content):
    with use_checkpoint(tmp_path):
        load_or_compute("part", [], lambda: {"a": np.zeros(1)})
        (file,) = tmp_path.glob("part-*.nwk")
        file.write_bytes(content)
        with pytest.warns(NwWarning, match=r"part-\w+\.nwk is damaged"):
            assert load_or_compute("part", [], lambda: {"a": np.ones(1)})["a"][0] == 1


def test_a_file_that_was_copied_over_another_is_not_taken(tmp_path):
    with use_checkpoint(tmp_path):
        load_or_compute("part", [1], lambda: {"a": np.zeros(1)})
        (first,) = tmp_path.glob("part-*.nwk")
        load_or_compute("part", [2], lambda: {"a": np.ones(1)})
        (second,) = set(tmp_path.glob("part-*.nwk")) - {first}
        shutil.copy(first, second)
        with pytest.warns(NwWarning, match=r"part-\w+\.nwk is damaged"):
            assert load_or_compute("part", [2], lambda: {"a": np.ones(1)})["a"][0] == 1


def test_a_folder_in_the_place_of_a_part_is_one_sentence(tmp_path):
    with use_checkpoint(tmp_path):
        load_or_compute("part", [], lambda: {"a": np.zeros(1)})
        (file,) = tmp_path.glob("part-*.nwk")
        file.unlink()
        file.mkdir()
        with pytest.warns(NwWarning), pytest.raises(ArtifactError) as e:
            load_or_compute("part", [], lambda: {"a": np.ones(1)})
    assert str(e.value) == f"{file} cannot be written: there is a folder of that name; choose a folder you may write to"


@pytest.mark.parametrize("name", ["lock", "version.json"])
def test_a_folder_in_the_place_of_its_own_files_is_one_sentence(tmp_path, name):
    (tmp_path / name).mkdir()
    with pytest.raises(ArtifactError, match="^[^\n]* (Is a directory|there is a folder of that name); choose a folder"):
        nw.compile(dense_net(4, 3), "tiny", checkpoint=tmp_path)


def test_garbage_in_the_place_of_the_version_is_another_version(tmp_path):
    (tmp_path / "version.json").write_bytes(bytes(9))
    with pytest.warns(NwWarning, match="another version of nwcompile"), Checkpoint(tmp_path):
        pass
    with Checkpoint(tmp_path):
        pass


def test_a_file_system_without_locks_is_one_sentence(tmp_path, monkeypatch):
    def refuses(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.flock", refuses)
    with pytest.raises(ArtifactError) as e:
        nw.compile(dense_net(4, 3), "tiny", checkpoint=tmp_path)
    assert str(e.value) == f"checkpoint {tmp_path} cannot be used: No locks available; choose another folder"


def test_other_samples_take_nothing_of_the_first(tmp_path):
    network, x = small()
    program = nw.compile(network, "loihi1", x, options(partitioner="sequential"))
    nw.simulate(program, x, "cycle", checkpoint=tmp_path)
    run = nw.simulate(program, x[::-1], "cycle", checkpoint=tmp_path)
    wanted = nw.simulate(program, x[::-1], "cycle")
    assert all(np.array_equal(run.spikes[name], wanted.spikes[name]) for name in wanted.spikes)


def test_what_a_killed_process_left_half_written_goes(tmp_path):
    left = [tmp_path / ".part-12.nwk.abcd", tmp_path / ".version.json.abcd"]
    for path in left:
        path.write_bytes(b"half")
    with Checkpoint(tmp_path):
        assert not any(path.exists() for path in left)


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
    with pytest.raises(OptionError, match="with time_budget_s the result depends on the clock"):
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


def test_compile_stores_no_run_of_a_search(tmp_path):
    """The search of scales simulates hundreds of times, and each takes less time than its file."""
    demo = nw.demo()
    nw.compile(demo.network, "loihi2", demo.x[:50], checkpoint=tmp_path)
    kinds = {path.name.partition("-")[0] for path in tmp_path.glob("*.nwk")}
    assert "clusters" in kinds and "sequence" not in kinds


def test_another_seed_takes_nothing_of_the_first(tmp_path):
    network, x = small()
    nw.compile(network, "loihi1", x, options(), checkpoint=tmp_path)
    wanted = nw.compile(network, "loihi1", x, options(seed=5)).data
    assert nw.compile(network, "loihi1", x, options(seed=5), checkpoint=tmp_path).data == wanted


def test_a_full_disk_is_one_sentence_and_leaves_the_earlier_file(tmp_path):
    """RLIMIT_FSIZE simulates a full disk: a write beyond it fails in the same way."""
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


NET = """
import numpy as np
from tests.made.nets import dense_net


def net():
    return dense_net(100, {n}, {n}, 10)
"""
# Full size takes a minute of annealing, a minute of samples and half a minute of one long sample in each backend; in CI
# seconds, mostly to start processes.
IS_FULL = EXAMPLES >= 200
N_NEURONS, N_SAMPLES = (1500, 200) if IS_FULL else (120, 400)  # some ten parts on a quick machine
N_STEPS = {"cycle": 10_000, "totals": 10_000, "sequence": 20_000, "reference": 500}  # steps of one long sample
N_STEPS = {what: 20 * n if IS_FULL else n for what, n in N_STEPS.items()}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a network, its samples, and its program."""
    folder = tmp_path_factory.mktemp("kill")
    (folder / "nets.py").write_text(NET.format(n=N_NEURONS))
    x = (np.random.default_rng(2).random((N_SAMPLES, 50, 100)) < 0.2).astype(np.int8)
    np.save(folder / "few.npy", x[:4])
    np.save(folder / "x.npy", x)
    options = nw.Options(partitioner="sequential")
    nw.compile(dense_net(100, N_NEURONS, N_NEURONS, 10), "loihi1", x[:4], options).save(folder / "net.nwc")
    nw.compile(dense_net(100, 120, 120, 10), "loihi1", x[:4], options).save(folder / "small.nwc")
    for what, n in N_STEPS.items():
        np.save(folder / f"{what}.npy", (np.random.default_rng(n).random((1, n, 100)) < 0.2).astype(np.int8))
    return folder


SAID = "said"  # File with the stderr of the last process.
COMMANDS = {
    "compile": (["compile", "nets:net", "--chip", "loihi1", "--calibration", "few.npy"], "net.nwc"),
    "simulate": (["simulate", "net.nwc", "--input", "x.npy"], "out.npz"),
    "cycle": (["simulate", "small.nwc", "--input", "cycle.npy"], "out.npz"),
    "totals": (["simulate", "small.nwc", "--input", "totals.npy", "--record", "totals"], "out.npz"),
    "sequence": (["simulate", "small.nwc", "--input", "sequence.npy", "--backend", "sequence"], "out.npz"),
    "reference": (["simulate", "small.nwc", "--input", "reference.npy", "--backend", "reference"], "out.npz"),
}
SHORT_PARTS = f"""
import nwcompile.checkpoint
nwcompile.checkpoint.PART_SECONDS = {1.0 if IS_FULL else 0.05}
"""


def started(place, what: str, out, kept=None, code: str = "") -> subprocess.Popen:
    """Start a command in a process of one thread, after `code`; its results go to `out`."""
    arguments, file = COMMANDS[what]
    target = out if what == "compile" else out / file
    more = [] if kept is None else ["--checkpoint", str(kept)]
    run = "import sys\nfrom nwcompile.cli import main\nsys.exit(main(sys.argv[1:]))"
    code = "\n".join([SHORT_PARTS, textwrap.dedent(code), run])
    command = [sys.executable, "-c", code, *arguments, "-o", str(target), *more]
    env = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{place}", "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    with (place / SAID).open("w") as said:
        return subprocess.Popen(
            command, cwd=place, env=env, stdout=subprocess.DEVNULL, stderr=said, start_new_session=True
        )


@pytest.fixture(scope="module")
def wanted(place) -> dict[str, bytes]:
    """The result of each command without a checkpoint."""
    for what in COMMANDS:
        ended(started(place, what, place / what))
    return {what: (place / what / file).read_bytes() for what, (_, file) in COMMANDS.items()}


def cpu_seconds(process: subprocess.Popen) -> float:
    """CPU seconds of a running process."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def ended(process: subprocess.Popen, last: float = np.inf, until=None) -> float | None:
    """CPU seconds of a process when it ends or `until` exists; None if it was killed after `last` seconds."""
    used = 0.0
    while process.poll() is None:
        used = cpu_seconds(process) if process.poll() is None else used
        if used >= last:
            process.kill()
            process.wait()
            return None
        if until is not None and until.exists():
            return used
        time.sleep(0.005)
    assert process.returncode == 0
    return used


def test_kill_9_in_the_middle_of_one_long_sample(tmp_path, monkeypatch):
    """The process is killed after a random number of parts of its steps."""
    nw.compile(dense_net(100, 40, 10), "loihi1", options=options(partitioner="sequential")).save(tmp_path / "small.nwc")
    np.save(tmp_path / "cycle.npy", (np.random.default_rng(1).random((1, 2000, 100)) < 0.2).astype(np.int8))
    n_parts = np.random.default_rng(5).integers(2, 6)
    code = f"""
        import os, signal
        from nwcompile.checkpoint import Checkpoint
        store, n = Checkpoint.store, 0
        def stored(*a):
            global n
            store(*a)
            n += 1
            if n == {n_parts}:
                os.kill(os.getpid(), signal.SIGKILL)
        Checkpoint.store = stored
        nwcompile.checkpoint.PART_SECONDS = 0.0  # a part for every step
    """
    process = started(tmp_path, "cycle", tmp_path / "out", tmp_path / "kept", code)
    assert process.wait() == -signal.SIGKILL
    files = {path.name for path in (tmp_path / "kept").glob("cycle-*.nwk")}
    assert len(files) == n_parts
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("nwcompile.checkpoint.PART_SECONDS", np.inf)
    for file, more in (("alone.npz", []), ("gone_on.npz", ["--checkpoint", "kept"])):
        assert main([*COMMANDS["cycle"][0], "-o", file, *more]) == 0
    assert Path("gone_on.npz").read_bytes() == Path("alone.npz").read_bytes()
    assert len(list(Path("kept").glob("cycle-*.nwk"))) == n_parts + 1  # one file for all remaining steps


@pytest.mark.long
@pytest.mark.parametrize("what", COMMANDS)
def test_kill_9_at_ten_drawn_moments(place, wanted, tmp_path, what):
    """Moments are random points of the whole work in CPU time; each process resumes where the last one was killed."""
    whole, killed, kept, first = (tmp_path / name for name in ("whole", "killed", "kept", "first"))
    process = started(place, what, whole, first)
    begins = ended(process, until=first / "version.json")
    seconds = ended(process)
    assert (whole / COMMANDS[what][1]).read_bytes() == wanted[what]
    done = killed / COMMANDS[what][1]
    moments = np.sort(np.random.default_rng(9).uniform(begins, seconds, N_KILLS))
    n_killed = n_whole = 0
    while n_killed < N_KILLS:
        gap = moments[n_killed] - (moments[n_killed - 1] if n_killed else begins)
        if ended(started(place, what, killed, kept), last=begins + gap) is None:
            n_killed += 1
            assert not done.exists()
        else:  # it ended before its moment: start again
            n_whole += 1
            assert done.read_bytes() == wanted[what]
            done.unlink()
            shutil.rmtree(kept)
    ended(started(place, what, killed, kept))
    assert done.read_bytes() == wanted[what]
    print(
        f"{what}: {seconds:.1f} s of CPU alone, {begins:.1f} of them before it begins; {n_whole} of 10 were done first"
    )
    assert n_whole < N_KILLS


@pytest.mark.long
@pytest.mark.parametrize("what", ["compile", "simulate"])
@pytest.mark.parametrize(
    "at, action",
    [
        ("os.fsync", "os.truncate(*a, os.fstat(*a).st_size // 2)"),
        ("os.replace", ""),
        ("os.replace", "real(*a)"),
    ],
    ids=["half-written", "not-yet-moved", "just-moved"],
)
def test_kill_9_in_the_middle_of_a_write(place, wanted, tmp_path, what, at, action):
    """The third file is being written: half of its bytes, complete under a temporary name, or complete."""
    killed, kept = tmp_path / "killed", tmp_path / "kept"
    code = f"""
        import os, signal
        n, real = 0, {at}
        def write(*a):
            global n
            n += 1
            if n < 3:
                return real(*a)
            {action or "pass"}
            os.kill(os.getpid(), signal.SIGKILL)
        {at} = write
    """
    process = started(place, what, killed, kept, code)
    assert process.wait() == -signal.SIGKILL
    n_left = len(list(kept.glob(".*.nwk.*")))
    assert n_left == (0 if action == "real(*a)" else 1)
    ended(started(place, what, killed, kept))
    assert (killed / COMMANDS[what][1]).read_bytes() == wanted[what]
    assert not list(kept.glob(".*"))


@pytest.mark.long
def test_ctrl_c_keeps_what_is_done(place, wanted, tmp_path):
    out, kept = tmp_path / "out", tmp_path / "kept"
    process = started(place, "simulate", out, kept)
    while len(list(kept.glob("cycle-*"))) < 3:
        assert process.poll() is None, (place / SAID).read_text()
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    assert process.wait() == 130
    said = (place / SAID).read_text()
    assert said == "nwcompile: interrupted; nothing was half-written\n" and not (out / "out.npz").exists()
    files = {path.name for path in kept.glob("cycle-*")}
    ended(started(place, "simulate", out, kept))
    assert files <= {path.name for path in kept.iterdir()}
    assert (out / "out.npz").read_bytes() == wanted["simulate"]
