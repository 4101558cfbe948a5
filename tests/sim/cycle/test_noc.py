"""The network on chip by itself against BookSim 2 (reference/booksim): every packet at its cycle, and load curves."""

import csv
import gzip
from dataclasses import replace as changed

import numpy as np
import pytest

import nwcompile as nw
from nwcompile.errors import NotEnoughMemoryError, OptionError
from nwcompile.memory import Room
from nwcompile.sim.cycle.noc import _route_cycles, offer_load, replay_packets

SETTINGS = [("spec", 1, 8), ("spec", 4, 8), ("spec", 1, 4), ("la", 1, 8), ("def", 1, 8), ("def", 4, 8)]


def mesh(preset, k=8, n_vcs=1, buffer=8):
    keys = {"columns": k, "rows": k, "virtual_channels": n_vcs, "buffer_flits": buffer}
    return nw.Chip.load(f"mesh_{preset}").replace({f"noc.{name}": value for name, value in keys.items()})


def rows_of(path):
    with gzip.open(path, "rt") if path.suffix == ".gz" else open(path) as stream:
        return list(csv.DictReader(stream))


def column(rows, name):
    return np.array([int(r[name]) for r in rows])


def test_zero_load_latency_is_exact(reference):
    rows = rows_of(reference / "booksim" / "zero_load.csv")
    assert rows
    for row in rows:
        done = replay_packets(
            mesh(row["preset"], int(row["k"])), [7], [int(row["src"])], [int(row["dst"])], [int(row["size"])]
        )
        assert (done.arrive - 7).tolist() == [int(row["latency"])], row
        assert done.hops.tolist() == [int(row["hops_links"])]


def test_every_packet_of_every_trace_arrives_at_its_cycle(reference):
    paths = sorted((reference / "booksim" / "traces").glob("*.csv.gz"))
    assert paths
    for path in paths:
        rows = rows_of(path)
        packets = [column(rows, name) for name in ("time", "src", "dst", "size")]
        k = int(path.name.partition("_k")[2].partition("_")[0].partition(".")[0])
        for preset, n_vcs, buffer in SETTINGS:
            done = replay_packets(mesh(preset, k, n_vcs, buffer), *packets)
            stem = f"{preset}_v{n_vcs}_b{buffer}"
            np.testing.assert_array_equal(done.inject, column(rows, f"{stem}_inject"), f"{path.name} {stem}")
            np.testing.assert_array_equal(done.arrive, column(rows, f"{stem}_arrive"), f"{path.name} {stem}")
            np.testing.assert_array_equal(done.hops, column(rows, "hops"))
            flits = (packets[3] * (done.hops + 2)).sum()
            assert done.link_flits.sum() == flits


def test_one_flow_streams_at_the_rate_of_booksim(reference):
    for row in rows_of(reference / "booksim" / "stream_throughput.csv"):
        n, size, n_vcs = int(row["packets"]), int(row["packet_size"]), int(row["num_vcs"])
        chip = mesh(row["preset"], 8, n_vcs, int(row["vc_buf_size"]))
        arrive = replay_packets(chip, np.zeros(n), np.zeros(n), np.full(n, 7), np.full(n, size)).arrive
        rate = (n - 1) * size / (arrive.max() - arrive.min())
        assert rate == pytest.approx(float(row["flits_per_cycle"]), rel=0.01), row


def test_bursts_of_all_nodes_take_as_long_as_in_booksim(reference):
    for row in rows_of(reference / "booksim" / "burst_makespan.csv"):
        if row["pattern"] not in ("transpose", "neighbor"):
            continue
        k, n, size = int(row["k"]), int(row["packets_per_node"]), int(row["packet_size"])
        src = np.repeat(np.arange(k * k), n)
        x, y = src % k, src // k
        dst = x * k + y if row["pattern"] == "transpose" else (y + 1) % k * k + (x + 1) % k
        chip = mesh(row["preset"], k, int(row["num_vcs"]), int(row["vc_buf_size"]))
        done = replay_packets(chip, np.zeros(len(src)), src, dst, np.full(len(src), size))
        assert done.arrive.max() == int(row["makespan"]), row
        assert done.arrive.mean() == pytest.approx(float(row["mean_latency"]), rel=1e-4), row


