"""SANA-FE's files: read back and stepped by the rules of SANA-FE's neurons they give the spikes and messages of ours.

SANA-FE itself judges them too.
"""

import numpy as np
import pytest
import yaml

from nwcompile.errors import ChipError, ModelError, OptionError
from nwcompile.flow import compile
from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Conv2d, Dense, Sparse
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import FixedPoint, NeuronSpec
from nwcompile.ir.options import Options
from nwcompile.ir.program import Program
from nwcompile.passes.emit import emit
from nwcompile.report.export.sanafe import sanafe_files
from nwcompile.sim import simulate
from tests.frontend.frameworks import framework
from tests.made.chips import small_chip
from tests.made.nets import feed_forward, integers
from tests.made.sanafe import random_net

NO_WORDS = {"cost__word_cycles": 0, "core__max_in_axons": None, "core__max_out_axons": None, "core__synapse_bits": None}
CONVS = [{}, {"stride": (2, 1)}, {"padding": 1, "dilation": (1, 2)}, {"groups": 2}]


def program_of(seed: int, conv: dict, spec: NeuronSpec, inputs: bool, **chip) -> Program:
    """Image -> conv -> dense -> sparse, recurrent; the first layer is the input itself, or fires by its bias."""
    rng, shape = np.random.default_rng(seed), (2, 4, 5)
    edges = [Conv2d("in", "a", integers((4, 2 // conv.get("groups", 1), 2, 2), seed), **conv)]
    hidden = edges[0].output_shape(shape)
    n = int(np.prod(hidden))
    edges += [Dense("a", "odd name", integers((7, n), seed)), Dense("odd name", "odd name", integers((7, 7), seed)),
              Sparse("odd name", "c", rng.integers(0, 7, 20), rng.integers(0, 5, 20), integers(20, seed))]  # fmt: skip
    layers = {"a": (spec.replace(bias=rng.integers(-9, 9, n)), hidden), "odd name": (spec, (7,)), "c": (spec, (5,))}
    edges = [e.replace(delay=1) for e in edges]
    if inputs:
        network = Network.from_arrays(layers, edges, {"in": shape})
    else:
        driven = NeuronSpec(threshold=90, fixed=FixedPoint(), bias=rng.integers(0, 60, shape))
        network = Network.from_arrays({"in": (driven, shape), **layers}, edges)
    schedule = feed_forward(network)
    schedule = type(schedule)("pipelined", 1, dict.fromkeys(schedule.offset, 0), tuple(1 for _ in edges))
    chip = small_chip(**{**NO_WORDS, **chip})
    core_of = {name: rng.integers(0, 9, network.node(name).n_neurons) for name in network.layers}
    core_of["c"][0] = 8
    mapping = Mapping.from_arrays(core_of, chip.sites[rng.permutation(12)[:9]])
    return emit(network, schedule, mapping, chip, None, {})


def spikes_of(program: Program, n_steps: int, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {name: (rng.random((n_steps, node.n_neurons)) < 0.3).astype(np.int32)
            for name, node in program.network.inputs.items()}  # fmt: skip


def run_of(program: Program, x: dict, n_steps: int):
    """The reference backend's run, hardware step by hardware step."""
    given = {name: a.reshape(1, n_steps, *program.network.node(name).shape) for name, a in x.items()}
    steps = None if given else n_steps
    return simulate(program, given or None, "reference", steps=steps, window="hardware")


def files_of(program: Program, x: dict) -> tuple[dict, dict]:
    found = {path.name: yaml.safe_load(data) for path, data in sanafe_files(program, "out", x).items()}
    return found["arch.yaml"]["architecture"], found["snn.yaml"]


def each(key) -> range:
    """The neurons that `3` or `0..4` stands for."""
    first, _, last = str(key).partition("..")
    return range(int(first), int(last or first) + 1)


def fan_out(network: dict) -> tuple[dict, dict, list]:
    """Groups (attributes of every neuron), cores "tile.core" of every neuron, synapses (source, target, weight)."""
    groups, core_of, synapses = {}, {}, []
    for group in network["network"]["groups"]:
        rows = [(i, own) for entry in group["neurons"] for key, own in entry.items() for i in each(key)]
        assert [i for i, _ in rows] == list(range(len(rows)))
        groups[group["name"]] = [{**group["attributes"], **own} for _, own in rows]
    for entry in network["mappings"]:
        for key, where in entry.items():
            group, _, which = key.partition(".")
            core_of |= {(group, i): where["core"] for i in each(which)}
    for entry in network["network"]["edges"]:
        for key, edge in entry.items():
            source, _, target = key.partition(" -> ")
            synapses += [((source, pre), (target, post), w) for pre, post, w in members(edge, groups, source, target)]
    return groups, core_of, synapses


def members(edge: dict, groups: dict, source: str, target: str):
    """(source, target, weight) of one entry, by the definition of its type."""
    if edge["type"] == "sparse":
        yield from ((*pair, w) for pair, w in zip(edge["source_target_pairs"], edge["weight"], strict=True))
    elif edge["type"] == "dense":
        n = len(groups[target])
        assert len(edge["weight"]) == n * len(groups[source])
        yield from ((k // n, k % n, w) for k, w in enumerate(edge["weight"]))
    else:
        height, width, channels = (edge[f"input_{k}"] for k in ("height", "width", "channels"))
        rows, columns, count = edge["kernel_height"], edge["kernel_width"], edge["kernel_count"]
        down, right = edge["stride_height"], edge["stride_width"]
        out_h, out_w = (height - rows) // down + 1, (width - columns) // right + 1
        weight = np.array(edge["weight"]).reshape(rows, columns, channels, count)
        for o, y, x, c, ky, kx in np.ndindex(count, out_h, out_w, channels, rows, columns):
            pre = (c * height + y * down + ky) * width + x * right + kx
            yield pre, (o * out_h + y) * out_w + x, weight[ky, kx, c, o].item()


def stepped(network: dict, n_steps: int) -> tuple[dict, int, dict]:
    """Spikes [T, n] of every group, messages, and messages from input groups, by SANA-FE's rules."""
    groups, core_of, synapses = fan_out(network)
    reads: dict = {}
    for pre, post, w in synapses:
        reads.setdefault(pre, []).append((post, w))
    state = {(g, i): 0.0 for g, rows in groups.items() for i in range(len(rows))}
    blocked, arriving = dict.fromkeys(state, 0), {}
    spikes = {g: np.zeros((n_steps, len(rows)), int) for g, rows in groups.items()}
    counts = {"messages": 0, "from inputs": 0}
    for t in range(n_steps):
        current, arriving = arriving, {}
        for (g, i), v in state.items():
            own = groups[g][i]
            if "spikes" in own:
                fires = bool(own["spikes"][t])
            else:
                v = int(v * own["leak_decay"] * 64) / 64
                fires = False
                if blocked[g, i] == 0:
                    v += own["bias"] + current.get((g, i), 0)
                    fires = v > own["threshold"]
                    if fires:
                        v = {"hard": own.get("reset", 0), "soft": v - own["threshold"], "none": v}[own["reset_mode"]]
                        blocked[g, i] = own.get("refractory_delay", 0)
                    v = max(v, own.get("reverse_threshold", -1e30))
                blocked[g, i] = max(0, blocked[g, i] - 1)
                state[g, i] = v
            if fires:
                spikes[g][t, i] = 1
                targets = reads.get((g, i), [])
                n = len({core_of[post] for post, _ in targets})
                counts["from inputs" if "spikes" in own else "messages"] += n
                for post, w in targets:
                    arriving[post] = arriving.get(post, 0) + w
    return spikes, counts, core_of


SPECS = [
    NeuronSpec(threshold=200, fixed=FixedPoint(), decay_v=300),
    NeuronSpec(threshold=200, fixed=FixedPoint(), reset="subtract", decay_v=1000, v_min=-100),
    NeuronSpec(threshold=256, fixed=FixedPoint(), strict=False, refractory=3, bias_u=1, decay_v=64),
    NeuronSpec(threshold=4, fixed=FixedPoint(shift_bits=0), reset="value", reset_value=-2),
    NeuronSpec(threshold=128, fixed=FixedPoint(), reset="none", decay_v=2048),
]


@pytest.mark.parametrize("spec, conv", [*zip(SPECS, [*CONVS, CONVS[0]], strict=True)])
@pytest.mark.parametrize("inputs", [False, True])
def test_files_give_the_spikes_and_messages_of_the_program(spec, conv, inputs):
    program, n_steps = program_of(3, conv, spec, inputs), 12
    x = spikes_of(program, n_steps, 1)
    _, network = files_of(program, x)
    spikes, counts, core_of = stepped(network, n_steps)
    run = run_of(program, x, n_steps)
    fired = 0
    for name in program.network.layers:
        group = "n2_odd_name" if name == "odd name" else name
        assert (spikes[group] == run.spikes[name].reshape(n_steps, -1)).all(), name
        fired += run.spikes[name].sum()
    assert fired > 10
    assert counts["messages"] == run.counters["messages_out"].sum()
    assert counts["messages"] + counts["from inputs"] == run.counters["messages_in"].sum()
    for name in program.network.layers:
        group = "n2_odd_name" if name == "odd name" else name
        for i, core in enumerate(program.mapping.core_of[name]):
            x0, y0, port = program.mapping.site_of[core]
            assert core_of[group, i] == f"{x0 * 2 + y0}.{port}"


def test_architecture_has_every_figure_of_the_chip():
    program = program_of(0, {}, SPECS[0], True, noc__buffer_flits=5, noc__virtual_channels=2)
    arch, network = files_of(program, spikes_of(program, 2, 0))
    assert arch["attributes"] == {
        "topology": "mesh", "width": 3, "height": 2, "link_buffer_size": 10, "sync_model": "table",
        "latency_sync": {1: 600e-9, 2: 1000e-9},
    }  # fmt: skip
    (tile,) = arch["tile"]
    assert tile["name"] == "tile[0..5]"
    assert tile["attributes"] == {
        "energy_east_hop": 3e-12, "energy_west_hop": 3e-12, "energy_north_hop": 4.2e-12, "energy_south_hop": 4.2e-12,
        "latency_east_hop": 4e-9, "latency_west_hop": 4e-9, "latency_north_hop": 6e-9, "latency_south_hop": 6e-9,
    }  # fmt: skip
    core, lines = tile["core"]
    assert core["name"] == "core[0..1]" and core["attributes"]["max_neurons_supported"] == 64
    assert core["soma"][0]["attributes"] == {
        "model": "leaky_integrate_fire", "energy_access_neuron": 51.2e-12, "latency_access_neuron": 6e-9,
        "energy_update_neuron": 21.6e-12, "latency_update_neuron": 4e-9, "energy_spike_out": 69.3e-12,
        "latency_spike_out": 30e-9,
    }  # fmt: skip
    costs = [[s["name"], *list(s["attributes"].values())[1:]] for s in core["synapse"]]
    assert costs == [["dense", 35.5e-12, 4e-9], ["sparse", 33.6e-12, 5e-9], ["conv", 24e-12, 3e-9]]
    assert core["axon_in"][0]["attributes"] == {"energy_message_in": 0, "latency_message_in": 16e-9}
    assert core["axon_out"][0]["attributes"] == {"energy_message_out": 111e-12, "latency_message_out": 5e-9}
    free = [v for part in ("axon_in", "soma", "synapse", "axon_out") for unit in lines[part]
            for v in unit["attributes"].values() if not isinstance(v, str)]  # fmt: skip
    assert free and not any(free)
    most = max(int(where["soma"][5:-1]) for e in network["mappings"] for where in e.values() if "soma" in where)
    assert lines["soma"][0]["name"] == f"line[0..{most}]"
    units = {g["name"]: g["attributes"].get("synapse_hw_name") for g in network["network"]["groups"]}
    assert (units["a"], units["n2_odd_name"], units["c"]) == ("dense", "dense", "sparse")


def refused(kind, program: Program, x=None) -> str:
    with pytest.raises(kind) as error:
        sanafe_files(program, "out", x)
    return str(error.value)


def test_export_takes_an_approximation_that_was_asked_to_choose_no_current():
    spec = NeuronSpec(threshold=1.0, beta=0.95, reset="subtract")
    rng = np.random.default_rng(0)
    edges = [Dense("in", "a", rng.normal(0.1, 0.3, (16, 20))), Dense("a", "b", rng.normal(0.1, 0.3, (4, 16)))]
    network = Network.from_arrays({"a": spec, "b": spec}, edges, {"in": 20})
    x = (rng.random((4, 20, 20)) < 0.4).astype(np.float32)
    chip, options = Chip.load("loihi1"), Options(approximate="reset")
    assert "(--set neuron.current=false)" in refused(ModelError, compile(network, chip, x, options), {"in": x[0]})
    program = compile(network, chip.replace({"neuron.current": False}), x, options)
    assert sanafe_files(program, "out", {"in": x[0]})


def test_export_refuses_what_sanafe_would_compute_otherwise():
    def program(spec=SPECS[0], inputs=False, **chip):
        return program_of(0, {}, spec, inputs, **chip)

    assert refused(OptionError, program(inputs=True)) == (
        "the network reads input 'in', and SANA-FE's file holds its spikes; give a sample with --input"
    )
    several = {"in": np.full((2, 40), 2)}
    assert refused(OptionError, program(inputs=True), several) == (
        "input 'in' has values other than 0 and 1; SANA-FE's input neurons spike or do not"
    )
    assert refused(ModelError, program(SPECS[0].replace(decay_u=100))) == (
        "layer 'a' has a current that outlasts its step (decay_u), which SANA-FE computes otherwise or not at all; if "
        "`approximate` chose the current, compile with the chip's neuron.current = false (--set neuron.current=false), "
        "and it chooses none"
    )
    assert refused(ModelError, program(SPECS[1].replace(reset_timing="next"))) == (
        "layer 'a' has reset_timing='next', which SANA-FE computes otherwise or not at all"
    )
    assert refused(ChipError, program(cost__word_cycles=1)) == (
        "small: cost.word_cycles: SANA-FE has no cost of a memory word; set it to 0"
    )
    assert refused(ChipError, program(cost__units="shared")) == (
        "small: cost.units: SANA-FE sends and receives side by side only, not 'shared'"
    )
    assert refused(ChipError, program(energy__spike_pj=None)) == (
        "small: SANA-FE needs the cost of every event, and the chip file gives no energies; add its figures under "
        "[cost] and [energy]"
    )
    torus = program(noc__topology="torus", noc__virtual_channels=2)
    assert refused(ChipError, torus) == "small: noc.topology: SANA-FE knows only mesh, not 'torus'"
    network = Network.from_arrays(
        {"a": (SPECS[0], (3,)), "b": (SPECS[0], (3,))},
        [Sparse("a", "b", [0], [1], [3], delay=1), Dense("b", "b", integers((3, 3)), delay=2)],
    )
    mapping = Mapping.from_arrays({"a": [0] * 3, "b": [0] * 3}, [[0, 0, 0]])
    late = emit(network, feed_forward(network), mapping, small_chip(**NO_WORDS), None, {})
    late = type(late)(**{**vars(late), "schedule": type(late.schedule)("pipelined", 1, {"a": 0, "b": 0}, (1, 2))})
    assert refused(ModelError, late) == (
        "connection 'b' -> 'b' acts 2 hardware steps after its spike; SANA-FE's synapses act after one"
    )
    early = type(late)(**{**vars(late), "schedule": type(late.schedule)("pipelined", 1, {"a": 0, "b": 0}, (1, 1))})
    assert refused(ModelError, early) == (
        "layer 'b' reads sparse and dense synapses, which cost differently on small; SANA-FE's file has one kind for a "
        "layer"
    )


def judged(program: Program, x: dict, n_steps: int, folder) -> dict:
    """What SANA-FE's own run of the files counts."""
    sanafe = framework("sanafe")
    for path, data in sanafe_files(program, folder, x).items():
        path.write_bytes(data)
    arch = sanafe.load_arch(folder / "arch.yaml")
    chip = sanafe.SpikingChip(arch)
    chip.load(sanafe.load_net(folder / "snn.yaml", arch))
    return chip.sim(n_steps, timing_model="simple", processing_threads=1)


def agree(found: dict, run, from_inputs: int, bound_s: float | None = None) -> None:
    counters, energy = run.counters, run.energy_pj
    assert found["neurons_fired"] == counters["spikes_out"].sum() + from_inputs
    assert found["packets_sent"] == counters["messages_in"].sum()
    assert found["spikes"] == counters["synops"].sum()
    assert found["energy"]["total"] * 1e12 == pytest.approx(energy["total"], rel=1e-9)
    network = energy["message_out"] + energy["hop_ew"] + energy["hop_ns"]
    assert found["energy"]["network"] * 1e12 == pytest.approx(network, rel=1e-9)
    if bound_s is not None:
        assert found["sim_time"] == pytest.approx(bound_s, rel=1e-9)


@pytest.mark.parametrize("inputs", [False, True])
def test_sanafe_counts_what_the_program_counts(inputs, tmp_path):
    program, n_steps = program_of(5, {"padding": 1}, SPECS[0], inputs), 30
    x = spikes_of(program, n_steps, 1)
    found = judged(program, x, n_steps, tmp_path)
    run = run_of(program, x, n_steps)
    rows = [
        row for g in files_of(program, x)[1]["network"]["groups"] for entry in g["neurons"] for row in entry.values()
    ]
    agree(found, run, sum(sum(row.get("spikes", ())) for row in rows))


def test_sanafe_gives_its_own_reference_figures(reference, tmp_path):
    program, activity, columns = random_net(reference)
    n_steps = len(activity.counts["n"])
    run = run_of(program, {}, n_steps)
    agree(judged(program, {}, n_steps, tmp_path), run, 0, float(columns["sim_time"].sum()))


def test_sanafe_gets_no_staggered_program():
    chip = small_chip(**NO_WORDS).replace({"neuron.delay_max_steps": 15})
    spec = NeuronSpec(threshold=64, fixed=FixedPoint())
    net = Network.from_arrays({"a": spec}, [Dense("in", "a", np.full((8, 4), 2, np.int8))], {"in": (4,)})
    program = compile(net, chip, None, Options(stagger=2))
    with pytest.raises(ModelError, match="layers are staggered, by delays that SANA-FE's synapses lack"):
        sanafe_files(program, "o", {"in": np.zeros((6, 4), np.int32)})
