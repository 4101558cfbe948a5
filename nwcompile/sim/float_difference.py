"""Distance between a program and its float network on the same input: rates, spikes and answers."""

from dataclasses import dataclass

import numpy as np

from nwcompile.errors import ModelError, OptionError
from nwcompile.ir.network import Network
from nwcompile.ir.program import Program
from nwcompile.ir.run import Run
from nwcompile.sim.answers import find_answers

ERROR_CODE = "NW6105"


@dataclass(frozen=True)
class LayerDifference:
    """One layer in float and in fixed point, over all samples and aligned steps.

    `spikes_float`, `spikes_fixed`: sums of payloads. `rate_float`, `rate_fixed`: the same per neuron, step and sample.
    `n_differing`: pairs of neuron and step whose spikes differ, first in `first_step`. `share_differing`, 0..1: their
    share of the pairs in which either network spikes. A readout has only `membrane_error`, the root mean square of
    the difference over that of the float membrane; None if the latter is 0 or the scale is unknown.
    """

    layer: str
    n_neurons: int
    spikes_float: int | None = None
    spikes_fixed: int | None = None
    rate_float: float | None = None
    rate_fixed: float | None = None
    n_differing: int | None = None
    share_differing: float | None = None
    first_step: int | None = None
    membrane_error: float | None = None


@dataclass(frozen=True)
class FloatDifference:
    """Differences of all layers, and the answer to each sample (`find_answers`), None where there is none.

    `backend` is the integer backend that ran the program.
    """

    backend: str
    layers: tuple[LayerDifference, ...]
    answers_float: tuple[int, ...] | None
    answers_fixed: tuple[int, ...] | None

    @property
    def n_alike(self) -> int | None:
        """Number of samples with the same answer from both."""
        if self.answers_float is None or self.answers_fixed is None:
            return None
        return sum(a == b for a, b in zip(self.answers_float, self.answers_fixed, strict=True))


def check_network(program: Program, network: Network | None) -> None:
    """Raise OptionError or ModelError unless `network` is a float network with the layers of `program`.

    Layers that legalization added (relay neurons and copies) exist only in the program.
    """
    if network is None:
        raise OptionError(
            "'float' needs the network as it was before quantization, which a program does not hold; give it as "
            "network=, or with --model on the command line"
        )
    if not isinstance(network, Network):
        raise OptionError(f"network= takes the nw.Network that was compiled, not {type(network).__name__}")
    if network.is_fixed:
        raise ModelError(
            "the network came in integers, so there is no float network to compare with; leave 'float' out of the "
            "backends"
        )
    in_program, in_network = ({name: n.node(name).shape for name in n.layers} for n in (program.network, network))
    in_program |= {name: node.shape for name, node in program.host_layers.items()}
    added = set(in_program) - set(in_network) if program.manifest.get("legalization") else set()
    for name in (*in_program, *in_network):
        if name not in added and in_program.get(name) != in_network.get(name):
            raise ModelError(
                f"the program was not made from this network: layer {name!r} has shape "
                f"{_shape(in_program.get(name))} in the program and {_shape(in_network.get(name))} in the network; "
                "give the one that was compiled"
            )


def float_difference(program: Program, wanted: Run, run: Run) -> FloatDifference:
    """Compare the float run `wanted` with a run of the program. Both are aligned and have the same input."""
    names = (*program.host_layers, *program.network.layers)
    layers = tuple(_compare_layer(program, name, wanted, run) for name in names if name in wanted.spikes)
    both = [None if (classes := _try_answers(r)) is None else tuple(classes.tolist()) for r in (wanted, run)]
    return FloatDifference(run.backend, layers, *both)


def _try_answers(run: Run) -> np.ndarray | None:
    """Return the classes; None if there are several outputs, or if the readout is for another number of steps."""
    try:
        return find_answers(run)
    except ModelError:
        return None


def _compare_layer(program: Program, name: str, wanted: Run, run: Run) -> LayerDifference:
    node = program.host_layers.get(name) or program.network.node(name)
    if not node.neuron.fires:
        return LayerDifference(name, node.n_neurons, membrane_error=_membrane_error(program, name, wanted, run))
    in_float = wanted.spikes[name]
    in_fixed = run.spikes[name]
    differing = in_float != in_fixed
    n_differing = int(np.count_nonzero(differing))
    n_either = np.count_nonzero((in_float != 0) | (in_fixed != 0))
    spikes_float, spikes_fixed = (int(np.abs(spikes.astype(np.int64)).sum()) for spikes in (in_float, in_fixed))
    of_step = differing.reshape(*in_float.shape[:2], -1).any((0, 2))
    return LayerDifference(
        layer=name,
        n_neurons=node.n_neurons,
        spikes_float=spikes_float,
        spikes_fixed=spikes_fixed,
        rate_float=spikes_float / in_float.size,
        rate_fixed=spikes_fixed / in_float.size,
        n_differing=n_differing,
        share_differing=n_differing / n_either if n_either else 0.0,
        first_step=int(of_step.argmax()) if n_differing else None,
    )


def _membrane_error(program: Program, name: str, wanted: Run, run: Run) -> float | None:
    scale = program.output_scale.get(name)
    state = program.network.node(name).neuron.readout
    expected = wanted.states[name][state].astype(np.float64)
    size = float(np.sqrt(np.mean(expected**2)))
    if not scale or not size:
        return None
    return float(np.sqrt(np.mean((run.states[name][state] / scale - expected) ** 2))) / size


def _shape(shape: tuple[int, ...] | None) -> str:
    return "none" if shape is None else str(list(shape))
