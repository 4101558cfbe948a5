"""Activity: how often each neuron and input line sends a message in each aligned step; what mapping optimises for."""

from dataclasses import dataclass, field

import numpy as np

from nwcompile.errors import ModelError
from nwcompile.ir.network import Network


@dataclass(frozen=True, eq=False)
class Activity:
    """`counts[name]`: int32[T, n] non-zero spikes of a layer or input in aligned steps, summed over `n_samples`.

    `updates[layer]`, int32[T, n]: neuron updates, where they were counted.
    """

    counts: dict[str, np.ndarray]
    n_samples: int
    updates: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def n_steps(self) -> int:
        """T, aligned steps of a sample."""
        return next(iter(self.counts.values())).shape[0]

    def rate(self, name: str) -> np.ndarray:
        """Spikes per step and sample of every neuron, float64[n]."""
        return self.counts[name].sum(0) / (self.n_samples * self.n_steps)

    @classmethod
    def from_spikes(cls, spikes: dict[str, np.ndarray]) -> "Activity":
        """From spike arrays [B, T, *shape] (any payload counts once)."""
        counts = {n: np.count_nonzero(s, axis=0).reshape(s.shape[1], -1).astype(np.int32) for n, s in spikes.items()}
        return cls(counts, len(next(iter(spikes.values()))))

    @classmethod
    def uniform(cls, network: Network, n_steps: int = 10, rate_percent: int = 10) -> "Activity":
        """Every neuron and input line sends in `rate_percent` of the samples of each step (100 samples)."""
        counts = {}
        for name in (*network.inputs, *network.layers):
            counts[name] = np.full((n_steps, network.node(name).n_neurons), rate_percent, np.int32)
        return cls(counts, 100)

    def verify(self, network: Network) -> None:
        """Raise ModelError unless every layer and input of `network` has counts of its size."""
        for name in (*network.inputs, *network.layers):
            n = network.node(name).n_neurons
            for kind, arrays in (("counts", self.counts), ("updates", self.updates)):
                if name not in arrays and (kind == "updates"):
                    continue
                array = arrays.get(name)
                if array is None or array.shape != (self.n_steps, n) or array.dtype.kind not in "iu" or array.min() < 0:
                    raise ModelError(f"activity: {kind} of {name!r} are missing, negative or not of shape [T, {n}]")
        if not isinstance(self.n_samples, int) or self.n_samples < 1:
            raise ModelError(f"activity: n_samples={self.n_samples!r} must be a whole number >= 1")
