"""The gradient of a neuron program of whole numbers, written as the source of kernels.

Rounding, saturation and wrap-around have a straight-through gradient. A comparison has the slope of its surrogate. The
condition of a selection has no gradient; a table has the slope of the line between two entries. The adjoint visits each
operation once, in reverse order of `operation_lines`.
"""

from nwcompile.kernels.cores.programs.source import NUMBA, body, next_states, operation_lines

MODULE = '''"""A neuron program with its gradient, written by nwcompile.kernels.cores.programs.gradient."""

from nwcompile.kernels.jit import kernel
from nwcompile.kernels.cores.programs.operations import modulo, number, saturate, shr0, sign, steepness, table


@kernel
def forward(given, entries, state, drive, sent, kept, distance):
    n_samples, n_steps, n = drive.shape
    keep, compare = kept.shape[0] > 0, distance.shape[0] > 0
    for b in range(n_samples):
        for t in range(n_steps):
            for i in range(n):
                x = drive[b, t, i]
{parameters}
{states}
{step}
{becomes}
                sent[b, t, i] = {output}
                if keep:
                    for s in range({n_states}):
                        kept[b, t, s, i] = state[b, s, i]
                if compare:
{distances}


@kernel
def backward(given, entries, start, drive, kept, slope, of_sent, of_read, of_state, of_drive, of_given):
    n_samples, n_steps, n = drive.shape
    for b in range(n_samples):
        for t in range(n_steps - 1, -1, -1):
            for i in range(n):
                x = drive[b, t, i]
{parameters}
{states_before}
{step}
{adjoint}
'''

# Adjoint terms of the operands {0}, {1}, {2} of an operation, {g} being the adjoint of its result.
RULES = {
    "add": ("{g}", "{g}"),
    "sub": ("{g}", "-{g}"),
    "mul": ("{g} * {1}", "{g} * {0}"),
    "neg": ("-{g}",),
    "abs": ("{g} * sign({0})",),
    "min": ("({g} if {0} < {1} else 0.0)", "(0.0 if {0} < {1} else {g})"),
    "max": ("({g} if {0} > {1} else 0.0)", "(0.0 if {0} > {1} else {g})"),
    "shl": ("{g} * {power}",),
    "shr": ("{g} / {power}",),
    "shr0": ("{g} / {power}",),
    "modulo": ("{g}",),
    "table": ("", "", "{g} * steepness(entries, {0}, {2}, {3})"),
    "sign": (),
    "eq": (),
    "ne": (),
    "lt": ("-{g} * {slope}", "{g} * {slope}"),
    "le": ("-{g} * {slope}", "{g} * {slope}"),
    "and": ("({g} if {1} else 0.0)", "({g} if {0} else 0.0)"),
    "or": ("(0.0 if {1} else {g})", "(0.0 if {0} else {g})"),
    "not": ("-{g}",),
    "number": ("{g}",),
    "select": ("", "({g} if {0} else 0.0)", "(0.0 if {0} else {g})"),
}
SHIFTS = ("shl", "shr", "shr0")
COMPARISONS = ("lt", "le")


def gradient_source_of(structure: tuple, units: tuple, read: int | None, detach_reset: bool) -> str:
    """The Numba module of a program of whole numbers (`NeuronProgram.structure`) and its gradient.

    `units[k]`: scale from the integer difference of comparison k to the surrogate's input. `read`: the state that is
    read out if the program sends nothing. `detach_reset`: comparisons pass a gradient to the output only, not to the
    next states.

    `forward(given, entries, state, drive, sent, kept, distance)`: given int64[parameter, neuron], entries int64[entry]
    of all tables, drive int64[sample, step, neuron]. Updated: state int64[sample, state, neuron]. Written: sent
    [sample, step, neuron]; and, unless they have 0 samples, kept int64[sample, step, state, neuron], the states after
    each step, and distance float32[sample, comparison, step, neuron], second less first operand of each comparison.

    `backward(given, entries, start, drive, kept, slope, of_sent, of_read, of_state, of_drive, of_given)`: start: states
    before the first step; slope: surrogate slope at each distance; of_sent, of_read, of drive's shape: gradients of
    sent and of the read state (of 0 samples if nothing is read). Written: of_drive, the gradient of drive. Updated:
    of_state float64[sample, state, neuron], from the gradient of the last states to that of the first. Added to:
    of_given float64[parameter, neuron].
    """
    _, n_parameters, operations, states, output, *_ = structure
    compared = _number_comparisons(operations, states, output)
    adjoint = _Adjoint(operations, units, compared)
    lines = [f"g{i} = of_state[b, {i}, i]" for i in range(len(states))]
    if read is not None:
        lines.append(f"g{read} = g{read} + of_read[b, t, i]")
    sent = {output: ["of_sent[b, t, i]"]} if isinstance(output, str) else {}
    kept = [(becomes, f"g{i}") for i, (becomes, _, _) in enumerate(states) if isinstance(becomes, str)]
    if detach_reset:
        adjoint.follow(sent, "a", has_slopes=True)
        adjoint.follow(_group_terms(kept), "b", has_slopes=False)
    else:
        adjoint.follow(_group_terms([*kept, *((name, term) for name, (term,) in sent.items())]), "a", has_slopes=True)
    lines += adjoint.lines
    lines.append(f"of_drive[b, t, i] = {adjoint.reaches('x')}")
    lines += [f"of_given[{i}, i] += {adjoint.reaches(f'p{i}')}" for i in range(n_parameters)]
    lines += [f"of_state[b, {i}, i] = {adjoint.reaches(f's{i}')}" for i in range(len(states))]
    step = operation_lines(operations, NUMBA)
    distances = []
    for k, place in compared.items():
        below, above = map(NUMBA.operand, operations[k][1:])
        distances.append(f"distance[b, {place}, t, i] = ({above} - {below}) * {units[k]!r}")
    before = [f"s{i} = kept[b, t - 1, {i}, i] if t > 0 else start[b, {i}, i]" for i in range(len(states))]
    return MODULE.format(
        parameters=body([f"p{i} = given[{i}, i]" for i in range(n_parameters)], 16),
        states=body([f"s{i} = state[b, {i}, i]" for i in range(len(states))], 16),
        states_before=body(before, 16),
        step=body(step, 16),
        becomes=body([f"state[b, {i}, i] = {value}" for i, value in enumerate(next_states(states, NUMBA))], 16),
        output=NUMBA.operand(output),
        n_states=len(states),
        distances=body(distances or ["pass"], 20),
        adjoint=body(lines, 16),
    )


