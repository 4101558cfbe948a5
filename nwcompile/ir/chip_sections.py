"""The sections of a chip file, key by key: types, defaults and meaning."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from math import ceil
from typing import Any

import numpy as np

from nwcompile.ir.neuron import RESET_TIMINGS, RESETS, NeuronSpec

BASES = ("measured", "published", "fitted", "scaled", "assumed")  # of constants, from the strongest to the weakest
SET_BY_USER = "set by the user"  # Source of a key that was overridden.
BARRIER = "barrier"  # `Cost.sync`: all cores wait for each other at the end of a step.
NEIGHBORS = "neighbors"  # `Cost.sync`: a core waits for the cores that it sends to or receives from.


@dataclass(frozen=True)
class Noc:
    """The network on chip: a 2-D mesh or torus of input-buffered routers, `cores_per_router` cores at each.

    Routing is deterministic: the next link of a message depends only on its destination and its current router. A run
    stops with an error at a step that takes longer than `max_step_cycles`. The default limit is twice the time of all
    work and all flit-hops of the step in sequence, each flit-hop as long as the slowest one, so that no run can hang.

    `topology = "segmented_bus"` is a bus of `lanes` parallel lanes along `columns` positions (`rows = 1`). A position
    has `cores_per_router` cores, and a switch on every lane. In a slot of `slot_cycles` a message uses one lane from
    its core's position to another: `inject_cycles`, `hop_cycles_ew` per segment, `eject_cycles`. Up to
    `buffer_flits` messages wait in a core to be sent, and as many received ones to be processed. `cycle_ns`,
    `payload_bits` and `max_step_cycles` keep their meaning. The other keys do not apply to a bus and are refused.

    With `router = "merges"` a router consists of FIFOs of `buffer_flits` packets, joined by fixed-priority merges, with
    one core (RANC). Times are fixed: 2 cycles per hop and between packets, 6 from a spike to its own core. Cores scan
    all their neurons (`cost.visits`). A packet that arrives while a core clears its axons is lost. Messages of input
    lines enter the western port of router 0,0 after all other work of a step; spikes leave at `io.sites`.
    """

    columns: int  # routers along x, which points east
    rows: int  # routers along y, which points north
    cores_per_router: int = 1  # cores at a router; ports count fastest in site order
    virtual_channels: int = 1  # number per input port
    buffer_flits: int = 8  # flits that the input buffer of a virtual channel holds
    flits_per_message: int = 1  # flits of a message that carries one spike to one core
    payload_flits: int = 0  # further flits of a message that carries a count or a sign
    payload_bits: int | None = None  # bits of that count, one of them the sign if it can be negative; 0: no count
    on_full: str = "stall"  # "drop": a message is lost if its injection buffer is full; needs all costs
    max_step_cycles: int | None = None  # limit of a step (phase) before its barrier, in core cycles; not given: above
    cycle_ns: float = 1.0  # length of a NoC cycle
    hop_cycles_ew: int = 3  # from winning arbitration to arbitration in the next router, east or west
    hop_cycles_ns: int = 3  # the same, north or south
    link_cycles_per_flit: int = 1  # cycles that a flit occupies a link
    inject_cycles: int = 2  # from leaving the core to arbitration in its router
    eject_cycles: int = 3  # from winning arbitration to the core's receive queue
    credit_cycles: int = 2  # from leaving a buffer slot to its reuse by the sender
    route_cycles: int = 0  # routing delay of a packet's head before it requests a virtual channel
    speculative: bool = True  # a head requests virtual channel and crossbar at once; false: one cycle after the other
    multicast: str = "unicast"  # one message per destination core; "tree": one message per spike, copied in the routers
    topology: str = "mesh"  # "torus": rows and columns are rings; "segmented_bus": see above
    router: str | None = None  # "merges": see above; not given: virtual channels
    lanes: int | None = None  # parallel lanes of a segmented bus, which needs this key
    slot_cycles: int | None = None  # NoC cycles that a transfer occupies its lane; not given: an end-to-end transfer
    routing: str = "xy"  # "xy": along x first; "west-first", "odd-even": longer rest first; "up-down": around faults
    faults: list[str] | None = None  # unusable routers like "1,0" and links like "1,0-2,0"; needs routing "up-down"
    chip_columns: int | None = None  # routers along x of one chip, if several chips are joined; not given: all
    chip_rows: int | None = None  # routers along y of one chip
    chip_hop_cycles: int | None = None  # hop_cycles_* of a link between chips; not given: as within a chip
    chip_link_cycles_per_flit: int | None = None  # link_cycles_per_flit of such a link; not given: as within a chip


@dataclass(frozen=True)
class CoreLimits:
    """Capacity of a core. A list gives each core its own value, in site order (port fastest, then x, then y).

    A limit that is not given does not exist.
    """

    max_neurons: int | list[int]  # neurons of all layers
    cycle_ns: float = 1.0  # length of a core cycle, the unit of all costs
    max_in_axons: int | list[int] | None = None  # pairs (source neuron or input line, this core)
    max_out_axons: int | list[int] | None = None  # pairs (neuron of this core, destination core)
    max_layers: int | list[int] | None = None  # layers with neurons on the core
    max_instructions: int | list[int] | None = None  # program memory: sum of the operations of its layers' neurons
    max_state_words: int | list[int] | None = None  # states of its neurons, one word each
    max_destinations: int | list[int] | None = None  # destination cores of all its neurons, itself included
    max_neuron_destinations: int | list[int] | None = None  # destination cores of each of its neurons, itself included
    axon_merge: str | None = None  # "or": an axon is one bit, which spikes of several neurons may set in a step
    max_outputs: int | None = None  # neurons of separate output layers: hidden neurons feed them, they feed none
    max_inputs: int | None = None  # input lines, if output neurons are separate; the four limits below likewise
    max_fan_out: int | None = None  # targets of one neuron
    mean_fan_out: int | None = None  # targets of a hidden neuron, averaged over all that the core can hold
    max_input_targets: int | None = None  # hidden neurons with synapses from input lines
    max_output_sources: int | None = None  # hidden neurons with synapses to output neurons
    synapse_bits: int | list[int] | None = None  # synapse memory
    word_bits: int = 64  # word of the synapse memory, the unit of `weight_reads`; a block takes whole words
    block_synapses: int = 64  # maximum synapses of one block of a row
    block_overhead_bits: int = 0  # further bits of each block


@dataclass(frozen=True)
class Weights:
    """Number format and storage of synapses."""

    bits: int = 8  # bits of a mantissa
    step: int = 1  # spacing of mixed-sign mantissas at full width
    exponent_min: int = 0  # smallest exponent of a connection
    exponent_max: int = 0  # largest exponent of a connection
    effective_limit: int = 32767  # largest |floor(mantissa * 2**exponent)|
    one_exponent: bool | None = None  # true: one exponent for input weights, one between hidden layers, one to outputs
    sharing: bool = False  # one copy of a convolution kernel per core instead of one row per source
    kernel_rows: bool | None = None  # true: a shared kernel is stored as a row of all its channels per input and tap
    index_bits: int = 0  # further bits of each synapse of a sparse row
    source_sign: bool | None = None  # true: a source has synapses of one sign; neurons and lines with both are copied
    axon_types: int | None = None  # number of axon types of a core; a neuron has one weight for each type


@dataclass(frozen=True)
class State:
    """Number format of the neuron state: current u and membrane v."""

    bits: int = 24  # bits of u and of v
    decay_bits: int = 12  # k of 2**decay_bits is lost in a step
    shift_bits: int = 6  # left shift of a synaptic sum
    overflow: str = "wrap"  # overflow of u; v saturates, but wraps modulo with "modulo"; "clip" includes -2**(bits-1)
    decay_offset: int = 0  # decay register of u = k - decay_offset
    decay: str | None = None  # "shift": x >> k is lost, at least 1, and u decays after adding the sum; not given: above


@dataclass(frozen=True)
class NeuronCapability:
    """Features of the chip's neurons.

    Programmable neurons have every feature: `reset`, `reset_timing`, `strict` and `v_min` are completed.
    """

    reset: list[str]  # kinds of reset after a spike
    reset_timing: list[str] = field(default_factory=lambda: ["now"])  # when the reset acts
    strict: list[bool] = field(default_factory=lambda: [True])  # true: fires at v > threshold; false: at v >= threshold
    spikes: list[str] = field(default_factory=lambda: ["binary"])  # kinds of spikes that a message can carry
    max_spikes: int | None = None  # maximum spikes per step, always as many as thresholds fit into the membrane
    output_max_spikes: int | None = None  # the same for separate output neurons (core.max_outputs)
    bias: bool = True  # whether a neuron has a constant input
    current_bias: bool | None = None  # false: it adds to the membrane only, not to the current; not given: to both
    bias_per_step: bool | None = None  # true: the bias can be written in every step; not given: once per sample
    current: bool | None = None  # false: no synaptic current, so input acts only in its own step; not given: a current
    leak: bool | None = None  # false: the membrane does not decay between steps; not given: it may
    v_min: str = "none"  # "zero": the membrane is clamped at 0; "any": at any value; "reset": it is reset there
    delay_max_steps: int = 0  # steps beyond the one of the pipeline
    refractory_max_steps: int = 1  # 1: no step after the spike is lost
    threshold_bits: int = 23  # bits of the threshold's mantissa
    threshold_shift_bits: int = 0  # left shift of the mantissa
    threshold_per: str = "layer"  # "neuron": a neuron may have its own threshold, narrow weights a scale per channel
    bias_bits: int = 23  # bits of the signed bias mantissa
    bias_exponent_max: int = 0  # largest left shift of the mantissa; the smallest is 0
    programmable: bool | None = None  # true: neurons are programs, with any reset, timing, comparison and clamp
    max_synapse_types: int | None = None  # separate synaptic sums of a neuron program, as for gates; not given: 1
    taus_us: list[int] | None = None  # available membrane time constants in microseconds; not given: any

    def __post_init__(self):
        if self.programmable is not True:
            return
        for name, kinds in (("reset", RESETS), ("reset_timing", RESET_TIMINGS), ("strict", (True, False))):
            given = getattr(self, name)
            object.__setattr__(self, name, [*given, *(kind for kind in kinds if kind not in given)])
        object.__setattr__(self, "v_min", "any")

    def has_floor(self, spec: NeuronSpec) -> bool:
        """Whether these neurons can clamp or reset v as `spec` does at `v_min`, or leave it free if `spec` does."""
        if spec.v_min is None:
            return self.v_min != "zero"
        if spec.clamp == "reset":
            return self.v_min == "reset" or self.programmable is True
        return self.v_min == "any" or (self.v_min == "zero" and not np.any(spec.v_min))


@dataclass(frozen=True)
class Cost:
    """Core cycles of each event. If any is not given, it is unknown, and no times are reported.

    A list gives each core its own value, in site order; mappings are searched as if all cores had the largest.

    With `sync = "neighbors"` there is no common end of a step. After all messages of a step, a core sends a token with
    their number to each core that it sends to or receives from (its neighbors). It begins its next step when it has all
    tokens and messages of the current step. Tokens count as messages, and `barrier_cycles`, `min_step_cycles` and
    `sample_cycles` do not apply.
    """

    units: str = "overlap"  # "overlap": send and receive run in parallel; "shared": one unit does both
    visits: str | None = None  # "all": all of core.max_neurons are visited, used or not; not given: used ones only
    visit_cycles: int | None = None  # send: each neuron in each step
    update_cycles: int | None = None  # send: a neuron with an event, a bias, or nonzero state
    instruction_cycles: int | None = None  # send: an instruction of a neuron program beyond the built-in neuron's
    spike_cycles: int | None = None  # send: a spike
    message_out_cycles: int | None = None  # send: one spike to one destination core
    message_in_cycles: int | None = None  # receive: lookup of a fan-in axon
    word_cycles: int | None = None  # receive: read of a synapse-memory word
    synop_dense_cycles: int | list[int] | None = None  # receive: accumulation of a stored weight of a dense row
    synop_sparse_cycles: int | list[int] | None = None  # receive: the same, of a sparse row
    synop_conv_cycles: int | list[int] | None = None  # receive: the same, of a convolution with shared weights
    barrier_cycles: dict[str, int] | None = None  # end of a step, by tiles in use: largest key not above their number
    min_step_cycles: dict[str, int] | None = None  # shortest step, barrier included, by tiles in use; optional
    sample_cycles: int | None = None  # once a sample: into the first core and out of the last; optional
    sync: str | None = None  # "neighbors": see above; "barrier" or not given: all cores end a step together


@dataclass(frozen=True)
class PoolCost:
    """Core cycles of a step if hidden neurons are one pool (`core.max_outputs`). Their sum replaces `cost`.

    Give all of them or none, in whole or half cycles. A line with several events in a step, and a neuron with several
    spikes, count once.
    """

    line_cycles: float | None = None  # an input line
    line_event_cycles: float | None = None  # an input line with events, for each hidden neuron that inputs feed
    hidden_cycles: float | None = None  # a hidden neuron
    spike_cycles: float | None = None  # a hidden neuron that spikes
    synapse_cycles: float | None = None  # a hidden neuron that spikes, for each hidden neuron that it feeds
    readout_cycles: float | None = None  # a hidden neuron that spikes, if it feeds outputs
    readout_output_cycles: float | None = None  # the same, for each output neuron
    output_cycles: float | None = None  # an output neuron
    counts_unwired: bool | None = None  # true: all hidden neurons count as fed by inputs and as feeding outputs


@dataclass(frozen=True)
class Energy:
    """Picojoules of each event. A value that is not given has no cited source; then no energies of events are reported.

    Optional values that are not given are not part of the energies, and the report says so.
    """

    visit_pj: float | None = None  # each neuron in each step
    update_pj: float | None = None  # a neuron with an event, a bias, or nonzero state
    spike_pj: float | None = None  # a spike
    message_out_pj: float | None = None  # one spike to one destination core
    message_in_pj: float | None = None  # lookup of a fan-in axon
    synop_dense_pj: float | None = None  # accumulation of a stored weight of a dense row
    synop_sparse_pj: float | None = None  # the same, of a sparse row
    synop_conv_pj: float | None = None  # the same, of a convolution with shared weights
    hop_ew_pj: float | None = None  # hop of a message, with its payload, to the next router, east or west
    hop_ns_pj: float | None = None  # the same, north or south
    io_pj: float | None = None  # further energy of a message that enters or leaves through io.sites; optional
    chip_link_pj: float | None = None  # further energy of a flit on a link to another chip; optional
    static_mw: float | None = None  # static power of the chip or all of a board in mW, without core_static_mw; optional
    clock_uw_per_mhz: float | None = None  # further power at rest for each MHz of the core clock; optional
    core_static_mw: float | None = None  # static power of a core in use; only in the energy of the board; optional
    host_mw: float | None = None  # power of the processors on a chip in use; only in the energy of the board; optional


@dataclass(frozen=True)
class Io:
    """Sites of cores at which spikes enter and leave the chip; these cores hold no neurons.

    A message of an input line enters at the site with the fewest hops to its target core. A spike of an output layer
    leaves at the site with the fewest hops from its core; ties go to the first in the list. Membranes of layers that
    never fire are read out separately. Without sites, input and output cost nothing.
    """

    sites: list[str] | None = None  # like "0,0,1": x, y, port
    max_value: int | None = None  # largest number that an input line can take in a step


@dataclass(frozen=True)
class Crossbar:
    """The array of memory cells of an in-memory computing core. An axon drives a row, and a neuron reads a column.

    A weight is the difference of two cells (a pair). Rows and columns limit the axons and neurons of a core, in
    addition to section `core`. Without noise and drift the core computes what a digital core does. A conductance g is
    g * (t / t0)^-nu at t seconds after programming; nu is drawn for each cell. Programs do not depend on the three keys
    of the drift. Deviations of writing and reading a cell are in section `variation` (`weight`, `noise`).
    """

    rows: int | None = None  # cells in a column; not given: any number
    columns: int | None = None  # cells in a row; not given: any number
    pairs: str | None = None  # a pair takes two "rows" or two "columns"; not given: rows and columns count pairs
    levels: int | None = None  # conductance levels of a cell: mantissas are up to levels - 1 steps from 0
    drift_exponent: float | None = None  # mean of nu, at least 0
    drift_spread: float | None = None  # standard deviation of nu; no cell's nu is below 0
    drift_start_s: float | None = None  # t0: seconds after programming; nothing drifts before

    @property
    def limits(self) -> dict[str, tuple[str, int]]:
        """Limits of a core that the array sets: the array's key and the number, by key of section `core`."""
        sizes = {"max_in_axons": ("rows", self.rows), "max_neurons": ("columns", self.columns)}
        return {
            limit: (f"crossbar.{name}", n // 2 if name == self.pairs else n)
            for limit, (name, n) in sizes.items()
            if n is not None
        }


@dataclass(frozen=True)
class Variation:
    """Deviations of devices from the chip as designed; `nwcompile robustness` draws devices from them.

    A deviation is the standard deviation of a normal distribution, relative to the value: at 0.3 two thirds of all
    weights are within 30 % of the stored value. docs/robustness.md defines the effect of each. A value that is not
    given is unknown. Programs do not depend on this section.
    """

    weight: float | None = None  # deviation of every stored weight
    threshold: float | None = None  # deviation of every neuron's threshold
    leak: float | None = None  # deviation of every neuron's leak rates of membrane and current
    stuck: float | None = None  # fraction of stored weights that are stuck at 0
    dead: float | None = None  # fraction of neurons that never fire
    levels: int | None = None  # conductance levels of a memory cell; a stored weight is the difference of two cells
    jitter: float | None = None  # deviation of the time of each spike that enters the chip, in steps
    noise: float | None = None  # read noise: deviation of a memory cell's conductance, drawn anew in each step
    drift: float | None = None  # seconds since the memory cells were programmed; needs crossbar.drift_exponent


def read_basis(source: str | None) -> str:
    """Return the basis that a source text states: the weakest basis that one of its clauses begins with.

    Clauses are separated by semicolons. A text that states none cites a publication. A default, which has no source,
    and a key that the user has set are assumed.
    """
    if source is None or source == SET_BY_USER:
        return BASES[-1]
    stated = re.findall(rf"(?:^|;)\s*({'|'.join(BASES)})\b", source)
    return max(stated, key=BASES.index, default="published")


def weakest_basis(texts: Iterable[str]) -> str | None:
    """Return the text with the weakest basis, of texts like `scaled; -35 % on PilotNet`; None if there is none."""
    return max(texts, key=lambda text: BASES.index(text.partition(";")[0]), default=None)


def given_figures(section: PoolCost | Energy) -> dict[str, float]:
    """The figures of a section that the chip file gives, by key."""
    return {key: figure for key, figure in vars(section).items() if figure is not None}


MAY_LACK_CYCLES = ("min_step_cycles", "sample_cycles")  # What not every chip has; no key means 0.
MAY_LACK_PJ = ("io_pj", "chip_link_pj")  # energies of events that not every chip has; the others are valid without them
SECTIONS: dict[str, Any] = {
    "noc": Noc,
    "core": CoreLimits,
    "weights": Weights,
    "state": State,
    "neuron": NeuronCapability,
    "cost": Cost,
    "pool": PoolCost,
    "energy": Energy,
    "io": Io,
    "crossbar": Crossbar,
    "variation": Variation,
}
KEYS = tuple(f"{section}.{f.name}" for section, kind in SECTIONS.items() for f in fields(kind))


def chip_size(noc: Noc) -> tuple[int, int]:
    """Return the routers of one chip along x and y; all routers if there is one chip."""
    return noc.chip_columns or noc.columns, noc.chip_rows or noc.rows


def count_chips(noc: Noc) -> tuple[int, int]:
    """Count chips along x and y, including partial ones at an edge; (1, 1) for one chip."""
    columns, rows = chip_size(noc)
    return ceil(noc.columns / columns), ceil(noc.rows / rows)


def chips_used(noc: Noc, site_of: np.ndarray) -> int:
    """Number of chips with at least one of the sites int[core, 3] (x, y, port)."""
    columns, rows = chip_size(noc)
    return len(np.unique(np.asarray(site_of, np.int64)[:, :2] // (columns, rows), axis=0))


def fewest_chips(noc: Noc, n_cores: int) -> tuple[int, int]:
    """Smallest rectangle of chips (along x, along y) that holds `n_cores`; the squarest one on ties.

    Returns all chips if no rectangle holds `n_cores`.
    """
    (columns, rows), (most_x, most_y) = chip_size(noc), count_chips(noc)
    rectangles = ((x, y) for x in range(1, most_x + 1) for y in range(1, most_y + 1))
    n_routers = {(x, y): min(x * columns, noc.columns) * min(y * rows, noc.rows) for x, y in rectangles}
    large = [xy for xy, n in n_routers.items() if n * noc.cores_per_router >= n_cores]
    return min(large, key=lambda xy: (xy[0] * xy[1], xy[0] + xy[1], xy[1]), default=(most_x, most_y))
