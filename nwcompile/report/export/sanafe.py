"""SANA-FE: export a program as the two files of this simulator, so that an independent tool can run it.

Boyle et al., SANA-FE, IEEE TCAD 44(8), 2025; formats and attributes as SANA-FE 2.2 documents them. A step there is a
hardware step here, so `window="hardware"` gives the same counts. Programs that SANA-FE would compute differently are
refused.
"""

from fractions import Fraction
from pathlib import Path

import numpy as np

from nwcompile.errors import ChipError, ModelError, OptionError
from nwcompile.ir.chip import Chip
from nwcompile.ir.chip_sections import MAY_LACK_CYCLES, given_figures
from nwcompile.ir.program import Program
from nwcompile.report.export.sanafe_network import network_lines

ERROR_CODE = "NW7102"
SYNAPSES = ("dense", "sparse", "conv")
CURRENT = "a current that outlasts its step (decay_u)"
WITHOUT_CURRENT = (
    "; if `approximate` chose the current, compile with the chip's neuron.current = false "
    "(--set neuron.current=false), and it chooses none"
)
NOTE = (
    "SANA-FE neither wraps nor saturates sums and membranes as {chip} does, so spikes are equal as long as neither "
    "happens; it knows no limits of axons and synapse memory, and takes noc.buffer_flits x noc.virtual_channels as the "
    "messages that a link buffers"
)


def sanafe_files(program: Program, folder, x: dict[str, np.ndarray] | None = None) -> dict[Path, bytes]:
    """Render the files `folder`/arch.yaml and `folder`/snn.yaml of a program, by path.

    `x`: spikes [T, n] of one sample by input name, if the network has inputs. Input lines become neurons without cost,
    on the tiles of the cores that they feed, so that only receiving has a cost, as in nwcompile. Raises ModelError and
    ChipError, which name the layer or key, for features without an equivalent, and OptionError for missing input.
    """
    missing = [name for name in program.network.inputs if x is None or name not in x]
    if missing:
        raise OptionError(
            f"the network reads input {missing[0]!r}, and SANA-FE's file holds its spikes; give a sample with --input"
        )
    _check_chip(program.chip)
    _check_neurons(program)
    lines, n_lines = network_lines(program, x or {})
    return {
        Path(folder) / "arch.yaml": "\n".join(_architecture_lines(program.chip, n_lines)).encode(),
        Path(folder) / "snn.yaml": "\n".join(lines).encode(),
    }


def sanafe_note(program: Program) -> str:
    """One sentence about the differences of SANA-FE."""
    return NOTE.format(chip=program.chip.name)


def _check_chip(chip: Chip) -> None:
    """Raise ChipError for features that SANA-FE's architectures lack."""
    noc = chip.noc
    slow = noc.chip_hop_cycles or noc.chip_link_cycles_per_flit or chip.energy.chip_link_pj
    asked = {"topology": (noc.topology, "mesh"), "on_full": (noc.on_full, "stall"),
             "multicast": (noc.multicast, "unicast"), "faults": (noc.faults or "none", "none"),
             "chip_columns": ("slower or dearer links between chips" if slow else "none", "none")}  # fmt: skip
    for key, (value, only) in asked.items():
        if value != only:
            raise ChipError(f"{chip.name}: noc.{key}: SANA-FE knows only {only}, not {value!r}")
    if not (chip.has_times and chip.has_energies):
        what = "times" if not chip.has_times else "energies"
        raise ChipError(
            f"{chip.name}: SANA-FE needs the cost of every event, and the chip file gives no {what}; add its figures "
            "under [cost] and [energy]"
        )
    if chip.cost.word_cycles:
        raise ChipError(f"{chip.name}: cost.word_cycles: SANA-FE has no cost of a memory word; set it to 0")
    for key, value in vars(chip.cost).items():
        if isinstance(value, list) or (key in MAY_LACK_CYCLES and value):
            lacks = "costs of single cores" if isinstance(value, list) else "time of a step beside work and barrier"
            raise ChipError(f"{chip.name}: cost.{key}: SANA-FE has no {lacks}; leave it out")
    if chip.cost.units == "shared":
        raise ChipError(f"{chip.name}: cost.units: SANA-FE sends and receives side by side only, not 'shared'")


def _check_neurons(program: Program) -> None:
    """Raise ModelError for layers and connections that SANA-FE's LIF neurons would compute differently."""
    for name in program.network.programs:
        raise ModelError(f"layer {name!r} is a neuron program, and SANA-FE knows no neuron but its LIF")
    for name in program.network.layers:
        spec = program.network.node(name).neuron
        subtracts = spec.reset == "subtract"
        waits = np.max(spec.refractory) > 1
        no_memory = np.all(np.asarray(spec.decay_u) == 1 << spec.fixed.decay_bits)
        for text, asked in (
            (CURRENT, not no_memory),
            (f"reset_timing={spec.reset_timing!r}", spec.reset_timing != "now"),
            (f"spikes={spec.spikes!r}", spec.spikes != "binary"),
            ("a threshold that is met at equality and subtracted", subtracts and not spec.strict and spec.fires),
            ("a leak while a neuron is refractory", waits and spec.reset != "zero" and np.any(spec.decay_v)),
            ("a reset below v_min", spec.v_min is not None and spec.clamp == "reset"),
            ("sums that go round (overflow 'modulo')", spec.fixed.overflow == "modulo"),
            ("a v_min while a neuron is refractory", waits and spec.v_min is not None and np.any(spec.decay_v)),
        ):
            if asked:
                advice = WITHOUT_CURRENT if text == CURRENT else ""
                raise ModelError(f"layer {name!r} has {text}, which SANA-FE computes otherwise or not at all{advice}")
    for c, delay in zip(program.network.connections, program.schedule.delay, strict=True):
        if delay != 1:
            raise ModelError(
                f"connection {c.source!r} -> {c.target!r} acts {delay} hardware steps after its spike; SANA-FE's "
                "synapses act after one"
            )
    if program.schedule.stagger:
        raise ModelError("layers are staggered, by delays that SANA-FE's synapses lack; compile without stagger")
    if program.schedule.period != 1:
        raise ModelError("the program runs in phases, and SANA-FE runs all layers at once; compile it pipelined")


