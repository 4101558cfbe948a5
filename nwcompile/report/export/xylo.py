"""Xylo: export a program as the arrays of the vendor's configuration tool, with the expected behavior of the chip.

The names are the arguments of `config_from_specification` in SynSense's rockpool (documented there for XyloAudio 2,
XyloAudio 3 and XyloIMU), so `config_from_specification(**numpy.load("specification.npz"))` makes the configuration.
"""

import io
import json
from pathlib import Path
from typing import NamedTuple

import numpy as np

from nwcompile.errors import ChipError, ModelError
from nwcompile.ir.connection import synapse_list
from nwcompile.ir.program import Program
from nwcompile.sim import simulate
from nwcompile.sim.inputs import add_sample_axis

ERROR_CODE = "NW7103"
UNREACHED = (1 << 15) - 1  # The threshold of outputs whose membrane is read instead of spikes.
WIDEST_SHIFT = 7  # An 8-bit weight that is shifted further does not fit the 16 bits of a current.
FED, FILLS, BOTH, NEITHER, FEEDS = range(
    5
)  # The order of hidden neurons: what inputs feed first, what outputs read last.
README = """\
{name}: {n_inputs} input lines, {n_hidden} hidden neurons, {n_outputs} outputs for {chip}, written by nwcompile.
specification.npz, .json  the arguments of rockpool's config_from_specification for this chip, in Python:
                          config, is_valid, message = config_from_specification(**numpy.load("specification.npz"))
neurons.json              which input channel, hidden neuron and output every line and neuron of the network is
raster.npy                events [step, input channel] of a sample, after an empty first step (given with --input)
expected.npz              what the chip does with them, step by step: spikes, membranes and currents as the vendor's
                          simulator names them (sim_rec_spikes, sim_out_spikes, sim_v, sim_v_out, sim_i, sim_i_out)
Load the configuration, reset the chip's state, send the raster, and record what of these arrays the chip tells, under
the same names; `nwcompile verify DIR --log FILE.npz` says whether that is what the program does, or where it is not.
{warning}
"""
PROVED = "No sum of these events depends on the order in which its spikes arrive."
OPEN = (
    "{n} sums of these events may depend on the order in which their spikes arrive: from step {first} on the chip may "
    "do something else (nwcompile: Run.order_dependent)."
)
UNKNOWN = (
    "Whether sums saturate, and so depend on the order of spikes, is known for a sample only: give one with --input."
)


class Pool(NamedTuple):
    """The positions of a program's neurons on the chip."""

    inputs: dict[str, np.ndarray]  # by input: the channel of each line
    hidden: dict[str, np.ndarray]  # by layer: the index of each neuron
    outputs: dict[str, np.ndarray]  # likewise


def xylo_files(program: Program, folder, x: dict[str, np.ndarray] | None = None) -> dict[Path, bytes]:
    """Render the files of a program for a Xylo chip, by path. `x`: events [T, n] of one sample by input name, or None.

    Raises ChipError for a chip whose neurons are not a pool with decays by shift, and ModelError for features that the
    chip does not support.
    """
    _check_program(program)
    pool = assign_pool(program)
    arrays = build_specification(program, pool)
    files = {
        "specification.npz": _pack_npz(arrays),
        "specification.json": _to_json({name: array.tolist() for name, array in arrays.items()}),
        "neurons.json": _to_json(
            {kind: {n: i.tolist() for n, i in places.items()} for kind, places in pool._asdict().items()}
        ),
    }
    warning = UNKNOWN
    if x is not None:
        raster, expected, warning = simulate_sample(program, pool, x)
        files |= {"raster.npy": _pack_npy(raster), "expected.npz": _pack_npz(expected)}
        files["sample.npz"] = _pack_npz(add_sample_axis(program.network, x))
    sizes = [sum(len(index) for index in places.values()) for places in pool]
    text = README.format(
        name=Path(folder).name, chip=program.chip.name, n_inputs=sizes[0], n_hidden=sizes[1], n_outputs=sizes[2],
        warning=warning,
    )  # fmt: skip
    files |= {"net.nwc": program.data, "README.txt": text.encode()}
    return {Path(folder) / name: data for name, data in files.items()}


def xylo_note(program: Program) -> str:
    """One sentence about the remaining step in the vendor's tool."""
    return (
        "config_from_specification(**numpy.load('specification.npz')) of rockpool makes the chip's configuration; "
        "spikes are those of the vendor's simulator, no board was at hand"
    )


