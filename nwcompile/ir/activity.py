"""Activity: messages of each neuron and input line in each aligned step. Mapping optimizes for them."""

from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np

from nwcompile.argument_types import checked
from nwcompile.errors import ModelError, shown
from nwcompile.ir.network import Network
from nwcompile.ir.shown import count_text, format_lines

ERROR_CODE = "NW3006"


@dataclass(frozen=True, eq=False)
class MultiSpike:
    """Spikes of an input or a layer that are not binary: several in a step, or negative ones.

    `by_source`, int64[4, n], over all steps and samples: steps with a spike, sum of the spikes' magnitudes, steps with
    more than one spike, steps with a negative spike. `largest`: the largest magnitude of a step.
    """

    by_source: np.ndarray
    largest: int

    @classmethod
    def from_spikes(cls, spikes: np.ndarray) -> Self | None:
        """Count spikes [B, T, *shape]; None if all are 0 or 1, or if they are real (input of a float network)."""
        if spikes.dtype.kind not in "iu" or spikes.max(initial=0) <= 1 and spikes.min(initial=0) >= 0:
            return None
        flat = np.abs(spikes.reshape(-1, int(np.prod(spikes.shape[2:]))).astype(np.int64))
        negative = np.count_nonzero(spikes.reshape(flat.shape) < 0, axis=0)
        rows = [np.count_nonzero(flat, axis=0), flat.sum(0), np.count_nonzero(flat > 1, axis=0), negative]
        return cls(np.stack(rows).astype(np.int64), int(flat.max()))

    @property
    def event_counts(self) -> np.ndarray:
        """int64[n]: steps in which each neuron spikes; its messages to each destination if spikes are binary."""
        return self.by_source[0]

    @property
    def spikes(self) -> np.ndarray:
        """int64[n]: messages to each destination if n spikes are n messages."""
        return self.by_source[1]


