"""Files for RANC, decoded anew and run by its published equations: they hold what the program does.

Nothing here but the memory files, the packets to send and the widths comes from the package; the layout of a line and
the equations are those of the RTL (reference/ranc/README.md).
"""

import json
from pathlib import Path

import numpy as np
import pytest

import nwcompile as nw
from nwcompile.families.merges.export import ranc_files
from nwcompile.ir.connection import Dense
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import FixedPoint, NeuronSpec


def number(bits: str) -> int:
    """A two's complement number."""
    return int(bits, 2) - (bits[0] == "1") * (1 << len(bits))


class Grid:
    """The cores of a folder of memory files."""

    def __init__(self, folder: Path):
        p = json.loads((folder / "parameters.json").read_text())
        self.columns, self.n_axons, self.bits = p["GRID_DIMENSION_X"], p["NUM_AXONS"], p["POTENTIAL_WIDTH"]
        widths = [p["POTENTIAL_WIDTH"]] * 2 + [p["WEIGHT_WIDTH"]] * p["NUM_WEIGHTS"] + [p["LEAK_WIDTH"]]
        widths += [p["THRESHOLD_WIDTH"]] * 2 + [1, 9, 9, (self.n_axons - 1).bit_length(), 4]
        starts = self.n_axons + np.cumsum([0, *widths])
        self.cores = {}
        for path in folder.glob("csram_*.mem"):
            types = [int(line, 2) for line in path.with_name(path.name.replace("csram", "tc")).read_text().split()]
            neurons = []
            for line in path.read_text().split():
                assert len(line) == starts[-1]
                fields = [line[a:b] for a, b in zip(starts[:-1], starts[1:], strict=True)]
                v0, reset, *weights = map(number, fields[: 2 + p["NUM_WEIGHTS"]])
                leak, threshold, least = map(number, fields[2 + p["NUM_WEIGHTS"] : -5])
                mode, dx, dy, axon, delay = fields[-5:]
                connected = np.array([*map(int, line[: self.n_axons][::-1])])
                neurons.append({
                    "v": v0, "reset": reset, "leak": leak, "threshold": threshold, "least": least, "mode": int(mode),
                    "to": (number(dx), number(dy)), "axon": int(axon, 2), "delay": int(delay, 2),
                    "row": connected * np.array(weights)[types],
                })  # fmt: skip
            self.cores[int(path.stem[-3:])] = neurons
        self.heard = {}  # (tick, place): bool[axon]

    def hear(self, tick: int, place: int, axon: int) -> None:
        self.heard.setdefault((tick, place), np.zeros(self.n_axons, bool))[axon] = True

    def tick(self, tick: int) -> list[tuple[int, int, int]]:
        """(tick, place, neuron) of the spikes of a tick, whose packets are sent."""
        spikes, half = [], 1 << (self.bits - 1)
        for place, neurons in sorted(self.cores.items()):
            axons = self.heard.pop((tick, place), np.zeros(self.n_axons, bool))
            for k, neuron in enumerate(neurons):
                p = int(neuron["v"] + neuron["row"][axons].sum() + neuron["leak"] + half) % (2 * half) - half
                v = p
                if p >= neuron["threshold"]:
                    v = p - neuron["threshold"] if neuron["mode"] else neuron["reset"]
                    spikes.append((tick, place, k))
                    x, y = place % self.columns + neuron["to"][0], place // self.columns + neuron["to"][1]
                    self.hear(tick + 1 + neuron["delay"], x + self.columns * y, neuron["axon"])
                elif p < neuron["least"]:
                    v = p - neuron["least"] if neuron["mode"] else -neuron["reset"]
                neuron["v"] = v
        return spikes


def table(path: Path) -> list[list[int]]:
    return [[int(word, 10) for word in line.split(",")[:4]] for line in path.read_text().split()[1:]]


