"""Levers on the step time of the DVS-gesture net, one at a time, and the least that any mapping can reach.

    .venv/bin/python benchmarks/mapping_levers.py --cores 42
    .venv/bin/python benchmarks/mapping_levers.py --cores 42,112 --sanafe PYTHON

Every lever is tried on partitioner `floorline` and placer `routed` as benchmarks/mapping.py has them, all but `stagger`
outside the compiler. `stagger N`: each layer spread over N steps (option `stagger`), in aligned steps: the run has as
many steps more as its answer is late. `correlation`: clusters are halved where the halves' spikes over the steps are
most alike, not across their longer side. `copies`: neurons of which a second copy could save more cycles of messages
than it takes, whoever reads them. `order`: visits by number, or at random, instead of interleaved. What can run is
measured with the cycle backend, and with `--sanafe` judged by SANA-FE too.
`least`: the bound of `nwcompile.cost.least` on as many cores. Writes
results/mapping_levers.json.
"""

import argparse
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import nwcompile as nw
from benchmarks.mapping import REFERENCE, balance, judged
from benchmarks.mapping_nets import NETS, Net
from benchmarks.record import save, write
from nwcompile.cost.compare import measured_figures, predicted_figures
from nwcompile.cost.least import find_lower_bounds
from nwcompile.cost.traffic.wiring import connection_wiring
from nwcompile.ir.flat import neuron_places, split_layers
from nwcompile.passes.emit import interleave_visits
from nwcompile.passes.partition.floorline import clusters
from nwcompile.passes.partition.partition import partition
from nwcompile.passes.place.place import place
from nwcompile.passes.prepare.schedule import schedule, stagger_layers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cores", default="42,112")
    parser.add_argument("--sanafe", metavar="PYTHON", help="a Python with sanafe==2.2.9")
    parser.add_argument("--reference", type=Path, default=REFERENCE)
    args = parser.parse_args()
    net, rows = NETS["dvs"](args.reference), []
    settings = {"cores": args.cores, "judged": bool(args.sanafe)}
    for n_cores in map(int, args.cores.split(",")):
        for row in levers(net, n_cores, args.sanafe):
            rows.append({"cores": n_cores, **row})
            columns = dict.fromkeys(key for row in rows for key in row)
            write("mapping_levers", [{**columns, **row} for row in rows], settings)
    save("mapping_levers", [{**columns, **row} for row in rows], settings)


def levers(net: Net, n_cores: int, sanafe: str | None):
    """One row a lever, the mapping as it is first."""
    mapping = mapped(net, net.activity, n_cores)
    program = net.emitted(interleave_visits(mapping, net.network, net.chip, net.activity))
    yield {"lever": "none", **figures(program, net.activity), **measured(program, net, sanafe)}
    yield {"lever": "least", **bounds(program, net, n_cores)}
    yield {"lever": "copies", **worth_copying(program, net)}
    for n_parts in (2, 3, 4):
        mapping_late = mapped(net, net.activity, n_cores, n_parts)
        visited = interleave_visits(mapping_late, net.network, net.chip, net.activity)
        timing = stagger_layers(net.network, schedule(net.network), n_parts)
        late = replace(net.emitted(visited), schedule=timing)
        in_steps = net._replace(window="aligned")
        yield {"lever": f"stagger {n_parts}", **figures(late, net.activity), **measured(late, in_steps, None)}
    before = clusters.halve_clusters
    clusters.halve_clusters = lambda network, cluster_of, which: split_alike(net, cluster_of, which)
    alike = mapped(net, net.activity, n_cores)
    clusters.halve_clusters = before
    program = net.emitted(interleave_visits(alike, net.network, net.chip, net.activity))
    yield {"lever": "correlation", **figures(program, net.activity), **measured(program, net, sanafe)}
    for name, visit in (("by number", {}), ("random", at_random(mapping, net))):
        other = net.emitted(replace(mapping, visit=visit))
        yield {"lever": f"order {name}", **figures(other, net.activity), **measured(other, net, sanafe)}


def mapped(net: Net, activity, n_cores: int, n_parts: int = 1) -> nw.Mapping:
    """The mapping for an activity, without an order of visits."""
    options = nw.Options(n_cores=n_cores, placer="routed", stagger=n_parts)
    mapping = partition(net.network, net.chip, activity, options).mapping
    return place(mapping, net.network, net.chip, activity, options)


def figures(program: nw.Program, activity) -> dict:
    """What is predicted of a mean step."""
    predicted = predicted_figures(program, activity)
    us, nj = predicted.step_us, predicted.sample_nj
    n_steps = program.schedule.n_hardware_steps(activity.n_steps)
    return {"messages": round(predicted.messages_per_step * n_steps), "us": us,
            "EDP J s": nj * 1e-9 * us * 1e-6 * n_steps, **balance(program)}  # fmt: skip


