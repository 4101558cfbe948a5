"""The page of the leaderboard: docs/leaderboard.md and its figure, from the rows of benchmarks/leaderboard.py."""

from pathlib import Path
from typing import NamedTuple

from benchmarks.leaderboard import CONTESTS, EDP, HOPS, OURS, OWN_CORES, TIME, methods_of
from benchmarks.mapping_published import HYSMAP_HOPS
from benchmarks.plot import ratio_plot

ROOT = Path(__file__).resolve().parents[1]
PAGE, FIGURE = ROOT / "docs" / "leaderboard.md", ROOT / "docs" / "images" / "leaderboard.svg"
OWN_METHOD = ROOT / "benchmarks" / "own_method.py"
PUBLISHED = "HySMap as published"
TITLES = {TIME: "step, us", EDP: "EDP, uJ s", HOPS: "hops"}
LEAST = {TIME: "least us", EDP: "least EDP J s", HOPS: "least hops"}  # columns with a certified bound
CLOSE = 1.01  # within that factor of the first, a method counts as equal


class Standing(NamedTuple):
    """A net judged by one goal: values by method, sorted, and the bound that no mapping can undercut."""

    net: str
    goal: str
    values: dict[str, float]
    bound: float | None

    @property
    def title(self) -> str:
        """Net and goal, as `mnist, step`."""
        return f"{self.net}, {TITLES[self.goal].partition(',')[0]}"

    @property
    def others(self) -> dict[str, float]:
        """The values without ours."""
        return {method: value for method, value in self.values.items() if not method.startswith("floorline")}


def standings(rows: list[dict]) -> list[Standing]:
    """One standing for each net and goal that has rows."""
    found = []
    for net, contest in CONTESTS.items():
        for goal in contest.goals:
            own = [row for row in rows if row["net"] == net and row["cores"]]
            judged = {row["method"]: row[goal] for row in own if row[goal] is not None}
            left_out = {*OURS.values()} - {OURS[goal]} | (OWN_CORES if goal == HOPS else set())
            judged = {method: value for method, value in judged.items() if method not in left_out}
            if net in HYSMAP_HOPS and judged:
                judged[PUBLISHED] = HYSMAP_HOPS[net]
            bound = next((r[LEAST[goal]] for r in own if r["method"] == OURS[goal]), None)
            if OURS[goal] in judged:
                found.append(Standing(net, goal, dict(sorted(judged.items(), key=lambda pair: pair[1])), bound))
    return found


def write_files(record: dict) -> None:
    """Write the page and its figure from results/leaderboard.json."""
    PAGE.write_text(write_page(record))
    FIGURE.write_text(draw(record["rows"]))


def write_page(record: dict) -> str:
    """Return docs/leaderboard.md."""
    rows, table = record["rows"], standings(record["rows"])
    measured = {(row["net"], row["method"]) for row in rows}
    waiting = [net for net in CONTESTS if not {(net, method) for method in methods_of(net)} <= measured]
    full = [s for s in table if s.net not in waiting]
    first = sum(s.values[OURS[s.goal]] <= CLOSE * min(s.values.values()) for s in full)
    lines = [HEAD.format(first=first, all=len(full), limit=record["settings"]["limit"]), *_standing_table(table)]
    if waiting:
        lines += ["", f"Not counted, because not all methods are measured yet: {', '.join(waiting)}."]
    seconds = sum(row["row s"] for row in rows)
    lines += [AFTER, *_method_table(table), TAIL.format(code=OWN_METHOD.read_text().strip(), seconds=seconds)]
    return "\n".join(lines)


def _standing_table(table: list[Standing]) -> list[str]:
    lines = ["| net | cores | goal | ours | best other method | ours against it | bound | gap |", "|---|" + "---|" * 7]
    for s in table:
        ours, (name, other) = s.values[OURS[s.goal]], next(iter(s.others.items()))
        bound, gap = (_number(s.goal, s.bound), f"{100 * (ours / s.bound - 1):.0f} %") if s.bound else ("-", "-")
        best = f"{_number(s.goal, other)}, {_name(name)}"
        cells = [str(CONTESTS[s.net].cores), TITLES[s.goal], _number(s.goal, ours), best]
        lines.append(f"| {' | '.join([s.net, *cells, f'{100 * (ours / other - 1):+.1f} %', bound, gap])} |")
    return lines


def _method_table(table: list[Standing]) -> list[str]:
    """Every method's value, as a factor of the best one of the net and goal."""
    methods = list(dict.fromkeys(method for s in table for method in s.values if method not in OURS.values()))
    lines = [f"| method | {' | '.join(s.title for s in table)} |"]
    lines.append("|---|" + "---|" * len(table))
    for method in ["ours", *sorted(methods)]:
        cells = []
        for s in table:
            value = s.values.get(OURS[s.goal] if method == "ours" else method)
            factor = None if value is None else value / min(s.values.values())
            cells.append("-" if factor is None else f"**{factor:.2f}**" if factor <= CLOSE else f"{factor:.2f}")
        lines.append(f"| {_name(method)} | {' | '.join(cells)} |")
    return lines


