"""Every error has a code, every code a page, and the example on it raises that error."""

import ast
import re
import sys
from functools import cache
from pathlib import Path

import pytest

import nwcompile as nw
from nwcompile import cli, error_codes, errors, plugins
from nwcompile.error_codes import CODES, OTHERWISE
from tests.frontend.frameworks import framework

PACKAGE = Path(nw.__file__).parent
CLASSES = {
    name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, errors.NwError)
}
PRIVATE = {"_RefusedError", "_ClosedError", "UnfollowableError", "RunError"}  # caught where they are raised
PYTHONS = {"AttributeError", "AssertionError", "ValueError", "IndexError", "EOFError", "TimeoutError", "RuntimeError",
           "IsADirectoryError", "KeyboardInterrupt", "argparse.ArgumentTypeError"}  # fmt: skip
HOLDS_STATEMENTS = (ast.stmt, ast.ExceptHandler, ast.match_case)
ADD = "add the file to `raised_in` of the code in nwcompile/error_codes.py that tells of it, or a code with a page"
TORCH = {"NW2303": "sinabs"}  # pages whose example needs a framework


@cache
def raises() -> list[tuple[str, str]]:
    """Where an error is raised, as `ir.chip:Chip.load`, and its class, "" where a function makes it."""
    found = []
    for file in sorted(PACKAGE.rglob("*.py")):
        parts = file.relative_to(PACKAGE).with_suffix("").parts
        module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        todo = [(ast.parse(file.read_text()), "")]
        while todo:
            node, name = todo.pop()
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                name = f"{name}.{node.name}".lstrip(".")
            if isinstance(node, ast.Raise) and node.exc is not None:
                made = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
                found.append((f"{module}:{name}", ast.unparse(made)))
            todo += [(child, name) for child in ast.iter_child_nodes(node) if isinstance(child, HOLDS_STATEMENTS)]
    return found


def names() -> list[str]:
    return [name for row in CODES for name in row.raised_in.split()]


def test_error_code_is_there_for_every_raise():
    known, without = set(names()), []
    for place, kind in raises():
        if kind not in PYTHONS | PRIVATE | {"FitError", "LossError"} and not known & set(error_codes._places(place)):
            without.append(place)
    assert without == [], ADD


def test_error_code_table_names_each_place_once_and_only_places_that_raise():
    assert len(names()) == len(set(names())) and len({row.code for row in CODES}) == len(CODES)
    places = {name for place, _ in raises() for name in error_codes._places(place)}
    gone = [name for name in names() if name.removeprefix(OTHERWISE) not in places | CLASSES]
    assert gone == [], "nothing is raised there any more; take it out of nwcompile/error_codes.py"


def test_error_code_pages_are_those_of_the_table_under_its_titles():
    pages = {page.stem: page.read_text().partition("\n")[0] for page in error_codes.PAGES.glob("NW*.md")}
    assert pages == {row.code: f"# {row.code}: {row.title}" for row in CODES}, "a code has docs/errors/CODE.md"
    index = (error_codes.PAGES / "README.md").read_text()
    assert re.findall(r"^\| \[(\w+)\]\(\1\.md\) \| (.*) \|$", index, re.MULTILINE) == [
        (row.code, row.title) for row in CODES
    ], "docs/errors/README.md lists every code and title in the order of nwcompile/error_codes.py"


def said_on(page: str, printed: str) -> bool:
    """Whether what was printed is what a page shows of it: lines that end in ... are cut there."""
    shown = re.findall(r"```text\n(.*?)```", page, re.DOTALL)[0].splitlines()
    lines = printed.splitlines()
    cut = shown[-1] == "..."
    shown = shown[:-1] if cut else shown
    same = [line.startswith(text[:-4]) if text.endswith(" ...") else line == text
            for line, text in zip(lines, shown, strict=False)]  # fmt: skip
    return all(same) and (len(lines) > len(shown) if cut else len(lines) == len(shown))


WITH_EXAMPLE = [row.code for row in CODES if row.code != "NW1000"]  # that one takes a full disk or memory


@pytest.mark.filterwarnings("ignore::nwcompile.errors.NwWarning")
@pytest.mark.parametrize("code", WITH_EXAMPLE)
def test_error_page_example_raises_its_code(code, tmp_path, monkeypatch, capsys):
    page = error_codes.BY_CODE[code].page.read_text()
    if "without a GPU" in page:
        import torch

        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    if code in TORCH:
        framework(TORCH[code])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(plugins, "installed", plugins.installed)  # one example puts another in its place
    monkeypatch.setitem(sys.modules, "pandas", sys.modules.get("pandas", None))
    lang, example = re.findall(r"```(sh|python)\n(.*?)```", page, re.DOTALL)[0]
    if lang == "sh":
        assert cli.main(example.split()[1:]) in (1, 2)
        stated, printed = re.fullmatch(
            r"nwcompile: error\[(\w+)\]: (.*)\n", capsys.readouterr().err, re.DOTALL
        ).groups()
    else:
        with pytest.raises(errors.NwError) as caught:
            exec(compile(example, f"{code}.md", "exec"), {"__name__": "example"})
        stated, printed = caught.value.code, str(caught.value)
    assert stated == code and said_on(page, printed)


def test_error_code_of_what_was_not_raised_here_is_that_of_its_class():
    kinds = {name: getattr(errors, name)("text") for name in CLASSES - {"FitError"}}
    assert {name: error.code for name, error in kinds.items()} == {
        "NwError": "NW1000", "OptionError": "NW1101", "ModelError": "NW2000", "ChipError": "NW4001",
        "LossError": "NW5002", "BackendError": "NW6101", "ArtifactError": "NW7002", "NotEnoughMemoryError": "NW1009",
    }  # fmt: skip
    assert errors.FitError("tiny", []).code == "NW5001"


def test_error_code_stays_when_its_sentence_gets_an_end():
    with pytest.raises(errors.ChipError) as caught:
        nw.Chip.load("tiny").replace({"noc.row": 3})
    ended = caught.value.ending("; see the page")
    assert (
        ended.code == "NW4002" and str(ended) == "tiny: noc.row: unknown key (did you mean 'noc.rows'?); see the page"
    )


def test_cli_prints_the_code_of_an_error_and_explains_it(capsys):
    assert cli.main(["chips", "show", "tiny", "--set", "noc.rows=-3"]) == 2
    assert capsys.readouterr().err == "nwcompile: error[NW4002]: tiny: noc.rows: -3 must be above 0\n"
    assert cli.main(["explain", "nw4002"]) == 0
    assert capsys.readouterr().out.startswith("# NW4002: A key of a chip file is unknown, missing or out of range\n")
    assert cli.main(["explain"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1 + len(CODES)
    assert cli.main(["explain", "NW400"]) == 2
    near = "NW4001, NW4002, NW4003, NW4004, NW4005"
    said = f"unknown code 'NW400'; choose one of: {near} or {len(CODES) - 5} others"
    assert capsys.readouterr().err == f"nwcompile: error[NW1001]: explain: argument CODE: {said}\n"
    assert cli.main(["explain", "--set", "noc.rows=3"]) == 2
    assert capsys.readouterr().err == "nwcompile: error[NW1002]: explain: --set changes a chip, and this shows a page\n"
