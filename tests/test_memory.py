"""Memory: the limits of a process, and work that is refused before it begins because it needs more."""

import ctypes
import resource
import subprocess
import sys
import textwrap
from ctypes import c_size_t, c_void_p

import numpy as np
import pytest

import nwcompile as nw
from nwcompile import memory
from nwcompile.errors import NotEnoughMemoryError, NwError
from nwcompile.ir.shown import grouped
from nwcompile.memory import Room, bytes_text, measure_room, verify_room
from nwcompile.passes.quantize import memory as compiling
from nwcompile.sim import memory as running
from tests.made.nets import conv_net, dense_net

GIB = 1 << 30
MEMINFO = "MemTotal: 9000 kB\nMemFree: 10 kB\nMemAvailable: 2000 kB\nSwapFree: 100 kB\n"


@pytest.fixture
def system(tmp_path, monkeypatch):
    """Fake system files of Linux, written by name; `ulimit` limits nothing."""
    monkeypatch.setattr(memory, "PROC", tmp_path / "proc")
    monkeypatch.setattr(memory, "GROUPS", tmp_path / "groups")
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY,) * 2)

    def write(**files: str):
        for name, text in files.items():
            path = tmp_path / name.replace("__", "/").replace("_DOT_", ".")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    return write


def test_room_is_what_the_machine_has_available(system):
    assert measure_room() is None
    system(proc__meminfo=MEMINFO)
    assert measure_room() == Room(2100 * 1024, "what the machine has free, with its swap")


@pytest.mark.parametrize(
    "line, folder, limit, use, cached",
    [
        ("0::/job/step\n", "groups__job", "memory_DOT_max", "memory_DOT_current", "active_file"),
        ("4:memory:/job\n", "groups__memory__job", "memory_DOT_limit_in_bytes", "memory_DOT_usage_in_bytes",
         "total_inactive_file"),
        ("0::/of/the/host\n", "groups", "memory_DOT_max", "memory_DOT_current", "inactive_file"),
    ],
    ids=["version 2, a group above", "version 1", "a container's own"],
)  # fmt: skip
def test_room_is_what_a_control_group_leaves_with_files_in_its_cache(system, line, folder, limit, use, cached):
    system(proc__meminfo=MEMINFO, proc__self__cgroup=line)
    files = {limit: "900000\n", use: "500000\n", "memory_DOT_stat": f"anon 7\n{cached} 1000\n"}
    system(**{f"{folder}__{name}": text for name, text in files.items()})
    name = limit.replace("_DOT_", ".")
    assert measure_room() == Room(900_000 - 500_000 + 1000 + 100 * 1024, f"the limit of its control group, {name}")
    system(**{f"{folder}__{limit}": "max\n"})
    assert measure_room().limit == "what the machine has free, with its swap"


def test_room_is_what_ulimit_leaves(system, monkeypatch):
    system(proc__meminfo=MEMINFO, proc__self__status="Name: x\nVmSize: 900 kB\nVmData: 100 kB\n")
    limits = {resource.RLIMIT_AS: 1024 * 1000, resource.RLIMIT_DATA: 1024 * 150}
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (limits[kind], limits[kind]))
    assert measure_room() == Room(1024 * 50, "ulimit -d")
    limits[resource.RLIMIT_AS] = 10
    assert measure_room() == Room(0, "ulimit -v")


def test_room_of_this_process_is_more_than_nothing():
    assert measure_room().n_bytes > 1 << 20


