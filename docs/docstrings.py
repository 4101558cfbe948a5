"""How the docs site reads the package: public names stand where `nwcompile` has them, docstrings become Markdown."""

import re
from collections.abc import Iterator

import griffe

import nwcompile
from nwcompile.lazy_names import FROM_ABOVE

CODE = re.compile(r"(`[^`]*`)")
ITEM = re.compile(r"\s*(?:-|\d+\.) ")


class Docstrings(griffe.Extension):
    """What mkdocstrings loads: names that are looked up when first used are members of the package like others."""

    def on_package(self, *, pkg: griffe.Module, **_) -> None:
        if pkg.name != "nwcompile":
            return
        for name, home in nwcompile._HOME.items():
            pkg.set_member(name, griffe.Alias(name, f"{home}.{name}", parent=pkg))
        for name, found in FROM_ABOVE.items():
            if name.startswith("nwcompile.nn."):
                module, function = found.args
                pkg["nn"].set_member(function, griffe.Alias(function, f"{module}.{function}", parent=pkg["nn"]))

    def on_object(self, *, obj: griffe.Object, **_) -> None:
        if obj.docstring is not None:
            obj.docstring.value = markdown(obj.docstring.value)


def markdown(docstring: str) -> str:
    """A docstring of the house as Markdown.

    Its sentences are text, so that `*` is a star. Where a sentence ends with its line and the next begins with a name
    or says what is raised, a paragraph ends. Indented lines after a colon are formulas or an example, or a list.
    """
    return "\n".join(_lines(docstring.splitlines()))


def _lines(lines: list[str]) -> Iterator[str]:
    before, is_code, is_list = "", False, False
    for line in lines:
        is_indented = line.startswith("  ")
        if is_code and line.strip() and not is_indented:
            yield from ("```", "")
            is_code = False
        is_item = bool(ITEM.match(line)) and not is_code
        if line and not is_indented and not is_item:
            is_list = False
        if is_item and not is_list:
            yield ""
            is_list = True
        if is_indented and not is_list and not is_code:
            yield from ("", "```python" if "(" in line and "=" in line else "```text")
            is_code = True
        if not is_code and before.endswith(".") and re.match(r"`|Raises ", line):
            yield ""
        yield line[2:] if is_code else _text(line)
        before = line
    if is_code:
        yield "```"


def _text(line: str) -> str:
    """A line in which only what is between backticks is code."""
    parts = CODE.split(line)
    parts[::2] = [part.replace("*", r"\*").replace("<", "&lt;") for part in parts[::2]]
    return "".join(parts)
