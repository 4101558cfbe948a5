"""Device variation: one program on many devices with mismatch and faults, and its accuracy on them.

Every device is a Program itself.

Mismatch acts on analog quantities, so rounding to the program's integers must not remove it: a weight of 1 times 1.1
would be 1 again. The numbers therefore get a finer resolution, which does not change what the ideal program computes:
  - The shift of a synaptic sum moves into the weights, `(sum w*s) << shift = sum (w << shift)*s`. The weights get the
    resolution that the state already has, and nothing else changes.
  - If that shift is less than FRACTION_BITS, weights, thresholds, biases, clamps and the state's range are multiplied
    by the missing powers of two. A LIF neuron is invariant to that, except that leaks are rounded finer and a
    saturated state is less than 1 old unit larger.
  - Decays have 16 bits, the most that a program supports.
Effects of each kind of variation (e is standard normal, r is uniform in 0..1):
  weight     w -> round(w * (1 + weight*e)) for every stored weight, with its own e. On chips that share kernels
             (`weights.sharing`) a stored weight is a kernel entry in a core. Elsewhere it is one synapse: each tap of
             a convolution is stored, and varies, per target neuron.
  levels     w -> the nearest multiple of m / (levels - 1), but not finer than whole numbers, before it deviates; m is
             the largest |w| of the connection. A memory cell of a crossbar has `levels` equidistant conductances from
             0 to that of m, and a weight is the difference of two cells. This rounding is the same on all devices.
  stuck      a stored weight is 0 if r < stuck. It still occupies memory and is read.
  threshold  theta -> round(theta * max(1 + threshold*e, 0)) per neuron, at least 1 if theta was above 0. A reset by
             subtraction subtracts the neuron's own threshold.
  leak       the share that a neuron keeps in a step, b = 1 - decay/2^w, becomes b^max(1 + leak*e, 0). This multiplies
             its leak rate 1/tau, as leak currents vary. Membrane and current have an e each. Nothing changes if there
             is no leak, or if nothing is kept.
  drift      w -> round(w * (t/t0)^-nu) for every stored weight, t = drift seconds after programming, if t > t0; nu is
             max(exponent + spread*e, 0), with its own e. Exponent, spread and t0 are the chip's (`crossbar.drift_*`).
             One cell of a pair holds |w|, the other 0, so a weight drifts as one cell (Joshi et al., Nature
             Communications 11, 2473 (2020), and IBM's aihwkit, docs/source/pcm_inference.rst).
  noise      every read of a cell gives w * (1 + noise*e), with a new e in each step. What a column reads adds up, so
             the synaptic sum of a neuron gets round(noise * e * sqrt(sum (w*s)^2)) over the spikes s of its step, with
             an e for each neuron, step and sample. Spikes of one source in a step are one read. Read noise is relative
             to the conductance in both sources above. It is no part of the device's Program, but of its runs.
  jitter     a spike of an input line in step t comes in step t + round(jitter*e), with its own e, within the sample.
             Of spikes of a line that meet in a step, one remains. This changes the input, not the device's Program.
  dead       a neuron with r < dead ignores its input and never fires; a readout stays at 0.
Biases, resets to a value, clamps and refractory periods do not vary.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from numbers import Real
from typing import Any

import numpy as np

from nwcompile.argument_types import checked, checked_fields
from nwcompile.cost.traffic.wiring import synapse_count
from nwcompile.errors import ModelError, OptionError, check_int, shown
from nwcompile.ir.chip import Chip
from nwcompile.ir.chip_check import LARGEST, NO_DRIFT
from nwcompile.ir.chip_sections import Variation
from nwcompile.ir.connection import Connection, Conv2d, Dense, Sparse, synapse_list
from nwcompile.ir.host import Injected
from nwcompile.ir.network import Network, Node
from nwcompile.ir.program import Program
from nwcompile.ir.run import Run
from nwcompile.sim import simulate
from nwcompile.sim.accuracy import accuracy, label_array
from nwcompile.sim.answers import record_for, warn_of_answers
from nwcompile.sim.inputs import Inputs, prepare_inputs, repeat_lines

ERROR_CODE = "NW6106"
MAX_DEVICES = 1_000_000  # More devices than this are a mistake: they would take weeks.
LARGEST_SEED = (1 << 63) - 1
FRACTION_BITS = 6  # A unit of weight is divided into 64, so rounding changes a weight by less than 1 %.
LARGEST_WEIGHT_BITS = 27  # Weights of 27 bits times a factor up to 8 fit the 31 bits that every backend supports.
LARGEST_STATE_BITS = 32
DECAY_BITS = 16
SYNAPSE_BYTES = 30  # per synapse while a device is drawn and simulated
STREAM = int.from_bytes(b"device")  # Spawn key that nothing else in this project uses.
KINDS = ("weight", "stuck", "threshold", "leak", "dead", "jitter", "drift", "noise")
LARGEST_INPUT = (1 << 31) - 1  # Inputs are int32.


@dataclass(frozen=True, eq=False)
class Devices:
    """A program on the devices of `seed`, each a Program of its own: `device(0)`, `device(1)`, ...

    A device depends only on the seed, its index and the program's structure. Each kind of variation has its own random
    numbers: `device(3)` has the same dead neurons whatever its weights are, and two programs of the same structure get
    the same draws.
    """

    program: Program
    variation: Variation
    seed: int = 0

    def __post_init__(self):
        checked_fields(self)
        _verify_cells(self.variation, self.program.chip)
        network = self.program.network
        for name in network.programs if self._is_varied else ():
            raise ModelError(
                f"layer {name!r} is a neuron program ({network.node(name).neuron.name}), yours or one that the "
                "compiler inserted for a maximum or a product of currents; devices vary built-in neurons only"
            )

    @checked()
    def device(self, index: int) -> Program:
        """Return the program with the variation of device `index`, 0 or more."""
        if index < 0:
            raise OptionError(f"index={index} of a device must be 0 or more")
        if not self._is_varied:
            return self.program
        network = self.program.loaded_program.network
        layers = [network.node(name) for name in network.layers]
        if self.variation.leak and any(node.neuron.fixed.shifts for node in layers):
            raise OptionError(
                f"leak={self.variation.leak}: neurons of {self.program.chip.name} decay by whole shifts, which are "
                "alike on all devices; vary weight, threshold, stuck or dead"
            )
        dead = {
            node.name: self._make_rng("dead", index, i).random(node.n_neurons) < (self.variation.dead or 0)
            for i, node in enumerate(layers)
        }
        nodes = {node.name: self._vary_layer(node, i, index, dead[node.name]) for i, node in enumerate(layers)}
        edges = tuple(self._vary_connection(c, i, index, dead[c.target]) for i, c in enumerate(network.connections))
        varied = replace(network, nodes={name: nodes[name] for name in network.nodes}, connections=edges)
        return replace(self.program.loaded_program, network=varied)

    def jitter_spikes(self, inputs: Inputs, index: int) -> Inputs:
        """Return prepared inputs, int[B, T, *shape] by name, with the spike times of device `index`.

        Raises OptionError if spikes vary and the chip takes none.
        """
        if not self.variation.jitter:
            return inputs
        network = self.program.network
        lines = [n for n, node in network.inputs.items() if node.constant is None and node.repeats is None]
        if not lines:
            raise OptionError(f"jitter={self.variation.jitter}: no spikes enter the chip in this program; leave it out")
        moved = {}
        for i, name in enumerate(lines):
            sample, step, *line = np.nonzero(inputs[name])
            e = self._make_rng("jitter", index, i).standard_normal(len(step))
            later = np.clip(step + np.rint(self.variation.jitter * e), 0, inputs.shape[1] - 1).astype(np.int64)
            moved[name] = np.zeros_like(inputs[name])
            moved[name][(sample, later, *line)] = inputs[name][(sample, step, *line)]
        return inputs.replace({**moved, **repeat_lines(network, moved)})

    def run(self, index: int, inputs: Inputs, backend: str = "sequence", device: str = "cpu", record="spikes") -> Run:
        """Run device `index` on prepared inputs, int[B, T, *shape] by name, with its jitter and its read noise."""
        program, inputs = self.device(index), self.jitter_spikes(inputs, index)
        if not self.variation.noise:
            return simulate(program, inputs, backend, device, record=record)
        draws = {
            node.name: self._make_rng("noise", index, i).standard_normal((*inputs.shape, *node.shape))
            for i, node in enumerate(map(program.network.node, program.network.layers))
        }
        return simulate_reads(program, inputs, self.variation.noise, draws, backend, device, record)

    def _make_rng(self, kind: str, index: int, place: int) -> np.random.Generator:
        """Return the random generator of one kind for one layer or connection of one device."""
        key = (STREAM, index, KINDS.index(kind), place)
        return np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=key))

    @property
    def _is_varied(self) -> bool:
        """Whether devices are other programs, and do not only get spikes at other times."""
        return any(value for kind, value in asdict(self.variation).items() if kind != "jitter")

    @property
    def _varies_weights(self) -> bool:
        """Whether weights change, when stored or when read."""
        return any(getattr(self.variation, kind) for kind in ("weight", "levels", "drift", "noise"))

    @cached_property
    def _n_extra(self) -> dict[str, tuple[int, int]]:
        """Extra bits of the weights and of the state, by layer."""
        network = self.program.network
        return {
            name: extra_bits(network, name) if self.variation.threshold or self._varies_weights else (0, 0)
            for name in network.layers
        }

    @cached_property
    def _stored_weights(self) -> list[tuple[Connection, np.ndarray, np.ndarray | slice, int]]:
        """Unrolled connections, each with its target neurons, the stored weight of each synapse, and their number.

        Raises OptionError if the machine has too little memory.
        """
        network = self.program.network
        n_synapses = sum(synapse_count(network, c) for c in network.connections)
        if n_synapses * SYNAPSE_BYTES > (has := memory_bytes()):
            raise OptionError(
                f"devices whose weights differ are lists of their {n_synapses} synapses, which take about "
                f"{n_synapses * SYNAPSE_BYTES / (1 << 30):.1f} GiB, and this machine has {has / (1 << 30):.1f}: vary "
                "threshold and leak alone (convolutions stay kernels then), or a smaller network"
            )
        return [self._unroll_connection(c) for c in network.connections]

    def _unroll_connection(self, connection: Connection) -> tuple[Connection, np.ndarray, np.ndarray | slice, int]:
        pre, post, place = synapse_list(connection, self.program.network.node(connection.source).shape)
        stored = slice(None)
        n_stored = len(place)
        if not isinstance(connection, Conv2d):
            return connection, post, stored, n_stored
        weight = np.ravel(connection.weight)
        if self.program.chip.weights.sharing:
            cores, core = np.unique(self.program.mapping.core_of[connection.target], return_inverse=True)
            stored = core[post] * len(weight) + place
            n_stored = len(cores) * len(weight)
        listed = Sparse(
            connection.source, connection.target, pre=pre, post=post, weight=weight[place], delay=connection.delay
        )
        return listed, post, stored, n_stored

    def _vary_connection(self, connection: Connection, i: int, index: int, dead: np.ndarray) -> Connection:
        """Return connection i on device `index`. A convolution is unrolled if its synapses differ."""
        if isinstance(connection, Injected):  # registers hold what the host writes
            bits = self._n_extra[connection.target][0]
            return connection.replace(weight=np.where(dead[connection.post], 0, 1 << bits).astype(np.int32))
        if not (self._varies_weights or self.variation.stuck or dead.any()):
            return connection.replace(
                weight=(np.asarray(connection.weight, np.int64) << self._n_extra[connection.target][0]).astype(np.int32)
            )
        connection, post, stored, n_stored = self._stored_weights[i]
        value = np.ravel(connection.weight).astype(np.float64)
        if self.variation.levels:
            step = max(np.abs(value).max(initial=0) / (self.variation.levels - 1), 1)
            value = np.rint(value / step) * step
        value *= 2.0 ** self._n_extra[connection.target][0]
        if self.variation.weight:
            value *= (1 + self.variation.weight * self._make_rng("weight", index, i).standard_normal(n_stored))[stored]
        if self.variation.drift:
            e = self._make_rng("drift", index, i).standard_normal(n_stored)
            value *= self._age_cells(self.variation.drift, e)[stored]
        if self.variation.stuck:
            value[(self._make_rng("stuck", index, i).random(n_stored) < self.variation.stuck)[stored]] = 0
        value[dead[post]] = 0
        return connection.replace(weight=np.rint(value).astype(np.int32).reshape(np.shape(connection.weight)))

    def _age_cells(self, seconds: float, e: np.ndarray) -> np.ndarray:
        """Return the share of its conductance that each cell has left, for drawn numbers e, float64[cell]."""
        array: Any = self.program.chip.crossbar  # `_verify_drift` has seen its three keys
        since = max(seconds / array.drift_start_s, 1.0)
        return since ** -np.maximum(array.drift_exponent + array.drift_spread * e, 0)

    def _vary_layer(self, node: Node, i: int, index: int, dead: np.ndarray) -> Node:
        """Return layer i on device `index`."""
        spec, shape, (in_weight, in_state) = node.neuron, node.shape, self._n_extra[node.name]
        fixed, dead = spec.fixed, dead.reshape(shape)
        state_bits = fixed.state_bits + in_state
        threshold = spec.array("threshold", shape) << in_state
        if self.variation.threshold:
            e = self._make_rng("threshold", index, i).standard_normal(shape)
            varied = np.rint(threshold * np.maximum(1 + self.variation.threshold * e, 0)).astype(np.int64)
            threshold = np.where(threshold > 0, np.maximum(varied, 1), varied)
        changes = {"threshold": np.where(dead, 1 << (state_bits - 1), threshold)}  # no state reaches that
        for name, bits in (("bias", in_state), ("bias_u", in_weight)):
            changes[name] = np.where(dead, 0, spec.array(name, shape) << bits)
        for name in ("reset_value", "v_min"):
            if getattr(spec, name) is not None:
                changes[name] = np.asarray(getattr(spec, name), np.int64) << in_state
        decay_bits = fixed.decay_bits
        if self.variation.leak:
            drawn, decay_bits = self._make_rng("leak", index, i), DECAY_BITS
            for name in ("decay_v", "decay_u"):
                factor = np.maximum(1 + self.variation.leak * drawn.standard_normal(shape), 0)
                changes[name] = varied_decay(spec.array(name, shape), fixed.decay_bits, factor)
        shift_bits = fixed.shift_bits - (in_weight - in_state)
        fixed = replace(fixed, state_bits=state_bits, decay_bits=decay_bits, shift_bits=shift_bits)
        return replace(node, neuron=spec.replace(fixed=fixed, **changes))


def memory_bytes() -> int:
    """Bytes of RAM of this machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def extra_bits(network: Network, name: str) -> tuple[int, int]:
    """Return extra bits: weights get their shift, or FRACTION_BITS if more; the state gets the bits above the shift.

    They are fewer if weights or state would exceed the widest integers of the backends. They are 0 if decays are
    shifts, which subtract at least 1 from a state whatever its unit.
    """
    fixed = network.node(name).neuron.fixed
    if fixed.shifts:
        return 0, 0
    largest = max((int(np.abs(c.weight.astype(np.int64)).max(initial=0)) for c in network.into(name)), default=0)
    room = max(LARGEST_WEIGHT_BITS - largest.bit_length(), 0)
    more = min(FRACTION_BITS - fixed.shift_bits, LARGEST_STATE_BITS - fixed.state_bits, room - fixed.shift_bits)
    in_state = max(more, 0)
    return min(fixed.shift_bits, room) + in_state, in_state


