"""Robustness: how accurate a program is on many devices that differ as devices of its chip do."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass

import numpy as np

from nwcompile.errors import ModelError, OptionError, check_int
from nwcompile.ir.chip import Chip
from nwcompile.ir.chip_sections import Variation
from nwcompile.ir.program import Program
from nwcompile.sim import simulate
from nwcompile.sim.accuracy import accuracy
from nwcompile.sim.float_difference import warn_of_answers
from nwcompile.sim.inputs import prepare
from nwcompile.sim.variation import Devices, verify_variation

ERROR_CODE = "NW6106"
MAX_DEVICES = 1_000_000  # More devices than this are a mistake: they would take weeks.
LARGEST_SEED = (1 << 63) - 1
LARGEST_LABEL = 1 << 53  # Labels are whole numbers that float64 holds exactly.


@dataclass(frozen=True)
class Robustness:
    """Accuracies, 0..1: `ideal` of the program as compiled, `accuracies[i]` of device i (`sim.variation.Devices`).

    `variation`: what the devices were drawn from, with `seed`; `n_samples`: the labeled samples that each answered.
    """

    ideal: float
    accuracies: tuple[float, ...]
    variation: Variation
    seed: int
    n_samples: int

    @property
    def mean(self) -> float:
        """Mean of the devices."""
        return float(np.mean(self.accuracies))

    @property
    def std(self) -> float:
        """Standard deviation of these devices, 0 for one."""
        return float(np.std(self.accuracies))

    @property
    def min(self) -> float:
        """The worst device."""
        return min(self.accuracies)

    @property
    def lost(self) -> float:
        """What the mean device loses against the ideal one."""
        return self.ideal - self.mean

    def quantile(self, share: float) -> float:
        """The accuracy that a `share` (0..1) of the devices are below, between devices in proportion."""
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
    """Accuracy of a program on `samples` devices, each with its own mismatch and faults, and on the ideal one.

    `x` is what `simulate` takes, `y` int[B] the labels. `weight`, `threshold` and `leak` are standard deviations as
    parts of the value (0.3 is 30 %), `stuck` and `dead` shares of synapses and neurons; what is None is as the chip
    file's `[variation]` says. `nwcompile/sim/variation.py` defines what each does. Equal arguments give equal devices,
    on any number of threads; device i does not depend on how many there are. Raises OptionError where nothing
    varies or a number is out of range, and ModelError for unusable `x` or `y`.
    """
    given = Variation(weight, threshold, leak, stuck, dead)
    ideal, *parts = accuracies(program, x, y, given, samples, seed, backend, device)
    return Robustness(ideal, tuple(parts), varied(program.chip, given), int(seed), len(y))


def accuracies(
    program: Program, x, y, given: Variation, samples: int, seed: int, backend: str, device: str
) -> Iterator[float]:
    """The accuracy of the ideal device, then of each device: what `robustness` is made of, one after the other."""
    if not isinstance(program, Program):
        raise OptionError(f"robustness takes an nw.Program, not {type(program).__name__}; compile the network first")
    samples = check_int("samples", samples, 1, MAX_DEVICES)
    seed = check_int("seed", seed, 0, LARGEST_SEED)
    devices = Devices(program, varied(program.chip, given), seed)
    inputs, n_samples, _ = prepare(program.network, x, None, program.chip, program.on_multi_spike)
    labels = verified_labels(y, n_samples)
    warn_of_answers(program.network, "the accuracy")

    def part(of: Program) -> float:
        return accuracy(simulate(of, inputs, backend, device), labels)

    yield part(program)
    for index in range(samples):
        yield part(devices.device(index))


def varied(chip: Chip, given: Variation) -> Variation:
    """What is given, and the chip's own figure where that is None; raises OptionError."""
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


def verified_labels(y, n_samples: int) -> np.ndarray:
    """Labels as an array int64[B]; raises ModelError unless they are whole numbers, one for each sample."""
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
