"""Search: which points of a space to compute next, by Optuna, for several objectives at once.

Points are asked for in batches of a fixed size, and what came of a batch is told in its order. So a search depends on
its seed alone, not on how many processes there are or when it was interrupted: run again it asks for the same points,
and those in the table are not computed again.
"""

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from nwcompile.errors import OptionError, whole
from nwcompile.ir.chip_sections import KEYS
from nwcompile.workbench.sweep.points import OPTIONS, Point, Space, plain

NO_OPTUNA = "a search needs optuna, which is not installed: pip install 'nwcompile[sweep]'"
BATCH = 8  # Points asked for at once: so many processes are busy, and a hundred trials learn from twelve batches.
LARGEST_SEED = 2**32 - 1  # NumPy's.


@dataclass(frozen=True)
class Search:
    """How a space is searched: so many trials, equal ones counted each; which points is drawn with the seed."""

    trials: int
    seed: int = 0

    def __post_init__(self):
        whole("trials", self.trials, 1, 1_000_000)
        whole("seed of the search", self.seed, 0, LARGEST_SEED)


def searched(
    space: Space,
    search: Search,
    minimize: tuple[str, ...],
    maximize: tuple[str, ...],
    computed: Callable[[list[Point]], dict[str, dict]],
) -> Iterator[Point]:
    """The points that the search asks for, one a trial; `computed` gives the rows of some points by id.

    The first trial is the point of the compiler's defaults, as far as the space has them.
    """
    try:
        import optuna
    except ImportError:
        raise OptionError(NO_OPTUNA, code="NW1102") from None
    study = _study(optuna, search.seed, [*["minimize"] * len(minimize), *["maximize"] * len(maximize)])
    study.enqueue_trial(_defaults(space))
    asked = {key: _distribution(optuna, values) for key, values in space.values.items()}
    for first in range(0, search.trials, BATCH):
        trials = [study.ask(asked) for _ in range(min(BATCH, search.trials - first))]
        points = [space.point({key: space.values[key][i] for key, i in trial.params.items()}) for trial in trials]
        rows = computed(points)
        for trial, point in zip(trials, points, strict=True):
            values = [rows[point.id].get(name) for name in (*minimize, *maximize)]
            if None in values:
                study.tell(trial, state=optuna.trial.TrialState.FAIL)
            else:
                study.tell(trial, values)
            yield point


def _study(optuna, seed: int, directions: list):
    """An empty study, made without a word."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            return optuna.create_study(directions=directions, sampler=optuna.samplers.TPESampler(seed=seed))
    finally:
        optuna.logging.set_verbosity(before)


def _distribution(optuna, values: tuple):
    """Values by index: in order where they are numbers that grow (None may come first), else as names."""
    numbers = values[1:] if values[0] is None else values
    ordered = all(isinstance(v, int | float) and not isinstance(v, bool) for v in numbers)
    if ordered and list(numbers) == sorted(numbers):
        return optuna.distributions.IntDistribution(0, len(values) - 1)
    return optuna.distributions.CategoricalDistribution(range(len(values)))


def _defaults(space: Space) -> dict[str, int]:
    """The index of what each key is without a sweep; where that is no value of the key, the first."""
    start = {}
    for key, values in space.values.items():
        default = getattr(space.options, key) if key in OPTIONS else None
        default = space.chip.value(key) if key in KEYS else default
        names = [plain(value) for value in values]
        start[key] = names.index(plain(default)) if plain(default) in names else 0
    return start
