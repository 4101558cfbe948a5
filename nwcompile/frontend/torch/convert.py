"""Convert an artificial ReLU network to integrate-and-fire neurons over time, or to sigma-delta neurons.

A layer of sigma-delta neurons counts its activations in levels, as an integer network does. Its neurons add up the
received changes (sigma) and send the change of their level since the last message (delta) if it is at least the
threshold. The bias is the initial sum. lava's neurons (lava.proc.sdn) store unsent changes in a residue, which is
equivalent; they send fractions, the neurons here round to the nearest level.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import torch

from nwcompile.errors import ModelError, OptionError, check_int, shown, unknown_choice
from nwcompile.frontend.torch.activations import ON_HOST, ReluNet, record_activations, trace_relus, verify_same
from nwcompile.frontend.torch.build import READOUT, Builder
from nwcompile.frontend.torch.importing import name_input
from nwcompile.frontend.torch.modules import unwrap_module, verify_modules
from nwcompile.frontend.torch.operations import verify_finite
from nwcompile.frontend.torch.operators.connect import Connector, list_maps, scale_symbol
from nwcompile.frontend.torch.operators.graph import Node as Operator
from nwcompile.frontend.torch.operators.graph import StepGraph, is_ref
from nwcompile.frontend.torch.symbols import Source, is_permutation, with_shape
from nwcompile.ir.connection import Connection, Scale
from nwcompile.ir.network import Network, Node
from nwcompile.ir.neuron import NeuronSpec
from nwcompile.ir.neuron_programs.program import NeuronProgram, Operation, StateVariable
from nwcompile.passes.prepare.normalize import normalize
from nwcompile.sim import simulate

ERROR_CODE = "NW2305"
MAX_STEPS = 1 << 20  # Longer presentations are a mistake: the answer no longer changes.
MIN_UNIT = 2.0**-126  # the smallest normal float32
RESETS = ("subtract", "zero")
NEURONS = ("integrate-and-fire", "sigma-delta")
MAX_LEVELS = (1 << 15) - 1  # More than 16 bits per message are useless: weights have 8.
EXAMPLE_SAMPLES = 2  # Samples for tracing; the structure does not depend on their number.
MOST_OFF = 1e-3  # of the largest output: folded maps are rounded to float32, in another order of sums


def convert(
    ann: torch.nn.Module,
    calibration,
    steps: int | None = None,
    method: str = "percentile",
    percentile: float = 99.9,
    unit: float = 1.0,
    reset: str = "subtract",
    neuron: str = "integrate-and-fire",
    levels: int = 127,
    threshold: int | Mapping[str, int] = 0,
) -> Network:
    """Return the float network of integrate-and-fire neurons that computes a trained ReLU network in `steps` steps.

    `ann` is any module with input `[B, *shape]` whose operators are ReLUs, clipped ones (ReLU6, clamp, Hardtanh) or
    QuantizedReLUs, and linear maps of any kind; it is left unchanged. A softmax or sigmoid at the end becomes the
    readout (`nw.read_out`), which takes the mean of the output over the steps. `calibration`: samples `[B,
    *shape]` of its training data. Every ReLU becomes a layer of neurons in the network's own units: v adds up the input
    of the ReLU, and each spike, worth the threshold, subtracts it, so the mean of the spikes over the steps is the
    activation. Weights stay unchanged. Half a threshold, spread over the steps as a bias, makes the count a rounded one
    (Bu et al., ICLR 2022, there as initial potential). `method` chooses the value of a spike:

    - `max`: the layer's largest activation on the samples (threshold balancing, Diehl et al., IJCNN 2015);
    - `percentile`: that percentile of its activations above 0 (Rueckauer et al., Front. Neurosci. 2017);
    - `quantized`: `steps` times the step of its `nn.QuantizedReLU` (`levels` times, for fewer steps than levels), so
      that counts are the trained levels. The neurons may send negative spikes to cancel premature ones (spikes `gated`,
      the calcium-gated bipolar neuron of Gao et al., Front. Neurosci. 2023). On a chip without negative spikes they
      send none, with a warning.

    `reset` "zero" is for chips whose neurons cannot subtract: each spike discards the membrane above the threshold, so
    the same accuracy needs more steps.

    The network's input is the sample in every step, as real numbers (constant current) or as integer multiples of
    `unit`, as a chip takes them: see `nwcompile.encode`. Logits are the mean of the output over the steps.

    With `neuron="sigma-delta"` every ReLU becomes a layer of sigma-delta neurons (O'Connor and Welling, ICLR 2017; as
    programs, for chips with programmable neurons). Activations are rounded to `levels`, the largest being the spike
    value of `method` (with `quantized`, to the trained levels). The neurons send, as a signed graded message, the
    change in levels if it is at least `threshold`: one number, or one per layer. With threshold 0 the output equals
    that of the network with activations rounded this way. Inputs are changes, which `encode(..., kind="delta")`
    computes from samples or sequences; `steps` and `reset` have no effect. Logits are the output of one step.

    Raises ModelError for modules that spikes cannot replace (it names them all), a layer that is never active on the
    calibration, and unusable calibration or weights; OptionError for unusable options.
    """
    if not isinstance(ann, torch.nn.Module):
        raise ModelError(f"convert takes a torch.nn.Module, not {type(ann).__name__}")
    if not isinstance(method, str) or method not in METHODS:
        raise OptionError(unknown_choice("method", method, METHODS))
    if not isinstance(reset, str) or reset not in RESETS:
        raise OptionError(unknown_choice("reset", reset, RESETS))
    if method == "quantized" and reset != "subtract":
        raise OptionError(
            "method 'quantized' takes spikes back, so its neurons must subtract; use method='percentile', on a network "
            f"with plain ReLUs, with reset={reset!r}"
        )
    if not isinstance(neuron, str) or neuron not in NEURONS:
        raise OptionError(unknown_choice("neuron", neuron, NEURONS))
    is_delta = neuron == "sigma-delta"
    n_levels = check_int("levels", levels, 1, MAX_LEVELS)
    n_steps = _check_options(1 if is_delta else steps, percentile, unit)
    verify_modules(ann)
    verify_finite(unwrap_module(ann))
    samples = _read_samples(calibration, unwrap_module(ann))
    net = trace_relus(ann, samples)
    _verify_relus(net, method)
    above = record_activations(net, samples)
    verify_same(net, samples)
    _verify_active(above, len(samples))
    quantized = {name: relu.quantized for name, relu in net.relus.items()}
    worth = {name: METHODS[method](quantized[name], above[name], percentile, n_steps) for name in above}
    spikes = "gated" if method == "quantized" else "binary"
    network = _build_network(net, NeuronSpec(strict=False, reset=reset, spikes=spikes))
    _verify_maps(network, net, samples[:EXAMPLE_SAMPLES].cpu())
    if is_delta:
        own_levels = {name: getattr(part, "levels", n_levels) for name, part in quantized.items()}
        level = {name: worth[name] / own_levels[name] for name in worth}
        limits = _thresholds_per_layer(threshold, list(worth))
        network = convert_to_sigma_delta(network, level, own_levels, limits, unit)
    else:
        network = _balance_thresholds(network, worth, n_steps, unit)
    return _read_out_tail(network, net, is_delta) if net.tail else network


def _build_network(net: ReluNet, neuron: NeuronSpec) -> Network:
    """Return the network with `neuron` for every ReLU, and a readout unless a ReLU is the output."""
    source = Source(name_input(net.module), net.nodes[0].shape[1:])
    graph = StepGraph([], [], set(), [])
    connector = Connector(graph, {net.nodes[0]: source}, lambda *_, **__: False, list_maps(net.module))
    layers = {relu.node: (name, relu) for name, relu in net.relus.items()}
    clipped = {node for relu in net.relus.values() for node in relu.clipped}
    is_read = bool(net.tail) or net.output not in layers or layers[net.output][1].low != 0
    answer = net.output.op.site.path or "answer"
    answer = f"{answer}.answer" if answer in net.relus else answer
    builder = Builder(source, {*net.relus, answer})
    for node in net.nodes[1:]:
        shape = _shape_of_sample(node)
        if node in layers:
            name, relu = layers[node]
            fed = with_shape(connector.look_up(node.refs[0]), shape)
            moved = fed if is_permutation(fed) and not fed.is_view else None  # after the neurons: a map stays a map
            fed = fed if moved is None else moved.sources[0]
            builder.add_layer(name, neuron, scale_symbol(fed, 1, -relu.low, name))
            symbol = scale_symbol(Source(name, fed.shape), 1, relu.low, name)
            connector.symbols[node] = symbol if moved is None else replace(moved, sources=(symbol,))
        elif node in clipped:
            connector.symbols[node] = connector.look_up(node.refs[0])
        elif isinstance(node.op.value, torch.Tensor):
            connector.connect(node)
    if is_read:
        builder.add_layer(answer, READOUT, with_shape(connector.connect(net.output), _shape_of_sample(net.output)))
    return builder.build_network()


def _verify_maps(network: Network, net: ReluNet, samples: torch.Tensor) -> None:
    """Raise ModelError unless the connections compute on `samples` [B, *shape] what the operators between ReLUs do."""
    nodes = dict(network.nodes)
    for name, relu in net.relus.items():
        nodes[name] = replace(nodes[name], neuron=clipped_relu(relu.high - relu.low))
    run = simulate(Network(network.inputs, nodes, network.connections), samples[:, None].float().numpy())
    rows = [net.run_sample(x[None], takes_levels=False)[net.output].reshape(-1) for x in samples]
    wanted = torch.stack(rows).float().numpy()
    off = np.abs(np.asarray(run.output).reshape(wanted.shape) - wanted).max()
    if not off <= max(MOST_OFF, 32 * torch.finfo(samples.dtype).eps) * np.abs(wanted).max():
        raise ModelError(
            f"nwcompile reads a map between the ReLUs wrongly: the output differs by {off:.3g} on the calibration "
            "samples; please report the module"
        )


def _shape_of_sample(node: Operator) -> tuple[int, ...]:
    """Return a node's shape without the axis of its one sample, which `squeeze()` may have removed before."""
    return node.shape[1:] if len(node.shape) > 1 and node.shape[0] == 1 else node.shape or (1,)


