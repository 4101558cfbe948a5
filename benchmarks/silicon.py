"""Chip files against measurements of silicon: the model's time or energy of each measured network, and its error.

    python benchmarks/silicon.py [--write]

Each row builds a network of the measured size and layout (benchmarks/silicon_nets.py), simulates it on the chip file
and compares. `--write` writes hwmodels/silicon.json, from which reports quote the errors, docs/silicon.md and its
figure. A row judges its chip file unless a constant of the file was taken from that measurement. PilotNet needs the
files of the reference folder beside the checkout; without them its row is left out, and nothing is written.
"""

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks import silicon_nets as nets
from benchmarks.plot import line_plot
from benchmarks.record import save
from nwcompile.ir.shown import count_text

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "hwmodels" / "silicon.json"
PAGE = ROOT / "docs" / "silicon.md"
FIGURE = ROOT / "docs" / "images" / "silicon.svg"
QUARTZ = "Lenz, Orchard, Sheik, arXiv:2309.16795; probes in the history of biphasic/Quartz-on-Loihi"
PILOTNET = "lava-dl d825ac5, pilotnet_snn/benchmark"
OZU = "OzU-CAST/LoihiScalingEfficiency, read off a plot (+-3 %)"
QUARTZ_48, QUARTZ_11 = (18, 4, 20, 1, 4, 1), (4, 2, 2, 1, 1, 1)  # cores of each layer
MODELS = "intel-nrc-ecosystem/models"
KEYWORDS = "Blouw et al. 2019, arXiv:1812.01739; logs of abr/power_benchmarks"
KEYWORDS_UJ = 271.5  # an inference of 10 steps, without the power of the idle board
AKOPYAN = "Akopyan et al., TCAD 34(10), 2015, fig. 17, as cited by others"
MEROLLA = "Merolla et al., Science 345, 2014, as cited by others"
ODIN = "Frenkel et al., TBioCAS 13(1), 2019, arXiv:1804.07858, as cited by others"
SPECK = "Richter et al. 2024, doi 10.1088/2634-4386/ad2ce3, as cited by others"
ROCKPOOL = "synsense/rockpool, notebooks of 2023 to 2025 with the outputs of boards"
BOS = "Bos and Muir 2024, arXiv:2406.15112, as cited by others"
SCHOLZE = "Scholze et al. 2026, arXiv:2607.24396, as cited by others"


@dataclass(frozen=True)
class Row:
    """A measurement, and the call that builds its model. `measured` has the unit of its quantity (`QUANTITIES`)."""

    chip: str
    network: str
    layout: str
    quantity: str
    measured: float
    model: Callable[[], nets.Model]
    source: str
    leaves_out: str = ""
    fits: str = ""  # key of the chip file that was taken from this measurement; then the row judges nothing


QUANTITIES = {  # by name: the unit, and the figure of the model in it
    "time": ("us per step", lambda model: model.step_us),
    "latency": ("us", lambda model: model.step_us),
    "energy": ("nJ per step, cores, dynamic", lambda model: model.step_nj),
    "static power": ("mW", lambda model: model.static_mw),
    "dynamic power": ("mW", lambda model: model.step_nj / model.step_us),
    "power of processors": ("mW", lambda model: model.host_mw),
    "power": ("mW", lambda model: model.total_mw),
    "energy with processors": (
        "uJ per inference of 10 steps",
        lambda model: (model.step_nj + model.host_mw * model.step_us) / 100,
    ),
}


