"""Critical path: the chain of causes in the slowest steps.

Within a step a core works, sends and receives, and nothing that it receives makes it send. So the core that finishes
last either worked from the beginning, or waited for one message whose core had worked from the beginning.
"""

from dataclasses import dataclass

import numpy as np

from nwcompile.cost.time.layers import layer_share
from nwcompile.cost.time.work import compute_work
from nwcompile.ir.program import Program
from nwcompile.ir.run import Run

OWN = -1  # In `Profile.path`: the last uninterrupted work was the core's own, not started by a message.


@dataclass(frozen=True)
class CriticalPath:
    """The longest phase of one hardware step: the core that finished last, and the message that it waited for.

    `parts`: core cycles, with sum `cycles`. `send`, `stall` and `network` belong to the message that `core` waited for
    (sent by `source_layer` on `source_core`, None for an input). `receive` is the last uninterrupted work, and `link`
    the time until the last link became idle. Without such a message `source_layer` is None, and `send`, `stall` and
    `receive` belong to the core itself; in a shared unit `send` is all its work, in any order. `phase` is the largest
    part. `layer` has most of the core's work. `link`: the busiest on the route of that message, or of the one that
    stalled the core longest.
    """

    step: int
    sample: int
    cycles: float
    core: int
    phase: str
    layer: str
    source_core: int | None
    source_layer: str | None
    link: int | None
    parts: dict[str, float]


def critical_paths(program: Program, run: Run, n: int = 5) -> tuple[CriticalPath, ...] | None:
    """Return the critical paths of the `n` slowest steps, the slowest first; None without profile or times."""
    if run.profile is None or run.step_cycles is None or run.link_flits is None or run.activity is None:
        return None
    path = run.profile.path
    done = compute_work(program, run.counters, run.link_flits, run.n_samples)
    share = layer_share(program, run.activity)
    slowest = np.argsort(-path["total"], kind="stable")[:n]
    paths = []
    for h in slowest.tolist():
        row = {name: values[h].item() for name, values in path.items()}
        parts, core, layer, source = _split_path(row), row["core"], row["source_layer"], row["source"]
        phase = max(parts, key=lambda part: parts[part])
        unit = "shared" if "shared" in done.units else "send" if source == OWN else "receive"
        paths.append(
            CriticalPath(
                step=row["step"],
                sample=row["sample"],
                cycles=row["total"],
                core=core,
                phase=phase,
                layer=share.largest_layer(done.cycles, done.units[unit], core),
                source_core=int(program.mapping.core_of[layer][source]) if layer in program.mapping.core_of else None,
                source_layer=layer or None,
                link=row["link"] if row["link"] >= 0 else None,
                parts=parts,
            )
        )
    return tuple(paths)


def _split_path(row: dict) -> dict[str, float]:
    after = row["total"] - row["end"]
    if row["source"] >= 0:
        stall = row["stalled"] + row["injected"] - row["ready"]
        parts = {"send": row["ready"] - row["stalled"], "stall": stall, "network": row["since"] - row["injected"],
                 "receive": row["end"] - row["since"]}  # fmt: skip
    elif row["source"] == OWN:
        parts = {"send": row["end"] - row["stalled"], "stall": row["stalled"], "network": 0.0, "receive": 0.0}
    else:
        parts = {"send": 0.0, "stall": 0.0, "network": 0.0, "receive": row["end"]}
    return {**parts, "link": after}