def varied_decay(decay: np.ndarray, decay_bits: int, factor: np.ndarray) -> np.ndarray:
    """Multiply the leak rates of decays of `decay_bits` by `factor`; return decays of DECAY_BITS bits, int64."""
    lost = decay / (1 << decay_bits)
    whole = 1 << DECAY_BITS
    varied = np.rint(whole * (1 - (1 - lost) ** factor)).astype(np.int64)
    return np.where(lost == 1, whole, varied)


def verify_variation(given: Variation) -> None:
    """Raise OptionError unless every given figure is in the range of its chip key."""
    if given.levels is not None:
        check_int("levels", given.levels, 2, LARGEST["variation.levels"])
    for name, value in (asdict(given) | {"levels": None}).items():
        number, largest = isinstance(value, Real) and not isinstance(value, bool), LARGEST[f"variation.{name}"]
        if value is not None and not (number and 0 <= value <= largest):
            if name in ("jitter", "drift"):
                unit = "steps" if name == "jitter" else "seconds"
                raise OptionError(f"{name}={shown(value)} must be a number of {unit} from 0 to {largest}")
            is_share = name in ("stuck", "dead")
            kind = "share, 0.01 for 1 %" if is_share else "standard deviation as a part of the value, 0.1 for 10 %"
            raise OptionError(f"{name}={shown(value)} must be a number from 0 to 1: a {kind}")


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
    levels: int | None = None,
    jitter: float | None = None,
    noise: float | None = None,
    drift: float | None = None,
) -> Robustness:
    """Measure the accuracy of a program on `samples` devices with mismatch and faults, and on the ideal device.

    `x` is an input of `simulate`, `y` int[B] the labels. `weight`, `threshold` and `leak` are relative standard
    deviations (0.3 is 30 %); `stuck` and `dead` are shares of synapses and neurons; `levels` is the number of
    conductances of a memory cell, from 2; `jitter` is the standard deviation of the time of spikes that enter, in
    steps; `noise` is the relative standard deviation of each read of a cell; `drift` is the time since the cells were
    programmed, in seconds. None takes the figure of the chip file's `[variation]`. The head of
    `nwcompile/sim/variation.py` defines their effects. Equal arguments give equal devices on any number of threads;
    device i does not depend on the number of devices. Raises OptionError if no kind is given or a number is out of
    range, and ModelError for unusable `x` or `y`.
    """
    given = Variation(
        weight=weight,
        threshold=threshold,
        leak=leak,
        stuck=stuck,
        dead=dead,
        levels=levels,
        jitter=jitter,
        noise=noise,
        drift=drift,
    )
    ideal, *parts = iter_accuracies(program, x, y, [given], samples, seed, backend, device)
    return Robustness(ideal, tuple(parts), merge_variation(program.chip, given), int(seed), len(y))


