"""RANC design: the content of RANC's cores for a program: slots, axons and their types, destinations, proved widths."""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from nwcompile.cost.axon_colors import colors_of_axons
from nwcompile.cost.traffic.axons import sets_other_axon
from nwcompile.errors import ChipError, ModelError
from nwcompile.families.merges.chip import MergeRouters
from nwcompile.families.merges.export_memory import N_TICKS, NEURON, CoreMemory, Parameters, empty_core
from nwcompile.ir.connection import synapse_list
from nwcompile.ir.flat import count_lines
from nwcompile.ir.program import Program

ERROR_CODE = "NW7101"
SUBTRACTS = 1  # reset_mode of a neuron that is reset by subtraction; 0: to a value
LEAST_OUTPUTS = 2  # The number of an output has at least one bit.


class AxonSynapses(NamedTuple):
    """All synapses of a program; sources and neurons are numbered as in `Network.offsets`."""

    source: np.ndarray  # int64[synapse]: the owner of the axon, even if others set it too
    target: np.ndarray  # int64[synapse]
    weight: np.ndarray  # int64[synapse]
    delay: np.ndarray  # int64[synapse]: ticks by which its axon delays a packet


@dataclass(frozen=True, eq=False)
class Design:
    """A program on a grid of RANC. Raises ModelError, which names the layer, for features that RANC does not support.

    Neurons and input lines are sources, numbered as in `Network.offsets`. A place has the number x + X*y.
    """

    program: Program

    def __post_init__(self):
        network, schedule = self.program.network, self.program.schedule
        if not isinstance(self.program.chip.family, MergeRouters):
            name = self.program.chip.name
            raise ChipError(f'{name}: noc.router: RANC has "merges"; compile for ranc, or for a chip file based on it')
        if self.program.host is not None:
            raise ModelError(
                "the host computes spikes or biases of every sample; RANC is loaded once, so give it spikes as input"
            )
        if schedule.period != 1:
            raise ModelError("the program runs in phases, and RANC runs all layers at once; compile it pipelined")
        for name in network.layers:
            if not network.node(name).neuron.fires:
                raise ModelError(f"layer {name!r} never fires: RANC's potentials cannot be read; give it a threshold")
        if self.n_outputs > (n_axons := self._figure("core.max_in_axons")):
            raise ModelError(f"{self.n_outputs} output neurons are more than the output bus tells apart, {n_axons}")
        for name in network.outputs:
            fed = [c.target for c in network.out_of(name)]
            if fed:
                raise ModelError(
                    f"layer {name!r} is an output and feeds {fed[0]!r}; a neuron of RANC sends to one place, so add a "
                    "layer for the output"
                )
        self._check_delays()
        self._check_waiting_layers()

    def _figure(self, key: str) -> int:
        value = self.program.chip.value(key)
        if value is None:
            raise ChipError(f"{self.program.chip.name}: {key}: missing key; RANC is built for a number of them")
        return int(np.max(value))

    @property
    def n_outputs(self) -> int:
        """Neurons that send to the output bus."""
        return sum(self.program.network.node(name).n_neurons for name in self.program.network.outputs)

    @cached_property
    def parameters(self) -> Parameters:
        """The parameters of the smallest grid from place 0,0 on that has the used cores and the bus."""
        chip = self.program.chip
        bus = chip.sites[chip.io_cores[0]]
        ends = np.concatenate([self.program.mapping.site_of, bus[None]]).max(0)
        return Parameters(
            columns=int(ends[0]) + 1,
            rows=int(ends[1]) + 1,
            n_neurons=self._figure("core.max_neurons"),
            n_axons=self._figure("core.max_in_axons"),
            n_types=self._figure("weights.axon_types"),
            potential_bits=chip.state.bits,
            weight_bits=chip.weights.bits,
            leak_bits=chip.neuron.bias_bits,
            buffer_depth=chip.noc.buffer_flits,
            bus=(int(bus[0]), int(bus[1])),
            n_outputs=max(self.n_outputs, LEAST_OUTPUTS),
        )

    @cached_property
    def place(self) -> np.ndarray:
        """int64[core]: the number of the place of each logical core."""
        x, y, _ = self.program.mapping.site_of.astype(np.int64).T
        return self.parameters.number(x, y)

    @cached_property
    def slot(self) -> np.ndarray:
        """int64[source]: the neuron's position in its core's scan; 0 for input lines."""
        order, core_of = self.program.visiting_order, self.program.core_of
        slot = np.zeros(len(core_of), np.int64)
        slot[order] = np.arange(len(order)) - np.searchsorted(core_of[order], core_of[order])
        return slot

    @cached_property
    def output(self) -> np.ndarray:
        """int64[source]: its number on the output bus; -1 if it is not an output."""
        network = self.program.network
        number, n = np.full(len(self.program.core_of), -1), 0
        for name in network.outputs:
            first, size = network.offsets[name], network.node(name).n_neurons
            number[first : first + size] = n + np.arange(size)
            n += size
        return number

    @cached_property
    def synapses(self) -> AxonSynapses:
        """The synapses with nonzero weights."""
        network, parts = self.program.network, []
        for c, delay in zip(network.connections, self.program.schedule.delay, strict=True):
            pre, post, place = synapse_list(c, network.node(c.source).shape)
            weight = np.ravel(c.weight)[place].astype(np.int64)
            part = np.stack([pre + network.offsets[c.source], post + network.offsets[c.target], weight])
            parts.append(np.concatenate([part, np.full((1, len(pre)), delay - 1)])[:, weight != 0])
        joined = AxonSynapses(*np.concatenate([np.zeros((4, 0), np.int64), *parts], 1).astype(np.int64))
        is_read = ~sets_other_axon(network)[joined.source]
        return AxonSynapses(*(values[is_read] for values in joined))

    @cached_property
    def axon_of(self) -> np.ndarray:
        """int64[source]: the source whose axons its spikes set: itself, or a neuron with which it shares an axon."""
        network, axon_of = self.program.network, np.arange(len(self.program.core_of))
        for name, first in network.offsets.items():
            if (shared := network.node(name).axon_of) is not None:
                axon_of[first : first + len(shared)] = first + shared
        return axon_of

    @cached_property
    def axons(self) -> np.ndarray:
        """int64[axon, 4]: core, number there, source, delay; sorted by core, source and delay."""
        core = self.program.core_of[self.synapses.target].astype(np.int64)
        rows = np.unique(np.stack([core, self.synapses.source, self.synapses.delay], 1), axis=0)
        number = np.arange(len(rows)) - np.searchsorted(rows[:, 0], rows[:, 0])
        return np.stack([rows[:, 0], number, rows[:, 1], rows[:, 2]], 1)

    @cached_property
    def is_heard(self) -> np.ndarray:
        """bool[source]: whether a neuron reads it, or it is an output. Other neurons are not exported."""
        read = np.zeros(len(self.program.core_of), bool)
        read[self.axons[:, 2]] = True
        return read[self.axon_of] | (self.output >= 0)

    def packets_of(self, source: int) -> np.ndarray:
        """int64[packet, 3]: core, axon and delay of the packets of a source's spike; empty for outputs."""
        packets, of_source = self._packets
        return packets[slice(*np.searchsorted(of_source, self.axon_of[source] + np.arange(2)))]

    @cached_property
    def _packets(self) -> tuple[np.ndarray, np.ndarray]:
        order = np.argsort(self.axons[:, 2], kind="stable")
        return self.axons[order][:, [0, 1, 3]], self.axons[order, 2]

    @cached_property
    def cores(self) -> dict[int, CoreMemory]:
        """The memory of each used core, by the number of its place."""
        return {int(place): self._core(core) for core, place in enumerate(self.place)}

    def _core(self, core: int) -> CoreMemory:
        p, synapses = self.parameters, self.synapses
        mine = self.axons[self.axons[:, 0] == core]
        here = self.program.core_of[synapses.target] == core
        weight = np.zeros((p.n_neurons, p.n_axons), np.int64)
        ours = mine[:, 2] * N_TICKS + mine[:, 3]  # An input line has an axon for each of its delays.
        axon = np.searchsorted(ours, synapses.source[here] * N_TICKS + synapses.delay[here])
        np.add.at(weight, (self.slot[synapses.target[here]], axon), synapses.weight[here])
        weight[self.slot[(self.program.core_of == core) & ~self.is_heard]] = 0
        limit = 1 << (p.weight_bits - 1)
        if weight.max(initial=0) >= limit or weight.min(initial=0) < -limit:
            worst = int(weight.flat[np.abs(weight).argmax()])
            raise ModelError(
                f"a weight of {worst} on core {core} is outside {-limit}..{limit - 1}, what {p.weight_bits} bits hold"
            )
        kind = np.arange(p.n_axons) if p.n_types >= p.n_axons else colors_of_axons(weight.T, p.n_types)
        if kind.max(initial=0) >= p.n_types:
            raise ModelError(f"the axons of core {core} need {kind.max() + 1} types, and there are {p.n_types}")
        of_type = np.zeros((p.n_neurons, p.n_types), np.int64)
        slot, axon = np.nonzero(weight)
        of_type[slot, kind[axon]] = weight[slot, axon]
        empty = empty_core(p)
        return CoreMemory(
            neuron=self._neurons(core, empty.neuron), connected=weight != 0, weight=of_type, axon_type=kind
        )

    def _neurons(self, core: int, table: np.ndarray) -> np.ndarray:
        """NEURON[slot] of a core. `table` is that of an empty core; neurons that are not read stay empty."""
        program, p = self.program, self.parameters
        x, y, _ = (int(n) for n in program.mapping.site_of[core])
        for source in np.flatnonzero((program.core_of == core) & self.is_heard):
            registers = table[self.slot[source]]
            if self.output[source] >= 0:
                to_x, to_y, axon, delay = *p.bus, int(self.output[source]), 0
            else:
                target, axon, delay = (int(n) for n in self.packets_of(source)[0])
                to_x, to_y, _ = (int(n) for n in program.mapping.site_of[target])
            for name, values in self.registers.items():
                registers[name] = values[source]
            for name, value in zip(("dx", "dy", "axon", "delay"), (to_x - x, to_y - y, axon, delay), strict=True):
                registers[name] = value
        return table

    @cached_property
    def registers(self) -> dict[str, np.ndarray]:
        """int64[source] of each register of the neuron update, by field of NEURON.

        RANC adds the leak from the first tick on. A layer that begins k - 1 ticks later starts with an offset that its
        leak brings to 0 by then.
        """
        network, n = self.program.network, len(self.program.core_of)
        numbers = {name: np.zeros(n, np.int64) for name in NEURON.names or ()}
        for name in network.layers:
            node, first = network.node(name), network.offsets[name]
            spec, part = node.neuron, slice(first, first + node.n_neurons)
            of = {
                key: spec.array(key, node.shape).reshape(-1) for key in ("threshold", "bias", "bias_u", "reset_value")
            }
            leak = of["bias"] + of["bias_u"]
            numbers["leak"][part], numbers["threshold"][part] = leak, of["threshold"]
            numbers["v0"][part] = -(self.program.schedule.offset[name] - 1) * leak
            numbers["reset_mode"][part] = SUBTRACTS if spec.reset == "subtract" else 0
            numbers["reset_potential"][part] = of["reset_value"] if spec.reset == "value" else 0
            lowest = np.full(node.n_neurons, -(1 << (self.parameters.potential_bits - 1)))
            if spec.v_min is not None:
                lowest = spec.array("v_min", node.shape).reshape(-1)
            numbers["negative_threshold"][part] = lowest
        return numbers

    @cached_property
    def n_proved_ticks(self) -> int:
        """The number of ticks in which no potential can overflow with any spikes; 2**40 means no limit.

        In a tick a potential rises (falls) by at most the neuron's positive (negative) weights and its leak. A neuron
        that subtracts its threshold, and receives no more than that in a tick, does not accumulate.
        """
        n, of = len(self.program.core_of), self.registers
        rise, fall = np.maximum(of["leak"], 0), np.maximum(-of["leak"], 0)
        np.add.at(rise, self.synapses.target, np.maximum(self.synapses.weight, 0))
        np.add.at(fall, self.synapses.target, np.maximum(-self.synapses.weight, 0))
        top = (1 << (self.parameters.potential_bits - 1)) - 1
        neuron = np.arange(n) >= count_lines(self.program.network)
        subtracts = of["reset_mode"] == SUBTRACTS
        high = np.maximum.reduce([of["threshold"] - 1, of["v0"], of["reset_potential"], -of["reset_potential"]])
        growth = np.where(subtracts, np.maximum(rise - of["threshold"], 0), 0)
        low = np.minimum.reduce([of["v0"], of["reset_potential"], -of["reset_potential"], np.zeros(n, np.int64)])
        is_free = of["negative_threshold"] == -(top + 1)
        floor = np.minimum(np.minimum(low, of["negative_threshold"]), -fall) - fall
        room_up = (top - high - rise)[neuron]
        room_down = np.where(is_free, top + low - fall, top + floor)[neuron]
        if min(room_up.min(), room_down.min()) < 0:
            return 0
        ticks = [np.full(1, 1 << 40)]
        for room, step in ((room_up, growth[neuron]), (room_down, np.where(is_free, fall, 0)[neuron])):
            ticks.append(1 + room[step > 0] // step[step > 0])
        return int(min(t.min(initial=1 << 40) for t in ticks))

    def _check_delays(self) -> None:
        """Raise ModelError if a neuron has more than one axon or delay, as a spike is one packet."""
        packets = np.bincount(self.axons[:, 2], minlength=len(self.program.core_of))
        packets[: count_lines(self.program.network)] = 0
        if packets.max(initial=0) > 1:
            source = int(packets.argmax())
            network = self.program.network
            name = [n for n in network.layers if network.offsets[n] <= source][-1]
            raise ModelError(
                f"neuron {source - network.offsets[name]} of layer {name!r} is read in {packets[source]} ways (cores "
                "or delays), and a neuron of RANC sends to one axon with one delay; put a layer between"
            )
        used = np.bincount(self.axons[:, 0])
        limit = self._figure("core.max_in_axons")
        if used.max(initial=0) > limit:
            text = f"core {used.argmax()} uses {used.max()} of {limit} axons (one per source and delay)"
            raise ModelError(f"{text}; compile with more cores")

    def _check_waiting_layers(self) -> None:
        """Raise ModelError if the leak of a layer reaches a (negative) threshold before the layer begins.

        A layer whose inputs are all delayed has its step 0 before the first tick; its v0 is the result of that step.
        """
        network, of = self.program.network, self.registers
        for name in network.layers:
            n_waits = self.program.schedule.offset[name] - 1
            part = slice(network.offsets[name], network.offsets[name] + network.node(name).n_neurons)
            leak = of["leak"][part]
            first = leak if n_waits < 0 else -(n_waits - 1) * leak  # after its first tick, if it waits; it ends at 0
            high, low = np.maximum(first, 0), np.minimum(first, 0)
            if n_waits and ((high >= of["threshold"][part]) | (low < of["negative_threshold"][part])).any():
                when = f"begins {n_waits} ticks late, and until then its leak reaches a threshold"
                if n_waits < 0:
                    when = "has its step 0 before the first tick, and its leak reaches a threshold in it"
                raise ModelError(f"layer {name!r} {when}; RANC cannot hold a layer back")
