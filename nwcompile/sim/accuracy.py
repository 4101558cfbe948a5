"""Accuracy: which part of labeled samples a run answers right."""

import numpy as np

from nwcompile.errors import ModelError
from nwcompile.ir.run import Run
from nwcompile.sim.float_difference import answers


def accuracy(result: Run, labels: np.ndarray) -> float:
    """Part of the samples whose label is the run's answer, 0..1. Raises ModelError for several outputs."""
    if isinstance(result.output, dict):
        raise ModelError(f"accuracy needs one output layer; this network has {', '.join(result.output)}")
    check_labels(labels, int(np.prod(result.output.shape[2:])))
    return share_right(answers(result), labels)


def check_labels(labels: np.ndarray, n_outputs: int) -> None:
    """Raise ModelError for labels that no output neuron stands for."""
    if labels.min() < 0 or labels.max() >= n_outputs:
        raise ModelError(
            f"labels y are {labels.min()}..{labels.max()}, but the output has {n_outputs} neurons, 0..{n_outputs - 1}"
        )


def share_right(given: np.ndarray, labels: np.ndarray) -> float:
    """Part of the answers that are the label, 0..1."""
    return float(np.mean(given == labels))