def iter_accuracies(
    program: Program, x, y, given: Sequence[Variation], samples: int, seed: int, backend: str, device: str
) -> Iterator[float]:
    """Yield the accuracy of the ideal device, then of `samples` devices of each given variation in turn."""
    if not isinstance(program, Program):
        raise OptionError(f"robustness takes an nw.Program, not {type(program).__name__}; compile the network first")
    samples = check_int("samples", samples, 1, MAX_DEVICES)
    seed = check_int("seed", seed, 0, LARGEST_SEED)
    points = [Devices(program, merge_variation(program.chip, variation), seed) for variation in given]
    inputs, n_samples, _ = prepare_inputs(program.network, x, None, program.chip, program.on_multi_spike)
    labels = label_array(y, n_samples)
    warn_of_answers(program.network, "the accuracy")
    record = record_for(program.network)
    yield accuracy(simulate(program, inputs, backend, device, record=record), labels)
    for devices in points:
        for index in range(samples):
            yield accuracy(devices.run(index, inputs, backend, device, record), labels)


def merge_variation(chip: Chip, given: Variation) -> Variation:
    """Fill in the chip's figures where `given` has None. Raises OptionError if no kind is given, or by too much."""
    verify_variation(given)
    both: dict[str, Any] = {
        name: getattr(chip.variation, name) if value is None else value if name == "levels" else float(value)
        for name, value in asdict(given).items()
    }
    if all(value is None for value in both.values()):
        raise OptionError(
            f"{chip.name} does not say how its devices differ: give weight, threshold, leak, stuck, dead, levels, "
            "jitter, noise or drift (on the command line --weight 0.1, ...), or write them into the [variation] of its "
            "chip file"
        )
    variation = Variation(**both)
    _verify_cells(variation, chip)
    return variation


