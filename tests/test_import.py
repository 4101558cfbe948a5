"""The public interface of the package: its names and its import time."""

import ast
import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import grimp
import networkx
import pytest

import nwcompile as nw
from nwcompile.cli.inputs.data import EVENT_FILES
from nwcompile.nn.data.events import FORMATS


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_package_import_loads_no_heavy_library():
    loaded = json.loads(python("import sys, json, nwcompile; dir(nwcompile); print(json.dumps(sorted(sys.modules)))"))
    assert {"torch", "numba", "triton", "networkx", "numpy", "scipy"} & set(loaded) == set()


def test_package_chip_needs_neither_torch_nor_numba():
    code = "import sys, nwcompile as nw; nw.Chip.load('tiny'); nw.Program; print({'torch', 'numba'} & set(sys.modules))"
    assert python(code) == "set()"


WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None
import numpy as np, nwcompile as nw
from nwcompile.cli import main
demo = nw.demo()
nw.to_nir(demo.network, "net.nir")
network, x = nw.from_nir("net.nir"), demo.x[:4]
nw.compile(network, "loihi2", x).save("net.nwc")
program = nw.Program.load("net.nwc")
runs = {backend: nw.simulate(program, x, backend=backend) for backend in ("reference", "cycle", "sequence")}
spikes = [np.concatenate([run.spikes[n] for n in program.network.layers], -1) for run in runs.values()]
assert spikes[0].any() and all(np.array_equal(spikes[0], other) for other in spikes)
assert nw.crosscheck(program, x).agree
weight = np.random.default_rng(0).integers(-9, 9, (4, 1, 3, 3)).astype(np.float32)
edge = nw.Conv2d("in", "map", weight)
images = nw.Network.from_arrays({"map": nw.NeuronSpec(threshold=9.0)}, [edge], {"in": (1, 8, 8)})
dense = np.random.default_rng(1).integers(0, 2, (2, 5, 1, 8, 8)).astype(np.float32)
assert nw.crosscheck(nw.compile(images, "loihi2", dense), dense).agree
try:
    nw.simulate(program, x, backend="sequence", device="cuda")
except nw.BackendError as e:
    assert str(e).startswith("device 'cuda' needs PyTorch"), e
else:
    raise AssertionError("there is no torch")
nw.report(program, runs["cycle"], "report")
nw.estimate(network, ["loihi1", "speck"])
nw.sweep(network, x, {"bits": [4, 8]}, folder="sweep")
np.save("x.npy", x)
for line in ("chips list", "compile net.nir --chip loihi1 -o cli", "simulate cli/net.nwc --input x.npy",
             "report cli/net.nwc --input x.npy --output page", "noc --chip tiny --traffic uniform --load 0.1",
             "crosscheck cli/net.nwc --input x.npy", "estimate demo --chips tiny,xylo_audio3"):
    assert main(line.split()) == 0, line
"""


@pytest.mark.long
def test_all_but_torch_modules_works_without_torch(tmp_path):
    subprocess.run([sys.executable, "-c", WITHOUT_TORCH], cwd=tmp_path, capture_output=True, text=True, check=True)


def test_suffixes_of_event_files_are_those_of_the_reader():
    assert set(EVENT_FILES) == set(FORMATS)


NEEDS_TORCH = """
import pydoc, sys
sys.modules["torch"] = None
import numpy as np, nwcompile as nw
from nwcompile import cli
from nwcompile.frontend.nir.dialects import _exp_as_torch
def needs(function):
    try:
        function()
    except nw.errors.BackendError as e:
        print(e.code, e)
