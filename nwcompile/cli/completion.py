"""`nwcompile completion SHELL`: print a script that completes verbs, flags, words, chips and files (by shtab)."""

import re
from argparse import Namespace

from nwcompile.cli import VERBS
from nwcompile.cli.arguments import Parser, add_arguments
from nwcompile.cli.flags import OneOf
from nwcompile.errors import OptionError
from nwcompile.ir.chip import Chip

CHIPS = ("chip", "chips")  # names of the arguments that take a chip
FILE = re.compile(r"\.\w+$|^MODEL$")  # matches the metavar of a file, like X.npz
CHIP_FUNCTION = "_nwcompile_chips"


def run(args: Namespace) -> int:
    if args.json or args.set:
        raise OptionError("completion: --json and --set change nothing here; leave them out")
    print(import_shtab().complete(command_line(), args.shell))
    return 0


def import_shtab():
    """Import shtab; raises OptionError if it is not installed."""
    try:
        import shtab
    except ImportError:
        text = "completion needs shtab, which is not installed: pip install 'nwcompile[completion]'"
        raise OptionError(text, code="NW1102") from None
    return shtab


def command_line() -> Parser:
    """Build one parser for all verbs, with a completion for each argument."""
    shtab = import_shtab()
    whole = Parser(prog="nwcompile")
    whole.add_argument("--version", action="store_true", help="print the versions of nwcompile, Python and packages")
    verbs = whole.add_subparsers(dest="verb")
    chips = _chip_names(Chip.names())
    for verb, text in VERBS.items():
        parser = verbs.add_parser(verb, help=text, description=text)
        add_arguments(parser, verb)
        for argument in parser._actions:
            metavar = argument.metavar[0] if isinstance(argument.metavar, tuple) else argument.metavar or ""
            if isinstance(argument.type, OneOf):
                argument.choices = argument.type.words
            elif argument.dest in CHIPS:
                argument.complete = chips  # type: ignore[attr-defined]
            elif metavar == "DIR":
                argument.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
            elif FILE.search(metavar):
                argument.complete = shtab.FILE  # type: ignore[attr-defined]
    return whole


def _chip_names(names: list[str]) -> dict:
    """The completion of chip names and .toml files: a shell function in the form that shtab expects."""
    words = " ".join(names)
    bash = (
        f"{CHIP_FUNCTION}() {{\n  compgen -W '{words}' -- $1\n  compgen -f -X '!*.toml' -- $1\n  compgen -d -- $1\n}}"
    )
    zsh = f"{CHIP_FUNCTION}() {{\n  compadd -- {words}\n  _files -g '*.toml'\n}}"
    return {"bash": CHIP_FUNCTION, "zsh": CHIP_FUNCTION, "tcsh": f"({words})", "preamble": {"bash": bash, "zsh": zsh}}
