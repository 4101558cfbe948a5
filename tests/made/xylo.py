"""Random and recorded networks in Xylo's arithmetic, in our form and in that of the vendor's simulator."""

from dataclasses import dataclass

import numpy as np

from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Dense
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import FixedPoint, NeuronSpec
from nwcompile.ir.program import Program
from nwcompile.ir.run import Run
from nwcompile.passes.emit import emit
from nwcompile.passes.prepare.schedule import schedule
from tests.frontend.frameworks import framework

FORMAT = FixedPoint(state_bits=16, decay_bits=4, shift_bits=0, overflow="clip", decay="shift")
HIDDEN_CAP = 31  # most spikes of a hidden neuron in a step


@dataclass(frozen=True, eq=False)
class Case:
    """Arrays of a case, named as in the recorded files (`reference/xylo/README.md`)."""

    arrays: dict[str, np.ndarray]

    def __getattr__(self, name: str):
        return self.arrays[name]

    @classmethod
    def load(cls, path) -> "Case":
        with np.load(path) as stored:
            return cls({name: stored[name] for name in stored.files})

    @property
    def network(self) -> Network:
        """Build our network; weights are shifted and clipped to 16 bits, as on the chip."""
        edges = [
            Dense("in", "hidden", self._weights("in")),
            Dense("hidden", "hidden", self._weights("rec"), delay=1),
            Dense("hidden", "out", self._weights("out")),
        ]
        layers = {"hidden": self._neurons(""), "out": self._neurons("_out")}
        return Network.from_arrays(layers, edges, {"in": self.w_in.shape[0]})

    def _weights(self, group: str) -> np.ndarray:
        weight = self.arrays[f"w_{group}"][:, :, 0].astype(np.int64) << int(self.arrays[f"shift_{group}"])
        return weight.astype(np.int16).T.astype(np.int32)

    def _neurons(self, suffix: str) -> NeuronSpec:
        many = {} if suffix else {"spikes": "multi", "max_spikes": HIDDEN_CAP}
        bias = self.arrays[f"bias{suffix}"] if int(self.has_bias) else 0
        return NeuronSpec(
            threshold=self.arrays[f"threshold{suffix}"].astype(np.int64),
            strict=False,
            reset="subtract",
            decay_u=self.arrays[f"dash_syn{suffix}"][:, 0].astype(np.int64),
            decay_v=self.arrays[f"dash_mem{suffix}"].astype(np.int64),
            bias=np.asarray(bias, np.int64),
            fixed=FORMAT,
            **many,
        )

    @property
    def program(self) -> Program:
        """Build our program on one core, without checking its limits."""
        return one_core(self.network)

    def first_difference(self, run: Run, late: int = 0) -> tuple[int, str] | None:
        """First hardware step in which a run differs from the vendor's row `late` steps before."""
        differs = []
        for layer, suffix, spikes in (("hidden", "", "rec"), ("out", "_out", "out")):
            pairs = {
                "spikes": (run.spikes[layer][0], self.arrays[f"sim_{spikes}_spikes"]),
                "v": (run.states[layer]["v"][0], self.arrays[f"sim_v{suffix}"]),
                "u": (run.states[layer]["u"][0], self.arrays[f"sim_i{suffix}"]),
            }
            for name, (ours, theirs) in pairs.items():
                wanted = theirs.reshape(len(theirs), -1)[: len(ours) - late]
                steps = np.flatnonzero((ours[late:] != wanted).any(1))
                differs += [(int(steps[0]) + late, f"{layer} {name}")] if len(steps) else []
        return min(differs, default=None)


def one_core(network: Network) -> Program:
    """Map a fixed-point network to the core of XyloAudio 2, without checking its limits."""
    cores = {name: np.zeros(network.node(name).n_neurons, int) for name in network.layers}
    mapping = Mapping.from_arrays(cores, [[0, 0, 0]])
    chip = Chip.load("xylo_audio2").replace({"core.max_neurons": 2000, "core.max_outputs": 100})
    return emit(network, schedule(network, "pipelined"), mapping, chip, None, {})