@pytest.mark.parametrize(("preset", "flits", "buffer"), [("spec", 1, 8), ("spec", 4, 4), ("def", 1, 8)])
def test_latency_under_load_and_saturation_are_those_of_booksim(reference, preset, flits, buffer):
    rows = [r for r in rows_of(reference / "booksim" / "mesh8.csv")
            if (r["preset"], r["traffic"], int(r["num_vcs"])) == (preset, "uniform", 1)
            and (int(r["packet_size"]), int(r["vc_buf_size"]), int(r["k"])) == (flits, buffer, 8)]  # fmt: skip
    saturation = next(float(r["acc_flit_avg"]) for r in rows if r["sim_type"] == "throughput")
    chip = mesh(preset, 8, 1, buffer)
    assert offer_load(chip, "uniform", 0.9, flits, cycles=3000).accepted == pytest.approx(saturation, rel=0.07)
    below = [r for r in rows if r["sim_type"] == "latency" and float(r["offered_flit_rate"]) <= 0.7 * saturation]
    assert below
    for row in below[::2]:
        got = offer_load(chip, "uniform", float(row["offered_flit_rate"]), flits, cycles=6000)
        assert got.stable
        assert got.mean_latency == pytest.approx(float(row["plat_avg"]), rel=0.03), row


def test_a_load_that_booksim_calls_unstable_is_never_called_stable_and_its_links_are_loaded(reference):
    """Of each pattern and router, the highest load that BookSim bears, and the lowest that it does not."""
    for pattern, preset, flits, buffer, n_vcs in (
        ("uniform", "spec", 1, 8, 1), ("transpose", "spec", 4, 4, 1), ("hotspot({36})", "def", 1, 8, 1)
    ):  # fmt: skip
        wanted = (pattern, preset, str(flits), str(buffer), str(n_vcs), "latency")
        keys = ("traffic", "preset", "packet_size", "vc_buf_size", "num_vcs", "sim_type")
        rows = [r for r in rows_of(reference / "booksim" / "mesh8.csv") if tuple(r[k] for k in keys) == wanted]
        first_unstable = [r["stable"] for r in rows].index("0")
        for row in rows[first_unstable - 1 : first_unstable + 1]:
            offered, is_stable = float(row["offered_flit_rate"]), row["stable"] == "1"
            got = [
                offer_load(mesh(preset, 8, n_vcs, buffer), pattern.split("(")[0], offered, flits, cycles=n)
                for n in (300, 20000)
            ]
            assert got[0].stable in (None, is_stable) and got[1].stable is is_stable, row
            hottest = max(got[1].link_load.values())
            assert offered < hottest <= 1 and (
                got[1].bottleneck is None or got[1].link_load[got[1].bottleneck] == hottest
            )


@pytest.mark.parametrize("cycles", [1000, 10000, 40000])
def test_latency_that_grows_with_the_window_is_not_stable(cycles):
    assert offer_load(mesh("spec"), "uniform", 0.4, cycles=cycles).stable is False


def test_a_window_of_few_latencies_is_too_short_to_tell():
    short, long = (offer_load(mesh("spec", 4), "uniform", 0.3, cycles=n) for n in (300, 5000))
    assert (short.stable, short.mean_latency) == (None, None) and long.stable is True
    assert short.bottleneck in short.link_load


def test_a_queue_near_its_capacity_needs_a_window_of_many_relaxations():
    """All 16 cores send to one, 0.96 flits a cycle: by M/D/1 each waits W = 12 cycles, and 20 W^2 are 2880."""
    short, long = (offer_load(mesh("spec", 4), "hotspot", 0.96 / 16, cycles=n) for n in (1500, 20000))
    assert short.stable is None and long.stable is True and 50 * long.mean_latency < 1500


@pytest.mark.parametrize("flits, cycles, seed", [(4, 1500, 9), (16, 4000, 9), (16, 4000, 11)])
def test_a_latency_that_grows_within_the_window_has_not_settled(flits, cycles, seed):
    """Four cores send one as much as it takes, so that no latency lasts, in windows that are long by its mean."""
    assert offer_load(mesh("spec", 2), "hotspot", 1 / 4, flits, warmup=0, cycles=cycles, seed=seed).stable is None


def test_a_saturated_network_names_its_busiest_link():
    got = offer_load(mesh("spec", 4), "hotspot", 0.5, cycles=500)
    assert (got.stable, got.mean_latency, got.bottleneck) == (False, None, "(2, 2) port 0 eject")
    assert got.accepted == pytest.approx(1 / 16, rel=0.02)
    assert offer_load(mesh("spec", 4), "hotspot", 0.5, cycles=500) == got
    assert changed(offer_load(mesh("spec", 4), "hotspot", 0.5, cycles=500, seed=1), n_packets=got.n_packets) != got


def test_a_load_does_not_depend_on_how_many_cycles_are_drawn_at_once(monkeypatch):
    wanted = offer_load(mesh("spec", 4), "uniform", 0.2, warmup=100, cycles=300, seed=1)
    monkeypatch.setattr("nwcompile.sim.cycle.noc.CHUNK_CYCLES", 7)
    assert offer_load(mesh("spec", 4), "uniform", 0.2, warmup=100, cycles=300, seed=1) == wanted


