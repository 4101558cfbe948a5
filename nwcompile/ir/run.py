"""Run: the result of a simulation, with its backend and device."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from nwcompile.argument_types import checked
from nwcompile.errors import ModelError, OptionError, unknown_choice
from nwcompile.ir.activity import Activity
from nwcompile.ir.readout import Readout
from nwcompile.ir.shown import count_text, data_frame, format_figure, format_lines, name_energy
from nwcompile.lazy_names import look_up

ERROR_CODE = "NW3008"
FRAMES = ("layers", "steps", "cores", "spikes")  # Row kinds of `Run.to_frame`.
MOST_LAYERS_SHOWN = 3  # `repr` has room for three layers, counters and times.
COUNTERS = (
    "synops",  # stored weights read for messages, counted at the reading core
    "synops_dense",
    "synops_sparse",
    "synops_conv",
    "weight_reads",  # synapse-memory words read
    "neuron_visits",  # every mapped neuron, every hardware step (phase)
    "neuron_updates",  # neurons with an event, a bias, or nonzero state
    "neuron_instructions",  # instructions of neuron programs in these updates, beyond the built-in neuron's
    "spikes_out",
    "messages_out",  # one per spike and destination core
    "messages_in",  # fan-in axon lookups: messages of neurons and of input lines
    "deliveries",
    "hops",  # route length of the messages, counted at the source core
    "hops_ew",
    "hops_ns",
    "messages_io",  # messages through io.sites, counted at the core that receives or sends them
    "messages_io_in",  # from input lines; also counted in messages_in
    "messages_io_out",  # from output layers, one per spike; not counted in messages_out
    "hops_io_ew",  # of messages_io in both directions
    "hops_io_ns",
)
SUMS = {
    "synops": ("synops_dense", "synops_sparse", "synops_conv"),
    "hops": ("hops_ew", "hops_ns"),
    "messages_io": ("messages_io_in", "messages_io_out"),
}


@dataclass(frozen=True, eq=False)
class BusSchedule:
    """Usage of a segmented bus, int64[H] by hardware step: sums over samples, or maxima for peaks.

    `slots`: slots with any transfer, the length of the schedule; times `Chip.slot_cycles` it is the busy time of the
    bus. `transfers`: messages over lanes, without those of a core to itself. `waited`: transfers that did not go in the
    first slot after entering the queue of their core. `conflicts`: waiting transfers for which, in some slot, both
    cores were free but the path was taken on every lane. `lane_slots`: lanes in use, summed over slots. `peak_lanes`:
    maximum of lanes in use in a slot. `peak_queue`: maximum of messages waiting in a core.
    """

    slots: np.ndarray
    transfers: np.ndarray
    waited: np.ndarray
    conflicts: np.ndarray
    lane_slots: np.ndarray
    peak_lanes: np.ndarray
    peak_queue: np.ndarray


@dataclass(frozen=True)
class Totals:
    """Steps that `record="totals"` summed up: T aligned and H hardware steps, and the cycles of the longest step.

    The Run's `spikes` are then int64[B, 1, *shape], the number of spikes of each neuron. Its `states` and output are of
    layers that never fire, int64[B, 1, *shape] after the last step. Arrays by hardware step have one row, the sum.
    `longest_cycles` is the longest step of a sample, including its barrier.
    """

    n_steps: int
    n_hardware_steps: int
    longest_cycles: int | None


@dataclass(frozen=True, eq=False)
class Dropped:
    """Messages that were lost because their injection buffer was full, int64[H, core + site].

    If routers are merges, messages that arrive in the cycle in which a core clears its axons are lost instead
    (`families/merges/chip.py`).

    Counts are summed over B: `at` by place of injection, `to` by destination (every core of a multicast tree). Places
    are logical cores, then the chip's io.sites.
    """

    at: np.ndarray
    to: np.ndarray


@dataclass(frozen=True)
class HostWork:
    """Work of the host for all samples: its `layers`, multiplications, register writes and clipped numbers."""

    way: str
    layers: tuple[str, ...]
    n_macs: int
    n_writes: int
    n_clipped: int


@dataclass(frozen=True, eq=False)
class Profile:
    """Time breakdown of a run (`simulate(..., profile=True)`): core cycles, summed over samples, for H hardware steps.

    Memory does not grow with messages.

    `stall_cycles` float64[H, core]: time that the send side waited for room to inject. A shared unit that receives
    meanwhile does not wait. `done_cycles` float64[H, core]: time from the beginning of a step (of each phase) until the
    receive side, or the shared unit, finished its last work.

    `link_peak` int64[link], `link_mean` float64[link]: flits in the buffers at the end of a link, including those on
    the link. The mean is over the time of all steps without barriers.

    `latency_cycles` int64[k] ascending, `latency_count` int64[k]: histogram of the time from a message being ready for
    injection until the receiving core takes it; exact below 1024 cycles, above it up to 1/512 too long. `latency_sum`
    and `latency_max` are exact. Messages of input lines are at their core from the beginning.

    `path`: the critical path of each hardware step, for the core that finished last in the longest phase. By name, [H]:
    `step`; `sample`; `core`; `source_layer`, the input or layer whose message began the core's last uninterrupted work,
    and `source`, the index of its line or neuron there ("" and -1: the core worked, or waited for injections, from the
    beginning; "" and -2: it received input from the beginning). `link` is the link of this message's route that is
    busiest in the step. For source -1 it is taken from the route of this core's message that waited longest to be
    injected (-1: none waited). The times are float64: `total`; `ready`, when the message was ready; `stalled`, how long
    its core (for -1: this core) had waited for injections before; `injected`; `since`, when the message was taken;
    `end`, when the work ended.

    `flight`: for each of the requested first steps of the first sample, float64[k, 2]: core cycles since the beginning
    of the step, and flits in the network from then on (the maximum over a short interval).
    """

    stall_cycles: np.ndarray
    done_cycles: np.ndarray
    link_peak: np.ndarray
    link_mean: np.ndarray
    latency_cycles: np.ndarray
    latency_count: np.ndarray
    latency_sum: int
    latency_max: int
    path: dict[str, np.ndarray]
    flight: tuple[np.ndarray, ...] = ()


@dataclass(frozen=True)
class Silicon:
    """A network measured on a chip, and what the chip's file gives for it. `quantity`: "time", "energy" or "latency".

    `judges` is false if a constant of the chip file was fitted to this row: the difference is then no error.
    """

    chip: str
    network: str
    layout: str
    quantity: str
    unit: str
    measured: float
    model: float
    error_percent: float
    judges: bool
    source: str


@dataclass(frozen=True)
class Basis:
    """The basis of a figure: the weakest of the constants that move it by more than 1 % when doubled.

    `keys`: those constants of that basis, the strongest first. `silicon`: measurements of the chip.
    As a text: `scaled; -35 % on PilotNet`.
    """

    basis: str
    keys: tuple[str, ...]
    silicon: tuple[Silicon, ...] = ()

    def __str__(self) -> str:
        return self.basis if self.error is None else f"{self.basis}; {self.error}"

    @property
    def error(self) -> str | None:
        """The errors against silicon, from lowest to highest: `-41 to -18 % on Quartz MNIST`; None if unknown."""
        rows = [row for row in self.silicon if row.judges]
        if not rows:
            return None
        ends = dict.fromkeys(f"{round(end(row.error_percent for row in rows)):+d}" for end in (min, max))
        networks = list(dict.fromkeys(row.network for row in rows))
        return f"{' to '.join(ends)} % on {networks[0] if len(networks) == 1 else f'{len(networks)} networks'}"


@dataclass(frozen=True, eq=False)
class Run:
    """Result of a simulation: aligned `spikes` and `states` `[B, T, *shape]`, `counters` int64[H, core] summed over B.

    `output` has the spikes of the output layer, or the membrane `v` of a readout; with several output layers it is a
    dict. `step_cycles` int64[H], in core cycles, summed over B, `seconds` and `energy_pj` are None if the backend or
    the chip does not give them. With `window="hardware"` step t of every array is hardware step t. Float networks have
    empty `counters`. `order_dependent`, by layer int64[place, 3] of (sample, step, neuron): sums whose result may
    depend on the order of arriving spikes, on a chip that saturates at every addition.
    """

    backend: str
    device: str
    window: str
    n_samples: int
    spikes: dict[str, np.ndarray]
    states: dict[str, dict[str, np.ndarray]]
    output: np.ndarray | dict[str, np.ndarray]
    counters: dict[str, np.ndarray] = field(default_factory=dict)
    step_cycles: np.ndarray | None = None
    seconds: float | None = None
    energy_pj: dict[str, float] | None = None
    step_energy_pj: dict[str, np.ndarray] | None = None  # float64[H]; energy_pj is its exact sum (math.fsum)
    activity: Activity | None = None
    link_flits: np.ndarray | None = None  # int64[H, link], from `cycle`
    dropped: Dropped | None = None  # on a chip with noc.on_full = "drop", or with merges
    profile: Profile | None = None  # from `cycle`, if requested
    totals: Totals | None = None  # from `cycle`, if requested
    bus: BusSchedule | None = None  # from `cycle`, on a chip with a segmented bus
    order_dependent: dict[str, np.ndarray] | None = None  # see above; only if every addition saturates
    host: HostWork | None = None  # of a program with a host
    find_basis: Callable[["Run", str], Basis | None] | None = field(default=None, compare=False)  # cost/basis.py
    readout: Readout | None = None  # how the imported module turns the layers into its answer (sim/answers.py)

    def __repr__(self) -> str:
        n_steps = next(iter(self.spikes.values())).shape[1] if self.spikes else 0
        n_steps = n_steps if self.totals is None else self.totals.n_steps
        steps = f"{count_text(n_steps, 'step')}" if n_steps else "predicted, not simulated"
        head = f"Run ({self.backend}, {self.device}): {count_text(self.n_samples, 'sample')} of {steps}"
        rows = [
            f"layer {name}: {count_text(int(np.abs(s, dtype=np.int64).sum()), 'spike')}"
            for name, s in self.spikes.items()
        ]
        if len(rows) > MOST_LAYERS_SHOWN:
            rows = rows[:MOST_LAYERS_SHOWN] + [f"... and {len(rows) - MOST_LAYERS_SHOWN} more layers"]
        for name in ("synops", "messages_out", "hops") if self.counters else ():
            rows.append(f"{name}: {int(self.counters[name].sum())}")
        n_open = sum(len(places) for places in (self.order_dependent or {}).values())
        if n_open:
            rows.append(f"{count_text(n_open, 'sum')} that may depend on the order of spikes (Run.order_dependent)")
        if self.seconds is not None:
            rows.append(f"time: {format_figure(self.seconds * 1e6, 'us', self.time_basis)}")
        if self.energy_pj is not None:
            rows.append(
                f"{self.energy_label}: {format_figure(self.energy_pj['total'] / 1000, 'nJ', self.energy_basis)}"
            )
        return format_lines(head, rows, "figures")

    def _repr_html_(self) -> str:
        return look_up("nwcompile.ir.run", "html_of_run")(self)

    @checked()
    def plot_raster(self, sample: int = 0):
        """Return a matplotlib Figure of the spikes of one sample: a panel per layer, a mark per neuron and step.

        Neurons are in flat C order. A spike count of any size and sign has one mark. Raises ModelError if the run keeps
        no single spikes (`record="totals"`), and OptionError for another sample and without matplotlib.
        """
        return look_up("nwcompile.ir.run", "plot_raster")(self, sample)

    @checked()
    def plot_states(
        self, layer: str | None = None, state: str = "v", neurons: Sequence[int] | None = None, sample: int = 0
    ):
        """Return a matplotlib Figure of a state of neurons after each step of one sample; dots are their spikes.

        It has a panel for `layer`, or for each layer with that state. `neurons`: flat indices; by default the five that
        spike most. The unit is that of the network: integers of the chip for a program. Raises ModelError unless the
        run was recorded with `record="all"`, and OptionError for an unknown layer, state, neuron or sample and without
        matplotlib.
        """
        return look_up("nwcompile.ir.run", "plot_states")(self, layer, state, neurons, sample)

    @checked()
    def to_frame(self, rows: str = "layers"):
        """Return the run as a tidy pandas.DataFrame, summed over samples, with one of four kinds of rows.

        `rows="layers"`: neurons, spikes, and spikes per neuron and step of every layer. "steps": every counter of every
        hardware step, and `step_cycles`, `energy_pj` and `power_mw` if they are known; `DataFrame.attrs` has their
        basis. "cores": every counter of every logical core. "spikes": sample, step, layer, neuron (flat) and count of
        every spike; negative spikes have a negative count. Raises OptionError for another kind and if pandas is not
        installed. Raises ModelError if the run has no such data: only runs of programs have counters, and
        `record="totals"` keeps no single spikes.
        """
        if rows not in FRAMES:
            raise OptionError(unknown_choice("rows", rows, FRAMES))
        if rows in ("steps", "cores"):
            if not self.counters:
                raise ModelError(f"the run has no counters for rows={rows!r}; simulate a compiled program for them")
            sums = {name: values.sum(0 if rows == "cores" else 1) for name, values in self.counters.items()}
            if rows == "steps":
                sums |= self._step_figures()
            n = len(sums["synops"])
            bases = (self.time_basis, self.energy_basis) if rows == "steps" else ()
            return data_frame({rows[:-1]: np.arange(n), **sums}, *bases)
        if rows == "layers":
            return data_frame(self.layer_rows())
        if self.totals is not None:
            raise ModelError("the run keeps totals only, no single spikes; simulate with record='spikes' for them")
        columns: dict[str, list] = {"sample": [], "step": [], "layer": [], "neuron": [], "count": []}
        for name, spikes in self.spikes.items():
            flat = spikes.reshape(*spikes.shape[:2], -1)
            sample, step, neuron = np.nonzero(flat)
            count = flat[sample, step, neuron]
            for key, values in zip(columns, (sample, step, np.full(len(sample), name), neuron, count), strict=True):
                columns[key].append(values)
        return data_frame({key: np.concatenate(parts) if parts else [] for key, parts in columns.items()})

    def _step_figures(self) -> dict[str, np.ndarray]:
        """Return the known cycles, energy and power of hardware steps."""
        energy = None if self.step_energy_pj is None else self.step_energy_pj["total"]
        figures = {"step_cycles": self.step_cycles, "energy_pj": energy, "power_mw": self.step_power_mw}
        return {name: values for name, values in figures.items() if values is not None}

    def layer_rows(self) -> list[dict]:
        """Return one row per layer: neurons, spikes of either sign, spikes per neuron and step."""
        rows = []
        for name, spikes in self.spikes.items():
            n_steps = spikes.shape[1] if self.totals is None else self.totals.n_steps
            n_neurons = int(np.prod(spikes.shape[2:]))
            n_spikes = int(np.abs(spikes, dtype=np.int64).sum())
            rate = n_spikes / max(self.n_samples * n_steps * n_neurons, 1)
            row = {"layer": name, "neurons": n_neurons, "spikes": n_spikes, "spikes_per_neuron_and_step": rate}
            rows.append(row)
        return rows

    @cached_property
    def time_basis(self) -> Basis | None:
        """The basis of the chip's times; None if the chip gives none."""
        return None if self.find_basis is None else self.find_basis(self, "time")

    @cached_property
    def energy_basis(self) -> Basis | None:
        """The basis of the energies; None if the chip gives none."""
        return None if self.find_basis is None else self.find_basis(self, "energy")

    @property
    def energy_label(self) -> str:
        """The note on the energies: without static power, they cover the cores only."""
        return name_energy((self.energy_pj or {}).get("static"))

    @property
    def step_power_mw(self) -> np.ndarray | None:
        """float64[H]: energy of each hardware step divided by its time; None if unknown or if a time is 0."""
        energy, cycles, seconds = self.step_energy_pj, self.step_cycles, self.seconds
        if energy is None or cycles is None or seconds is None or not cycles.all():
            return None
        cycle_us = seconds * 1e6 / cycles.sum()
        return energy["total"] / (1000 * cycle_us * cycles)  # 1 pJ per us is 1 microwatt

    @property
    def n_dropped(self) -> int:
        """Number of lost messages; their spikes and messages_out are counted, their hops and arrivals are not."""
        return 0 if self.dropped is None else int(self.dropped.at.sum())

    def verify(self) -> None:
        """Raise ModelError unless all arrays have the same samples, steps and cores, and the counters add up."""
        for name, spikes in self.spikes.items():
            steps = next(iter(self.spikes.values())).shape[1]
            if spikes.shape[:2] != (self.n_samples, steps):
                raise ModelError(
                    f"run: spikes of {name!r} are {list(spikes.shape)}, not [{self.n_samples}, {steps}, ...]"
                )
            for state, values in self.states.get(name, {}).items():
                if values.shape != spikes.shape:
                    raise ModelError(
                        f"run: state {state} of {name!r} is {list(values.shape)}, its spikes {list(spikes.shape)}"
                    )
        if not self.counters:
            return
        shape = next(iter(self.counters.values())).shape
        for counter in COUNTERS:
            counts = self.counters.get(counter)
            if counts is None or counts.shape != shape or counts.dtype != np.int64 or counts.min(initial=0) < 0:
                raise ModelError(f"run: counter {counter} is missing or not int64{list(shape)} of counts")
        for total, parts in SUMS.items():
            if not np.array_equal(self.counters[total], sum(self.counters[part] for part in parts)):
                raise ModelError(f"run: {total} is not the sum of {', '.join(parts)}")
        if self.step_cycles is not None and self.step_cycles.shape != shape[:1]:
            raise ModelError(f"run: step_cycles has {len(self.step_cycles)} steps, the counters {shape[0]}")
