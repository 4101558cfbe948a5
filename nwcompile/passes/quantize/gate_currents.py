"""Gate currents: multiply currents by spikes exactly, on chips with programmable neurons and signed messages.

A matrix product whose one factor is single spikes and whose other factor is currents (sums of weighted spikes) becomes
three layers: one neuron sends each current as a number, one sends a large number (`lift`) for each spike, and one for
each product of two adds both. If that is more than any current, it sends the sum without `lift`, else nothing. A
constant in a current becomes weights of the spikes. Like senders of `send_sums`, they begin in float.
"""

import numpy as np
from scipy.sparse import coo_array, csr_array

from nwcompile.errors import FitError, Violation
from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Connection, MatMul, Sparse
from nwcompile.ir.manifest import EXACT, Change
from nwcompile.ir.network import Network, Node
from nwcompile.ir.neuron_programs.program import LARGEST_OUTPUT, NeuronProgram, Operation
from nwcompile.ir.options import Options
from nwcompile.passes.analyze.nonlinear import can_send_sums, find_products, gated_factor, n_with_pairs
from nwcompile.passes.analyze.state_range import largest_sums
from nwcompile.passes.prepare.fold import constant_offset, linear_map, to_matrix
from nwcompile.passes.prepare.normalize import normalize
from nwcompile.passes.quantize.send_sums import SUM, build_sender, message_room, sends_current
from nwcompile.sim.values import LARGEST_SPIKE

CURRENTS = "{}/currents"  # Name of the neurons that send the currents of a product.
MARKS = "{}/marks"  # Name of those that send a large number for each spike.
GATES = "{}/gates"  # Name of those that send a current if there is a spike.
MARK = "mark"  # Name of the program of `MARKS`.
GATE = "gate"  # Name of the program of `GATES`.
ADVICE = "use fewer weight bits or fewer spikes in a current"


def gate_currents(network: Network, chip: Chip, options: Options) -> tuple[Network, list[Change]]:
    """Replace every product of currents and single spikes in a normalized float network, if the chip can send sums.

    `estimate` refuses products that remain.
    """
    changes: list[Change] = []
    has_room = n_with_pairs(network) <= int(chip.max_neurons.sum())
    if network.is_fixed or not has_room or not can_send_sums(chip, options.on_multi_spike):
        return network, changes
    for product in find_products(network):
        factor = gated_factor(network, product)
        if factor is None:
            continue
        base = network.free_name(product.target, GATES)
        network = _insert_gates(network, product, factor, base)
        layers = (network.nodes.get(name.format(base)) for name in (CURRENTS, MARKS, GATES))
        counts = [0 if layer is None else layer.n_neurons for layer in layers]  # none if all currents are constants
        how = "{} neurons send currents, {} send spikes, {} send the products".format(*counts)
        changes.append(Change(product.target, "product of currents and spikes", "sums of currents", how, EXACT))
    return (normalize(network) if changes else network), changes


def _insert_gates(network: Network, product: MatMul, is_right: bool, base: str) -> Network:
    """Put layers named after `base` in place of a product; `is_right`: whether the currents are its right factor."""
    source, name, edges = network.node(product.source), product.target, network.into(product.source)
    left, right, at = product.factor_indices()  # of each product of two: its entries of `source`, and its target
    halves = [slice(0, np.prod(product.left)), slice(np.prod(product.left), source.n_neurons)]
    of_current, of_spike = halves[is_right], halves[not is_right]
    current, spike = (right, left) if is_right else (left, right)
    current, spike = current - of_current.start, spike - of_spike.start
    maps = [csr_array(to_matrix(linear_map(c, network.node(c.source).shape, source.shape))) for c in edges]
    bound = sum((abs(m)[of_current].sum(1) for m in maps), np.ones(1)).max()  # above any current
    lift = 2.0 ** np.ceil(np.log2(4 * bound))
    currents, marks, gates = (text.format(base) for text in (CURRENTS, MARKS, GATES))
    neurons = {
        currents: (maps[0][of_current].shape[0], build_sender(SUM, -LARGEST_OUTPUT, LARGEST_OUTPUT, False)),
        marks: (maps[0][of_spike].shape[0], build_mark(lift, False)),
        gates: (len(at), build_gate(lift, False)),
    }
    made = {layer: Node(layer, (n,), neuron) for layer, (n, neuron) in neurons.items()}
    offsets = [constant_offset(c, network.node(c.source).shape, source.shape) for c in edges]
    constant = sum((offset for offset in offsets if offset is not None), np.zeros(source.n_neurons))[of_current]
    by_spike = coo_array((constant[current], (at, spike)), (at.max() + 1, made[marks].n_neurons)).tocsr()
    by_spike.eliminate_zeros()
    new: list[Connection] = []
    for c, m in zip(edges, maps, strict=True):
        delay = c.aligned_delay + product.aligned_delay  # spikes wait, not numbers
        new += _connect(c.source, currents, m[of_current], delay)
        new += _connect(c.source, marks, m[of_spike], delay)
        new += _connect(c.source, name, by_spike @ m[of_spike], delay)
    pairs, ones = np.arange(len(at)), np.ones(len(at), np.float32)
    for layer, target, pre, post in (
        (currents, gates, current, pairs),
        (marks, gates, spike, pairs),
        (gates, name, pairs, at),
    ):
        new.append(Sparse(layer, target, pre=pre, post=post, weight=ones, delay=0))
    if not any(m[of_current].nnz for m in maps):  # the currents are constants
        made, new = {}, [c for c in new if c.target == name and c.source not in made]
    kept = [c for c in network.connections if c is not product]
    nodes = {**network.nodes, **made}
    if not any(c.source == source.name for c in kept):
        kept = [c for c in kept if c.target != source.name]
        del nodes[source.name]
    return Network(network.inputs, nodes, (*kept, *new))


