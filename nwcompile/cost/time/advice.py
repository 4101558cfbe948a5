"""Advice: the one change that shortens the step most, by the floorline's own formula.

More cores are advised by the rule that chooses their number (`CORES_RULE`, ir/options.py), so never if it was used.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from nwcompile.cost.time.layers import LayerShare
from nwcompile.cost.time.work import FILLS, Bottleneck, Work
from nwcompile.ir.flat import csr_sums
from nwcompile.ir.manifest import REPEATS, name_own_layers
from nwcompile.ir.options import CORES_WORTH, weighs_cores
from nwcompile.ir.program import Program

WORTH_SAYING = 1.05  # A change that shortens the step by less than 5 % is not worth it.
# A change of the mapping is easier than one of the model: it wins unless its gain is this many times smaller.
MODEL_CHANGE_PENALTY = 1.5
FindCycles = Callable[[], np.ndarray]


@dataclass(frozen=True)
class Advice:
    """One change, and the factor by which it shortens the steps by the same formula (1.0: no estimate)."""

    change: str
    gain: float = 1.0

    def __str__(self) -> str:
        return f"{self.change}: about {self.gain:.1f}x shorter step" if self.gain > 1 else self.change


def advise(program: Program, done: Work, share: LayerShare, busiest: Bottleneck, find_ports: FindCycles) -> Advice:
    """Return the best change by the formula; `busiest` is the bottleneck without the barrier.

    `find_ports` gives `Work.link_cycles` of the cores' own links only, which no placement relieves.
    """
    ranked, names = [], _list_own_names(program)
    now = float(done.bound_cycles.sum())
    for change, after, penalty in _list_changes(program, done, share, busiest, find_ports):
        gain = now / max(float(after.bound_cycles.sum()), 1.0)
        ranked.append((gain / penalty, Advice(name_own_layers(change, names), gain)))
    _, best = max(ranked, key=lambda f: f[0], default=(0, None))
    if best is not None and best.gain >= WORTH_SAYING:
        return best
    chip = program.chip
    if chip.scan_cycles and 2 * done.cycles["visit"].sum(0).max() > now:
        scan = 100 * float(done.cycles["visit"].sum(0).max()) / max(now, 1.0)
        return Advice(
            f"none for the mapping: a core visits all its {int(np.max(chip.core.max_neurons))} slots, used or not, for "
            f"{scan:.0f} % of each step; a design with fewer (core.max_neurons) is faster"
        )
    waiting = float(done.wait_cycles.sum()) / max(now, 1.0)
    if waiting >= 0.5:
        why = "the shortest step of the chip" if done.min_cycles else "the barrier"
        return Advice(f"run fewer steps per sample: {why} is {100 * waiting:.0f} % of each")
    return Advice("none: no single change of the mapping shortens the step by 5 %")


def _list_changes(
    program: Program, done: Work, share: LayerShare, bottleneck: Bottleneck, find_ports: FindCycles
) -> Iterator[tuple[str, Work, float]]:
    """Yield each change with the remaining work, and the divisor of its gain when changes are compared."""
    yield from _fewer_tiles(program, done)
    if bottleneck.link is not None:
        free = replace(done, link_cycles=find_ports())
        yield 'place again with optimize="traffic" (at best)', free, 1.0
        sent = share.messages.sum(1)
        sent[: len(program.network.inputs)] = 0
        yield from _fewer_spikes(program, done, share, int(sent.argmax()))
    elif bottleneck.layer is not None:
        yield from _balance_layer(program, done, bottleneck.layer)
        yield from _spread_layer(program, done, share, bottleneck.layer)
        yield from _fewer_spikes(program, done, share, _main_source(program, done, share, bottleneck, bottleneck.layer))


def _main_source(program: Program, done: Work, share: LayerShare, bottleneck: Bottleneck, layer: str) -> int:
    """Return the node whose spikes fill the bottleneck: the layer itself if it sends, else its main source."""
    arriving = share.reads[:, bottleneck.core] if bottleneck.kind == "memory" else share.messages[:, bottleneck.core]
    heard = bottleneck.unit == "receive" or bottleneck.kind == "memory"
    if bottleneck.unit == "shared" and bottleneck.kind == "traffic":
        heard = (
            done.cycles["message_in"][:, bottleneck.core].sum() >= done.cycles["message_out"][:, bottleneck.core].sum()
        )
    return int(arriving.argmax()) if heard else len(program.network.inputs) + share.layers.index(layer)


def _fewer_tiles(program: Program, done: Work) -> Iterator[tuple[str, Work, float]]:
    """Place the same cores on as few routers as possible."""
    chip, mapping = program.chip, program.mapping
    least = -(-mapping.n_cores // chip.noc.cores_per_router)
    if least < mapping.n_tiles:
        tiles = "tile" if least == 1 else "tiles"
        change = f"place the {mapping.n_cores} cores on {least} {tiles} instead of {mapping.n_tiles}"
        yield change, _on_tiles(program, done, least), 1.0


def _balance_layer(program: Program, done: Work, layer: str) -> Iterator[tuple[str, Work, float]]:
    """Give every core of a layer the mean of their work."""
    cores = np.unique(program.mapping.core_of[layer])
    if len(cores) < 2:
        return
    cycles = {e: c.astype(np.float64) for e, c in done.cycles.items()}
    for c in cycles.values():
        c[:, cores] = c[:, cores].mean(1, keepdims=True)
    yield f"deal the work of layer {layer} evenly over its {len(cores)} cores", replace(done, cycles=cycles), 1.0


def _spread_layer(program: Program, done: Work, share: LayerShare, layer: str) -> Iterator[tuple[str, Work, float]]:
    """Spread a layer over twice its cores, or all free cores: each reads and updates less, its sources send more.

    It is advised only if the cores are worth it, and if the same rule did not already choose the number of cores.
    """
    chip, mapping = program.chip, program.mapping
    cores = np.unique(mapping.core_of[layer])
    n_splittable = len(mapping.core_of[layer]) - len(cores)
    more = min(len(cores), int(chip.is_usable.sum()) - mapping.n_cores, n_splittable)
    if more < 1 or weighs_cores(program.manifest.get("options", {})):
        return
    keep = len(cores) / (len(cores) + more)
    index = share.layers.index(layer)
    cycles = {}
    for event, c in done.cycles.items():
        stays = event == "message_in" or (event == "visit" and chip.scan_cycles)  # a scan visits all slots
        part = np.zeros(c.shape[1]) if stays else share.event_share(event)[index]
        cycles[event] = c * (1 - part * (1 - keep))
    home, on_chip = program.core_of, program.core_of >= 0
    axons, is_its = program.axons, np.isin(np.arange(mapping.n_cores), cores)
    to_layer = csr_sums(axons.offset, is_its[axons.core])
    every, those = (
        np.bincount(home[on_chip], (share.sent * n)[on_chip], mapping.n_cores)
        for n in (np.diff(axons.offset), to_layer)
    )
    towards = those / np.maximum(every, 1)
    cycles["message_out"] = cycles["message_out"] * (1 + towards * (1 / keep - 1))
    n_routers = chip.noc.columns * chip.noc.rows
    tiles = min(n_routers, mapping.n_tiles + -(-more // chip.noc.cores_per_router))
    after = replace(_on_tiles(program, done, tiles), cycles=cycles)
    least_gain = (1 + more / mapping.n_cores) ** CORES_WORTH
    if float(done.bound_cycles.sum()) < least_gain * float(after.bound_cycles.sum()):
        return
    change = f"spread layer {layer} over {len(cores) + more} cores instead of {len(cores)}"
    yield f"{change} (n_cores={mapping.n_cores + more})", after, 1.0


def _fewer_spikes(program: Program, done: Work, share: LayerShare, source: int) -> Iterator[tuple[str, Work, float]]:
    """Halve the spikes of an input or layer: half its messages and their reads."""
    name = _find_given(program, list(program.network.offsets)[source])
    if name is None:
        return
    is_input = name in program.network.inputs
    n_inputs = len(program.network.inputs)
    read, heard = (a[source] / np.maximum(a.sum(0), 1) for a in (share.reads, share.messages))
    cycles = dict(done.cycles)
    for event in (*FILLS["memory"], "message_in"):
        cycles[event] = cycles[event] * (1 - (heard if event == "message_in" else read) / 2)
    for event in () if is_input else ("spike", "message_out"):
        cycles[event] = cycles[event] * (1 - share.send[source - n_inputs] / 2)
    on_links = 0 if is_input else share.messages[source].sum() / max(share.messages[n_inputs:].sum(), 1)
    change = f"encode input {name!r} with half the spikes" if is_input else f"train layer {name} to half its spikes"
    yield change, replace(done, cycles=cycles, link_cycles=done.link_cycles * (1 - on_links / 2)), MODEL_CHANGE_PENALTY


def _find_given(program: Program, name: str) -> str | None:
    """Return the layer or input of the user's model that has the spikes of `name`; None if the compiler inserted it."""
    base, _, kind = name.rpartition("/")
    if name in _list_own_names(program):
        return name
    return _find_given(program, base) if kind.startswith(REPEATS) else None


def _list_own_names(program: Program) -> set[str]:
    """Return the inputs and layers that the compiler did not insert, including those that it replaced."""
    known = {*program.network.offsets, *(row["layer"] for row in program.manifest.get("legalization", ()))}
    return {name for name in known if name.rpartition("/")[0] not in known}


def _on_tiles(program: Program, done: Work, n_tiles: int) -> Work:
    """Return the work with the waiting of `n_tiles` routers in use."""
    chip = program.chip
    now = chip.barrier_cycles(program.mapping.n_tiles) or chip.min_work_cycles(program.mapping.n_tiles)
    n = (done.barrier_cycles or done.min_cycles) // now if now else 0
    return replace(done, barrier_cycles=n * chip.barrier_cycles(n_tiles), min_cycles=n * chip.min_work_cycles(n_tiles))
