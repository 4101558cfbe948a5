"""Random networks of every kind on random chips of every kind (hypothesis), as inputs of the whole compiler."""

from dataclasses import dataclass
from functools import cache
from math import prod

import numpy as np
from hypothesis import strategies as st

from nwcompile.ir.chip import Chip
from nwcompile.ir.chip_sections import SECTIONS
from nwcompile.ir.connection import Conv1d, Conv2d, Dense, MaxPool2d, Pool2d, Sparse
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import MESSAGES, RESET_TIMINGS, RESETS, FixedPoint, NeuronSpec
from nwcompile.ir.options import APPROXIMATIONS, EXECUTIONS, INPUT_LAYERS, OBJECTIVES, ON_MULTI_SPIKE, Options
from nwcompile.ir.program import Program
from nwcompile.passes.partition.partition import PARTITIONERS
from nwcompile.passes.place.place import PLACERS
from nwcompile.sim import BACKENDS, WINDOWS
from tests.made import float_networks, random_programs
from tests.made.chips import ENERGY
from tests.made.neuron_programs import adaptive, cuba, every_operation, integrator
from tests.made.random_programs import buses, chips, formats, mapped_at_random, specs

NEURON_PROGRAMS = (adaptive.program(), integrator.program(), cuba(900, 1500, 300),
                   every_operation().replace(parameters={"k": 3}))  # fmt: skip
SHIPPED = ("tiny", "tiny", "loihi1", "loihi2", "spinnaker2", "speck", "xylo_audio3", "xylo_imu", "h1v1", "ladderbus",
           "ranc", "ranc_dense", "mesh_spec", "truenorth")  # fmt: skip
METHODS = sorted(set(PARTITIONERS) - {"hypergraph"})  # needs a package that is rarely installed


@dataclass(frozen=True, eq=False)
class Case:
    """A network with a chip, options and samples; `program` is the network mapped at random, without the compiler.

    `x` has the samples by input name, and `calibration` is the same or None. The other fields are for simulation:
    the `window`, the backend of the stream, and the sizes of the stream's chunks.
    """

    network: Network
    chip: Chip
    options: Options
    program: Program | None
    x: dict[str, np.ndarray]
    n_steps: int
    calibration: dict[str, np.ndarray] | None
    window: str
    backend: str
    chunk_sizes: list[int]


@st.composite
def cases(draw) -> Case:
    """Draw a case: half of all networks are fixed-point, and a quarter of these are mapped at random."""
    is_fixed = draw(st.booleans())
    on_multi_spike = draw(st.sampled_from(ON_MULTI_SPIKE))
    fixed = draw(formats(on_multi_spike == "repeat")) if is_fixed else None
    chip = draw(st.sampled_from(_shipped_chips()) if not is_fixed and draw(st.integers(0, 3)) == 0 else chips_of(fixed))
    options = draw(drawn_options(on_multi_spike, chip))
    if is_fixed:
        network = draw(fixed_networks(fixed, options, chip.neuron.programmable is True))
    else:
        network = draw(st.one_of(*[chains(chip.neuron.leak is False)] * 3, float_networks.networks()))
    program = None
    if is_fixed and draw(st.integers(0, 3)) == 0:
        program = draw(mapped_at_random(network, chip, options.execution, on_multi_spike))
    n_steps, rng = draw(st.integers(1, 7)), np.random.default_rng(draw(st.integers(0, 1 << 30)))
    shape, rate = (draw(st.integers(1, 3)), n_steps), draw(st.sampled_from([0.1, 0.5, 1.0]))
    more = {"refuse": ["spikes", "real"], "repeat": ["counts"], "graded": ["counts", "signed", "real"]}[on_multi_spike]
    values = draw(st.sampled_from(["spikes", "spikes", *more]))
    x = {name: samples(rng, (*shape, *node.shape), rate, values, is_fixed) for name, node in network.inputs.items()}
    return Case(
        network=network,
        chip=chip,
        options=options,
        program=program,
        x=x,
        n_steps=n_steps,
        calibration=x if x and draw(st.integers(0, 3)) else None,
        window=draw(st.sampled_from(WINDOWS)),
        backend=draw(st.sampled_from(BACKENDS)),
        chunk_sizes=draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)),
    )