def _read_out_tail(network: Network, net: ReluNet, is_delta: bool) -> Network:
    """Return the network with a readout: what follows its last layer, of the mean output, or of the last one."""
    readout = network.change_readout("last" if is_delta else "sum").readout
    assert readout is not None, "it was just chosen"
    rows = [*readout.after]
    place: dict[Operator, int] = {}

    def add_row(operator: str, arguments: list) -> None:
        rows.append({"operator": operator, "arguments": arguments, "options": {}})

    if not is_delta:
        add_row("div.Tensor", [{"after": len(rows) - 1}, {"steps": True}])
    add_row("reshape.default", [{"after": len(rows) - 1}, list(net.output.shape)])
    place[net.output] = len(rows) - 1
    for node in net.tail:
        arguments = [{"after": place[a.node]} if is_ref(a) else a for a in node.args]
        add_row(f"{node.name}.{node.op.func._overloadname}", arguments)
        place[node] = len(rows) - 1
    names = ", ".join(node.name.strip("_") for node in net.tail if node.name in ON_HOST)
    what = f"largest of {names} of the {'last' if is_delta else 'mean'} {network.outputs[0]!r}, as in the module"
    result = {"after": len(rows) - 1}
    shape = net.tail[-1].shape
    return replace(network, readout=replace(readout, after=tuple(rows), result=result, shape=shape, text=what))


