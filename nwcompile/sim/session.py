"""Session: a stream, one sample of unlimited length that is fed in pieces, bit for bit equal to one run."""

from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from time import perf_counter

import numpy as np

from nwcompile.argument_types import checked, has_type
from nwcompile.cost.time.stream import StreamFigures, StreamTimes
from nwcompile.errors import BackendError, ModelError, OptionError, shown, unknown_choice
from nwcompile.ir.network import Network
from nwcompile.ir.program import Program
from nwcompile.ir.run import BusSchedule, Dropped
from nwcompile.ir.shown import count_text, format_lines
from nwcompile.sim import BACKENDS, load_machine
from nwcompile.sim.cycle.overload import verify_backend
from nwcompile.sim.inputs import frames_of, prepare_inputs
from nwcompile.sim.machine import align_rows
from nwcompile.sim.runs import output_of
from nwcompile.sim.values import verify_counts, verify_totals

ERROR_CODE = "NW6004"
RECORDS = ("spikes", "all")


@dataclass(frozen=True, eq=False)
class Chunk:
    """A part of the Run of one sample. Concatenated, the arrays of all chunks are the arrays of the Run.

    `spikes`, `states` and `output` `[1, k, *shape]` cover k aligned steps from `first_step` on, which every layer has
    finished; k may be 0. `counters` int64[n, core], `step_cycles`, `step_energy_pj` and `link_flits` cover n hardware
    steps from `first_hardware_step` on, and are None where they are None in a Run. A network that is not compiled has
    no hardware steps.
    """

    backend: str
    first_step: int
    first_hardware_step: int
    spikes: dict[str, np.ndarray]
    states: dict[str, dict[str, np.ndarray]]
    output: np.ndarray | dict[str, np.ndarray]
    counters: dict[str, np.ndarray] = field(default_factory=dict)
    step_cycles: np.ndarray | None = None
    step_energy_pj: dict[str, np.ndarray] | None = None
    link_flits: np.ndarray | None = None
    dropped: Dropped | None = None
    bus: BusSchedule | None = None

    @property
    def n_steps(self) -> int:
        """Number of aligned steps."""
        return next(iter(self.spikes.values())).shape[1]

    @property
    def n_hardware_steps(self) -> int:
        """Number of hardware steps."""
        return len(self.counters.get("synops", ()))

    def __repr__(self) -> str:
        steps, hardware = count_text(self.n_steps, "aligned step"), count_text(self.n_hardware_steps, "hardware step")
        head = f"Chunk ({self.backend}): {steps} from {self.first_step}, {hardware} from {self.first_hardware_step}"
        spikes = {name: int(np.abs(s, dtype=np.int64).sum()) for name, s in self.spikes.items()}
        return format_lines(head, [f"layer {name}: {count_text(n, 'spike')}" for name, n in spikes.items()], "layers")


class Aligned:
    """Converts the rows of a layer that is `late` (`sim.machine:Machine`) to consecutive aligned steps."""

    def __init__(self, late: range, shape: tuple[int, ...], dtype):
        self.n_skipped, self.late = late[0], range(len(late))
        self.waiting = np.zeros((1, 0, *shape), dtype)

    def take_steps(self, rows: np.ndarray, n_complete: int) -> np.ndarray:
        """Append rows; return the next `n_complete` aligned steps, and keep the rest for later."""
        skipped = min(self.n_skipped, rows.shape[1])
        self.n_skipped -= skipped
        line = np.concatenate([self.waiting, rows[:, skipped:]], 1, dtype=self.waiting.dtype, casting="unsafe")
        self.waiting = line[:, n_complete:].copy()
        return align_rows(line, self.late, n_complete, line.dtype)


