"""A layer of neuron programs on a GPU: a proof that 32 bits suffice, and one run of its kernel over time."""

import numpy as np
import torch

from nwcompile.errors import BackendError
from nwcompile.ir.network import Node
from nwcompile.ir.neuron_programs.ranges import LARGEST_INPUT, find_ranges, fits_32_bits
from nwcompile.kernels.cores.programs.build import build_gpu_module
from nwcompile.kernels.gpu.program import scan
from nwcompile.sim.reference.program_step import stays_at_rest
from nwcompile.sim.sequence.cuda.neurons import AHEAD_STEPS, block_of, given_events


class GpuProgram:
    """A layer's program in the form that the kernel takes."""

    def __init__(self, node: Node, device: torch.device):
        self.node, self.n, self.device = node, node.n_neurons, device
        self.program = node.neuron
        self.rests = torch.from_numpy(stays_at_rest(self.program, node.shape).reshape(-1).astype(np.uint8)).to(device)
        self._numbers: dict[bool, tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = {}

    @property
    def spike_range(self) -> tuple[int, int]:
        """Least and largest possible message value."""
        if not self.program.fires:
            return 0, 0
        sent = find_ranges(self.program, AssertionError)[self.program.output]
        return min(int(sent.low), 0), max(int(sent.high), 0)

    def largest_drive(self, largest: int) -> int:
        """Return `largest`, the bound on the sums. Raises BackendError if the program is not proved for such sums."""
        if largest > LARGEST_INPUT:
            raise BackendError(
                f"layer {self.node.name!r}: sums of up to {largest} are beyond {LARGEST_INPUT}, the most that neuron "
                "programs are proved for; use device='cpu'"
            )
        return largest

    def scan(self, n_samples: int, n_steps: int, largest: int, keeps: bool, counts: bool) -> "ProgramScan":
        """Prepare a run over `n_samples` samples and `n_steps` steps."""
        return ProgramScan(self, n_samples, n_steps, largest, keeps, counts)

    def number_tensors(self, is_wide: bool) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return parameters [parameter, n], table entries [entry] and initial states [state, n], int64 or int32."""
        if is_wide not in self._numbers:
            kind = np.int64 if is_wide else np.int32
            of_names = self.program.parameters, self.program.state_names
            rows = ([self.program.array(name, self.node.shape) for name in names] for names in of_names)
            given, initial = (torch.from_numpy(np.array(r, kind).reshape(-1, self.n)).to(self.device) for r in rows)
            entries = torch.from_numpy(self.program.table_entries.astype(kind)).to(self.device)
            self._numbers[is_wide] = given, entries, initial
        return self._numbers[is_wide]


class ProgramScan:
    """One run of a layer of programs, with the interface of `neurons.Scan`."""

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
        """The recorded states by name, [sample, step, neuron]."""
        return {name: self.kept[:, :, s] for s, name in enumerate(self.neurons.program.state_names)}

    def advance(self, sums: torch.Tensor, bits: int, touched: torch.Tensor | None, steps: slice, resumes: bool) -> None:
        """Run these steps on their sums [sample, step, sum], to be shifted by `bits`, and events, if any."""
        n_samples, n_steps, n = *sums.shape[:2], self.neurons.n
        if touched is not None and touched.shape[2] > n:  # one update for events at any input
            touched = touched.unflatten(2, (-1, n)).amax(2)
        given, entries, initial = self.neurons.number_tensors(self.is_wide)
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
            N_INPUTS=self.neurons.node.n_inputs,
            KEEPS=self.keeps,
            COUNTS=self.counts,
            TOUCHED=self.counts and touched is not None,
            RESUMES=resumes,
            AHEAD=1 if resumes else AHEAD_STEPS,
            BLOCK=block,
            num_warps=block // 32,
            enable_fp_fusion=False,
        )
