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
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks import silicon_nets as nets
from benchmarks.plot import line_plot
from benchmarks.record import save

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "hwmodels" / "silicon.json"
PAGE = ROOT / "docs" / "silicon.md"
FIGURE = ROOT / "docs" / "images" / "silicon.svg"
DAVIES_48, DAVIES_11 = (18, 4, 20, 1, 4, 1), (4, 2, 2, 1, 1, 1)
QUARTZ = "Lenz, Orchard, Sheik, arXiv:2309.16795; probes in the history of biphasic/Quartz-on-Loihi"
OZU = "OzU-CAST/LoihiScalingEfficiency, read off a plot (+-3 %)"
SPECK = "Richter et al. 2024, doi 10.1088/2634-4386/ad2ce3, as cited by others"


@dataclass(frozen=True)
class Row:
    """A measurement, and the call that builds its model. `measured` has the unit of its quantity (`UNITS`)."""

    chip: str
    network: str
    quantity: str
    measured: float
    model: Callable[[], nets.Model]
    source: str
    leaves_out: str = ""
    fits: str = ""  # key of the chip file that was taken from this measurement; then the row judges nothing


UNITS = {"time": "us per step", "latency": "us", "energy": "nJ per step, cores, dynamic"}


def _quartz(chip: str, cores: tuple[int, ...], us: float, nj: float) -> list[Row]:
    network = f"Quartz MNIST on {sum(cores)} cores"
    leaves_out = "steps with spikes: all are empty, every neuron is updated"
    build = lambda: nets.quartz_mnist(chip, cores)  # noqa: E731
    noisy = "; the measurement is noisy" if sum(cores) == 48 else ""
    return [
        Row(chip, network, "time", us, build, QUARTZ, leaves_out),
        Row(chip, network, "energy", nj, build, QUARTZ, leaves_out + noisy),
    ]


def list_rows() -> list[Row]:
    """Return all measurements that can be modelled."""
    rows = []
    for chip in ("loihi1", "loihi1_davies2018"):
        rows += _quartz(chip, DAVIES_48, 3.27, 323) + _quartz(chip, DAVIES_11, 9.02, 426)
    rows.append(
        Row("loihi1_nahuku", "Braille, 64 copies on 32 chips", "time", 6.64,
            lambda: nets.braille("loihi1_nahuku", 54, 64), "intel-nrc-ecosystem/models", "the host"))  # fmt: skip
    for n_neurons, n_cores in ((200, 5), (600, 21), (1200, 69)):
        rows.append(
            Row("loihi2", f"{n_neurons} LIF neurons on {n_cores} cores", "time", 1.78,
                lambda n=n_neurons, c=n_cores: nets.winner_take_all("loihi2", n, c), OZU,
                "the spike generators"))  # fmt: skip
    rows.append(
        Row("loihi2", "200 Izhikevich neurons on a core", "time", 7.4, lambda: nets.izhikevich("loihi2", 200), OZU,
            "how the 200 neurons lie on 5 cores is not published: here on one"))  # fmt: skip
    rows.append(
        Row("loihi2", "PilotNet on 74 cores", "time", 152.85, lambda: nets.pilotnet_intel("loihi2"),
            "lava-dl d825ac5, pilotnet_snn/benchmark", "how the host sends the image"))  # fmt: skip
    for n_layers in (1, 9):
        rows.append(
            Row("speck", f"a spike through {n_layers} layer{'s' * (n_layers > 1)}", "latency",
                {1: 1.58, 9: 3.36}[n_layers], lambda n=n_layers: nets.speck_layers("speck", n), SPECK,
                "a layer sends a spike on before its other synops are done"))  # fmt: skip
    return rows


def compute(row: Row) -> dict:
    """Return a row of hwmodels/silicon.json."""
    model = row.model()
    value = model.step_nj if row.quantity == "energy" else model.step_us
    assert value is not None, f"{row.chip} has energies"
    return {
        "chip": row.chip,
        "network": row.network,
        "quantity": row.quantity,
        "unit": UNITS[row.quantity],
        "measured": row.measured,
        "model": float(f"{value:.4g}"),
        "error_percent": round(100 * (value / row.measured - 1), 1),
        "judges": not row.fits,
        "fits": row.fits,
        "source": row.source,
        "leaves_out": row.leaves_out,
    }


def write_page(table: list[dict]) -> str:
    """Return docs/silicon.md: every chip file has a row."""
    import nwcompile as nw

    lines = [
        "# Chip files and silicon",
        "",
        "How far are the model's figures from measurements of real chips? Each row simulates a network of the measured size and",
        "layout. A chip file is never fitted to a row that judges it. Where a constant exists only in a measurement, the file takes",
        "it from there, and that row is marked *fitted*. `python benchmarks/silicon.py --write` generates this page.",
        "",
        "| chip file | network | quantity | measured | model | error | source | not modelled |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name in nw.Chip.names():
        rows = [row for row in table if row["chip"] == name]
        for row in rows:
            error = f"**{row['error_percent']:+.0f} %**" if row["judges"] else f"fitted ({row['fits']})"
            unit = row["unit"].split(" per ")[0].split(",")[0]
            lines.append(
                f"| {name} | {row['network']} | {row['quantity']}{' per step' * ('per step' in row['unit'])} | "
                f"{row['measured']:g} {unit} | {row['model']:.3g} {unit} | {error} | {row['source']} | {row['leaves_out']} |"
            )
        if not rows:
            lines.append(f"| {name} | not measured | | | | | | |")
    return "\n".join([*lines, "", "![Model against measurement](images/silicon.svg)", "", NOTES])


def draw(table: list[dict]) -> str:
    """Return the figure: modelled against measured times; on the line they are equal."""
    timed = [row for row in table if row["quantity"] != "energy"]
    series = {"equal": [(1.0, 1.0), (200.0, 200.0)]}
    for row in timed:
        series.setdefault(row["chip"], []).append((row["measured"], row["model"]))
    return str(line_plot("Times of a step or a spike", "measured, us", "model, us", series, tuple(series)[1:])) + "\n"


NOTES = """"Energy" is the dynamic energy of the cores. Static power, the processors on the chip and the host are not part of it.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write hwmodels/silicon.json, docs/silicon.md, its figure")
    args = parser.parse_args()
    rows = [row for row in list_rows() if nets.PILOTNET.exists() or "PilotNet" not in row.network]
    table = [compute(row) for row in rows]
    shown = ("chip", "network", "quantity", "measured", "model", "error_percent", "judges")
    save("silicon", [{key: row[key] for key in shown} for row in table], {"pilotnet": nets.PILOTNET.exists()})
    if args.write and len(table) == len(list_rows()):
        TABLE.write_text(json.dumps(table, indent=1) + "\n")
        PAGE.write_text(write_page(table))
        FIGURE.write_text(draw(table))


if __name__ == "__main__":
    main()
