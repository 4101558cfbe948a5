"""Parts of a module that are not looked into: known neurons, and maps such as delays. Each is read from its module."""

from collections import defaultdict
from dataclasses import dataclass, field, replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import torch

from nwcompile.errors import ModelError
from nwcompile.frontend.torch.kind import Kind, ReadNeurons
from nwcompile.frontend.torch.kinds import explain_refusal, explain_unsupported, find_kind, is_relu
from nwcompile.frontend.torch.operations import (
    DELAYING,
    SUPPORTED,
    UnfollowableError,
    affine_operation,
    build_operation,
    operation_from_module,
)
from nwcompile.frontend.torch.operators.ops import Op, aten, make_op
from nwcompile.frontend.torch.operators.record import Call
from nwcompile.frontend.torch.operators.roll import COPIES, FED
from nwcompile.frontend.torch.operators.steps import Steps
from nwcompile.frontend.torch.symbols import Applied, Source, Symbol
from nwcompile.ir.neuron import NeuronSpec
from nwcompile.ir.neuron_programs.program import NeuronProgram

ERROR_CODE = "NW2304"
ORDERS = {"B": "one step [B, *]", "BT": "[B, T, *]", "TB": "[T, B, *]", "B*T": "[B*T, *]", "T*B": "[T*B, *]"}
WHOLE_MAPS = (*DELAYING, torch.nn.LPPool2d)  # maps that are not looked into: torch computes powers in LPPool2d
KEEPS_STATE = (*COPIES, "reshape", "view", "_to_copy")


class LayoutError(ModelError):
    """A layer takes its steps in another layout than the example's."""


class LostStateError(ModelError):
    """A layer is not given the state that it returned a step before."""


@dataclass(eq=False)
class Part:
    """A part that is not looked into. `kind`: how its neurons are read; None for delays and other maps.

    `fed`: operators of what it is given in each step. `lead`: the leading axes of its input. `spike_value`: what a
    spike is worth in the module. `read`: the places of its result that the module uses.
    """

    name: str
    module: torch.nn.Module
    kind: Kind | None
    lead: str
    fed: list[Op]
    spike_value: float
    read: set[Any] = field(default_factory=set)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of what the part is given in one step of one sample."""
        return self._drop_lead(self.fed[-1].value)

    @property
    def fires(self) -> bool:
        """Whether the part sends spikes."""
        return self.kind is not None and self.kind.gives(self.module) != "membrane"

    def read_neurons(self) -> ReadNeurons:
        """Return the part's neurons; those of which only the membrane is read integrate, and need no threshold."""
        assert self.kind is not None, "a map has no neurons"
        shape = self.shape if self.weight is None else (len(self.weight),)
        neurons = self.kind.read(self.module, self.name, shape)
        spec = neurons.spec
        is_read = not self.fires or 0 in self.read or not self.read
        if is_read or isinstance(spec, NeuronProgram) or spec.reset != "none" or neurons.recurrent or not spec.fires:
            return neurons
        return replace(neurons, spec=replace(spec, fires=False, threshold=1.0))

    @property
    def weight(self) -> torch.Tensor | None:
        """The weights that neurons apply to their input."""
        return None if self.kind is None else self.kind.weight(self.module)

    def weigh_input(self, fed: Symbol) -> Symbol:
        """Return the input with the weights that the neurons apply to it."""
        weight = self.weight
        if weight is None:
            return fed
        given = SimpleNamespace(weight=weight, bias=None)
        done = build_operation(torch.nn.Linear, given, f"{self.name}.weight", fed.shape)
        return Applied(done, fed, (len(weight),))

    def connect_spikes(self, shape: tuple[int, ...]) -> Symbol:
        """Return the symbol of the spikes, which may be worth more than 1."""
        source, factor = Source(self.name, shape), self.spike_value
        if factor == 1:
            return source
        return Applied(affine_operation(f"{self.name}.spike", f"{factor:g} * x", factor, 0), source, shape)

    def connect_delays(self, fed: Symbol, given: torch.Tensor) -> Symbol:
        """Return the symbol of what a delay gives; `given` is its value in one step."""
        try:
            done = operation_from_module(self.module, self.name, fed.shape)
        except UnfollowableError as e:
            raise ModelError(f"{self.name!r}: {type(self.module).__name__}, {e}", code="NW2301") from None
        return done.apply(fed, self._drop_lead(given))

    def _drop_lead(self, value: torch.Tensor) -> tuple[int, ...]:
        return tuple(value.shape[{"BT": 2, "TB": 2}.get(self.lead, 1) :])


