"""The documentation agrees with the code, and every name in it exists."""

import ast
import importlib.util
import itertools
import re
import tomllib
from dataclasses import fields
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import yaml

import nwcompile as nw
from nwcompile import cli
from nwcompile.cli import VERBS, arguments
from nwcompile.cli.outputs.progress import STAGES
from nwcompile.ir import artifact
from nwcompile.ir.chip import HWMODELS
from nwcompile.ir.chip_sections import SECTIONS
from nwcompile.ir.program import HOST_SCHEMA, PROGRAM_SCHEMA, SCHEMA
from tests.made.nets import conv_net

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PACKAGE = ROOT / "nwcompile"
TUTORIALS = sorted((DOCS / "tutorials").glob("*.py"))
PAGES = sorted([*DOCS.rglob("*.md"), *TUTORIALS, ROOT / "README.md", ROOT / "CHANGELOG.md"])
FLOWS = [DOCS / "map.md", DOCS / "architecture.md", DOCS / "flow.md", ROOT / "README.md"]  # pages that draw the flow
INDEXES = sorted(PACKAGE.rglob("__init__.py"))
PLACE = re.compile(r"(?<![\w.*<])((?:\w+/)*\w+\.(?:py|toml)\b)(?::(\w+))?")  # path, and a name that is defined there
FOLDER = re.compile(r"`((?:\w+/)+)`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
HISTORY = {"CHANGELOG.md"}  # mentions files that have moved since
OLD_NAMES = {"optimise"}  # old name of option `optimize`, mentioned while it still works
NOT_OURS = {"layers.toml", "mine.toml", "slayer/block/base.py", "netx/hdf5.py"}  # files of a user and of lava-dl
BRITISH = re.compile(
    r"\w*(?:optimis|normalis|quantis|minimis|maximis|initialis|vectoris|summaris|discretis|serialis|recognis|colour|"
    r"neighbour|behaviour|favour|labelled|travell|modell|cancell)\w*",
    re.IGNORECASE,
)
RETIRED = re.compile(
    r"\b(?:atoms?|zones?|ground|timing wheel|calendar|alarms?)\b", re.IGNORECASE
)  # words of the old code


def id_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@cache
def names_of(file: Path) -> set[str]:
    """Functions, classes, fields and constants that a Python file defines."""
    names = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        names.update(target.id for target in targets if isinstance(target, ast.Name))
    return names


@cache
def files_named(name: str) -> list[Path]:
    return [file for folder in ("nwcompile", "docs", "tests") for file in (ROOT / folder).rglob(name)]


def candidates(path: str, beside: Path) -> list[Path]:
    """Files that a page may mean: relative to the root, the package or its own folder; a bare name may be anywhere."""
    given = [folder / path for folder in (ROOT, PACKAGE, beside.parent) if (folder / path).is_file()]
    return given or ([] if "/" in path else files_named(path))


def wrong_places(text: str, page: Path) -> list[str]:
    """Files in a text that do not exist, and names that the files do not define."""
    wrong = []
    for path, name in PLACE.findall(text):
        files = candidates(path, page)
        if path not in NOT_OURS and not files:
            wrong.append(path)
        elif name and not any(file.suffix == ".py" and name in names_of(file) for file in files):
            wrong.append(f"{path}:{name}")
    return wrong


def prose(page: Path) -> str:
    """The page without the old names, which are the first cells of some table rows."""
    text = page.read_text()
    if page.name != "freeze.md":
        return text
    head, mark, rest = text.partition("## Old name, new name")
    return head + mark + re.sub(r"^\|[^|\n]*\|", "|", rest, flags=re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """Anchors that GitHub generates for the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", [p for p in PAGES if p.name not in HISTORY], ids=id_of)
def test_docs_name_files_and_functions_that_exist(page):
    text = prose(page)
    folders = [f for f in FOLDER.findall(text) if not any((at / f).is_dir() for at in (ROOT, PACKAGE, page.parent))]
    assert (wrong_places(text, page), [f for f in folders if not f.startswith("build")]) == ([], [])


def wrong_rows(docstring: str, index: Path) -> list[str]:
    """Rows `purpose, functions, file` of an index whose functions are not in that file."""
    wrong = []
    for line in docstring.splitlines():
        cells = [cell for cell in re.split(r"\s{2,}|\s*\|\s*", line.strip()) if cell]
        file = index.parent / cells[-1].strip("`") if len(cells) > 2 else index
        if file.suffix == ".py" and file != index and file.is_file():
            functions = re.findall(r"[A-Za-z]\w*(?=[`,]|$)", cells[-2].replace("...", ""))
            wrong += [f"{file.name}:{name}" for name in functions if name not in names_of(file)]
    return wrong


@pytest.mark.parametrize("index", INDEXES, ids=id_of)
def test_package_index_names_files_and_functions_that_exist(index):
    docstring = ast.get_docstring(ast.parse(index.read_text())) or ""
    assert wrong_places(docstring, index) + wrong_rows(docstring, index) == []


@pytest.mark.parametrize("index", [i for i in INDEXES if i.parent != PACKAGE], ids=id_of)
def test_package_index_names_every_file_of_its_folder(index):
    docstring = ast.get_docstring(ast.parse(index.read_text())) or ""
    files = {file.name for file in index.parent.glob("*.py")} - {"__init__.py"}
    folders = {f"{file.parent.name}/" for file in index.parent.glob("*/__init__.py")}
    assert sorted(name for name in files | folders if not re.search(rf"(?<![\w/]){name}", docstring)) == []


@pytest.mark.parametrize("page", PAGES, ids=id_of)
def test_docs_links_lead_somewhere(page):
    broken = []
    for link in LINK.findall(page.read_text()):
        if re.match(r"\w+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=id_of)
def test_docs_have_american_spelling_and_the_words_of_the_field(page):
    text = prose(page) if page.name not in HISTORY else page.read_text().split("## 0.1.0")[0]
    words = {word[0] for pattern in (BRITISH, RETIRED) for word in pattern.finditer(text)}
    assert sorted(words - OLD_NAMES) == []


def test_code_has_american_spelling():
    folders = (PACKAGE, ROOT / "examples", ROOT / "benchmarks")
    files = [file for folder in folders for file in sorted(folder.rglob("*.py"))]
    words = {(id_of(file), word[0]) for file in files for word in BRITISH.finditer(file.read_text())}
    assert sorted(pair for pair in words if pair[1] not in OLD_NAMES) == []


@pytest.mark.parametrize(
    "page", [DOCS / "map.md", DOCS / "architecture.md", DOCS / "flow.md", ROOT / "README.md"], ids=id_of
)
def test_docs_draw_every_stage_in_its_order(page):
    flows = [block for block in page.read_text().split("```")[1::2] if "normalize" in block]
    assert flows
    for flow in flows:
        stages = re.findall(r"(?:--|\d\] |\|  )([a-z]+)\b", flow)
        assert [stage for stage in stages if stage in STAGES] == list(STAGES)


def test_docs_architecture_has_the_layers_of_the_contract():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    names = [f"{{{layer.replace(' | ', ', ')}}}" if " | " in layer else layer for layer in layers]
    assert f"`{' > '.join(names)}`" in (DOCS / "architecture.md").read_text()


def test_docs_map_has_every_room_of_the_package():
    page = (DOCS / "map.md").read_text()
    rooms = [f for f in PACKAGE.rglob("*") if f.is_dir() and (f / "__init__.py").exists()]
    assert [str(room.relative_to(PACKAGE)) for room in rooms if f"{room.name}/" not in page] == []


def test_docs_freeze_names_all_that_is_public():
    page = (DOCS / "freeze.md").read_text()
    said = set(re.findall(r"`([^`]+)`", page))
    keys = [field.name for section in SECTIONS.values() for field in fields(section)]
    options = [field.name for field in fields(nw.Options)]
    flags = set()
    for add_flags in arguments.PARSERS.values():
        parser = arguments.Parser()
        add_flags(parser)
        flags |= {flag for action in parser._actions for flag in action.option_strings}
    public = [*nw.__all__, *nw.nn.__all__, *keys, *options, *SECTIONS, *arguments.PARSERS, *flags - {"-h"}]
    assert sorted(set(public) - said) == []
    assert f"Schemas {SCHEMA}, {HOST_SCHEMA} and {PROGRAM_SCHEMA} are final" in page


def test_docs_freeze_promises_no_name_that_is_not_there():
    page = (DOCS / "freeze.md").read_text()
    promised = re.search(r"Of `nwcompile`:(.*?)Of `nwcompile.nn`:(.*?)Methods.*?## Options(.*?)## ", page, re.DOTALL)
    names, of_nn, options = (re.findall(r"`(\w+)`", text) for text in promised.groups())
    assert [name for name in names if not hasattr(nw, name)] == []
    assert [name for name in of_nn if not hasattr(nw.nn, name)] == []
    assert sorted(options) == sorted(field.name for field in fields(nw.Options))


def test_docs_freeze_promises_no_flag_that_a_verb_lacks():
    rows = re.findall(r"^\| `(\w+)` \|(.*)\|$", (DOCS / "freeze.md").read_text(), re.MULTILINE)
    assert sorted(verb for verb, _ in rows) == sorted(VERBS)
    for verb, promised in rows:
        parser = arguments.Parser()
        arguments.add_arguments(parser, verb)
        flags = {flag for action in parser._actions for flag in action.option_strings}
        assert set(re.findall(r"`(-[^`]+)`", promised)) - flags == set(), verb


def script_of(name: str):
    """Import a script of docs/."""
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


def test_docs_chip_file_page_is_the_one_its_script_writes():
    script = script_of("make_chip_file")
    assert (DOCS / "chip-file.md").read_text() == script.page(), "run `python docs/make_chip_file.py`"
    assert (HWMODELS / "chip.schema.json").read_text() == script.schema(), "run `python docs/make_chip_file.py`"


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


def pages_of(nav: list) -> list[str]:
    """Pages of a navigation, which is a list of pages, groups of pages, and pages with titles."""
    entries = [entry if isinstance(entry, str) else next(iter(entry.values())) for entry in nav]
    return [page for entry in entries for page in ([entry] if isinstance(entry, str) else pages_of(entry))]


def test_docs_navigation_has_every_page_once():
    made = {f"tutorials/{file.stem}.md" for file in TUTORIALS} | {"changelog.md"}
    listed = {file.name for file in (DOCS / "errors").glob("NW*.md")}  # in errors/README.md (tests/test_error_codes.py)
    pages = {str(file.relative_to(DOCS)) for file in DOCS.rglob("*.md") if file.name not in listed} | made
    said = pages_of(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"])
    assert sorted(pages - set(said)) == [], "give the page a line in `nav` of mkdocs.yml, in the group of its readers"
    assert (sorted(set(said) - pages), len(said)) == ([], len(set(said))), "`nav` of mkdocs.yml has a page too many"


def test_docs_reference_has_every_public_name():
    entries = [line[4:] for page in (DOCS / "api").glob("*.md") for line in page.read_text().splitlines()]
    modules = {"errors", "nn", "report", "__version__"}
    public = {f"nwcompile.{name}" for name in set(nw.__all__) - modules} | {"nwcompile.report.report"}
    public |= {f"nwcompile.nn.{name}" for name in nw.nn.__all__}
    assert sorted(public - set(entries)) == [], "give the name a line `::: NAME` on a page of docs/api"


@pytest.mark.parametrize("page", [p for p in PAGES if p.suffix == ".md"], ids=id_of)
def test_docs_lists_and_tables_begin_after_an_empty_line(page):
    """GitHub renders them without one, mkdocs does not."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    lines = text.splitlines()
    wrong = []
    for before, line in itertools.pairwise(lines):
        is_list = re.match(r"(?:[-*]|\d+\.) ", line) and not re.match(r"[-*] |\d+\. |  |#", before)
        is_table = line.startswith("|") and not before.startswith("|")
        if before and (is_list or is_table):
            wrong.append(line)
    assert wrong == []


def test_docs_gallery_prints_the_commands_that_build_it():
    page, gallery = (DOCS / "gallery.md").read_text(), script_of("make_gallery")
    shown = re.findall(r"```sh\n(.*?)\n```\n\n<!-- sample (\w+) -->", page, re.DOTALL)
    assert {name: block.splitlines() for block, name in shown} == gallery.COMMANDS
    assert list(gallery.COMMANDS) == list(gallery.PAGES)


def test_readme_code_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert len(code[code.index("lif") :].splitlines()) <= 10
    exec(compile(code, "README.md", "exec"), {})
    out = capsys.readouterr().out
    assert "reference, cycle, sequence agree bit for bit on 16 samples" in out and "\nfits loihi1: " in out


def test_readme_commands_and_pictures_are_there(capsys):
    text = (ROOT / "README.md").read_text()
    for command in re.findall(r"`nwcompile (.*?)`|^    nwcompile (.*?)(?: +#.*)?$", text, re.MULTILINE):
        if command[0]:
            assert cli.main(command[0].split()) == 0 and "agree bit for bit on 200 samples" in capsys.readouterr().out
        else:
            parser = arguments.Parser()
            verb, *words = command[1].split()
            arguments.add_arguments(parser, verb)
            parser.parse_args(words)
    files = re.findall(r"`(?:python|pytest(?: -m long)?) ([\w./ ]+\.py)`", text)
    assert len(files) == 4 and all((ROOT / file).is_file() for line in files for file in line.split())
    pictures = re.findall(r'src(?:set)?="(.*?)"', text)
    assert len(pictures) == 2 and all((ROOT / file).stat().st_size < 200_000 for file in pictures)


def test_readme_claims_are_those_of_the_pages():
    text = (ROOT / "README.md").read_text()
    measured = [line for line in (DOCS / "silicon.md").read_text().splitlines() if re.match(r"\| [a-z]\w+ \|", line)]
    measured = [line for line in measured if "| not measured |" not in line]
    assert f"[{len(measured)} measurements](docs/silicon.md)" in text
    n_imported, n_landed = re.search(
        r"(\d+) import, with every spike of their\nlayers equal to the module's, and (\d+) of these land on a chip",
        (DOCS / "hand-written-neurons.md").read_text(),
    ).groups()
    assert f"[{n_imported} of 40]" in text and f"; {n_landed} land on a chip" in text
    equal = re.search(r"(\d+) and (\d+) networks are equal", (DOCS / "from-pytorch-to-hardware.md").read_text())
    assert f"{sum(map(int, equal.groups()))} of 400 random networks" in text


def test_readme_is_two_screens():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 90, "move details to a page of docs/"
