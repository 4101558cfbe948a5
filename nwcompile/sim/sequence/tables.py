"""Flat arrays of a fixed-point network for the kernels."""

from typing import NamedTuple

import numpy as np

from nwcompile.errors import BackendError
from nwcompile.ir.connection import Conv2d, Dense, pair
from nwcompile.ir.flat import csr_groups, csr_offset
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import OVERFLOWS, RESET_TIMINGS, RESETS, SPIKES
from nwcompile.ir.neuron_programs.program import NeuronProgram
from nwcompile.kernels.cores.neuron import RULE, Neurons, States
from nwcompile.kernels.cores.programs.build import build_module
from nwcompile.kernels.cores.programs.call import PROGRAM, Programs
from nwcompile.kernels.cores.synapse import CONNECTION, CONV, DENSE, SPARSE, Drive, Members, Synapses
from nwcompile.sim.reference.neuron_step import LONG_AGO, NO_CLAMP
from nwcompile.sim.reference.program_step import stays_at_rest

LARGEST_WEIGHT = (1 << 31) - 1
NO_CAP = 1 << 40  # More spikes than a neuron can fire at once.


def neuron_tables(network: Network, layers) -> Neurons:
    """Build the parameters of all neurons of `layers` in order; neuron programs have zeros."""
    made = [_layer_rules(network.node(name)) for name in layers]
    first = csr_offset([len(rules) for rules, _ in made])
    rule_of = [(first[i] + part).astype(np.int32) for i, (_, part) in enumerate(made)]
    return Neurons(_join_arrays([rules for rules, _ in made], RULE), _join_arrays(rule_of, np.int32))


