"""The sequence-parallel backend on a GPU: the same integers as on the CPU, bit for bit.

Synaptic sums are exact matrix products (`product.py`), or gathers for sparse connections. The time loop of the neurons
is inside one Triton kernel (`kernels/gpu/neuron.py`). Layers that feed each other advance together by as many steps as
their shortest delay. Sums that cannot be proved exact raise an error; nothing is approximated.
"""

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from nwcompile.ir.network import Network, Node
from nwcompile.ir.shown import count_text
from nwcompile.sim.machine import Rows
from nwcompile.sim.sequence.cuda.device import room_on_gpu
from nwcompile.sim.sequence.cuda.neurons import GpuNeurons, Scan, loop_of
from nwcompile.sim.sequence.cuda.product import INT32, INT64, ProductPlan, verify_sum
from nwcompile.sim.sequence.cuda.programs import GpuProgram, ProgramScan
from nwcompile.sim.sequence.cuda.synapses import build_synapses

Range = tuple[int, int]  # least and largest value
STATE_BYTES = 4  # per state at least: int32


@dataclass(frozen=True, eq=False)
class Recorded:
    """Results by layer on the device: spikes and recorded states `[B, T, *shape]`, updates int32[T, n]."""

    spikes: dict[str, torch.Tensor]
    states: dict[str, dict[str, torch.Tensor]]
    updates: dict[str, torch.Tensor]


@dataclass(frozen=True, eq=False)
class Edge:
    """A connection into a layer: its delay in steps, its synapses on the device, and the plan of their sums."""

    source: str
    delay: int
    synapses: Any  # DenseSynapses, ConvSynapses or SparseSynapses
    plan: ProductPlan


class Inference:
    """A fixed-point network of effective weights on a device. Its weights are copied there once for all runs.

    `groups`: names of layers that run together, sources first. `delays[i]`: steps of connection i.
    """

    def __init__(self, network: Network, groups: list[list[str]], delays, device: torch.device):
        self.names, self.groups, self.device = network.layers, groups, device
        self.neurons = {
            name: (GpuProgram if name in network.programs else GpuNeurons)(network.node(name), device)
            for name in network.layers
        }
        self.into: dict[str, list[tuple]] = {name: [] for name in network.layers}
        for c, delay in zip(network.connections, delays, strict=True):
            into = build_synapses(c, network.node(c.source), network.node(c.target), device)
            self.into[c.target].append((c.source, int(delay), into))
        self.loops = {}
        for name, *others in groups:
            own_loops = [e for e in zip(network.connections, delays, strict=True) if e[0].source == e[0].target == name]
            one_kernel = own_loops and not others and name not in network.programs
            self.loops[name] = loop_of(network.node(name), own_loops, device) if one_kernel else None

    def run_layers(self, sources: dict, done: Rows) -> None:
        """Fill the rows of all layers in `done`, NumPy arrays, from the inputs `sources`."""
        ranges = {name: (min(int(x.min()), 0), max(int(x.max()), 0)) for name, x in sources.items()}
        kinds = {name: np.int8 if low >= -128 and high <= 127 else np.int32 for name, (low, high) in ranges.items()}
        given = {name: torch.from_numpy(x.astype(kinds[name])).to(self.device) for name, x in sources.items()}
        keeps_all = len(done.states) == len(self.names)
        results = self.infer(given, done.spikes[self.names[0]].shape[:2], keeps_all, True, ranges)
        for name in self.names:
            done.spikes[name][...] = results.spikes[name].cpu().numpy()
            done.counts[name][...] = results.updates[name].cpu().numpy()
            for state, kept in results.states.get(name, {}).items():
                done.states[name][state][...] = kept.cpu().numpy()

    @torch.no_grad()
    def infer(
        self,
        inputs: dict[str, torch.Tensor],
        shape: tuple[int, int],
        keep_states: bool = False,
        counts: bool = True,
        ranges: dict[str, Range] | None = None,
    ) -> Recorded:
        """Return spikes for int8 or int32 `inputs[name]` `[B, T, *shape]`, and states of readouts or of all layers.

        `shape`: (B, T). `counts`: count neuron updates, which needs every event. `ranges`: bounds of the values of
        every input; default: computed. Raises BackendError if sums cannot be proved exact, or the GPU's memory is too
        small.
        """
        ranges = dict(ranges or {name: range_of(x) for name, x in inputs.items()})
        sources = dict(inputs)
        done = Recorded({}, {}, {})
        work = f"a run of {count_text(shape[0], 'sample')} of {count_text(shape[1], 'step')}"
        n_bytes = shape[0] * shape[1] * self._recorded_bytes(keep_states)
        with room_on_gpu(self.device, work, n_bytes) if self.device.type == "cuda" else nullcontext():
            for names in self.groups:
                self._run_group(names, shape, sources, ranges, keep_states, counts, done)
        return done

    def _recorded_bytes(self, keep_states: bool) -> int:
        """Return the least bytes of the results of `infer` per sample and step; a state takes 4 bytes or more."""
        n_bytes = 0
        for node in (neurons.node for neurons in self.neurons.values()):
            n_states = len(node.neuron.state_names) if keep_states or not node.neuron.fires else 0
            n_bytes += node.n_neurons * (np.dtype(node.neuron.spike_dtype).itemsize + STATE_BYTES * n_states)
        return n_bytes

    def _run_group(self, names, shape, sources: dict, ranges: dict, keep_states, counts, done: Recorded) -> None:
        ranges |= {name: self.neurons[name].spike_range for name in names}
        edges = {name: [Edge(s, d, syn, syn.plan(*ranges[s])) for s, d, syn in self.into[name]] for name in names}
        inner = {name: [e for e in into if e.source in names] for name, into in edges.items()}
        drives, scans = {}, {}
        for name in names:
            neurons = self.neurons[name]
            largest = sum(e.synapses.row_sum * max(-ranges[e.source][0], ranges[e.source][1]) for e in edges[name])
            verify_sum(f"layer {name!r}", neurons.largest_drive(largest), INT64)
            drives[name] = Drive((*shape, neurons.node.n_sums), self.device, largest, counts)
            for edge in edges[name]:
                if edge.source not in names:
                    drives[name].add_edge(edge, sources[edge.source], slice(0, shape[1]))
            keeps = keep_states or not neurons.node.neuron.fires
            n_samples, n_steps = shape
            scans[name] = neurons.scan(n_samples, n_steps, largest, keeps, counts)
        loop, first = self.loops[names[0]], scans[names[0]]
        if loop is not None and isinstance(first, Scan) and not first.is_wide:
            first.run_loop(*drives[names[0]].step_inputs(slice(0, shape[1])), loop)
        else:
            _advance_group(inner, drives, scans, shape[1])
        for name, scan in scans.items():
            self._record_layer(name, scan, done)
            sources[name] = _heard_spikes(self.neurons[name].node, done.spikes[name])
            if self.neurons[name].node.neuron.message in ("multi", "graded"):
                ranges[name] = range_of(sources[name])

    def _record_layer(self, name: str, scan: Scan | ProgramScan, done: Recorded) -> None:
        shape = self.neurons[name].node.shape
        done.spikes[name] = scan.spikes.unflatten(2, shape)
        if scan.keeps:
            done.states[name] = {state: kept.unflatten(2, shape) for state, kept in scan.states.items()}
        if scan.counts:
            done.updates[name] = scan.updates


