"""Runs the tutorials: each of `docs/tutorials/*.py` (jupytext, percent format) becomes a notebook with its results.

    python docs/run_tutorials.py [NAME...]

Two run at a time, each in a kernel and an empty folder of its own. What came out is kept in `build/tutorials` until the
tutorial, the package or a library that it uses changes.
"""

import fcntl
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

import jupytext
import nbclient
import nbformat
from traitlets.config import Config

ROOT = Path(__file__).resolve().parents[1]
SOURCES = sorted((ROOT / "docs" / "tutorials").glob("*.py"))
KEPT = ROOT / "build" / "tutorials"
LIBRARIES = ("matplotlib", "numba", "numpy", "pandas", "scikit-learn", "snntorch", "torch")
CELL_TIMEOUT_S = 300  # Ten times what the longest cell takes, for a machine that compiles all kernels first.
AT_ONCE = 2  # As many as the cores of the smallest machine that this is made for.
PICTURES = """
import matplotlib
from matplotlib_inline.backend_inline import set_matplotlib_formats

set_matplotlib_formats("svg")
colored = ("text.color", "axes.labelcolor", "axes.titlecolor", "axes.edgecolor", "xtick.color", "ytick.color")
clear = ("figure.facecolor", "axes.facecolor", "savefig.facecolor")
matplotlib.rcParams.update(dict.fromkeys(colored, "#7b8794") | dict.fromkeys(clear, "none") | {"legend.framealpha": 0})
"""  # No background, and a gray that can be read on the light and on the dark theme.


class TutorialError(Exception):
    """A tutorial does not run, or prints what a reader should not see."""


def executed(source: Path) -> nbformat.NotebookNode:
    """The notebook of a tutorial with its results, run now or kept from when nothing was different."""
    KEPT.mkdir(parents=True, exist_ok=True)
    with open(KEPT / f"{source.stem}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # whoever else wants it waits, instead of running it as well
        kept = KEPT / f"{source.stem}-{state_of(source)}.ipynb"
        if not kept.exists():
            notebook = _run(source)
            for old in KEPT.glob(f"{source.stem}-*.ipynb"):
                old.unlink()
            nbformat.write(notebook, kept)
        return nbformat.read(kept, as_version=4)


def all_executed(sources: Sequence[Path] = SOURCES) -> dict[str, nbformat.NotebookNode]:
    """The notebooks of several tutorials by name."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return dict(zip([source.stem for source in sources], pool.map(executed, sources), strict=True))


def state_of(source: Path) -> str:
    """A hash of all that decides what a tutorial shows."""
    package = [f for f in (ROOT / "nwcompile").rglob("*") if f.suffix in (".py", ".npz")]
    files = [source, Path(__file__), *sorted(package), *sorted((ROOT / "hwmodels").glob("*.toml"))]
    digest = sha256(repr([sys.version, *((name, version(name)) for name in LIBRARIES)]).encode())
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def _run(source: Path) -> nbformat.NotebookNode:
    start = time.perf_counter()
    notebook = jupytext.read(source)
    notebook.cells.insert(0, nbformat.v4.new_code_cell(PICTURES))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NWCOMPILE_QUIET": "1", "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder:
        client = nbclient.NotebookClient(
            notebook,
            coalesce_streams=True,
            config=Config(KernelManager={"transport": "ipc", "ip": f"{folder}/kernel"}),  # opens no port
            kernel_name="python3",
            resources={"metadata": {"path": folder}},
            timeout=CELL_TIMEOUT_S,
        )
        try:
            client.execute(env=environment)
        except nbclient.exceptions.CellExecutionError as e:
            where = next(cell.source for cell in notebook.cells if _has_failed(cell))
            raise TutorialError(f"docs/tutorials/{source.name}: {e.ename}: {e.evalue}\nin the cell\n{where}") from None
    del notebook.cells[0]
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            if output.get("name") == "stderr":
                raise TutorialError(f"docs/tutorials/{source.name} warns:\n{output.text}\nin the cell\n{cell.source}")
    print(f"tutorial {source.stem}: {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
    return notebook


def _has_failed(cell: nbformat.NotebookNode) -> bool:
    return any(output.output_type == "error" for output in cell.get("outputs", ()))


if __name__ == "__main__":
    wanted = sys.argv[1:] or [source.stem for source in SOURCES]
    if unknown := sorted(set(wanted) - {source.stem for source in SOURCES}):
        sys.exit(f"no tutorial {', '.join(unknown)}; there are {', '.join(source.stem for source in SOURCES)}")
    try:
        all_executed([source for source in SOURCES if source.stem in wanted])
    except TutorialError as e:
        sys.exit(str(e))
