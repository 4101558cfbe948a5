"""Data: read samples and labels from files."""

from argparse import Namespace
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from nwcompile.errors import ModelError, OptionError, one_line
from nwcompile.ir.network import LAYOUTS

ERROR_CODE = "NW1006"
EVENT_FILES = (".bin", ".aedat4", ".aedat", ".raw", ".dat", ".es")  # nn/data/events.py:FORMATS, without its torch
DEMO = "demo"  # As a MODEL the network of `nw.demo()`, as a file of samples its images and labels.


@dataclass(frozen=True, eq=False)
class Data:
    """Samples `x` `[B, T, *shape]` (a dict by input name for several inputs, or None) and labels `y` `[B]` or None.

    They are from the file `path`. Their layout may be that of a network, which is known only when the network has been
    read; then `laid_out` selects the first `n_first` samples, unless it is None.
    """

    x: np.ndarray | dict[str, np.ndarray] | None
    y: np.ndarray | None = None
    path: str = ""
    n_first: int | None = None
    layout: str = "BT"

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """The samples by input name; a single array has the name `x`."""
        if self.x is None:
            return {}
        return self.x if isinstance(self.x, dict) else {"x": self.x}

    @property
    def labels(self) -> np.ndarray:
        """The labels `y`, for samples that have them."""
        assert self.y is not None, "the caller checks y"
        return self.y

    @property
    def example(self) -> np.ndarray | None:
        """The first sample as a batch of one; None unless `x` is a single array."""
        return self.x[:1] if isinstance(self.x, np.ndarray) else None

    def first(self, n: int) -> "Data":
        """The first `n` samples."""
        return self.only(slice(n))

    def only(self, rows) -> "Data":
        """Select samples by index or slice."""
        at = (slice(None), rows) if self.layout == "TB" else rows
        rows_of = {name: a[at] for name, a in self.arrays.items()}
        x = rows_of if isinstance(self.x, dict) else rows_of.get("x")
        return replace(self, x=x, y=None if self.y is None else self.y[rows])

    def laid_out(self, layout: str) -> "Data":
        """Set the layout and select the first samples. Raises ModelError if the number of labels is wrong."""
        data = replace(self, layout=layout, n_first=None)
        if self.x is None:
            return data
        axis = 1 if layout == "TB" else 0
        if self.y is not None and any(len(self.y) != a.shape[axis] for a in self.arrays.values()):
            raise labels_error(self.path, self.y, self.arrays, layout)
        return data if self.n_first is None else data.first(self.n_first)


def read_input(args: Namespace) -> Data:
    """Read the file of `--input`, limited to `--samples`; no input with `--steps` alone."""
    if args.input is None and args.steps is None:
        raise OptionError("no input: give --input X.npz, or --steps N to run without input")
    return read_first(args.input, args.samples)


def read_first(path: str | None, n_first: int | None, flag: str = "--samples") -> Data:
    """Read the first `n_first` samples of a file (None: all; no path: no input); `flag` is named in errors."""
    if n_first is not None and n_first < 1:
        raise OptionError(f"{flag} {n_first} must be 1 or more")
    if path is None:
        if n_first is not None:
            raise OptionError(f"{flag} {n_first}: there is no input to take samples of")
        return Data(None)
    return replace(read_data(path), n_first=n_first)


def read_data(path: str) -> Data:
    """Read samples and labels of a .npz (key `x`, or one key per input; labels in `y`) or .npy file; no pickle."""
    arrays = read_arrays(path, "[B, T, *shape]")
    y = arrays.pop("y", None)
    if not arrays:
        raise ModelError(f"{path}: holds no samples; store them under the key x, as [B, T, *shape]")
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray):
            raise ModelError(f"{path}: {name} is not an array; write the file with numpy.savez")
        if array.ndim < 2:
            raise ModelError(f"{path}: {name} of shape {list(array.shape)} must be [B, T, *shape]")
    if y is not None and (y.ndim != 1 or any(len(y) not in a.shape[:2] for a in arrays.values())):
        raise labels_error(path, y, arrays, "BT")
    if y is not None:
        _check_whole(path, y)
    return Data(arrays["x"] if set(arrays) == {"x"} else arrays, y, path)


def labels_error(path: str, y: np.ndarray, arrays: dict[str, np.ndarray], layout: str) -> ModelError:
    """Build the error for labels whose number differs from that of the samples."""
    shapes = ", ".join(f"{name} {list(a.shape)}" for name, a in arrays.items())
    return ModelError(
        f"{path}: labels y of shape {list(y.shape)} must be [B], the number of a class for each sample of {shapes} "
        f"({LAYOUTS[layout]})"
    )


def read_labels(path: str) -> np.ndarray:
    """Read labels of a .npy file, or of a .npz file under the key `y` or as its only array."""
    arrays = read_arrays(path, "[B]")
    y = arrays.get("y", next(iter(arrays.values())) if len(arrays) == 1 else None)
    if y is None or y.ndim != 1:
        raise ModelError(f"{path}: expected one array of labels, of shape [B], under the key y")
    _check_whole(path, y)
    return y


def _check_whole(path: str, y: np.ndarray) -> None:
    if y.dtype.kind not in "biuf" or (y != np.trunc(y)).any():
        raise ModelError(f"{path}: labels y must be whole numbers, each the index of an output neuron")


def read_arrays(path: str, shape: str) -> dict[str, np.ndarray]:
    """Read the arrays of a .npz file by key, the array of a .npy file as `x`, or those of `demo`; no pickle."""
    if path == DEMO:
        from nwcompile.workbench.demo import demo_samples

        return demo_samples()
    if Path(path).suffix not in (".npz", ".npy"):
        is_recording = Path(path).suffix in EVENT_FILES
        hint = "; simulate --stream takes event files, and nn.data makes arrays of them" if is_recording else ""
        raise ModelError(f"{path}: expected a .npz or .npy file of shape {shape}{hint}")
    try:
        with open(path, "rb") as stream:
            if not stream.read(6).startswith((b"PK", b"\x93NUMPY")):
                raise ValueError("neither written by numpy.savez nor by numpy.save")
            stream.seek(0)
            loaded = np.load(stream, allow_pickle=False)
            arrays = {"x": loaded} if isinstance(loaded, np.ndarray) else {name: loaded[name] for name in loaded.files}
    except Exception as e:  # A damaged zip or array header raises many kinds of errors.
        reason = e.strerror if isinstance(e, OSError) and e.strerror else one_line(e)
        raise ModelError(f"{path}: cannot be read: {reason}") from None
    return arrays