open("small.py", "w").write("import torch\\ndef make(): return torch.nn.Linear(2, 2)")
needs(lambda: nw.from_torch)
needs(lambda: nw.convert)
needs(lambda: nw.nn)
exec("def f():\\n from nwcompile.nn import LIFLayer")
needs(f)
needs(lambda: _exp_as_torch(np.zeros(1), np.dtype(np.float32)))
exec("from nwcompile import *")
help_text = pydoc.render_doc(nw)
sys.exit(cli.main("estimate small:make".split()))
"""


def test_what_needs_torch_says_so_in_a_sentence(tmp_path):
    done = subprocess.run([sys.executable, "-c", NEEDS_TORCH], cwd=tmp_path, capture_output=True, text=True)
    sentence = "NW6107 {} needs PyTorch, which is not installed: pip install 'nwcompile[torch]'"
    exp = "exp of float32 time constants, as sinabs and rockpool compute it,"
    named = ("nwcompile.from_torch", "nwcompile.convert", "nwcompile.nn", "nwcompile.nn", exp)
    assert done.stdout.splitlines() == [sentence.format(name) for name in named]
    said = sentence.replace("NW6107 ", "").format("small:make")
    assert (done.returncode, done.stderr) == (2, f"nwcompile: error[NW6107]: {said}\n")


@pytest.mark.parametrize("name", nw.__all__)
def test_package_public_name_exists(name):
    assert getattr(nw, name) is not None
    assert name in dir(nw)


def test_package_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'nwcompile' has no attribute 'Chp'"):
        nw.Chp  # noqa: B018


@pytest.mark.parametrize(
    "code",
    [
        "import nwcompile as nw; f = nw.report",
        "import nwcompile.report as f",
        "import nwcompile.report; import nwcompile as nw; f = nw.report",
        "from nwcompile import report as f",
        "import nwcompile as nw; nw.report; import nwcompile.report; f = nw.report",
    ],
)
def test_package_report_can_be_called_whatever_was_imported_first(code):
    assert python(f"{code}; import inspect; print(*inspect.signature(f).parameters)") == (
        "program run path accuracy crosscheck model_dt wall_seconds title"
    )


def test_package_version_is_that_of_the_distribution():
    from importlib.metadata import version

    assert nw.__version__ == version("nwcompile")


@cache
def imports() -> frozenset[tuple[str, str]]:
    """Imports of each module, including those in functions and by `import_module("...")`, but not those for types only.

    Names in `nwcompile/__init__.py` do not count: it is above all layers, and no layer imports it.
    """
    graph = grimp.build_graph("nwcompile", exclude_type_checking_imports=True, cache_dir=None)
    pairs = {(a, b) for a in graph.modules for b in graph.find_modules_directly_imported_by(a)}
    root = Path(nw.__file__).parent
    for file in root.rglob("*.py"):
        parts = ("nwcompile", *file.relative_to(root).with_suffix("").parts)
        importer = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        for node in ast.walk(ast.parse(file.read_text())):
            if (
                importer != "nwcompile"
                and isinstance(node, ast.Call)
                and ast.unparse(node.func).endswith("import_module")
            ):
                name = node.args[0].value if isinstance(node.args[0], ast.Constant) else ""
                pairs |= {(importer, name)} if name in graph.modules else set()
    return frozenset(pairs)


def circles(pairs) -> list[list[str]]:
    components = networkx.strongly_connected_components(networkx.DiGraph(pairs))
    return sorted(sorted(component) for component in components if len(component) > 1)


def within(package: str, module: str) -> str | None:
    """The file or folder directly in `package` that contains a module; None for the package and modules outside."""
    return module[len(package) + 1 :].partition(".")[0] if module.startswith(f"{package}.") else None


def test_no_modules_import_each_other_in_a_circle():
    assert circles(imports()) == []


def packages() -> list[str]:
    root = Path(nw.__file__).parent
    return sorted(".".join(("nwcompile", *file.parent.relative_to(root).parts)) for file in root.rglob("__init__.py"))


@pytest.mark.parametrize("package", packages())
def test_no_folders_of_a_package_import_each_other_in_a_circle(package):
    pairs = {(within(package, a), within(package, b)) for a, b in imports()}
    skipped = {None, "families"} if package == "nwcompile" else {None}  # each file of a family belongs to a layer
    assert circles(pair for pair in pairs if pair[0] != pair[1] and not skipped & {*pair}) == []


def test_circles_are_found():
    assert circles([("a", "b"), ("b", "c"), ("c", "b")]) == [["b", "c"]]
    assert within("nwcompile.nn", "nwcompile.nn.ops.cpu") == "ops" and within("nwcompile.nn", "nwcompile.nn") is None


def test_nn_offers_its_submodules_as_attributes_and_quantize_aware_as_the_first_import():
    names = ["surrogate", "losses", "metrics", "data", "quantize_aware"]
    first = "from nwcompile.nn import quantize_aware; print(quantize_aware.__name__)"
    listed = f"import nwcompile.nn as nn; names = set({names}); print(names <= set(dir(nn)), names <= set(nn.__all__))"
    is_there = "print(all(getattr(nn, name) is not None for name in names))"
    assert python("; ".join([first, listed, is_there])) == "quantize_aware\nTrue True\nTrue"


def test_nn_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match=r"module 'nwcompile\.nn' has no attribute 'LIFLayr'"):
        nw.nn.LIFLayr  # noqa: B018
