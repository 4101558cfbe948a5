"""The sections of a chip file, key by key: types, defaults, and what each key means."""

from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from nwcompile.ir.neuron import RESET_TIMINGS, RESETS, NeuronSpec

BARRIER = "barrier"  # A value of `Cost.sync`: all cores wait for each other at the end of a step.
NEIGHBORS = "neighbors"  # A value of `Cost.sync`: a core waits for those that it sends to or hears from.


@dataclass(frozen=True)
class Noc:
    """The network on chip: a 2-D mesh or torus of input-buffered routers, `cores_per_router` cores at each.

    Routing is deterministic: a message's destination and the router where it is tell its next link. A run ends with an
    error at a step that takes longer than `max_step_cycles`; by default that is twice what all work and all flit-hops
    of the step take one after another, each flit-hop as long as the slowest there is, so that nothing can hang.

    With `topology = "segmented_bus"` it is a bus of `lanes` parallel lanes along `columns` positions (`rows = 1`), with
    `cores_per_router` cores at each, and a switch on every lane at every position. In a slot of `slot_cycles` a message
    takes one lane from its core's position to another's: `inject_cycles`, `hop_cycles_ew` a segment, `eject_cycles`. Up
    to `buffer_flits` messages wait in a core to be sent, and as many received ones to be worked on. `cycle_ns`,
    `payload_bits` and `max_step_cycles` mean the same; the other keys say nothing about a bus and are refused.

    With `router = "merges"` a router is FIFOs of `buffer_flits` packets, joined by merges of fixed priority, with one
    core (RANC). What merges take is fixed: 2 cycles a hop and between packets, 6 from a spike to its own core. Cores
    scan all their neurons (`cost.visits`), and a packet that comes when one clears its axons is lost. Messages of input
    lines come into the western port of router 0,0, when all else of a step is done; `io.sites` is where spikes leave.
    """

    columns: int  # routers along x, which points east
    rows: int  # routers along y, which points north
    cores_per_router: int = 1  # ports, counted fastest in site order
    virtual_channels: int = 1  # of each input port
    buffer_flits: int = 8  # flits a virtual channel's input buffer holds
    flits_per_message: int = 1  # flits that carry one spike to one core
    payload_flits: int = 0  # more flits for a message that carries a count or a sign
    payload_bits: int | None = None  # of that count, one of them the sign if it can be negative; 0: none is carried
    on_full: str = "stall"  # "drop": a message that finds its injection buffer full is lost; needs all costs
    max_step_cycles: int | None = None  # core cycles that a step (phase) may take before its barrier; not given: above
    cycle_ns: float = 1.0  # length of a NoC cycle
    hop_cycles_ew: int = 3  # winning arbitration here -> may arbitrate in the next router, east or west
    hop_cycles_ns: int = 3  # the same, north or south
    link_cycles_per_flit: int = 1  # a link takes one flit in so many cycles
    inject_cycles: int = 2  # leaving the core -> may arbitrate in its router
    eject_cycles: int = 3  # winning arbitration -> in the core's receive queue
    credit_cycles: int = 2  # a buffer slot left -> usable by the sender upstream
    route_cycles: int = 0  # more cycles for the head of a packet, before it asks for a virtual channel
    speculative: bool = True  # a head asks for virtual channel and crossbar at once; false: one cycle after the other
    multicast: str = "unicast"  # a message to each destination core; "tree": one a spike, that forks in the routers
    topology: str = "mesh"  # "torus": the ends of every row and column are joined as well; "segmented_bus": see above
    router: str | None = None  # "merges": see above; not given: virtual channels
    lanes: int | None = None  # parallel lanes of a segmented bus, which needs it
    slot_cycles: int | None = None  # NoC cycles a transfer has its lane; not given: what one from end to end takes
    routing: str = "xy"  # "xy": along x first; "west-first", "odd-even": longer rest first; "up-down": round faults too
    faults: list[str] | None = None  # routers like "1,0" and links like "1,0-2,0" out of use; needs routing "up-down"
    chip_columns: int | None = None  # routers along x of one chip, where several are joined; not given: all
    chip_rows: int | None = None  # routers along y of one chip
    chip_hop_cycles: int | None = None  # hop_cycles_* of a link between chips; not given: as within a chip
    chip_link_cycles_per_flit: int | None = None  # link_cycles_per_flit of such a link; not given: as within a chip


