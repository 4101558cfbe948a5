"""Price: the difference of a legalized network from the same integers on an ideal chip, on samples held out for it."""

from dataclasses import dataclass
from math import ceil

import numpy as np

from nwcompile.errors import LossError, OptionError
from nwcompile.ir.network import Network
from nwcompile.ir.options import MAX_LOSS, Options
from nwcompile.ir.readout import Readout
from nwcompile.ir.shown import count_text
from nwcompile.passes.quantize.approximate.ideal import ideal_trace
from nwcompile.sim.accuracy import loss_interval, ratio_interval
from nwcompile.sim.answers import answer_rule, network_answers, warn_of_answers
from nwcompile.sim.runs import output_of
from nwcompile.sim.sequence.run import trace_layers

ERROR_CODE = "NW5002"
HELD_OUT = 5  # Every fifth sample, 20 %, is held out: no parameter of an approximation is fitted to it.
FEWEST = 2  # With fewer samples none can be held out.
LARGEST_FIT = 1_000_000  # Neuron updates of one run of a layer; more would make each run of the search too slow.
FEWEST_FITTED = 4  # With fewer samples a neuron would be fitted to chance.


@dataclass(frozen=True)
class Price:
    """The difference of two integer runs of the same input, ideal and on the chip; shares in percent, 0..100.

    By layer: `rate_ideal` and `rate_chip`, spikes per neuron and step; `spikes_changed`, the neurons and steps with a
    different spike, over those in which either spikes. In total: `spikes_changed_percent` of all layers together,
    `output_changed_percent` of the samples with a different answer (None for several outputs), and with labels the
    accuracies, 0..1. The intervals, [low, high], are 95 % confidence intervals: `spikes_changed_interval` in percent,
    `lost_interval` in points of accuracy.
    """

    n_samples: int
    rate_ideal: dict[str, float]
    rate_chip: dict[str, float]
    spikes_changed: dict[str, float]
    spikes_changed_percent: float
    spikes_changed_interval: tuple[float, float]
    output_changed_percent: float | None
    accuracy_ideal: float | None = None
    accuracy_chip: float | None = None
    lost_interval: tuple[float, float] | None = None

    def layer_price(self, layer: str) -> dict[str, float] | None:
        """Return the plain numbers of one layer, for its Change; the change of its rate in percent of the ideal one.

        Returns None for a layer that never fires: its price shows in the output.
        """
        if layer not in self.rate_ideal:
            return None
        ideal, chip = self.rate_ideal[layer], self.rate_chip[layer]
        change = {} if not ideal else {"rate_change_percent": 100 * (chip / ideal - 1)}
        changed = self.spikes_changed[layer]
        return {"rate_ideal": ideal, "rate_chip": chip, **change, "spikes_changed_percent": changed}

    @property
    def accuracy_lost_points(self) -> float | None:
        """Points of accuracy lost, negative for a gain; None without labels."""
        if self.accuracy_ideal is None or self.accuracy_chip is None:
            return None
        return 100 * (self.accuracy_ideal - self.accuracy_chip)

    def to_dict(self) -> dict:
        """Return plain values for the manifest: totals, and `layers` by name."""
        return {
            "n_samples": self.n_samples,
            "spikes_changed_percent": self.spikes_changed_percent,
            "spikes_changed_interval_percent": list(self.spikes_changed_interval),
            "output_changed_percent": self.output_changed_percent,
            "accuracy_ideal": self.accuracy_ideal,
            "accuracy_chip": self.accuracy_chip,
            "accuracy_lost_points": self.accuracy_lost_points,
            "accuracy_lost_interval_points": None if self.lost_interval is None else list(self.lost_interval),
            "layers": {name: self.layer_price(name) for name in self.rate_ideal},
        }


def measure_price(
    ideal: Network, chip: Network, inputs: dict, labels: np.ndarray | None = None, readout: Readout | None = None
) -> Price:
    """Return the price of running `chip` instead of `ideal`, both fixed-point, on `inputs` `[B, T, *shape]` by input.

    `ideal` may hold pooled layers (`ideal.py`); full-resolution layers, which only the chip has, are not compared.
    """
    keep_states = readout is not None and bool(readout.state_layers)
    runs = [ideal_trace(ideal, inputs, keep_states), trace_layers(chip, inputs, keep_states=keep_states)]
    wanted, got = (spikes for spikes, _ in runs)
    firing = [name for name in wanted if ideal.node(name).neuron.fires]
    n_samples = len(next(iter(inputs.values())))
    changed = {name: _count_true(wanted[name] != got[name]) for name in firing}
    either = {name: _count_true((wanted[name] != 0) | (got[name] != 0)) for name in firing}
    all_changed, all_either = (sum(kind.values(), np.zeros(n_samples, int)) for kind in (changed, either))
    low, high = ratio_interval(all_changed, all_either)
    before, after = (
        network_answers(readout, *run, output_of(network, *run))
        for network, run in zip((ideal, chip), runs, strict=True)
    )
    right = lost = output_changed = None
    if before is not None and after is not None:
        output_changed = 100 * float(np.mean(before != after))
        if labels is not None:
            right = before == labels, after == labels
            lost = loss_interval(*right)
    return Price(
        n_samples=n_samples,
        rate_ideal={name: _spike_rate(wanted[name]) for name in firing},
        rate_chip={name: _spike_rate(got[name]) for name in firing},
        spikes_changed={name: _to_percent(changed[name].sum(), either[name].sum()) for name in firing},
        spikes_changed_percent=_to_percent(all_changed.sum(), all_either.sum()),
        spikes_changed_interval=(100 * low, 100 * high),
        output_changed_percent=output_changed,
        accuracy_ideal=None if right is None else float(right[0].mean()),
        accuracy_chip=None if right is None else float(right[1].mean()),
        lost_interval=None if lost is None else (100 * lost[0], 100 * lost[1]),
    )


