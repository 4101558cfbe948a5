"""Recordings of event cameras: file bytes and spikes."""

import numpy as np


def nmnist(rows) -> bytes:
    """Encode events as x, y, then p and 23 bits of time (Orchard et al., Frontiers in Neuroscience 9:437, 2015)."""
    return b"".join(bytes([x, y]) + ((p << 23) | t).to_bytes(3, "big") for t, x, y, p in rows)


def recorded_frames(folder) -> np.ndarray:
    """float32[1, 300, 2, 34, 34]: the N-MNIST recording in frames of 1 ms; repeated events count once."""
    events = np.fromfile(folder / "tonic_sample_nmnist.bin", np.uint8).reshape(-1, 5).astype(np.int64)
    x, y, polarity = events[:, 0], events[:, 1], events[:, 2] >> 7
    step = (((events[:, 2] & 127) << 16) | (events[:, 3] << 8) | events[:, 4]) // 1000
    frames = np.zeros((1, 300, 2, 34, 34), np.float32)
    early = step < 300
    frames[0, step[early], polarity[early], y[early], x[early]] = 1
    return frames


def raster(events: np.ndarray, n_steps: int, n: int) -> np.ndarray:
    """Convert event rows (x, p, t) to spikes [T, n]: times are rounded to the nearest step, duplicates merged."""
    spikes = np.zeros((n_steps, n), np.int8)
    spikes[np.round(events[:, 2]).astype(int), events[:, 0].astype(int)] = 1
    return spikes