def _layer_rules(node) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct RULEs of a layer, and the rule of every neuron, int64[neuron]."""
    spec, n = node.neuron, node.n_neurons
    if isinstance(spec, NeuronProgram):
        return np.zeros(1, RULE), np.zeros(n, np.int64)
    numbers = {name: spec.array(name, node.shape).reshape(-1) for name in ("threshold", "decay_u", "decay_v")}
    numbers |= {name: spec.array(name, node.shape).reshape(-1) for name in ("bias_u", "bias", "refractory")}
    if spec.reset == "value":
        numbers["reset_value"] = spec.array("reset_value", node.shape).reshape(-1)
    if spec.v_min is not None:
        numbers["v_min"] = spec.array("v_min", node.shape).reshape(-1)
    first, rule_of = _distinct_rows(n, numbers.values())
    rules = np.zeros(len(first), RULE)
    rules["v_min"] = NO_CLAMP
    for name, number in numbers.items():
        rules[name] = number[first]
    rules["max_spikes"] = spec.max_spikes or NO_CAP
    rules["shifts"] = spec.fixed.shifts
    rules["strict"], rules["fires"] = spec.strict, spec.fires
    rules["floor_resets"] = spec.clamp == "reset" and spec.v_min is not None
    rules["overflow"] = OVERFLOWS.index(spec.fixed.overflow)
    rules["spikes"] = SPIKES.index(spec.spikes)
    rules["reset"] = RESETS.index(spec.reset)
    rules["timing"] = RESET_TIMINGS.index(spec.reset_timing)
    rules["state_bits"], rules["decay_bits"] = spec.fixed.state_bits, spec.fixed.decay_bits
    rules["shift"] = spec.fixed.shift_bits
    is_quiet = ~rules["fires"] | (rules["threshold"] > 0) | rules["strict"] & (rules["threshold"] == 0)
    is_quiet &= spec.spikes != "gated"  # gated neurons store their spike count in the step counter
    rules["sleeps"] = is_quiet & (rules["bias_u"] == 0) & (rules["bias"] == 0) & (rules["v_min"] <= 0)
    return rules, rule_of


def _distinct_rows(n: int, columns) -> tuple[np.ndarray, np.ndarray]:
    """Return the first index of every distinct row of the columns int64[n], and the row number of each entry, int64[n].

    It works column by column: most columns are constant, and sorting whole rows takes many times as long.
    """
    first, combination = np.zeros(min(n, 1), np.int64), np.zeros(n, np.int64)
    for column in columns:
        if n and (column == column[0]).all():
            continue
        numbers, place = np.unique(column, return_inverse=True)
        key = combination * len(numbers) + place.reshape(-1)
        _, first, combination = np.unique(key, return_index=True, return_inverse=True)
        combination = combination.reshape(-1)
    return first, combination


def program_tables(network: Network, layers, by_address: bool = True) -> Programs:
    """Build the tables of the programs in `layers`; neurons are numbered one layer after the other.

    `by_address`: kernels for all kinds of neurons call the steps by address, not only their generated kernels.
    """
    nodes = [network.node(name) for name in layers]
    first = csr_offset([node.n_neurons for node in nodes])
    table = np.zeros(len(nodes), PROGRAM)
    layer_of, still = np.full(first[-1], -1, np.int32), np.zeros(first[-1], bool)
    given: list[np.ndarray] = [np.zeros(0, np.int64)]
    initial: list[np.ndarray] = [np.zeros(0, np.int64)]
    for i, (entry, node) in enumerate(zip(table, nodes, strict=True)):
        program, part = node.neuron, slice(first[i], first[i + 1])
        if isinstance(program, NeuronProgram):
            layer_of[part] = i
            still[part] = stays_at_rest(program, node.shape).reshape(-1)
            entry["address"] = build_module(program.structure).c_step.address if by_address else 0
            entry["first"], entry["n"], entry["n_states"] = first[i], node.n_neurons, len(program.states)
            entry["n_inputs"] = node.n_inputs
            entry["given"], entry["word"] = (sum(map(len, words)) for words in (given, initial))
            given += [program.array(name, node.shape).reshape(-1) for name in program.parameters]
            given += [program.table_entries]
            initial += [program.array(name, node.shape).reshape(-1) for name in program.state_names]
            initial.append(np.zeros((node.n_inputs - 1) * node.n_neurons, np.int64))
    numbers, words = np.concatenate(given), np.concatenate(initial)
    table["given"] = numbers.ctypes.data + table["given"] * numbers.itemsize
    made = Programs(layer=table, layer_of=layer_of, given=numbers, rests=still, state=words, initial=words)
    return copy_programs(made)


def copy_programs(made: Programs, state: np.ndarray | None = None) -> Programs:
    """Copy programs with new initial states, or with the given states int64[word], which are shared, not copied."""
    state = made.initial.copy() if state is None else state
    table = made.layer.copy()
    table["state"] = state.ctypes.data + table["word"] * state.itemsize
    return made._replace(layer=table, state=state)


def program_states(made: Programs, node, words: np.ndarray, first: int) -> dict[str, np.ndarray]:
    """Return the states [..., n] by name from words [..., word], for a layer whose first neuron is `first`."""
    entry = made.layer[made.layer_of[first]]
    n = node.n_neurons
    begins = (int(entry["word"]) + n * s for s in range(len(node.neuron.states)))
    return {name: words[..., at : at + n] for name, at in zip(node.neuron.state_names, begins, strict=True)}


def resting_states(n: int) -> States:
    """Return the initial state of n neurons."""
    return States(np.zeros(n, np.int64), np.zeros(n, np.int64), np.full(n, LONG_AGO))


def empty_drive(n_slots: int, synapses: Synapses) -> Drive:
    """Return an empty buffer of synaptic sums in flight."""
    shape = (n_slots, int(synapses.sum_first[-1]))
    return Drive(np.zeros(shape, np.int64), np.zeros(shape, np.uint8))


class SimState(NamedTuple):
    """The state of a simulation between two steps. The first axis of each array is the sample."""

    first_step: int  # the next step
    states: States
    drive: Drive | None  # sums in flight between the neurons; None if they are not connected
    words: np.ndarray  # int64[sample, word]: `Programs.state`

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """All arrays of the state by name, without the step number."""
        drive = {} if self.drive is None else self.drive._asdict()
        return {**self.states._asdict(), **drive, "words": self.words}

    def sample_state(self, b: int, made: Programs) -> tuple[States, Drive | None, Programs]:
        """Return views of sample b for kernels that update it in place."""
        drive = None if self.drive is None else Drive(*(a[b] for a in self.drive))
        return States(*(a[b] for a in self.states)), drive, copy_programs(made, self.words[b])


def initial_state(n_samples: int, n_neurons: int, drive: Drive | None, made: Programs) -> SimState:
    """Return the initial state of samples. `drive`: empty sums of one sample."""

    def of_all(array: np.ndarray) -> np.ndarray:
        return np.repeat(array[None], n_samples, 0)

    drive = None if drive is None else Drive(*map(of_all, drive))
    return SimState(0, States(*map(of_all, resting_states(n_neurons))), drive, of_all(made.initial))


def synapse_tables(network: Network, delays, mapping: Mapping | None = None) -> Synapses:
    """Build the tables of all connections of an effective network; `delays[i]` is in steps of the caller.

    With a mapping, the rows of sparse connections are sorted by the core of their targets.
    """
    names = list(network.offsets)
    nodes = [network.node(name) for name in names]
    index = {name: i for i, name in enumerate(names)}
    offset = csr_offset([node.n_neurons for node in nodes])
    sums = csr_offset([node.n_sums for node in nodes])
    leaving = [[i for i, c in enumerate(network.connections) if c.source == name] for name in names]
    table = np.zeros(len(network.connections), CONNECTION)
    sparse = [c for c in network.connections if not isinstance(c, Dense | Conv2d)]
    # allocated once and filled in place, as the synapses of large networks do not fit into memory twice
    weights = np.empty(sum(np.size(c.weight) for c in network.connections), np.int32)
    rows = np.empty(sum(network.node(c.source).n_neurons + 1 for c in sparse), np.int64)
    posts = np.empty(sum(np.size(c.weight) for c in sparse), np.int32)
    n_weights = n_rows = n_posts = n_places = 0
    for entry, c, delay in zip(table, network.connections, delays, strict=True):
        cores = None if mapping is None else _cores_of_sums(network, mapping, c.target)
        kind, weight, row, post = _flatten_connection(network, c, cores)
        entry["kind"], entry["target"], entry["delay"] = kind, index[c.target], delay
        entry["weight_first"], entry["row_first"], entry["place_first"] = n_weights, n_rows, n_places
        rows[n_rows : n_rows + len(row)] = row + n_posts
        weights[n_weights : n_weights + len(weight)] = weight
        posts[n_posts : n_posts + len(post)] = post
        n_weights += len(weight)
        n_rows += len(row)
        n_posts += len(post)
        if isinstance(c, Conv2d):
            n_places += _set_geometry(entry, c, network.node(c.source).shape) + 1
    return Synapses(
        node_of=csr_groups(offset).astype(np.int32),
        node_first=offset,
        sum_first=sums,
        sum_of=np.arange(offset[-1]) + np.repeat(sums[:-1] - offset[:-1], np.diff(offset)),
        fan_out=csr_offset([len(edges) for edges in leaving]),
        leaving=np.array([edge for edges in leaving for edge in edges], np.int64),
        connection=table,
        row=rows,
        post=posts,
        weight=weights,
    )


def _join_arrays(parts, dtype) -> np.ndarray:
    return np.concatenate([*parts, np.zeros(0, dtype)]).astype(dtype, copy=False)


def _flatten_connection(network: Network, connection, cores):
    """Return kind, flat weights, row starts and targets of one connection."""
    nothing = np.zeros(0, np.int64)
    weight = np.asarray(connection.weight)
    if weight.size and np.abs(weight.astype(np.int64)).max() > LARGEST_WEIGHT:
        raise BackendError(
            f"connection {connection.source!r} -> {connection.target!r}: weights beyond 32 bits are not supported"
        )
    if isinstance(connection, Dense):
        return DENSE, np.ascontiguousarray(weight.T).reshape(-1).astype(np.int32), nothing, nothing
    if isinstance(connection, Conv2d):
        return CONV, np.moveaxis(weight, 0, -1).reshape(-1).astype(np.int32), nothing, nothing
    row, post, order = build_csr(connection, network.node(connection.source).n_neurons, cores)
    return SPARSE, weight[order].astype(np.int32), row, post


def build_csr(connection, n_source: int, cores: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sort a Sparse connection by source: row starts int64[source + 1], targets int32[synapse] and the order.

    Within a row, synapses keep their order, or are sorted by the core of their target, `cores` int32[target].
    """
    key = connection.pre
    if cores is not None:
        n_cores = int(cores.max(initial=0)) + 1
        key = np.array(key, np.int32 if n_source * n_cores < 1 << 31 else np.int64)
        key *= n_cores
        key += cores[connection.post]
    order = np.argsort(key, kind="stable")
    row = csr_offset(np.bincount(connection.pre, minlength=n_source))
    return row, np.asarray(connection.post)[order].astype(np.int32), order