def check_loss(price: Price | None, options: Options, chip_name: str, network: Network) -> list[str]:
    """Raise LossError if the price is above `options.max_loss`, OptionError if it is not known in that unit.

    It is above if its whole interval is. If only a part is, there are too few samples to judge; the returned warning
    then says how many would do (the width of an interval falls with the square root of their number). Warns (NwWarning)
    if the accuracy is that of `network` instead of the module that it was imported from.
    """
    if options.max_loss is None:
        return []
    match = MAX_LOSS.fullmatch(options.max_loss)
    assert match is not None, "Options.verify asked"
    limit, is_accuracy = float(match[1]), match[2] == "pt"
    if price is None:
        raise OptionError(
            f"max_loss={options.max_loss!r} needs calibration samples, 2 or more: without them what the approximation "
            "costs is not known"
        )
    lost, (low, high), unit = price.spikes_changed_percent, price.spikes_changed_interval, "%"
    of = "the spikes"
    if is_accuracy:
        if price.accuracy_lost_points is None or price.lost_interval is None:
            raise OptionError(
                f"max_loss={options.max_loss!r} is in points of accuracy, which need labels (compile(..., labels=), or "
                "y in the calibration file) and one output layer"
            )
        lost, (low, high), unit = price.accuracy_lost_points, price.lost_interval, "points"
        of = f"accuracy ({answer_rule(network)})"
    what = f"{lost:.3g} {unit} (95 % interval {low:.3g} to {high:.3g}) of {of}"
    if low > limit:
        worst = max(price.spikes_changed, key=lambda name: price.spikes_changed[name])
        raise LossError(
            f"approximating costs {what} on {chip_name}, more than max_loss={options.max_loss} "
            f"({count_text(price.n_samples, 'sample')} held out; most in layer {worst!r}); fine-tune with "
            "nn.quantize_aware, or accept more"
        )
    if is_accuracy:
        warn_of_answers(network, f"max_loss={options.max_loss!r}")
    if lost <= limit:
        return []
    n_enough = max(price.n_samples + 1, ceil(price.n_samples * ((lost - low) / (lost - limit)) ** 2))
    return [
        f"too few samples to judge max_loss={options.max_loss}: approximating costs {what} on "
        f"{count_text(price.n_samples, 'sample')} held out; about {n_enough} would do: give {HELD_OUT * n_enough} "
        f"calibration samples (every {HELD_OUT}th is held out)"
    ]


def _spike_rate(spikes: np.ndarray) -> float:
    return float(np.abs(spikes).sum(dtype=np.int64)) / spikes.size


def _count_true(where: np.ndarray) -> np.ndarray:
    """Return int64[B]: the number of True values in each sample of [B, ...]."""
    return np.count_nonzero(where, axis=tuple(range(1, where.ndim)))


def _to_percent(part: int, whole: int) -> float:
    return float(100 * part / whole) if whole else 0.0


def split_samples(n_samples: int) -> tuple[np.ndarray, np.ndarray]:
    """Return indices of the samples to fit to, and of those held out: the last of every five, or of fewer than five.

    With fewer than FEWEST samples nothing is held out, and there is no price.
    """
    index = np.arange(n_samples)
    held = index % HELD_OUT == HELD_OUT - 1
    if n_samples < HELD_OUT:
        held = (index == n_samples - 1) & (n_samples >= FEWEST)
    return index[~held], index[held]


def thin_samples(samples: np.ndarray, n_updates: int) -> np.ndarray:
    """Return evenly spread samples, few enough for a search; `n_updates`: neuron updates of one sample."""
    n_kept = min(len(samples), max(FEWEST_FITTED, LARGEST_FIT // max(n_updates, 1)))
    return samples[np.linspace(0, len(samples) - 1, n_kept).astype(int)]