def _verify_cells(variation: Variation, chip: Chip) -> None:
    """Raise OptionError if memory cells drift and the chip does not say how, or have more levels than its weights."""
    if variation.drift and chip.crossbar.drift_exponent is None:
        raise OptionError(f"drift={variation.drift:g}: {chip.name}: {NO_DRIFT} (on the command line --set)")
    if (variation.levels or 0) > chip.most_levels:
        raise OptionError(
            f"levels={variation.levels}: weights of {chip.weights.bits} bits on {chip.name} have at most "
            f"{chip.most_levels} levels; give at most that many"
        )


def simulate_reads(
    program: Program, inputs: Inputs, deviation: float, draws: dict[str, np.ndarray], backend: str, device: str, record
) -> Run:
    """Simulate a program whose synaptic sums are read with noise; `draws` are e of its layers, float[B, T, *shape].

    The noise enters as numbers in bias registers, so each backend runs it exactly. It depends on the spikes of its own
    step. The run is therefore repeated until its noise no longer changes. Each repetition settles at
    least one more layer, or one more step of layers that feed each other.
    """
    network = program.network
    registers = {name: f"{name}/read noise" for name in draws}
    noisy = program.with_registers({register: name for name, register in registers.items()})
    squares = {c: _square_weights(network, c) for c in network.connections if not isinstance(c, Injected)}
    from_inputs = {name: _sum_squares(network, name, squares, inputs, inputs.shape) for name in draws}
    noise = {registers[name]: np.zeros(e.shape, np.int32) for name, e in draws.items()}
    while True:
        run = simulate(noisy, inputs.replace(noise), backend, device, record=record)
        sent = {name: network.node(name).merge_axon_spikes(x) for name, x in run.spikes.items()}
        given, noise = noise, {}
        for name, e in draws.items():
            power = from_inputs[name] + _sum_squares(network, name, squares, sent, inputs.shape)
            read = np.rint(deviation * e * np.sqrt(power).reshape(e.shape))
            if program.schedule.offset[name] == 0:  # its registers act a step later, and nothing is read in its first
                read = np.roll(read, -1, axis=1)
            noise[registers[name]] = np.clip(read, -LARGEST_INPUT, LARGEST_INPUT).astype(np.int32)
        if all(np.array_equal(array, given[register]) for register, array in noise.items()):
            return run


