"""Recognize programs that are built-in neurons, so that they land on chips whose neurons are not programs."""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from nwcompile.ir.neuron import NeuronSpec
from nwcompile.ir.neuron_programs.program import INPUT, NeuronProgram, Operation, StateVariable

SPIKE = "spike now"
BINARY = frozenset({SPIKE})
TOLERANCE = 1e-6  # relative; coefficients are float32 numbers


class Polynomial(dict):
    """Coefficients by product of names; the empty product is the constant."""

    def plus(self, other: "Polynomial", factor=1.0) -> "Polynomial":
        """Return the sum with `factor * other`."""
        total = Polynomial(self)
        for names, value in other.items():
            total[names] = total.get(names, 0.0) + factor * value
        return total._drop_zeros()

    def times(self, other: "Polynomial", binary: frozenset[str]) -> "Polynomial":
        """Return the product; names in `binary` are 0 or 1, and the square of another name is a ValueError."""
        total = Polynomial()
        for one, a in self.items():
            for two, b in other.items():
                if (one & two) - binary:
                    raise ValueError("a square")
                total[one | two] = total.get(one | two, 0.0) + a * b
        return total._drop_zeros()

    def part(self, *names: str):
        """Return the coefficient of a product of names."""
        return self.get(frozenset(names), 0.0)

    def _drop_zeros(self) -> "Polynomial":
        return Polynomial({names: value for names, value in self.items() if np.any(value)})


def recognize_neuron(program: NeuronProgram) -> NeuronSpec | NeuronProgram:
    """Return the built-in neuron that a program is, or the program.

    A built-in neuron has a membrane, reset to 0 or by the threshold, and at most one current, all with the same numbers
    in real arithmetic. It is an Euler step if the program subtracts from its input.
    """
    if len(program.inputs) > 1 or program.sends not in ("binary", "none"):
        return program
    if any(np.any(state.initial) for state in program.states):
        return program
    try:
        return _recognize(_keep_spikes(program)) or program
    except ValueError:
        return program


def _recognize(program: NeuronProgram) -> NeuronSpec | None:
    made_by = {operation.result: operation for operation in program.operations}
    fired = {program.output, _condition_of(program, made_by)} - {None}
    next_of = {s.name: {s.next, _condition_of(program, made_by, s.next)} for s in program.states}
    spikes = {name for name, becomes in next_of.items() if becomes & fired} if program.fires else set()
    reader = _Reader(program, made_by, spikes)
    if not program.fires:
        return _read_integrator(program, reader)
    condition = made_by.get(_condition_of(program, made_by) or "")
    if condition is None or condition.kind not in ("lt", "le"):
        return None
    low, high = (reader.read(operand) for operand in condition.operands)
    excess = high.plus(low, -1.0)  # membrane - threshold
    states = {s.name: reader.read(s.next) for s in program.states if s.name not in spikes}
    if len(spikes) > 1 or not 1 <= len(states) <= 2 or excess.part(SPIKE):
        return None
    for membrane in states:
        current = next((name for name in states if name != membrane), None)
        fields = _read_membrane(excess, states, membrane, current, next(iter(spikes), None))
        if fields is not None:
            return _choose_form(program, {**fields, "strict": condition.kind == "lt"})
    return None


def _keep_spikes(program: NeuronProgram) -> NeuronProgram:
    """Return the program with its spike as a state, if it compares the membrane of the step before once more."""
    made_by = {operation.result: operation for operation in program.operations}
    becomes = {state.name: state.next for state in program.states}

    known: dict[tuple, int] = {}

    @cache
    def describe(operand, is_late: bool) -> int:
        """Return a number for an operand's expression, `is_late`: with the states as the step before computed them."""
        if is_late and operand in becomes:
            return describe(becomes[operand], False)
        operation = made_by.get(operand)
        if operation is None:
            return known.setdefault((operand, is_late and operand == INPUT), len(known))
        return known.setdefault((operation.kind, *(describe(o, is_late) for o in operation.operands)), len(known))

    condition = _condition_of(program, made_by)
    if condition not in made_by:
        return program
    late = [o for o in program.operations if o.kind in ("lt", "le")]
    late = [o for o in late if describe(o.result, True) == describe(condition, False)]
    reader = _Reader(program, made_by, set())
    if len(late) != 1 or np.any(np.subtract(*(reader.read(o).part() for o in late[0].operands)) <= 0):
        return program  # or it fires before the first step
    state = StateVariable(name="spike_before", next=program.output, initial=0.0)
    kept = tuple(replace(o, kind="ne", operands=(state.name, 0)) if o is late[0] else o for o in program.operations)
    return program.replace(operations=kept, states=(*program.states, state))


