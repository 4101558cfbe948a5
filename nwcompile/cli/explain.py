"""`nwcompile explain CODE`: print the meaning, an example and the cure of an error; or list all codes."""

from argparse import Namespace

from nwcompile.cli.outputs.terminal import print_text, wrap_page
from nwcompile.cli.outputs.text import as_json, format_table
from nwcompile.errors import ERROR_PAGES, OptionError, error_titles


def run(args: Namespace) -> int:
    if args.set:
        raise OptionError("explain: --set changes a chip, and this shows a page")
    if args.code is None:
        listed = [{"code": code, "title": title} for code, title in error_titles().items()]
        if args.json:
            print(as_json(listed))
        else:
            print_text(format_table(("code", "title"), [tuple(row.values()) for row in listed]))
        return 0
    page = (ERROR_PAGES / f"{args.code}.md").read_text(encoding="utf-8")
    if args.json:
        print(as_json({"code": args.code, "title": error_titles()[args.code], "page": page}))
    else:
        print_text(page.rstrip(), wrap=wrap_page)
    return 0
