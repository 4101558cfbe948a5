"""Transforms to spikes: deterministic binning of a recording (crop, downsample, bins of time), random rate coding."""

import math
from dataclasses import dataclass, fields
from typing import ClassVar

import numpy as np
import torch

from nwcompile.errors import ModelError, OptionError, shown
from nwcompile.nn.data.events import LARGEST, Events, convert_events, convert_frames
from nwcompile.nn.data.packed import as_array

ERROR_CODE = "NW8101"
MAX_CELLS = 1 << 32  # A sample with more cells takes over 4 GiB before it is packed.


@dataclass(frozen=True)
class Binning:
    """Transform from a recording to spikes: 1 in step k of neuron n if an event falls into bin k and pixel n, else 0.

    sensor: (width, height, polarities), as Tonic's `sensor_size`.
    Time is in units of `t` (microseconds with Tonic, frames for frames). It begins at `start` (None: the recording's
    first event). Give either `bin_length`, or `n_bins` for equal bins up to the end. An incomplete last bin is dropped
    unless `include_incomplete`; bins after `max_bins` are always dropped. With both, every recording has `max_bins`
    bins, empty after its end. Times in whole numbers are ticks: a recording ends with the tick of its last event.
    Place: `crop` (left, top, width, height) is in pixels of the sensor. Then `spatial_factor` downsamples (1/2: half as
    many pixels along each axis): w pixels become w' = max(1, round(w * factor)), and pixel x becomes x * w' // w.
    Neurons are numbered as a flattened `[polarities, height, width]`; `n_neurons` is their number.
    A pixel of a frame is an event if it is at least `frame_threshold`.

    Several events in a cell are one spike, so events may be in any order.
    Raises OptionError for settings out of range.
    """

    sensor: tuple[int, int, int]
    bin_length: float | None = None
    n_bins: int | None = None
    max_bins: int | None = None
    start: float | None = None
    include_incomplete: bool = False
    crop: tuple[int, int, int, int] | None = None
    spatial_factor: float = 1.0
    frame_threshold: float = 0.5

    deterministic: ClassVar[bool] = True
    version: ClassVar[int] = 2  # Incremented when the same settings give other spikes.

    def __post_init__(self):
        for field in fields(self):
            value = _to_plain_value(getattr(self, field.name))
            if type(value) is int and not shown(value).lstrip("-").isdigit():
                raise OptionError(f"Binning: {field.name} is {shown(value)}, too large a number")
            object.__setattr__(self, field.name, value)
        if not _are_whole(self.sensor, 3) or min(self.sensor) < 1:
            raise OptionError(f"Binning: sensor is {self.sensor}, must be (width, height, polarities), each >= 1")
        if (self.bin_length is None) == (self.n_bins is None):
            given = f"bin_length = {self.bin_length} and n_bins = {self.n_bins}"
            raise OptionError(f"Binning: {given}; give exactly one of them")
        if self.n_bins is not None and self.max_bins is not None:
            raise OptionError(f"Binning: max_bins = {self.max_bins} goes with bin_length, not with n_bins")
        if self.bin_length is not None and not (_is_number(self.bin_length) and self.bin_length > 0):
            raise OptionError(f"Binning: bin_length is {self.bin_length}, must be a number > 0 and below 2^62")
        for name, value in (("n_bins", self.n_bins), ("max_bins", self.max_bins)):
            if value is not None and not (_are_whole((value,), 1) and value >= 1):
                raise OptionError(f"Binning: {name} is {value}, must be a whole number >= 1")
        if self.start is not None and not _is_number(self.start):
            raise OptionError(
                f"Binning: start is {self.start}, must be a number between -2^62 and 2^62, or None for the first event"
            )
        if not (_is_number(self.spatial_factor) and 0 < self.spatial_factor <= 1):
            raise OptionError(f"Binning: spatial_factor is {self.spatial_factor}, must be > 0 and at most 1")
        if not _is_number(self.frame_threshold):
            raise OptionError(
                f"Binning: frame_threshold is {self.frame_threshold}, must be a number between -2^62 and 2^62"
            )
        if type(self.include_incomplete) is not bool:
            raise OptionError(f"Binning: include_incomplete is {self.include_incomplete}, must be True or False")
        if self.crop is not None and not self._is_inside(self.crop):
            width, height, _ = self.sensor
            raise OptionError(
                f"Binning: crop is {self.crop}, must be (left, top, width, height) inside a sensor of {width}x{height}"
            )

    def _is_inside(self, crop) -> bool:
        if not _are_whole(crop, 4):
            return False
        left, top, width, height = crop
        right, bottom, _ = self.sensor
        return min(left, top) >= 0 and min(width, height) >= 1 and left + width <= right and top + height <= bottom

    @property
    def shape(self) -> tuple[int, int, int]:
        """The shape after crop and downsampling: (polarities, height, width)."""
        width, height = self.sensor[:2] if self.crop is None else self.crop[2:]
        rows = max(1, round(height * self.spatial_factor))
        columns = max(1, round(width * self.spatial_factor))
        return self.sensor[2], rows, columns

    @property
    def n_neurons(self) -> int:
        return math.prod(self.shape)

    def __call__(self, recording) -> np.ndarray:
        """Return uint8 `[T, N]` of a structured array of events, or of frames (an array or tensor `[T, ...]`).

        Raises ModelError for any other recording, for one outside the sensor, and for one without a bin.
        """
        recording = as_array(recording)
        if recording.dtype.names:
            of = convert_events(recording, self.sensor)
        else:
            of = convert_frames(recording, self.sensor, self.frame_threshold)
        start = of.first if self.start is None else self.start
        span, n_neurons = of.last - start, self.n_neurons
        n_steps = self.n_bins or self._count_bins(of, start, span)
        if n_steps * n_neurons > MAX_CELLS:
            raise ModelError(
                f"the recording has {n_steps} bins of {n_neurons} neurons, more than {MAX_CELLS} cells; choose a "
                "longer bin_length, max_bins, a crop or a smaller spatial_factor"
            )
        step = self._find_bins(of.t - start, span, n_steps)
        inside, neuron = self._find_neurons(of)
        inside &= (step >= 0) & (step < n_steps)
        spikes = np.zeros((n_steps, n_neurons), np.uint8)
        spikes[step[inside], neuron[inside]] = 1
        return spikes

    def _count_bins(self, of: Events, start, span) -> int:
        """Count the bins of `bin_length`."""
        assert self.bin_length is not None, "asked without n_bins only"
        if self.include_incomplete and self.max_bins is not None:
            return self.max_bins
        if span / self.bin_length >= LARGEST:
            raise ModelError(f"the recording lasts {span:g}, 2^62 times bin_length = {self.bin_length:g} or more")
        n_steps = n_whole = max(0, int(span // self.bin_length))
        ends_with_event = isinstance(of.last, float) and span >= 0  # a tick has a length, an event at a float time none
        if self.include_incomplete and (ends_with_event or span > n_whole * self.bin_length):
            n_steps += 1
        if n_steps == 0:
            if not len(of.t):
                raise ModelError("the recording has no events, so no bins of a length; leave it out, or choose n_bins")
            hint = "" if self.include_incomplete else ", or include_incomplete=True"
            raise ModelError(
                f"the recording lasts {max(0, span):g} from {start:g} on, so it has no whole bin of "
                f"{self.bin_length:g}; choose a shorter bin_length{hint}"
            )
        return n_steps if self.max_bins is None else min(n_steps, self.max_bins)

    def _find_bins(self, t: np.ndarray, span, n_steps: int) -> np.ndarray:
        """Return the bin of each event at `t` after the start; earlier events get a negative bin."""
        if self.n_bins is None:
            return np.clip(t // self.bin_length, -1, n_steps).astype(np.int64)
        if span <= 0:
            return np.where(t == 0, 0, -1)
        if t.dtype.kind == "i" and span < LARGEST // n_steps:
            return np.where(t < 0, -1, t * n_steps // span)
        return np.where(t < 0, -1, np.minimum(t / span * n_steps, n_steps - 1)).astype(np.int64)

    def _find_neurons(self, of: Events) -> tuple[np.ndarray, np.ndarray]:
        """Return whether each event is inside the crop, and its neuron."""
        left, top, width, height = self.crop or (0, 0, *self.sensor[:2])
        x = of.x - left
        y = of.y - top
        inside = (x >= 0) & (x < width) & (y >= 0) & (y < height)
        _, rows, columns = self.shape
        return inside, (of.p * rows + y * rows // height) * columns + x * columns // width


def _to_plain_value(value):
    """Convert a setting from NumPy's types, and a list to a tuple."""
    if isinstance(value, list | tuple):
        return tuple(map(_to_plain_value, value))
    return value.item() if isinstance(value, np.generic) else value


def _are_whole(values, n: int) -> bool:
    return isinstance(values, tuple) and len(values) == n and all(type(value) is int for value in values)


def _is_number(value) -> bool:
    return type(value) in (int, float) and abs(value) < LARGEST


@dataclass(frozen=True)
class RandomRate:
    """Random rate coding: in each of `n_steps` steps a spike has the number itself, 0 to 1, as its probability.

    Every call draws from torch's generator, so results are not cached. Raises OptionError for `n_steps` < 1.
    """

    n_steps: int

    deterministic: ClassVar[bool] = False

    def __post_init__(self):
        if not (isinstance(self.n_steps, int) and self.n_steps >= 1):
            raise OptionError(f"RandomRate: n_steps is {self.n_steps}, must be a whole number >= 1")

    def __call__(self, numbers) -> np.ndarray:
        """Return uint8 `[T, N]` for N numbers in any shape. Raises ModelError for numbers outside 0 to 1."""
        array = as_array(numbers)
        if array.dtype.kind not in "biuf":
            raise ModelError(f"numbers of type {array.dtype} cannot be the probability of a spike; give 0 to 1")
        rate = torch.from_numpy(array.astype(np.float32)).reshape(-1)
        outside = ~((rate >= 0) & (rate <= 1))
        if outside.any():
            i = int(outside.int().argmax())
            raise ModelError(f"number {i} is {rate[i]:g}, must be from 0 to 1, the probability of a spike in a step")
        return (torch.rand(self.n_steps, len(rate)) < rate).to(torch.uint8).numpy()
