"""Spike log: read a user's log of spikes, a CSV file of events or arrays by layer."""

import csv
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from nwcompile.cli.inputs.data import read_arrays
from nwcompile.errors import ModelError, one_line
from nwcompile.families import load_part
from nwcompile.ir.neuron_programs.program import NeuronProgram
from nwcompile.ir.program import Program
from nwcompile.report.export.xylo import assign_pool
from nwcompile.sim.spike_log import Places, SpikeLog, log_of_events

ERROR_CODE = "NW1008"
FORMS = (("tick", "core", "neuron"), ("tick", "output"), ("step", "layer", "neuron"))
# Names of recordings in the tools of a pool of neurons (Xylo): the kind of neurons, and the quantity.
RECORDED = {
    "sim_rec_spikes": ("hidden", "spikes"), "sim_v": ("hidden", "v"), "sim_i": ("hidden", "u"),
    "sim_out_spikes": ("outputs", "spikes"), "sim_v_out": ("outputs", "v"), "sim_i_out": ("outputs", "u"),
}  # fmt: skip
COUNTS = "tb_num_outputs.txt"
WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
FORMS_TEXT = "; or ".join(", ".join(form) for form in FORMS)


def read_places(folder: Path, program: Program) -> Places:
    """Read the table of neurons that an export wrote to `folder`; without one, use the program's own cores."""
    path = folder / "neurons.csv"
    if not path.is_file():
        return Places.from_program(program)
    table = _read_columns(path)
    names = ("index", "core", "neuron", "output", "first_tick")
    numbers = [_to_integers(path, name, table.get(name, [])) for name in names]
    layers = np.array(table.get("layer", []))
    is_whole = all(len(column) == len(layers) for column in numbers)
    listed = sorted(zip(layers.tolist(), numbers[0].tolist(), strict=True)) if is_whole else []
    if listed != sorted(_exported_neurons(program)):
        raise ModelError(f"{path}: is not of this program, or not the whole of it; export it again")
    index, core, slot, output, first_tick = numbers
    return Places(layer=layers, index=index, core=core, slot=slot, output=output, first_tick=first_tick)


def _exported_neurons(program: Program) -> Iterator[tuple[str, int]]:
    """Yield layer and number of every exported neuron: those that the export of the chip's family names, or all."""
    network = program.network
    export = load_part(program.chip.family, "export")
    is_heard = np.ones(len(program.core_of), bool) if export is None else export.find_exported(program)
    for name in network.layers:
        first = network.offsets[name]
        yield from ((name, int(i)) for i in np.flatnonzero(is_heard[first : first + network.node(name).n_neurons]))


def read_log(path: str, program: Program, places: Places, n_steps: int) -> SpikeLog:
    """Read the log of one sample: a .csv file with one of the headers of FORMS (other columns are ignored), or a .npz.

    Arrays of a .npz are [T, n] (or [1, T, n]) under the name of a layer, or of its state as `LAYER.v`; or those of the
    tools of a pool of neurons (RECORDED), whose row 0 is an empty step before the sample. A .txt is a file of RANC's
    testbench: one output in binary per line, with the number of outputs per tick in the file COUNTS next to it.
    """
    if Path(path).suffix == ".npz":
        arrays = {key: _whole_array(path, key, a) for key, a in read_arrays(path, "[T, n] by layer").items()}
        if not arrays:
            raise ModelError(f"{path}: has no arrays; give one of spikes, [T, n], under the name of a layer")
        if program.chip.core.max_outputs is not None and (recorded := set(arrays) & set(RECORDED)):
            if others := sorted(set(arrays) - recorded):
                listed = f"{', '.join(sorted(recorded))} beside {', '.join(others)}"
                raise ModelError(f"{path}: has {listed}; give what the chip's tools record, or arrays by layer")
            return _log_of_pool(path, arrays, program, n_steps + 1)
        return _log_of_arrays(path, arrays, program, n_steps)
    if Path(path).suffix == ".txt":
        return log_of_events(program, places, *_read_testbench(Path(path), places), n_steps)
    table = _read_columns(Path(path))
    form = next((form for form in FORMS if set(form) <= set(table)), None)
    if form is None:
        raise ModelError(f"{path}: its first line must name the columns {FORMS_TEXT}; it is {', '.join(table)}")
    if form[0] == "tick":
        ticks, *at = (_to_integers(path, name, table[name]) for name in form)
        return log_of_events(program, places, ticks, tuple(at), n_steps)
    return _log_of_steps(path, program, table, n_steps)


