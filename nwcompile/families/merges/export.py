"""RANC: export a program as the memory files of its RTL, the packets of a sample, and the input of its simulator.

Mack et al., RANC, IEEE TCAD 41(1), 2022, doi 10.1109/TCAD.2020.3038151; formats as its published sources read them.
With a sample, the expected spikes are exported too, in formats that `nwcompile verify` reads.
"""

import io
import json
from dataclasses import replace
from pathlib import Path
from textwrap import fill

import numpy as np

from nwcompile.errors import ModelError, OptionError
from nwcompile.families.merges.export_design import Design
from nwcompile.families.merges.export_memory import N_TICKS, Parameters, axon_types, csram, empty_core, packet_words
from nwcompile.families.merges.packets import Packets, trace_packets
from nwcompile.ir.program import Program
from nwcompile.ir.shown import grouped
from nwcompile.sim import simulate
from nwcompile.sim.inputs import add_sample_axis

ERROR_CODE = "NW7101"
RESETS_BELOW = 0  # In RANC's simulator, 0: a negative reset occurs at v < the threshold, as in the RTL; 1: at v <= it.

NOTE = (
    "no potential can wrap in the first {proved} ticks, whatever spikes arrive; layers begin one tick after the other, "
    "and a neuron is slot NEURON of core x + {columns} * y"
)


def ranc_files(program: Program, folder, sample: dict[str, np.ndarray] | None = None) -> dict[Path, bytes]:
    """Render the files of a program, by path. `sample`: spikes [T, n] of one sample by input name, or None.

    Raises ModelError and ChipError for programs that RANC does not support, or whose potentials could wrap.
    """
    design = Design(program)
    p = design.parameters
    n_ticks = 0 if sample is None else _count_ticks(program, sample)
    if design.n_proved_ticks <= n_ticks:
        raise ModelError(
            f"potentials of {p.potential_bits} bits may wrap after {design.n_proved_ticks} ticks, and the sample takes "
            f"{n_ticks}; compile with a larger state.bits"
        )
    files: dict[str, bytes] = {"parameters.json": _to_json(p.verilog), "neurons.csv": _render_neurons(design)}
    inert = empty_core(p)
    for place in range(p.columns * p.rows):
        if place != p.number(*p.bus):
            core = design.cores.get(place, inert)
            files[f"csram_{place:03d}.mem"], files[f"tc_{place:03d}.mem"] = (csram(p, core), axon_types(p, core))
    sent: list[list[tuple[int, int, int]]] = []
    done = None
    if sample is not None:
        sent = input_packets(design, sample)
        done = _all_packets(program, sample, n_ticks)
        files |= _render_sample(design, sample, sent, done)
    files["simulator.json"], files["simulator_config.json"] = _render_simulator(design, sent), _render_config(p)
    files["net.nwc"] = program.data
    files["README.txt"] = _render_readme(design, n_ticks, done).encode()
    return {Path(folder) / name: data for name, data in files.items()}


def ranc_note(program: Program) -> str:
    """One sentence about the proved number of ticks."""
    design = Design(program)
    return NOTE.format(proved=f"{grouped(design.n_proved_ticks)}", columns=design.parameters.columns)


def _count_ticks(program: Program, sample: dict[str, np.ndarray]) -> int:
    """The number of ticks until the last layer has done the last step of the sample."""
    missing = [name for name in program.network.inputs if name not in sample]
    if missing:
        raise OptionError(f"the network reads input {missing[0]!r}; give a sample of it with --input")
    if any(((a != 0) & (a != 1)).any() for a in sample.values()):
        raise ModelError("a packet of RANC carries no number; its input must be spikes, 0 or 1")
    return len(next(iter(sample.values()))) + program.schedule.depth - 1


def _all_packets(program: Program, sample: dict[str, np.ndarray], n_ticks: int) -> Packets:
    """The packets of all ticks. Layers that finish early continue without input until the last layer is done."""
    n_steps = n_ticks + 1 - min(program.schedule.offset[name] for name in program.network.layers)
    inputs = {name: np.zeros((1, n_steps, a.shape[1]), np.int32) for name, a in sample.items()}
    for name, a in sample.items():
        inputs[name][0, : len(a)] = a
    done = trace_packets(program, inputs, n_steps)
    kept = done.step <= n_ticks
    names = ("step", "source", "core", "sent", "written", "lost")
    of_ticks = {name: getattr(done, name)[kept] for name in names}
    return replace(done, **of_ticks, step_cycles=done.step_cycles[: n_ticks + 1])