def samples(rng, shape: tuple[int, ...], rate: float, values: str, is_fixed: bool) -> np.ndarray:
    """Draw samples [B, T, *shape] in which a fraction `rate` is not 0."""
    is_on = rng.random(shape) < rate
    if values == "real" and not is_fixed:
        return (is_on * rng.normal(0.5, 1, shape)).astype(np.float32)
    low, high = {"spikes": (1, 1), "counts": (0, 3)}.get(values, (-2, 3))
    return (is_on * rng.integers(low, high, shape, endpoint=True)).astype(np.int32)


@cache
def _shipped_chips() -> list[Chip]:
    """Load the shipped chips, and one with merges that is small enough for messages to collide."""
    small = {"noc.columns": 3, "noc.rows": 2}
    return [Chip.load(name) for name in SHIPPED] + [Chip.load(name).replace(small) for name in ("ranc", "ranc_dense")]


@st.composite
def drawn_options(draw, on_multi_spike: str, chip: Chip) -> Options:
    """Draw any options, most of them with their defaults."""

    def seldom(choices, default, one_in: int = 4):
        return draw(st.sampled_from(choices)) if draw(st.integers(1, one_in)) == 1 else default

    words = draw(st.lists(st.sampled_from(APPROXIMATIONS), max_size=4)) if draw(st.booleans()) else ["all"]
    return Options(
        seed=draw(st.integers(0, 3)),
        bits=seldom([1, 2, 4, 8], None, 8),
        partitioner=seldom(METHODS, "floorline", 3),
        placer=seldom(sorted(PLACERS), "anneal", 3),
        n_cores=seldom([1, 2, 3, 5], None, 8),
        optimize=seldom(OBJECTIVES, "time", 2),
        execution=seldom(EXECUTIONS, "pipelined", 8 if not chip.family.has_barrier else 2),
        on_multi_spike=on_multi_spike,
        approximate=",".join(words),
        input_layer=seldom(INPUT_LAYERS, None),
    )


