"""Summary: all figures of a report about a program and one run of it."""

from dataclasses import dataclass, replace

import numpy as np

from nwcompile.cost.basis import ENERGY, TIME, find_basis
from nwcompile.cost.energy import BoardEnergy, board_energy, core_energy_pj, energy_pj, step_energy_pj
from nwcompile.cost.time.floorline import Floorline, OtherSync, bound_tightness, floorline, other_sync
from nwcompile.cost.time.profile import CriticalPath, LinkLoad, Phases, congested_links, core_phases, critical_paths
from nwcompile.cost.traffic.axons import core_use
from nwcompile.cost.traffic.core_traffic import CoreTraffic, core_traffic
from nwcompile.cost.traffic.events import count_events, synops_into
from nwcompile.cost.traffic.link_flits import flits_of_run, link_flits
from nwcompile.cost.traffic.multicast import can_fork, spike_fanout
from nwcompile.errors import ModelError
from nwcompile.ir.activity import Activity
from nwcompile.ir.flat import csr_sums
from nwcompile.ir.program import Program
from nwcompile.ir.resources import RESOURCE_OF
from nwcompile.ir.run import Basis, Run

ERROR_CODE = "NW7003"


@dataclass(frozen=True)
class Sender:
    """An input or layer with non-binary spikes: their shares of its spiking steps, 0..1, and the largest magnitude."""

    name: str
    several: float
    negative: float
    largest: int


@dataclass(frozen=True)
class MultiSpikes:
    """Effect of `senders` on the messages and synops of a sample.

    `sent`, `binary`, `one_by_one`: (messages, synops) of the whole network as sent, with one message per spiking step,
    and with n messages for n spikes. `payload_flits`: flits by which counts and signs lengthen a message.
    """

    on_multi_spike: str
    senders: tuple[Sender, ...]
    sent: tuple[float, float]
    binary: tuple[float, float]
    one_by_one: tuple[float, float]
    payload_flits: int


def multi_spikes(program: Program, activity: Activity, counters: dict[str, np.ndarray]) -> MultiSpikes | None:
    """Return the cost of several or negative spikes per step in a run of `program`; None if all spikes are binary.

    `counters[name]`: int64[H, core] of the same run.
    """
    if not activity.multi:
        return None
    axons, senders = program.axons, []
    synops = csr_sums(axons.offset, axons.synops.sum(1))
    per_spike = (np.diff(axons.offset), synops)  # of every source: messages and synops
    added = np.zeros((2, 2), np.int64)  # binary, one by one; messages, synops
    for name, multi in activity.multi.items():
        first = program.network.offsets[name]
        senders_slice = slice(first, first + len(multi.event_counts))
        for i, times in enumerate((multi.event_counts, multi.spikes)):
            added[i] += [int((times * amount[senders_slice]).sum()) for amount in per_spike]
        events, _, several, negative = multi.by_source.sum(1).tolist()
        senders.append(Sender(name, several / events, negative / events, multi.largest))
    sent = np.array([counters["messages_in"].sum(), counters["synops"].sum()])
    rest = sent - added[1 if program.repeats else 0]
    totals = np.stack([sent, *(rest + added)]) / activity.n_samples
    sent_now, binary, one_by_one = ((float(messages), float(synops)) for messages, synops in totals)
    layers = [s.name for s in senders if s.name in program.network.layers]
    flits = max((program.message_flits(name) for name in layers), default=0) - program.chip.noc.flits_per_message
    return MultiSpikes(
        on_multi_spike=program.on_multi_spike,
        senders=tuple(senders),
        sent=sent_now,
        binary=binary,
        one_by_one=one_by_one,
        payload_flits=max(flits, 0),
    )


@dataclass(frozen=True)
class SendCost:
    """Traffic of one sample: messages of neurons and their hops. `hottest`: most flits over one link in one step."""

    messages: float
    hops: float
    hottest: float


def compare_multicast(program: Program, activity: Activity, window: str) -> dict[str, SendCost]:
    """Return the traffic of `activity` as "unicast", and as "tree" if messages of the chip can fork.

    Messages to a neuron's own core count, as in the counters. The hottest link may be one to an io site.
    """
    network, costs = program.network, {}
    spikes = np.concatenate([activity.counts[name].sum(0, dtype=np.int64) for name in network.offsets])
    for kind in ("unicast", "tree") if can_fork(program.chip) else ("unicast",):
        sent = spike_fanout(program, kind, activity)
        flits = link_flits(program, activity, window, kind)
        totals = spikes @ sent.messages, spikes @ sent.hops.sum(1), flits.max(initial=0)
        costs[kind] = SendCost(*(float(total) / activity.n_samples for total in totals))
    return costs


@dataclass(frozen=True)
class Fit:
    """One resource: the core closest to its limit, and all cores of the chip together; None: no limit."""

    resource: str
    core: int | None
    used: int
    limit: int | None
    total_used: int
    total_limit: int | None

    @property
    def part(self) -> float | None:
        """used / limit of the worst core."""
        return None if self.limit is None else self.used / self.limit


