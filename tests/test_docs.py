"""The documentation says what the code does."""

import importlib.util
import tomllib
from pathlib import Path

import nwcompile as nw

DOCS = Path(__file__).resolve().parents[1] / "docs"


def test_docs_chip_file_page_is_the_one_its_script_writes():
    spec = importlib.util.spec_from_file_location("make_chip_file", DOCS / "make_chip_file.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert (DOCS / "chip-file.md").read_text() == script.page(), "run `python docs/make_chip_file.py`"


def test_docs_chip_file_example_is_a_chip():
    text = (DOCS / "chip-file.md").read_text().split("```toml\n")[1].split("```")[0]
    chip = nw.Chip.from_dict(tomllib.loads(text))
    assert chip.source_of("core.max_neurons") == "measured on our board"