def input_packets(design: Design, sample: dict[str, np.ndarray]) -> list[list[tuple[int, int, int]]]:
    """(core, axon, delay) of the packets to send before each tick; the packets of step t come before tick t."""
    network, ticks = design.program.network, []
    for t in range(len(next(iter(sample.values()), ()))):
        lines = [network.offsets[name] + np.flatnonzero(a[t]) for name, a in sample.items()]
        rows = [design.packets_of(line) for line in np.concatenate(lines)]
        ticks.append([(int(core), int(axon), int(delay)) for row in rows for core, axon, delay in row])
    return ticks


def _render_sample(design: Design, sample: dict, sent: list, done: Packets) -> dict[str, bytes]:
    """Render input and expected output, as tables and as the text files of RANC's testbench."""
    p, n_ticks = design.parameters, len(sent) + design.program.schedule.depth - 1
    rows = [(t, *packet) for t, tick in enumerate(sent) for packet in tick]
    tick, core, axon, delay = np.array(rows, np.int64).reshape(-1, 4).T
    x_left, y_left, _ = design.program.mapping.site_of.astype(np.int64)[core].T
    words = packet_words(p, x_left, y_left, axon, delay)
    to_send = zip(tick, design.place[core], axon, delay, words, strict=True)
    leaves = done.core < 0
    out = np.stack([done.step[leaves] - 1, design.output[done.source[leaves]], done.written[leaves]], 1)
    width = max(1, (p.n_outputs - 1).bit_length())
    stream = io.BytesIO()
    np.savez(stream, **add_sample_axis(design.program.network, sample))  # type: ignore[arg-type]
    return {
        "sample.npz": stream.getvalue(),
        "input_packets.csv": _to_csv("tick,core,axon,delay,word", to_send),
        "expected_spikes.csv": _to_csv("tick,core,neuron", expected_spikes(design, sample)),
        "expected_outputs.csv": _to_csv("tick,output,cycle", out),
        "expected_packets.csv": _to_csv("tick,core,neuron,to_core,sent,written,lost", _neuron_packets(design, done)),
        "tb_input.txt": "\n".join(words).encode(),
        "tb_num_inputs.txt": "\n".join(str(len(of_tick)) for of_tick in sent).encode(),
        "tb_correct.txt": "\n".join(f"{n:0{width}b}" for n in out[:, 1]).encode(),
        "tb_num_outputs.txt": "\n".join(map(str, np.bincount(out[:, 0], minlength=n_ticks))).encode(),
    }


def expected_spikes(design: Design, sample: dict[str, np.ndarray]) -> np.ndarray:
    """int64[spike, 3]: tick, core and slot of every spike of a sample, in this order."""
    program = design.program
    run, spikes = simulate(program, add_sample_axis(program.network, sample), "reference"), []
    for name in program.network.layers:
        of_layer = run.spikes[name][0]
        t, i = np.nonzero(of_layer.reshape(len(of_layer), -1))
        source = program.network.offsets[name] + i
        tick = t + program.schedule.offset[name] - 1
        rows = np.stack([tick, design.place[program.core_of[source]], design.slot[source]], 1)
        spikes.append(rows[design.is_heard[source]])
    rows = np.concatenate(spikes)
    return rows[np.lexsort((rows[:, 2], rows[:, 1], rows[:, 0]))]


def _neuron_packets(design: Design, done: Packets) -> np.ndarray:
    """int64[packet, 7]: the packets sent by neurons; core -1 is the output bus."""
    ours = design.program.core_of[done.source] >= 0
    source, to = done.source[ours], done.core[ours]
    home, there = design.place[design.program.core_of[source]], np.where(to < 0, -1, design.place[to])
    times = done.sent[ours], done.written[ours], done.lost[ours]
    return np.stack([done.step[ours] - 1, home, design.slot[source], there, *times], 1)


def _render_neurons(design: Design) -> bytes:
    """Render neurons.csv: the place of every neuron that is read, and its output number."""
    program, rows = design.program, []
    for name in program.network.layers:
        first, begins = program.network.offsets[name], program.schedule.offset[name] - 1
        for source in first + np.flatnonzero(design.is_heard[first : first + program.network.node(name).n_neurons]):
            place = design.place[program.core_of[source]]
            rows.append((name, source - first, place, design.slot[source], begins, design.output[source]))
    return _to_csv("layer,index,core,neuron,first_tick,output", rows)


