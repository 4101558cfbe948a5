"""Times of a pool of hidden neurons: the vendor's formula for Xylo, in the mean and spike by spike."""

import json

import numpy as np
import pytest

import nwcompile as nw
from nwcompile import cli
from nwcompile.cost.compare import predicted_figures
from nwcompile.errors import BackendError, ChipError, FitError
from nwcompile.families.pool.cost import COST
from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Dense
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import NeuronSpec
from nwcompile.ir.shown import grouped
from nwcompile.passes.emit import emit
from nwcompile.passes.prepare.schedule import schedule
from tests.made.pool_nets import pool_net
from tests.made.xylo import FORMAT

N_SAMPLES, N_STEPS = 3, 12


def vendors_cycles(n_in, n_hidden, n_out, fan_out, p_in, p_hidden, n_fed, n_feeding) -> float:
    """Mean cycles of a step, as reference/xylo/README.md has them; n_fed, n_feeding: all of them on XyloAudio 2."""
    inputs = n_in * (p_in * n_fed * 3.5 + 1)
    hidden = n_hidden * (fan_out * 7 * p_hidden + 3) + n_hidden * (19 + 3 * p_hidden)
    return inputs + hidden + n_feeding * p_hidden * (1 + 8 * n_out) + 12 * n_out


def drawn(seed: int, chip: str, n_in=5, n_hidden=41, n_out=3, fan_out=6, n_fed=None) -> nw.Program:
    """A recurrent network in which every hidden neuron feeds `fan_out` others, and outputs only if it is even."""
    rng = np.random.default_rng(seed)
    recurrent = np.zeros((n_hidden, n_hidden), np.int64)
    for row in recurrent.T:
        row[rng.choice(n_hidden, fan_out, replace=False)] = rng.integers(1, 20, fan_out) * rng.choice((-1, 1), fan_out)
    first = rng.integers(1, 20, (n_hidden, n_in))
    first[n_hidden if n_fed is None else n_fed :] = 0
    last = rng.integers(1, 20, (n_out, n_hidden)) * (np.arange(n_hidden) % 2 == 0)
    edges = [Dense("in", "h", first), Dense("h", "h", recurrent, delay=1), Dense("h", "o", last)]
    out = NeuronSpec(threshold=50, strict=False, reset="subtract", decay_u=2, decay_v=3, fixed=FORMAT)
    hidden = out.replace(spikes="multi", max_spikes=31)
    network = Network.from_arrays({"h": hidden, "o": out}, edges, {"in": n_in})
    cores = {name: np.zeros(network.node(name).n_neurons, int) for name in network.layers}
    mapping = Mapping.from_arrays(cores, [[0, 0, 0]])
    return emit(network, schedule(network, "pipelined"), mapping, Chip.load(chip), None, {})


def events(seed: int, n_in: int = 5) -> np.ndarray:
    return np.random.default_rng(seed).poisson(0.4, (N_SAMPLES, N_STEPS, n_in)).clip(0, 15)


@pytest.mark.parametrize("chip", ["xylo_audio2", "xylo_audio3", "xylo_imu"])
@pytest.mark.parametrize("seed", range(3))
def test_pool_steps_take_the_vendors_mean_cycles(chip, seed):
    x = events(seed)
    program = drawn(seed, chip, n_fed=30)
    run = nw.simulate(program, x, "cycle", window="hardware")
    p_hidden = np.count_nonzero(run.spikes["h"]) / run.spikes["h"].size
    assert run.spikes["h"].max() > 1 and 0.05 < p_hidden < 0.9
    n_fed, n_feeding = (41, 41) if chip == "xylo_audio2" else (30, 21)
    # Every second neuron feeds outputs: what matters is how often those spike.
    p_feeding = np.count_nonzero(run.spikes["h"][:, :, ::2]) / run.spikes["h"][:, :, ::2].size
    if chip == "xylo_audio2":
        p_feeding = p_hidden
    wanted = vendors_cycles(5, 41, 3, 6, np.count_nonzero(x) / x.size, p_hidden, n_fed, 0)
    wanted += n_feeding * p_feeding * (1 + 8 * 3)
    mean = run.step_cycles.sum() / (N_SAMPLES * N_STEPS)
    assert wanted <= mean <= wanted + 0.5  # half cycles of a step are rounded up
    assert run.seconds == pytest.approx(run.step_cycles.sum() * 20e-9)


