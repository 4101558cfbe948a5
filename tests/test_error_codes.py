"""Every error has a code, every code has a page, and the example on the page raises that error."""

import ast
import re
import sys
from pathlib import Path

import pytest

import nwcompile as nw
from nwcompile import cli, errors, plugins
from nwcompile.errors import ERROR_PAGES, error_titles
from tests.frontend.frameworks import framework

PACKAGE = Path(nw.__file__).parent
CODES = error_titles()
CLASSES = {
    name: value for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, errors.NwError)
}
TORCH = {"NW2303": "sinabs", "NW2310": "onnx"}  # pages whose example needs a framework
SAID = re.compile(r'\b(?:ERROR_CODE|code|_code|class_code)(?:: str \| None)? ?= ?"(NW\w+)"')


def test_error_codes_of_the_package_are_those_of_the_index():
    said = {code for file in PACKAGE.rglob("*.py") for code in SAID.findall(file.read_text())}
    assert said == set(CODES), "a code has a page in docs/errors/, and a line in its README.md"


def test_error_code_of_a_model_error_is_of_its_file_folder_or_raise():
    without = []
    for file in PACKAGE.rglob("*.py"):
        inits = [folder / "__init__.py" for folder in file.parents if PACKAGE in folder.parents]
        if not any("\nERROR_CODE = " in place.read_text() for place in (file, *inits)):
            made = [node.exc for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Raise)]
            calls = [ast.unparse(call) for call in made if isinstance(call, ast.Call)]
            without += [(file.name, call) for call in calls if call.startswith("ModelError(") and "code=" not in call]
    assert without == [], "give the file an ERROR_CODE, or the error `code=`; NW2000 says little"


def test_error_code_pages_are_those_of_the_index_under_its_titles():
    pages = {page.stem: page.read_text().partition("\n")[0] for page in ERROR_PAGES.glob("NW*.md")}
    assert pages == {code: f"# {code}: {title}" for code, title in CODES.items()}
    assert list(CODES) == sorted(CODES)


def said_on(page: str, printed: str) -> bool:
    """Whether the printed text matches the one on a page, where lines that end in ... are shortened."""
    shown = re.findall(r"```text\n(.*?)```", page, re.DOTALL)[0].splitlines()
    lines = printed.splitlines()
    cut = shown[-1] == "..."
    shown = shown[:-1] if cut else shown
    same = [line.startswith(text[:-4]) if text.endswith(" ...") else line == text
            for line, text in zip(lines, shown, strict=False)]  # fmt: skip
    return all(same) and (len(lines) > len(shown) if cut else len(lines) == len(shown))


WITH_EXAMPLE = [code for code in CODES if code != "NW1000"]  # NW1000 needs a full disk or memory


@pytest.mark.filterwarnings("ignore::nwcompile.errors.NwWarning")
@pytest.mark.parametrize("code", WITH_EXAMPLE)
def test_error_page_example_raises_its_code(code, tmp_path, monkeypatch, capsys):
    page = (ERROR_PAGES / f"{code}.md").read_text()
    if "without a GPU" in page:
        import torch

        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    if "without PyTorch" in page:
        monkeypatch.setitem(sys.modules, "torch", None)
        monkeypatch.delitem(sys.modules, "nwcompile.nn", raising=False)
    if code in TORCH:
        framework(TORCH[code])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        plugins, "find_entry_points", plugins.find_entry_points
    )  # restored after an example that replaces it
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
    kinds = {name: kind("text") for name, kind in CLASSES.items() if name != "FitError"}
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
