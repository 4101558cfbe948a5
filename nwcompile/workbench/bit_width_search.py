"""Bit-width search: find the fewest weight bits per layer with which a network keeps an accuracy on given samples.

The search is greedy. First all layers lose a bit at a time together, as long as the accuracy allows. Then each layer
alone loses one bit, which orders the layers: the least sensitive first (ties: the one with more weights, then the one
nearer to the output). In that order each layer is narrowed as far as possible. Every try evaluates the whole network:
it runs the compiler's stages up to `compare`, without the checks of whether it fits, and the sequence backend.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from nwcompile.errors import ModelError
from nwcompile.ir.chip import Chip
from nwcompile.ir.host import Injected
from nwcompile.ir.network import Network
from nwcompile.ir.options import Options
from nwcompile.passes.prepare.input_layer import behind_host
from nwcompile.passes.quantize.quantize import encode_registers
from nwcompile.passes.stages.draft import Draft
from nwcompile.passes.stages.run import run
from nwcompile.sim import simulate
from nwcompile.sim.accuracy import share_right
from nwcompile.sim.answers import find_answers, network_answers, record_for
from nwcompile.sim.inputs import add_constants, prepare_inputs
from nwcompile.sim.runs import output_of
from nwcompile.sim.sequence.run import trace_layers

ERROR_CODE = "NW1007"
Widths = dict[str, int]


@dataclass(frozen=True)
class Narrowed:
    """The result of a search: widths by layer at the `start`, and the narrowest (None if `start` is too inaccurate).

    Accuracies are shares of the evaluated samples, 0..1. `tried` has every try in order. `n_weights` is by layer.
    """

    start: Widths
    narrowest: Widths | None
    accuracy_float: float
    tried: list[tuple[Widths, float]]
    n_weights: dict[str, int]

    @property
    def accuracy_start(self) -> float:
        """The accuracy at the start widths."""
        return self.tried[0][1]

    @property
    def accuracy(self) -> float | None:
        """The accuracy at the narrowest widths."""
        return next((part for widths, part in self.tried if widths == self.narrowest), None)


def find_narrowest(
    network: Network,
    chip: Chip,
    calibration,
    x,
    labels: np.ndarray,
    options: Options,
    drop: float,
    on_try: Callable | None = None,
) -> Narrowed:
    """Find the narrowest weights with which a float network loses at most `drop` (0..1) of its float accuracy on `x`.

    `calibration` chooses the scales; the accuracy is that of samples `x` `[B, T, *shape]` with `labels` int[B]. The
    search starts at the widths of `options`, or the chip's own. `on_try(widths, accuracy)` is called after each try.
    Raises ModelError for a network in integers or with several outputs, and the errors of `quantize`.
    """
    if network.is_fixed:
        raise ModelError("the network is in integers already; widths are searched for float networks")
    network.verify()
    network = network if options.readout is None else network.change_readout(options.readout)
    labels = np.asarray(labels)
    calibrated = Draft(network, chip, options, calibration=x if calibration is None else calibration)
    given = run(calibrated, until="input")
    user = prepare_inputs(network, x)[0]
    if given.input.host is None:
        samples = prepare_inputs(network, x, None, chip, options.on_multi_spike)[0]
    else:
        samples = behind_host(given.network, given.input.host, user)
    if calibration is None:
        given = replace(given, input=replace(given.input, samples=None))
    wanted = find_answers(simulate(network, user, record=record_for(network)))
    if wanted is None:
        raise ModelError(
            f"accuracy needs one output layer, or a readout; this network has the outputs {', '.join(network.outputs)}"
        )
    normal = run(given, after="input", until="normalize").network
    into = {
        name: [c for c in normal.into(name) if c.has_weight and not isinstance(c, Injected)] for name in normal.layers
    }
    n_weights = {name: sum(np.size(c.weight) for c in edges) for name, edges in into.items() if edges}
    start = {name: max(c.weight_bits or chip.weights.bits for c in into[name]) for name in n_weights}

    def accuracy(widths: Widths) -> float:
        chosen = replace(options, bits=None, layer_bits=widths)
        legal = run(replace(given, options=chosen), after="input", until="legalize")  # even if it does not fit
        fixed = run(legal, after="schedule", until="compare")
        inputs = encode_registers(add_constants(fixed.legal, samples), fixed.registers)
        spikes, states = trace_layers(fixed.network, inputs, keep_states=record_for(network) == "all")
        readout = None if network.readout is None else network.readout.in_integers(fixed.table)
        answers = network_answers(readout, spikes, states, output_of(fixed.network, spikes, states))
        assert answers is not None, "the float network had answers"
        return share_right(answers, labels)

    float_accuracy = share_right(wanted, labels)
    tries = TriedWidths(accuracy, float_accuracy - drop, on_try)
    narrowest_widths = search_widths(start, n_weights, tries) if tries.keeps(start) else None
    return Narrowed(start, narrowest_widths, float_accuracy, tries.made, n_weights)


@dataclass(eq=False)
class TriedWidths:
    """Cache of tried widths and their accuracies; `keeps` compares an accuracy with `least`."""

    accuracy: Callable[[Widths], float]
    least: float
    on_try: Callable | None = None
    made: list[tuple[Widths, float]] = field(default_factory=list)

    def measure_accuracy(self, widths: Widths) -> float:
        """Return the accuracy of these widths, from the cache if they were tried before."""
        for known, part in self.made:
            if known == widths:
                return part
        part = self.accuracy(widths)
        self.made.append((widths, part))
        if self.on_try is not None:
            self.on_try(widths, part)
        return part

    def keeps(self, widths: Widths) -> bool:
        return self.measure_accuracy(widths) >= self.least - 1e-12


def search_widths(start: Widths, n_weights: dict[str, int], tries: TriedWidths) -> Widths:
    """Search greedily from widths that keep the accuracy; layers are in topological order."""
    widths = start
    while any(bits > 1 for bits in widths.values()):
        together = {name: max(bits - 1, 1) for name, bits in widths.items()}
        if not tries.keeps(together):
            break
        widths = together
    alone = {name: _narrow_layer(widths, name) for name in widths if widths[name] > 1}
    rank = {name: i for i, name in enumerate(widths)}
    order = sorted(alone, key=lambda name: (-tries.measure_accuracy(alone[name]), -n_weights[name], -rank[name]))
    for name in order:
        while widths[name] > 1 and tries.keeps(_narrow_layer(widths, name)):
            widths = _narrow_layer(widths, name)
    return widths


def _narrow_layer(widths: Widths, name: str) -> Widths:
    return {**widths, name: widths[name] - 1}
