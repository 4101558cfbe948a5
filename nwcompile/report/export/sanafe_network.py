"""SANA-FE network: the network and mapping of a program as snn.yaml (see `nwcompile.report.export.sanafe`)."""

import json
from collections.abc import Iterator
from itertools import groupby

import numpy as np

from nwcompile.cost.traffic.memory import stored_kind
from nwcompile.cost.traffic.wiring import connection_wiring
from nwcompile.errors import ModelError, OptionError
from nwcompile.ir.connection import Connection, Conv2d, Dense, pair, synapse_list
from nwcompile.ir.network import Network
from nwcompile.ir.program import SYNAPSE_KINDS, Program

ERROR_CODE = "NW7102"
UNIT = 64  # A membrane unit of SANA-FE is 64 units here, as its neurons round to 1/64.
NEVER = 1e30  # A threshold that no membrane reaches, for a layer that does not fire.


def network_lines(program: Program, x: dict[str, np.ndarray]) -> tuple[list[str], int]:
    """The lines of snn.yaml, and the largest number of input lines on a tile.

    A layer is a group of its neurons in order. An input has a group for every tile whose cores it feeds, with the lines
    that feed them. `x`: spikes [T, n] of each input.
    """
    group = _choose_names(program.network)
    inputs = list(_split_inputs(program, x, group))
    groups, edges, mappings = [], [], _mapping_lines(program, group)
    for name in program.network.layers:
        groups += _group_lines(program, name, group[name])
    for c in program.network.connections:
        if c.source in program.network.layers:
            edges.append(_edge_line(program.network, c, group))
    n_lines: dict[int, int] = {}
    for name, tile, lines, into in inputs:
        first = n_lines.setdefault(tile, 0)
        n_lines[tile] += len(lines)
        spikes = x[name][:, lines].T.astype(int).tolist()
        where = f"{group[name]}_tile{tile}"
        groups += [
            f"    - name: {where}",
            "      attributes: {soma_hw_name: 'line[0]', log_spikes: false}",
            "      neurons:",
            *(f"        - {i}: {{spikes: {json.dumps(s)}}}" for i, s in enumerate(spikes)),
        ]
        core = f"{tile}.{program.chip.noc.cores_per_router}"
        units = range(first, first + len(lines))
        mappings += [f"  - {where}.{i}: {{core: '{core}', soma: 'line[{unit}]'}}" for i, unit in enumerate(units)]
        edges += [_sparse_line(where, group[target], *synapses) for target, *synapses in into]
    head = ["network:", "  name: network", "  groups:", *groups, "  edges:", *edges, "mappings:", *mappings, ""]
    return head, max(n_lines.values(), default=0)


def _choose_names(network: Network) -> dict[str, str]:
    """A name of letters, digits and underscores for every input and layer."""
    names: dict[str, str] = {}
    for i, name in enumerate(network.offsets):
        word = "".join(c if c.isalnum() and c.isascii() else "_" for c in name)
        names[name] = f"n{i}_{word}" if word != name or word[0].isdigit() or word in names.values() else word
    return names


def _group_lines(program: Program, name: str, group: str) -> list[str]:
    """The lines of one layer: common attributes, then those that differ, by runs of equal neurons."""
    node = program.network.node(name)
    spec, shift = node.neuron, node.neuron.fixed.shift_bits
    of = {field: spec.array(field, node.shape).reshape(-1) for field in ("threshold", "decay_v", "bias", "bias_u")}
    top = 1 << spec.fixed.decay_bits
    fields = {
        "threshold": (of["threshold"] - (not spec.strict)) / UNIT if spec.fires else np.full(node.n_neurons, NEVER),
        "leak_decay": (top - of["decay_v"]) / top,
        "bias": (of["bias"] + (of["bias_u"] << shift)) / UNIT,
    }
    if spec.reset == "value":
        fields["reset"] = spec.array("reset_value", node.shape).reshape(-1) / UNIT
    if spec.v_min is not None:
        fields["reverse_threshold"] = spec.array("v_min", node.shape).reshape(-1) / UNIT
    if np.max(spec.refractory) > 1:
        fields["refractory_delay"] = spec.array("refractory", node.shape).reshape(-1)
    shared = {
        "soma_hw_name": "lif",
        "synapse_hw_name": _synapse_unit(program, name),
        "log_spikes": "true",
        "reset_mode": {"zero": "hard", "value": "hard", "subtract": "soft", "none": "none"}[spec.reset],
    }
    if spec.v_min is not None:
        shared["reverse_reset_mode"] = "saturate"
    alike = {f: values for f, values in fields.items() if (values == values[0]).all()}
    shared |= {f: repr(values[0].item()) for f, values in alike.items()}
    varied = [f for f in fields if f not in alike]
    rows = zip(*(fields[f].tolist() for f in varied), strict=True) if varied else [()] * node.n_neurons
    lines = [f"    - name: {group}", f"      attributes: {{{', '.join(f'{k}: {v}' for k, v in shared.items())}}}",
             "      neurons:"]  # fmt: skip
    for first, last, row in _find_runs(rows):
        varying = ", ".join(f"{f}: {value!r}" for f, value in zip(varied, row, strict=True))
        lines.append(f"        - {_range_text(first, last)}: {{{varying}}}")
    return lines


