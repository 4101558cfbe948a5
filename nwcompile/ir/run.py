"""Run: what simulating gave, and which backend and device gave it."""

from dataclasses import dataclass, field

import numpy as np

from nwcompile.argument_types import checked
from nwcompile.errors import ModelError, OptionError, unknown_choice
from nwcompile.ir.activity import Activity
from nwcompile.ir.profile import Profile
from nwcompile.ir.shown import count_text, data_frame, format_lines
from nwcompile.lazy_names import look_up

ERROR_CODE = "NW3008"
FRAMES = ("layers", "steps", "cores", "spikes")  # What a row of `Run.to_frame` may be of.
MOST_LAYERS_SHOWN = 3  # A print of a Run has room for three layers beside its counters and times.
COUNTERS = (
    "synops",  # stored weights read for messages, counted at the reading core
    "synops_dense",
    "synops_sparse",
    "synops_conv",
    "weight_reads",  # synapse-memory words read
    "neuron_visits",  # every mapped neuron, every hardware step (phase)
    "neuron_updates",  # neurons with an event, a bias, or state that is not zero
    "neuron_instructions",  # of these updates, beyond the built-in neuron's, where neurons are programs
    "spikes_out",
    "messages_out",  # one per spike and destination core
    "messages_in",  # in-axon look-ups: messages of other neurons and of input lines
    "deliveries",
    "hops",  # route length of the messages, counted at the source core
    "hops_ew",
    "hops_ns",
    "messages_io",  # through the chip's io.sites, counted at the core that they come to or from
    "messages_io_in",  # of input lines; among messages_in too
    "messages_io_out",  # of output layers, one a spike; not among messages_out
    "hops_io_ew",  # of the messages of both kinds
    "hops_io_ns",
)
SUMS = {
    "synops": ("synops_dense", "synops_sparse", "synops_conv"),
    "hops": ("hops_ew", "hops_ns"),
    "messages_io": ("messages_io_in", "messages_io_out"),
}


