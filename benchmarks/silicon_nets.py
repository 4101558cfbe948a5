"""The networks of benchmarks/silicon.py: as large and as laid out as those that were measured, with drawn weights."""

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import nwcompile as nw
from benchmarks.pilotnet import REFERENCE, intels_cut, pilotnet
from nwcompile.cost.energy import board_energy

PILOTNET = REFERENCE / "lava_gts" / "pilotnet_lif" / "network.net"
QUIET = 2**16  # A threshold that no neuron reaches within the steps of a run.
N_STEPS = 16


@dataclass(frozen=True)
class Model:
    """Figures of a simulated network: cores in use, and means of a step. None: unknown.

    `step_us`: microseconds. `step_nj`: nanojoules of the cores' events. `static_mw`: static power. `host_mw`: power of
    the processors on the chips. `total_mw`: all power.
    """

    cores: int
    step_us: float | None = None
    step_nj: float | None = None
    static_mw: float | None = None
    host_mw: float | None = None
    total_mw: float | None = None


def quartz_mnist(chip_name: str, cores: tuple[int, ...]) -> Model:
    """Quartz's MNIST network of 5,410 neurons in steps without spikes: every neuron is updated because of its bias."""
    chip, rng = nw.Chip.load(chip_name), np.random.default_rng(0)
    neuron = nw.NeuronSpec(threshold=QUIET << 6, bias=1, fixed=chip.fixed_point)
    shapes = {"conv1": (6, 24, 24), "pool1": (6, 12, 12), "conv2": (12, 8, 8), "pool2": (12, 4, 4), "fc1": (120, 1, 1)}
    edges = [
        nw.Conv2d("in", "conv1", _draw(rng, 6, 1, 5, 5)),
        nw.Conv2d("conv1", "pool1", _draw(rng, 6, 1, 2, 2), stride=2, groups=6),
        nw.Conv2d("pool1", "conv2", _draw(rng, 12, 6, 5, 5)),
        nw.Conv2d("conv2", "pool2", _draw(rng, 12, 1, 2, 2), stride=2, groups=12),
        nw.Conv2d("pool2", "fc1", _draw(rng, 120, 12, 4, 4)),
        nw.Dense("fc1", "fc2", _draw(rng, 10, 120)),
    ]
    layers = {name: (neuron, shape) for name, shape in shapes.items()} | {"fc2": (neuron, (10,))}
    network = nw.Network.from_arrays(layers, edges, {"in": (1, 28, 28)})
    return _simulate(network, chip, _cut_evenly(network, cores), np.zeros((1, N_STEPS, 1, 28, 28), np.int32))


def braille(chip_name: str, n_cores: int, n_copies: int) -> Model:
    """48 lines, 450 recurrent and 28 output neurons on `n_cores` cores, in a step of the board with all its copies.

    One copy is simulated, because copies do not talk to each other. It ends its steps with all cores of the board.
    """
    board, rng = nw.Chip.load(chip_name), np.random.default_rng(0)
    n_tiles = n_copies * n_cores // board.noc.cores_per_router
    chip = nw.Chip.load(board.chip_of_board).replace({"cost.barrier_cycles": {"1": board.barrier_cycles(n_tiles)}})
    neuron = nw.NeuronSpec(threshold=2000 << 6, beta=0.9, fixed=chip.fixed_point, decay_v=410)
    edges = [
        nw.Dense("in", "hidden", _draw(rng, 450, 48)),
        nw.Dense("hidden", "hidden", _draw(rng, 450, 450)),
        nw.Dense("hidden", "out", _draw(rng, 28, 450)),
    ]
    network = nw.Network.from_arrays({"hidden": (neuron, (450,)), "out": (neuron, (28,))}, edges, {"in": 48})
    x = (rng.random((1, 64, 48)) < 0.05).astype(np.int32)
    return _simulate(network, chip, _cut_evenly(network, (n_cores - 4, 4)), x)


