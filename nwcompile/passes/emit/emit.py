"""Emit: turn a quantized, scheduled and mapped network into the Program that a chip is loaded with."""

import numpy as np

from nwcompile.cost.traffic.axons import build_axons
from nwcompile.errors import ModelError
from nwcompile.ir.activity import Activity
from nwcompile.ir.arithmetic import effective_weight
from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Connection, Conv2d, pair
from nwcompile.ir.flat import flat_cores
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.network import Network
from nwcompile.ir.program import WEIGHT_TYPES, Program
from nwcompile.ir.schedule import Schedule
from nwcompile.sim.reference.synaptic_sums import fold_bias


def emit(
    network: Network,
    schedule: Schedule,
    mapping: Mapping,
    chip: Chip,
    activity: Activity | None,
    manifest: dict,
    on_multi_spike: str = "refuse",
) -> Program:
    """Build and verify the Program of a fixed-point network: effective weights, biases folded into the neurons, axons.

    Weights are `clip(floor(mantissa * 2**exponent), weights.effective_limit)` in the smallest integer type that holds a
    connection's; exponents become 0, sign modes and weight bits stay for information. A connection's bias is in
    effective units and joins `bias_u`. `on_multi_spike` is that of `Options`. Raises ModelError if the network is not
    fixed-point or the mapping is incomplete.
    """
    if not network.is_fixed:
        raise ModelError("only a fixed-point network can be emitted; quantize it first")
    mapping.verify(network, chip)
    nodes = {name: fold_bias(network, node) for name, node in network.nodes.items()}
    connections = tuple(_make_effective(c, chip.weights.effective_limit) for c in network.connections)
    network = Network(network.inputs, nodes, connections)
    axons = build_axons(network, flat_cores(network, mapping), mapping.n_cores, chip)
    program = Program(
        network=network,
        schedule=schedule,
        mapping=mapping,
        chip=chip,
        axons=axons,
        activity=activity,
        manifest=manifest,
        on_multi_spike=on_multi_spike,
    )
    program.verify()
    return program


def _make_effective(connection: Connection, limit: int) -> Connection:
    weight = effective_weight(connection.weight, connection.exponent, limit)
    low, high = weight.min(initial=0), weight.max(initial=0)
    dtype = next(t for t in WEIGHT_TYPES if np.iinfo(t).min <= low and high <= np.iinfo(t).max)
    plain: dict = {}
    if isinstance(connection, Conv2d):  # pairs of Python ints, for the file's JSON
        plain = {name: pair(getattr(connection, name)) for name in ("stride", "padding", "dilation")}
        plain["source_shape"] = connection.source_shape and tuple(int(n) for n in connection.source_shape)
    return connection.replace(weight=weight.astype(dtype), exponent=0, bias=None, **plain)