@st.composite
def chips_of(draw, fixed: FixedPoint | None) -> Chip:
    """Draw a mesh, torus or bus, of the number format if one is given.

    Most chips have all capabilities. Others lack some, drop messages, or synchronize with neighbors only.
    """
    is_bus = draw(st.integers(0, 7)) == 0
    chip = draw(buses() if is_bus else chips())
    table, enough = chip.to_dict(), -(-64 // int(chip.is_usable.sum()))  # neurons, for nearly all networks
    table["core"] |= {"max_neurons": max(draw(st.sampled_from([2, 5, 20, 1000])), enough), "synapse_bits": 1 << 17}
    table["cost"] |= {"instruction_cycles": draw(st.integers(0, 3))}
    table["cost"] |= {"visits": "all"} if draw(st.integers(0, 7)) == 0 else {}
    table["energy"] = ENERGY | ({"static_mw": 0.7} if draw(st.integers(0, 3)) == 0 else {})
    table["neuron"] = draw(capabilities(5 if fixed is not None else 2))
    table["weights"] |= {"exponent_min": -8, "exponent_max": draw(st.sampled_from([0, 8]))}
    fixed = draw(st.sampled_from([FixedPoint(), FixedPoint(16, 12, 6, "saturate")])) if fixed is None else fixed
    table["state"] = {key.replace("state_bits", "bits"): value for key, value in fixed.to_dict().items()}
    if not is_bus and draw(st.integers(0, 3)) == 0:
        table["cost"]["sync"] = "neighbors"
    elif not is_bus and draw(st.integers(0, 5)) == 0:
        table["noc"] |= {"on_full": "drop"}
    table["sources"] = dict.fromkeys(SECTIONS, "drawn")
    return Chip.from_dict(table)


@st.composite
def capabilities(draw, n_full: int) -> dict:
    """Draw section `neuron` of a chip file: `n_full` with all capabilities for each one that lacks some."""
    if draw(st.integers(0, n_full)):
        return {"reset": list(RESETS), "reset_timing": list(RESET_TIMINGS), "strict": [True, False], "v_min": "any",
                "spikes": list(MESSAGES), "delay_max_steps": 15, "refractory_max_steps": 15,
                "programmable": draw(st.booleans())}  # fmt: skip

    def some(words):
        return draw(st.lists(st.sampled_from(words), min_size=1, unique=True))

    return {
        "reset": some(RESETS), "strict": some([True, False]), "spikes": sorted({"binary", *some(MESSAGES)}),
        "v_min": draw(st.sampled_from(["none", "zero", "any", "reset"])), "bias": draw(st.booleans()),
        "delay_max_steps": draw(st.sampled_from([0, 1, 15])), "refractory_max_steps": draw(st.integers(1, 3)),
        "threshold_per": draw(st.sampled_from(["layer", "neuron"])), "bias_per_step": draw(st.booleans()),
    }  # fmt: skip


@st.composite
def fixed_networks(draw, fixed: FixedPoint, options: Options, with_programs: bool) -> Network:
    """Draw a network of `random_programs` with further inputs, outputs and layers without input."""

    is_wide = with_programs and fixed.state_bits == 24  # like the states of the programs

    def neurons(repeated: bool):
        of_format = specs(repeated, fixed)
        return st.one_of(of_format, of_format, st.sampled_from(NEURON_PROGRAMS)) if is_wide else of_format

    is_repeated = options.on_multi_spike == "repeat"
    network = draw(random_programs.networks(is_repeated, 1 if options.execution == "phased" else 4, neurons))
    return draw(with_more_ends(network, neurons(is_repeated), np.int8, [0]))


@st.composite
def with_more_ends(draw, network: Network, neurons, dtype, delays) -> Network:
    """Sometimes add a second input and output or a layer without input, or remove all inputs."""
    rng = np.random.default_rng(draw(st.integers(0, 1 << 30)))
    inputs = {name: node.shape for name, node in network.inputs.items()}
    layers = {name: (node.neuron, node.shape) for name, node in network.nodes.items()}
    edges, names = list(network.connections), list(network.layers)

    def dense(source: str, target: str, n_source: int):
        weight = rng.integers(-9, 10, (prod(layers[target][1]), n_source)).astype(dtype)
        weight = weight / np.asarray(9, dtype) if np.dtype(dtype).kind == "f" else weight
        edges.append(Dense(source, target, weight, delay=draw(st.sampled_from(delays))))

    if draw(st.integers(0, 2)) == 0:
        inputs["side"] = draw(st.sampled_from([(2,), (1, 2, 2)]))
        dense("side", draw(st.sampled_from(names)), prod(inputs["side"]))
    if draw(st.integers(0, 3)) == 0:
        layers["alone"] = (draw(neurons), (draw(st.integers(1, 3)),))
        if draw(st.booleans()):
            dense("alone", draw(st.sampled_from(names)), layers["alone"][1][0])
    if draw(st.integers(0, 3)) == 0:
        layers["beside"] = (draw(neurons), (draw(st.integers(1, 3)),))
        source = draw(st.sampled_from(names))
        dense(source, "beside", prod(layers[source][1]))
    if draw(st.integers(0, 15)) == 0:
        edges, inputs = [c for c in edges if c.source not in inputs], {}
    return Network.from_arrays(layers, edges, inputs)


@st.composite
def chains(draw, without_leak: bool) -> Network:
    """Draw typical trained networks: a chain of convolutions, pools, dense and recurrent layers, skips and delays.

    `without_leak`: neurons only integrate.
    """
    rng = np.random.default_rng(draw(st.integers(0, 1 << 30)))
    shape = draw(st.sampled_from([(4,), (2, 6), (1, 4, 4), (1, 4, 4), (2, 4, 6)]))
    inputs, layers, edges, last = {"in": shape}, {}, [], "in"
    for i in range(draw(st.integers(1, 4))):
        name, delay = f"n{i}", draw(st.sampled_from([None, None, None, 1, 9]))
        kinds = ["dense"] + (["conv", "sum", "avg", "max"] if len(shape) > 1 and min(shape[1:]) > 1 else [])
        kind = draw(st.sampled_from(kinds))
        is_junction = kind in ("sum", "avg", "max") and draw(st.integers(0, 3)) > 0
        edge = draw(_edges(kind, rng, last, name, shape, delay))
        edges.append(edge)
        shape = edge.output_shape(shape) or (len(edge.bias),)
        layers[name] = (None if is_junction else draw(_neurons(rng, shape, without_leak)), shape)
        if not is_junction and draw(st.integers(0, 3)) == 0:
            edges.append(Dense(name, name, rng.normal(0, 0.3, (prod(shape), prod(shape))).astype(np.float32)))
        last = name
    if layers[last][0] is None:
        edges.append(Dense(last, "out", rng.normal(0.2, 0.5, (3, prod(shape))).astype(np.float32)))
        layers["out"] = (draw(_neurons(rng, (3,), without_leak)), (3,))
    named = [name for name, (neuron, _) in layers.items() if neuron is not None]
    if len(named) > 1 and draw(st.integers(0, 3)) == 0:
        first, end = named[0], named[-1]
        weight = rng.normal(0, 0.4, (prod(layers[end][1]), prod(layers[first][1]))).astype(np.float32)
        edges.append(Dense(first, end, weight, delay=draw(st.sampled_from([0, 1, 3]))))
    network = Network.from_arrays(layers, edges, inputs)
    return draw(with_more_ends(network, _neurons(rng, (), without_leak), np.float32, [0, 1]))


@st.composite
def _edges(draw, kind: str, rng, source: str, target: str, shape: tuple[int, ...], delay: int | None):
    if kind in ("sum", "avg", "max") and len(shape) == 3:
        if kind == "max":
            return MaxPool2d(source, target, 2, draw(st.sampled_from([None, 1])), delay=delay)
        return Pool2d(source, target, 2, draw(st.sampled_from([None, 1])), kind=kind, delay=delay)
    n_out = draw(st.integers(1, 3))
    if kind != "dense" and len(shape) > 1:
        groups = draw(st.sampled_from([1, shape[0]]))
        size = (n_out * groups, shape[0] // groups, *[2] * (len(shape) - 1))
        of_kind = Conv2d if len(shape) == 3 else Conv1d
        stride, padding, bias = draw(st.integers(1, 2)), draw(st.integers(0, 1)), draw(st.sampled_from([None, 0.1]))
        return of_kind(source, target, _weights(rng, size), bias, stride, padding, 1, groups, delay)
    n_source, n_target = prod(shape), draw(st.integers(1, 9))
    if draw(st.integers(0, 3)) == 0:
        n = draw(st.integers(1, 12))
        pre, post = rng.integers(0, n_source, n), rng.integers(0, n_target, n)
        return Sparse(source, target, pre, post, _weights(rng, n), delay, rng.normal(0, 0.1, n_target))
    bias = draw(st.sampled_from([None, rng.normal(0, 0.2, n_target).astype(np.float32)]))
    return Dense(source, target, _weights(rng, (n_target, n_source)), bias, delay)


def _weights(rng, shape) -> np.ndarray:
    return rng.normal(0.25, 0.5, shape).astype(np.float32)


@st.composite
def _neurons(draw, rng, shape: tuple[int, ...], without_leak: bool) -> NeuronSpec:
    """Draw leaky integrate-and-fire neurons of frameworks, and rarely any other neuron."""
    if without_leak:
        return NeuronSpec(strict=False, reset=draw(st.sampled_from(["zero", "subtract"])), v_min=-2.0, clamp="reset")
    if draw(st.integers(0, 15)) == 0:
        return draw(float_networks.specs(rng, shape) if shape else st.just(NeuronSpec(bias=0.4)))
    return NeuronSpec(
        threshold=draw(st.sampled_from([1.0, 1.0, 0.3])),
        strict=draw(st.booleans()),
        spikes=draw(st.sampled_from(["binary", "binary", "binary", "multi", "bipolar"])),
        fires=draw(st.integers(0, 5)) > 0,
        reset=draw(st.sampled_from(["zero", "subtract"])),
        beta=draw(st.sampled_from([1.0, 0.9, 0.5, 0.0])),
        alpha=draw(st.sampled_from([None, None, 0.8])),
        refractory=draw(st.sampled_from([0, 0, 0, 2])),
        bias=draw(st.sampled_from([0.0, 0.0, 0.2])),
        v_min=draw(st.sampled_from([None, None, None, -1.0, 0.0])),
    )