def _thresholds_per_layer(given, layers: list[str]) -> dict[str, int]:
    """Return the threshold of every layer, from one number or a dict by name."""
    if not isinstance(given, Mapping):
        return dict.fromkeys(layers, check_int("threshold", given, 0, MAX_LEVELS))
    for name in given:
        if name not in layers:
            raise OptionError(unknown_choice("threshold of layer", name, layers))
    return {name: check_int(f"threshold of {name!r}", given.get(name, 0), 0, MAX_LEVELS) for name in layers}


def _verify_active(above: dict[str, np.ndarray], n_samples: int) -> None:
    """Raise ModelError unless every ReLU returned something above 0, and only finite numbers."""
    for path, values in above.items():
        if not np.isfinite(values).all():
            raise ModelError(
                f"layer {path!r} gives NaN or infinity on the calibration samples; the network is not usable, train it "
                "again"
            )
        if not values.size:
            raise ModelError(
                f"layer {path!r} is never above 0 on the {n_samples} calibration samples, so its threshold cannot "
                "be chosen; give samples scaled as in training, or train it again"
            )


# Value of a spike, from the ReLU, its activations above 0, the percentile and the number of steps.
METHODS: dict[str, Callable] = {
    "max": lambda _relu, above, _percentile, _steps: float(above.max()),
    "percentile": lambda _relu, above, percentile, _steps: float(np.percentile(above, percentile)),
    "quantized": lambda relu, _above, _percentile, steps: max(steps, relu.levels) * float(relu.step.detach()),
}