def measured(program: nw.Program, net: Net, sanafe: str | None) -> dict:
    """The mean step and the EDP in the cycle backend, and SANA-FE's judgment if there is one."""
    run = nw.simulate(program, None, "cycle", steps=net.steps, window=net.window)
    judgment = judged(program, net, sanafe) if sanafe else {}
    edp = run.seconds * run.energy_pj["total"] * 1e-12
    return {"measured us": measured_figures(program, run).step_us, "measured EDP J s": edp, **judgment}


def bounds(program: nw.Program, net: Net, n_cores: int) -> dict:
    """The least on so many cores."""
    run = nw.simulate(program, None, "sequence", steps=net.steps, window=net.window)
    bound = find_lower_bounds(program, run, n_cores)
    return {"us": bound.step_us, "EDP J s": bound.edp_nj_us * 1e-15}


def worth_copying(program: nw.Program, net: Net) -> dict:
    """Neurons whose copy takes fewer cycles than it could ever save, and what all those save of a mean step, in us.

    A copy is visited and updated in every step, makes its spikes and does all synapses of its inputs. At most it saves
    the sending and the receiving of every message of its neuron but one a spike.
    """
    cost, saved, taken = net.chip.cost, [], []
    fan_cycles = {name: np.zeros(net.network.node(name).n_neurons) for name in net.network.layers}
    reached = np.zeros(sum(len(cycles) for cycles in fan_cycles.values()))
    core = np.concatenate([program.mapping.core_of[name] for name in net.network.layers])
    offset = {name: net.network.offsets[name] - min(net.network.offsets[n] for n in fan_cycles) for name in fan_cycles}
    for c in (c for c in net.network.connections if c.source in fan_cycles):
        wires, spikes = connection_wiring(net.network, c), net.activity.counts[c.source].sum(0, dtype=np.int64)
        per_class = np.bincount(wires.source_class, spikes, wires.n_source_classes)
        rows = np.repeat(np.arange(len(wires.offset) - 1), np.diff(wires.offset))
        sums = np.bincount(rows, per_class[wires.taps], len(wires.offset) - 1)
        fan_cycles[c.target] += sums[wires.target_class] * cost.synop_conv_cycles
        cores = np.zeros((wires.n_source_classes, program.mapping.n_cores), bool)
        for target_class, target_core in zip(wires.target_class, program.mapping.core_of[c.target], strict=True):
            cores[wires.taps[wires.offset[target_class] : wires.offset[target_class + 1]], target_core] = True
        reached[offset[c.source] : offset[c.source] + len(spikes)] = cores.sum(1)[wires.source_class]
    assert len(core) == len(reached)
    for name, cycles in fan_cycles.items():
        spikes = net.activity.counts[name].sum(0, dtype=np.int64)
        n_reached = reached[offset[name] : offset[name] + len(spikes)]
        taken.append(cycles + net.steps * (cost.visit_cycles + cost.update_cycles) + spikes * cost.spike_cycles)
        saved.append(spikes * np.maximum(n_reached - 1, 0) * (cost.message_out_cycles + cost.message_in_cycles))
    gain = np.maximum(np.concatenate(saved) - np.concatenate(taken), 0)
    us = float(gain.sum()) * net.chip.core.cycle_ns / 1000 / net.steps / program.mapping.n_cores
    return {"neurons worth it": int((gain > 0).sum()), "us": us}


def split_alike(net: Net, cluster_of: np.ndarray, which: np.ndarray) -> np.ndarray:
    """As `clusters.halve_clusters`, across the axis of which both halves spike most alike over the steps."""
    position, halved, n_clusters = neuron_places(net.network), cluster_of.copy(), len(which)
    spikes = np.concatenate([net.activity.counts[name] for name in net.network.layers], axis=1).T.astype(np.float32)
    for cluster in np.flatnonzero(which):
        members, best = np.flatnonzero(cluster_of == cluster), (-1.0, np.zeros(0, int))
        at = position[members]
        for axis in np.flatnonzero(np.ptp(at, axis=0)):
            second = at[:, axis] > (at[:, axis].min() + at[:, axis].max()) // 2
            a, b = spikes[members[~second]].sum(0), spikes[members[second]].sum(0)
            alike = float(a @ b) / max(float(np.linalg.norm(a) * np.linalg.norm(b)), 1e-9)
            best = max(best, (alike, members[second]), key=lambda pair: pair[0])
        if len(best[1]):
            halved[best[1]] = n_clusters
            n_clusters += 1
    return halved


def at_random(mapping: nw.Mapping, net: Net) -> dict:
    """A place at random for every neuron in its core's order of visits."""
    rng = np.random.default_rng(0)
    core = np.concatenate([mapping.core_of[name] for name in net.network.layers])
    order = np.lexsort((rng.random(len(core)), core))
    place_of = np.empty(len(core), np.int32)
    place_of[order] = np.arange(len(core)) - np.searchsorted(core[order], core[order])
    return split_layers(net.network, place_of)


if __name__ == "__main__":
    main()