def _name(method: str) -> str:
    return method if method in ("ours", PUBLISHED) else f"`{method}`"


def _number(goal: str, value: float) -> str:
    return f"{value:,.0f}" if goal == HOPS else f"{value * 1e6:.3g}" if goal == EDP else f"{value:.3g}"


def draw(rows: list[dict]) -> str:
    """Return the figure: every method's value divided by ours."""
    lines = {}
    for s in standings(rows):
        ours = s.values[OURS[s.goal]]
        dots = {("ours" if method == OURS[s.goal] else method): value / ours for method, value in s.values.items()}
        lines[s.title] = (dots, s.bound / ours if s.bound else None)
    return ratio_plot("Every method's result divided by ours", "ours", lines) + "\n"


HEAD = """# Leaderboard

Which mapping method is best? Every method maps the same nets to the same chips, with the same number of cores and at
most {limit} seconds of processor time. `python benchmarks/leaderboard.py` measures, and with `--page` it generates this
page from `benchmarks/results/leaderboard.json`.

Ours is first, or within 1 % of the first, in {first} of {all} comparisons of nets that all methods have mapped:
"""
AFTER = """
The step time and the energy-delay product (EDP) are measured with the cycle backend. Hops count every link that a
message takes. Ours is partitioner `floorline` with the goal as its objective. The bound holds for every mapping on that
number of cores (`nwcompile/cost/least.py`). For hops it counts the routers that must hold the readers of a spike
(`benchmarks/leaderboard.py:least_hops`). A dash means that the bound is zero or not known.

![Every method's result divided by ours](images/leaderboard.svg)

A dot is a method, a bar the bound. `halving` finds its own number of cores, mostly fewer, and is not judged by hops.
The next table divides each result by the best one of its column. A method without a number did not fit the chip, took
too long, or is not measured yet.
"""
TAIL = """
## Your own method

A method is a function that returns the core of every neuron. This file, `benchmarks/own_method.py`, is enough:

```python
{code}
```

    python benchmarks/leaderboard.py --net mnist,hysmap80-4 --method all,benchmarks.own_method:deal --name mine

The table goes to `benchmarks/results/mine.json`. A function that returns an `nw.Mapping` chooses the sites too; add
`+row-major` to its name, which keeps them. [Mapping](mapping.md#methods) describes the arguments.

## Nets

- `mnist`, `cnn`, `dvs`, `random`, `potjans` (the cortical microcircuit at 10 %), `vgg9`: the six nets of
  `benchmarks/mapping.py`; `potjans2` is the same net on Loihi 2. Hops are no goal where a few cores could hold the net,
  or where our search for the fewest takes longer than the limit. `benchmarks/results/mapping.json` compares them there.
- `hysmap80-4`, `hysmap80-6`, `hysmap108-6`: 80 and 108 neurons on 4 x 4 and 6 x 6 routers of one core, the first
  draws of HySMap's own results (github.com/amineux/HySMap). Our generator gives the same synapses and rates, so its
  published hops can be compared directly. Messages fork in the routers, as there. A core holds at most 15 % more
  neurons than the mean, rounded up. HySMap also requires at least 15 % below the mean; other methods need not.
- `mlp`: 10 layers of 2,048 neurons at 5 % density on Loihi 2, after the task of arXiv 2602.04717, whose sizes could
  not be read.

Nets of SNEAP and EdgeMap are missing because we could not read the tables of their sizes.

## Methods

| method | source | not published, or not readable: our assumption |
|---|---|---|
| `metis` | SNEAP, arXiv 2004.01639 | its annealing schedule; it gets ours |
| `kernighan-lin`, placer `pso` | SpiNeMap, arXiv 1909.01843 | start and order of the swaps, parameters of the swarm |
| `streaming` | EdgeMap, Sensors 23:6548 | its score |
| `neumap+neumap` | NeuMap, Sensors 22:7248 | all but the abstract |
| `neuromap+neuromap` | NeuroMap, ISQED 2026 | all but the abstract; PageRank orders the cores |
| `hysmap+row-major` | HySMap, its public code | nothing; other random numbers |
| `halving` | Intel's compiler for Loihi 2, by a public README | the compiler; halves are contiguous |
| `hypergraph`, placer `spectral` | arXiv 2601.16118 | parameters of the partitioner |
| `sequential` | PACMAN, SpiNNaker | nothing |
| placers `hilbert`, `force` | ASPLOS'23 | the curve on rectangles, the share of swapped pairs |
| placer `hill-climb` | MASS, arXiv 2506.11286 | the order of moves |

The docstring of each method has the details. The rows of this page took {seconds:.0f} s of processor time.
"""
