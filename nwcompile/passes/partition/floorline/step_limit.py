"""Step limit: what `options.step_limit_us` allows a step to take, as the floorline predicts it."""

import math

import numpy as np

from nwcompile.cost.compare import predicted_figures
from nwcompile.errors import FitError, OptionError, Violation
from nwcompile.ir.activity import Activity
from nwcompile.ir.chip import Chip
from nwcompile.ir.network import Network
from nwcompile.ir.options import Options
from nwcompile.ir.program import Program
from nwcompile.ir.schedule import Schedule
from nwcompile.kernels.mapping import cluster_state, moves
from nwcompile.passes.partition.floorline.demand import empty_loads, unit_demand
from nwcompile.passes.partition.floorline.link_time import time_with_links

LARGEST = 1 << 62
ROUNDED = 1e-12  # what a number of cycles may lose as microseconds, so that a time that was told is a limit that holds


def most_cycles(chip: Chip, activity: Activity, timing: Schedule, options: Options) -> int | None:
    """Cycles that all steps of all samples may take together; None where there is no limit.

    Raises OptionError for a chip that does not give the cycles of every event.
    """
    if options.step_limit_us is None:
        return None
    _verify_times(chip)
    cycles = min(LARGEST, options.step_limit_us * 1000 / chip.core.cycle_ns * _n_steps(activity, timing))
    return max(1, round(cycles) if math.isclose(cycles, round(cycles), rel_tol=ROUNDED) else int(cycles))


def step_us(cycles: float, chip: Chip, activity: Activity, timing: Schedule) -> float:
    """Microseconds that a step takes where all steps of all samples together take so many cycles."""
    return cycles * chip.core.cycle_ns / 1000 / _n_steps(activity, timing)


def step_cycles(
    network: Network,
    chip: Chip,
    activity: Activity,
    timing: Schedule,
    cores: np.ndarray,
    sites: np.ndarray | None = None,
) -> int:
    """Cycles that all steps of all samples take together by the floorline of the cores, int[neuron].

    With `sites` int64[core] links between routers count as well, as `passes.partition.floorline.link_time` has them.
    """
    used, unit_of = np.unique(cores, return_inverse=True)
    demand = unit_demand(network, chip, activity, timing, unit_of.reshape(-1), len(used))
    loads = empty_loads(demand, chip)
    moves.put_all(demand, loads, np.arange(len(used), dtype=np.int32))
    if sites is None or chip.is_bus:
        return int(loads.total[cluster_state.TIME])
    return time_with_links(demand, loads, chip, sites[used])


def too_slow(chip: Chip, step_us: float, limit_us: float, n_cores: int) -> FitError:
    """The error for a mapping whose steps are predicted to take `step_us`, more than `limit_us`."""
    cores = f"{n_cores} core{'s' if n_cores != 1 else ''}"
    advice = "raise step_limit_us, or n_cores where it is given"
    return FitError(chip.name, [Violation("predicted step time", f"network -> {cores}", f"{step_us:.4g} us",
                                          f"{limit_us:.4g} us", advice)])  # fmt: skip


def verify_step_time(program: Program, options: Options) -> None:
    """Raise FitError if the program's predicted step, links included, takes longer than `options.step_limit_us`.

    Raises OptionError for a chip that does not give the cycles of every event.
    """
    if options.step_limit_us is None:
        return
    _verify_times(program.chip)
    figures = predicted_figures(program, program.activity)
    if figures.step_us is not None and figures.step_us > options.step_limit_us * (1 + ROUNDED):
        raise too_slow(program.chip, figures.step_us, options.step_limit_us, figures.cores)


def _verify_times(chip: Chip) -> None:
    if not chip.has_times:
        raise OptionError(
            f"step_limit_us needs the cycles of every event, which {chip.name} does not give; leave it out"
        )


def _n_steps(activity: Activity, timing: Schedule) -> int:
    """Hardware steps of all samples together."""
    return timing.n_hardware_steps(activity.n_steps, "aligned") * activity.n_samples