def test_room_refuses_only_what_needs_more(monkeypatch):
    monkeypatch.setattr(memory, "measure_room", lambda: Room(GIB, "ulimit -v"))
    verify_room("it", GIB, str)
    with pytest.raises(NotEnoughMemoryError) as e:
        verify_room("it", 3 * GIB // 2, lambda n: f"give less than {n}")
    assert str(e.value) == (
        "it needs 1.5 GiB of memory or more, and this process may take 1 GiB (ulimit -v); give less than 1073741824"
    )
    assert isinstance(e.value, MemoryError) and isinstance(e.value, NwError) and e.value.code == "NW1009"
    monkeypatch.setattr(memory, "measure_room", lambda: None)
    verify_room("it", 1 << 60, str)


def test_room_is_looked_at_again_when_the_heap_was_given_back(monkeypatch):
    left = [GIB]
    monkeypatch.setattr(memory, "measure_room", lambda: Room(left[0], "ulimit -v"))
    monkeypatch.setattr(memory, "give_back_heap", lambda: left.append(left.pop() + 5))
    verify_room("it", GIB + 5, str)
    with pytest.raises(NotEnoughMemoryError):
        verify_room("it", GIB + 11, str)


def test_freed_heap_goes_back_to_the_system():
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = c_void_p, [c_size_t], [c_void_p]
    *blocks, top = (libc.malloc(1 << 16) for _ in range(1000))  # The last block keeps free() from shrinking the heap.
    for block in blocks:
        ctypes.memset(block, 1, 1 << 16)
    for block in blocks:
        libc.free(block)
    before = memory._read_table(memory.PROC / "self" / "status")["VmRSS"]
    memory.give_back_heap()
    assert before - memory._read_table(memory.PROC / "self" / "status")["VmRSS"] > 32 * 1024
    libc.free(top)


def test_room_in_units():
    assert [bytes_text(n) for n in (512, 3 << 20, 1023 << 20, 12_345_678_901)] == [
        "0.5 KiB", "3 MiB", "1023 MiB", "11.5 GiB",
    ]  # fmt: skip


@pytest.fixture
def little(monkeypatch):
    """A process that may use 80 MiB."""
    monkeypatch.setattr(memory, "measure_room", lambda: Room(80 << 20, "ulimit -v"))


SAYS = " of memory or more, and this process may take 80 MiB (ulimit -v); "


def test_memory_of_a_run_is_refused_with_what_has_room(little, monkeypatch):
    program = nw.compile(dense_net(10, 1000, 1000, 5), "loihi1", options=nw.Options(partitioner="sequential"))
    x = np.zeros((200, 50, 10), np.int8)
    texts = {}
    for backend, record in (("reference", "all"), ("cycle", "spikes"), ("cycle", "all"), ("sequence", "all")):
        with pytest.raises(NotEnoughMemoryError) as e:
            nw.simulate(program, x, backend, record=record)
        texts[backend, record] = str(e.value)
    needs, ways = {}, {}
    for (backend, record), text in texts.items():
        head, _, ways[backend, record] = text.partition(SAYS)
        run = f"a run of 200 samples of 50 steps on backend {backend!r} with record={record!r} needs "
        needs[backend, record] = head.removeprefix(run)
    assert needs == {
        ("reference", "all"): "335 MiB",
        ("cycle", "spikes"): "99.9 MiB",
        ("cycle", "all"): "635 MiB",
        ("sequence", "all"): "336 MiB",
    }
    assert ways == {
        ("reference", "all"): "give at most 15 samples at once or at most 3 steps",
        ("cycle", "spikes"): "give at most 47 samples at once or at most 11 steps or record='totals'",
        ("cycle", "all"): "give at most 7 samples at once or at most 1 step or record='totals'",
        ("sequence", "all"): "give at most 15 samples at once or at most 3 steps",
    }
    with pytest.raises(NotEnoughMemoryError, match=" or record='spikes' or record='totals'$"):
        nw.simulate(program, x[:26], "cycle", record="all")
    nw.simulate(program, x[:1], "cycle")
    monkeypatch.setattr(memory, "measure_room", lambda: Room(900 << 20, "ulimit -v"))
    with pytest.raises(NotEnoughMemoryError, match=" or record='totals' or backend='sequence'$"):
        nw.simulate(program, np.zeros((2000, 50, 10), np.int8), "cycle")


def test_memory_of_totals_is_that_of_the_neurons_of_all_samples(little):
    program = nw.compile(dense_net(10, 1000, 5), "loihi1", options=nw.Options(partitioner="sequential"))
    nw.simulate(program, np.zeros((2, 50, 10), np.int8), "cycle", record="totals")
    with pytest.raises(NotEnoughMemoryError) as e:
        nw.simulate(program, np.zeros((4000, 2, 10), np.int8), "cycle", record="totals")
    assert str(e.value) == (
        "a run of 4 000 samples of 2 steps on backend 'cycle' with record='totals' needs 92.4 MiB"
        + SAYS
        + "give at most 1 151 samples at once"
    )


def test_memory_of_a_run_counts_inputs_that_are_yet_to_be_made(little):
    network, x = dense_net(40_000, 1), np.zeros((1, 1000, 40_000), np.int8)
    with pytest.raises(NotEnoughMemoryError, match=r"a run of 1 sample of 1 000 steps on backend 'reference'"):
        nw.simulate(network, x)


@pytest.mark.parametrize("steps", [(1 << 31) - 1, 1 << 24])
def test_memory_of_inputs_that_nobody_gives_is_not_taken_before_the_refusal(little, steps):
    with pytest.raises(NotEnoughMemoryError, match=f"a run of 1 sample of {grouped(steps)} steps .* give at most"):
        nw.simulate(dense_net(4, 3), steps=steps)


def test_memory_of_compiling_is_refused_with_what_has_room(little, monkeypatch):
    rng, neuron = np.random.default_rng(0), nw.NeuronSpec(threshold=1.0)
    edge = nw.Dense("in", "out", rng.normal(size=(1000, 3000)).astype(np.float32))
    wide = nw.Network.from_arrays({"out": neuron}, [edge], {"in": 3000})
    with pytest.raises(NotEnoughMemoryError) as e:
        nw.compile(wide, "loihi1")
    advice = "use a machine with more, or a network of smaller layers"
    assert str(e.value) == f"compiling 3 000 000 weights needs 91.6 MiB{SAYS}{advice}"
    edge = nw.Dense("in", "out", rng.normal(size=(2000, 3)).astype(np.float32))
    narrow, x = nw.Network.from_arrays({"out": neuron}, [edge], {"in": 3}), np.ones((4000, 100, 3), np.int8)
    monkeypatch.setattr(memory, "measure_room", lambda: Room(500 << 20, "ulimit -v"))
    with pytest.raises(NotEnoughMemoryError) as e:
        nw.compile(narrow, "loihi1", x)
    assert str(e.value) == (
        "compiling 6 000 weights with 4 000 calibration samples of 100 steps needs 1.49 GiB"
        f"{SAYS.replace('80', '500')}give at most 46 calibration samples, or fewer steps"
    )
    nw.compile(narrow, "loihi1", x[:4], nw.Options(partitioner="sequential"))


MEASURED = """
    import ctypes, gc, sys
    from pathlib import Path
    import numpy as np
    import nwcompile as nw
    from nwcompile.sim import memory
    from nwcompile.sim.inputs import prepare_inputs
    from tests.made.nets import conv_net

    def resident(key):
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(key))

    backend, record, n_samples = sys.argv[1], sys.argv[2], int(sys.argv[3])
    program = nw.compile(conv_net((2, 24, 24), 8), "loihi2", options=nw.Options(partitioner="sequential"))
    x = (np.random.default_rng(0).random((n_samples, 40, 2, 24, 24)) < 0.1).astype(np.int32)
    nw.simulate(program, x[:3, :3], backend, record=record)
    inputs = prepare_inputs(program.network, x)[0]
    del x
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    run = nw.simulate(program, inputs, backend, record=record)
    print(memory.run_bytes(program, n_samples, 40, backend, record), resident("VmHWM") - before)
"""


@pytest.mark.long
@pytest.mark.parametrize(
    "backend, record, n_samples",
    [("reference", "all", 30), ("cycle", "spikes", 60), ("cycle", "all", 30), ("sequence", "all", 60)],
)
def test_memory_of_a_run_is_what_is_counted_to_three_times_as_much(backend, record, n_samples):
    command = [sys.executable, "-c", textwrap.dedent(MEASURED), backend, record, str(n_samples)]
    counted, peak = map(int, subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())
    print(f"{backend}, {record}: {peak / 1e6:.0f} MB, {peak / counted:.2f} times what is counted")
    assert counted <= peak <= running.MOST_BEYOND * counted


REFUSED = """
    import resource
    import numpy as np
    import nwcompile as nw
    from tests.made.nets import dense_net
    network = dense_net(10, 1000)
    used = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmSize"))
    resource.setrlimit(resource.RLIMIT_AS, (used * 1024 + (300 << 20),) * 2)
    nw.simulate(network, np.zeros((10, 20, 10), np.int8))
    try:
        nw.simulate(network, np.zeros((1000, 100, 10), np.int8))
    except nw.errors.NotEnoughMemoryError as e:
        print(e)
"""


def test_memory_of_a_process_with_a_limit_of_its_own():
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(REFUSED)], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("a run of 1 000 samples of 100 steps on backend 'reference' with record='spikes' ")
    assert "MiB (ulimit -v); give at most " in done.stdout


