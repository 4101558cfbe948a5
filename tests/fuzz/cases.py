"""One random case for each seed, and what must hold of it: `python -m tests.fuzz.cases --start 1000 --count 500`.

Case n depends on n alone, so that a range of seeds is continued where it was ended, and a failure is made again with
--start n --count 1. Exit code 1 if any case failed.
"""

import argparse
import pickle
import random
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from math import fsum
from pathlib import Path

import numpy as np
from hypothesis import given, settings

from nwcompile.cost.energy import core_energy_pj
from nwcompile.cost.summary import summarize
from nwcompile.cost.time.floorline import floorline
from nwcompile.cost.traffic.link_flits import link_flits
from nwcompile.errors import NwError, NwWarning
from nwcompile.flow import compile
from nwcompile.ir.program import Program
from nwcompile.ir.run import Run
from nwcompile.report.html.page import render_html
from nwcompile.report.json.collect import collect_report
from nwcompile.sim import BACKENDS, simulate
from nwcompile.sim.crosscheck import compare_runs
from nwcompile.sim.cycle.overload import loses_messages
from tests.made.figures import contradictions
from tests.made.random_cases import Case, cases
from tests.made.streams import assert_is_run, assert_same, stream

N_BYTES = 1 << 16  # of random choices: more than any case takes


def case(seed: int) -> Case:
    """The case of a seed; equal seeds give equal cases."""
    made = []

    @settings(database=None)
    @given(cases())
    def keep(drawn):
        made.append(drawn)

    keep.hypothesis.fuzz_one_input(random.Random(seed).randbytes(N_BYTES))
    return made[0]


def check(case: Case) -> str:
    """What became of a case that is as it should be: "passed", or "refused" with the code of the refusal.

    A refusal is an NwError of the compiler or of all backends. Raises whatever else happens: AssertionError where two
    answers differ. Warnings that are not an NwWarning are errors.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", NwWarning)
        return _check(case)


def _check(case: Case) -> str:
    if not case.network.is_fixed:
        check_float(case)
    program = case.program
    try:
        if program is None:
            program = compile(case.network, case.chip, case.calibration, case.options)
    except NwError as e:
        assert isinstance(pickle.loads(pickle.dumps(e)), type(e)), "the refusal cannot be pickled"
        return f"refused {e.code}"
    program.verify()
    loaded = saved_and_loaded(program)
    backends = ["cycle"] if program.chip.noc.on_full == "drop" else list(BACKENDS)
    x, steps = (case.x, None) if case.x else (None, case.n_steps)
    runs, refusals = {}, {}
    for name in backends:
        of_file = loaded if name != "reference" else program
        try:
            runs[name] = simulate(of_file, x, name, window=case.window, record="all", steps=steps)
        except NwError as e:
            refusals[name] = e
    if refusals:
        texts = {name: str(e) for name, e in refusals.items()}
        assert not runs and len(set(texts.values())) == 1, f"ran on {list(runs)}, refused by {texts}"
        return f"refused to run {next(iter(refusals.values())).code}"
    try:
        check_runs(case, program, runs)
    except NwError as e:
        raise AssertionError(f"refused what {backends[0]} had run: {e}") from e
    return "passed"


def check_float(case: Case) -> None:
    """A float network gives the same spikes and states on both backends that run it."""
    runs, texts = [], []
    for backend in ("reference", "sequence"):
        try:
            x, steps = (case.x, None) if case.x else (None, case.n_steps)
            with np.errstate(over="ignore", invalid="ignore"):  # states may grow without a bound
                runs.append(simulate(case.network, x, backend, record="all", steps=steps))
        except NwError as e:
            texts.append(str(e))
    assert not texts or (len(texts) == 2 and texts[0] == texts[1]), f"float network: one backend says {texts[0]}"
    if runs:
        one, other = runs
        for what in ("spikes", "states"):
            assert_bits(getattr(one, what), getattr(other, what), f"float network: {what}")


def assert_bits(wanted: dict, given: dict, where: str) -> None:
    """Two nested dicts have the same arrays, entry for entry; what is no number is equal to itself."""
    assert set(wanted) == set(given), f"{where}: {sorted(wanted)} and {sorted(given)}"
    for name, value in wanted.items():
        if isinstance(value, dict):
            assert_bits(value, given[name], f"{where}.{name}")
        else:
            same = np.array_equal(value, given[name], equal_nan=value.dtype.kind == "f")
            assert value.dtype == given[name].dtype and same, f"{where}.{name} differs"


def saved_and_loaded(program: Program) -> Program:
    """The program out of its file; it, and a pickled and a deep copy, have the bytes of the program."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "case.nwc"
        program.save(path)
        loaded = Program.load(path)
    loaded.verify()
    for what, copy in (
        ("loaded", loaded),
        ("pickled", pickle.loads(pickle.dumps(program))),
        ("deep", deepcopy(program)),
    ):
        assert copy.data == program.data and copy.hash == program.hash, f"the {what} copy is another program"
    return loaded


def check_runs(case: Case, program: Program, runs: dict[str, Run]) -> None:
    """Runs of all backends are the same, and those of the network, of streams and of totals are theirs."""
    result = compare_runs(program, runs)
    assert result.agree, str(result)
    first = next(iter(runs.values()))
    for name, run in runs.items():
        run.verify()
        outputs = [r.output if isinstance(r.output, dict) else {"": r.output} for r in (first, run)]
        assert_bits(*outputs, f"output of {name}")
        check_energy(program, run)
    if case.window == "aligned":
        if not loses_messages(program.chip):
            check_network(case, program, first)
        check_streams(case, program)
        if case.program is None and case.calibration is not None and not loses_messages(program.chip):
            assert (differ := contradictions(program, runs["cycle"])) == [], f"figures of compile: {differ}"
    check_cycle(case, program, runs["cycle"])
    summarize(program, runs["cycle"])
    render_html(collect_report(program, first))


