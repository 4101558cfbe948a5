"""Completion: bash is given the lines for real, and asked what it would complete."""

import subprocess
import sys

import pytest

from nwcompile import cli
from nwcompile.ir.chip import Chip


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    done = subprocess.run([sys.executable, "-m", "nwcompile", "completion", "bash"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    path = tmp_path_factory.mktemp("completion") / "nwcompile.bash"
    path.write_text(done.stdout)
    return path


def completed(script, folder, line: str) -> list[str]:
    """What bash offers for the last word of a line."""
    words = line.split(" ")
    ask = (
        f"source {script}; function=$(complete -p nwcompile | sed 's/.*-F \\([^ ]*\\).*/\\1/'); "
        f"COMP_WORDS=({' '.join(repr(word) for word in words)}); COMP_CWORD={len(words) - 1}; "
        f"COMP_LINE={line!r}; COMP_POINT={len(line)}; $function nwcompile {words[-1]!r} {words[-2]!r}; "
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", ask], cwd=folder, capture_output=True, text=True, check=True)
    return sorted(filter(None, done.stdout.splitlines()))


def test_completion_offers_verbs_flags_words_chips_and_files_in_bash(script, tmp_path):
    for name in ("net.nwc", "mine.toml", "data.npz"):
        (tmp_path / name).touch()
    (tmp_path / "folder").mkdir()
    assert completed(script, tmp_path, "nwcompile e") == ["estimate", "evaluate", "explain", "export"]
    assert completed(script, tmp_path, "nwcompile compile --pl") == ["--placer", "--plan-only"]
    assert completed(script, tmp_path, "nwcompile compile --chip loihi1") == [
        name for name in Chip.names() if name.startswith("loihi1")
    ]
    assert completed(script, tmp_path, "nwcompile compile --chip m") == [
        "mesh_def",
        "mesh_la",
        "mesh_spec",
        "mine.toml",
    ]
    assert completed(script, tmp_path, "nwcompile compile --placer hil") == ["hilbert", "hill-climb"][:1] + [
        "hill-climb"
    ]
    assert completed(script, tmp_path, "nwcompile simulate net.nwc --input d") == ["data.npz"]
    assert completed(script, tmp_path, "nwcompile compile -o f") == ["folder"]
    assert completed(script, tmp_path, "nwcompile simulate n") == ["net.nwc"]
    assert completed(script, tmp_path, "nwcompile chips show tin") == ["tiny"]
    assert completed(script, tmp_path, "nwcompile explain NW400") == [f"NW400{n}" for n in range(1, 7)]


def test_completion_without_shtab_names_the_extra(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert cli.main(["completion", "zsh"]) == 2
    text = "completion needs shtab, which is not installed: pip install 'nwcompile[completion]'"
    assert capsys.readouterr().err == f"nwcompile: error[NW1102]: {text}\n"


@pytest.mark.parametrize("shell", ["zsh", "tcsh"])
def test_completion_has_chips_for_other_shells(shell, capsys):
    assert cli.main(["completion", shell]) == 0
    out = capsys.readouterr().out
    assert " ".join(Chip.names()) in out and "hill-climb" in out


def test_completion_refuses_what_changes_nothing(capsys):
    assert cli.main(["completion", "bash", "--json"]) == 2
    text = "nwcompile: error[NW1002]: completion: --json and --set change nothing here; leave them out\n"
    assert capsys.readouterr().err == text
    assert cli.main(["completion", "fsh"]) == 2
    text = "completion: argument bash|zsh|tcsh: unknown shell 'fsh'; choose one of: zsh, bash, tcsh\n"
    assert capsys.readouterr().err.endswith(text)