@pytest.mark.parametrize("n", [16, pytest.param(256, marks=pytest.mark.long)])
def test_files_of_a_layer_wider_than_a_core_do_what_the_program_does(n, tmp_path):
    """400-300-10 neurons, or as many of cores of 16: each reads fewer axons than a core has, and most are copied."""
    n_in, n_hidden, n_out, half = 400 * n // 256, 300 * n // 256, 10, 250 * n // 256
    rng = np.random.default_rng(0)
    first, last = rng.normal(0.05, 0.3, (n_hidden, n_in)), rng.normal(0.05, 0.3, (n_out, n_hidden))
    first[: n_hidden // 2, n:] = first[n_hidden // 2 :, : n_in - n] = 0
    last[:5, half:] = last[5:, : n_hidden - half] = 0
    spec = NeuronSpec(threshold=1.0, reset="subtract", strict=False)
    edges = [Dense("in", "a", first.astype(np.float32)), Dense("a", "b", last.astype(np.float32))]
    network = Network.from_arrays({"a": (spec, (n_hidden,)), "b": (spec, (n_out,))}, edges, {"in": (n_in,)})
    x = (rng.random((4, 12, n_in)) < 0.3).astype(np.int8)
    chip = nw.Chip.load("ranc_dense").replace({
        "core.max_neurons": n, "core.max_in_axons": n, "weights.axon_types": n, "cost.visit_cycles": n + 2,
        "core.word_bits": n, "core.block_synapses": n,
    })  # fmt: skip
    program = nw.compile(network, chip, x)
    assert "a/copy2" in program.network.layers
    assert len(same_spikes(program, x[0], tmp_path)) > 50


def same_spikes(program: nw.Program, x: np.ndarray, folder: Path) -> list[tuple[int, int, int]]:
    """The spikes of the files of a sample `in` [T, n], which must be those that they say to expect."""
    for path, data in ranc_files(program, folder, {"in": x}).items():
        path.write_bytes(data)
    grid, spikes = Grid(folder), []
    sent = table(folder / "input_packets.csv")
    for tick in range(len(x) + program.schedule.depth - 1):
        for at, place, axon, delay in sent:
            if at == tick:
                grid.hear(tick + delay, place, axon)
        spikes += grid.tick(tick)
    places = [line.split(",") for line in (folder / "neurons.csv").read_text().split()[1:]]
    first_tick = {(int(place), int(k)): int(tick) for _, _, place, k, tick, _ in places}
    outputs = {(int(place), int(k)): int(output) for _, _, place, k, _, output in places}
    out = sorted((t, outputs[place, k]) for t, place, k in spikes if outputs[place, k] >= 0)
    assert out == sorted((t, output) for t, output, _ in table(folder / "expected_outputs.csv"))
    spikes = [(t, place, k) for t, place, k in spikes if t - first_tick[place, k] < len(x)]  # the sample's own steps
    assert spikes == [tuple(row) for row in table(folder / "expected_spikes.csv")]
    return spikes


def test_files_of_an_input_that_two_layers_read_do_what_the_program_does(tmp_path):
    """It sets two axons of one core, one of them a tick later."""
    rng = np.random.default_rng(0)
    spec = NeuronSpec(threshold=1.0, reset="subtract", strict=False)
    edges = [
        Dense(a, b, rng.normal(0.2, 0.4, (m, n)).astype(np.float32))
        for a, b, n, m in (("in", "a", 6, 8), ("a", "b", 8, 4), ("in", "b", 6, 4))
    ]
    network = Network.from_arrays({"a": (spec, (8,)), "b": (spec, (4,))}, edges, {"in": (6,)})
    x = (rng.random((2, 12, 6)) < 0.5).astype(np.int8)
    program = nw.compile(network, "ranc_dense", x)
    assert len(same_spikes(program, x[0], tmp_path)) > 50
    delays = {delay for _, _, _, delay in table(tmp_path / "input_packets.csv")}
    assert program.mapping.n_cores == 1 and delays == {0, 1}


@pytest.mark.parametrize("delay", [0, 3])
def test_outputs_that_are_early_go_on_until_the_last_one_is_through(delay, tmp_path):
    """As on the chip: of two depths, or of a layer that reads the first one so late that it begins before it."""
    rng = np.random.default_rng(0)
    spec = NeuronSpec(threshold=1.0, reset="subtract", strict=False, bias=0.3)
    ends = (("in", "a", 6, 8, 0), ("a", "b", 8, 4, delay), *([] if delay else [("in", "c", 6, 4, 0)]))
    edges = [Dense(a, b, rng.normal(0.2, 0.4, (m, n)).astype(np.float32), delay=d) for a, b, n, m, d in ends]
    sizes = {b: m for _, b, _, m, _ in ends}
    network = Network.from_arrays({name: (spec, (n,)) for name, n in sizes.items()}, edges, {"in": (6,)})
    x = (rng.random((2, 12, 6)) < 0.5).astype(np.int8)
    program = nw.compile(network, "ranc_dense", x)
    same_spikes(program, x[0], tmp_path)
    last = len(x[0]) + program.schedule.depth - 2
    early = [int(line.split(",")[5]) for line in (tmp_path / "neurons.csv").read_text().split()
             if line.split(",")[0] == ("b" if delay else "c")]  # fmt: skip
    assert any(t == last and output in early for t, output, _ in table(tmp_path / "expected_outputs.csv"))


@pytest.mark.parametrize("bias", [-2, 4])
def test_files_of_a_layer_that_begins_before_the_first_tick_do_what_the_program_does(bias, tmp_path):
    """Its input comes three steps late, so its first potential is what step 0 leaves; 2 x 4 reaches its threshold."""
    rng = np.random.default_rng(0)
    spec = NeuronSpec(threshold=7, strict=False, reset="subtract", bias=bias, fixed=FixedPoint(24, 12, 0, "modulo"))
    edges = [
        Dense(a, b, rng.integers(-3, 9, (m, n)).astype(np.int16), delay=delay)
        for a, b, n, m, delay in (("in", "a", 6, 8, 3), ("a", "b", 8, 4, 0))
    ]
    network = Network.from_arrays({"a": (spec, (8,)), "b": (spec, (4,))}, edges, {"in": (6,)})
    x = (rng.random((1, 12, 6)) < 0.5).astype(np.int8)
    program = nw.compile(network, "ranc_dense", x)
    assert program.schedule.offset["a"] == 0 and len(same_spikes(program, x[0], tmp_path)) > 30
