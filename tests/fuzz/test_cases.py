"""Random cases through the whole compiler and all backends. `make test-long`: LONG_EXAMPLES times 20 of them."""

from collections import Counter

import numpy as np
import pytest

from nwcompile.ir.chip_sections import count_chips
from nwcompile.sim.sequence import run as sequence
from tests.fuzz import cases
from tests.fuzz.cases import case, main, outcome
from tests.long import EXAMPLES
from tests.made.random_cases import Case

PARTS = 10  # for several processes; a part has every tenth seed


@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
def test_fuzz_case_holds(part):
    found = {seed: outcome(seed) for seed in range(part, 20 * EXAMPLES, PARTS)}
    failed = [f"python -m tests.fuzz.cases --start {s} --count 1: {t}" for s, t in found.items() if t[:6] == "FAILED"]
    assert not failed, "\n".join(failed)
    assert list(found.values()).count("passed") > len(found) // 4, Counter(found.values())


def test_fuzz_case_depends_on_its_seed_alone():
    one, other, same = case(3), case(4), case(3)
    assert one.network.hash == same.network.hash != other.network.hash
    assert (one.chip.hash, one.options, one.chunk_sizes) == (same.chip.hash, same.options, same.chunk_sizes)
    assert all(np.array_equal(x, same.x[name]) for name, x in one.x.items())


def kinds(drawn: Case) -> set[str]:
    """What kinds of network, chip and option a case has."""
    network, noc, cost = drawn.network, drawn.chip.noc, drawn.chip.cost
    heard = {c.target for c in network.connections}
    is_so = {
        "several inputs": len(network.inputs) > 1,
        "no input": not network.inputs,
        "several outputs": len(network.outputs) > 1,
        "layer without input": not heard >= {*network.layers},
        "neuron program": bool(network.programs),
        "recurrent": any(c.source == c.target for c in network.connections),
        "delay": any(c.aligned_delay > 1 for c in network.connections),
        "mapped at random": drawn.program is not None,
        "board": drawn.chip.family.has_routers and count_chips(noc) != (1, 1),
        "faults": bool(noc.faults),
        "concentrated": noc.cores_per_router > 1,
        "real-valued": any(x.dtype.kind == "f" for x in drawn.x.values()),
        "without calibration": drawn.calibration is None,
    }
    words = [type(c).__name__ for c in network.connections]
    words += [node.neuron.message for node in network.nodes.values() if node.neuron is not None]
    words += [noc.topology, noc.router, noc.multicast, noc.on_full, cost.sync, cost.visits, drawn.options.partitioner]
    words += [drawn.options.execution, drawn.options.on_multi_spike, drawn.window, drawn.backend]
    return {kind for kind, has in is_so.items() if has} | {word for word in words if word}


def test_fuzz_cases_are_of_every_kind():
    seen = Counter(kind for seed in range(100) for kind in kinds(case(seed)))
    wanted = {
        "several inputs", "no input", "several outputs", "layer without input", "neuron program", "recurrent", "delay",
        "mapped at random", "board", "faults", "concentrated", "real-valued", "without calibration", "Dense", "Sparse",
        "Conv1d", "Conv2d", "Pool2d", "MaxPool2d", "multi", "bipolar", "graded", "mesh", "torus", "segmented_bus",
        "merges", "tree", "drop", "neighbors", "all", "floorline", "metis", "phased", "repeat", "refuse", "hardware",
        "reference", "cycle", "sequence",
    }  # fmt: skip
    assert not wanted - set(seen), seen


def test_fuzz_names_the_seed_of_backends_that_differ(monkeypatch, capsys):
    seed = next(s for s in range(100) if cases.outcome(s) == "passed" and case(s).chip.noc.on_full != "drop")
    advance = sequence.SequenceMachine.advance

    def with_another_spike(*arguments):
        rows = advance(*arguments)
        next(iter(rows.spikes.values())).flat[0] += 1
        return rows

    monkeypatch.setattr(sequence.SequenceMachine, "advance", with_another_spike)
    assert main(["--start", str(seed), "--count", "1"]) == 1
    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith(f"seed {seed}: FAILED AssertionError: reference, cycle, sequence disagree first at")