def find_parts(module: torch.nn.Module, relu: NeuronSpec | None = None) -> dict[torch.nn.Module, str]:
    """Return the parts that are not looked into, and their names. `relu`: neurons that replace every ReLU."""
    named = {part: path or "lif" for path, part in module.named_modules()}
    return {
        part: name
        for part, name in named.items()
        if find_kind(part) is not None
        or explain_refusal(part)
        or _is_whole_map(part)
        or (relu is not None and is_relu(part))
    }


def _is_whole_map(part: torch.nn.Module) -> bool:
    return any(isinstance(part, kind) and type(part).forward is kind.forward for kind in WHOLE_MAPS)


def make_kind(part: torch.nn.Module, relu: NeuronSpec | None) -> Kind | None:
    """Return how a part's neurons are read."""
    if relu is None or not is_relu(part):
        return find_kind(part)
    gives = ("spikes" if relu.spikes == "binary" else "counts") if relu.fires else "membrane"
    return Kind("torch", "ReLU", lambda *_: ReadNeurons(relu), lambda _: tuple(ORDERS), gives=lambda _: gives)


def list_parts(
    calls: list[Call],
    known: dict[Op, Any],
    n_steps: int,
    modules: dict[str, torch.nn.Module],
    relu: NeuronSpec | None,
    is_once: bool,
) -> list[Part]:
    """Return the parts that are called, in order of their first call. `is_once`: whether the input has no steps.

    Raises ModelError for parts that are not called once in each step or with all steps, in another layout than they
    take, or without their state.
    """
    by_layer: dict[str, list[Call]] = defaultdict(list)
    for call in calls:
        by_layer[call.layer].append(call)
    parts = []
    for name, made in by_layer.items():
        module = modules[name]
        if isinstance(module, DELAYING) and len(made) not in (1, n_steps):
            raise ModelError(
                f"layer {name!r} is called {len(made)} times for the {n_steps} steps of the example; a layer with "
                "delays keeps the steps of one place: call it once with all steps, or once in every step"
            )
        if explain_refusal(module):
            where = "" if list(modules.values()) == [module] and name == "lif" else f"{name!r}: "
            raise ModelError(f"{where}{explain_unsupported(module)}", code="NW2303")
        kind = make_kind(module, relu)
        fed = [known[call.given[0]] for call in made]
        whole = len(made) == 1 and isinstance(fed[0], Steps)
        if not isinstance(fed[-1], Steps) and len(made) == 1 < n_steps:
            raise _explain_fed(made[0], known)
        lead = _choose_lead(name, module, kind, fed[0], is_once)
        if kind is not None:
            for call in made:
                _verify_states(name, kind, call, calls)
        steps = fed[0].entries if whole else fed
        if any(isinstance(step, Steps) for step in steps) or len(steps) != n_steps:
            raise ModelError(
                f"layer {name!r} is called {len(made)} times for the {n_steps} steps of the example; "
                "a layer has one state: call it once with all steps, or once in every step"
            )
        for t, step in enumerate(steps):
            if step.step > t:
                raise _refuse_later(name, step)
        steps = [_mark_fed(step, t) for t, step in enumerate(steps)]
        value = 1.0 if kind is None else kind.spike(module)  # reading the neurons may change it
        parts.append(Part(name=name, module=module, kind=kind, lead=lead, fed=steps, spike_value=value))
    return parts


