"""Answers: what the module that was imported would return, and the class of each sample."""

import warnings

import numpy as np

from nwcompile.argument_types import checked
from nwcompile.errors import ModelError, NwWarning, require_torch
from nwcompile.ir.network import Network
from nwcompile.ir.readout import Readout
from nwcompile.ir.run import Run

ERROR_CODE = "NW2309"


@checked()
def read_out(run: Run) -> np.ndarray | dict[str, np.ndarray]:
    """Return the imported module's first result for a run, `[B, *]`, or `[B, T, *]` if it has a value for every step.

    It is computed on the host by the network's readout, from states in units of the float network. Without a readout it
    is `Run.output`. Raises ModelError if the run lacks what the readout reads.
    """
    if run.readout is None:
        return run.output
    if run.totals is not None or run.window != "aligned":
        raise ModelError(
            "the module's answer is computed from the spikes of each aligned step; simulate with record='spikes' and "
            "window='aligned'"
        )
    return _run_readout(run.readout, run.spikes, run.states)


def find_answers(run: Run) -> np.ndarray | None:
    """Return int64[B]: the class of each sample by `answer_rule`, the first of equals; None for several outputs."""
    if run.readout is None and isinstance(run.output, dict):
        return None
    result = read_out(run)
    assert isinstance(result, np.ndarray), "there is one output"
    return strongest_neuron(result) if run.readout is None else _choose_class(result, run.readout)


def network_answers(readout: Readout | None, spikes: dict, states: dict, output) -> np.ndarray | None:
    """Return the classes as `find_answers` does, from spikes and states of layers, `[B, T, *shape]`.

    `output` is that of `output_of`. Returns None for several outputs, or if the readout cannot read these.
    """
    if readout is None:
        return strongest_neuron(output) if isinstance(output, np.ndarray) else None
    n_steps = next(iter(spikes.values())).shape[1]
    if readout.n_steps not in (None, n_steps) or not all(
        layer in spikes and (state is None or state in states.get(layer, {})) for layer, state in readout.records
    ):
        return None  # it was recorded on another number of steps, or reads layers of the host
    return _choose_class(_run_readout(readout, spikes, states), readout)


def record_for(network: Network) -> str:
    """Return the `record` of `simulate` with which the network's answers can be found."""
    return "all" if network.readout is not None and network.readout.state_layers else "spikes"


def count_classes(network: Network) -> int | None:
    """Return the number of classes among which a sample's answer is; None if it has none, or if only a run tells."""
    if network.readout is not None:
        return network.readout.n_classes
    return network.node(network.outputs[0]).n_neurons if len(network.outputs) == 1 else None


def answer_rule(network: Network) -> str:
    """Describe the rule by which `find_answers` classifies a sample."""
    if network.readout is not None:
        return f"class = {network.readout.text}"
    fires = any(network.node(name).neuron.fires for name in network.outputs)
    return f"class = output neuron with {'most spikes' if fires else 'the largest sum of its membrane'} over all steps"


def warn_of_answers(network: Network, what: str, stacklevel: int = 3) -> None:
    """Warn with NwWarning that `what` uses the network's answers, if the imported module's answers may differ."""
    if network.left_out and network.readout is None:
        warnings.warn(
            f"{what} follows the rule '{answer_rule(network)}', but {network.left_out}", NwWarning, stacklevel
        )


def strongest_neuron(output: np.ndarray) -> np.ndarray:
    """Return int64[B]: the neuron with the largest sum over all steps of `[B, T, *shape]`, the first of equals."""
    return output.reshape(*output.shape[:2], -1).sum(1).argmax(1)


def _run_readout(readout: Readout, spikes: dict, states: dict) -> np.ndarray:
    require_torch(f"the module's answer, {readout.text},")
    from nwcompile.sim.sequence.readout import run_readout

    return run_readout(readout, spikes, states)


def _choose_class(result: np.ndarray, readout: Readout) -> np.ndarray:
    """Return int64[B]: the class, the most frequent of all steps, or the largest entry, summed over the steps."""
    if readout.is_class:
        classes = result.reshape(len(result), -1).astype(np.int64)
        return np.array([_most_frequent(of_steps) for of_steps in classes])
    return strongest_neuron(result if readout.is_per_step else result[:, None])


def _most_frequent(numbers: np.ndarray) -> int:
    values, counts = np.unique(numbers, return_counts=True)
    return int(values[counts.argmax()])