@dataclass(frozen=True)
class CoreLimits:
    """What a core holds. A list gives each core its own figure, in site order (port fastest, then x, then y).

    A limit that is not given does not exist.
    """

    max_neurons: int | list[int]  # of all layers together
    cycle_ns: float = 1.0  # length of a core cycle, the unit of all costs
    max_in_axons: int | list[int] | None = None  # (source neuron or input line, this core) pairs
    max_out_axons: int | list[int] | None = None  # (neuron of this core, destination core) pairs
    max_layers: int | list[int] | None = None  # layers with neurons on it
    max_instructions: int | list[int] | None = None  # program memory: operations of its layers' neurons, added up
    max_state_words: int | list[int] | None = None  # states that its neurons keep, a word each
    max_destinations: int | list[int] | None = None  # cores that its neurons send to together, itself among them
    max_neuron_destinations: int | list[int] | None = None  # cores that each of its neurons sends to, itself among them
    axon_merge: str | None = None  # "or": an axon is one bit, that spikes of several neurons may set in a step
    max_outputs: int | None = None  # neurons of output layers, which lie apart: hidden ones feed them, they feed none
    max_inputs: int | None = None  # input lines, where output neurons lie apart; so do the four limits below
    max_fan_out: int | None = None  # neurons that one neuron feeds
    mean_fan_out: int | None = None  # neurons that a hidden neuron feeds, averaged over as many as there is room for
    max_input_targets: int | None = None  # hidden neurons that input lines feed
    max_output_sources: int | None = None  # hidden neurons that feed output neurons
    synapse_bits: int | list[int] | None = None  # synapse memory
    word_bits: int = 64  # a synapse-memory word, the unit of `weight_reads`; a block takes whole words
    block_synapses: int = 64  # synapses one block of a row may hold
    block_overhead_bits: int = 0  # added to each block


@dataclass(frozen=True)
class Weights:
    """Number format and storage of synapses."""

    bits: int = 8  # of a mantissa
    step: int = 1  # spacing of mixed-sign mantissas at full width
    exponent_min: int = 0  # least exponent of a connection
    exponent_max: int = 0  # largest exponent of a connection
    effective_limit: int = 32767  # |floor(mantissa * 2**exponent)| is clipped to this
    one_exponent: bool | None = None  # true: one for weights of inputs, one between hidden layers, one to outputs
    sharing: bool = False  # one copy of a convolution kernel per core, instead of one row per source
    kernel_rows: bool | None = None  # true: a shared kernel lies as a row of all its channels for each input and tap
    index_bits: int = 0  # added per synapse of a sparse row
    axon_types: int | None = None  # a core's fan-in axons are of so many types, and a neuron one weight for each


@dataclass(frozen=True)
class State:
    """Number format of the neuron state: current u and membrane v."""

    bits: int = 24  # of u and of v
    decay_bits: int = 12  # k of 2**decay_bits is lost in a step
    shift_bits: int = 6  # a synaptic sum is shifted left by this
    overflow: str = "wrap"  # what u does; v saturates, but goes round with "modulo"; "clip" has -2**(bits-1)
    decay_offset: int = 0  # decay register of u = k - decay_offset
    decay: str | None = None  # "shift": x >> k is lost, at least 1, of u after the sum is added; not given: above