def list_rows() -> list[Row]:
    """Return all measurements that can be modeled."""
    rows = []
    empty = "spikes: every neuron is updated in each step, and none fires"
    for chip in ("loihi1", "loihi1_davies2018"):
        for cores, us, nj, noise in ((QUARTZ_48, 3.27, 323, "; noisy"), (QUARTZ_11, 9.02, 426, "")):
            layout, model = f"{sum(cores)} cores", partial(nets.quartz_mnist, chip, cores)
            rows.append(Row(chip, "Quartz MNIST", layout, "time", us, model, QUARTZ, empty))
            rows.append(Row(chip, "Quartz MNIST", layout, "energy", nj, model, QUARTZ, empty + noise))
    model = partial(nets.braille, "loihi1_nahuku", 54, 64)
    rows.append(Row("loihi1_nahuku", "Braille", "64 copies on 32 chips", "time", 6.64, model, MODELS, "the host"))
    for n_neurons, n_cores in ((200, 5), (600, 21), (1200, 69)):
        name, model = f"{n_neurons} LIF neurons", partial(nets.winner_take_all, "loihi2", n_neurons, n_cores)
        layout, generators = f"{n_cores} cores", "the spike generators"
        rows.append(Row("loihi2", name, layout, "time", 1.78, model, OZU, generators, "cost.min_step_cycles"))
    model, unknown = partial(nets.izhikevich, "loihi2", 200), "how they lie on 5 cores is not published: here on one"
    name, fits = "200 Izhikevich neurons", "cost.instruction_cycles"
    rows.append(Row("loihi2", name, "5 cores", "time", 7.4, model, OZU, unknown, fits))
    model, unknown = partial(nets.pilotnet_intel, "loihi2"), "the image's way into the chip (below)"
    rows.append(Row("loihi2", "PilotNet", "74 cores", "time", 152.85, model, PILOTNET, unknown))
    ahead, fits = (
        "a layer sends a spike on before its other synops are done",
        "cost.min_step_cycles, cost.sample_cycles",
    )
    for n_layers, us in ((1, 1.58), (9, 3.36)):
        layout, model = count_text(n_layers, "layer"), partial(nets.speck_layers, "speck", n_layers)
        rows.append(Row("speck", "a spike through 3 x 3 kernels", layout, "latency", us, model, SPECK, ahead, fits))
    model, unknown = partial(nets.full_core, "spinnaker2", 1024, 47, 256), "lengths of rows: here 256"
    network = "1024 neurons, 12 M events per second"
    rows.append(Row("spinnaker2", network, "1 core", "time", 1000, model, SCHOLZE, unknown))
    model, fits = partial(nets.power, "spinnaker2", 0), "energy.static_mw"
    rows.append(Row("spinnaker2", "all cores asleep", "0.8 V", "static power", 564.7, model, SCHOLZE, "", fits))
    rows += [*list_power_rows(), *list_xylo_rows()]
    chips = [row.chip for row in rows]
    return sorted(rows, key=lambda row: chips.index(row.chip))


def list_power_rows() -> list[Row]:
    """Return the measured powers, and the energies that they decide."""
    rows = []
    for cores, mw, span in ((QUARTZ_11, 4.65, "4.2 to 5.1 mW"), (QUARTZ_48, 26.75, "25.3 to 28.2 mW")):
        layout, model = f"{sum(cores)} cores", partial(nets.quartz_mnist, "loihi1", cores)
        rows.append(Row("loihi1", "Quartz MNIST", layout, "static power", mw, model, QUARTZ, f"measured: {span}"))
    for network, layout, mw, n_cores, source in (
        ("Quartz CIFAR-10", "1753 cores on 16 chips", 1271.8, 1753, QUARTZ),
        ("LSNN", "1 core", 1.006, 1, MODELS),
    ):
        model = partial(nets.power, "loihi1", n_cores)
        rows.append(Row("loihi1", network, layout, "static power", mw, model, source))
    for network, layout, mw, n_chips in (("RelNet", "22 chips", 416.9, 22), ("LSNN", "1 chip", 23.35, 1)):
        model, code = partial(nets.power, "loihi1", 0, n_chips), "the code that the processors run"
        rows.append(Row("loihi1", network, layout, "power of processors", mw, model, MODELS, code))
    model, unknown = partial(nets.keyword_spotting, "loihi1", 0.13), "the input rate is unknown (below)"
    rows.append(
        Row("loihi1", "keyword spotting", "2 cores", "energy with processors", KEYWORDS_UJ, model, KEYWORDS, unknown)
    )
    model, fits = partial(nets.power, "loihi2", 74), "energy.static_mw"
    rows.append(Row("loihi2", "PilotNet", "74 cores", "static power", 232.1, model, PILOTNET, "", fits))
    rows.append(Row("loihi2", "sigma-delta PilotNet", "one chip", "static power", 281.8, model, PILOTNET))
    both = "energy.static_mw, energy.synop_sparse_pj"
    for hz, mw, fits in ((11.58, 68, both), (20.07, 71, ""), (95.93, 94, both)):
        model, network = partial(nets.truenorth_chip, "truenorth", hz), f"128 synapses a neuron, {hz:g} Hz"
        rows.append(Row("truenorth", network, "4096 cores", "power", mw, model, AKOPYAN, "read off a plot", fits))
    model, network = partial(nets.truenorth_chip, "truenorth", 20), "128 synapses a neuron, 20 Hz"
    rows.append(Row("truenorth", network, "4096 cores", "power", 72, model, MEROLLA, "measured at 0.775 V, not 0.8 V"))
    model, network = partial(nets.odin_events, "odin", 75), "events without a pause, 75 MHz"
    rows.append(Row("odin", network, "1 core", "time", 6.827, model, ODIN, "printed: 37.5 M synops per second"))
    both = "energy.message_in_pj, energy.static_mw, energy.clock_uw_per_mhz"
    for mhz, mw in ((75, 0.477), (1.3, 0.035)):
        model, network = partial(nets.odin_events, "odin", mhz), f"events without a pause, {mhz:g} MHz"
        rows.append(Row("odin", network, "1 core", "power", mw, model, ODIN, "", both))
    return rows