@dataclass(frozen=True)
class LayerFigures:
    """One layer: its cores, the resource that fills one of them most, means per aligned step, and its share of time."""

    name: str
    n_neurons: int
    cores: tuple[int, ...]
    binding: str | None
    binding_part: float | None
    spikes: float
    synops: float
    time_share: float | None


@dataclass(frozen=True, eq=False)
class Summary:
    """Figures of one run, means per sample; H hardware steps, times in microseconds, energies in picojoules.

    `core_use[resource]`: int64[core]. `core_synops`, `core_busy_us`: float64[core], means per step; `core_busy_us` is
    that of the busiest unit. `core_pj`: float64[core], energy of each core's events. `step_energy_pj`: float64[H], all
    kinds of events. `link_flits`: float64[link], mean per step; `step_flits`: int64[H, link], sums over the samples.
    `traffic`: senders to each core. `max_synops`: float64[H], synops of the busiest core. `events`: count of each
    event. `multi`: senders of several spikes per step. `sending`: costs of unicast and of trees. `phases`, `critical`
    (the slowest steps) and `loads` (links with flits, most crowded first) are sums over all samples of a profiled run.
    `bound`: floorline of the run. `predicted`, `predicted_synops`: floorline and max_synops of the calibration
    activity. `other_sync`: the bound with the other kind of synchronization. `board`: the energy of a sample with
    static power and processors, by the measured times or else their bound. `time_basis`, `energy_basis`: how the
    figures are known. Figures that the chip, backend or program does not provide are None.
    """

    fits: tuple[Fit, ...]
    layers: tuple[LayerFigures, ...]
    core_use: dict[str, np.ndarray]
    core_synops: np.ndarray
    core_busy_us: np.ndarray | None
    core_pj: np.ndarray | None
    link_flits: np.ndarray
    step_flits: np.ndarray
    traffic: CoreTraffic
    max_synops: np.ndarray
    predicted_synops: np.ndarray | None
    bound: Floorline | None
    predicted: Floorline | None
    measured_us: np.ndarray | None
    tightness: float | None
    energy_pj: dict[str, float] | None
    step_energy_pj: np.ndarray | None
    events: dict[str, float]
    multi: MultiSpikes | None
    sending: dict[str, SendCost]
    phases: Phases | None
    critical: tuple[CriticalPath, ...] | None
    loads: tuple[LinkLoad, ...] | None
    other_sync: OtherSync | None
    board: BoardEnergy | None
    time_basis: Basis | None
    energy_basis: Basis | None

    @property
    def pj_per_synop(self) -> float | None:
        """All energy of the run over its synaptic operations; None if there were none."""
        n = self.events["synops"]
        return None if self.energy_pj is None or n == 0 else self.energy_pj["total"] / n

    @property
    def step_power_mw(self) -> np.ndarray | None:
        """float64[H]: energy of each step over its time, measured or else its bound; None if either is unknown."""
        if self.step_energy_pj is None or self.step_us is None or not self.step_us.all():
            return None
        return self.step_energy_pj / (1000 * self.step_us)  # a picojoule in a microsecond is a microwatt

    @property
    def n_steps(self) -> int:
        """H, hardware steps of a sample."""
        return len(self.max_synops)

    @property
    def bound_us(self) -> np.ndarray | None:
        """float64[H]: the floorline of the run."""
        return None if self.bound is None else self.bound.step_us

    @property
    def predicted_us(self) -> np.ndarray | None:
        """float64[H of the calibration]: the floorline of the calibration activity."""
        return None if self.predicted is None else self.predicted.step_us

    @property
    def samples_per_second(self) -> float | None:
        """Samples per second, run one after the other."""
        return None if self.step_us is None or not self.step_us.any() else 1e6 / float(self.step_us.sum())

    @property
    def step_us(self) -> np.ndarray | None:
        """float64[H]: the measured step times, or else their bound."""
        return self.bound_us if self.measured_us is None else self.measured_us