def first_open(run: Run) -> int | None:
    """First step of a run with a sum that may depend on the order of spikes."""
    return min((int(places[:, 1].min()) for places in run.order_dependent.values() if len(places)), default=None)


def draw(rng: np.random.Generator, version: int, n_hidden: int) -> Case:
    """Draw a recurrent network; every second one has weights strong enough to saturate currents and membranes."""
    n_inputs, n_outputs, n_steps = int(rng.integers(1, 17)), int(rng.integers(1, 9)), int(rng.integers(5, 40))
    is_strong = rng.random() < 0.5
    density, strength = 10 ** rng.uniform(-2, 0), int(rng.integers(10, 128 if is_strong else 30))

    def weights(*shape: int) -> np.ndarray:
        share = max(density, 3 / shape[0])
        kept = rng.random(shape) < (share if is_strong else min(share, 6 / shape[0]))
        return (rng.integers(-strength - 1, strength + 1, shape) * kept).astype(np.int8)[:, :, None]

    def neurons(n: int, suffix: str) -> dict:
        return {
            f"threshold{suffix}": rng.integers(1, 10 ** rng.integers(1, 4) * 4, n),
            f"dash_mem{suffix}": rng.integers(0, 16 if rng.random() < 0.3 else 6, n),
            f"dash_syn{suffix}": rng.integers(0, 7, (n, 1)),
            f"bias{suffix}": rng.integers(-60, 60, n) if has_bias else np.zeros(n, np.int64),
        }

    has_bias = version == 2 and rng.random() < 0.4
    x = rng.poisson(10 ** rng.uniform(-1, 0.6), (n_steps, n_inputs)).clip(0, 15)
    x[0] = 0  # in this step our network sees only its biases
    return Case({
        "version": np.array(version), "has_bias": np.array(has_bias), "x": x,
        "w_in": weights(n_inputs, n_hidden), "w_rec": weights(n_hidden, n_hidden),
        "w_out": weights(n_hidden, n_outputs),
        **{f"shift_{group}": rng.integers(0, 4 if is_strong else 2) for group in ("in", "rec", "out")},
        **neurons(n_hidden, ""), **neurons(n_outputs, "_out"), "alias": np.full(n_hidden, -1),
    })  # fmt: skip


def with_vendor(case: Case) -> Case:
    """Add the results of the vendor's simulator, named as in the recorded files; skip the test without it."""
    chip = framework(f"xylosim.v{int(case.version)}")

    def synapses(weight: np.ndarray) -> list:
        return [
            [chip.XyloSynapse(int(target), 0, int(row[target])) for target in np.flatnonzero(row)]
            for row in weight[:, :, 0]
        ]

    kept = [synapses(getattr(case, f"w_{group}")) for group in ("in", "rec", "out")]  # it keeps raw pointers to them
    biases = [bool(case.has_bias), case.bias.tolist(), case.bias_out.tolist()] if int(case.version) == 2 else []
    layer = chip.XyloLayer(
        *kept, [[] for _ in case.threshold], case.threshold.tolist(), case.threshold_out.tolist(), *biases,
        *(int(getattr(case, f"shift_{group}")) for group in ("in", "rec", "out")),
        case.dash_mem.tolist(), case.dash_mem_out.tolist(), case.dash_syn.tolist(), case.dash_syn_out.tolist(), "it",
    )  # fmt: skip
    layer.evolve(case.x.tolist())
    recorded = {
        "sim_rec_spikes": layer.rec_recurrent_spikes, "sim_out_spikes": layer.rec_out_spikes,
        "sim_v": layer.rec_v_mem, "sim_v_out": layer.rec_v_mem_out,
        "sim_i": layer.rec_i_syn, "sim_i_out": layer.rec_i_syn_out,
    }  # fmt: skip
    del layer, kept
    arrays = {name: np.asarray(values) for name, values in recorded.items()}
    by_step = {name: array if "spikes" in name else np.moveaxis(array, 1, 0) for name, array in arrays.items()}
    return Case(case.arrays | by_step)
