"""Sections of a report that only one chip family has."""

from collections.abc import Callable
from typing import NamedTuple

from nwcompile.families import load_parts
from nwcompile.ir.program import Program
from nwcompile.ir.run import Run
from nwcompile.report.html_markup import Markup


class Section(NamedTuple):
    """A key of report.json, its plain values (with `text`, sentences; None for other families), and its card."""

    key: str
    title: str
    about: str
    collect: Callable[[Program, Run], dict | None]
    card: Callable[[dict], Markup]


def list_sections() -> list[Section]:
    """List the sections of all families."""
    return [part.SECTION for part in load_parts("report")]


def collect_sections(program: Program, run: Run) -> dict[str, dict | None]:
    """Collect the values of all sections by key."""
    return {section.key: section.collect(program, run) for section in list_sections()}


def section_lines(doc: dict) -> list[str]:
    """List the sentences of the sections of a report, or of any dict that has their keys."""
    return [line for section in list_sections() if doc[section.key] for line in doc[section.key]["text"]]
