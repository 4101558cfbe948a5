"""The first minute: how long `nwcompile estimate demo` and README's ten lines take where no kernel was ever compiled.

    python benchmarks/cold_start.py [--runs 3] [--kernels 20] [--out cold_start]

Each cold run is a new process whose kernel cache is an empty folder; each warm run finds the kernels of the one before.
The lines are those of README.md. Seconds are from the start of the process to its end, so loading Python and torch
counts; beside the wall clock stands the processor time of the process and of all that it started. One more cold run
of each tells which kernels take longest to compile: seconds of their own, without what they call.
"""

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.record import save, show  # noqa: E402

# What Python runs at its start in the run that is watched, and in every process which that one starts.
WATCH = """
import atexit, json, os, time
from numba.core import event

class Compilations(event.Listener):
    def __init__(self):
        self.open, self.seconds = [], {}

    def on_start(self, event):
        self.open.append([time.thread_time(), 0.0])

    def on_end(self, event):
        begin, of_callees = self.open.pop()
        seconds = time.thread_time() - begin
        if self.open:
            self.open[-1][1] += seconds
        function = event.data["dispatcher"].py_func
        name = function.__module__.removeprefix("nwcompile.") + "." + function.__name__
        n_times, before = self.seconds.get(name, (0, 0.0))
        self.seconds[name] = n_times + 1, before + seconds - of_callees

compilations = Compilations()
event.register("numba:compile", compilations)

def write():
    with open(os.path.join(os.environ["COMPILATIONS"], str(os.getpid())), "w") as file:
        json.dump(compilations.seconds, file)

atexit.register(write)
"""


def readme_lines() -> str:
    """The code under "Your own model in ten lines"."""
    text = (ROOT / "README.md").read_text().split("## Your own model in ten lines")[1]
    return re.search(r"```python\n(.*?)```", text, re.DOTALL)[1]


CASES = {"estimate demo": ["-m", "nwcompile", "estimate", "demo"], "README's ten lines": ["-c", readme_lines()]}


def run(case: str, cache: Path, folder: Path, watched: Path | None = None) -> dict:
    """Run a case in a new process with this kernel cache; gives its seconds."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache), "PYTHONPATH": str(ROOT)}
    if watched is not None:
        (watched / "sitecustomize.py").write_text(WATCH)
        environment |= {"PYTHONPATH": f"{watched}{os.pathsep}{ROOT}", "COMPILATIONS": str(watched)}
    start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *CASES[case]], cwd=folder, env=environment, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"wall_s": time.perf_counter() - start, "processor_s": processor, "kernel_mb": size_mb(cache)}


def size_mb(folder: Path) -> float:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 1e6


def compilations(watched: Path) -> list[dict]:
    """The kernels that were compiled, in all processes, those that took longest first."""
    kernels: dict[str, list] = {}
    for file in watched.iterdir():
        if file.name.isdigit():
            for name, (n_times, seconds) in json.loads(file.read_text()).items():
                kernel = kernels.setdefault(name, [0, 0.0])
                kernel[0] += n_times
                kernel[1] += seconds
    return [
        {"kernel": name, "times": n_times, "seconds": seconds}
        for name, (n_times, seconds) in sorted(kernels.items(), key=lambda item: -item[1][1])
    ]


def watch_kernels(case: str) -> list[dict]:
    """The kernels that a cold run of a case compiles."""
    with (
        tempfile.TemporaryDirectory() as cache,
        tempfile.TemporaryDirectory() as folder,
        tempfile.TemporaryDirectory() as watched,
    ):
        run(case, Path(cache), Path(folder), Path(watched))
        return compilations(Path(watched))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3, help="cold and warm runs (default 3)")
    parser.add_argument("--kernels", type=int, default=20, help="kernels that are listed (default 20)")
    parser.add_argument("--out", help="write results/OUT.json")
    args = parser.parse_args()
    rows = []
    for case in CASES:
        for _ in range(args.runs):
            with tempfile.TemporaryDirectory() as cache, tempfile.TemporaryDirectory() as folder:
                for state in ("empty", "full"):
                    rows.append({"case": case, "cache": state, **run(case, Path(cache), Path(folder))})
    kernels = {case: watch_kernels(case) for case in CASES}
    if args.out:
        save(args.out, rows, {"runs": args.runs, "kernels": kernels})
    elif rows:
        show(rows)
    for case, compiled in kernels.items():
        print(f"\n{case}: {len(compiled)} kernels, {sum(k['seconds'] for k in compiled):.1f} s of compilation in all")
        show(compiled[: args.kernels])


if __name__ == "__main__":
    main()