def list_xylo_rows() -> list[Row]:
    """Return the measured powers of the Xylo chips; a step's energy is the power above idle, over the steps' time."""
    rows, fits = [], "energy.static_mw"
    drawn = "the weights, here drawn; the transfer of inputs and outputs"
    for chip, network, mhz, mw, source, note, key in (
        ("xylo_audio2", "8 hidden neurons", 6.25, 0.2501, ROCKPOOL, "", fits),
        ("xylo_audio2", "keyword spotting", 6.25, 0.216, BOS, "which supplies are counted is not known", ""),
        ("xylo_audio3", "3 hidden neurons, microphone on", 50, 1.425, ROCKPOOL, "", "energy.clock_uw_per_mhz"),
        ("xylo_audio3", "3 hidden neurons, microphone on", 25, 0.782, ROCKPOOL, "", ""),
        ("xylo_audio3", "3 hidden neurons, microphone on", 12.5, 0.466, ROCKPOOL, "", ""),
        ("xylo_audio3", "rare sounds, 16-63-63-63-4", 12.5, 0.588, ROCKPOOL, "the work of the network", ""),
        ("xylo_audio3", "8 hidden neurons, for inputs of the host", 6.25, 0.543, ROCKPOOL, "clocks of memories", ""),
        ("xylo_imu", "8 hidden neurons", 6.25, 0.1882, ROCKPOOL, "", fits),
    ):
        model = partial(nets.xylo_idle, chip, mhz)
        rows.append(Row(chip, network, f"{mhz:g} MHz", "static power", mw, model, source, note, key))
    keys = "energy.visit_pj, energy.synop_dense_pj, energy.spike_pj"
    for chip, n_lines, nj, key in (
        ("xylo_audio2", 2, 6.35, keys),
        ("xylo_audio3", 2, 13, ""),
        ("xylo_imu", 15, 5.9, ""),
    ):
        model, network = partial(nets.xylo_layers, chip, (n_lines, 4, 4, 2), 0.4), f"{n_lines}-4-4-2 neurons"
        rows.append(Row(chip, network, "6.25 MHz", "energy", nj, model, ROCKPOOL, drawn, key))
    model, bound = partial(nets.xylo_layers, "xylo_audio2", (16, 60, 60, 60, 1), 0.3), "an upper bound (below)"
    network = "keyword spotting (6.6 uJ), a core without rest"
    for quantity, mw in (("dynamic power", 0.291), ("power", 0.507)):
        rows.append(Row("xylo_audio2", network, "6.25 MHz", quantity, mw, model, BOS, bound))
    return rows