@dataclass(frozen=True)
class NeuronCapability:
    """What the chip's neurons can do.

    Programmable neurons can do whatever a neuron can: `reset`, `reset_timing`, `strict` and `v_min` are completed.
    """

    reset: list[str]  # kinds of reset at a spike
    reset_timing: list[str] = field(default_factory=lambda: ["now"])  # when the reset acts
    strict: list[bool] = field(default_factory=lambda: [True])  # true: fires at v > threshold; false: at v >= threshold
    spikes: list[str] = field(default_factory=lambda: ["binary"])  # kinds of spike that a message carries
    max_spikes: int | None = None  # spikes a neuron fires at once, always as many as its membrane holds thresholds
    output_max_spikes: int | None = None  # the same of neurons that lie apart as outputs (core.max_outputs)
    bias: bool = True  # whether a neuron has a constant input
    current_bias: bool | None = None  # false: it adds to the membrane only, not to the current; not given: to both
    bias_per_step: bool | None = None  # true: it can be written anew in every step; not given: once for a sample
    current: bool | None = None  # false: neurons have no synaptic current, all input acts in its step alone; else one
    leak: bool | None = None  # false: a membrane keeps all of itself from step to step; else it may lose a share
    v_min: str = "none"  # "zero": every membrane is clamped at 0; "any": at any value; "reset": it is reset there
    delay_max_steps: int = 0  # beyond the one step of the pipeline
    refractory_max_steps: int = 1  # 1: no step after the spike is lost
    threshold_bits: int = 23  # of the threshold's mantissa
    threshold_shift_bits: int = 0  # the mantissa is shifted left by this
    threshold_per: str = "layer"  # "neuron": quantization may give each its own, and narrow weights a scale a channel
    bias_bits: int = 23  # of the signed bias mantissa
    bias_exponent_max: int = 0  # the mantissa is shifted left by 0 to this
    programmable: bool | None = None  # true: neurons are programs, of any reset, timing, comparison and clamp
    taus_us: list[int] | None = None  # membrane time constants that can be set, in microseconds; not given: any

    def __post_init__(self):
        if self.programmable is not True:
            return
        for name, kinds in (("reset", RESETS), ("reset_timing", RESET_TIMINGS), ("strict", (True, False))):
            given = getattr(self, name)
            object.__setattr__(self, name, [*given, *(kind for kind in kinds if kind not in given)])
        object.__setattr__(self, "v_min", "any")

    def has_floor(self, spec: NeuronSpec) -> bool:
        """Whether these neurons keep the membrane above `v_min` as `spec` does, or leave it free where that does."""
        if spec.v_min is None:
            return self.v_min != "zero"
        if spec.clamp == "reset":
            return self.v_min == "reset" or self.programmable is True
        return self.v_min == "any" or (self.v_min == "zero" and not np.any(spec.v_min))


@dataclass(frozen=True)
class Cost:
    """Core cycles of each event; what is not given is not known, and then no times are given.

    With `sync = "neighbors"` no step ends for all cores at once. A core, once it has sent all messages of a step, sends
    a token, which says how many they were, to each core that it sends to or hears from (its neighbors); it goes on to
    its next step when it has all tokens and messages of this one. Tokens count as messages, and `barrier_cycles` say
    nothing.
    """

    units: str = "overlap"  # "overlap": send and receive run side by side; "shared": one unit does both
    visits: str | None = None  # "all": every one of core.max_neurons is visited, used or not; not given: those in use
    visit_cycles: int | None = None  # send: every neuron, every step
    update_cycles: int | None = None  # send: a neuron with an event, a bias, or state that is not zero
    instruction_cycles: int | None = None  # send: an instruction of a neuron program that the built-in neuron has not
    spike_cycles: int | None = None  # send: a spike
    message_out_cycles: int | None = None  # send: one spike to one destination core
    message_in_cycles: int | None = None  # receive: a fan-in axon looked up
    word_cycles: int | None = None  # receive: a synapse-memory word read
    synop_dense_cycles: int | None = None  # receive: a stored weight of a dense row accumulated
    synop_sparse_cycles: int | None = None  # receive: the same, of a sparse row
    synop_conv_cycles: int | None = None  # receive: the same, of a convolution with shared weights
    barrier_cycles: dict[str, int] | None = None  # end of a step, by tiles in use: largest key not above the count
    sync: str | None = None  # "neighbors": see above; "barrier", or not given: all cores end a step together