def test_pool_steps_take_what_their_own_spikes_cost():
    """Neurons that feed more neurons cost more: step by step, for every sample, and summed up by record='totals'."""
    program, x = drawn(7, "xylo_imu"), events(8)
    rng = np.random.default_rng(9)
    feeds, recurrent, last = program.network.connections
    weight = np.asarray(recurrent.weight) * (rng.random((41, 41)) < rng.random(41))
    edges = (feeds, Dense("h", "h", weight, delay=1), last)
    network = Network(program.network.inputs, program.network.nodes, edges)
    program = emit(network, program.schedule, program.mapping, program.chip, None, {})
    fan_out = np.count_nonzero(weight, axis=0)
    assert len(np.unique(fan_out)) > 3
    run = nw.simulate(program, x, "cycle")
    cycles = np.zeros((N_SAMPLES, len(run.step_cycles)))
    cycles += 5 * 1 + 41 * 22 + 3 * 12
    cycles[:, :N_STEPS] += 3.5 * 41 * np.count_nonzero(x, axis=2)
    late = program.schedule.offset["h"]
    of_spike = 3 + 7 * fan_out + (1 + 8 * 3) * (np.arange(41) % 2 == 0)
    cycles[:, late : late + N_STEPS] += (run.spikes["h"] > 0) @ of_spike
    cycles = np.ceil(cycles)
    assert np.array_equal(run.step_cycles, cycles.sum(0))
    totals = nw.simulate(program, x, "cycle", record="totals")
    assert totals.step_cycles[0] == cycles.sum() and totals.totals.longest_cycles == cycles.max()


def test_pool_times_are_the_published_examples():
    """16 lines, 1000 hidden neurons of fan-out 10, 8 outputs: 22,112 cycles, and 41,512 where a tenth is active."""
    times = COST.pool_times(drawn(1, "xylo_audio2", 16, 1000, 8, 10))
    assert times.step == 2 * 22_112
    assert times.step + times.of_source.sum() / 10 == 2 * 41_512


def test_pool_has_no_profile():
    with pytest.raises(BackendError) as error:
        nw.simulate(drawn(1, "xylo_imu"), events(1), "cycle", profile=True)
    assert str(error.value) == (
        "profiles follow flits through a network, and xylo_imu is one pool of neurons without one; leave profile out: "
        "Run.step_cycles has the times of its steps"
    )


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"pool.spike_cycles": None}, "xylo_imu: pool.spike_cycles: missing key; a chip with pool.line_cycles needs "
                                      "all cycles of a pool"),
        ({"pool.spike_cycles": 0.3}, "xylo_imu: pool.spike_cycles: 0.3 is not a number of whole or half cycles"),
        ({"noc.columns": 2}, "xylo_imu: pool.line_cycles: a pool is one core, and here are 2; leave section pool "
                             "out"),
    ],
)  # fmt: skip
def test_pool_cycles_go_together(changes, message):
    with pytest.raises(ChipError) as error:
        Chip.load("xylo_imu").replace(changes)
    assert str(error.value) == message


def test_pool_reports_tell_measured_steps(tmp_path, capsys):
    nw.compile(pool_net(5, 10, 3), "xylo_imu", events(2)).save(tmp_path / "net.nwc")
    np.savez(tmp_path / "x.npz", x=events(2))
    given = [str(tmp_path / "net.nwc"), "--input", str(tmp_path / "x.npz")]
    assert cli.main(["report", *given, "-o", str(tmp_path / "out")]) == 0
    run = nw.simulate(nw.Program.load(tmp_path / "net.nwc"), events(2), "cycle")
    us = run.step_cycles * 0.02 / N_SAMPLES
    text = " ".join(capsys.readouterr().out.split())
    mean = f"hardware step: mean {grouped(us.mean())} us (published)"
    assert f"{mean}, longest {grouped(us.max())} us; one pool of neurons has" in text
    assert cli.main(["report", *given, "-o", str(tmp_path / "out"), "--backend", "sequence"]) == 0
    said = json.loads((tmp_path / "out" / "report.json").read_text())
    assert said["chip"]["pool_step_us"] == pytest.approx(us.mean(), abs=0.02 / 2)  # half cycles are not rounded here
    text = f"{grouped(said['chip']['pool_step_us'])} us per step (published)"
    out = " ".join(capsys.readouterr().out.split())
    assert (
        "from the spikes that neurons send; backend cycle gives the longest" in out
        and text in out
        and text in said["verdict"]
    )


def test_a_step_limit_of_a_pool_is_its_mean_step():
    network, x = pool_net(), np.ones((2, 5, 4), np.int8)
    step_us = predicted_figures(program := nw.compile(network, "xylo_imu", x), program.activity).step_us
    assert step_us == pytest.approx(COST.mean_step_cycles(program, program.activity) * 0.02)
    options = nw.Options(optimize="cores", step_limit_us=step_us)
    assert nw.compile(network, "xylo_imu", x, options)
    with pytest.raises(FitError) as error:
        nw.compile(network, "xylo_imu", x, nw.Options(optimize="cores", step_limit_us=0.9 * step_us))
    text = f"{step_us:.4g} us of {0.9 * step_us:.4g} us  raise step_limit_us, or use fewer neurons or spikes"
    assert str(error.value).splitlines()[1] == f"  predicted step time  network -> 1 core  {text}"
