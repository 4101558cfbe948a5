"""Public functions with wrong arguments, one call for each seed: nothing but an NwError may come out.

`python -m tests.fuzz.calls --start 1000 --count 500`. A call is one that works, with one or two of its arguments
replaced by something that a person may give by mistake; nouns that are only checked when they are used are used.
"""

import inspect
import os
import random
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import torch

import nwcompile as nw
from nwcompile import nn
from nwcompile.ir.chip_sections import KEYS, SECTIONS, Variation
from nwcompile.ir.neuron_programs.program import Operation, StateVariable
from nwcompile.sim.variation import Devices
from tests.fuzz.cases import run_seeds
from tests.fuzz.mutate import DTYPES, NUMBERS
from tests.interrupts import PATIENCE_S

# Functions of a person, whose own errors come out as they are: what cannot be called is drawn for them.
OWN = ("partitioner", "placer", "on_stage", "on_point", "surrogate", "step")
PROGRAMMABLE = nw.Chip.load("tiny").replace({"neuron.programmable": True})
MOST_SECONDS = int(PATIENCE_S)  # A call that takes longer hangs.
# No text is a path that leads out of the folder that the calls are in.
TEXTS = ("", "0", "x", "in", "fc", "all", "total", "é漢\u202e", "a\0b", "\n", "no such.nir", "no such folder/x", "-1",
         "1e400", "z" * 300)  # fmt: skip


class Call(NamedTuple):
    """A function, and the arguments with which it works; those are made anew for each call."""

    function: Callable
    right: Callable[[], dict]


@cache
def small() -> SimpleNamespace:
    """A network of two layers, its program, samples, a run, and the files of both kinds of network."""
    rng = np.random.default_rng(0)
    layers = {"fc": nw.NeuronSpec(beta=0.9), "out": (nw.NeuronSpec(fires=False), (2,))}
    weights = rng.normal(0.3, 0.5, (3, 4)).astype(np.float32), rng.normal(0, 1, (2, 3)).astype(np.float32)
    edges = [nw.Dense("in", "fc", weights[0]), nw.Dense("fc", "out", weights[1])]
    network = nw.Network.from_arrays(layers, edges, {"in": (4,)})
    x = (rng.random((3, 5, 4)) < 0.5).astype(np.int8)
    program = nw.compile(network, "tiny", x)
    folder = Path(tempfile.mkdtemp())
    nw.to_nir(network, folder / "net.nir")
    program.save(folder / "net.nwc")
    run = nw.simulate(program, x, "cycle")
    return SimpleNamespace(network=network, x=x, program=program, run=run, folder=folder, weights=weights, edges=edges)


def use_connection(kind: type) -> Callable:
    """What makes a connection of that kind and uses it in a network that runs and is compiled."""

    def use(**given):
        edge = kind(**given)
        inputs = {"in": (2, 4, 4) if kind not in (nw.Conv1d, nw.Dense, nw.Sparse) else (2, 4)}
        layers = {"fc": None} if kind is nw.MaxPool2d else {"fc": nw.NeuronSpec()}
        shape = edge.output_shape(inputs["in"]) or (3,)
        edges = [edge, nw.Dense("fc", "out", np.ones((2, int(np.prod(shape))), np.float32))]
        layers = {"fc": (layers["fc"], shape), "out": nw.NeuronSpec()}
        use_network(nw.Network.from_arrays(layers, edges, inputs))

    return named_like(kind, use)


def named_like(function: Callable, use: Callable) -> Callable:
    """`use` with the parameters of `function`."""
    use.__signature__ = inspect.signature(function)
    return use


def use_network(network: nw.Network) -> None:
    """Simulate it, compile it, and simulate the program."""
    x = {name: np.ones((1, 3, *node.shape), np.int8) for name, node in network.inputs.items()}
    nw.simulate(network, x, steps=3)
    nw.simulate(nw.compile(network, PROGRAMMABLE, x), x)


def use_neuron(kind: type) -> Callable:
    def use(**given):
        neuron = kind(**given)
        edge = nw.Dense("in", "fc", np.ones((3, 4), np.int8 if neuron.is_fixed is True else np.float32))
        use_network(nw.Network.from_arrays({"fc": neuron}, [edge], {"in": (4,)}))

    return named_like(kind, use)


def use_format(**given):
    use_neuron(nw.NeuronSpec)(fixed=nw.FixedPoint(**given))


def use_options(**given):
    nw.compile(small().network, "tiny", small().x, nw.Options(**given))