@dataclass(frozen=True, eq=False)
class BusSchedule:
    """How a segmented bus was used, int64[H] by hardware step: sums of the samples, but the most of what is a peak.

    `slots`: in which anything was transferred, the length of the schedule; times `Chip.slot_cycles` it is how long the
    bus worked. `transfers`: messages over lanes, those of a core to itself are not. Of them `waited` did not go in the
    first slot after they came into the queue of their core, and `conflicts` is how many of those had a core that was
    free to send to a free core, but found every lane's path crossed, in a slot while they waited. `lane_slots`: lanes
    in use, added up over the slots. `peak_lanes`: most lanes in use in a slot. `peak_queue`: most messages waiting in a
    core for their slots.
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
    """What is known of the steps that `record="totals"` has summed up: T aligned and H hardware steps, the longest one.

    The Run's `spikes` are then int64[B, 1, *shape], how many each neuron sent; its `states` and output those of layers
    that never fire, int64[B, 1, *shape] after the last step; every array by hardware step has one row, the sum of all.
    `longest_cycles` is that of one sample's step, with its barrier.
    """

    n_steps: int
    n_hardware_steps: int
    longest_cycles: int | None


@dataclass(frozen=True, eq=False)
class Dropped:
    """Messages that found the buffer full into which they were to be injected, and were lost: int64[H, core + site].

    Or that came in the cycle in which a core clears its axons, where routers are merges (`ir/noc/merges.py`).

    Summed over B; `at` by where they were to be injected, `to` by where they were to go (of a multicast tree, to each
    of its cores): logical cores, and after them the chip's io.sites.
    """

    at: np.ndarray
    to: np.ndarray


@dataclass(frozen=True)
class HostWork:
    """What the host did for all samples: `layers` on it, multiplications, registers written, numbers clipped."""

    way: str
    layers: tuple[str, ...]
    n_macs: int
    n_writes: int
    n_clipped: int


@dataclass(frozen=True, eq=False)
class Run:
    """Aligned `spikes` and `states` `[B, T, *shape]`, `counters` int64[H, core] per hardware step, summed over B.

    `output`: of the output layer (a dict of them if there are several), spikes, or the membrane `v` of a readout.
    `step_cycles` int64[H], in core cycles, summed over B, `seconds` and `energy_pj` are None where the backend or the
    chip does not give them. In `window="hardware"` step t of every array is hardware step t. Float networks have
    empty `counters`. `order_dependent` int64[place, 3], sample, step and neuron by layer: where a chip that saturates
    at every addition may come to another current, as that depends on the order in which spikes of both signs arrive.
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
    step_energy_pj: dict[str, np.ndarray] | None = None  # float64[H], of which energy_pj is the exact sum (math.fsum)
    activity: Activity | None = None
    link_flits: np.ndarray | None = None  # int64[H, link], measured by `cycle`
    dropped: Dropped | None = None  # on a chip with noc.on_full = "drop"
    profile: Profile | None = None  # of `cycle`, if asked for
    totals: Totals | None = None  # of `cycle`, if asked for
    bus: BusSchedule | None = None  # of `cycle`, on a chip with a segmented bus
    order_dependent: dict[str, np.ndarray] | None = None  # see below; where additions saturate one by one
    host: HostWork | None = None  # of a program whose input the host computes something of

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
            rows.append(f"time: {self.seconds * 1e6:.6g} us")
        if self.energy_pj is not None:
            rows.append(f"energy: {self.energy_pj['total'] / 1000:.6g} nJ")
        return format_lines(head, rows, "figures")

    def _repr_html_(self) -> str:
        return look_up("nwcompile.ir.run", "html_of_run")(self)

    @checked()
    def to_frame(self, rows: str = "layers"):
        """The run as a tidy pandas.DataFrame, all samples added up, in one of four forms.

        `rows="layers"`: neurons, spikes, and spikes of a neuron in a step, of every layer. "steps": every counter, and
        `step_cycles`, `energy_pj` and `power_mw` where they are known, of every hardware step. "cores": every counter
        of every logical core. "spikes": sample, step, layer, neuron (flat) and count of every spike, the negative ones
        with a negative count. Raises OptionError for other words and where pandas is not installed, and ModelError
        where the run has not kept what is asked for: counters are those of programs, and single spikes are not in runs
        of `record="totals"`.
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
            return data_frame({rows[:-1]: np.arange(n), **sums})
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
        """What is known of hardware steps beside their counters: cycles, energy and power."""
        energy = None if self.step_energy_pj is None else self.step_energy_pj["total"]
        figures = {"step_cycles": self.step_cycles, "energy_pj": energy, "power_mw": self.step_power_mw}
        return {name: values for name, values in figures.items() if values is not None}

    def layer_rows(self) -> list[dict]:
        """Of every layer: its neurons, its spikes, of either sign, and spikes of a neuron in a step."""
        rows = []
        for name, spikes in self.spikes.items():
            n_steps = spikes.shape[1] if self.totals is None else self.totals.n_steps
            n_neurons = int(np.prod(spikes.shape[2:]))
            n_spikes = int(np.abs(spikes, dtype=np.int64).sum())
            rate = n_spikes / max(self.n_samples * n_steps * n_neurons, 1)
            row = {"layer": name, "neurons": n_neurons, "spikes": n_spikes, "spikes_per_neuron_and_step": rate}
            rows.append(row)
        return rows

    @property
    def step_power_mw(self) -> np.ndarray | None:
        """float64[H]: energy of each hardware step over the time it took; None where they are not known, or no time."""
        energy, cycles, seconds = self.step_energy_pj, self.step_cycles, self.seconds
        if energy is None or cycles is None or seconds is None or not cycles.all():
            return None
        cycle_us = seconds * 1e6 / cycles.sum()
        return energy["total"] / (1000 * cycle_us * cycles)  # 1 pJ in 1 us is a microwatt

    @property
    def n_dropped(self) -> int:
        """How many messages were lost; their spikes are counted, and messages_out, but no hops and no arrivals."""
        return 0 if self.dropped is None else int(self.dropped.at.sum())

    def verify(self) -> None:
        """Raise ModelError unless samples, steps and cores are the same everywhere and the counters add up."""
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