def _log_of_steps(path: str, program: Program, table: dict[str, list[str]], n_steps: int) -> SpikeLog:
    steps, neurons = (_to_integers(path, name, table[name]) for name in ("step", "neuron"))
    sizes = {name: program.network.node(name).n_neurons for name in program.network.layers}
    spikes = {name: np.zeros((n_steps, n), np.int64) for name, n in sizes.items()}
    for step, layer, neuron in zip(steps, table["layer"], neurons, strict=True):
        if layer not in sizes or not 0 <= neuron < sizes[layer] or step < 0:
            raise ModelError(f"{path}: the program has no step {step} of a neuron {neuron} in a layer {layer!r}")
        if step < n_steps:
            spikes[layer][step, neuron] += 1
    named = set(table["layer"])
    if not named:
        raise ModelError(f"{path}: tells of no layer; give tick, core, neuron, which tells of all")
    told = {name: np.ones(n, bool) for name, n in sizes.items() if name in named}
    return SpikeLog({name: spikes[name] for name in told}, {}, told)


def _log_of_pool(path: str, arrays: dict[str, np.ndarray], program: Program, n_steps: int) -> SpikeLog:
    spikes: dict[str, np.ndarray] = {}
    states: dict[str, dict[str, np.ndarray]] = {}
    pool = assign_pool(program)
    for key, array in arrays.items():
        kind, quantity = RECORDED[key]
        places = getattr(pool, kind)
        n = sum(len(index) for index in places.values())
        every = _first_steps(path, key, array, n_steps, n, "an empty step, those of the sample, and neurons")
        for layer, index in places.items():
            numbers = every[:, index]
            if quantity == "spikes":
                spikes[layer] = numbers
            else:
                states.setdefault(layer, {})[quantity] = numbers
    told = {name: np.ones(program.network.node(name).n_neurons, bool) for name in {**spikes, **states}}
    return SpikeLog(spikes, states, told, window="hardware")


def _read_testbench(path: Path, places: Places) -> tuple[np.ndarray, tuple[np.ndarray]]:
    """Read tick and output of every spike, int64[spike] each."""
    if not np.any(places.output >= 0):
        raise ModelError(f"{path}: texts of RANC's testbench tell outputs, and this folder has no neurons.csv of one")
    outputs, counts = (_read_numbers(file, base) for file, base in ((path, 2), (path.with_name(COUNTS), 10)))
    if counts.sum() != len(outputs) or np.any(counts < 0):
        raise ModelError(f"{path}: has {len(outputs)} outputs, and the ticks of {COUNTS} have {counts.sum()}")
    return np.repeat(np.arange(len(counts)), counts), (outputs,)


def _read_numbers(path: Path, base: int) -> np.ndarray:
    """Read one integer per line of a file, int64[line]."""
    try:
        words = path.read_text(encoding="utf-8-sig").split()
    except (OSError, UnicodeDecodeError) as e:
        raise ModelError(f"{path}: cannot be read: {getattr(e, 'strerror', None) or one_line(e)}") from None
    bad = next((word for word in words if not word.isdigit() or (base == 2 and set(word) - {"0", "1"})), None)
    if bad is not None:
        raise ModelError(f"{path}: {bad!r} is no {'binary' if base == 2 else 'whole'} number")
    return np.array([int(word, base) for word in words], np.int64)


def pool_slots(program: Program, places: Places) -> np.ndarray:
    """int64[neuron]: the index of every neuron of `places` among the hidden neurons or the outputs of a pool."""
    pool = assign_pool(program)
    index = {**pool.hidden, **pool.outputs}
    return np.array([index[layer][i] for layer, i in zip(places.layer, places.index, strict=True)], np.int64)


