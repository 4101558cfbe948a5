"""Robustness: the accuracy of a program on many devices with the mismatch of its chip."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass

import numpy as np

from nwcompile.errors import ModelError, OptionError, check_int
from nwcompile.ir.chip import Chip
from nwcompile.ir.chip_sections import Variation
from nwcompile.ir.program import Program
from nwcompile.sim import simulate
from nwcompile.sim.accuracy import accuracy
from nwcompile.sim.answers import record_for, warn_of_answers
from nwcompile.sim.inputs import prepare_inputs
from nwcompile.sim.variation import Devices, verify_variation

ERROR_CODE = "NW6106"
MAX_DEVICES = 1_000_000  # More devices than this are a mistake: they would take weeks.
LARGEST_SEED = (1 << 63) - 1
LARGEST_LABEL = 1 << 53  # Labels are whole numbers that float64 holds exactly.


@dataclass(frozen=True)
class Robustness:
    """Accuracies, 0..1: `ideal` of the program as compiled, `accuracies[i]` of device i (`sim.variation.Devices`).

    `variation` and `seed` define the devices. `n_samples`: number of labeled samples.
    """

    ideal: float
    accuracies: tuple[float, ...]
    variation: Variation
    seed: int
    n_samples: int

    @property
    def mean(self) -> float:
        """Mean accuracy of the devices."""
        return float(np.mean(self.accuracies))

    @property
    def std(self) -> float:
        """Standard deviation of the accuracies, 0 for one device."""
        return float(np.std(self.accuracies))

    @property
    def min(self) -> float:
        """Accuracy of the worst device."""
        return min(self.accuracies)

    @property
    def lost(self) -> float:
        """Accuracy that the mean device loses against the ideal one."""
        return self.ideal - self.mean

    def quantile(self, share: float) -> float:
        """Return the accuracy below which a `share` (0..1) of the devices lie, linearly interpolated."""
        return float(np.quantile(self.accuracies, share))


def robustness(
    program: Program,
    x,
    y,
    samples: int = 100,
    seed: int = 0,
    weight: float | None = None,
    threshold: float | None = None,
    leak: float | None = None,
    stuck: float | None = None,
    dead: float | None = None,
    backend: str = "sequence",
    device: str = "cpu",
) -> Robustness:
    """Measure the accuracy of a program on `samples` devices with mismatch and faults, and on the ideal device.

    `x` is an input of `simulate`, `y` int[B] the labels. `weight`, `threshold` and `leak` are relative standard
    deviations (0.3 is 30 %); `stuck` and `dead` are shares of synapses and neurons. None takes the figure of the chip
    file's `[variation]`. `nwcompile/sim/variation.py` defines their effects. Equal arguments give equal devices on
    any number of threads; device i does not depend on the number of devices. Raises OptionError if nothing varies or
    a number is out of range, and ModelError for unusable `x` or `y`.
    """
    given = Variation(weight, threshold, leak, stuck, dead)
    ideal, *parts = iter_accuracies(program, x, y, given, samples, seed, backend, device)
    return Robustness(ideal, tuple(parts), merge_variation(program.chip, given), int(seed), len(y))


def iter_accuracies(
    program: Program, x, y, given: Variation, samples: int, seed: int, backend: str, device: str
) -> Iterator[float]:
    """Yield the accuracy of the ideal device, then of each device in turn."""
    if not isinstance(program, Program):
        raise OptionError(f"robustness takes an nw.Program, not {type(program).__name__}; compile the network first")
    samples = check_int("samples", samples, 1, MAX_DEVICES)
    seed = check_int("seed", seed, 0, LARGEST_SEED)
    devices = Devices(program, merge_variation(program.chip, given), seed)
    inputs, n_samples, _ = prepare_inputs(program.network, x, None, program.chip, program.on_multi_spike)
    labels = label_array(y, n_samples)
    warn_of_answers(program.network, "the accuracy")

    def device_accuracy(of: Program) -> float:
        return accuracy(simulate(of, inputs, backend, device, record=record_for(program.network)), labels)

    yield device_accuracy(program)
    for index in range(samples):
        yield device_accuracy(devices.device(index))


def merge_variation(chip: Chip, given: Variation) -> Variation:
    """Fill in the chip's figures where `given` has None. Raises OptionError if nothing varies or one is not 0..1."""
    verify_variation(given)
    both = {
        name: getattr(chip.variation, name) if value is None else float(value) for name, value in asdict(given).items()
    }
    if all(value is None for value in both.values()):
        raise OptionError(
            f"{chip.name} does not say how its devices differ: give weight, threshold, leak, stuck or dead (on the "
            "command line --weight 0.1, ...), or write them into the [variation] of its chip file"
        )
    return Variation(**both)


def label_array(y, n_samples: int) -> np.ndarray:
    """Return labels as int64[B]. Raises ModelError unless they are whole numbers, one per sample."""
    try:
        labels = np.asarray(y.detach().cpu().numpy() if hasattr(y, "detach") else y)
    except (TypeError, ValueError, RuntimeError):
        raise ModelError("labels y must be an array of whole numbers, one for each sample", code="NW6003") from None
    if labels.shape != (n_samples,):
        raise ModelError(
            f"labels y of shape {list(labels.shape)} do not fit the {n_samples} samples of x; give one for each sample",
            code="NW6003",
        )
    if labels.dtype.kind not in "biuf" or (labels != np.trunc(labels)).any() or (np.abs(labels) > LARGEST_LABEL).any():
        raise ModelError("labels y must be whole numbers, each the index of an output neuron", code="NW6003")
    return labels.astype(np.int64)
