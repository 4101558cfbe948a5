"""Prove that a recorded module computes the same in every step, so that its last step represents all steps."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from nwcompile.errors import ModelError
from nwcompile.frontend.torch import symbols
from nwcompile.frontend.torch.operations import DELAYING, SUPPORTED, feed_error
from nwcompile.frontend.torch.symbols import Call, Recording, Symbol

NO_LAYERS = "has no spiking layer that is called on the example"


@dataclass(frozen=True)
class Term:
    """One path from a source to a layer: its operations, and its delay in steps (None: a constant)."""

    chain: tuple
    source: str
    delay: int | None
    has_bias: bool
    is_zero: bool = False


class LayoutError(ModelError):
    """The layers of the module take their steps in another layout than the example's."""


class LostStateError(ModelError):
    """A layer is not given the state that it returned a step before."""


def refuse_map(recording: Recording) -> ModelError | None:
    """Return the refusal of the first map whose input cannot be followed, or None."""
    for path, reason in recording.refused.items():
        return ModelError(f"{path!r} is fed by {reason}; {SUPPORTED}")
    return None


def verify_recording(recording: Recording, module: str) -> None:
    """Raise ModelError unless all weights can be followed, and each layer is called and fed equally in every step.

    `module`: the class that was recorded.
    """
    for path, reason in recording.unknown.items():
        raise ModelError(f"{path!r}: {reason}" if path else reason)
    if not recording.calls:
        raise ModelError(
            f"{module} {NO_LAYERS}; "
            "it needs at least one, of nwcompile.nn, snnTorch, SpikingJelly, sinabs or norse, or written by hand"
        )
    for path, calls in recording.calls.items():
        for call in calls:
            if isinstance(call.fed, symbols.WrongLayout):
                raise LayoutError(f"layer {path!r} is fed by {call.fed.reason}")
            if call.fault is not None and not isinstance(call.fed, symbols.Unsupported):
                raise LostStateError(f"layer {path!r} {call.fault}")
    _verify_delays(recording)
    for path, calls in recording.calls.items():
        for symbol in _walk_symbols(calls[-1].fed):
            if isinstance(symbol, symbols.Averaged | symbols.Constant | symbols.Unsupported):
                raise refuse_map(recording) or feed_error(path, symbol)
        _verify_calls(path, calls, recording.n_steps)
        if not calls[0].is_whole:
            _verify_steps(path, [call.fed for call in calls])
        for call in calls:
            for symbol in _walk_symbols(call.fed):
                if isinstance(symbol, symbols.Stacked):
                    _verify_steps(path, list(symbol.steps))


def _verify_delays(recording: Recording) -> None:
    """Raise ModelError for a layer with delays that is used in several places, whose stored steps would get mixed."""
    kinds = {kind.__name__ for kind in DELAYING}
    counts = Counter(a.operation.path for a in recording.applied if a.operation.kind in kinds)
    for path, n_calls in counts.items():
        if n_calls not in (1, recording.n_steps):
            raise ModelError(
                f"layer {path!r} is called {n_calls} times for the {recording.n_steps} steps of the example; a layer "
                "with delays keeps the steps of one place: call it once with all steps, or once in every step"
            )


def _verify_calls(path: str, calls: list[Call], n_steps: int) -> None:
    wanted = 1 if calls[0].is_whole else n_steps
    if len(calls) != wanted or any(call.is_whole != calls[0].is_whole for call in calls):
        raise ModelError(
            f"layer {path!r} is called {len(calls)} times for the {n_steps} steps of the example; "
            "a layer has one state: call it once with all steps, or once in every step",
            code="NW2304",
        )


def _verify_steps(path: str, fed: list[Symbol]) -> None:
    last = [(term, term.delay) for term in _walk_terms(fed[-1], len(fed) - 1) if term.delay is not None]
    for t, symbol in enumerate(fed[:-1]):
        now = list(_walk_terms(symbol, t))
        expected = Counter(term for term, delay in last if delay <= t)
        constants = [term for term in now if term.delay is None]
        if Counter(term for term in now if term.delay is not None) != expected:
            raise ModelError(
                f"layer {path!r} is fed differently in step {t} and in the last step of the example; "
                "from_torch needs the same computation in every step",
                code="NW2304",
            )
        if not all(term.is_zero for term in constants):
            raise ModelError(
                f"layer {path!r} is fed by a tensor that is not zero before step {t}; start from zeros", code="NW2304"
            )
        for term, delay in last:
            missing = delay > t and all(term.chain != c.chain for c in constants)
            if term.has_bias and missing:
                late = f"{delay} step{'s' if delay > 1 else ''} late"
                raise ModelError(
                    f"layer {path!r}: the input that arrives {late} has a bias, which the module adds from "
                    f"step {delay} on, but a chip from step 0 on; use bias=False, or start from zeros",
                    code="NW2304",
                )


def _walk_terms(symbol: Symbol, now: int, shift: int = 0, chain: tuple = (), has_bias: bool = False) -> Iterator[Term]:
    if isinstance(symbol, symbols.Summed):
        for term in symbol.terms:
            yield from _walk_terms(term, now, shift, chain, has_bias)
    elif isinstance(symbol, symbols.Stacked):
        yield from _walk_terms(symbol.last, now, shift, chain, has_bias)
    elif isinstance(symbol, symbols.Picked):
        for k, source in enumerate(symbol.sources):
            moved = () if symbol.is_view else ((k, symbol.which.tobytes(), symbol.index.tobytes()),)
            yield from _walk_terms(source, now, shift - symbol.shift, chain + moved, has_bias)
    elif isinstance(symbol, symbols.Applied | symbols.Pooled):
        operation = symbol.operation
        step = (operation.path, operation.kind, operation.digest)
        yield from _walk_terms(symbol.source, now, shift, (*chain, step), has_bias or operation.has_bias)
    elif isinstance(symbol, symbols.Source):
        yield Term(chain, symbol.name, symbol.steps_before(now) + shift, has_bias)
    else:
        yield Term(chain, symbol.reason, None, has_bias, isinstance(symbol, symbols.Constant) and symbol.is_zero)


def is_sum_of_steps(symbol: Symbol, n_steps: int) -> bool:
    """Return whether this is a sum of the same term over all steps, as a loop accumulates it."""
    terms = [term for term in _walk_terms(symbol, n_steps - 1) if not term.is_zero]
    late = sorted(-1 if term.delay is None else term.delay for term in terms)
    return late == list(range(n_steps)) and len({(term.chain, term.source) for term in terms}) == 1


def _walk_symbols(symbol: Symbol) -> Iterator[Symbol]:
    """Yield a symbol, and all that it consists of."""
    yield symbol
    for source in _inner_symbols(symbol):
        yield from _walk_symbols(source)


def _inner_symbols(symbol: Symbol) -> tuple[Symbol, ...]:
    """Return the symbols that this one consists of."""
    if isinstance(symbol, symbols.Summed):
        return symbol.terms
    if isinstance(symbol, symbols.Picked):
        return symbol.sources
    if isinstance(symbol, symbols.Stacked):
        return (symbol.last,)
    return (symbol.source,) if isinstance(symbol, symbols.Applied | symbols.Pooled) else ()
