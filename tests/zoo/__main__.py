"""The 10 x 5 table: `python -m tests.zoo [--networks a,b] [--chips a,b] [--limit 240] [--no-boards]`.

Each cell is a process of its own with so many seconds; its line is printed when it is done, the table at the end.
"""

import argparse
import json
import subprocess
import sys
from dataclasses import asdict

from tests.zoo.cell import CHIPS, NETWORKS, land

CELL_S = 240  # Seconds a cell may take: the largest compiles in about half of that on one core.


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", default=",".join(NETWORKS))
    parser.add_argument("--chips", default=",".join(CHIPS))
    parser.add_argument("--limit", type=int, default=CELL_S)
    parser.add_argument("--no-boards", action="store_true")
    parser.add_argument("--json", action="store_true", help="of one cell, in this process")
    args = parser.parse_args()
    networks, chips = args.networks.split(","), args.chips.split(",")
    if args.json:
        print(json.dumps(asdict(land(networks[0], chips[0], not args.no_boards))))
        return
    cells = {}
    for name in networks:
        for chip in chips:
            cells[name, chip] = in_a_process(name, chip, args.limit, args.no_boards)
            print(f"{name} on {chip}: {line(cells[name, chip])}", flush=True)
    print()
    width = max(map(len, networks))
    print(" " * width, *(f"{chip:>16}" for chip in chips))
    for name in networks:
        print(f"{name:{width}}", *(f"{short(cells[name, chip]):>16}" for chip in chips))


def in_a_process(name: str, chip: str, limit_s: int, no_boards: bool) -> dict:
    """The cell as plain values; where its process ends otherwise, what it said last."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.zoo", "--json", "--networks", name, "--chips", chip]
    command += ["--no-boards"] * no_boards
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s)
    except subprocess.TimeoutExpired:
        return {"label": "error", "reason": f"not done within {limit_s} s"}
    if done.returncode:
        return {"label": "error", "reason": (done.stderr.strip().splitlines() or ["nothing said"])[-1]}
    return json.loads(done.stdout.splitlines()[-1])


def line(cell: dict) -> str:
    """All that is known of a cell, in one line."""
    parts = [cell["label"]]
    if cell.get("n_cores"):
        parts.append(f"{cell['n_cores']} cores of {cell['chip']}")
        parts.append("backends agree" if cell["agree"] else "BACKENDS DISAGREE")
        worst = max(cell["rates"].items(), key=lambda item: abs(item[1][0] / item[1][1] - 1), default=None)
        if worst is not None:
            parts.append(f"rate of {worst[0]} {worst[1][0]:.4f}, in float {worst[1][1]:.4f}")
        if cell["rate_changes"]:
            layer, percent = max(cell["rate_changes"].items(), key=lambda item: abs(item[1]))
            parts.append(f"rate of {layer} {percent:+.1f} % against the ideal chip")
            parts.append(f"{cell['spikes_changed_percent']:.1f} % of spikes changed")
        parts += [f"[{c['layer']}: {c['how']} ({c['label']})]" for c in cell["changes"]]
    if cell["reason"]:
        parts.append(cell["reason"])
    return "; ".join([*parts, f"{cell.get('seconds', 0):.0f} s"])


def short(cell: dict) -> str:
    return f"{cell['label']} {cell['n_cores']}" if cell.get("n_cores") else cell["label"]


if __name__ == "__main__":
    main()