def _heard_spikes(node: Node, spikes: torch.Tensor) -> torch.Tensor:
    """`Node.merge_axon_spikes` of spikes on a device."""
    if node.axon_of is None:
        return spikes
    flat = spikes.flatten(2)
    axon_of = torch.from_numpy(node.axon_of).to(flat.device).expand(flat.shape)
    return torch.zeros_like(flat).scatter_reduce_(2, axon_of, flat, "amax").view_as(spikes)


def _advance_group(inner: dict[str, list[Edge]], drives: dict, scans: dict, n_steps: int) -> None:
    """Run layers over all steps, in chunks as long as the shortest delay of the connections between them.

    Connections without delay act within a chunk, so their sources come first.
    """
    length = min([n_steps, *(edge.delay for edges in inner.values() for edge in edges if edge.delay)])
    for start in range(0, n_steps, length):
        steps = slice(start, min(start + length, n_steps))
        for name, scan in scans.items():
            for edge in inner[name]:
                drives[name].add_edge(edge, scans[edge.source].spikes, steps)
            scan.advance(*drives[name].step_inputs(steps), steps, length < n_steps)


class Drive:
    """Input of a layer: sums [sample, step, sum], to be shifted left by `bits`, and events.

    `largest` bounds the shifted sums. Events are uint8 [sample, step, sum or 1], and only present with `counts`.
    """

    def __init__(self, shape: tuple[int, int, int], device: torch.device, largest: int, counts: bool):
        self.shape, self.device, self.counts, self.bits = shape, device, counts, 0
        self.number = torch.int32 if largest <= INT32 else torch.int64
        self.sums: torch.Tensor | None = None
        self.touched: torch.Tensor | None = None

    def add_edge(self, edge: Edge, source: torch.Tensor, steps: slice) -> None:
        """Add the input of a connection in `steps`; source: [sample, step, ...] from step 0 on."""
        first = max(steps.start, edge.delay)
        if first >= steps.stop:
            return
        rows = source[:, first - edge.delay : steps.stop - edge.delay]
        rows = rows.reshape(-1, *rows.shape[2:])
        part = edge.synapses.sum_rows(rows, edge.plan).unflatten(0, (self.shape[0], -1))
        events = edge.synapses.touched_targets(rows).unflatten(0, (self.shape[0], -1)) if self.counts else None
        if self.sums is None and part.shape == self.shape:
            self.sums, self.bits, self.touched = part, edge.plan.bits, events
            return
        self._open_sums()[:, first : steps.stop] += part.to(self.number) << edge.plan.bits
        if events is not None and self.touched is not None:
            if events.shape[2] > self.touched.shape[2]:
                self.touched = self.touched.expand(self.shape).contiguous()
            self.touched[:, first : steps.stop] |= events

    def step_inputs(self, steps: slice) -> tuple[torch.Tensor, int, torch.Tensor | None]:
        """Return the sums of these steps, their bits, and events."""
        sums = self._open_sums() if self.sums is None else self.sums
        return sums[:, steps], self.bits, None if self.touched is None else self.touched[:, steps]

    def _open_sums(self) -> torch.Tensor:
        """Return sums to which more can be added; they begin with 0."""
        if self.sums is None:
            self.sums = torch.zeros(self.shape, dtype=self.number, device=self.device)
            if self.counts:
                self.touched = torch.zeros((*self.shape[:2], 1), dtype=torch.uint8, device=self.device)
        elif self.bits or self.sums.dtype != self.number:
            self.sums, self.bits = self.sums.to(self.number) << self.bits, 0
        return self.sums


def range_of(x: torch.Tensor) -> Range:
    """Return the least and the largest of 0 and the values of `x`."""
    low, high = torch.aminmax(x)
    return min(int(low), 0), max(int(high), 0)
