"""Progress on stderr: one line for every stage of the compiler, and its warnings."""

import sys
from collections.abc import Iterable

from nwcompile.cli.text import count
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.network import Network
from nwcompile.ir.program import Program
from nwcompile.ir.schedule import Schedule


def print_stage(name: str, value, seconds: float) -> None:
    """What `flow.compile` calls after each stage: its name, the size of what it made, and how long it took."""
    print(f"{name:<10} {size(value):<48} {seconds:6.2f} s".rstrip(), file=sys.stderr, flush=True)


def size(value) -> str:
    """What a stage made, in a few words."""
    if isinstance(value, Network):
        n = sum(value.node(name).n_neurons for name in value.layers)
        return f"{count(len(value.layers), 'layer')}, {count(n, 'neuron')}"
    if isinstance(value, Schedule):
        return f"{value.execution}, depth {value.depth}"
    if isinstance(value, Mapping):
        return f"{count(value.n_cores, 'core')} on {count(value.n_tiles, 'tile')}"
    if isinstance(value, Program):
        return f"{count(value.axons.n_axons, 'axon')}"
    return size(value.network) if hasattr(value, "network") else ""


def warn(warnings: Iterable[str]) -> None:
    """The compiler's warnings, one a line."""
    for text in warnings:
        print(f"nwcompile: warning: {text}", file=sys.stderr)
