"""The documentation says what the code does."""

import importlib.util
import re
import tomllib
from pathlib import Path

import numpy as np

import nwcompile as nw
from nwcompile.ir import artifact
from tests.nets import conv_net

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


def test_docs_artifact_page_names_every_key_and_array():
    page = (DOCS / "artifact.md").read_text()
    x = np.zeros((1, 3, 2, 6, 5), np.int8)
    manifest, arrays = artifact.decode(nw.compile(conv_net(), "tiny", x).data, "net")
    assert [key for key in manifest if f"`{key}`" not in page] == []
    named = [re.sub(r"<.*?>", r"\\w+", name) for name in re.findall(r"`(\w[\w<>]*)`", page)]
    assert [name for name in arrays if not any(re.fullmatch(pattern, name) for pattern in named)] == []