def test_a_replay_that_is_cut_off_says_what_has_not_arrived():
    done = replay_packets(mesh("spec", 4), [0, 5, 50], [0, 0, 3], [3, 3, 0], [1, 1, 1], last=40)
    assert done.arrive.tolist() == [14, 19, -1]
    assert done.inject.tolist() == [0, 5, -1]


BAD = [
    (([0], [16], [0], [1]), "packet 0: src 16 is outside 0..15 (mesh_spec has 16 cores)"),
    (([0, 1], [1, 1], [2, -1], [1, 1]), "packet 1: dst -1 is outside 0..15 (mesh_spec has 16 cores)"),
    (([0], [1], [2], [0]), "packet 0: size 0 is outside 1..65536 (mesh_spec has 16 cores)"),
    (([0], [1, 2], [2], [1]), "packets: 2 values of src for 1 of time; give one a packet"),
    (([0.5], [1], [2], [1]), "packets: time must be whole numbers"),
    ((["a"], [1], [2], [1]), "packets: time must be a list of whole numbers"),
]


@pytest.mark.parametrize(("packets", "text"), BAD)
def test_packets_that_cannot_be_are_named(packets, text):
    with pytest.raises(OptionError) as error:
        replay_packets(mesh("spec", 4), *packets)
    assert str(error.value) == text


BAD_LOADS = [
    ({"pattern": "tornado"}, "unknown traffic 'tornado'; choose one of: transpose, hotspot, neighbor, uniform"),
    ({"offered": 0}, "load 0 must be above 0 and at most 1, one packet of 1 flits per cycle"),
    ({"cycles": 0}, "cycles 0 must be a whole number >= 1"),
    ({"cycles": 10**22}, f"cycles {10**22} is above the largest supported, {1 << 48}"),
    ({"flits": 1 << 17}, "flits 131072 is above the largest supported, 65536"),
    ({"seed": -1}, "seed -1 must be a whole number >= 0"),
    (
        {"offered": 1e-9, "cycles": 500},
        "no packet was made in 500 measured cycles: load 1e-09 in packets of 1 flits makes 8e-06 on average; "
        "raise the load, or measure more cycles",
    ),
]


@pytest.mark.parametrize(("changes", "text"), BAD_LOADS)
def test_loads_that_cannot_be_are_named(changes, text):
    with pytest.raises(OptionError) as error:
        offer_load(mesh("spec", 4), **{"pattern": "uniform", "offered": 0.1, **changes})
    assert str(error.value) == text


def test_a_load_of_more_packets_than_memory_holds_is_refused(monkeypatch):
    monkeypatch.setattr("nwcompile.memory.measure_room", lambda: Room(1 << 20, "for this test"))
    with pytest.raises(NotEnoughMemoryError) as error:
        offer_load(mesh("spec", 4), "uniform", 0.5, cycles=500_000)
    assert str(error.value) == (
        "load 0.5 on 16 cores in 1001000 cycles, 8.01e+06 packets, needs 611 MiB of memory or more, and this process "
        "may take 1 MiB (for this test); lower the load, or measure fewer cycles (--cycles)"
    )


@pytest.mark.parametrize(("ew", "ns"), [(2, 2), (2, 5)])
def test_cycles_of_a_way_are_those_of_its_links(monkeypatch, ew, ns):
    monkeypatch.setattr("nwcompile.sim.cycle.noc.CHUNK_PAIRS", 7)
    chip = mesh("spec", 4).replace({"noc.hop_cycles_ew": ew, "noc.hop_cycles_ns": ns})
    src, dst = (ends.reshape(-1) for ends in np.meshgrid(range(16), range(16)))
    columns, rows = abs(src % 4 - dst % 4), abs(src // 4 - dst // 4)
    assert _route_cycles(chip, src, dst, columns + rows).tolist() == (ew * columns + ns * rows).tolist()


def test_traffic_patterns_need_a_grid_of_cores():
    with pytest.raises(OptionError) as error:
        offer_load(nw.Chip.load("loihi1"), "uniform", 0.1)
    assert str(error.value) == (
        "traffic needs one core per router; loihi1 has noc.cores_per_router=4; take a chip like mesh_def, or --set "
        "noc.cores_per_router=1"
    )
    with pytest.raises(OptionError) as error:
        offer_load(mesh("spec", 4).replace({"noc.rows": 3}), "transpose", 0.1)
    assert str(error.value) == "traffic transpose needs a square mesh; mesh_spec has 4 x 3 routers"
