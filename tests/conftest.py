"""What all tests share: the folder of other people's results, and how long hypothesis searches.

Profiles: `short` for `make test`, `long` for `make test-long`, `first` to fail at the first example as it was drawn.
"""

import gc
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import get_ident

import pytest
from hypothesis import Phase, settings

from nwcompile import flow
from nwcompile.kernels.jit import QUIET
from tests.long import EXAMPLES

pytest.register_assert_rewrite("tests.made")  # before any of it is imported

REFERENCE = Path(os.environ.get("NWCOMPILE_REFERENCE") or Path(__file__).resolve().parents[2] / "shared" / "reference")

# As machine code of kernels is kept beside the sources, so is bytecode, whatever the environment says. Without it each
# worker rewrites the asserts of all test modules anew, and every process that tests start compiles the package.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

os.environ.setdefault(QUIET, "1")  # for processes that tests start: their stderr must not depend on a cache

# Tests interrupt themselves and processes that they start; a shell has what it runs in the background ignore that.
signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("short", max_examples=25, deadline=None, derandomize=True)
settings.register_profile("long", max_examples=EXAMPLES, deadline=None, derandomize="CI" in os.environ)
settings.register_profile("first", settings.get_profile("short"), phases=[Phase.explicit, Phase.generate])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "short"))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """No garbage is looked for while tests are collected, nor later among what stands by then."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def stored(pattern: str, *known: str) -> list[str]:
    """Stems of the reference's files of a pattern; those `known` also without the reference, so that they skip."""
    return sorted({*known, *(path.stem for path in REFERENCE.glob(pattern))})


@pytest.fixture(scope="session")
def reference() -> Path:
    """Results that nobody on this project wrote; where they are absent, tests skip, and in CI fail."""
    if not (REFERENCE.is_dir() and any(REFERENCE.iterdir())):
        text = f"no reference data in {REFERENCE}; set NWCOMPILE_REFERENCE"
        if os.environ.get("CI"):
            pytest.fail(text)
        pytest.skip(text)
    return REFERENCE


@pytest.fixture(scope="session", autouse=True)
def every_compiled_program_is_saved_and_loaded(tmp_path_factory) -> Iterator[None]:
    """Whatever a test of this process compiles is compared with what its file holds."""
    from tests.made.saved import verify_saved

    folder, run = tmp_path_factory.mktemp("saved"), flow.run

    def run_and_saved(*given, **named):
        draft = run(*given, **named)
        verify_saved(draft.program, folder / f"{get_ident()}.nwc")  # several threads may compile at once
        return draft

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flow, "run", run_and_saved)
        yield