def check_energy(program: Program, run: Run) -> None:
    """Kinds of energy add up to the total, steps to the run, and cores to what cores take."""
    if run.energy_pj is None:
        assert not program.chip.has_energies
        return
    parts = {kind: pj for kind, pj in run.energy_pj.items() if kind != "total"}
    total = run.energy_pj["total"]
    assert np.isclose(fsum(parts.values()), total, rtol=1e-12), f"energies {parts} are not {total}"
    for kind, steps in run.step_energy_pj.items():
        assert fsum(steps) == run.energy_pj[kind], f"energy {kind} of the steps is not that of the run"
    cores = float(core_energy_pj(run.counters, program.chip).sum())
    elsewhere = parts.get("static", 0.0) + parts.get("chip_link", 0.0)
    assert np.isclose(cores + elsewhere, total, rtol=1e-12), f"energy of the cores {cores} is not that of {total}"


def check_network(case: Case, program: Program, run: Run) -> None:
    """The network on the chip, as it is, gives the run's spikes; so does one in integers that was compiled exactly."""
    x, steps = (case.x, None) if case.x else (None, case.n_steps)
    networks = {"the network on the chip": program.network}
    options = case.options
    if case.network.is_fixed and not options.approximate and options.bits is None:
        networks["the network that was given"] = case.network
    for what, network in networks.items():
        wanted = simulate(network, x, steps=steps)
        for name in set(wanted.spikes) & set(run.spikes):
            assert np.array_equal(wanted.spikes[name], run.spikes[name]), f"{what} gives other spikes in {name}"


def check_streams(case: Case, program: Program) -> None:
    """Chunks of any sizes are the run of the sample."""
    is_apart = case.backend == "cycle" and not program.chip.family.has_barrier
    backend = "cycle" if program.chip.noc.on_full == "drop" else case.backend
    if program.host is not None or is_apart or program.network.layout != "BT" or len(case.x) != 1:
        return
    samples = next(iter(case.x.values()))[:1]
    run = simulate(program, samples, backend, record="all")
    assert_is_run(stream(program, samples[0], backend, case.chunk_sizes), run)


def check_cycle(case: Case, program: Program, run: Run) -> None:
    """No step is before its bound, links carry the flits of the routes, and totals are the sums of the steps."""
    if program.chip.has_times:
        bound = floorline(program, run.counters, run.link_flits, run.n_samples).bound_cycles
        measured = run.step_cycles
        if not program.chip.family.has_barrier:  # cores are in different steps: a bound on all steps until then
            bound, measured = bound.cumsum(), measured.cumsum()
        late = np.flatnonzero(bound > measured)
        assert not len(late), f"bound {bound[late[0]]} of step {late[0]} is above {measured[late[0]]}"
    if not loses_messages(program.chip):
        assert np.array_equal(link_flits(program, run.activity, run.window), run.link_flits), "flits of links"
    if not program.chip.family.has_barrier:
        return
    x, steps = (case.x, None) if case.x else (None, case.n_steps)
    totals = simulate(program, x, "cycle", window=case.window, record="totals", steps=steps)
    sums = {name: values.sum(0, keepdims=True) for name, values in run.counters.items()}
    assert_same(totals.counters, sums, "totals")
    for name, spikes in totals.spikes.items():
        sent = np.abs(run.spikes[name], dtype=np.int64).sum(1, keepdims=True)
        assert np.array_equal(spikes, sent), f"totals of {name}"
    if run.step_cycles is not None:
        assert totals.step_cycles.sum() == run.step_cycles.sum(), "totals of the cycles"


def outcome(seed: int) -> str:
    """What became of a seed: what `check` gives, or "FAILED" with what was raised."""
    try:
        return check(case(seed))
    except Exception as e:  # what must not happen is what is looked for
        frame = traceback.extract_tb(e.__traceback__)[-1]
        return f"FAILED {type(e).__name__}: {str(e)[:300]} ({Path(frame.filename).name}:{frame.lineno})"


def run_seeds(name: str, text: str, outcome: Callable[[int], str], arguments: list[str] | None = None) -> int:
    """The command line `name`, `text` in its help: what became of a range of seeds. The exit code."""
    parser = argparse.ArgumentParser(prog=name, description=text.splitlines()[0])
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=100, help="how many seeds")
    given = parser.parse_args(arguments)
    counts, start = Counter(), time.perf_counter()
    seed, end = given.start, given.start + given.count
    try:
        while seed < end:
            text = outcome(seed)
            counts[text.split(":")[0] if text.startswith("FAILED") else text] += 1
            if text.startswith("FAILED"):
                print(f"seed {seed}: {text}", flush=True)
            seed += 1
    except KeyboardInterrupt:
        print(f"interrupted; go on with --start {seed} --count {end - seed}")
    for text, n in counts.most_common():
        print(f"{n:6d}  {text}")
    print(f"{seed - given.start} seeds in {time.perf_counter() - start:.0f} s")
    return int(any(text.startswith("FAILED") for text in counts))


def main(arguments: list[str] | None = None) -> int:
    return run_seeds("python -m tests.fuzz.cases", __doc__, outcome, arguments)


if __name__ == "__main__":
    sys.exit(main())