def _balance_thresholds(network: Network, worth: dict[str, float], steps: int, unit: float) -> Network:
    """Set thresholds to the spike values `worth`, by which spikes are also scaled for the next layers."""
    scales = dict(worth) if unit == 1 else {**dict.fromkeys(network.inputs, unit), **worth}
    nodes: dict[str, Node] = {}
    connections: list[Connection] = []
    values: dict[str, str] = {}
    for name, node in network.nodes.items():
        spec = node.neuron
        if name in worth:
            spec = spec.replace(threshold=worth[name], bias=worth[name] / (2 * steps))
        nodes[name] = Node(name, node.shape, spec)
    for c in network.connections:
        if c.source in scales and c.source not in values:
            value = f"{c.source}/value"
            values[c.source] = value
            nodes[value] = Node(value, network.node(c.source).shape)
            connections.append(Scale(c.source, value, scales[c.source]))
        connections.append(c.replace(source=values.get(c.source, c.source)))
    balanced = Network(network.inputs, nodes, tuple(connections))
    balanced.verify()
    return balanced


def _check_options(steps, percentile, unit) -> int:
    n_steps = check_int("steps", steps, 1, MAX_STEPS)
    if not isinstance(percentile, int | float | np.number) or not 0 < percentile <= 100:
        raise OptionError(f"percentile={shown(percentile)} must be a number above 0, at most 100")
    if not isinstance(unit, int | float | np.number) or not 0 < unit < float("inf"):
        raise OptionError(f"unit={shown(unit)} must be a number above 0, the value of one unit of the input")
    if not MIN_UNIT <= unit <= 1 / MIN_UNIT:
        raise OptionError(f"unit={shown(unit)} is out of the range of float32; scale the samples to 0..1")
    return n_steps


def _verify_relus(net: ReluNet, method: str) -> None:
    """Raise ModelError unless all ReLUs are quantized, or none is."""
    quantized = [name for name, relu in net.relus.items() if relu.quantized is not None]
    plain = [name for name in net.relus if name not in quantized]
    if method == "quantized" and plain:
        raise ModelError(
            f"method 'quantized' needs every ReLU to be an nn.QuantizedReLU before training; plain ones: "
            f"{', '.join(map(repr, plain))}; replace and train them, or use method='percentile'"
        )
    if method != "quantized" and quantized:
        raise ModelError(
            f"{', '.join(map(repr, quantized))} are quantized ReLUs, whose steps say what a spike is worth; "
            f"use method='quantized', not {method!r}"
        )