def _render_simulator(design: Design, sent: list) -> bytes:
    """Render the input of RANC's own simulator."""
    p, cores = design.parameters, []
    for place, core in sorted(design.cores.items()):
        neurons = [
            {
                "reset_potential": int(registers["reset_potential"]),
                "weights": weights.tolist(),
                "leak": int(registers["leak"]),
                "positive_threshold": int(registers["threshold"]),
                "negative_threshold": int(registers["negative_threshold"]),
                "destination_core_offset": [int(registers["dx"]), int(registers["dy"])],
                "destination_axon": int(registers["axon"]),
                "destination_tick": int(registers["delay"]),
                "current_potential": int(registers["v0"]),
                "reset_mode": int(registers["reset_mode"]),
            }
            for registers, weights in zip(core.neuron, core.weight, strict=True)
        ]
        cores.append(
            {
                "axons": core.axon_type.tolist(),
                "neurons": neurons,
                "connections": core.connected.astype(int).tolist(),
                "coordinates": [place % p.columns, place // p.columns],
            }
        )
    sites = design.program.mapping.site_of
    ticks = [
        [
            {"destination_core": [int(n) for n in sites[core][:2]], "destination_axon": axon, "destination_tick": delay}
            for core, axon, delay in tick
        ]
        for tick in sent
    ]
    bus = {"coordinates": list(p.bus), "num_outputs": p.n_outputs}
    return _to_json({"packets": ticks, "output_bus": bus, "cores": cores}, indent=None)


def _render_config(parameters: Parameters) -> bytes:
    names = ("neuron_block", "core_controller", "scheduler")
    return _to_json(
        {
            "num_neurons": parameters.n_neurons,
            "num_axons": parameters.n_axons,
            "num_cores_x": parameters.columns,
            "num_cores_y": parameters.rows,
            "num_weights": parameters.n_types,
            "max_tick_offset": N_TICKS,
            "neuron_reset_type": RESETS_BELOW,
            **{f"{name}_trace_verbosity": 0 for name in names},
        }
    )


def _render_readme(design: Design, n_ticks: int, done: Packets | None) -> str:
    """Describe in about ten lines which file to load where."""
    p, program = design.parameters, design.program
    least = program.chip.scan_cycles + program.chip.barrier_cycles(program.mapping.n_tiles)
    lines = [
        f"RANC: {p.columns} x {p.rows} places, {program.mapping.n_cores} of them cores in use, {p.bus} the output bus.",
        "Build or simulate RANCNetworkGrid with the parameters of parameters.json and MEMORY_FILEPATH set to this "
        f"folder. Cores read csram_NNN.mem and tc_NNN.mem, NNN = x + {p.columns} * y.",
        f"Potentials of {p.potential_bits} bits cannot wrap in the first {grouped(design.n_proved_ticks)} ticks. "
        "Reset the grid before every sample.",
        "neurons.csv: the core and slot of each neuron, its first tick, its number at the output bus (-1: none).",
        "simulator.json, simulator_config.json: the same for RANC's own simulator. `ranc_sim simulator.json out.txt "
        f"simulator_config.json {n_ticks + 1}`: line h + 2 of out.txt has a 1 for every output of tick h.",
    ]
    if done is not None:
        n_late, n_lost = int(done.is_late(least).sum()), int(done.lost.sum())
        lines += [
            f"input_packets.csv: what to send before each of the {n_ticks} ticks; so do tb_input.txt and "
            "tb_num_inputs.txt.",
            f"Ticks: {grouped(done.period_cycles)} cycles apart or more. A scan takes {grouped(least)}; were they as "
            f"close as that, {n_late} packets would act a tick late.",
            f"Lost packets, which come in the cycle in which their core clears its axons: {n_lost}. "
            "expected_packets.csv names them; the spikes to expect are those without losses.",
            "expected_spikes.csv, expected_outputs.csv (and tb_correct.txt, tb_num_outputs.txt), expected_packets.csv: "
            "what comes out. `nwcompile verify DIR --log FILE` compares a log with it.",
        ]
    return "\n".join(fill(line, 110, subsequent_indent="  ") for line in lines) + "\n"


def _to_csv(header: str, rows) -> bytes:
    return "\n".join([header, *(",".join(str(value) for value in values) for values in rows), ""]).encode()


def _to_json(doc, indent: int | None = 1) -> bytes:
    return (json.dumps(doc, indent=indent) + "\n").encode()


def find_exported(program: Program) -> np.ndarray:
    """Return bool[source]: whether the export has the neuron."""
    return Design(program).is_heard


FORMATS = {"ranc": (ranc_files, ranc_note)}
