"""`nwcompile explain CODE`: what an error means, an example that raises it, and what to do; or the list of codes."""

import re
from argparse import Namespace
from functools import cache
from pathlib import Path

from nwcompile.cli.outputs.text import as_json, table
from nwcompile.errors import OptionError

PACKAGE = Path(__file__).resolve().parents[1]
PAGES = PACKAGE / "error_pages" if (PACKAGE / "error_pages").is_dir() else PACKAGE.parent / "docs" / "errors"


@cache
def error_titles() -> dict[str, str]:
    """What is wrong, in one line, of every code: the index of the pages."""
    index = (PAGES / "README.md").read_text(encoding="utf-8")
    return dict(re.findall(r"^\| \[(\w+)\]\(\1\.md\) \| (.*) \|$", index, re.MULTILINE))


def run(args: Namespace) -> int:
    if args.set:
        raise OptionError("explain: --set changes a chip, and this shows a page")
    if args.code is None:
        listed = [{"code": code, "title": title} for code, title in error_titles().items()]
        print(as_json(listed) if args.json else table(("code", "title"), [tuple(row.values()) for row in listed]))
        return 0
    page = (PAGES / f"{args.code}.md").read_text(encoding="utf-8")
    print(
        as_json({"code": args.code, "title": error_titles()[args.code], "page": page}) if args.json else page.rstrip()
    )
    return 0
