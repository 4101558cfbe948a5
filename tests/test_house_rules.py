"""House rules that a machine can check: folders, structures, constants and names of the package.

`python -m tests.test_house_rules [PATH...]` lists every violation in the files under PATH.
"""

import ast
import importlib
import pkgutil
import re
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "nwcompile"
TESTS = ROOT / "tests"
MADE = TESTS / "made"  # shared set-ups of tests
ENGINE_ROOM = ("kernels", "passes", "sim")  # folders with small structures; nouns that mirror a file may be wide
MOST_FILES = 20  # files in a folder of code, without `__init__`
MOST_FIELDS = 12  # fields of a structure in the engine room
CARRIER = "Draft"  # It holds the results of all stages, so it may be wide (docs/decisions/one-pipeline.md).
MOST_BY_POSITION = 5  # fields of a structure that may be passed by position
SAYS_NOTHING = {"found", "own", "each", "most"}  # names without meaning
STRUCTURES = ("NamedTuple", "dataclass")


def files(paths=(PACKAGE,)) -> list[Path]:
    return sorted(f for path in paths for f in ([path] if path.suffix == ".py" else path.rglob("*.py")))


@cache
def nodes(file: Path) -> tuple[ast.AST, ...]:
    """All nodes of a file's syntax tree, the module itself first."""
    return tuple(ast.walk(ast.parse(file.read_text())))


def is_structure(node: ast.AST) -> bool:
    """Whether a class is a NamedTuple or a dataclass."""
    if not isinstance(node, ast.ClassDef):
        return False
    makers = [m.func if isinstance(m, ast.Call) else m for m in (*node.bases, *node.decorator_list)]
    return any(last_name(maker) in STRUCTURES for maker in makers)


