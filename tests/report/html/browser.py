"""A browser for the tests of the page: Debian's chromium, driven by playwright; pages are files."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

CHROMIUM = Path(os.environ.get("CHROMIUM", "/usr/bin/chromium"))
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync"]  # fmt: skip


@contextmanager
def chromium() -> Iterator:
    """A running browser, as playwright has it.

    Where there is none the test that asks skips; in CI, which installs it, it fails.
    """
    lacks = None if CHROMIUM.exists() else f"chromium is not installed at {CHROMIUM}"
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError:
        lacks = "playwright is not installed"
    if lacks is not None:
        if os.environ.get("CI"):
            pytest.fail(f"{lacks}; .ci/run installs it with apt as root: apt-get install -y chromium")
        pytest.skip(lacks)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()
