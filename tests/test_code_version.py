"""Code version: editing, moving or adding a Python file changes it."""

from importlib import import_module, reload

import nwcompile as nw
from nwcompile.code_version import N_DIGITS, code_hash, code_version, method_version


def test_code_version_changes_with_every_python_file(tmp_path):
    (tmp_path / "passes").mkdir()
    source, other = tmp_path / "flow.py", tmp_path / "passes" / "place.py"
    hashes = []
    for path, text in ((source, "a = 1\n"), (other, "b = 2\n"), (source, "a = 3\n"), (other, "")):
        path.write_text(text)
        hashes.append(code_hash(tmp_path))
    other.rename(tmp_path / "place.py")
    hashes.append(code_hash(tmp_path))
    assert len(set(hashes)) == 5
    (tmp_path / "flow.pyc").write_text("no source")
    assert code_hash(tmp_path) == hashes[-1]


def test_code_version_begins_with_that_of_the_release():
    release, digits = code_version().split("+")
    assert release == nw.__version__ and len(digits) == N_DIGITS


METHODS = """
from functools import partial
def mine(network, chip, activity, options, width=2):
    return [part + 1 for part in range(width)]
class Of:
    def __init__(self, width):
        self.width = width
    def __call__(self, network, chip, activity, options):
        return self.width
def made(width):
    return lambda *given: width
all_of_them = [mine, Of(2), Of(3), partial(mine, width=4), partial(mine, width=5), made(6), made(7)]
"""


def test_method_version_changes_with_an_edit_of_its_file_and_with_what_it_was_made_with(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    found = []
    for name, text in (("first", METHODS), ("again", METHODS), ("edited", METHODS.replace("+ 1", "+ 20"))):
        (tmp_path / f"methods_{name}.py").write_text(text)
        found.append([method_version(method) for method in import_module(f"methods_{name}").all_of_them])
    first, again, edited = found
    assert first == again and len({*first, *edited}) == 2 * len(first)


def test_method_version_is_of_the_instructions_that_are_loaded_where_the_file_changed_meanwhile(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    path = tmp_path / "methods_loaded.py"
    path.write_text(METHODS)
    loaded = import_module("methods_loaded")
    path.write_text(METHODS.replace("+ 1", "+ 20"))
    before = method_version(loaded.mine)
    assert method_version(reload(loaded).mine) != before


def test_method_version_of_what_has_no_source():
    names: dict = {}
    exec("def f(*given): return 1\ndef g(*given): return 2", names)
    assert method_version(names["f"]) != method_version(names["g"])