def use_mapping(core_of, site_of, visit=None):
    mapping = nw.Mapping.from_arrays(core_of, site_of, visit)
    nw.compile(small().network, "tiny", small().x, mapping=mapping)


def use_activity(network, spikes, repeats):
    nw.Activity.from_spikes(network, spikes, repeats).rate("fc")


def use_device(program, variation, seed, index):
    Devices(program, variation, seed).device(index)


def use_network_of(layers, connections, inputs=None):
    use_network(nw.Network.from_arrays(layers, connections, inputs))


def is_hashable(value) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def use_chip(key, value):
    key = key if is_hashable(key) else repr(key)
    nw.compile(small().network, nw.Chip.load("tiny").replace({key: value}), small().x)


def use_chip_table(section, key, value):
    table = nw.Chip.load("tiny").to_dict()
    section, key = (word if is_hashable(word) else repr(word) for word in (section, key))
    table[section] = {**table[section], key: value} if section in SECTIONS else value
    nw.compile(small().network, nw.Chip.from_dict(table), small().x)


def step(state, x, beta=0.9):
    v = state.v * beta + x
    return {"v": torch.where(v > 1, 0.0, v)}, v > 1


leaky = nw.neuron(step)


def use_neuron_function(**given):
    neuron = nw.neuron(**{**given, "step": None})(step).program()
    edge = nw.Dense("in", "fc", np.ones((3, 4), np.int8 if neuron.is_fixed else np.float32))
    use_network(nw.Network.from_arrays({"fc": neuron}, [edge], {"in": (4,)}))


def feed(program, backend, record, model_dt, x, steps):
    session = nw.Session(program, backend, record, model_dt)
    session.feed(x, steps)
    session.close()
    session.figures()


def feed_events(events):
    nw.Session(small().program).feed_events(events)


def use_layer(kind: Callable) -> Callable:
    """What makes a layer of nwcompile.nn and sends [batch, step, 4] through it."""

    def use(**given):
        kind(**given)(torch.ones(2, 3, 4))

    return named_like(kind, use)


def net() -> torch.nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.LIFSynapse(4, 3), nn.LIFLayer(3))


def relu_net() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU(), torch.nn.Linear(3, 2))


CUBA = {
    "name": "cuba",
    "states": (StateVariable("v", "v1"),),
    "operations": (
        Operation("v1", "add", ("v", "x")),
        Operation("f", "lt", (1, "v1")),
        Operation("s", "number", ("f",)),
    ),
    "output": "s",
    "sends": "binary",
    "is_fixed": False,
    "parameters": {"k": 1.0},
    "tables": {},
}