def last_name(node: ast.AST) -> str | None:
    """Return the last name of an expression: `c` for `c` and `a.b.c`."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else None


def fields(node: ast.ClassDef) -> list[str]:
    return [f.target.id for f in node.body if isinstance(f, ast.AnnAssign) and isinstance(f.target, ast.Name)]


def crowded_folders() -> Iterator[str]:
    for folder in sorted({file.parent for file in files()}):
        n_files = len([f for f in folder.glob("*.py") if not f.name.startswith("__")])
        if n_files > MOST_FILES:
            yield f"{folder.relative_to(ROOT)}: {n_files} files"


def folders_without_index() -> Iterator[str]:
    for file in files():
        if file.name == "__init__.py" and not ast.get_docstring(ast.parse(file.read_text())):
            yield f"{file.relative_to(ROOT)}: no docstring that says what the folder holds"


def wide_structures(paths=(PACKAGE,)) -> Iterator[str]:
    for file in files(paths):
        if PACKAGE in file.parents and file.relative_to(PACKAGE).parts[0] in ENGINE_ROOM:
            for node in nodes(file):
                if is_structure(node) and len(fields(node)) > MOST_FIELDS and node.name != CARRIER:
                    yield f"{file.relative_to(ROOT)}:{node.lineno}: {node.name} has {len(fields(node))} fields"


def structures_by_position(paths=(PACKAGE,)) -> Iterator[str]:
    """Find structures of more than MOST_BY_POSITION fields that are built by position or by unpacking."""
    wide = {n.name for file in files() for n in nodes(file) if is_structure(n) and len(fields(n)) > 5}
    for file in files(paths):
        for node in nodes(file):
            if isinstance(node, ast.Call) and last_name(node.func) in wide:
                by_position = len(node.args) + 9 * any(isinstance(a, ast.Starred) for a in node.args)
                if by_position > MOST_BY_POSITION:
                    yield f"{file.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node.func)} is built by position"


def argument_packs(paths=(PACKAGE,)) -> Iterator[str]:
    """Find uses of the field order of a structure as an interface, like `*search[1:5]`."""
    for file in files(paths):
        for node in nodes(file):
            is_pack = isinstance(node, ast.Starred) and isinstance(node.value, ast.Subscript)
            if is_pack and isinstance(node.value.slice, ast.Slice) and isinstance(node.value.value, ast.Name):
                yield f"{file.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)}"


def one_letter_structures(paths=(PACKAGE,)) -> Iterator[str]:
    """Find one-letter parameters whose fields are read: structures need names."""
    for file in files(paths):
        for node in nodes(file):
            if not isinstance(node, ast.FunctionDef):
                continue
            arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            letters = {a.arg for a in arguments if len(a.arg) == 1}
            read = {n.value.id for n in ast.walk(node) if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name)
                    and n.attr not in NUMPY}  # fmt: skip
            for letter in sorted(letters & read):
                yield f"{file.relative_to(ROOT)}:{node.lineno}: {node.name}({letter})"


NUMPY = {"shape", "dtype", "size", "ndim", "T", "any", "all", "sum", "max", "min", "astype", "reshape", "copy", "to",
         "mean", "ravel", "tolist", "real", "imag", "device", "data", "detach", "clone", "new_zeros", "flatten",
         "fill", "item", "contiguous", "requires_grad", "transpose", "swapaxes", "view", "is_integer", "clip",
         "abs", "square", "dim", "expand", "unsqueeze", "squeeze", "stride", "element_size", "numel", "argmax",
         "permute", "new_empty", "grad", "sort", "cumsum", "split", "args", "name"}  # fmt: skip


def packed_constants(paths=(PACKAGE,)) -> Iterator[str]:
    """Find `A, B = 1, 2` at the top of a file: one constant per line leaves room for a comment on its value."""
    for file in files(paths):
        for node in nodes(file)[0].body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple):
                names = [ast.unparse(n) for n in node.targets[0].elts]
                is_numbering = isinstance(node.value, ast.Call) and ast.unparse(node.value.func) == "range"
                if all(n.strip("_").isupper() for n in names) and not is_numbering:
                    yield f"{file.relative_to(ROOT)}:{node.lineno}: {', '.join(names)}"


def names_that_say_nothing(paths=(PACKAGE,)) -> Iterator[str]:
    for file in files(paths):
        for node in nodes(file):
            is_store = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
            name = node.id if is_store else node.arg if isinstance(node, ast.arg) else None
            if name in SAYS_NOTHING:
                yield f"{file.relative_to(ROOT)}:{node.lineno}: {name}"


def names_of_modules_that_are_gone(paths=(ROOT / "tests", ROOT / "benchmarks", ROOT / "examples")) -> Iterator[str]:
    """Find attributes of modules in tests that do not exist; in a long test they would fail only in CI."""
    for file in files(paths):
        imports = [n for n in nodes(file) if isinstance(n, ast.ImportFrom) and (n.module or "").startswith("nwcompile")]
        given = {alias.asname or alias.name: (n.module, alias.name) for n in imports for alias in n.names}
        local = {n.id for n in nodes(file) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        local |= {n.arg for n in nodes(file) if isinstance(n, ast.arg)}
        modules = {name: module_of(*given[name]) for name in given.keys() - local}
        for node in nodes(file):
            owner, name = (node.value, node.attr) if isinstance(node, ast.Attribute) else (None, None)
            if isinstance(node, ast.Call) and last_name(node.func) == "setattr" and len(node.args) > 1:
                owner, name = node.args[0], getattr(node.args[1], "value", None)
                dotted = str(getattr(owner, "value", None))
                if dotted.startswith("nwcompile.") and not is_there(dotted):
                    yield f"{file.relative_to(ROOT)}:{node.lineno}: {dotted}"
            module = modules.get(owner.id) if isinstance(owner, ast.Name) else None
            if module is not None and isinstance(name, str) and not hasattr(module, name):
                yield f"{file.relative_to(ROOT)}:{node.lineno}: {module.__name__}.{name}"


def imports_of_test_modules(paths=(TESTS,)) -> Iterator[str]:
    """Find imports from test modules: code that tests share belongs into tests/made/."""
    for file in files(paths):
        for node in nodes(file):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                modules = [f"{node.module}.{alias.name}" for alias in node.names]
            for module in modules:
                if module.startswith("tests.") and any(part.startswith("test_") for part in module.split(".")):
                    yield f"{file.relative_to(ROOT)}:{node.lineno}: {module}"


def module_of(package: str, name: str):
    """Import the module `package.name`; None if there is no such module."""
    try:
        return importlib.import_module(f"{package}.{name}")
    except ModuleNotFoundError:
        return None


def is_there(dotted: str) -> bool:
    try:
        pkgutil.resolve_name(dotted)
    except (AttributeError, ImportError):
        return False
    return True


OF_FOLDERS = [crowded_folders, folders_without_index]
OF_FILES = [wide_structures, structures_by_position, argument_packs, one_letter_structures, packed_constants,
            names_that_say_nothing, names_of_modules_that_are_gone, imports_of_test_modules]  # fmt: skip


@pytest.mark.parametrize("rule", [*OF_FOLDERS, *OF_FILES], ids=lambda rule: rule.__name__)
def test_house_rule_is_kept(rule):
    assert list(rule()) == []


def test_index_of_what_tests_share_names_every_file():
    named = set(re.findall(r"\w+\.py", ast.get_docstring(nodes(MADE / "__init__.py")[0])))
    assert named == {file.name for file in MADE.glob("*.py")} - {"__init__.py"}


def test_the_package_stays_within_its_lines():
    budget = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["nwcompile"]["lines"]
    n_lines = {file: len(file.read_text().splitlines()) for file in files()}
    counts = {
        "package": sum(n_lines.values()),
        "core": sum(n for file, n in n_lines.items() if not {PACKAGE / "nn", PACKAGE / "families"} & {*file.parents}),
    }
    print(f"lines: {counts} of {budget}")
    assert all(counts[name] <= most for name, most in budget.items()), f"{counts} of {budget}: cut, or raise the budget"


if __name__ == "__main__":
    PATHS = [Path(p).resolve() for p in sys.argv[1:]] or [PACKAGE]
    for RULE in OF_FILES:
        BROKEN = list(RULE(PATHS))
        print(f"{RULE.__name__}: {len(BROKEN)}", *BROKEN, sep="\n  ")