def _architecture_lines(chip: Chip, n_lines: int) -> list[str]:
    """Lines of arch.yaml; every tile has one more core for `n_lines` input lines, if there are any."""
    noc, cost, energy = chip.noc, chip.cost, given_figures(chip.energy)
    table = ", ".join(
        f"{tiles}: {_to_seconds(cycles, chip.core.cycle_ns)}" for tiles, cycles in (cost.barrier_cycles or {}).items()
    )
    ew, ns = (_to_seconds(cycles, noc.cycle_ns) for cycles in (noc.hop_cycles_ew, noc.hop_cycles_ns))
    ways = (("east", "west"), energy["hop_ew_pj"], ew), (("north", "south"), energy["hop_ns_pj"], ns)
    hops = [f"energy_{d}_hop: {_to_joules(pj)}, latency_{d}_hop: {s}" for both, pj, s in ways for d in both]

    def unit(event: str, joules: str, seconds: str) -> str:
        pj, cycles = energy[f"{event}_pj"], getattr(cost, f"{event}_cycles")
        return f"{joules}: {_to_joules(pj)}, {seconds}: {_to_seconds(cycles, chip.core.cycle_ns)}"

    soma = [
        unit(event, f"energy_{word}", f"latency_{word}")
        for event, word in (("visit", "access_neuron"), ("update", "update_neuron"), ("spike", "spike_out"))
    ]
    last_tile, last_core = noc.columns * noc.rows - 1, noc.cores_per_router - 1
    name = "".join(c if c.isalnum() and c.isascii() else "_" for c in chip.name)  # safe for any YAML reader
    return [
        "architecture:",
        f"  name: {name}",
        f"  attributes: {{topology: mesh, width: {noc.columns}, height: {noc.rows}, "
        f"link_buffer_size: {noc.buffer_flits * noc.virtual_channels}, sync_model: table, latency_sync: {{{table}}}}}",
        "  tile:",
        f"    - name: tile[0..{last_tile}]",
        f"      attributes: {{{', '.join(hops)}}}",
        "      core:",
        f"        - name: core[0..{last_core}]",
        *_core_lines(int(np.max(chip.core.max_neurons)), unit("message_in", "energy_message_in", "latency_message_in"),
               [f"            - {{name: lif, attributes: {{model: leaky_integrate_fire, {', '.join(soma)}}}}}"],
               unit("message_out", "energy_message_out", "latency_message_out"),
               [unit(f"synop_{kind}", "energy_process_spike", "latency_process_spike") for kind in SYNAPSES]),
        *(_input_core_lines(n_lines) if n_lines else []),
        "",
    ]  # fmt: skip


def _core_lines(n_neurons: int, message_in: str, somas: list[str], message_out: str, synapses: list[str]) -> list[str]:
    attributes = f"buffer_position: soma, buffer_inside_unit: false, max_neurons_supported: {n_neurons}"
    return [
        f"          attributes: {{{attributes}}}",
        "          axon_in:",
        f"            - {{name: in, attributes: {{{message_in}}}}}",
        "          soma:",
        *somas,
        "          dendrite:",
        "            - {name: dendrite, attributes: {model: accumulator, energy_update: 0.0, latency_update: 0.0}}",
        "          synapse:",
        *(f"            - {{name: {kind}, attributes: {{model: current_based, {costs}}}}}"
          for kind, costs in zip(SYNAPSES, synapses, strict=True)),
        "          axon_out:",
        f"            - {{name: out, attributes: {{{message_out}}}}}",
    ]  # fmt: skip


def _input_core_lines(n_lines: int) -> list[str]:
    """A core whose neurons send without cost; each has its own unit with its spikes."""
    free = [f"energy_{word}: 0.0, latency_{word}: 0.0" for word in ("access_neuron", "update_neuron", "spike_out")]
    return [
        "        - name: input[0..0]",
        *_core_lines(n_lines, "energy_message_in: 0.0, latency_message_in: 0.0",
               [f"            - {{name: 'line[0..{n_lines - 1}]', attributes: {{model: input, {', '.join(free)}}}}}"],
               "energy_message_out: 0.0, latency_message_out: 0.0",
               ["energy_process_spike: 0.0, latency_process_spike: 0.0"] * len(SYNAPSES)),
    ]  # fmt: skip


def _to_seconds(cycles: int, cycle_ns: float) -> str:
    return f"{float(cycles * Fraction(str(cycle_ns)))!r}e-9"


def _to_joules(pj: float) -> str:
    return f"{float(pj)!r}e-12"
