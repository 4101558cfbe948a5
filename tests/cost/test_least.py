"""The least that any mapping can cost: no mapping of any of these networks is below it."""

from fractions import Fraction

import numpy as np
import pytest

import nwcompile as nw
from nwcompile.cost.energy import predict
from nwcompile.cost.least import find_lower_bounds
from nwcompile.cost.summary import summarize
from tests.made.nets import integers
from tests.made.sweeps import network, samples

EVEN = 1 + 1e-12  # Sums of the same figures in another order differ in their last bits.


def figures(program: nw.Program, run: nw.Run) -> tuple[float, float | None]:
    summary = summarize(program, run)
    return summary.step_us.mean(), summary.energy_pj and summary.energy_pj["total"] / 1000


def wide(n_hidden: int = 40) -> nw.Network:
    """A recurrent layer between input and output."""
    spec = nw.NeuronSpec(threshold=1.0, beta=0.75, reset="zero")
    weights = [integers(shape, i, -3, 5).astype(np.float32) / 8 for i, shape in
               enumerate(((n_hidden, 6), (n_hidden, n_hidden), (4, n_hidden)))]  # fmt: skip
    edges = [nw.Dense("in", "hidden", weights[0]), nw.Dense("hidden", "hidden", weights[1], delay=1),
             nw.Dense("hidden", "out", weights[2])]  # fmt: skip
    return nw.Network.from_arrays({"hidden": spec, "out": spec}, edges, {"in": 6})


@pytest.mark.parametrize(
    "name", ["loihi1", "mesh_la", *(pytest.param(n, marks=pytest.mark.long) for n in ("tiny", "loihi2"))]
)
def test_no_mapping_is_below_the_least(name):
    chip = nw.Chip.load(name)
    for net in (network(), wide()):
        bounds = set()
        for options in (nw.Options(n_cores=1), nw.Options(), nw.Options(partitioner="striped", n_cores=3),
                        nw.Options(partitioner="sequential", placer="row-major")):  # fmt: skip
            try:
                program = nw.compile(net, chip, samples(), options)
            except nw.FitError:
                continue
            run = nw.simulate(program, samples(), backend="cycle")
            bound = find_lower_bounds(program, run)
            on_as_many = find_lower_bounds(program, run, program.mapping.n_cores)
            us, nj = figures(program, run)
            n_steps = len(run.counters["synops"])
            assert bound.step_us <= us * EVEN and (nj is None or bound.sample_nj <= nj * EVEN)
            assert bound.step_us <= on_as_many.step_us <= us * EVEN
            assert nj is None or bound.edp_nj_us <= on_as_many.edp_nj_us <= us * n_steps * nj * EVEN
            bounds.add((bound, find_lower_bounds(program, predict(program))))
        assert len(bounds) == 1  # whatever the mapping, and known before simulation


@pytest.mark.parametrize("n_cores", [1, 2, 3])
def test_least_on_some_cores_is_proved_by_equal_prices_in_exact_numbers(n_cores):
    program = nw.compile(wide(), "loihi1", samples(), nw.Options(n_cores=2))
    run, cost = nw.simulate(program, samples(), backend="sequence"), program.chip.cost
    n_steps, cycles = len(run.counters["synops"]), Fraction(0)
    heard = {name: np.zeros(n_steps, np.int64) for name in ("in", "hidden")}
    for name, spikes in heard.items():
        first = program.schedule.offset[name]
        spikes[first : first + len(run.activity.counts[name])] = run.activity.counts[name].sum(1)
    for h in range(n_steps):
        count = {name: int(counter[h].sum()) for name, counter in run.counters.items()}
        hidden, lines = int(heard["hidden"][h]), int(heard["in"][h])
        send = count["neuron_visits"] * cost.visit_cycles + count["neuron_updates"] * cost.update_cycles
        send += count["spikes_out"] * cost.spike_cycles + hidden * cost.message_out_cycles
        receive = (hidden + lines) * cost.message_in_cycles + sum(
            count[f"synops_{kind}"] * getattr(cost, f"synop_{kind}_cycles") for kind in ("dense", "sparse", "conv")
        )
        price = Fraction(1, n_cores)  # of every core in this step; over the cores they add up to one
        cycles += max(price * send, price * receive) if cost.units != "shared" else price * (send + receive)
    barrier = min(program.chip.barrier_cycles(n) for n in range(1, n_cores + 1)) * len(samples()) * n_steps
    us = (cycles + barrier) * Fraction(program.chip.core.cycle_ns) / 1000 / len(samples()) / n_steps
    assert find_lower_bounds(program, run, n_cores).step_us == pytest.approx(float(us), rel=1e-12)


def test_least_is_that_of_the_best_number_of_cores():
    program = nw.compile(network(), "tiny", samples())
    run = nw.simulate(program, samples(), backend="cycle")
    slow = nw.Chip.load("tiny").replace({"cost.barrier_cycles": {"1": 0, "2": 10**6}})
    on_slow = nw.compile(network(), slow, samples(), nw.Options(n_cores=1))
    bound = find_lower_bounds(on_slow, nw.simulate(on_slow, samples(), backend="cycle"))
    assert bound.step_us > 0 and bound.step_us < 10**6 * slow.core.cycle_ns / 1000
    assert find_lower_bounds(program, run).edp_nj_us is None or find_lower_bounds(program, run).sample_nj > 0


def test_least_is_not_known_where_mapping_changes_the_network():
    program = nw.compile(network(), nw.Chip.load("tiny").replace({"core.max_destinations": 8}), samples())
    bound = find_lower_bounds(program, predict(program))
    assert (bound.step_us, bound.sample_nj, bound.edp_nj_us) == (None, None, None)
