"""The version of the code: an edited, moved or new Python file is another one."""

import nwcompile as nw
from nwcompile.code_version import N_DIGITS, code_hash, code_version


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