def _read_samples(calibration, ann: torch.nn.Module) -> torch.Tensor:
    """Return the calibration samples `[B, *shape]` on the network's device and in its number type."""
    if calibration is None:
        raise ModelError("convert needs calibration samples [B, *shape]; a hundred of the training data will do")
    try:
        x = torch.as_tensor(calibration.copy() if isinstance(calibration, np.ndarray) else calibration)
    except (TypeError, ValueError, RuntimeError):
        x = None
    if x is None or x.layout != torch.strided or x.is_quantized or x.is_meta:
        kind = type(calibration).__name__ if x is None else "sparse, quantized or meta"
        raise ModelError(f"calibration must be an array or tensor of numbers [B, *shape], not {kind}")
    if x.ndim < 2 or 0 in x.shape:
        raise ModelError(
            f"calibration must be samples [B, *shape], at least one, got shape {list(x.shape)}; "
            "give a hundred of the training data"
        )
    if x.is_complex() or (x.is_floating_point() and not x.isfinite().all()):
        raise ModelError("calibration has NaN, infinite or complex values; clean the data first")
    parameter = next((p for p in ann.parameters() if p.is_floating_point()), torch.empty(0))
    return x.detach().to(parameter.device, parameter.dtype)


def clipped_relu(high: float) -> NeuronProgram:
    """Return neurons without a state that send a ReLU of their sum, of at most `high`."""
    steps: list[tuple] = [("positive", "max", "x", 0)]
    steps += [("message", "min", "positive", "high")] if np.isfinite(high) else []
    return NeuronProgram(
        name="relu",
        states=(),
        operations=_build_operations(steps),
        output=steps[-1][0],
        sends="graded",
        parameters={"high": high} if np.isfinite(high) else {},
    )


def sigma_delta(levels: int, threshold: int, bias) -> NeuronProgram:
    """Return neurons for a ReLU with `levels` above 0; `threshold` and `bias` are in levels."""
    steps = [
        ("total", "add", "sigma", "x"),
        ("positive", "max", "total", 0),
        ("clipped", "min", "positive", "levels"),
        ("nearest", "add", "clipped", 0.5),
        ("level", "floor", "nearest"),
        ("change", "sub", "level", "told"),
        ("size", "abs", "change"),
        ("is_sent", "le", "threshold", "size"),
        ("message", "select", "is_sent", "change", 0),
        ("told_next", "add", "told", "message"),
    ]
    return NeuronProgram(
        name="sigma_delta_relu",
        states=(StateVariable("sigma", "total", bias), StateVariable("told", "told_next")),
        operations=_build_operations(steps),
        output="message",
        sends="graded",
        parameters={"levels": levels, "threshold": threshold},
    )


def sigma_readout(bias) -> NeuronProgram:
    """Return a readout: a bias plus the sum of the received changes."""
    return NeuronProgram(
        name="sigma_readout",
        states=(StateVariable("sigma", "total", bias),),
        operations=_build_operations([("total", "add", "sigma", "x")]),
        output="sigma",
        sends="none",
    )


def convert_to_sigma_delta(
    network: Network, worth: dict[str, float], levels: dict[str, int], threshold: dict[str, int], unit: float
) -> Network:
    """Convert a network to sigma-delta neurons: layers in `worth` replace ReLUs, others become readouts.

    `worth`: the value of a level of the layer, in units of the network. `unit`: the value of an input of 1.
    """
    network = normalize(network)
    value = dict.fromkeys(network.inputs, unit) | worth
    nodes: dict[str, Node] = {}
    connections = []
    for name, node in network.nodes.items():
        edges = network.into(name)
        biases = (c.bias_per_neuron(node.shape) for c in edges)
        bias = sum((b.astype(np.float64) for b in biases if b is not None), 0.0)
        level = worth.get(name, 1.0)
        start = np.asarray(bias / level, np.float32)
        program = sigma_delta(levels[name], threshold[name], start) if name in worth else sigma_readout(start)
        nodes[name] = Node(name, node.shape, program)
        for c in edges:
            weight = np.asarray(c.weight, np.float64) * (value[c.source] / level)
            connections.append(c.replace(weight=weight.astype(np.float32), bias=None))
    made = Network(network.inputs, nodes, tuple(connections))
    made.verify()
    return made


def _build_operations(steps: list[tuple]) -> tuple[Operation, ...]:
    return tuple(Operation(result, kind, tuple(given)) for result, kind, *given in steps)