def n_comparisons(structure: tuple) -> int:
    """Number of comparisons of a program that have a slope."""
    _, _, operations, states, output, *_ = structure
    return len(_number_comparisons(operations, states, output))


def _number_comparisons(operations: tuple, states: tuple, output) -> dict[int, int]:
    """Number the comparisons with a slope: {operation: index}."""
    adjoint = _Adjoint(operations, (0.0,) * len(operations), dict.fromkeys(range(len(operations)), 0))
    everything = {operand: ["1"] for operand in (output, *(s[0] for s in states)) if isinstance(operand, str)}
    adjoint.follow(everything, "a", has_slopes=True)
    reached = [k for k, (kind, *_) in enumerate(operations) if kind in COMPARISONS and f"a{k}" in adjoint.names]
    return {k: place for place, k in enumerate(reached)}


def _group_terms(terms: list[tuple[str, str]]) -> dict[str, list[str]]:
    gathered: dict[str, list[str]] = {}
    for operand, term in terms:
        gathered.setdefault(operand, []).append(term)
    return gathered


class _Adjoint:
    """Collects the lines of the reverse pass, and the adjoint terms of the input, the parameters and the states."""

    def __init__(self, operations: tuple, units: tuple, compared: dict[int, int]):
        self.operations, self.units, self.compared = operations, units, compared
        self.lines: list[str] = []
        self.names: set[str] = set()
        self.ends: dict[str, list[str]] = {}

    def reaches(self, name: str) -> str:
        """The sum of the adjoint terms of an input, a parameter or a state."""
        return " + ".join(self.ends.get(name, ["0.0"]))

    def follow(self, seeds: dict[str, list[str]], letter: str, has_slopes: bool) -> None:
        """Propagate adjoint terms from `seeds` through all operations; comparisons pass them if `has_slopes`."""
        terms = {operand: list(given) for operand, given in seeds.items()}
        for k in reversed(range(len(self.operations))):
            if f"v{k}" not in terms:
                continue
            self.names.add(f"{letter}{k}")
            self.lines.append(f"{letter}{k} = {' + '.join(terms.pop(f'v{k}'))}")
            for operand, term in self._operand_terms(k, f"{letter}{k}", has_slopes):
                terms.setdefault(operand, []).append(term)
        for operand, given in terms.items():
            self.ends.setdefault(operand, []).extend(given)

    def _operand_terms(self, k: int, g: str, has_slopes: bool) -> list[tuple[str, str]]:
        """The adjoint terms of the operands of operation k."""
        kind, *operands = self.operations[k]
        if kind in COMPARISONS and not has_slopes:
            return []
        written = {"g": g}
        if kind in SHIFTS:
            written["power"] = repr(2.0 ** operands[1])
        if kind in COMPARISONS:
            written["slope"] = f"slope[b, {self.compared[k]}, t, i] * {self.units[k]!r}"
        names = [NUMBA.operand(operand) for operand in operands]
        pairs = zip(operands, RULES[kind], strict=False)
        return [(o, rule.format(*names, **written)) for o, rule in pairs if rule and isinstance(o, str)]
