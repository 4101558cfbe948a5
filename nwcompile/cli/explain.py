"""`nwcompile explain CODE`: what an error means, an example that raises it, and what to do; or the list of codes."""

from argparse import Namespace

from nwcompile.cli.outputs.text import as_json, table
from nwcompile.error_codes import BY_CODE, CODES
from nwcompile.errors import OptionError


def run(args: Namespace) -> int:
    if args.set:
        raise OptionError("explain: --set changes a chip, and this shows a page")
    if args.code is None:
        listed = [{"code": row.code, "title": row.title} for row in CODES]
        print(as_json(listed) if args.json else table(("code", "title"), [tuple(row.values()) for row in listed]))
        return 0
    row = BY_CODE[args.code]
    page = row.page.read_text(encoding="utf-8")
    print(as_json({"code": row.code, "title": row.title, "page": page}) if args.json else page.rstrip())
    return 0
