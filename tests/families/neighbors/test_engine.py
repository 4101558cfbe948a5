"""Cores that wait for their neighbors only: the same spikes, tokens as counted, times by hand, no deadlock."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nwcompile.cost.least import find_lower_bounds
from nwcompile.cost.time.floorline import floorline
from nwcompile.cost.traffic.link_flits import link_flits
from nwcompile.errors import BackendError, ChipError, FitError
from nwcompile.families.neighbors import kernel
from nwcompile.families.neighbors.cost import TokenPaths, list_tokens, longest_path
from nwcompile.flow import compile
from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Dense
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import NeuronSpec
from nwcompile.ir.options import Options
from nwcompile.ir.program import Program
from nwcompile.passes.emit import emit
from nwcompile.passes.prepare.schedule import schedule
from nwcompile.sim import BACKENDS, WINDOWS, simulate
from nwcompile.sim.crosscheck import crosscheck
from nwcompile.sim.session import Session
from tests.long import EXAMPLES as N_LONG
from tests.made.chips import small_chip
from tests.made.nets import FIXED
from tests.made.programs import with_keys
from tests.made.random_programs import SIXTY, chips_of_neighbors, inputs, programs

VISIT, UPDATE, SPIKE, SEND = 6, 4, 30, 5  # of small_chip
WAY = 2 + 4 + 4 + 3  # injection, two hops east, ejection
TOKEN_IN = 16  # a message without synapses
FLIT_HOPS = 40_000 * N_LONG  # 2e7 in `make test-long`, through each buffer


def drawn(data) -> tuple[Program, np.ndarray]:
    program = data.draw(programs(chips_of_neighbors, executions=["pipelined"]))
    return program, data.draw(inputs(program))


@SIXTY
@given(data=st.data(), window=st.sampled_from(WINDOWS))
def test_backends_agree_without_a_barrier(window, data):
    program, x = drawn(data)
    result = crosscheck(program, x, window=window)
    assert result.agree, str(result)


@SIXTY
@given(data=st.data())
def test_all_but_tokens_is_as_with_a_barrier_and_no_step_is_done_before_its_bound(data):
    program, x = drawn(data)
    free, joint = simulate(program, x, "cycle", record="all"), simulate(with_keys(program, cost__sync=None), x, "cycle")
    for name, spikes in joint.spikes.items():
        assert np.array_equal(spikes, free.spikes[name]), name
    for name, count in joint.counters.items():
        more = free.counters[name] - count
        assert (more == more[0]).all()  # in every step alike
        assert name.startswith(("messages", "hops", "deliveries")) or not more.any(), name
    n_inside = np.count_nonzero((list_tokens(program).ends < program.mapping.n_cores).all(1))
    n_more = free.counters["messages_out"].sum(1) - joint.counters["messages_out"].sum(1)
    assert (n_more == n_inside * free.n_samples).all()
    assert np.array_equal(free.link_flits, link_flits(program, free.activity))
    bound = floorline(program, free.counters, free.link_flits, free.n_samples).bound_cycles
    assert (bound >= 0).all() and (bound.cumsum() <= free.step_cycles.cumsum()).all()
    assert find_lower_bounds(program, free).step_us <= free.step_cycles.mean() / free.n_samples / 1000 + 1e-9


def step_cycles(x, **chip):
    """An input line makes the neuron of `a` on core 0 fire, that one the two of `b` on core 1; x is one sample."""
    edges = [Dense("in", "a", np.array([[2]], np.int8)), Dense("a", "b", np.full((2, 1), 2, np.int8))]
    network = Network.from_arrays({"a": (FIXED, 1), "b": (FIXED, 2)}, edges, {"in": 1})
    mapping = Mapping.from_arrays({"a": [0], "b": [1, 1]}, [[0, 0, 0], [2, 0, 0]])
    program = emit(network, schedule(network), mapping, small_chip(cost__sync="neighbors", **chip), None, {})
    return simulate(program, np.array(x).reshape(1, -1, 1), "cycle").step_cycles.tolist()


def test_times_of_two_cores_by_hand():
    """Core 0 begins its steps at a0, a1, ... and core 1 at b0, b1, ...; each token takes WAY and TOKEN_IN."""
    # step 0: both visit, and send a token; core 0 takes the input meanwhile, in 16 + 1 + 4 cycles
    b1 = VISIT + SEND + WAY + TOKEN_IN
    a1 = 2 * VISIT + SEND + WAY + TOKEN_IN
    assert max(a1, b1) == a1 == 46 and b1 == 40
    # step 1: core 0 fires, its message is there before its token, which comes while core 1 accumulates it
    message_there = a1 + VISIT + UPDATE + SPIKE + SEND + WAY
    b2 = message_there + 16 + 1 + 2 * 4 + TOKEN_IN
    a2 = b1 + 2 * VISIT + SEND + WAY + TOKEN_IN
    assert b2 == 145 and a2 == 86
    # step 2: core 1 fires, its spikes go nowhere; core 0 has long been waiting for its token
    a3 = b2 + 2 * (VISIT + UPDATE + SPIKE) + SEND + WAY + TOKEN_IN
    # that step is over for core 1 when its neurons are: the token of core 0 came long ago
    assert step_cycles([1]) == [a1, b2 - a1, a3 - b2]
    # what the barrier would cost is of no matter
    assert step_cycles([1], cost__barrier_cycles=None) == step_cycles([1])


def test_input_is_received_in_its_step_by_a_core_that_had_been_idle():
    """A lone core of eight neurons that spike in step 1, for longer than it receives; input comes in steps 0 and 2."""
    quiet = NeuronSpec(threshold=1 << 20, fixed=FIXED.fixed)
    edges = [Dense("in", "a", np.full((8, 3), 2, np.int8)), Dense("in", "b", np.ones((4, 3), np.int8))]
    network = Network.from_arrays({"a": (FIXED, 8), "b": (quiet, 4)}, edges, {"in": 3})
    mapping = Mapping.from_arrays({"a": [0] * 8, "b": [0] * 4}, [[0, 0, 0]])
    program = emit(network, schedule(network), mapping, small_chip(cost__sync="neighbors"), None, {})
    run = simulate(program, np.repeat([1, 0, 1, 0], 3).reshape(1, -1, 3), "cycle")
    line = floorline(program, run.counters, run.link_flits, 1)
    send, receive = line.work.busy[:, :, 0]
    assert send[1] > receive[0] and receive[2] > send[2]
    assert run.step_cycles.tolist() == np.maximum(send, receive).tolist() == line.bound_cycles.tolist()


def bursts(sync: str):
    """Five layers in a row, a core each; the first works hard in even steps, the last, on its input, in odd ones."""
    n, names = 20, ["a", "b", "c", "d", "e"]
    heavy = np.ones((1, n), np.int8)
    edges = [Dense("left", "a", heavy), Dense("right", "e", heavy)]
    edges += [Dense(here, there, np.ones((1, 1), np.int8)) for here, there in zip(names, names[1:], strict=False)]
    quiet = NeuronSpec(threshold=1 << 20, fixed=FIXED.fixed)
    network = Network.from_arrays(dict.fromkeys(names, (quiet, 1)), edges, {"left": n, "right": n})
    mapping = Mapping.from_arrays(
        {name: [i] for i, name in enumerate(names)}, [[0, 0, 0], [0, 0, 1], [1, 0, 0], [1, 0, 1], [2, 0, 0]]
    )
    chip = small_chip(cost__sync=sync, cost__barrier_cycles={"1": 0})
    program = emit(network, schedule(network), mapping, chip, None, {})
    x = {name: np.zeros((1, 40, n), np.int32) for name in ("left", "right")}
    x["left"][:, ::2] = x["right"][:, 1::2] = 1
    return program, simulate(program, x, "cycle")


def test_bursts_in_different_steps_cost_the_barrier_twice():
    """20 messages of 21 cycles at one end or the other: every step with a barrier, every second one for each core."""
    joint, free = (bursts(sync)[1].step_cycles for sync in ("barrier", "neighbors"))
    assert (joint[:39] >= 20 * 21).all()
    assert 20 * 20 * 21 < free.sum() < 0.65 * joint.sum()
    program, run = bursts("neighbors")
    line = floorline(program, run.counters, run.link_flits, 1)
    assert line.bottleneck.kind == "traffic" and line.bottleneck.core in (0, 4) and line.bottleneck.unit == "receive"
    assert 0.9 * free.sum() < line.bound_cycles.sum() <= free.sum()


def test_longest_path_of_an_estimate_keeps_its_fractions():
    """Whole cycles on the sending side and half ones on the other, as advice has them: none is rounded away."""
    nobody = np.zeros(0, np.int64)
    alone = TokenPaths(here=nobody, there=nobody, latency=nobody, tokens=np.zeros(1, np.int64))
    path = longest_path(np.array([[1], [1]]), np.array([[2.5], [0.25]]), alone)
    assert path.end.tolist() == [2.5, 3.5] and path.sends.tolist() == [False, True]


def all_to_all(period: int = 1, n_columns: int = 4, **keys) -> Program:
    """Neurons on all cores of a mesh, three on each, that send to all cores: in all steps, or at their own pace."""
    chip = small_chip(noc__columns=n_columns, noc__rows=2, noc__cores_per_router=2, cost__sync="neighbors", **keys)
    sites = chip.sites[chip.is_usable]
    n = 3 * len(sites)
    # the bias adds up until it is above the threshold, in some neurons sooner than in others
    spec = NeuronSpec(threshold=np.arange(n) % period, bias=1, decay_v=0, fixed=chip.fixed_point)
    network = Network.from_arrays({"a": (spec, (n,))}, [Dense("a", "a", np.zeros((n, n), np.int8), delay=1)])
    mapping = Mapping.from_arrays({"a": np.arange(n) // 3}, sites)
    return emit(network, schedule(network), mapping, chip, None, {}, "refuse")


def flit_hops(program: Program, n_steps: int) -> int:
    run = simulate(program, None, "cycle", steps=n_steps)
    n_mesh = 4 * program.chip.noc.columns * program.chip.noc.rows
    return int(run.link_flits[:, :n_mesh].sum())


@pytest.mark.parametrize("buffer_flits", [1, 2])
@pytest.mark.parametrize("keys", [{}, {"io__sites": ["1,1,0"], "cost__units": "shared"}, {"noc__multicast": "tree"}])
def test_all_cores_to_all_go_on_through_the_smallest_buffers(buffer_flits, keys):
    assert flit_hops(all_to_all(4, noc__buffer_flits=buffer_flits, **keys), 20) > 10_000


@pytest.mark.long
@pytest.mark.parametrize("buffer_flits", [1, 2])
def test_millions_of_flits_go_on_through_the_smallest_buffers(buffer_flits):
    program = all_to_all(4, n_columns=16, noc__buffer_flits=buffer_flits)
    n_steps = 10
    n_steps = n_steps * FLIT_HOPS // flit_hops(program, n_steps)
    assert flit_hops(program, n_steps) > 0.9 * FLIT_HOPS


def test_a_deadlock_is_named(monkeypatch):
    """Cores that wait for a token too many wait for good."""
    from nwcompile.families.neighbors import engine as neighbors

    made = neighbors.append_tokens

    def one_too_many(program, tables):
        axons, of_step = made(program, tables)
        return axons, of_step._replace(n_taken=of_step.n_taken + (np.arange(len(of_step.n_taken)) == 5))

    monkeypatch.setattr(neighbors, "append_tokens", one_too_many)
    wanted = r"step 0 of sample 0 on small: cores wait for each other forever, core 5 still waits for 1 messages"
    with pytest.raises(BackendError, match=wanted):
        simulate(all_to_all(), None, "cycle", steps=3)


def test_a_message_before_its_time_is_found(monkeypatch):
    """Without the tokens to those that a core hears from, a fast sender would fill accumulators still in use."""
    from nwcompile.families.neighbors import engine as neighbors

    def one_way(program):
        whole = list_tokens(program)
        keep = whole.ends[:, 0] <= whole.ends[:, 1]
        return whole._replace(ends=whole.ends[keep], site=whole.site[keep], hops=whole.hops[keep])

    monkeypatch.setattr(neighbors, "list_tokens", one_way)
    edges = [Dense("in", "a", np.full((2, 1), 2, np.int8)), Dense("a", "b", np.full((60, 2), 2, np.int8))]
    network = Network.from_arrays({"a": (FIXED, 2), "b": (FIXED, 60)}, edges, {"in": 1})
    mapping = Mapping.from_arrays({"a": [0, 0], "b": [1] * 60}, [[0, 0, 0], [2, 0, 0]])
    program = emit(network, schedule(network), mapping, small_chip(cost__sync="neighbors"), None, {})
    with pytest.raises(AssertionError, match="before its receiver had visited its neurons"):
        simulate(program, np.ones((1, 30, 1)), "cycle")
    assert kernel.OVERTAKEN < 0


def test_a_step_that_takes_too_long_is_named():
    program = all_to_all(noc__max_step_cycles=50)
    wanted = r"step 0 of sample 0 on small: not done 50 cycles after the step before \(noc.max_step_cycles\), core "
    with pytest.raises(BackendError, match=wanted):
        simulate(program, None, "cycle", steps=3)
    longest = int(simulate(all_to_all(), None, "cycle", steps=3).step_cycles.max())
    simulate(all_to_all(noc__max_step_cycles=longest), None, "cycle", steps=3)
    with pytest.raises(BackendError, match="noc.max_step_cycles"):
        simulate(all_to_all(noc__max_step_cycles=longest - 1), None, "cycle", steps=3)


def test_samples_are_simulated_one_after_the_other():
    program, x = bursts("neighbors")[0], {name: np.ones((3, 7, 20)) for name in ("left", "right")}
    x["left"][1], x["right"][2] = 0, 0
    parts = [simulate(program, {n: a[b : b + 1] for n, a in x.items()}, "cycle").step_cycles for b in range(3)]
    assert np.array_equal(simulate(program, x, "cycle").step_cycles, sum(parts))


def test_io_sites_send_a_line_at_their_own_paces():
    """One site feeds a core of one neuron, the other a core of fifty, which is steps behind; the value changes."""
    edges = [Dense("in", name, np.ones((n, 1), np.int8)) for name, n in (("a", 1), ("b", 50))]
    quiet = NeuronSpec(threshold=1 << 22, fixed=FIXED.fixed, decay_v=0)  # it never spikes, and its state is the sum
    network = Network.from_arrays({"a": (quiet, 1), "b": (quiet, 50)}, edges, {"in": 1})
    mapping = Mapping.from_arrays({"a": [0], "b": [1] * 50}, [[0, 0, 0], [2, 0, 0]])
    chip = small_chip(cost__sync="neighbors", io__sites=["0,0,1", "2,0,1"], neuron__spikes=["binary", "multi"])
    program = emit(network, schedule(network), mapping, chip, None, {}, "refuse")
    result = crosscheck(program, (1 + np.arange(200) % 50).reshape(1, 200, 1))
    assert result.agree, str(result)


@pytest.mark.parametrize(
    ("keys", "wanted"),
    [
        ({"noc__on_full": "drop"}, "does not go with noc.on_full = 'drop': a core would wait for ever"),
        ({"core__axon_merge": "or"}, "does not go with core.axon_merge = 'or': which spike is read first"),
    ],
)
def test_chips_that_need_a_barrier_are_refused(keys, wanted):
    with pytest.raises(ChipError, match=f'small: cost.sync: "neighbors" {wanted}'):
        small_chip(cost__sync="neighbors", **keys)


@pytest.mark.parametrize("name", ["ladderbus", "ranc", "xylo_audio2"])
def test_chips_without_such_a_network_are_refused(name):
    with pytest.raises(ChipError, match=r'cost.sync: "neighbors" does not go with (noc|pool)\.\w+ = .*; change one'):
        Chip.load(name).replace({"cost.sync": "neighbors"})


def test_what_follows_common_steps_is_refused():
    program = all_to_all()
    for what, options in (("a profile", {"profile": True}), ("record='totals'", {"record": "totals"})):
        with pytest.raises(BackendError, match=f"{what} follows steps that end for all cores at once, and th"):
            simulate(program, None, "cycle", steps=2, **options)
    with pytest.raises(BackendError, match="backend 'cycle' stops all cores between two chunks of a stream"):
        Session(program, "cycle")


def test_phases_are_refused():
    program = bursts("neighbors")[0]
    plan = schedule(program.network, "phased")
    phased = emit(program.network, plan, program.mapping, program.chip, None, {}, "refuse")
    for backend in BACKENDS:
        with pytest.raises(BackendError, match="execution=.phased. needs a barrier after every phase, and cores"):
            simulate(phased, None, backend, steps=2)
    wanted = r"execution +all layers +must be pipelined, is phased +compile with execution='pipelined' or set "
    wanted += r"cost.sync = \"barr"
    with pytest.raises(FitError, match=wanted):
        compile(program.network, program.chip, options=Options(execution="phased"))


def test_a_stream_counts_tokens_as_a_run_does():
    program = all_to_all(3)
    whole = simulate(program, None, "reference", steps=6)
    for backend in ("reference", "sequence"):
        session = Session(program, backend)
        chunks = [session.feed(steps=4), session.feed(steps=2), session.close()]
        for name in ("messages_out", "messages_in", "hops"):
            total = np.concatenate([chunk.counters[name] for chunk in chunks if len(chunk.counters[name])])
            assert np.array_equal(total, whole.counters[name]), name
