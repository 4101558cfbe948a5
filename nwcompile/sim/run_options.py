"""Options of a run that exclude each other, or that a model or a chip cannot have."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from nwcompile.errors import BackendError, NwError, OptionError, unknown_choice
from nwcompile.ir.network import Network
from nwcompile.ir.program import Program
from nwcompile.sim.cycle.overload import verify_backend

ERROR_CODE = "NW6101"
BACKENDS = ("reference", "cycle", "sequence")
DEVICES = ("cpu", "cuda")
WINDOWS = ("aligned", "hardware")
RECORDS = ("spikes", "all", "totals")


@dataclass(frozen=True)
class RunOptions:
    """Options of `simulate` that fit each other and the model; others raise the first of the refusals."""

    model: Any
    backend: str
    device: str
    window: str
    record: str
    profile: bool
    flight_steps: int
    has_checkpoint: bool

    def __post_init__(self) -> None:
        for refusals in (self._refuse_choices, self._refuse_pairs, self._refuse_model):
            for error in refusals():
                raise error

    def _refuse_choices(self) -> Iterator[NwError]:
        for kind, word, choices, error in (
            ("device", self.device, DEVICES, OptionError),
            ("window", self.window, WINDOWS, OptionError),
            ("record", self.record, RECORDS, OptionError),
            ("backend", self.backend, BACKENDS, BackendError),
        ):
            if word not in choices:
                yield error(unknown_choice(kind, word, choices))

    def _refuse_pairs(self) -> Iterator[NwError]:
        backend, is_totals = self.backend, self.record == "totals"
        if self.profile and backend != "cycle":
            yield OptionError(f"profile=True needs times, and only backend 'cycle' measures them, not {backend!r}")
        if is_totals and backend != "cycle":
            yield OptionError(f"record='totals' needs backend 'cycle', not {backend!r}; use record='spikes'")
        if is_totals and self.flight_steps:
            yield OptionError(
                "record='totals' keeps no steps, so there are no flits in flight to show; use record='spikes'"
            )
        is_float = isinstance(self.model, Network) and backend == "sequence"
        unkept = {
            "a profile": self.profile,
            "device='cuda'": self.device == "cuda",
            "a float network on backend 'sequence'": is_float,
        }
        if self.has_checkpoint and (wrong := [what for what, is_given in unkept.items() if is_given]):
            other = "; use backend='reference', or leave checkpoint out" if is_float else "; leave one of them out"
            yield OptionError(f"checkpoint keeps nothing of a run with {' and '.join(wrong)}{other}")

    def _refuse_model(self) -> Iterator[NwError]:
        model, backend, device = self.model, self.backend, self.device
        if isinstance(model, Network):
            backends = ("reference",) if model.is_fixed else ("reference", "sequence")
            if backend not in backends or self.window != "aligned" or device != "cpu":
                kind = "in integers that is" if model.is_fixed else "that is"
                yield BackendError(
                    f"a network {kind} not compiled runs on backend {' or '.join(map(repr, backends))}, device 'cpu', "
                    f"window 'aligned' only, not {backend!r}, {device!r}, {self.window!r}; compile it for a chip first"
                )
            return
        if not isinstance(model, Program):
            yield OptionError(f"simulate takes a Network or a Program, not {type(model).__name__}")
        verify_backend(model, backend)
        chip = model.chip
        if (reason := chip.family.refuse_run(chip, self.profile, self.record == "totals")) is not None:
            yield BackendError(reason)
        if model.schedule.stagger and self.window == "hardware":
            yield OptionError(
                "window 'hardware' starts all neurons in step 0, and this program staggers them; use "
                "window='aligned', or compile with stagger=1"
            )
        if device == "cuda" and backend != "sequence":
            yield BackendError(f"backend {backend!r} has no CUDA kernels; use backend='sequence', or device='cpu'")