def compute(row: Row) -> dict:
    """Return a row of hwmodels/silicon.json."""
    model = row.model()
    unit, find_value = QUANTITIES[row.quantity]
    value = find_value(model)
    return {
        "chip": row.chip,
        "network": row.network,
        "layout": row.layout,
        "quantity": row.quantity,
        "unit": unit,
        "measured": row.measured,
        "model": float(f"{value:.4g}"),
        "error_percent": round(100 * (value / row.measured - 1), 2),
        "judges": not row.fits,
        "fits": row.fits,
        "source": row.source,
        "leaves_out": row.leaves_out,
    }


def write_page(table: list[dict]) -> str:
    """Return docs/silicon.md: every chip file has a row."""
    import nwcompile as nw

    lines = [
        HEAD,
        "| chip file | network | quantity | measured | model | error | not in the model, source |",
        "|---|---|---|---|---|---|---|",
    ]
    sources = list(dict.fromkeys(row["source"] for row in table))
    for row in table:
        error = f"**{round(row['error_percent']):+d} %**" if row["judges"] else f"fitted: {row['fits']}"
        unit = row["unit"].split(" per ")[0]
        quantity = row["quantity"] + " per step" * ("per step" in row["unit"])
        model = float(f"{row['model']:.3g}")
        cells = [
            row["chip"],
            f"{row['network']}, {row['layout']}",
            quantity,
            f"{row['measured']:g} {unit}",
            f"{model:g} {unit}",
        ]
        lines.append(f"| {' | '.join([*cells, error, row['leaves_out']])} [{sources.index(row['source']) + 1}] |")
    measured = {row["chip"] for row in table}
    lines += [f"| {name} | not measured | | | | | |" for name in nw.Chip.names() if name not in measured]
    lines += ["", *(f"{i}. {source}" for i, source in enumerate(sources, 1))]
    spotting = {rate: nets.keyword_spotting("loihi1", rate) for rate in (0.05, 0.13, 0.3)}
    uj = {rate: QUANTITIES["energy with processors"][1](model) for rate, model in spotting.items()}
    low, high = (100 * (uj[rate] / KEYWORDS_UJ - 1) for rate in (0.05, 0.3))
    notes = NOTES.format(low=low, high=high, core_share=spotting[0.13].step_nj / uj[0.13])
    return "\n".join([*lines, "", "![Model against measurement](images/silicon.svg)", "", notes])


def draw(table: list[dict]) -> str:
    """Return the figure: modeled against measured times; on the line they are equal."""
    timed = [row for row in table if row["quantity"] in ("time", "latency")]
    series = {"equal": [(1.0, 1.0), (200.0, 200.0)]}
    for row in timed:
        series.setdefault(row["chip"], []).append((row["measured"], row["model"]))
    return str(line_plot("Times of a step or a spike", "measured, us", "model, us", series, tuple(series)[1:])) + "\n"