def _check_program(program: Program) -> None:
    if program.chip.core.max_outputs is None or not program.chip.fixed_point.shifts:
        raise ChipError(
            f"{program.chip.name}: not a chip of the Xylo family, whose decays are shifts (state.decay) and whose "
            "outputs are separate (core.max_outputs); compile for xylo_audio2, xylo_audio3 or xylo_imu"
        )
    if program.host is not None:
        raise ModelError(
            "the host computes spikes or biases of every sample; a Xylo chip is configured once, so give it spikes as "
            "input"
        )
    if program.schedule.period != 1:
        raise ModelError("the program runs in phases, and a Xylo chip runs all layers at once; compile it pipelined")
    for c, delay in zip(program.network.connections, program.schedule.delay, strict=True):
        if delay != 1:
            raise ModelError(
                f"connection {c.source!r} -> {c.target!r} acts {delay} hardware steps after its spike; on a Xylo chip "
                "all act after one"
            )


def assign_pool(program: Program) -> Pool:
    """Assign positions to all neurons: hidden neurons that inputs feed come first, those that feed outputs last.

    Chips with fewer input and output rows than hidden neurons have these rows for the first and the last neurons.
    Neurons that do both are at the first positions that outputs can read; those that do neither fill the gap before.
    """
    network = program.network
    hidden = [name for name in network.layers if name not in network.outputs]
    first = {}
    n = 0
    for name in hidden:
        first[name] = n
        n += network.node(name).n_neurons
    is_fed, feeds = np.zeros(n, bool), np.zeros(n, bool)
    for c in network.connections:
        pre, post, place = synapse_list(c, network.node(c.source).shape)
        kept = np.asarray(c.weight).reshape(-1)[place] != 0
        if c.source in network.inputs:
            is_fed[first[c.target] + post[kept]] = True
        elif c.target in network.outputs:
            feeds[first[c.source] + pre[kept]] = True
    group = np.where(is_fed, np.where(feeds, BOTH, FED), np.where(feeds, FEEDS, NEITHER))
    n_before = n - (program.chip.core.max_output_sources or n) - np.count_nonzero(group == FED)
    group[np.flatnonzero(group == NEITHER)[: max(0, n_before)]] = FILLS
    order = np.argsort(group, kind="stable")
    index = np.empty(n, np.int64)
    index[order] = np.arange(n)
    return Pool(
        inputs=_number_neurons(network, network.inputs),
        hidden={name: index[first[name] : first[name] + network.node(name).n_neurons] for name in hidden},
        outputs=_number_neurons(network, network.outputs),
    )


def _number_neurons(network, names) -> dict[str, np.ndarray]:
    """Number the neurons of these nodes consecutively."""
    places, n = {}, 0
    for name in names:
        places[name] = np.arange(n, n + network.node(name).n_neurons)
        n += network.node(name).n_neurons
    return places


def build_specification(program: Program, pool: Pool) -> dict[str, np.ndarray]:
    """The arguments of `config_from_specification` for this chip.

    Raises ModelError for weights that 8 bits and a shift cannot represent.
    """
    sizes = {kind: sum(len(index) for index in getattr(pool, kind).values()) for kind in Pool._fields}
    arrays = {}
    groups = {"in": ("inputs", "hidden"), "rec": ("hidden", "hidden"), "out": ("hidden", "outputs")}
    for group, (source, target) in groups.items():
        weights = np.zeros((sizes[source], sizes[target]), np.int64)
        for c in program.network.connections:
            if c.source in getattr(pool, source) and c.target in getattr(pool, target):
                pre, post, place = synapse_list(c, program.network.node(c.source).shape)
                at = getattr(pool, source)[c.source][pre], getattr(pool, target)[c.target][post]
                np.add.at(weights, at, np.asarray(c.weight).reshape(-1)[place].astype(np.int64))
        mantissa, shift = _split_shift(weights, group)
        arrays[f"weights_{group}"], arrays[f"weight_shift_{group}"] = mantissa, np.asarray(shift)
    core = program.chip.core
    _check_rows(arrays, core.max_input_targets, core.max_output_sources)
    room = int(program.chip.max_neurons.sum()) - (core.max_outputs or 0)
    if core.max_input_targets is not None and core.max_input_targets < room:
        # The tool of such a chip (XyloAudio 3, XyloIMU) expects an axis of synaptic currents. The tool of XyloAudio 2
        # expects this axis only for two currents.
        arrays["weights_in"] = arrays["weights_in"][:, : core.max_input_targets, None]
        arrays["weights_rec"] = arrays["weights_rec"][:, :, None]
    for suffix, bias, places in (("", "bias_hidden", pool.hidden), ("_out", "bias_out", pool.outputs)):
        for name, field in ((f"dash_mem{suffix}", "decay_v"), (f"dash_syn{suffix}", "decay_u"),
                            (f"threshold{suffix}", "threshold"), (bias, "bias")):  # fmt: skip
            arrays[name] = _values_by_index(program, places, field)
    has_bias = arrays["bias_hidden"].any() or arrays["bias_out"].any()
    return {name: array for name, array in arrays.items() if has_bias or not name.startswith("bias")}