def _sum_squares(network: Network, name: str, squares: dict, sent: dict, shape: tuple[int, int]) -> np.ndarray:
    """Return the sums of (w*s)^2 of a layer's neurons, float64[B, T, n], over the sources in `sent` [B, T, *shape]."""
    n_samples, n_steps = shape
    power = np.zeros((n_samples, n_steps, network.node(name).n_neurons))
    for c in network.into(name):
        n_heard = n_steps - c.aligned_delay
        if c in squares and c.source in sent and n_heard > 0:
            x = sent[c.source][:, :n_heard].reshape(n_samples * n_heard, -1).astype(np.float64) ** 2
            power[:, c.aligned_delay :] += (x @ squares[c]).reshape(n_samples, n_heard, -1)
    return power


def _square_weights(network: Network, connection: Connection):
    """Return the squared weights of a connection, float64[source, target], as a sparse matrix unless it is dense."""
    weight = np.asarray(connection.weight, np.float64) ** 2
    if isinstance(connection, Dense):
        return weight.T
    from scipy.sparse import csr_array

    source, target = network.node(connection.source), network.node(connection.target)
    pre, post, place = synapse_list(connection, source.shape)
    return csr_array((weight.reshape(-1)[place], (pre, post)), (source.n_neurons, target.n_neurons))