HEAD = """# Chip files and silicon

How far are the model's figures from measurements of real chips? Each row simulates a network of the measured size and
layout. A chip file is never fitted to a row that judges it. Where a constant exists only in a measurement, the file
takes it from there, and that row is marked *fitted*. `python benchmarks/silicon.py --write` generates this page.
"""
NOTES = """"Energy" is the dynamic energy of the cores, without static power, the processors on the chip and the host.
Reports print these apart in the row *board*. Each part has its own rows, because no measurement has all of them.

**Keyword spotting.** The host sets the pace, 337 us per step, and the processor on the chip takes 65 mW as it feeds the
inputs (Frady et al. 2020, arXiv:2004.12691), instead of 18 mW as it waits. The input rate is not published. It was
fixed at 0.13 spikes per line and step before comparing (130 Hz: Yan et al. 2021, another task). At 0.05 the error is
{low:+.0f} %, at 0.3 {high:+.0f} %: the cores take {core_share:.0f} % of the energy.

**Static power of Loihi 1.** 0.476 mW per core is from another layout of the same network, on 18 cores. Boards and runs
differ by more than a factor of two.

**PilotNet.** The measured step is derived from 408.91 inferences of 16 steps a second, so it includes a share of the
transfer of the image into the chip. The image has 39,600 values. Through one link, at the published rate of 67 M graded
spikes per second, they take 591 us, or 36.9 us of each of the 16 steps. With this time, the model needs 139.8 us, 9 %
less than measured. Intel's formula (the most synaptic operations of a core, 0.66 ns each) gives 76 us for the same
partition.

**Speck.** The chip has no steps. The model's step ends after all synaptic operations, so no choice of the two fitted
constants gives both latencies: with 32 M synaptic operations per second (30 M are published), they are off by 9 and
10 %.

**Boards.** Loihi 2's shortest step of several chips is Intel's 10 us for 13 chips. The barrier of 32 Loihi 1 chips is a
whole step of a nearest-neighbor search (Frady et al. 2020), so it is too long by the work of that step.

**ODIN.** The published 12.7 pJ are the total power at 75 MHz, divided by the rate of synaptic operations. Here an
operation takes 8.43 pJ, and power at rest is separate. An event causes 256 operations, even if few synapses are mapped.
The published MNIST network (15 nJ per inference) is not compared, because the number of its events is not known.

**Xylo.** No published energy per event was found. The vendor's notebooks print the power of boards in two states:
with a waiting core, and while 1000 steps of a small network run. On XyloAudio 3, power at rest is 0.143 mW and
0.0256 mW per MHz. The difference between the states is 24 pJ per busy cycle of the core on XyloAudio 2. It is too small
to be exact: the time of the steps is known within 17 % there, and six runs on XyloAudio 3 differ by a factor of two.

Keyword spotting (0.216 mW idle, 0.507 mW active, 6.6 uJ per inference) runs at 6.25 MHz. Its network and the length of
an inference were not found in the documents searched: the vendor's library, its documentation, and citations of Bos and
Muir 2022, Bos and Muir 2024 and Ke et al. 2024. The rows therefore assume an upper bound, a core that never rests. Its
network is drawn with 16-60-60-60-1 neurons, but the power hardly depends on that. Even so, the model gives only half of
the 0.291 mW above idle, and so half of the 6.6 uJ. The rest is not explained: front end, inputs and outputs are not
modeled.

**SpiNNaker 2.** Times are assumed instruction counts, so this row is their first test. The chip file's 256 neurons per
core are what programs usually use; the measured core ran 1,024. Power at rest was measured with all cores asleep.

**Hala Point.** There is no measurement, only claims: 380 T synops per second, at most 2.6 kW (Intel, 17 April 2024, as
cited by others). With Intel's 0.66 ns per synaptic operation, 140,544 cores make 213 T.

Not compared, because the layout or the share of the host is not published: NxTF's MNIST network (57.36 us per step),
the LSNN on one core (16.65 us, of which the x86 core takes most), RelNet on 22 chips (63.7 us), keyword spotting (337
us, the host's). The fly's brain on 12 Loihi 2 chips takes 12.4 ms per simulated second (arXiv:2508.16792, as cited by
others), but its step is cited as 1 ms and as 0.1 ms. With 1 ms, that is 12.4 us per step; the model's floor is 10 us.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write hwmodels/silicon.json, docs/silicon.md, its figure")
    args = parser.parse_args()
    rows = [row for row in list_rows() if nets.PILOTNET.exists() or "PilotNet" not in row.network]
    table = [compute(row) for row in rows]
    shown = ("chip", "network", "layout", "quantity", "measured", "model", "error_percent", "judges")
    save("silicon", [{key: row[key] for key in shown} for row in table], {"pilotnet": nets.PILOTNET.exists()})
    if args.write and len(table) == len(list_rows()):
        TABLE.write_text(json.dumps(table, indent=1) + "\n")
        PAGE.write_text(write_page(table))
        FIGURE.write_text(draw(table))


if __name__ == "__main__":
    main()