def _check_rows(arrays: dict[str, np.ndarray], n_first: int | None, n_last: int | None) -> None:
    """Raise ModelError unless inputs reach only the first hidden neurons, and outputs read only the last ones."""
    n = len(arrays["weights_rec"])
    reached, read = np.flatnonzero(arrays["weights_in"].any(0)), np.flatnonzero(arrays["weights_out"].any(1))
    if reached.max(initial=0) >= (n_first or n) or read.min(initial=n) < n - (n_last or n):
        raise ModelError(
            f"inputs feed hidden neurons up to number {reached.max(initial=0)} of {n}, and outputs read them from "
            f"number {read.min(initial=n)} on; on this chip inputs reach the first {n_first} and outputs read the last "
            f"{n_last}; compile the network again"
        )


def _values_by_index(program: Program, places: dict[str, np.ndarray], field: str) -> np.ndarray:
    values = np.zeros(sum(len(index) for index in places.values()), np.int64)
    for name, index in places.items():
        node = program.network.node(name)
        numbers = node.neuron.array(field, node.shape).reshape(-1)
        values[index] = UNREACHED if field == "threshold" and not node.neuron.fires else numbers
    return values


def _split_shift(weights: np.ndarray, group: str) -> tuple[np.ndarray, int]:
    """Split weights into int8 mantissas and one common shift."""
    for shift in range(WIDEST_SHIFT + 1):
        mantissa = weights >> shift
        if (mantissa << shift == weights).all() and np.abs(mantissa + 0.5).max(initial=0) < 128:
            return mantissa.astype(np.int8), shift
    raise ModelError(f"the weights of group {group!r} are not those of 8 bits and one shift; compile the network again")


def simulate_sample(
    program: Program, pool: Pool, sample: dict[str, np.ndarray]
) -> tuple[np.ndarray, dict[str, np.ndarray], str]:
    """Simulate a sample: return its raster, the expected recordings, and whether the order of spikes matters, as text.

    The raster starts with an empty row: input of step t is in row t + 1, as it takes effect in hardware step t + 1.
    """
    n_steps = len(next(iter(sample.values()))) + 1
    raster = np.zeros((n_steps, sum(len(channels) for channels in pool.inputs.values())), np.int64)
    for name, channels in pool.inputs.items():
        raster[1:, channels] = sample[name]
    late = {name: np.concatenate([a, np.zeros_like(a[:1])]) for name, a in sample.items()}
    run = simulate(program, add_sample_axis(program.network, late), "sequence", window="hardware", record="all")
    expected = {}
    for name, places, suffix in (("rec", pool.hidden, ""), ("out", pool.outputs, "_out")):
        of = {f"sim_{name}_spikes": run.spikes,
              **{f"sim_{word}{suffix}": {layer: s[key] for layer, s in run.states.items()} for word, key in
                 (("v", "v"), ("i", "u"))}}  # fmt: skip
        for key, by_layer in of.items():
            expected[key] = np.zeros((n_steps, sum(len(index) for index in places.values())), np.int64)
            for layer, index in places.items():
                expected[key][:, index] = by_layer[layer][0].reshape(n_steps, -1)
    sums = np.concatenate([*(run.order_dependent or {}).values()])
    text = OPEN.format(n=len(sums), first=int(sums[:, 1].min())) if len(sums) else PROVED
    return raster, expected, text


def _pack_npz(arrays: dict[str, np.ndarray]) -> bytes:
    stored = io.BytesIO()
    np.savez_compressed(stored, **arrays)  # type: ignore[arg-type]
    return stored.getvalue()


def _pack_npy(array: np.ndarray) -> bytes:
    stored = io.BytesIO()
    np.save(stored, array, allow_pickle=False)
    return stored.getvalue()


def _to_json(value) -> bytes:
    return (json.dumps(value) + "\n").encode()
