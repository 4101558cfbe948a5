"""The public face of the package: its names, and what importing it costs."""

import json
import subprocess
import sys

import pytest

import nwcompile as nw


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_package_import_loads_no_heavy_library():
    loaded = json.loads(python("import sys, json, nwcompile; dir(nwcompile); print(json.dumps(sorted(sys.modules)))"))
    assert {"torch", "numba", "triton", "networkx", "numpy", "scipy"} & set(loaded) == set()


def test_package_chip_needs_neither_torch_nor_numba():
    code = "import sys, nwcompile as nw; nw.Chip.load('tiny'); nw.Program; print({'torch', 'numba'} & set(sys.modules))"
    assert python(code) == "set()"


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
        "program run path accuracy crosscheck model_dt wall_seconds"
    )


def test_package_version_is_that_of_the_distribution():
    from importlib.metadata import version

    assert nw.__version__ == version("nwcompile")