def _set_geometry(entry: np.void, connection: Conv2d, source_shape) -> int:
    """Fill in the geometry of a convolution in a CONNECTION; return the number of pixels of its output map."""
    (_, entry["height"], entry["width"]), target = connection.kernel_geometry(source_shape)
    _, entry["group_in"], entry["kernel_height"], entry["kernel_width"] = np.shape(connection.weight)
    entry["channels_out"], entry["out_height"], entry["out_width"] = target
    entry["group_out"] = len(connection.weight) // connection.groups
    for name in ("stride", "padding", "dilation"):
        entry[f"{name}_y"], entry[f"{name}_x"] = pair(getattr(connection, name))
    return int(target[1] * target[2])


def member_tables(network: Network, mapping: Mapping) -> Members:
    """Group the synaptic sums of each node by core, and the output channels of each convolution by pixel and core."""
    parts, counts, core_of = [], [], []
    for name in network.offsets:
        if name not in mapping.core_of:
            counts.append(np.zeros(mapping.n_cores, np.int64))
            core_of.append(np.full(network.node(name).n_neurons, -1))
            continue
        cores = _cores_of_sums(network, mapping, name)
        core_of.append(cores)
        parts.append(np.argsort(cores, kind="stable").astype(np.int32))
        counts.append(np.bincount(cores, minlength=mapping.n_cores))
    offset = csr_offset(np.concatenate(counts))
    return Members(
        offset=offset,
        sum=_join_arrays(parts, np.int32),
        core_of=_join_arrays(core_of, np.int32),
        **_cell_tables(network, mapping),
        n_cores=mapping.n_cores,
    )


