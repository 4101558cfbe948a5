"""Search: let Optuna choose which points of a space to compute next, for several objectives at once.

Points are requested in batches of a fixed size, and results are reported in the order of the batch. So a search depends
only on its seed, not on the number of processes or on interruptions: a second run requests the same points, and those
in the table are not computed again.
"""

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from nwcompile.errors import OptionError, check_int
from nwcompile.ir.chip_sections import KEYS
from nwcompile.workbench.sweep.points import OPTIONS, Point, Space, to_json_value

NO_OPTUNA = "a search needs optuna, which is not installed: pip install 'nwcompile[sweep]'"
BATCH = 8  # Points requested at once: keeps 8 processes busy, and 100 trials still learn from 12 batches.
LARGEST_SEED = 2**32 - 1  # NumPy's.


@dataclass(frozen=True)
class Search:
    """Settings of a search: the number of trials, repeated points included, and the seed of the sampler."""

    trials: int
    seed: int = 0

    def __post_init__(self):
        check_int("trials", self.trials, 1, 1_000_000)
        check_int("seed of the search", self.seed, 0, LARGEST_SEED)


def search_points(
    space: Space,
    search: Search,
    minimize: tuple[str, ...],
    maximize: tuple[str, ...],
    computed: Callable[[list[Point]], dict[str, dict]],
) -> Iterator[Point]:
    """Yield the point of each trial; `computed(points)` returns the rows of points by id.

    The first trial is the point with the compiler's defaults, where the space has them.
    """
    try:
        import optuna
    except ImportError:
        raise OptionError(NO_OPTUNA, code="NW1102") from None
    study = _create_study(optuna, search.seed, [*["minimize"] * len(minimize), *["maximize"] * len(maximize)])
    study.enqueue_trial(_default_indices(space))
    asked = {key: _index_distribution(optuna, values) for key, values in space.values.items()}
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


def _create_study(optuna, seed: int, directions: list):
    """Create an empty study, without log messages."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            return optuna.create_study(directions=directions, sampler=optuna.samplers.TPESampler(seed=seed))
    finally:
        optuna.logging.set_verbosity(before)


def _index_distribution(optuna, values: tuple):
    """Distribution over indices: ordered if the values are ascending numbers (None may be first), else categorical."""
    numbers = values[1:] if values[0] is None else values
    ordered = all(isinstance(v, int | float) and not isinstance(v, bool) for v in numbers)
    if ordered and list(numbers) == sorted(numbers):
        return optuna.distributions.IntDistribution(0, len(values) - 1)
    return optuna.distributions.CategoricalDistribution(range(len(values)))


def _default_indices(space: Space) -> dict[str, int]:
    """The index of each key's default value, or 0 if the default is not among its values."""
    start = {}
    for key, values in space.values.items():
        default = getattr(space.options, key) if key in OPTIONS else None
        default = space.chip.value(key) if key in KEYS else default
        names = [to_json_value(value) for value in values]
        start[key] = names.index(to_json_value(default)) if to_json_value(default) in names else 0
    return start
