"""Accuracy: the share of labeled samples that a model classifies correctly, and its confidence interval."""

from dataclasses import dataclass
from math import prod, sqrt

import numpy as np

from nwcompile.argument_types import checked
from nwcompile.errors import ModelError, OptionError
from nwcompile.ir.network import Network
from nwcompile.ir.program import Program
from nwcompile.ir.run import Run
from nwcompile.ir.shown import count_text
from nwcompile.sim import simulate
from nwcompile.sim.answers import answer_rule, find_answers, record_for, warn_of_answers
from nwcompile.sim.inputs import prepare_inputs

ERROR_CODE = "NW6003"
N_RESAMPLED = 1000  # Enough for percentiles 2.5 and 97.5 (Efron and Tibshirani 1993, section 13.3).
LARGEST_LABEL = 1 << 53  # Labels are whole numbers that float64 holds exactly.
Z_95 = 1.959964  # Standard deviations around the mean that contain 95 % of a normal distribution.


@dataclass(frozen=True)
class Evaluation:
    """Accuracy of a model on labeled samples, 0..1, and its 95 % confidence interval (`share_interval`).

    `rule`: how the class of a sample is read from the outputs, as text.
    """

    accuracy: float
    interval: tuple[float, float]
    n_samples: int
    rule: str

    def __repr__(self) -> str:
        low, high = (f"{100 * end:.1f}" for end in self.interval)
        samples = count_text(self.n_samples, "sample")
        return f"{100 * self.accuracy:.2f} % ({low} to {high} % at 95 % confidence, {samples}); {self.rule}"


@checked("backend", "device")
def evaluate(model: Network | Program, x, y, backend: str | None = None, device: str = "cpu") -> Evaluation:
    """Measure the accuracy of a network or a program on labeled samples.

    `x` is an input of `simulate`, `y` int[B] the labels. By default a network runs on backend "reference", a program on
    "sequence". An NwWarning says if the imported module may answer by another rule. Raises ModelError for unusable `x`
    or `y`, or several outputs without a readout, OptionError for another model, and the errors of `simulate`.
    """
    if not isinstance(model, Network | Program):
        raise OptionError(f"evaluate takes a Network or a Program, not {type(model).__name__}")
    evaluation = find_accuracy(model, x, y, backend, device)
    warn_of_answers(model if isinstance(model, Network) else model.network, "the accuracy", 4)  # one level is `checked`
    return evaluation


def find_accuracy(model: Network | Program, x, y, backend: str | None = None, device: str = "cpu") -> Evaluation:
    """Measure the accuracy as `evaluate` does, without its warning."""
    network = model if isinstance(model, Network) else model.network
    backend = backend or ("sequence" if isinstance(model, Program) else "reference")
    limits = (model.chip, model.on_multi_spike) if isinstance(model, Program) else ()
    inputs, n_samples, _ = prepare_inputs(network, x, None, *limits)
    labels = label_array(y, n_samples)
    share = accuracy(simulate(model, inputs, backend, device, record=record_for(network)), labels)
    return Evaluation(share, share_interval(share, n_samples), n_samples, answer_rule(network))


def accuracy(result: Run, labels: np.ndarray) -> float:
    """Return the share of samples whose label is the run's answer, 0..1. Raises ModelError for several outputs."""
    answers = find_answers(result)
    if answers is None:
        raise ModelError(f"accuracy needs one output layer, or a readout; the outputs are {', '.join(result.output)}")
    if result.readout is not None:
        n_classes = result.readout.n_classes
    else:
        assert not isinstance(result.output, dict), "several outputs have no answers"
        n_classes = prod(result.output.shape[2:])
    if n_classes is not None:
        check_labels(labels, n_classes)
    return share_right(answers, labels)


def label_array(y, n_samples: int) -> np.ndarray:
    """Return labels as int64[B]. Raises ModelError unless they are whole numbers, one per sample."""
    try:
        labels = np.asarray(y.detach().cpu().numpy() if hasattr(y, "detach") else y)
    except (TypeError, ValueError, RuntimeError):
        raise ModelError("labels y must be an array of whole numbers, one for each sample") from None
    if labels.shape != (n_samples,):
        raise ModelError(
            f"labels y of shape {list(labels.shape)} do not fit the {n_samples} samples of x; give one for each sample"
        )
    if labels.dtype.kind not in "biuf" or (labels != np.trunc(labels)).any() or (np.abs(labels) > LARGEST_LABEL).any():
        raise ModelError("labels y must be whole numbers, each the index of an output neuron")
    return labels.astype(np.int64)


def check_labels(labels: np.ndarray, n_outputs: int) -> None:
    """Raise ModelError for labels without an output neuron."""
    if labels.min() < 0 or labels.max() >= n_outputs:
        raise ModelError(
            f"labels y are {labels.min()}..{labels.max()}, but the output has {n_outputs} neurons, 0..{n_outputs - 1}"
        )


def share_right(given: np.ndarray, labels: np.ndarray) -> float:
    """Return the share of answers that equal the label, 0..1."""
    return float(np.mean(given == labels))


def share_interval(share: float, n_samples: int) -> tuple[float, float]:
    """Return the 95 % confidence interval of a share, 0..1, measured on `n_samples` samples.

    Wilson's score interval (E. B. Wilson, J. Am. Stat. Assoc. 22 (1927), p. 209), which Brown, Cai and DasGupta
    (Statistical Science 16 (2001), p. 101) recommend for few samples.
    """
    z2 = Z_95 * Z_95
    middle = (share * n_samples + z2 / 2) / (n_samples + z2)
    half = Z_95 * sqrt(n_samples * share * (1 - share) + z2 / 4) / (n_samples + z2)
    return max(0.0, middle - half), min(1.0, middle + half)


def loss_interval(before: np.ndarray, after: np.ndarray) -> tuple[float, float]:
    """Return the 95 % confidence interval of the accuracy loss, -1..1.

    `before`, `after`: bool[B], whether each of the same samples is answered correctly.

    Wald's interval of paired shares, with one more sample on either side (D. G. Bonett, R. M. Price, J. Educ. Behav.
    Stat. 37 (2012), p. 479).
    """
    n = len(before) + 2
    lost, won = ((int(np.count_nonzero(kind)) + 1) / n for kind in (before & ~after, after & ~before))
    half = Z_95 * sqrt((lost + won - (lost - won) ** 2) / n)
    return max(-1.0, lost - won - half), min(1.0, lost - won + half)


def ratio_interval(part: np.ndarray, whole: np.ndarray) -> tuple[float, float]:
    """Return the 95 % confidence interval of sum(part) / sum(whole), both [B] by sample; 0 where the whole is 0.

    Percentiles of N_RESAMPLED bootstrap samples (B. Efron, R. J. Tibshirani, An Introduction to the Bootstrap, 1993,
    chapter 13), drawn with a fixed seed. One sample says nothing about the spread: its interval is 0 to 1.
    """
    if len(part) == 1:
        return 0.0, float(whole.any())
    rng, n = np.random.default_rng(0), len(part)
    drawn = (rng.integers(n, size=n) for _ in range(N_RESAMPLED))
    ratios = [part[rows].sum() / max(whole[rows].sum(), 1) for rows in drawn]
    low, high = np.percentile(ratios, (2.5, 97.5))
    return float(low), float(high)
