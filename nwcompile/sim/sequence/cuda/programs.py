"""A layer of neuron programs on a GPU: whether 32 bits hold its numbers, and one run of its kernel over time."""

import numpy as np
import torch

from nwcompile.errors import BackendError
from nwcompile.ir.network import Node
from nwcompile.ir.neuron_programs.ranges import LARGEST_INPUT, find_ranges, fits_32_bits
from nwcompile.kernels.cores.programs.build import build_gpu_module
from nwcompile.kernels.gpu.program import scan
from nwcompile.sim.reference.program_step import rests
from nwcompile.sim.sequence.cuda.launch import AHEAD_STEPS, block_of, given_events


class GpuProgram:
    """A layer's program as the kernel takes it."""

    def __init__(self, node: Node, device: torch.device):
        self.node, self.n, self.device = node, node.n_neurons, device
        self.program = node.neuron
        self.rests = torch.from_numpy(rests(self.program, node.shape).reshape(-1).astype(np.uint8)).to(device)
        self._numbers: dict[bool, tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = {}

    @property
    def range(self) -> tuple[int, int]:
        """Least and largest number that is possible as a message."""
        if not self.program.fires:
            return 0, 0
        sent = find_ranges(self.program, AssertionError)[self.program.output]
        return min(int(sent.low), 0), max(int(sent.high), 0)

    def drive(self, largest: int) -> int:
        """The most that sums up to `largest` are. Raises BackendError where the program is not proved for so many."""
        if largest > LARGEST_INPUT:
            raise BackendError(
                f"layer {self.node.name!r}: sums of up to {largest} are beyond {LARGEST_INPUT}, the most that neuron "
                "programs are proved for; use device='cpu'"
            )
        return largest

    def scan(self, n_samples: int, n_steps: int, largest: int, keeps: bool, counts: bool) -> "ProgramScan":
        """A run over so many samples and steps."""
        return ProgramScan(self, n_samples, n_steps, largest, keeps, counts)

    def numbers(self, is_wide: bool) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Parameters [parameter, n], entries of tables [entry] and initial states [state, n], int64 or int32."""
        if is_wide not in self._numbers:
            kind = np.int64 if is_wide else np.int32
            of_names = self.program.parameters, self.program.state_names
            given, initial = (self._rows(names, kind).to(self.device) for names in of_names)
            entries = torch.from_numpy(self.program.table_entries.astype(kind)).to(self.device)
            self._numbers[is_wide] = given, entries, initial
        return self._numbers[is_wide]

    def _rows(self, names, kind: type) -> torch.Tensor:
        rows = [self.program.array(name, self.node.shape) for name in names]
        return torch.from_numpy(np.array(rows, kind).reshape(-1, self.n))


class ProgramScan:
    """One run of a layer of programs; as `neurons.Scan`."""

    def __init__(self, neurons: GpuProgram, n_samples: int, n_steps: int, largest: int, keeps: bool, counts: bool):
        self.neurons, self.keeps, self.counts = neurons, keeps, counts
        program, device, shape = neurons.program, neurons.device, (n_samples, n_steps, neurons.n)
        self.n_states = len(program.states)
        self.is_wide = not fits_32_bits(program, largest)
        number = torch.int64 if self.is_wide else torch.int32
        sent = torch.int8 if program.spike_dtype == np.int8 else torch.int32
        self.spikes = torch.empty(shape, dtype=sent, device=device)
        kept = (n_samples, n_steps, self.n_states, neurons.n) if keeps else (0,) * 4
        self.kept = torch.empty(kept, dtype=number, device=device)
        self.updates = torch.zeros((n_steps if counts else 0, neurons.n), dtype=torch.int32, device=device)
        self.state = torch.empty((self.n_states, n_samples, neurons.n), dtype=number, device=device)

    @property
    def states(self) -> dict[str, torch.Tensor]:
        """The states by name, [sample, step, neuron], where they are kept."""
        return {name: self.kept[:, :, s] for s, name in enumerate(self.neurons.program.state_names)}

    def advance(self, sums: torch.Tensor, bits: int, touched: torch.Tensor | None, steps: slice, resumes: bool) -> None:
        """Run these steps from their sums [sample, step, neuron], to be shifted by `bits`, and events, if any."""
        n_samples, n_steps, n = sums.shape
        given, entries, initial = self.neurons.numbers(self.is_wide)
        events, strides = given_events(sums, touched, self.spikes)
        out, kept = self.spikes[:, steps], self.kept[:, steps]
        if resumes and steps.start == 0:
            self.state[:] = initial[:, None]
        block = block_of(n_samples * n)
        scan[(-(-n_samples * n // block),)](
            sums,
            events,
            given,
            entries,
            initial,
            self.neurons.rests,
            self.state,
            out,
            kept,
            self.updates[steps],
            n_samples * n,
            n,
            n_steps,
            bits,
            *strides,
            out.stride(0),
            kept.stride(0),
            STEP=build_gpu_module(self.neurons.program.structure).step,
            N_GIVEN=len(given),
            N_STATES=self.n_states,
            KEEPS=self.keeps,
            COUNTS=self.counts,
            TOUCHED=self.counts and touched is not None,
            RESUMES=resumes,
            AHEAD=1 if resumes else AHEAD_STEPS,
            BLOCK=block,
            num_warps=block // 32,
            enable_fp_fusion=False,
        )