def winner_take_all(chip_name: str, n_neurons: int, n_cores: int) -> Model:
    """LIF neurons that inhibit each other, a few of which spike in each step because of their bias."""
    chip, rng = nw.Chip.load(chip_name), np.random.default_rng(0)
    neuron = nw.NeuronSpec(threshold=4000 << 6, bias=rng.integers(1, 100, n_neurons) << 6, fixed=chip.fixed_point)
    edges = [nw.Dense("cells", "cells", -np.abs(_draw(rng, n_neurons, n_neurons)) // 64)]
    network = nw.Network.from_arrays({"cells": (neuron, (n_neurons,))}, edges)
    return _simulate(network, chip, _cut_evenly(network, (n_cores,)), None, n_steps=100)


def izhikevich(chip_name: str, n_neurons: int) -> Model:
    """Izhikevich neurons, each a program, on one core; a current of its own makes each spike."""
    import torch

    @nw.neuron(initial={"v": -65.0, "u": -13.0})
    def spiking(state, x):
        v, u = state.v, state.u
        v = v + 0.5 * (0.04 * v * v + 5 * v + 140 - u + x)
        u = u + 0.02 * (0.2 * v - u)
        fired = v >= 30
        return {"v": torch.where(fired, -65.0, v), "u": torch.where(fired, u + 8, u)}, fired

    rng = np.random.default_rng(0)
    current = 10 * np.eye(n_neurons, dtype=np.float32)
    network = nw.Network.from_arrays({"cells": (spiking.program(), (n_neurons,))}, [nw.Dense("in", "cells", current)],
                                     {"in": n_neurons})  # fmt: skip
    x = (rng.random((1, 100, n_neurons)) < 0.5).astype(np.int32)
    program = nw.compile(network, chip_name, x, nw.Options(n_cores=1))
    run = nw.simulate(program, x, "cycle", window="hardware")
    return _figures(program, run, len(run.step_cycles))


def pilotnet_intel(chip_name: str) -> Model:
    """lava-dl's PilotNet on its stored image, in Intel's partition; needs the files of the reference folder."""
    network, x = pilotnet(REFERENCE)
    program = nw.compile(network, chip_name, x, nw.Options(partitioner=intels_cut))
    return _figures(program, nw.simulate(program, x, "cycle"), N_STEPS)


def speck_layers(chip_name: str, n_layers: int) -> Model:
    """One event through 3 x 3 convolutions, a layer on each core: all steps until the last layer spikes, as one."""
    chip = nw.Chip.load(chip_name)
    neuron = nw.NeuronSpec(threshold=1, strict=False, reset="subtract", fixed=chip.fixed_point)
    names = [f"conv{i}" for i in range(n_layers)]
    weight = np.zeros((1, 1, 3, 3), np.int64)
    weight[..., 1, 1] = 1
    edges = [nw.Conv2d(a, b, weight, padding=1) for a, b in zip(["in", *names], names, strict=False)]
    network = nw.Network.from_arrays(dict.fromkeys(names, (neuron, (1, 8, 8))), edges, {"in": (1, 8, 8)})
    x = np.zeros((1, 1, 1, 8, 8), np.int32)
    x[..., 4, 4] = 1
    program = nw.compile(network, chip)
    run = nw.simulate(program, x, "cycle")
    return Model(program.mapping.n_cores, float(run.step_cycles[:n_layers].sum()) * chip.core.cycle_ns / 1000, None)


def power(chip_name: str, n_cores: int, n_chips: int = 1) -> Model:
    """Power of cores and processors in use, for networks whose layers are not published."""
    chip = nw.Chip.load(chip_name)
    static = chip.static_mw + n_cores * (chip.energy.core_static_mw or 0.0)
    return Model(n_cores, static_mw=static, host_mw=n_chips * (chip.energy.host_mw or 0.0))


def keyword_spotting(chip_name: str, rate: float) -> Model:
    """256-256-29 neurons behind 256 lines that spike in `rate` of the steps, each of which takes the host 337 us.

    The host computes the first of the three published layers. Its processor on the chip takes 65 mW as it feeds inputs
    (Frady et al. 2020). Weights are drawn; at a rate of 0.13 the hidden neurons spike in 0.10 of the steps.
    """
    chip = nw.Chip.load(chip_name).replace({"cost.min_step_cycles": {"1": 3_370_000}, "energy.host_mw": 65.0})
    rng, n_steps = np.random.default_rng(0), 100
    neuron = nw.NeuronSpec(threshold=200 << 6, fixed=chip.fixed_point)
    edges = [nw.Dense("in", "hidden", _draw(rng, 256, 256)), nw.Dense("hidden", "out", _draw(rng, 29, 256))]
    network = nw.Network.from_arrays({"hidden": (neuron, (256,)), "out": (neuron, (29,))}, edges, {"in": 256})
    x = (rng.random((1, n_steps, 256)) < rate).astype(np.int32)
    return _simulate(network, chip, _cut_evenly(network, (1, 1)), x)


def truenorth_chip(chip_name: str, rate_hz: float) -> Model:
    """All cores of the chip alike: 256 neurons with 128 synapses each, and axons with events at `rate_hz`.

    One core is simulated; the energy of its events counts for all.
    """
    chip, rng, n_steps = nw.Chip.load(chip_name), np.random.default_rng(0), 500
    axon = np.stack([rng.permutation(256)[:128] for _ in range(256)])  # of each neuron
    neuron = nw.NeuronSpec(threshold=QUIET, strict=False, fixed=chip.fixed_point)
    synapses = nw.Sparse("in", "cells", axon.ravel(), np.repeat(np.arange(256), 128), np.ones(axon.size, np.int64))
    network = nw.Network.from_arrays({"cells": (neuron, (256,))}, [synapses], {"in": 256})
    x = np.zeros(n_steps * 256, np.int32)
    x[rng.choice(len(x), round(len(x) * rate_hz / 1000), replace=False)] = 1
    one = _simulate(network, chip, _cut_evenly(network, (1,)), x.reshape(1, n_steps, 256))
    events_mw = (one.total_mw - one.static_mw) * chip.n_cores
    return Model(chip.n_cores, one.step_us, static_mw=one.static_mw, total_mw=one.static_mw + events_mw)


def odin_events(chip_name: str, mhz: float) -> Model:
    """256 neurons and 256 lines, one event after the other without a pause, at a clock of `mhz`."""
    chip = _at_clock(chip_name, mhz)
    neuron = nw.NeuronSpec(threshold=255, strict=False, v_min=0, fixed=chip.fixed_point)
    edges = [nw.Dense("in", "cells", np.random.default_rng(0).integers(0, 8, (256, 256)))]
    network = nw.Network.from_arrays({"cells": (neuron, (256,))}, edges, {"in": 256})
    return _simulate(network, chip, _cut_evenly(network, (1,)), np.eye(256, dtype=np.int32)[None])


def xylo_idle(chip_name: str, mhz: float) -> Model:
    """Power of a Xylo chip that waits for the next step, at a clock of `mhz`."""
    return Model(1, static_mw=_at_clock(chip_name, mhz).static_mw)


def xylo_layers(chip_name: str, sizes: tuple[int, ...], rate: float) -> Model:
    """Layers of LIF neurons at 6.25 MHz behind lines that spike in `rate` of the steps, as fast as the core can."""
    chip, rng = _at_clock(chip_name, 6.25), np.random.default_rng(0)
    out = nw.NeuronSpec(threshold=500, strict=False, reset="subtract", decay_u=4, decay_v=4, fixed=chip.fixed_point)
    hidden = out.replace(spikes="multi", max_spikes=31)
    names = ["in", *(f"hidden{i}" for i in range(len(sizes) - 2)), "out"]
    neurons = [*[hidden] * (len(sizes) - 2), out]
    layers = {name: (neuron, (n,)) for name, neuron, n in zip(names[1:], neurons, sizes[1:], strict=True)}
    pairs = zip(names, names[1:], sizes, sizes[1:], strict=False)
    edges = [nw.Dense(a, b, rng.integers(-60, 60, (n_b, n_a))) for a, b, n_a, n_b in pairs]
    network = nw.Network.from_arrays(layers, edges, {"in": sizes[0]})
    x = (rng.random((1, 1000, sizes[0])) < rate).astype(np.int32)
    program = nw.compile(network, chip)
    return _figures(program, nw.simulate(program, x, "cycle", window="hardware"), 1000)


def full_core(chip_name: str, n_neurons: int, n_lines: int, row: int) -> Model:
    """One core whose `n_lines` lines all spike in each step, with `row` synapses each, without a tick."""
    chip = nw.Chip.load(chip_name).replace({"core.max_neurons": n_neurons, "cost.min_step_cycles": {"1": 0}})
    rng, n_steps = np.random.default_rng(0), 8
    target = np.concatenate([rng.permutation(n_neurons)[:row] for _ in range(n_lines)])
    source = np.repeat(np.arange(n_lines), row)
    neuron = nw.NeuronSpec(threshold=QUIET << 6, bias=1, fixed=chip.fixed_point)
    synapses = nw.Sparse("in", "cells", source, target, np.full(target.size, 2))
    network = nw.Network.from_arrays({"cells": (neuron, (n_neurons,))}, [synapses], {"in": n_lines})
    return _simulate(network, chip, _cut_evenly(network, (1,)), np.ones((1, n_steps, n_lines), np.int32))


def _at_clock(chip_name: str, mhz: float) -> nw.Chip:
    return nw.Chip.load(chip_name).replace(dict.fromkeys(("core.cycle_ns", "noc.cycle_ns"), round(1000 / mhz, 4)))


def _draw(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return 2 * rng.integers(-60, 60, shape)


def _cut_evenly(network: nw.Network, cores: tuple[int, ...]) -> nw.Mapping:
    """Cut each layer into equal slices on its number of cores; four cores to a router, routers row by row."""
    core_of, first = {}, 0
    for name, n in zip(network.layers, cores, strict=True):
        n_neurons = network.node(name).n_neurons
        core_of[name] = first + np.arange(n_neurons) * n // n_neurons
        first += n
    core = np.arange(first)
    return nw.Mapping.from_arrays(core_of, np.stack([core // 4 % 8, core // 32, core % 4], 1))


def _simulate(network, chip: nw.Chip, mapping: nw.Mapping, x, n_steps: int | None = None) -> Model:
    program = nw.compile(network, chip, mapping=mapping)
    run = nw.simulate(program, x, "cycle", window="hardware", steps=n_steps)
    return _figures(program, run, len(run.step_cycles))


def _figures(program: nw.Program, run: nw.Run, n_steps: int) -> Model:
    """Return the means over the first `n_steps` steps."""
    us = run.step_cycles[:n_steps] * program.chip.core.cycle_ns / 1000
    kinds = {kind: pj[:n_steps].mean() / 1000 for kind, pj in (run.step_energy_pj or {}).items()}
    nj = float(kinds["total"] - kinds.get("static", 0.0)) if kinds else None
    board = board_energy(program, run)
    nj_of = {} if board is None else {"static": board.static_nj, "host": board.host_nj, "total": board.total_nj}
    powers = {f"{part}_mw": nj / 1e6 / run.seconds for part, nj in nj_of.items() if nj is not None}
    return Model(program.mapping.n_cores, float(us.mean()), nj, **powers)
