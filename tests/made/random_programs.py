"""Random fixed-point networks on random small chips (hypothesis), on which all backends must agree."""

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from nwcompile.errors import ChipError
from nwcompile.families.segmented_bus.chip import slot_cycles
from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Conv2d, Dense, Sparse
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import MESSAGES, OVERFLOWS, RESET_TIMINGS, RESETS, SPIKES, FixedPoint, NeuronSpec
from nwcompile.ir.options import EXECUTIONS, ON_MULTI_SPIKE
from nwcompile.ir.program import Program
from nwcompile.passes.emit import emit
from nwcompile.passes.prepare.schedule import schedule
from tests.long import n_drawn

OF_PROGRAMS = settings(  # programs are large and slow to draw
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
SIXTY = settings(OF_PROGRAMS, max_examples=n_drawn(60))


@st.composite
def formats(draw, repeated: bool = False) -> FixedPoint:
    """Draw any number format; narrow states make overflow frequent."""
    state_bits = 9 if repeated else draw(st.sampled_from([10, 14, 24]))
    shift = draw(st.sampled_from([0, 2, 6] if not repeated else [1, 3]))
    if draw(st.booleans()):
        return FixedPoint(state_bits, 4, shift, "clip", "shift")
    return FixedPoint(state_bits, 12, shift, draw(st.sampled_from(OVERFLOWS)))


@st.composite
def specs(draw, repeated: bool = False, fixed: FixedPoint | None = None) -> NeuronSpec:
    """Draw any fixed-point neuron, of any number format if none is given; few spikes per step if `repeated`."""
    fixed = draw(formats(repeated)) if fixed is None else fixed
    spikes = draw(st.sampled_from([*SPIKES, "multi"] if repeated else SPIKES))
    reset = "subtract" if spikes == "gated" else draw(st.sampled_from(RESETS))
    timing = draw(st.sampled_from(RESET_TIMINGS if reset == "subtract" else RESET_TIMINGS[:2]))
    number = st.integers(-60, 60)
    floor = draw(st.sampled_from([None, None, 0, -30]))
    can_reset = floor is not None and reset != "none" and timing == "now" and spikes == "binary"
    threshold = draw(st.integers(1 if spikes != "binary" else -2, 12)) << fixed.shift_bits  # sums often equal it
    decays = {"decay_u": [4096, 4096, 1500, 0], "decay_v": [0, 0, 128, 3000, 4096]}
    if fixed.shifts:
        decays = {"decay_u": [0, 1, 2, 5], "decay_v": [0, 1, 3, 15]}
    return NeuronSpec(
        threshold=threshold + draw(st.sampled_from([0, 0, 0, 1])),
        strict=draw(st.booleans()),
        spikes=spikes,
        fires=draw(st.sampled_from([True, True, True, False])),
        reset=reset,
        reset_value=draw(number),
        reset_timing="now" if spikes == "gated" else timing,
        refractory=0 if spikes == "gated" else draw(st.sampled_from([0, 1, 2, 4])),
        v_min=floor,
        clamp=draw(st.sampled_from(["maximum", "reset"])) if can_reset else "maximum",
        bias=draw(st.sampled_from([0, 0, 5, -7])),
        bias_u=draw(st.sampled_from([0, 0, 3, -2])),
        fixed=fixed,
        max_spikes=draw(st.sampled_from([None, 1, 5])) if spikes == "multi" else None,
        **{name: draw(st.sampled_from(values)) for name, values in decays.items()},
    )


@st.composite
def networks(draw, repeated: bool = False, feedback: int = 4, neurons=specs) -> Network:
    """Draw an input image, a convolution, dense and sparse layers, skips, recurrence, and feedback.

    Feedback connections have a delay of at least `feedback` steps. Neurons are drawn from `neurons(repeated)`.
    """
    rng = np.random.default_rng(draw(st.integers(0, 1 << 30)))
    channels, height, width = draw(st.integers(1, 2)), draw(st.integers(2, 4)), draw(st.integers(2, 4))
    inputs, layers, edges = {"in": (channels, height, width)}, {}, []

    def weights(shape):
        return rng.integers(-9, 10, shape).astype(np.int8)

    groups = channels if draw(st.booleans()) else 1
    kernel = (draw(st.integers(1, 2)), draw(st.integers(1, 2)))
    neuron = draw(neurons(repeated))
    n_inputs = count_inputs(neuron)
    conv = Conv2d(
        "in", "conv", weights((2 * groups * n_inputs, channels // groups, *kernel)), stride=draw(st.integers(1, 2)),
        padding=draw(st.integers(0, 1)), dilation=draw(st.integers(1, 2)) if min(height, width) > 2 else 1,
        groups=groups, delay=draw(st.integers(0, 2)),
    )  # fmt: skip
    sizes = {"in": channels * height * width}
    sums = {}
    if draw(st.booleans()):
        shape = conv.output_shape(inputs["in"])
        layers["conv"], sums["conv"] = (neuron, (shape[0] // n_inputs, *shape[1:])), int(np.prod(shape))
        sizes["conv"] = sums["conv"] // n_inputs
        edges.append(conv)
    for i in range(draw(st.integers(0 if layers else 1, 3))):
        name, size, neuron = f"l{i}", draw(st.integers(1, 7)), draw(neurons(repeated))
        n_sums = size * count_inputs(neuron)
        for source in draw(st.lists(st.sampled_from(list(sizes)), min_size=1, max_size=3)):
            edges.append(_edge(draw, weights, rng, source, name, sizes[source], n_sums, draw(st.integers(0, 2))))
        layers[name], sizes[name], sums[name] = (neuron, (size,)), size, n_sums
    names = list(layers)
    for name in names:
        if draw(st.booleans()):
            edges.append(_edge(draw, weights, rng, name, name, sizes[name], sums[name], draw(st.integers(1, 3))))
    if len(names) > 1 and draw(st.booleans()):
        first, last = names[0], names[-1]
        edges.append(
            _edge(draw, weights, rng, last, first, sizes[last], sums[first], feedback + draw(st.integers(0, 2)))
        )
    return Network.from_arrays({name: layers[name] for name in draw(st.permutations(names))}, edges, inputs)


def count_inputs(neuron) -> int:
    """Return the number of synaptic sums of a neuron."""
    return len(getattr(neuron, "inputs", (0,)))


def _edge(draw, weights, rng, source, target, n_source, n_target, delay):
    if draw(st.booleans()):
        return Dense(source, target, weights((n_target, n_source)), delay=delay)
    n = draw(st.integers(0, 12))
    pre, post = rng.integers(0, n_source, n), rng.integers(0, n_target, n)
    return Sparse(source, target, pre, post, weights(n), delay, bias=rng.integers(-3, 4, n_target))


@st.composite
def chips(draw) -> Chip:
    """Draw small meshes and tori with all network parameters that change behavior, and two clocks."""
    cycles = st.integers(1, 5)
    noc = {
        "columns": draw(st.integers(1, 5)), "rows": draw(st.integers(1, 3)),
        "cores_per_router": draw(st.integers(1, 3)),
        "virtual_channels": draw(st.integers(1, 3)), "buffer_flits": draw(st.integers(1, 4)),
        "flits_per_message": draw(st.integers(1, 4)), "payload_flits": draw(st.integers(0, 2)),
        "cycle_ns": draw(st.sampled_from([1.0, 0.5, 1.5])),
        "hop_cycles_ew": draw(cycles), "hop_cycles_ns": draw(cycles), "link_cycles_per_flit": draw(cycles),
        "inject_cycles": draw(cycles), "eject_cycles": draw(cycles), "credit_cycles": draw(cycles),
    } | draw(layouts())  # fmt: skip
    if noc["topology"] == "torus":
        noc["virtual_channels"] = max(noc["virtual_channels"], 2)
    if draw(st.booleans()):
        noc |= {"multicast": "tree", "flits_per_message": 1, "payload_flits": 0}
    cost = {name: draw(st.integers(0, 9)) for name in (
        "visit_cycles", "update_cycles", "spike_cycles", "message_out_cycles", "message_in_cycles", "word_cycles",
        "synop_dense_cycles", "synop_sparse_cycles", "synop_conv_cycles")}  # fmt: skip
    cost |= {"units": draw(st.sampled_from(["overlap", "shared"])), "barrier_cycles": {"1": 5, "2": 9}}
    core = {"max_neurons": 1000, "block_overhead_bits": 10, "cycle_ns": 1.0}
    neuron = {"reset": list(RESETS), "spikes": list(MESSAGES)}
    weights = {"sharing": draw(st.booleans()), "index_bits": draw(st.sampled_from([0, 4]))}
    table = {"name": "random", "noc": noc, "core": core, "neuron": neuron, "cost": cost, "weights": weights}
    table["sources"] = dict.fromkeys(("noc", "core", "neuron", "cost", "weights", "io"), "drawn")
    shape = (noc["columns"], noc["rows"], noc["cores_per_router"])
    sites = draw(st.lists(st.tuples(*(st.integers(0, n - 1) for n in shape)), max_size=3, unique=True))
    if draw(st.booleans()) and 0 < len(sites) < np.prod(shape):
        table["io"] = {"sites": [f"{x},{y},{port}" for x, y, port in sites]}
    try:
        return Chip.from_dict({**table, "noc": noc | draw(faults(noc["columns"], noc["rows"]))})
    except ChipError:  # a router or the entry of spikes is cut off
        return Chip.from_dict(table)


@st.composite
def buses(draw) -> Chip:
    """Draw chips with a segmented bus: few lanes, short queues, several cores per position, overlong slots."""
    table, cycles = draw(chips()).to_dict(), st.integers(1, 4)
    columns, ports = draw(st.integers(1, 7)), draw(st.integers(1, 2))
    noc = {
        "topology": "segmented_bus", "columns": columns, "rows": 1, "cores_per_router": ports,
        "lanes": draw(st.integers(1, 3)), "buffer_flits": draw(st.integers(1, 4)),
        "cycle_ns": draw(st.sampled_from([1.0, 0.5, 1.5])),
        "hop_cycles_ew": draw(cycles), "inject_cycles": draw(cycles), "eject_cycles": draw(cycles),
    }  # fmt: skip
    table["noc"], table["io"] = noc, {}
    if draw(st.booleans()) and columns * ports > 1:
        table["io"] = {"sites": [f"{draw(st.integers(0, columns - 1))},0,{ports - 1}"]}
    chip = Chip.from_dict(table)
    return chip.replace({"noc.slot_cycles": slot_cycles(chip.noc) + draw(st.integers(0, 9))})


@st.composite
def faults(draw, columns: int, rows: int) -> dict:
    """Draw keys of a chip file for faulty routers and links; often none."""
    if columns < 2 or draw(st.booleans()):
        return {}
    x, y, column = st.integers(0, columns - 1), st.integers(0, rows - 1), st.integers(0, columns - 2)
    links = draw(st.lists(st.tuples(column, y), max_size=3, unique=True))
    routers = draw(st.lists(st.tuples(x, y), max_size=2))
    texts = [f"{x},{y}-{x + 1},{y}" for x, y in links] + [f"{x},{y}" for x, y in routers]
    return {"faults": texts, "routing": "up-down"} if texts else {}


@st.composite
def layouts(draw) -> dict:
    """Draw keys of a chip file for topology, routing and boards."""
    cycles = st.integers(1, 9)
    topology = draw(st.sampled_from(["mesh", "torus"]))
    routings = ["xy", "yx", "up-down"] + (["west-first", "odd-even"] if topology == "mesh" else [])
    noc = {"topology": topology, "routing": draw(st.sampled_from(routings))}
    if draw(st.booleans()):
        noc |= {"chip_columns": draw(st.integers(1, 2)), "chip_rows": draw(st.integers(1, 2)),
                "chip_hop_cycles": draw(cycles), "chip_link_cycles_per_flit": draw(cycles)}  # fmt: skip
    return noc


@st.composite
def programs(draw, on=chips, neurons=specs, executions=EXECUTIONS) -> Program:
    """Draw a network and a chip, mapped at random (any neuron on any core), with any `on_multi_spike`.

    `on`: `chips`, `buses` or another strategy of chips. `neurons`: `specs`, or `whole_neurons` for neuron programs.
    """
    on_multi_spike = draw(st.sampled_from(ON_MULTI_SPIKE))
    execution = draw(st.sampled_from(executions))
    feedback = 1 if execution == "phased" else 4  # a pipeline of up to four layers takes one step per layer
    network, chip = draw(networks(on_multi_spike == "repeat", feedback, neurons)), draw(on())
    if on is chips and draw(st.booleans()):
        times = {"cost.min_step_cycles": {"1": 60, "3": 200}, "cost.sample_cycles": 70}
        chip = chip.replace(times | {"cost.synop_dense_cycles": [i % 4 for i in range(chip.n_cores)]})
    return draw(mapped_at_random(network, chip, execution, on_multi_spike))


@st.composite
def mapped_at_random(draw, network: Network, chip: Chip, execution: str, on_multi_spike: str) -> Program:
    """Map any neuron to any core of the chip, regardless of its limits."""
    rng = np.random.default_rng(draw(st.integers(0, 1 << 30)))
    open_sites = chip.sites[chip.limit("max_neurons") > 0]
    n_cores = draw(st.integers(1, len(open_sites)))
    core_of = {name: rng.integers(0, n_cores, network.node(name).n_neurons) for name in network.layers}
    sites = open_sites[rng.permutation(len(open_sites))[:n_cores]]
    plan = schedule(network, execution)
    return emit(network, plan, Mapping.from_arrays(core_of, sites), chip, None, {}, on_multi_spike)


@st.composite
def inputs(draw, program: Program) -> np.ndarray:
    """Draw spikes with payloads, [B, T, C, H, W]."""
    rng = np.random.default_rng(draw(st.integers(0, 1 << 30)))
    shape = (draw(st.integers(1, 3)), draw(st.integers(1, 7)), *program.network.inputs["in"].shape)
    x = rng.random(shape) < draw(st.sampled_from([0.1, 0.5, 1.0]))
    return (x * rng.integers(-1 if program.repeats else -2, 4, shape)).astype(np.int32)


@st.composite
def chips_of_neighbors(draw) -> Chip:
    """Draw chips without a barrier, mostly with the smallest buffers; some have trees, io sites, any units."""
    table = draw(chips()).to_dict()
    table["noc"]["buffer_flits"] = draw(st.sampled_from([1, 1, 2, 3]))
    table["noc"]["link_cycles_per_flit"] = draw(st.sampled_from([1, 3, 40]))  # 40: links are the bottleneck
    table["cost"]["sync"] = "neighbors"
    return Chip.from_dict(table)