def _connect(source: str, target: str, weights: csr_array, delay: int) -> list[Connection]:
    """Return the synapses of a matrix [target neuron, source neuron], as one connection, or none."""
    m = weights.tocoo()
    edge = Sparse(source, target, pre=m.col, post=m.row, weight=m.data.astype(np.float32), delay=delay)
    return [edge] if m.nnz else []


def build_mark(lift: float, is_fixed: bool = True) -> NeuronProgram:
    """Return a stateless neuron that sends `lift` for a spike, and nothing without one."""
    ops = (
        Operation("below", "min", ("x", 1)),
        Operation("spike", "max", ("below", 0)),
        Operation("sent", "mul", ("spike", lift)),
    )
    return NeuronProgram(name=MARK, states=(), operations=ops, output="sent", sends="graded", is_fixed=is_fixed)


def build_gate(lift: float, is_fixed: bool = True) -> NeuronProgram:
    """Return a stateless neuron that sends x - `lift` if x is above half of `lift`, and nothing otherwise."""
    half = int(lift) // 2 if is_fixed else lift / 2
    ops = (
        Operation("current", "sub", ("x", lift)),
        Operation("is_open", "lt", (half, "x")),
        Operation("gated", "select", ("is_open", "current", 0)),
        Operation("below", "min", ("gated", half)),
        Operation("sent", "max", ("below", -half)),
    )
    return NeuronProgram(name=GATE, states=(), operations=ops, output="sent", sends="graded", is_fixed=is_fixed)


def is_mark(neuron) -> bool:
    """Return whether a neuron is one of `build_mark`, in float."""
    return _is_built(neuron, MARK) and neuron.operations == build_mark(neuron.operations[-1].operands[1]).operations


def is_gate(neuron) -> bool:
    """Return whether a neuron is one of `build_gate`, in float."""
    return (
        _is_built(neuron, GATE) and neuron.operations == build_gate(neuron.operations[0].operands[1], False).operations
    )


def _is_built(neuron, name: str) -> bool:
    is_program = isinstance(neuron, NeuronProgram) and not neuron.is_fixed
    return is_program and neuron.name == name and not neuron.states


def sends_numbers(network: Network, name: str) -> bool:
    """Return whether a float layer's neurons send currents, marks or products, which are whole numbers on a chip."""
    neuron = network.node(name).neuron
    return sends_current(network, name) or is_mark(neuron) or is_gate(neuron)


def choose_lift(chip: Chip) -> int:
    """Return the power of two that marks send; it and half of it together fit a message and a synaptic sum."""
    room = min(message_room(chip), LARGEST_SPIKE, (1 << (chip.state.bits - 1)) - 1)
    return 1 << ((2 * room // 3).bit_length() - 1)


def verify_currents(legal: Network, network: Network, chip: Chip) -> None:
    """Raise FitError unless every gated current of the integer network is less than half of what marks send.

    `legal`: the float network.
    """
    for c in legal.connections:
        if is_gate(legal.node(c.target).neuron) and not is_mark(legal.node(c.source).neuron):
            half = choose_lift(chip) // 2
            largest = int(max(side.max(initial=0) for side in largest_sums(network, c.source, lambda _: (1.0, 1.0))))
            if largest >= half:
                raise FitError(chip.name, [Violation("product of spikes", c.source, largest, half - 1, ADVICE)])