@dataclass(frozen=True, eq=False)
class Activity:
    """Messages of each layer and input to each destination, in aligned steps, summed over `n_samples`.

    `counts[name]`, int32[T, n]: non-zero spikes, or all spikes if each is a message of its own. `updates[layer]`,
    int32[T, n]: neuron updates, if they were counted. `multi[name]`: only for spikes that are not binary.
    `heard[layer]`, int32[T, n], only for neurons that share axons: how often each neuron's axons were set.
    """

    counts: dict[str, np.ndarray]
    n_samples: int
    updates: dict[str, np.ndarray] = field(default_factory=dict)
    multi: dict[str, MultiSpike] = field(default_factory=dict)
    heard: dict[str, np.ndarray] = field(default_factory=dict)

    def __repr__(self) -> str:
        head = f"Activity: {count_text(self.n_samples, 'sample')} of {count_text(self.n_steps, 'step')}"
        rows = [f"{name}: {count_text(int(counts.sum()), 'message')}" for name, counts in self.counts.items()]
        return format_lines(head, rows, "names")

    @property
    def n_steps(self) -> int:
        """Number T of aligned steps of a sample."""
        return next(iter(self.counts.values())).shape[0]

    def count_reads(self, name: str) -> np.ndarray:
        """int32[T, n]: reads of the synapses of each source; equal to messages unless neurons share axons."""
        return self.heard.get(name, self.counts[name])

    def rate(self, name: str) -> np.ndarray:
        """float64[n]: messages of every neuron to each destination, per step and sample."""
        return self.counts[name].sum(0) / (self.n_samples * self.n_steps)

    def drop_nodes(self, names) -> "Activity":
        """A copy without the given inputs and layers."""
        return replace(
            self,
            counts={name: count for name, count in self.counts.items() if name not in names},
            updates={name: count for name, count in self.updates.items() if name not in names},
            multi={name: spikes for name, spikes in self.multi.items() if name not in names},
            heard={name: count for name, count in self.heard.items() if name not in names},
        )

    @classmethod
    @checked()
    def from_spikes(cls, network: Network, spikes: dict[str, np.ndarray], repeats: bool = False) -> "Activity":
        """Count spike arrays [B, T, *shape]; a spike of magnitude n is one message, or n messages with `repeats`."""
        multi = {name: several for name, s in spikes.items() if (several := MultiSpike.from_spikes(s)) is not None}
        counts = {n: _count_messages(s, repeats and n in multi) for n, s in spikes.items()}
        sharing = {n: node for n, node in network.nodes.items() if node.axon_of is not None}
        heard = {n: _count_messages(node.merge_axon_spikes(spikes[n]), False) for n, node in sharing.items()}
        return cls(counts, len(next(iter(spikes.values()))), multi=multi, heard=heard)

    @classmethod
    @checked()
    def uniform(cls, network: Network, n_steps: int = 10, rate_percent: int = 10) -> "Activity":
        """Activity of 100 samples in which every neuron and input line sends in `rate_percent` of them in each step.

        Shared axons are set equally often.
        """
        if n_steps < 1 or not 0 <= rate_percent <= 100:
            raise ModelError(f"n_steps={shown(n_steps)} must be 1 or more, rate_percent={shown(rate_percent)} 0 to 100")
        counts = {}
        for name in (*network.inputs, *network.layers):
            counts[name] = np.full((n_steps, network.node(name).n_neurons), rate_percent, np.int32)
        sharing = [name for name, node in network.nodes.items() if node.axon_of is not None]
        return cls(counts, 100, heard={name: counts[name] for name in sharing})

    def verify(self, network: Network) -> None:
        """Raise ModelError unless every layer and input of `network` has counts of its size."""
        if type(self.n_samples) is not int or self.n_samples < 1:
            raise ModelError(f"activity: n_samples={self.n_samples!r} must be a whole number >= 1")
        for name in (*network.inputs, *network.layers):
            n = network.node(name).n_neurons
            shares = network.node(name).axon_of is not None
            for kind, arrays in (("counts", self.counts), ("updates", self.updates), ("heard", self.heard)):
                if name not in arrays and (kind == "updates" or kind == "heard" and not shares):
                    continue
                array = arrays.get(name)
                is_whole = array is not None and array.shape == (self.n_steps, n) and array.dtype.kind in "iu"
                if array is None or not is_whole or array.min(initial=0) < 0:
                    raise ModelError(f"activity: {kind} of {name!r} are missing, negative or not of shape [T, {n}]")
        for name, multi in self.multi.items():
            n = network.node(name).n_neurons if name in network.offsets else 0
            table = multi.by_source
            is_whole = name in self.counts and table.shape == (4, n) and table.dtype.kind == "i"
            sent = self.counts[name].sum(0) if is_whole else 0  # messages: one per step with a spike, or one per spike
            is_whole = is_whole and ((table >= 0) & (table[0] <= sent) & (sent <= table[1])).all()
            if not is_whole or type(multi.largest) is not int or multi.largest < 1:
                raise ModelError(f"activity: the counts of several spikes of {name!r} are not of this network")

    def verify_counts(self) -> None:
        """Raise ModelError if a step has more counts than samples, unless each of several spikes is a message."""
        for kind, arrays in (("counts", self.counts), ("updates", self.updates), ("heard", self.heard)):
            for name, array in arrays.items():
                may_repeat = kind == "counts" and name in self.multi
                if array.max(initial=0) > self.n_samples and not may_repeat:
                    raise ModelError(
                        f"activity: {kind} of {name!r} reach {array.max()} in a step of {self.n_samples} samples"
                    )


def _count_messages(spikes: np.ndarray, repeats: bool) -> np.ndarray:
    """int32[T, n]: messages to each destination in each step, summed over the samples."""
    steps = spikes.reshape(*spikes.shape[:2], int(np.prod(spikes.shape[2:])))
    if not repeats:
        sent = steps != 0
        return sent[0].astype(np.int32) if len(sent) == 1 else sent.sum(0, dtype=np.int32)
    return np.minimum(np.abs(steps.astype(np.int64)).sum(0), np.iinfo(np.int32).max).astype(np.int32)
