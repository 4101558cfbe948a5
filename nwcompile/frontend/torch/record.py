"""Run a module on the example, and record the input and output of its neuron layers."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace

import torch

from nwcompile.frontend.torch.kind import Kind, ReadNeurons
from nwcompile.frontend.torch.kinds import explain_unsupported, find_kind, is_foreign_neuron, is_relu
from nwcompile.frontend.torch.modules import Stepwise, is_wrapper
from nwcompile.frontend.torch.moves import Extent, Tracked, samples_first
from nwcompile.frontend.torch.operations import (
    DELAYING,
    IDENTITIES,
    MAKERS,
    SHAPERS,
    UnfollowableError,
    affine_operation,
    build_operation,
    operation_from_module,
)
from nwcompile.frontend.torch.results import Results, Returned
from nwcompile.frontend.torch.symbols import (
    Applied,
    Call,
    Constant,
    NeuronState,
    Recording,
    Source,
    Symbol,
    Unsupported,
    WrongLayout,
)
from nwcompile.frontend.torch.track import Tracker, tensors_in
from nwcompile.ir.neuron import NeuronSpec

CONTAINERS = (torch.nn.Sequential, torch.nn.ModuleList, torch.nn.ModuleDict, torch.fx.GraphModule)
ORDERS = {"B": "one step [B, *]", "BT": "[B, T, *]", "TB": "[T, B, *]", "B*T": "[B*T, *]", "T*B": "[T*B, *]",
          "1B": "one step [1, B, *]"}  # fmt: skip


class ModuleRecorder(Tracker):
    """Follows tensors through the leaf modules of `module` and the torch functions between them."""

    def __init__(
        self,
        module: torch.nn.Module,
        x: torch.Tensor,
        lead: str,
        input_name: str,
        relu: NeuronSpec | None = None,
        is_given_once: bool = False,
    ):
        """Prepare a run on `x`, `[B, T, *shape]`; `lead` is the axis order in which the module receives it.

        "BT" or "TB": all steps at once; "B*T" or "T*B": steps merged with samples; "B": step by step. With `relu`,
        every torch.nn.ReLU is a layer of such neurons. With `is_given_once`, the module is called once, with the first
        step, and repeats it.
        """
        n_samples = x.shape[0]
        n_steps = x.shape[1]
        extent = Extent(n_samples, n_steps, has_steps=relu is None or not is_given_once)
        super().__init__(extent, lead, input_name)
        self.input_is_spikes = bool(((x == 0) | (x == 1)).all())
        self.module, self.x, self.relu, self.is_given_once = module, x, relu, is_given_once
        self.shape = tuple(x.shape[2:])
        self.paths = {id(m): name for name, m in module.named_modules()}
        self.calls: dict[str, list[Call]] = {}
        self.most_steps = 1  # most steps in one tensor for a layer that takes all steps
        self.kinds: dict[str, Kind] = {}
        self.spikes: dict[str, list[torch.Tensor]] = {}
        self.given: dict[str, tuple[set[int], set[int]]] = {}  # per layer: ids of its spikes and of its states
        self.unknown: dict[str, str] = {}
        self.of_layers: list = []  # results of layer calls
        self.answers: list[list] = []  # `_result_entries` of every call of the module
        self.kind_of_answer: type = type(None)
        self.values: dict[tuple[str, int], list[tuple[torch.Tensor, str]]] = {}
        self.refused_feeds: dict[str, str] = {}

    def record(self) -> None:
        """Run the module and record it. Exceptions of the module propagate."""
        last = self.extent.n_steps - 1
        whole = Source(self.input_name, self.shape, last, self.is_given_once)
        with torch.no_grad(), self._register_hooks(), self:
            if self.is_given_once:
                image = self.run_untracked(lambda: self.x[:, 0].clone())
                self.track(image, whole, "B")
                result = self.module(image)
                self._note_result(result, result)
            elif self.lead == "B":
                step = Stepwise(self.module)
                for t in range(self.extent.n_steps):
                    x_t = self.run_untracked(lambda t=t: self.x[:, t].clone())
                    self.track(x_t, Source(self.input_name, self.shape, t), "B")
                    result = step.run_step(x_t)
                    self._note_result(result, result[0] if step.states else result)
            else:
                x = self.run_untracked(self._arrange_example)
                self.track(x, whole, self.lead)
                result = self.module(x)
                self._note_result(result, result)

    def build_recording(self) -> Recording:
        """Return the Recording of all calls since `record`."""
        last = self.extent.n_steps - 1
        results = self._collect_results()
        integrators = [n for n, (spikes, states) in self.given.items() if not spikes & self.read and states & self.read]
        return Recording(
            input=Source(self.input_name, self.shape, last, self.is_given_once),
            lead="once" if self.is_given_once else self.lead,
            n_steps=last + 1,
            calls=self.calls,
            kinds=self.kinds,
            applied=self.applied,
            refused=self.refused_feeds,
            unknown=self.unknown,
            spikes=results.spikes,
            integrators=frozenset(integrators),
            results=results,
            reads=self.reads,
            assumed=self.assumed,
        )

    def _note_result(self, result, answer) -> None:
        """Store the `result` of a call; `answer` is the result without the state for the next call."""
        self._mark_read(result)
        entries = list(self._result_entries(answer))
        if any(result is given for given in self.of_layers):
            entries = entries[:1]  # (spikes, mem) of the layer that ends the module
        self.answers.append(entries)
        self.kind_of_answer = type(answer)

    def _result_entries(self, value, depth: int = 0) -> Iterator[tuple[tuple[torch.Tensor, ...], int]]:
        """Yield each tensor of a result, and its depth in tuples and dicts; a list of steps counts as one entry."""
        if isinstance(value, torch.Tensor):
            yield (value,), depth
        elif isinstance(value, list) and self._are_steps(value):
            yield tuple(value), depth
        elif isinstance(value, dict | list | tuple):
            for part in value.values() if isinstance(value, dict) else value:
                yield from self._result_entries(part, depth + 1)

    def _are_steps(self, values: list) -> bool:
        """Return whether the list has one tensor per step of a module that receives all steps."""
        if (self.lead == "B" and not self.is_given_once) or len(values) != self.extent.n_steps or len(values) == 1:
            return False
        axes = (self.extent.axes["BT"], self.extent.axes["TB"])
        return all(isinstance(value, torch.Tensor) and tuple(value.shape[:2]) not in axes for value in values)

    def _collect_results(self) -> Results:
        """Return the module's results, and the spikes and states to compare them with."""
        returned = []
        for place, entries in enumerate(zip(*self.answers, strict=False)):
            tensors, depth = entries[-1]
            calls = tuple(tensor for given, _ in entries for tensor in given)
            returned.append(Returned(known=self.look_up(tensors[-1]), calls=calls, is_first=place == 0, depth=depth))
        spikes = {name: torch.cat(given, 1) for name, given in self.spikes.items() if given}
        return Results(tuple(returned), self.kind_of_answer, spikes, self.values, self.extent)

    def _mark_read(self, value) -> None:
        """Mark the tensors in `value` as used."""
        self.read.update(map(id, tensors_in(value)))

    def _arrange_example(self) -> torch.Tensor:
        """Return the example with all steps in the order of `lead`."""
        x = self.x.transpose(0, 1).contiguous() if self.lead in ("TB", "T*B") else self.x
        return x.flatten(0, 1) if "*" in self.lead else x

    def _find_kind(self, module: torch.nn.Module) -> Kind | None:
        relu = self.relu
        if relu is not None and is_relu(module):
            gives = _output_kind(relu)
            return Kind("torch", "ReLU", lambda *_: ReadNeurons(relu), lambda _: tuple(ORDERS), gives=lambda _: gives)
        return find_kind(module)

    @contextmanager
    def _register_hooks(self):
        with ExitStack() as stack:
            for module in self.module.modules():
                before, after = (self._enter, self._leave) if _is_leaf(module) else (self._open, self._close)
                stack.callback(module.register_forward_pre_hook(before).remove)
                stack.callback(module.register_forward_hook(after, with_kwargs=True).remove)
            yield

    def _open(self, module, args):
        self.containers.append((self.paths[id(module)], module))
        return self._enter(module, args, 0)

    def _close(self, module, args, kwargs, result):
        self.containers.pop()

    def _enter(self, module, args, deeper=1):
        self.depth += deeper
        if len(args) == 1 and isinstance(args[0], tuple) and len(args[0]) == 2 and id(args[0][0]) in self.tracked:
            return (args[0][0],)  # in a torch.nn.Sequential, only the spikes of (spikes, mem) are passed on
        return None

    def _leave(self, module, args, kwargs, result):
        self.depth -= 1
        if self.depth == 0:
            path = self.paths[id(module)]
            what = f"{path!r} ({type(module).__name__})"
            is_done = self.guard(lambda: self._record_call(module, path, args, kwargs, result), result, what)
            if not is_done and self._find_kind(module) is not None:
                self.unknown[path] = self.refused[-1]

    def _record_call(self, module, path: str, args, kwargs, result) -> None:
        kind = self._find_kind(module)
        name = type(module).__name__
        given = (*args, *kwargs.values())
        self._mark_read(given if kind is None else given[:1])
        if kind is not None and given and isinstance(given[0], torch.Tensor):
            self._record_layer_call(module, path, kind, given, result)
            return
        if is_foreign_neuron(module):
            self.unknown[path] = explain_unsupported(module)
        if len(given) != 1 or not isinstance(given[0], torch.Tensor) or is_foreign_neuron(module):
            self.refuse(result, f"{path!r} ({name}), which is not supported")
            return
        known = self.look_up(given[0])
        if isinstance(module, IDENTITIES) or (is_relu(module) and self.is_spikes(known.symbol)):
            self.track(result, known.symbol, known.lead)
        elif isinstance(module, SHAPERS) and isinstance(known.symbol, Unsupported):
            self.refuse(result, known.symbol.reason, known.symbol.by, known.symbol.layer)
        elif isinstance(module, SHAPERS):
            self.track_move(module, args, kwargs, result, f"{path!r} ({name}), which mixes steps or samples")
        else:
            self._record_operation(module, path, known, result)

    def _record_layer_call(self, module, path: str, kind: Kind, given: tuple, result) -> None:
        known = self.look_up(given[0])
        leads = kind.leads(module)
        fed, lead, is_whole = known.symbol, known.lead, known.lead != "B"
        if leads in (("TB",), ("BT",)):
            self.most_steps = max(self.most_steps, given[0].shape[leads[0].index("T")])
        if lead not in leads and not isinstance(fed, Unsupported):
            takes = " or ".join(ORDERS[lead] for lead in leads)
            text = f"a tensor {ORDERS[lead]}, but {type(module).__name__} takes {takes}"
            if {lead, *leads} >= {"BT", "TB"}:
                text += f"; give from_torch layout={'BT' if lead == 'TB' else 'TB'!r} and an example in it"
            fed = WrongLayout(text, fed.shape)
        calls = self.calls.setdefault(path, [])
        name = layer_name(path)
        time = self.extent.n_steps - 1 if is_whole else len(calls)
        self.kinds[path] = kind
        fed = self._apply_own_weight(kind.weight(module), f"{path}.weight", known, fed)
        self.of_layers.append(result)
        calls.append(Call(fed, is_whole, self._fault(kind, name, tensors_in(given[1:]), time if not is_whole else 0)))
        spikes, *states = tensors_in(result)
        axes = self.extent.axes[lead]
        shape = fed.shape or tuple(spikes.shape[len(axes) :])
        source = Source(name, tuple(shape), time)
        factor = kind.spike(module)
        fires = kind.gives(module) != "membrane"
        if kind.gives(module) == "counts":
            self.counting.add(name)
        if not fires:
            states = [spikes, *states]
        elif factor == 1:
            self.track(spikes, source, lead)
        else:
            done = affine_operation(f"{name}.spike", f"{factor:g} * x", factor, 0)
            self.track(spikes, Applied(done, source, source.shape), lead)
        of_spikes, of_states = self.given.setdefault(name, (set(), set()))
        of_spikes.add(id(spikes))
        of_states.update(id(state) for state in states if state is not spikes)
        for place, state in enumerate(states):
            if state is not spikes or not fires:
                text = f"the membrane of layer {name!r}; only its spikes can be sent"
                self.track(state, NeuronState(text, shape, layer=name, time=time), lead)
                if tuple(state.shape[: len(axes)]) == axes:
                    self.values.setdefault((name, place), []).append((state, lead))
        if fires and tuple(spikes.shape[: len(axes)]) == axes:
            self.spikes.setdefault(name, []).append(samples_first(spikes, lead, self.extent) / factor)

    def _apply_own_weight(self, weight: torch.Tensor | None, path: str, given: Tracked, fed: Symbol) -> Symbol:
        """Apply the weights with which a layer multiplies its input."""
        if weight is None or isinstance(fed, Unsupported):
            return fed
        done = build_operation(
            torch.nn.Linear, SimpleNamespace(weight=weight, bias=None), path, fed.shape, given.lead == "B"
        )
        applied = Applied(done, fed, (len(weight),))
        self.applied.append(applied)
        return applied

    def _fault(self, kind: Kind, name: str, states: list[torch.Tensor], time: int) -> str | None:
        """Return the error in the states that a layer receives in step `time`; None if there is none."""
        for tensor in states:
            symbol = self.look_up(tensor).symbol
            if isinstance(symbol, Constant) and not symbol.is_zero:
                return f"is given a state in step {time} that is not zero and not its own; start from zeros"
            if isinstance(symbol, Constant) and time > 0:
                return f"starts from zeros again in step {time}; give it the state that it returned a step before"
            is_the_last_state = isinstance(symbol, NeuronState) and (symbol.layer, symbol.time) == (name, time - 1)
            is_the_last_state |= isinstance(symbol, Source) and (symbol.name, symbol.time) == (name, time - 1)
            if not is_the_last_state and not isinstance(symbol, Constant):
                return f"is given a state in step {time} that is not the one it returned a step before"
        if not states and not kind.keeps_state and time > 0:
            return f"is called without its state in step {time}, so it starts again; give it the state that it returned"
        return None

    def _record_operation(self, module, path: str, given: Tracked, result) -> None:
        symbol, kind = given.symbol, type(module).__name__
        if isinstance(symbol, Unsupported):
            if next(module.parameters(), None) is not None:
                self.refused_feeds.setdefault(path, symbol.reason)
            self.refuse(result, symbol.reason, (*symbol.by, f"{path!r} ({kind})"), symbol.layer)
            return
        if isinstance(module, DELAYING) and given.lead not in ("BT", "B"):
            reason = f"{path!r} ({kind}), which takes {ORDERS['BT']} or {ORDERS['B']}, not {ORDERS[given.lead]}"
            self.refuse(result, reason)
            return
        try:
            done = operation_from_module(module, path, symbol.shape, given.lead in ("B", "B*T", "T*B"))
        except UnfollowableError as e:
            self.refuse(result, f"{path!r} ({kind}), {e}")
            return
        self.track_operation(done, given, result)
        if done.has_weight:
            self.values.setdefault((path, 0), []).append((result, given.lead))


def _output_kind(spec: NeuronSpec) -> str:
    if not spec.fires:
        return "membrane"
    return "spikes" if spec.spikes == "binary" else "counts"


def layer_name(path: str) -> str:
    """Return the layer's name: its module path, or "lif" if it is the whole module."""
    return path or "lif"


def _is_leaf(module: torch.nn.Module) -> bool:
    if isinstance(module, CONTAINERS) or is_wrapper(module):
        return False
    known = any(isinstance(module, kind) and type(module).forward is kind.forward for kind in MAKERS)
    return (
        known
        or find_kind(module) is not None
        or is_foreign_neuron(module)
        or is_relu(module)
        or type(module).__module__.startswith("torch.")
    )
