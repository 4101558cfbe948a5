"""What every benchmark prints and writes: a table, and JSON with machine, versions, commit, seed and settings."""

import json
import os
import platform
import statistics
import subprocess
import time
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
PACKAGES = ("numpy", "numba", "torch", "scipy", "networkx", "pymetis")


def save(name: str, rows: list[dict], settings: dict, folder: Path = RESULTS) -> None:
    """Print `rows` as a table and write them with their circumstances to <folder>/<name>.json."""
    show(rows)
    write(name, rows, settings, folder)


def show(rows: list[dict]) -> None:
    """Print `rows` as a table, with the columns of the first."""
    columns = list(rows[0])
    cells = [[_text(row.get(c)) for c in columns] for row in rows]
    widths = [max(len(c), *(len(row[i]) for row in cells)) for i, c in enumerate(columns)]
    for line in (columns, ["-" * w for w in widths], *cells):
        print("  ".join(text.ljust(w) for text, w in zip(line, widths, strict=True)).rstrip())


def write(name: str, rows: list[dict], settings: dict, folder: Path = RESULTS) -> None:
    """Write `rows` with their circumstances to <folder>/<name>.json, whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    record = {"benchmark": name, "settings": settings, "rows": rows, "machine": machine(), "commit": commit(),
              "date": datetime.now(UTC).date().isoformat()}  # fmt: skip
    new = folder / f"{name}.json.new"
    new.write_text(json.dumps(record, indent=1) + "\n")
    new.replace(folder / f"{name}.json")


def median_seconds(call, repeats: int) -> tuple[float, object]:
    """Median CPU seconds of the process over some calls after a first one, and what the last one gave."""
    value, times = call(), []
    for _ in range(repeats):
        start = time.process_time()
        value = call()
        times.append(time.process_time() - start)
    return statistics.median(times), value


def _text(value) -> str:
    return "–" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def machine() -> dict:
    """Processor, cores in use, Python and package versions."""
    model = next((line.split(":", 1)[1].strip() for line in _lines("/proc/cpuinfo") if "model name" in line), "unknown")
    return {"cpu": model, "cores": len(os.sched_getaffinity(0)), "load_average": os.getloadavg()[0],
            "python": platform.python_version(), **{p: _version(p) for p in PACKAGES}}  # fmt: skip


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "absent"


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []


def commit() -> str:
    """The commit measured, `+` if the working tree differs from it."""
    git = ["git", "-C", str(RESULTS.parent)]
    try:
        head = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True)
        changed = subprocess.run([*git, "status", "--porcelain", "-uno"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head.stdout.strip() + ("+" if changed.stdout.strip() else "")
