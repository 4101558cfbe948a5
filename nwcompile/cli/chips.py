"""`nwcompile chips list`, `chips show NAME`, `chips schema`: show chip models, every figure with its source."""

import warnings
from argparse import Namespace
from dataclasses import asdict

from nwcompile.cli.inputs.load import load_chip
from nwcompile.cli.outputs.terminal import print_text
from nwcompile.cli.outputs.text import as_json, format_table
from nwcompile.cost.basis import find_silicon
from nwcompile.errors import NwError, NwWarning, OptionError
from nwcompile.ir.chip import HWMODELS, Chip
from nwcompile.ir.chip_sections import KEYS


def run(args: Namespace) -> int:
    if args.action != "show":
        if args.chip is not None:
            text = f"chips {args.action}: unexpected argument {args.chip!r}; `chips show {args.chip}` shows one chip"
            raise OptionError(text)
        if args.set:
            raise OptionError("--set changes one chip; `chips show NAME --set KEY=VALUE` shows it")
        _list_chips(args) if args.action == "list" else print((HWMODELS / "chip.schema.json").read_text(), end="")
    else:
        if args.chip is None:
            raise OptionError(f"chips show: give a name: {', '.join(Chip.names())}, or a .toml file")
        _show_chip(load_chip(args), args.json)
    return 0


def _list_chips(args: Namespace) -> None:
    chips = [chip for name in Chip.names() if (chip := _load_or_warn(name)) is not None]
    if args.json:
        print(as_json([{"name": c.name, "n_cores": c.n_cores, "description": c.description} for c in chips]))
    else:
        print_text(format_table(("chip", "cores", "description"), [(c.name, c.n_cores, c.description) for c in chips]))


def _load_or_warn(name: str) -> Chip | None:
    """Load the chip of that name; return None with a warning if a plugin fails, so that the others are listed."""
    try:
        return Chip.load(name)
    except NwError as e:
        warnings.warn(str(e), NwWarning, stacklevel=2)
        return None


def _show_chip(chip: Chip, json: bool) -> None:
    known = [key for key in KEYS if chip.value(key) is not None and chip.has_key(key)]
    if json:
        keys = {
            key: {"value": chip.value(key), "basis": chip.basis_of(key), "source": chip.source_of(key)} for key in known
        }
        head = {"name": chip.name, "description": chip.description, "n_cores": chip.n_cores, "hash": chip.hash}
        silicon = [asdict(row) for row in find_silicon(chip)]
        has = {"times": chip.gives_times, "energies": chip.has_energies}
        print(as_json(head | has | {"keys": keys, "silicon": silicon}))
        return
    print_text(f"{chip.name}: {chip.description}\n")
    rows = [(k, _format_value(chip.value(k)), chip.basis_of(k), chip.source_of(k) or "default") for k in known]
    print_text(format_table(("key", "value", "basis", "source"), rows))
    unknown = [key for key in KEYS if chip.value(key) is None and chip.has_key(key)]
    if unknown:
        print_text(f"\nnot given: {', '.join(unknown)}")
    measured = find_silicon(chip)
    if measured:
        print()
    for row in measured:
        fitted = "" if row.judges else "; a constant is fitted to it"
        print_text(
            f"{row.quantity} of {row.network}, {row.layout}: {row.model:g} {row.unit}, on silicon {row.measured:g} "
            f"({row.error_percent:+.0f} %{fitted}; {row.source})"
        )
    for what, is_given in (("times", chip.gives_times), ("energies of events", chip.has_energies)):
        if not is_given:
            print_text(f"no {what}: the file lacks some of the figures they need")


def _format_value(value) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return ", ".join(f"{k}: {v}" for k, v in value.items())
    return ", ".join(map(_format_value, value)) if isinstance(value, list) else str(value)
