"""Price: how far a legalized network is from the same integers on an ideal chip, on samples held out for it."""

from dataclasses import dataclass

import numpy as np

from nwcompile.errors import LossError, OptionError
from nwcompile.ir.network import Network
from nwcompile.ir.options import MAX_LOSS, Options
from nwcompile.passes.legalize.ideal import ideal_trace
from nwcompile.sim.accuracy import share_right
from nwcompile.sim.float_difference import answer_rule, strongest, warn_of_answers
from nwcompile.sim.reference.run import output_of
from nwcompile.sim.sequence.run import trace


@dataclass(frozen=True)
class Price:
    """The difference of two integer runs of the same input, ideal and as the chip has it; shares in percent, 0..100.

    By layer `rate_ideal` and `rate_chip`, spikes per neuron and step; `spikes_changed`, the neurons and steps that
    spike otherwise over those in which either spikes. Of the whole: `spikes_changed_percent` of all layers together,
    `output_changed_percent` of the samples whose answer is another one (None for several outputs), and with labels
    the accuracies, 0..1.
    """

    n_samples: int
    rate_ideal: dict[str, float]
    rate_chip: dict[str, float]
    spikes_changed: dict[str, float]
    spikes_changed_percent: float
    output_changed_percent: float | None
    accuracy_ideal: float | None = None
    accuracy_chip: float | None = None

    def of(self, layer: str) -> dict[str, float] | None:
        """The plain numbers of one layer, for its Change; the change of its rate in percent of the ideal one.

        None of a layer that never fires: what it costs shows in the output.
        """
        if layer not in self.rate_ideal:
            return None
        ideal, chip = self.rate_ideal[layer], self.rate_chip[layer]
        change = {} if not ideal else {"rate_change_percent": 100 * (chip / ideal - 1)}
        changed = self.spikes_changed[layer]
        return {"rate_ideal": ideal, "rate_chip": chip, **change, "spikes_changed_percent": changed}

    @property
    def accuracy_lost_points(self) -> float | None:
        """Points of accuracy lost, below 0 where some were won; None without labels."""
        if self.accuracy_ideal is None or self.accuracy_chip is None:
            return None
        return 100 * (self.accuracy_ideal - self.accuracy_chip)

    def to_dict(self) -> dict:
        """Plain values for the manifest: the whole, and `layers` by name."""
        return {
            "n_samples": self.n_samples,
            "spikes_changed_percent": self.spikes_changed_percent,
            "output_changed_percent": self.output_changed_percent,
            "accuracy_ideal": self.accuracy_ideal,
            "accuracy_chip": self.accuracy_chip,
            "layers": {name: self.of(name) for name in self.rate_ideal},
        }


def price_of(ideal: Network, chip: Network, inputs: dict, labels: np.ndarray | None = None) -> Price:
    """The price of running `chip` instead of `ideal`, both fixed-point, on `inputs` `[B, T, *shape]` by input.

    `ideal` may hold pooled layers (`ideal.py`); those of full resolution, which only the chip has, are not compared."""
    runs = [ideal_trace(ideal, inputs), trace(chip, inputs, keep_states=False)]
    wanted, got = (spikes for spikes, _ in runs)
    firing = [name for name in wanted if ideal.node(name).neuron.fires]
    changed = {name: int(np.count_nonzero(wanted[name] != got[name])) for name in firing}
    either = {name: int(np.count_nonzero((wanted[name] != 0) | (got[name] != 0))) for name in firing}
    answers = [_answers(network, *run) for network, run in zip((ideal, chip), runs, strict=True)]
    one_output = answers[0] is not None
    return Price(
        n_samples=len(next(iter(inputs.values()))),
        rate_ideal={name: _rate(wanted[name]) for name in firing},
        rate_chip={name: _rate(got[name]) for name in firing},
        spikes_changed={name: _percent(changed[name], either[name]) for name in firing},
        spikes_changed_percent=_percent(sum(changed.values()), sum(either.values())),
        output_changed_percent=100 * float(np.mean(answers[0] != answers[1])) if one_output else None,
        accuracy_ideal=share_right(answers[0], labels) if one_output and labels is not None else None,
        accuracy_chip=share_right(answers[1], labels) if one_output and labels is not None else None,
    )


def check_loss(price: Price | None, options: Options, chip_name: str, network: Network) -> None:
    """Raise LossError if the price is above `options.max_loss`, OptionError if it is not known in that unit.

    Warn with NwWarning where the points are those of `network`, and not of the module that it was imported from.
    """
    if options.max_loss is None:
        return
    match = MAX_LOSS.fullmatch(options.max_loss)
    limit, is_accuracy = float(match[1]), match[2] == "pt"
    if price is None:
        raise OptionError(
            f"max_loss={options.max_loss!r} needs calibration samples, 2 or more: without them what the approximation "
            "costs is not known"
        )
    if is_accuracy and price.accuracy_lost_points is None:
        raise OptionError(
            f"max_loss={options.max_loss!r} is in points of accuracy, which need labels (compile(..., labels=), or y "
            "in the calibration file) and one output layer"
        )
    lost = price.accuracy_lost_points if is_accuracy else price.spikes_changed_percent
    if lost > limit:
        worst = max(price.spikes_changed, key=lambda name: price.spikes_changed[name])
        what = (
            f"{lost:.2g} points of accuracy ({answer_rule(network)})" if is_accuracy else f"{lost:.3g} % of the spikes"
        )
        raise LossError(
            f"approximating costs {what} on {chip_name}, more than max_loss={options.max_loss} "
            f"({price.n_samples} samples held out; most in layer {worst!r}); fine-tune with nn.quantize_aware, or "
            "accept more"
        )
    if is_accuracy:
        warn_of_answers(network, f"max_loss={options.max_loss!r}")


def _answers(network: Network, spikes: dict, states: dict) -> np.ndarray | None:
    output = output_of(network, spikes, states)
    return strongest(output) if isinstance(output, np.ndarray) else None


def _rate(spikes: np.ndarray) -> float:
    return float(np.abs(spikes).sum(dtype=np.int64)) / spikes.size


def _percent(part: int, whole: int) -> float:
    return 100 * part / whole if whole else 0.0