@cache
def calls() -> dict[str, Call]:
    """Every public function by its name; nouns by what makes and uses them."""
    s = small()
    image = {"source": "in", "target": "fc"}
    flat, kernel = np.ones((3, 8), np.float32), np.ones((3, 2, 2, 2), np.float32)
    ends = {"pre": [0, 1, 7], "post": [0, 1, 2], "weight": [1.0, 0.5, 2.0]}
    labels, spikes = np.array([0, 1, 0]), torch.ones(2, 3, 4)
    at_hand = {"network": s.network, "chip": "tiny", "calibration": s.x}
    return {
        "Activity": Call(use_activity, lambda: {"network": s.network, "spikes": {"in": s.x, **s.run.spikes},
                                            "repeats": False}),
        "Activity.uniform": Call(nw.Activity.uniform, lambda: {"network": s.network}),
        "Chip": Call(nw.Chip.load, lambda: {"name_or_path": "tiny"}),
        "Chip.from_dict": Call(use_chip_table, lambda: {"section": "noc", "key": "rows", "value": 2}),
        "Chip.replace": Call(use_chip, lambda: {"key": "noc.rows", "value": 2}),
        "Conv1d": Call(use_connection(nw.Conv1d), lambda: {**image, "weight": kernel[..., 0]}),
        "Conv2d": Call(use_connection(nw.Conv2d), lambda: {**image, "weight": kernel}),
        "Dense": Call(use_connection(nw.Dense), lambda: {**image, "weight": flat}),
        "FixedPoint": Call(named_like(nw.FixedPoint, use_format), dict),
        "Mapping": Call(use_mapping, lambda: {"core_of": {"fc": [0, 0, 1], "out": [1, 1]},
                                              "site_of": [[0, 0, 0], [1, 1, 0]]}),
        "Mapping.where": Call(s.program.mapping.where, lambda: {"layer": "fc", "neuron": 1}),
        "Mapping.who": Call(s.program.mapping.who, lambda: {"core": 0}),
        "MaxPool2d": Call(use_connection(nw.MaxPool2d), lambda: {**image, "kernel": 2}),
        "Network": Call(use_network_of, lambda: {"layers": {"fc": nw.NeuronSpec()}, "connections": [s.edges[0]],
                                                 "inputs": {"in": (4,)}}),
        "NeuronProgram": Call(use_neuron(nw.NeuronProgram), lambda: dict(CUBA)),
        "NeuronSpec": Call(use_neuron(nw.NeuronSpec), dict),
        "Options": Call(named_like(nw.Options, use_options), dict),
        "Pool2d": Call(use_connection(nw.Pool2d), lambda: {**image, "kernel": 2}),
        "Program": Call(nw.Program.load, lambda: {"path": s.folder / "net.nwc"}),
        "Program.save": Call(s.program.save, lambda: {"path": "saved.nwc"}),
        "Program.cores_frame": Call(s.program.cores_frame, lambda: {"run": s.run}),
        "Program.links_frame": Call(s.program.links_frame, lambda: {"run": s.run}),
        "Program.layers_frame": Call(s.program.layers_frame, lambda: {"run": s.run}),
        "Run.to_frame": Call(s.run.to_frame, lambda: {"rows": "layers"}),
        "Scale": Call(use_connection(nw.Scale), lambda: dict(image)),
        "Session": Call(feed, lambda: {"program": s.program, "backend": "reference", "record": "spikes",
                                       "model_dt": None, "x": s.x[0], "steps": None}),
        "Session.feed_events": Call(feed_events, lambda: {"events": [[0], [], [1, 1]]}),
        "Sparse": Call(use_connection(nw.Sparse), lambda: {**image, **ends}),
        "compile": Call(nw.compile, lambda: dict(at_hand)),
        "convert": Call(nw.convert, lambda: {"ann": relu_net(), "calibration": np.ones((5, 4), np.float32),
                                             "steps": 8}),
        "crosscheck": Call(nw.crosscheck, lambda: {"program": s.program, "x": s.x}),
        "demo": Call(nw.demo, lambda: {"chip": "no such chip"}),
        "encode": Call(nw.encode, lambda: {"x": np.ones((2, 3)), "steps": 4}),
        "estimate": Call(nw.estimate, lambda: {"network": s.network, "chips": ["tiny"], "x": s.x}),
        "evaluate": Call(nw.evaluate, lambda: {"model": s.program, "x": s.x, "y": labels}),
        "from_lava": Call(nw.from_lava, lambda: {"path": s.folder / "net.nir"}),
        "from_nir": Call(nw.from_nir, lambda: {"path": s.folder / "net.nir", "dt": 1e-4}),
        "from_torch": Call(nw.from_torch, lambda: {"module": net(), "example_input": torch.ones(1, 3, 4)}),
        "load_onnx": Call(nw.load_onnx, lambda: {"path": s.folder / "net.nir"}),
        "neuron": Call(named_like(nw.neuron, use_neuron_function), lambda: {"step": None}),
        "read_out": Call(nw.read_out, lambda: {"run": s.run}),
        "report": Call(nw.report.report, lambda: {"program": s.program, "run": s.run, "path": "report"}),
        "robustness": Call(nw.robustness, lambda: {"program": s.program, "x": s.x, "y": labels, "samples": 2,
                                                   "weight": 0.1}),
        "simulate": Call(nw.simulate, lambda: {"model": s.program, "x": s.x}),
        "sweep": Call(nw.sweep, lambda: {"network": s.network, "x": s.x, "grid": {"seed": [0, 1]}, "chip": "tiny",
                                         "processes": 1}),
        "to_nir": Call(nw.to_nir, lambda: {"network": s.network, "path": "saved.nir"}),
        "nn.Delay": Call(use_layer(nn.Delay), lambda: {"n": 4, "max_delay": 3}),
        "nn.DelayAnnealing": Call(nn.DelayAnnealing, lambda: {"model": delayed(), "n_steps": 3}),
        "nn.DelayedConv2d": Call(nn.DelayedConv2d, lambda: {"in_channels": 2, "out_channels": 3, "kernel_size": 2,
                                                            "max_delay": 3}),
        "nn.DelayedLinear": Call(use_layer(nn.DelayedLinear), lambda: {"n_in": 4, "n_out": 3, "max_delay": 3}),
        "nn.H1v1Frontend": Call(nn.H1v1Frontend, dict),
        "nn.H1v1Layer": Call(use_layer(nn.H1v1Layer), lambda: {"n_neurons": 4}),
        "nn.H1v1Synapse": Call(use_layer(nn.H1v1Synapse), lambda: {"n_in": 4, "n_out": 3}),
        "nn.H1v2Frontend": Call(nn.H1v2Frontend, dict),
        "nn.H1v2Layer": Call(use_layer(nn.H1v2Layer), lambda: {"n_neurons": 4}),
        "nn.H1v2Synapse": Call(use_layer(nn.H1v2Synapse), lambda: {"n_in": 4, "n_out": 3}),
        "nn.LIFLayer": Call(use_layer(nn.LIFLayer), lambda: {"n_neurons": 4}),
        "nn.LIFSynapse": Call(use_layer(nn.LIFSynapse), lambda: {"n_in": 4, "n_out": 3}),
        "nn.ProgramLayer": Call(use_layer(nn.ProgramLayer), lambda: {"neuron": leaky, "shape": 4}),
        "nn.QuantizedNetwork": Call(nn.QuantizedNetwork, lambda: dict(at_hand)),
        "nn.QuantizedReLU": Call(use_layer(nn.QuantizedReLU), lambda: {"levels": 3, "step": 0.5}),
        "nn.SignAnnealing": Call(nn.SignAnnealing, lambda: {"model": signed(), "n_steps": 3}),
        "nn.SparseTraining": Call(nn.SparseTraining, lambda: {"model": net(), "chip": "tiny", "n_cores": 1,
                                                              "n_rounds": 2}),
        "nn.busiest_core_loss": Call(nn.busiest_core_loss, lambda: {"spikes": {"in": spikes, "fc": spikes[..., :3],
                                                                               "out": spikes[..., :2]},
                                                                    "program": s.program}),
        "nn.finish_pruning": Call(nn.finish_pruning, lambda: {"model": net()}),
        "nn.firing_rate_target_mse_loss": Call(nn.firing_rate_target_mse_loss, lambda: {"spikes": spikes,
                                                                                        "target": 0.1}),
        "nn.freeze_delays": Call(nn.freeze_delays, lambda: {"model": delayed()}),
        "nn.inject_mismatch": Call(nn.inject_mismatch, lambda: {"model": net(), "weight": 0.1}),
        "nn.metrics.accuracy": Call(nn.metrics.accuracy, lambda: {"output": spikes, "labels": torch.zeros(2).long()}),
        "nn.metrics.chip_consumption": Call(nn.metrics.chip_consumption, lambda: {"program": s.program, "x": s.x}),
        "nn.prepare_net": Call(nn.prepare_net, lambda: {"model": net()}),
        "nn.prune": Call(nn.prune, lambda: {"model": net(), "sparsity": 0.5}),
        "nn.quantize_aware": Call(nn.quantize_aware, lambda: {"model": s.network, "chip": "tiny", "calibration": s.x}),
        "nn.spike": Call(nn.spike, lambda: {"v": spikes}),
        "nn.spikes_of": Call(nn.spikes_of, lambda: {"net": net(), "x": spikes}),
        "nn.topology_loss": Call(nn.topology_loss, lambda: {"model": torch.ones(5, 5)}),
        "nn.weight_magnitude_loss": Call(nn.weight_magnitude_loss, lambda: {"model": net()}),
        "nn.data.Binning": Call(nn.data.Binning, lambda: {"sensor": (4, 1, 1), "n_bins": 3}),
        "nn.data.pack_bits": Call(nn.data.pack_bits, lambda: {"spikes": s.x[0].astype(np.uint8)}),
        "nn.data.read_events": Call(nn.data.read_events, lambda: {"path": "no such.aedat4"}),
        "nn.event.EventLIF": Call(nn.event.EventLIF, lambda: {"n_in": 4, "n_out": 3, "t_end": 1.0, "tau_mem": 0.1,
                                                              "tau_syn": 0.05}),
        "nn.event.first_spike_loss": Call(nn.event.first_spike_loss, lambda: {"times": torch.ones(2, 3, 1), "tau": 0.1,
                                                                              "labels": torch.zeros(2).long(),
                                                                              "t_end": 1.0}),
        "sim.variation.Devices": Call(use_device, lambda: {"program": s.program, "variation": Variation(weight=0.1),
                                                          "seed": 0, "index": 1}),
    }  # fmt: skip