def summarize(program: Program, run: Run) -> Summary:
    """Compute the Summary of a run of `program`. Raises ModelError for a run of another program."""
    n_cores = program.mapping.n_cores
    if not isinstance(run, Run):
        raise ModelError(f"figures of a program need a Run, not {type(run).__name__}; nw.simulate returns one")
    run.verify()
    if run.totals is not None:
        raise ModelError("the run keeps totals only, and a report shows steps; simulate with record='spikes' for one")
    activity, sizes = run.activity, {name: program.network.node(name).n_neurons for name in program.network.layers}
    sent = {} if activity is None else activity.counts
    is_alike = all(name in sent and sent[name].shape[1] == n for name, n in sizes.items())
    if activity is None or not run.counters or not is_alike or run.counters["synops"].shape[1] != n_cores:
        raise ModelError(f"the run is not one of this program of {n_cores} cores; simulate the program and report that")
    per_sample = 1 / run.n_samples
    flits = flits_of_run(program, run)
    bound = floorline(program, run.counters, flits, run.n_samples, activity)
    measured = tight = None
    if run.step_cycles is not None:
        measured = run.step_cycles * (program.chip.core.cycle_ns / 1000 * per_sample)
        tight = None if bound is None else bound_tightness(bound.bound_cycles, run.step_cycles)
    spent = step_energy_pj(run.counters, program.chip, flits, run.step_cycles)
    energy = energy_pj(spent)
    seconds = run.seconds if bound is None or measured is not None else float(bound.step_us.sum()) * run.n_samples / 1e6
    known = replace(run, energy_pj=energy, link_flits=flits, seconds=seconds)  # so that no basis computes them again
    core_pj = core_energy_pj(run.counters, program.chip)
    us_per_cycle = None if bound is None else bound.cycle_ns / 1000 / bound.n_samples / len(bound.bound_cycles)
    is_profiled = run.profile is not None and run.step_cycles is not None
    return Summary(
        fits=summarize_fit(program),
        layers=_layer_figures(program, activity, bound),
        core_use=core_use(program.axons, program.core_of, n_cores),
        core_synops=run.counters["synops"].mean(0) * per_sample,
        core_busy_us=None if bound is None else bound.work.busy.sum(1).max(0) * us_per_cycle,
        core_pj=None if core_pj is None else core_pj * per_sample,
        link_flits=flits.mean(0) * per_sample,
        step_flits=flits,
        traffic=core_traffic(program, activity),
        max_synops=run.counters["synops"].max(1) * per_sample,
        **_predicted_bound(program, run.window),
        bound=bound,
        measured_us=measured,
        tightness=tight,
        energy_pj=None if energy is None else {kind: pj * per_sample for kind, pj in energy.items()},
        step_energy_pj=None if spent is None else spent["total"] * per_sample,
        events={name: float(c.sum()) * per_sample for name, c in run.counters.items()},
        multi=multi_spikes(program, activity, run.counters),
        sending=compare_multicast(program, activity, run.window),
        phases=core_phases(program, run),
        critical=critical_paths(program, run),
        loads=congested_links(run) if is_profiled else None,
        other_sync=other_sync(program, run),
        board=board_energy(program, known),
        time_basis=find_basis(program, known, TIME),
        energy_basis=find_basis(program, known, ENERGY),
    )


def summarize_fit(program: Program) -> tuple[Fit, ...]:
    """Return a program's use of the chip: cores first, then each resource of the cores."""
    chip, mapping = program.chip, program.mapping
    n_usable = int(chip.is_usable.sum())
    rows = [
        Fit(
            resource="cores",
            core=None,
            used=mapping.n_cores,
            limit=n_usable,
            total_used=mapping.n_cores,
            total_limit=n_usable,
        )
    ]
    for resource, (used, limit) in _used_and_limit(program).items():
        worst = int(np.argmax(used if limit is None else used / limit))
        of_chip = chip.limit(RESOURCE_OF[resource].limit_key)
        rows.append(
            Fit(
                resource=resource,
                core=worst,
                used=int(used[worst]),
                limit=None if limit is None else int(limit[worst]),
                total_used=int(used.sum()),
                total_limit=None if of_chip is None else int(of_chip.sum()),
            )
        )
    return tuple(rows)


def _used_and_limit(program: Program) -> dict[str, tuple[np.ndarray, np.ndarray | None]]:
    """Return int64[core] by resource: the use of each core, and its limit; None: no limit."""
    site = program.chip.site_index(program.mapping.site_of)
    use: dict[str, tuple[np.ndarray, np.ndarray | None]] = {}
    for resource, used in core_use(program.axons, program.core_of, program.mapping.n_cores).items():
        limit = program.chip.limit(RESOURCE_OF[resource].limit_key)
        use[resource] = used, None if limit is None else limit[site]
    return use


def _layer_figures(program: Program, activity: Activity, bound: Floorline | None) -> tuple[LayerFigures, ...]:
    network, synops = program.network, synops_into(program.network, activity)
    parts = {r: used / limit for r, (used, limit) in _used_and_limit(program).items() if limit is not None}
    n = activity.n_samples * activity.n_steps
    rows = []
    for name in network.layers:
        cores = np.unique(program.mapping.core_of[name])
        binding = max(parts, key=lambda r: parts[r][cores].max(), default=None)
        rows.append(
            LayerFigures(
                name=name,
                n_neurons=network.node(name).n_neurons,
                cores=tuple(cores.tolist()),
                binding=binding,
                binding_part=None if binding is None else float(parts[binding][cores].max()),
                spikes=float(activity.counts[name].sum() / n),
                synops=float(synops[name].sum() / n),
                time_share=None if bound is None else bound.time_share[name],
            )
        )
    return tuple(rows)


def _predicted_bound(program: Program, window: str) -> dict:
    """Return the floorline of the calibration activity and its `max_synops`; None if there was no calibration."""
    activity = program.activity
    if activity is None:
        return {"predicted": None, "predicted_synops": None}
    events = count_events(program, activity, window)
    line = floorline(program, events, link_flits(program, activity, window), activity.n_samples)
    return {"predicted": line, "predicted_synops": events["synops"].max(1) / activity.n_samples}