def _explain_fed(call: Call, known: dict[Op, Any]) -> ModelError:
    """Return the error for a layer that is called once, with what is not known in every step."""
    name, fed = call.layer, call.given[0]
    if not fed.depends:
        return ModelError(
            f"layer {name!r} is fed by a tensor that comes neither from the input nor from a layer; {SUPPORTED}"
        )
    op = fed
    while op.operands and not any(isinstance(known[o], Steps) for o in op.operands):
        op = next((o for o in op.operands if o.depends), op.operands[0])
    what = op.title if op.name == "input" else f"the result of {op.title}"
    site = call.site if op.name == "input" else op.site
    return ModelError(f"{site}: layer {name!r} is fed by {what}, which from_torch cannot split into steps; {SUPPORTED}")


def _refuse_later(name: str, op: Op) -> ModelError:
    """Return the error for a layer that is fed in one step by what is known after a later one."""
    user = op
    while op.operands and not (op.name in ("cat", "stack") and len({o.step for o in op.operands}) > 1):
        user, op = op, max(op.operands, key=lambda o: o.step)
    return ModelError(
        f"{user.site}: layer {name!r} is fed by {user.title} of several steps, which is known only after the last of "
        "them; a chip gets one step after the other"
    )


def _mark_fed(op: Op, t: int) -> Op:
    """Return an operator that stands for what a part is given in step `t`."""
    return replace(make_op(aten.alias.default, (op,), {}, op.value, op.site), name=FED, depends=True, step=t)


def _choose_lead(name: str, module: torch.nn.Module, kind: Kind | None, fed: Any, is_once: bool) -> str:
    leads = ("BT", "B") if isinstance(module, DELAYING) else tuple(ORDERS) if kind is None else kind.leads(module)
    if not isinstance(fed, Steps):
        possible: tuple[str, ...] = ("B",)
    elif fed.axis == 1:
        possible = ("BT",)
    else:
        possible = ("TB", "T*B", "B*T") if fed.axis == 0 and fed.n_inside == 1 else ("T*B", "B*T")
    lead = next((lead for lead in possible if lead in leads), None)
    if lead is not None:
        return lead
    takes = " or ".join(ORDERS[lead] for lead in leads)
    text = f"a tensor {ORDERS[possible[0]]}, but {type(module).__name__} takes {takes}"
    if {possible[0], *leads} >= {"BT", "TB"}:
        text += f"; give from_torch layout={'BT' if possible[0] == 'TB' else 'TB'!r} and an example in it"
    error = ModelError if is_once and not isinstance(fed, Steps) else LayoutError  # its steps may be made of entries
    raise error(f"layer {name!r} is fed by {text}")


def _drop_copies(op: Op) -> Op:
    """Return the operator whose values an operator copies, in the same type."""
    while op.name in KEEPS_STATE and op.operands and op.operands[0].value.dtype == op.value.dtype:
        op = op.operands[0]
    return op


def _verify_states(name: str, kind: Kind, call: Call, calls: list[Call]) -> None:
    """Raise LostStateError unless a layer has the states that it returned or kept a step before, or starts from 0."""
    t = call.number
    places: list[Any] = []  # of the states, in the order in which they were returned
    for op in map(_drop_copies, call.kept):
        if op.depends and (op.name != "record" or op.args[0] != name):
            raise LostStateError(f"{op.site}: the code changes the state of layer {name!r} between its steps")
    for op in map(_drop_copies, call.given[1:]):
        if not op.depends:
            if op.value.any():
                fault = f"is given a state in step {t} that is not zero and not its own; start from zeros"
            elif t > 0:
                fault = f"starts from zeros again in step {t}; give it the state that it returned a step before"
            else:
                continue
            raise LostStateError(f"layer {name!r} {fault}")
        if op.name != "record" or op.args[0] != name or calls[op.kwargs["call"]].number != t - 1:
            raise LostStateError(
                f"layer {name!r} is given a state in step {t} that is not the one it returned a step before"
            )
        places.append(op.args[1])
    if places == [0]:
        raise LostStateError(f"layer {name!r} is given its spikes as its state in step {t}")
    if any(a >= b for a, b in pairwise(p for p in places if isinstance(p, int))):
        raise LostStateError(f"layer {name!r} is given its states in another order in step {t} than it returned them")
    if len(call.given) == 1 and not kind.keeps_state and t > 0:
        raise LostStateError(
            f"layer {name!r} is called without its state in step {t}, so it starts again; "
            "give it the state that it returned"
        )