@dataclass(frozen=True)
class PoolCost:
    """Core cycles of a step where hidden neurons are one pool (`core.max_outputs`): they add up, in place of `cost`.

    All of them or none, in whole or half cycles. A line that brings several events in a step, and a neuron that spikes
    several times, count once.
    """

    line_cycles: float | None = None  # an input line
    line_event_cycles: float | None = None  # an input line with events: for every hidden neuron that inputs feed
    hidden_cycles: float | None = None  # a hidden neuron
    spike_cycles: float | None = None  # a hidden neuron that spikes
    synapse_cycles: float | None = None  # the same: for every hidden neuron that it feeds
    readout_cycles: float | None = None  # the same, if it feeds outputs
    readout_output_cycles: float | None = None  # the same: for every output neuron
    output_cycles: float | None = None  # an output neuron
    counts_unwired: bool | None = None  # true: all hidden neurons count as fed by inputs and as feeding outputs


@dataclass(frozen=True)
class Energy:
    """Picojoules of each event; what is not given has no cited figure, and then no energies are given.

    What may be left out is then no part of the energies, and the report says so.
    """

    visit_pj: float | None = None  # every neuron, every step
    update_pj: float | None = None  # a neuron with an event, a bias, or state that is not zero
    spike_pj: float | None = None  # a spike
    message_out_pj: float | None = None  # one spike to one destination core
    message_in_pj: float | None = None  # a fan-in axon looked up
    synop_dense_pj: float | None = None  # a stored weight of a dense row accumulated
    synop_sparse_pj: float | None = None  # the same, of a sparse row
    synop_conv_pj: float | None = None  # the same, of a convolution with shared weights
    hop_ew_pj: float | None = None  # a message, its payload included, carried to the next router, east or west
    hop_ns_pj: float | None = None  # the same, north or south
    io_pj: float | None = None  # a message that enters or leaves through io.sites, beside the above; may be left out
    chip_link_pj: float | None = None  # a flit over a link to another chip, beside its hop; may be left out
    static_mw: float | None = None  # milliwatts of the whole chip, whatever it does; may be left out


@dataclass(frozen=True)
class Io:
    """Where spikes enter and leave the chip: sites of cores, which hold no neurons then.

    An input line's message comes from the site that has the fewest hops to the core it goes to, and every spike of an
    output layer goes to the site with the fewest hops from its core, the first in the list of those as near. Membranes
    of layers that never fire are read apart. Without sites, reading and writing cost nothing.
    """

    sites: list[str] | None = None  # like "0,0,1": x, y, port
    max_value: int | None = None  # the largest number that an input line takes in a step


@dataclass(frozen=True)
class Variation:
    """How devices of this chip differ from the chip as designed: what `nwcompile robustness` draws devices from.

    A deviation is the standard deviation of a normal distribution, as a part of the value: at 0.3 two thirds of all
    weights are within 30 % of what was stored. What each of them changes is defined in docs/robustness.md. A figure
    that is not given is not known; programs themselves do not depend on this section.
    """

    weight: float | None = None  # deviation of every stored weight
    threshold: float | None = None  # deviation of every neuron's threshold
    leak: float | None = None  # deviation of every neuron's leak rates, of membrane and current
    stuck: float | None = None  # share of stored weights that are stuck at 0
    dead: float | None = None  # share of neurons that never fire


def given_figures(section: PoolCost | Energy) -> dict[str, float]:
    """The figures of a section that the chip file gives, by key."""
    return {key: figure for key, figure in vars(section).items() if figure is not None}


MAY_LACK_PJ = ("io_pj", "chip_link_pj")  # energies of events that not every chip has; without them the others are given
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
    "variation": Variation,
}
KEYS = tuple(f"{section}.{f.name}" for section, kind in SECTIONS.items() for f in fields(kind))
