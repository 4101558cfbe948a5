"""Public functions refuse wrong arguments with a sentence. `make test-long`: LONG_EXAMPLES times 20 calls."""

import pytest

import nwcompile as nw
from nwcompile import nn
from tests.fuzz import calls
from tests.fuzz.calls import Call, arguments, outcome
from tests.long import EXAMPLES

PARTS = 10  # for several processes; a part has every tenth seed
CALLS = 20 * EXAMPLES
FEW = 200  # in `make test`
# What a call gives, errors, which nobody calls, and modules, of which the functions are called.
ERRORS = {name for name in nw.__all__ if name.endswith("Error")}
NOT_CALLED = ERRORS | {"Chunk", "Robustness", "Run", "__version__", "errors", "nn", "nn.Sequential", "nn.data",
                       "nn.event", "nn.losses", "nn.metrics", "nn.surrogate"}  # fmt: skip


def failed(seeds: range) -> list[str]:
    found = {seed: outcome(seed) for seed in seeds}
    return [f"python -m tests.fuzz.calls --start {s} --count 1: {t}" for s, t in found.items() if t[:6] == "FAILED"]


@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
def test_fuzz_call_is_refused_with_a_sentence(part):
    texts = failed(range(part, CALLS, PARTS))
    assert not texts, "\n".join(texts)


def test_fuzz_few_calls_are_refused_with_a_sentence():
    texts = failed(range(FEW))
    assert not texts, "\n".join(texts)


@pytest.mark.parametrize(
    "name", [n for n in calls.calls() if n not in ("demo", "from_lava", "load_onnx", "nn.data.read_events")]
)
def test_fuzz_call_works_with_right_arguments(name):
    """Else nothing is learned from a wrong one."""
    function, right = calls.calls()[name]
    with calls.limited():
        function(**right())


def test_fuzz_every_public_name_is_called():
    public = {*nw.__all__, *(f"nn.{name}" for name in nn.__all__)}
    assert public - NOT_CALLED == public & set(calls.calls())


def test_fuzz_call_depends_on_its_seed_alone():
    one, same, other = ([(arguments(s)[0], [*arguments(s)[1]]) for s in range(n, n + 20)] for n in (0, 0, 20))
    assert one == same != other


def test_fuzz_call_names_what_is_raised(monkeypatch):
    def broken(x):
        raise KeyError("x")

    monkeypatch.setattr(calls, "calls", lambda: {"broken": Call(broken, lambda: {"x": 1})})
    assert outcome(3).startswith("FAILED broken: KeyError: ")