@pytest.mark.parametrize("gib, n", [(0.01, 1), (1, 1), (2.9, 2), (100, 4)])
def test_so_many_compilations_are_begun_at_once_as_have_room(monkeypatch, gib, n):
    network = nw.Network.from_arrays(
        {"a": nw.NeuronSpec(threshold=1.0)}, [nw.Dense("in", "a", np.ones((1000, 11185), np.float32))], {"in": 11185}
    )  # a third of a GiB in float64 with copies, and uncounted memory
    monkeypatch.setattr(compiling, "measure_room", lambda: Room(int(gib * GIB), "a limit"))
    assert compiling.n_with_room(network, None, 4) == n
    samples = {"in": np.zeros((2, 3, 11185), np.float32)}
    assert compiling.n_with_room(network, samples, 4) == n


def test_where_the_system_tells_of_no_limit_all_are_begun_at_once(monkeypatch):
    monkeypatch.setattr(compiling, "measure_room", lambda: None)
    assert compiling.n_with_room(dense_net(10, 20), None, 4) == 4


def test_memory_of_compiling_counts_the_widest_layer_and_those_before_it():
    neuron = nw.NeuronSpec(threshold=1.0)
    sizes = {"a": 30, "b": 20}
    edges = [nw.Dense("in", "a", np.ones((30, 10), np.float32)), nw.Dense("a", "b", np.ones((20, 30), np.float32))]
    network = nw.Network.from_arrays({name: (neuron, n) for name, n in sizes.items()}, edges, {"in": 10})
    assert compiling.weight_bytes(network) == 300 * compiling.SCALED_BYTES + 600 * compiling.ROUNDED_BYTES
    assert compiling.weight_bytes(conv_net()) == compiling.EFFECTIVE_BYTES * max(
        np.size(c.weight) for c in conv_net().connections
    )