def delayed() -> torch.nn.Module:
    return nn.Sequential(nn.DelayedLinear(4, 3, 5), nn.LIFLayer(3))


def signed() -> torch.nn.Module:
    return nn.Sequential(nn.H1v1Synapse(4, 3), nn.H1v1Layer(3))


def wrong_value(rng: random.Random):
    """Something that a person may give by mistake: another number, text, array, noun, or nothing."""
    s = small()
    kind = rng.randrange(10)
    if kind < 3:
        return rng.choice((*NUMBERS, np.int64(3), np.float32(0.5), True, None, 1j, 10**5000))
    if kind < 5:
        return rng.choice(TEXTS)
    if kind == 5:
        shape = rng.choice([(), (0,), (1,), (4,), (3, 4), (3, 5, 4), (2, 0, 4)])
        value = rng.choice([n for n in NUMBERS if abs(n) < 256 or n != n])
        with np.errstate(all="ignore"):
            array = np.full(shape, value).astype(rng.choice(DTYPES)) if value == value else np.full(shape, value)
        is_number = array.dtype.kind in "bif" and array.dtype != np.uint64
        return torch.tensor(array) if is_number and rng.random() < 0.3 else array
    if kind == 6:
        return rng.choice([[], (), {}, set(), [None], [[1], [1, 2]], [1, "a"], {"fc": 1}, {"in": None}, {1: 2},
                           [(0, 0, 0)], (1, 2, 3), range(3), b"ab", [[[]]], {"fc": [(0, 0)]}, [s.network]])  # fmt: skip
    if kind == 7:
        return rng.choice([s.network, s.program, s.run, nw.Chip.load("tiny"), nw.NeuronSpec(), nw.NeuronSpec,
                           nw.Options(), s.edges[0], s.program.mapping, nw.FixedPoint()])  # fmt: skip
    if kind == 8:
        return rng.choice([net(), relu_net(), torch.ones(2), torch.nn.ReLU(), torch.float32, torch.nn.Linear,
                           np.float32, np.random.default_rng(0)])  # fmt: skip
    return rng.choice([object(), len, lambda *arguments: None, iter([1]), Exception("x"), Path("no such"), ..., int,
                       slice(3), NotImplemented])  # fmt: skip