class _Reader:
    """Reads operands of a program as polynomials of its states, input and spike."""

    def __init__(self, program: NeuronProgram, made_by: dict[str, Operation], spikes: set[str]):
        self.program, self.made_by = program, made_by
        self.binary = frozenset({SPIKE, *spikes})
        self.condition = _condition_of(program, made_by)

    def read(self, operand) -> Polynomial:
        """Return an operand's polynomial; raise ValueError if it has none."""
        if operand in (self.program.output, self.condition) and self.program.fires:
            return Polynomial({frozenset({SPIKE}): 1.0})
        if operand in self.made_by:
            return self._read_result(self.made_by[operand])
        if operand == INPUT or operand in self.program.state_names:
            return Polynomial({frozenset({operand}): 1.0})
        value = np.asarray(self.program.parameters.get(str(operand), operand), np.float64)
        return Polynomial({frozenset(): value})._drop_zeros()

    def _read_result(self, operation: Operation) -> Polynomial:
        kind, given = operation.kind, [self.read(operand) for operand in operation.operands]
        if kind in ("add", "sub"):
            return given[0].plus(given[1], 1.0 if kind == "add" else -1.0)
        if kind == "neg":
            return Polynomial().plus(given[0], -1.0)
        if kind == "mul":
            return given[0].times(given[1], self.binary)
        if kind == "div" and set(given[1]) == {frozenset()}:
            return Polynomial().plus(given[0], 1.0 / given[1].part())
        if kind == "select" and self._is_binary(given[0]):
            return given[2].plus(given[0].times(given[1].plus(given[2], -1.0), self.binary))
        if kind == "number":
            return given[0]
        if kind == "ne" and self._is_binary(given[0]) and not given[1]:
            return given[0]
        if kind == "lt" and self._is_binary(given[1]) and not given[0]:
            return given[1]
        raise ValueError(f"{kind} is no part of a built-in neuron")

    def _is_binary(self, value: Polynomial) -> bool:
        """Return whether a value is one name that is 0 or 1."""
        return any(value == {frozenset({name}): 1.0} for name in self.binary)


def _condition_of(program: NeuronProgram, made_by: dict[str, Operation], operand: Any = None) -> str | None:
    """Return the comparison whose truth an operand, by default what the program sends, is as 1 or 0."""
    last = made_by.get(str(operand or program.output))
    if last is None:
        return None
    numbers = [program.parameters.get(str(o), o) for o in last.operands[1:]] if last.kind == "select" else []
    is_truth = last.kind == "number" or [np.ndim(n) == 0 and n for n in numbers] == [1, 0]
    return str(last.operands[0]) if is_truth else None


def _read_integrator(program: NeuronProgram, reader: _Reader) -> NeuronSpec | None:
    if len(program.states) != 1:
        return None
    becomes = reader.read(program.states[0].next)
    if set(becomes) - {frozenset({program.states[0].name}), frozenset({INPUT}), frozenset()}:
        return None
    fields = {"beta": becomes.part(program.states[0].name), "gain": becomes.part(INPUT), "leak": becomes.part()}
    return _choose_form(program, {**fields, "fires": False, "reset": "none", "threshold": 1.0})