class Session:
    """A running model with one sample of unlimited length: `feed` it some steps at a time, then `close` it.

    `program` may also be a network that is not compiled; it runs on backend "reference", without hardware steps and
    times. Concatenated, the chunks that `feed` and `close` return equal the arrays of one
    `nw.simulate(program, x, backend)` of all steps, wherever the stream is cut. An aligned step is returned when every
    layer has finished it, `depth` hardware steps of the chip's pipeline after it was fed. Memory does not grow with
    the steps. `record="all"` records the states of every layer. `model_dt` is the time in seconds that a step of the
    model represents, for `figures`. Raises OptionError and BackendError for choices that are unknown or do not stream.
    """

    @checked("backend", "record")
    def __init__(
        self,
        program: Program | Network,
        backend: str = "reference",
        record: str = "spikes",
        model_dt: float | None = None,
    ):
        if not isinstance(program, Program | Network):
            raise OptionError(f"a Session takes a Program or a Network, not {type(program).__name__}")
        if backend not in BACKENDS:
            raise BackendError(unknown_choice("backend", backend, BACKENDS))
        if record not in RECORDS:
            raise OptionError(unknown_choice("record", record, RECORDS))
        network = program if isinstance(program, Network) else program.network
        if program.host is not None:
            raise ModelError(
                f"the host computes the input of this program from whole samples ({program.host.summary}), so it "
                "cannot be a stream; encode the input into spikes (nwcompile.encode), and compile for those"
            )
        if model_dt is not None and not (has_type(model_dt, float) and 0 < model_dt < float("inf")):
            raise OptionError(f"model_dt={shown(model_dt)} must be a time in seconds above 0")
        self.program, self.backend = program, backend
        self._compiled = compiled = program if isinstance(program, Program) else None
        self.n_steps = 0  # aligned steps fed
        self.n_given = 0  # aligned steps returned
        self.is_open = True
        self._network = replace(network, layout="BT")
        if compiled is not None:
            _verify_streams(compiled, backend)
        elif backend != "reference":
            raise BackendError(
                f"a network that is not compiled can be streamed on backend 'reference' only, not {backend!r}; compile "
                "it for a chip first"
            )
        self._machine = load_machine(program, backend, record == "all")
        self._state = self._machine.start(1)
        self._late, self._depth = self._machine.late, 0 if compiled is None else compiled.schedule.depth
        outputs = {name: self._late[name][-1] for name in network.outputs}
        cycle_ns = 1.0 if compiled is None else compiled.chip.core.cycle_ns  # without a chip nothing is timed
        self._times = StreamTimes(outputs, self._depth, cycle_ns, model_dt)
        self._wall_seconds = 0.0
        nodes = {name: network.node(name) for name in network.layers}
        self._spikes = {n: Aligned(self._late[n], node.shape, node.neuron.spike_dtype) for n, node in nodes.items()}
        self._states = {
            n: {
                state: Aligned(self._late[n], nodes[n].shape, np.int64 if nodes[n].neuron.is_fixed else np.float32)
                for state in nodes[n].neuron.state_names
            }
            for n in self._machine.recorded
        }

    def __reduce__(self):
        raise ModelError(
            "a Session cannot be copied or pickled, as its backend is at work in it; begin one where it is used: "
            "nw.Session(program)"
        )

    def __repr__(self) -> str:
        state = "open" if self.is_open else "closed"
        return f"Session ({self.backend}, {state}): {self.n_steps} steps fed, {self.n_given} given back"

    def feed(self, x=None, steps: int | None = None) -> Chunk:
        """Simulate the n steps of `x`, `[n, *shape]`, and return the steps that are now complete.

        `x` is a dict of such arrays by input name for several inputs, and None with `steps=n` for n silent steps.
        Raises ModelError for unusable input; the session then continues as if it had not been fed.
        """
        self._verify_open()
        if x is None and steps is None:
            raise ModelError("no input: give x, [n, *shape], or steps=n for n silent steps")
        compiled = self._compiled
        limits = () if compiled is None else (compiled.chip, compiled.on_multi_spike)
        inputs, _, n = prepare_inputs(self._network, self._add_sample_axis(x), steps, *limits)
        return self._run_steps(inputs, n, None)

    def feed_events(self, events: Iterable) -> Chunk:
        """Simulate n steps, each given as the lines that spike: `[[3, 17], [], [3]]` are three steps.

        Lines of several inputs are numbered one input after the other. A line listed k times has the value k.
        """
        if not isinstance(events, Iterable) or (hasattr(events, "ndim") and events.ndim == 0):
            raise ModelError(
                f"events are {shown(events)}, must be a list of steps, each a list of lines that spike in it"
            )
        return self.feed(frames_of(self._network, [(lines, 1) for lines in events]))

    def close(self) -> Chunk:
        """End the sample: drain the pipeline, and return the steps that were still in it."""
        self._verify_open()
        if self.n_steps == 0:
            raise ModelError("the session was fed nothing, so there is no sample to end; feed it a step or more")
        n = self._depth
        silent = {name: np.zeros((1, n, *node.shape), np.int32) for name, node in self._network.inputs.items()}
        chunk = self._run_steps(silent, n, self.n_steps)
        self.is_open = False
        return chunk

    def figures(self) -> StreamFigures:
        """Return step times, output latencies and sustainable load of the stream so far."""
        return self._times.figures(self._wall_seconds)

    def _run_steps(self, inputs: dict, n: int, n_steps: int | None) -> Chunk:
        """Simulate n hardware steps. `n_steps`: T once the input has ended, else None."""
        compiled, first, h, start = self._compiled, self.n_given, self.n_steps, perf_counter()
        self.is_open = False  # an interrupted session cannot continue
        rows = self._machine.advance(self._state, inputs, slice(h, h + n), n_steps)
        verify_totals(rows.spikes)
        measured = {}
        if compiled is not None:
            verify_counts(self._network, compiled.chip, compiled.on_multi_spike, rows.spikes, 0, h, self._late)
            measured = self._machine.measure(inputs, rows, "hardware")
        self.n_steps += n if n_steps is None else 0
        complete = self.n_steps - (self._depth if n_steps is None else 0)
        k = max(complete - first, 0)
        spikes = {name: line.take_steps(rows.spikes[name], k) for name, line in self._spikes.items()}
        states = {
            name: {state: line.take_steps(rows.states[name][state], k) for state, line in lines.items()}
            for name, lines in self._states.items()
        }
        self.n_given += k
        self.is_open = True
        sent = {name: self._n_sent(name, spikes[name]) for name in self._times.offset}
        cycles, n_rows = measured.get("step_cycles"), 0 if compiled is None else n
        self._times.add_rows(self._n_events(inputs, n if n_steps is None else 0), n_rows, cycles, sent)
        self._wall_seconds += perf_counter() - start
        return Chunk(
            backend=self.backend,
            first_step=first,
            first_hardware_step=0 if compiled is None else h,
            spikes=spikes,
            states=states,
            output=output_of(self._network, spikes, states),
            **{f.name: measured[f.name] for f in fields(Chunk) if f.name in measured},
        )

    def _n_events(self, inputs: dict, n: int) -> np.ndarray:
        """Return int64[n]: non-zero values of input lines in each of the n steps."""
        events = np.zeros(n, np.int64)
        for name, node in self._network.given_inputs.items():
            events += np.count_nonzero(inputs[name][0, :n].reshape(n, node.n_neurons), axis=1)
        return events

    def _n_sent(self, name: str, spikes: np.ndarray) -> np.ndarray:
        """Return int64[k]: spikes of a layer in each step; one if it never fires."""
        if not self._network.node(name).neuron.fires:
            return np.ones(spikes.shape[1], np.int64)
        return np.abs(spikes[0].astype(np.int64)).reshape(spikes.shape[1], int(np.prod(spikes.shape[2:]))).sum(1)

    def _verify_open(self) -> None:
        if not self.is_open:
            raise ModelError("the session is closed; begin another one: nw.Session(program)")

    def _add_sample_axis(self, x):
        """Add a sample axis to `x`. Raises ModelError for shapes that are not [n, *shape]."""
        given = self._network.given_inputs
        if x is None or (not isinstance(x, dict) and len(given) != 1):
            return x  # `prepare_inputs` raises the error
        named = x if isinstance(x, dict) else {next(iter(given)): x}
        return {
            name: _check_steps(name, array, given[name].shape) if name in given else array
            for name, array in named.items()
        }


def _check_steps(name: str, array, shape: tuple[int, ...]):
    """Check steps [n, *shape] of one sample and add a sample axis. Raises ModelError for other shapes."""
    is_ragged = False
    try:
        array = array if hasattr(array, "shape") else np.asarray(array)
    except ValueError:
        array, is_ragged = np.zeros(0), True
    if tuple(array.shape[1:]) != shape or not array.shape or not len(array):
        expected = ", ".join(["n", *map(str, shape)])
        got = "lists differ in length" if is_ragged else f"got shape {list(array.shape)}"
        raise ModelError(f"input {name!r} of a stream must be [{expected}], n steps of one sample, {got}")
    return array[None]


def _verify_streams(program: Program, backend: str) -> None:
    verify_backend(program, backend)
    if backend == "cycle" and not program.chip.family.has_barrier:
        raise BackendError(
            f"backend 'cycle' stops all cores between two chunks of a stream, and those of {program.chip.name} "
            'wait for their neighbors only (cost.sync = "neighbors"); use another backend, which measures no '
            'times, or set cost.sync = "barrier"'
        )