def arguments(seed: int) -> tuple[str, dict]:
    """The function of a seed, by its name, and the arguments that it is called with."""
    rng = random.Random(seed)
    name = rng.choice(sorted(calls()))
    function, right = calls()[name]
    given = right()
    if name == "Chip.replace":
        given["key"] = rng.choice(KEYS)
    known = [p.name for p in inspect.signature(function).parameters.values() if p.kind != p.VAR_KEYWORD]
    for parameter in rng.sample(known, min(len(known), rng.choice((1, 1, 1, 2)))):
        given[parameter] = wrong_value(rng)
        while parameter in OWN and callable(given[parameter]):
            given[parameter] = wrong_value(rng)
    return name, given


def outcome(seed: int) -> str:
    """What became of the call of a seed: "refused" or "accepted", or "FAILED" with the call and what was raised."""
    name, given = arguments(seed)
    try:
        with warnings.catch_warnings(), limited():
            warnings.simplefilter("ignore")
            calls()[name].function(**given)
    except nw.NwError as e:
        text = str(e)
        return "refused" if text and "\n" != text[0] else f"FAILED {name}: no sentence: {text!r}"
    except Exception as e:  # what must not happen is what is looked for
        wrong = ", ".join(f"{key}={shortly(value)}" for key, value in given.items())
        return f"FAILED {name}: {type(e).__name__}: {str(e)[:120]!r} of {name}({wrong})"
    return "accepted"


def shortly(value) -> str:
    try:
        text = repr(value)
    except ValueError:  # a whole number of too many digits
        return "10**5000"
    return text if len(text) < 60 else f"<{type(value).__name__}>"


@contextmanager
def limited():
    """The calls in here leave files in a folder of their own only, and end in an error when they take too long."""

    def late(*_):
        raise TimeoutError(f"not done in {MOST_SECONDS} s")

    before, folder = signal.signal(signal.SIGALRM, late), os.getcwd()
    signal.alarm(MOST_SECONDS)
    try:
        with tempfile.TemporaryDirectory() as made:
            os.chdir(made)
            try:
                yield
            finally:
                os.chdir(folder)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


if __name__ == "__main__":
    sys.exit(run_seeds("python -m tests.fuzz.calls", __doc__, outcome))