def _log_of_arrays(path: str, arrays: dict[str, np.ndarray], program: Program, n_steps: int) -> SpikeLog:
    spikes: dict[str, np.ndarray] = {}
    states: dict[str, dict[str, np.ndarray]] = {}
    for key, array in arrays.items():
        layer, _, state = key.rpartition(".") if key not in program.network.layers else (key, "", "")
        if layer not in program.network.layers or state not in ("", *_state_names(program, layer)):
            named = ", ".join(f"{name} ({', '.join(_state_names(program, name))})" for name in program.network.layers)
            raise ModelError(
                f"{path}: {key!r} is no layer of the program, nor LAYER.STATE; its layers and their states: {named}"
            )
        numbers = _first_steps(path, key, array, n_steps, program.network.node(layer).n_neurons, "steps and neurons")
        if state:
            states.setdefault(layer, {})[state] = numbers
        else:
            spikes[layer] = numbers
    told = {name: np.ones(program.network.node(name).n_neurons, bool) for name in {**spikes, **states}}
    return SpikeLog(spikes, states, told)


def _state_names(program: Program, layer: str) -> tuple[str, ...]:
    """The names of a layer's states in a run."""
    neuron = program.network.node(layer).neuron
    return tuple(s.name for s in neuron.states) if isinstance(neuron, NeuronProgram) else ("u", "v")


def _first_steps(path: str, key: str, array: np.ndarray, n_steps: int, n: int, what: str) -> np.ndarray:
    """The first steps of an array [T, n] or [1, T, n] as [n_steps, n]. Raises ModelError; `what` explains the axes."""
    lengths = array.shape[: 2 if array.shape[:1] == (1,) else 1]
    if not any(length >= n_steps and length * n == array.size for length in lengths):
        raise ModelError(f"{path}: {key} of shape {list(array.shape)} must be [{n_steps}, {n}], {what}")
    return array.reshape(-1, n)[:n_steps]


def _whole_array(path: str, key: str, array: np.ndarray) -> np.ndarray:
    """Convert an array to int64."""
    if array.dtype.kind not in "biuf":
        raise ModelError(f"{path}: {key} must hold whole numbers, and is of type {array.dtype}")
    is_whole = (np.abs(array.astype(np.float64)) < 2.0**62) & (array == np.floor(array.astype(np.float64)))
    if not is_whole.all():
        raise ModelError(f"{path}: {key} has {array[~is_whole].flat[0]}, which is no whole number below 2**62")
    return array.astype(np.int64)


def _read_columns(path: Path) -> dict[str, list[str]]:
    """Read the columns of a CSV file by the names in its first line."""
    try:
        rows = list(csv.reader(path.read_text(encoding="utf-8-sig").splitlines()))
    except (OSError, UnicodeDecodeError, csv.Error) as e:
        reason = e.strerror if isinstance(e, OSError) and e.strerror else one_line(e)
        raise ModelError(f"{path}: cannot be read: {reason}") from None
    rows = [[cell.strip() for cell in cells] for cells in rows if cells]
    if not rows:
        raise ModelError(f"{path}: is empty; its first line must name the columns {FORMS_TEXT}")
    if len(set(rows[0])) < len(rows[0]):
        raise ModelError(f"{path}: its first line names a column twice; it is {', '.join(rows[0])}")
    if any(len(cells) != len(rows[0]) for cells in rows):
        bad = next(i for i, cells in enumerate(rows) if len(cells) != len(rows[0]))
        raise ModelError(f"{path}: line {bad + 1} has {len(rows[bad])} columns, the first line names {len(rows[0])}")
    return {name: [cells[i] for cells in rows[1:]] for i, name in enumerate(rows[0])}


def _to_integers(path, name: str, cells: list[str]) -> np.ndarray:
    bad = next((cell for cell in cells if not WHOLE.fullmatch(cell)), None)
    if bad is not None:
        raise ModelError(f"{path}: column {name} has {bad!r}, which is no whole number of at most 18 digits")
    return np.array([int(cell) for cell in cells], np.int64)