def _read_membrane(
    excess: Polynomial, states: dict[str, Polynomial], membrane: str, current: str | None, spiked: str | None
) -> dict[str, Any] | None:
    """Return the fields of a spec whose membrane and current are these states, or None.

    With `k * (excess + threshold)` as the membrane before the reset, the state after it is that times (1 - spike), or
    less k * threshold * spike. A state that is reset in the next step, by the state `spiked`, is the same; if the
    threshold is subtracted right after the leak, it is that over the leak's factor.
    """
    p, becomes = excess.part(membrane), states[membrane]
    if not np.all(p):
        return None
    if spiked is not None:  # r = v*(1 - z) or v - w*z is the membrane after the reset; its next value has the spike
        turned = Polynomial({frozenset({SPIKE}): 1.0})
        shrink, less = excess.part(membrane, spiked) / p, excess.part(spiked) / p
        becomes = becomes.plus(becomes.times(turned, BINARY), shrink).plus(turned, less)
        unreset = {frozenset({membrane}): 1.0, frozenset({membrane, spiked}): shrink, frozenset({spiked}): less}
    else:
        unreset = {frozenset({membrane}): 1.0}
    reference = next((n for n in (INPUT, current) if n is not None and np.any(excess.part(n))), None)
    if reference is None:
        return None
    k = becomes.part(reference) / excess.part(reference)
    if not np.all(k):
        return None
    threshold = becomes.part() / k - excess.part()
    before = Polynomial().plus(excess, k).plus(Polynomial({frozenset(): k * threshold}))
    turned = Polynomial({frozenset({SPIKE}): 1.0})
    resets = {
        "zero": before.plus(before.times(turned, BINARY), -1.0),
        "subtract": before.plus(turned, -k * threshold),
        "subtract next": before.plus(turned, -threshold / p),
        "none": before,
    }
    reset = next((name for name, value in resets.items() if _are_equal(value, becomes)), None)
    inputs = {frozenset({INPUT}), frozenset({current}), frozenset()}
    kept = {names: value for names, value in excess.items() if names not in inputs}
    if reset is None or not _are_equal(Polynomial(kept), Polynomial().plus(Polynomial(unreset), p)):
        return None
    fields = {"beta": p * k, "leak": excess.part() + threshold, "threshold": threshold, "reset": reset.split()[0]}
    fields |= {"reset_timing": "next"} if reset == "subtract next" else {}
    if current is None:
        return {**fields, "gain": excess.part(INPUT)}
    alpha, w_in = states[current].part(current), states[current].part(INPUT)
    expected = Polynomial({frozenset({current}): alpha, frozenset({INPUT}): w_in})
    gain = excess.part(current) / alpha if np.all(alpha) else 0.0
    if not np.all(w_in) or not _are_equal(states[current], expected):
        return None
    if not np.allclose(excess.part(INPUT), gain * w_in, TOLERANCE, 0):
        return None
    return {**fields, "gain": gain, "alpha": alpha, "w_in": w_in}


def _are_equal(one: Polynomial, two: Polynomial) -> bool:
    return all(np.allclose(one.get(n, 0.0), two.get(n, 0.0), TOLERANCE, 0.0) for n in {*one, *two})


def _choose_form(program: NeuronProgram, fields: dict[str, Any]) -> NeuronSpec | None:
    """Return the spec with `beta` and `gain`, or as an Euler step, whichever rounds like the program."""
    values = {name: _as_field(value) for name, value in fields.items()}
    if not np.all(np.asarray(values["threshold"]) > 0):
        return None
    linear = NeuronSpec(**values)
    k = 1.0 - np.asarray(fields["beta"], np.float64)
    if "alpha" in fields or np.any(k <= 0) or np.any(k > 1):
        return linear
    euler = {n: v for n, v in values.items() if n not in ("beta", "gain", "leak")}
    euler |= {
        "membrane": "euler",
        "k": _as_field(k),
        "r": _as_field(fields["gain"] / k),
        "v_leak": _as_field(fields["leak"] / k),
    }
    subtracts = any(o.kind == "sub" and INPUT in o.operands for o in program.operations)
    return NeuronSpec(**euler) if subtracts and np.allclose(euler["r"], 1.0, TOLERANCE) else linear


def _as_field(value):
    """Return a number as a float, or an array as float32; other values are returned unchanged."""
    if isinstance(value, str | bool):
        return value
    value = np.asarray(value)
    return float(np.float32(value)) if value.ndim == 0 else value.astype(np.float32)