def _synapse_unit(program: Program, name: str) -> str:
    """The unit that reads the synapses of a layer, by kind. Raises ModelError for kinds with different costs."""
    chip, kind_at_cost = program.chip, {}
    for c in program.network.into(name):
        kind = SYNAPSE_KINDS[stored_kind(connection_wiring(program.network, c).kind, chip)]
        kind_at_cost[getattr(chip.cost, f"synop_{kind}_cycles"), getattr(chip.energy, f"synop_{kind}_pj")] = kind
    if len(kind_at_cost) > 1:
        raise ModelError(
            f"layer {name!r} reads {' and '.join(kind_at_cost.values())} synapses, which cost differently on "
            f"{chip.name}; "
            "SANA-FE's file has one kind for a layer"
        )
    return next(iter(kind_at_cost.values()), SYNAPSE_KINDS[0])


def _mapping_lines(program: Program, group: dict[str, str]) -> list[str]:
    """The lines that map runs of neurons, in the cores' visiting order; tiles are numbered along y first."""
    rows, offsets, layers = program.chip.noc.rows, program.network.offsets, list(program.network.layers)
    place = [f"{x * rows + y}.{port}" for x, y, port in program.mapping.site_of.tolist()]
    order, lines = program.visiting_order, []
    core, layer = program.core_of[order], np.searchsorted([offsets[name] for name in layers], order, "right") - 1
    starts = np.flatnonzero(
        (np.diff(order, prepend=-2) != 1) | (np.diff(core, prepend=-1) != 0) | (np.diff(layer, prepend=-1) != 0)
    )
    for first, end in zip(starts.tolist(), [*starts[1:].tolist(), len(order)], strict=True):
        name = layers[layer[first]]
        run = _range_text(int(order[first]) - offsets[name], int(order[end - 1]) - offsets[name])
        lines.append(f"  - {group[name]}.{run}: {{core: '{place[core[first]]}'}}")
    return lines


def _split_inputs(program: Program, x: dict[str, np.ndarray], group) -> Iterator[tuple]:
    """(input, tile, its lines that feed the tile int64[...], [(target, source int64, target neuron, weight), ...])."""
    network, rows = program.network, program.chip.noc.rows
    tile_of = program.mapping.site_of[:, 0] * rows + program.mapping.site_of[:, 1]
    for name in network.inputs:
        if not np.isin(x[name], (0, 1)).all():
            raise OptionError(f"input {name!r} has values other than 0 and 1; SANA-FE's input neurons spike or do not")
        synapses_into = [(c.target, *list_synapses(network, c)) for c in network.out_of(name)]
        tiles = [tile_of[program.mapping.core_of[target][post]] for target, _, post, _ in synapses_into]
        for tile in np.unique(np.concatenate([np.zeros(0, np.int64), *tiles])).tolist():
            here = [t == tile for t in tiles]
            lines = np.unique(np.concatenate([row[1][h] for row, h in zip(synapses_into, here, strict=True)]))
            into = [
                (target, np.searchsorted(lines, pre[h]), post[h], weight[h] * _unit_scale(network, target))
                for (target, pre, post, weight), h in zip(synapses_into, here, strict=True)
                if h.any()
            ]
            yield name, tile, lines, into


def _unit_scale(network: Network, target: str) -> float:
    """The amount that a weight of 1 adds to a membrane of SANA-FE."""
    scale = (1 << network.node(target).neuron.fixed.shift_bits) / UNIT
    return int(scale) if scale >= 1 else scale


def _edge_line(network: Network, connection: Connection, group: dict[str, str]) -> str:
    """One connection between layers, in its most compact form; conv2d there has no padding, dilation or groups."""
    scale, ends = _unit_scale(network, connection.target), f"{group[connection.source]} -> {group[connection.target]}"
    if isinstance(connection, Dense):
        return (
            f"    - {ends}: {{type: dense, weight: {_list(np.asarray(connection.weight).T.astype(np.int64) * scale)}}}"
        )
    if (
        isinstance(connection, Conv2d)
        and pair(connection.padding) == (0, 0)
        and pair(connection.dilation) == (1, 1)
        and connection.groups == 1
    ):
        weight = np.asarray(connection.weight).astype(np.int64) * scale
        (channels, height, width), _ = connection.kernel_geometry(network.node(connection.source).shape)
        n_out, _, rows, columns = weight.shape
        down, right = pair(connection.stride)
        return (
            f"    - {ends}: {{type: conv2d, input_width: {width}, input_height: {height}, input_channels: {channels}, "
            f"kernel_width: {columns}, kernel_height: {rows}, kernel_count: {n_out}, stride_width: {right}, "
            f"stride_height: {down}, weight: {_list(weight.transpose(2, 3, 1, 0))}}}"
        )
    pre, post, weight = list_synapses(network, connection)
    return _sparse_line(group[connection.source], group[connection.target], pre, post, weight * scale)


def _sparse_line(source: str, target: str, pre: np.ndarray, post: np.ndarray, weight: np.ndarray) -> str:
    pairs = json.dumps(np.stack([pre, post], 1).tolist())
    return f"    - {source} -> {target}: {{type: sparse, source_target_pairs: {pairs}, weight: {_list(weight)}}}"


def list_synapses(network: Network, connection: Connection) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Source, target and weight of every stored synapse of a connection, int64[synapse] each."""
    pre, post, place = synapse_list(connection, network.node(connection.source).shape)
    return pre.astype(np.int64), post.astype(np.int64), np.ravel(connection.weight).astype(np.int64)[place]


def _find_runs(values) -> Iterator[tuple]:
    """Yield (first, last, value) of every run of equal values."""
    first = 0
    for value, run in groupby(values):
        n = len(list(run))
        yield first, first + n - 1, value
        first += n


def _range_text(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}..{last}"


def _list(values: np.ndarray) -> str:
    return json.dumps(np.asarray(values).reshape(-1).tolist())