def _cores_of_sums(network: Network, mapping: Mapping, name: str) -> np.ndarray:
    """Return the core of every synaptic sum of a layer, int32[sum]."""
    return np.tile(mapping.core_of[name], network.node(name).n_inputs)


def _cell_tables(network: Network, mapping: Mapping) -> dict[str, np.ndarray]:
    """Build the fields of `Members` about cells (pixel and core), all convolutions one after the other."""
    places, cores, starts, channels = [], [], [], []
    n_cells = n_channels = 0
    for c in network.connections:
        if not isinstance(c, Conv2d):
            continue
        _, (co, rows, columns) = c.kernel_geometry(network.node(c.source).shape)
        core = _cores_of_sums(network, mapping, c.target).reshape(co, rows * columns).T
        order = np.argsort(core, 1, kind="stable")
        core = np.take_along_axis(core, order, 1)
        begins = np.concatenate([np.ones((len(core), 1), bool), core[:, 1:] != core[:, :-1]], 1)
        per_place = begins.sum(1)
        places.append(n_cells + csr_offset(per_place))
        cores.append(core[begins])
        starts.append(n_channels + np.flatnonzero(begins))
        channels.append(order.reshape(-1))
        n_cells += int(per_place.sum())
        n_channels += order.size
    starts.append(np.array([n_channels]))
    return {
        "place": _join_arrays(places, np.int64),
        "cell_core": _join_arrays(cores, np.int32),
        "cell_first": _join_arrays(starts, np.int64),
        "channel": _join_arrays(channels, np.int32),
    }
