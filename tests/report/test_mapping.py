"""The explanation of a mapping: the numbers of cores that were tried, the next-best one, the distance to the bound."""

from dataclasses import fields, replace

import numpy as np
import pytest

import nwcompile as nw
from nwcompile.cost.energy import predict
from nwcompile.cost.least import _fewest_cycles
from nwcompile.ir.chip_sections import Cost
from nwcompile.report.json.collect import collect_report
from nwcompile.report.mapping import NO_BOUND, NO_TIMES
from tests.made.chips import small_chip
from tests.made.nets import dense_net

GRID = {"noc__columns": 8, "noc__rows": 8}
BARRIER = {**GRID, "core__max_neurons": 100, "cost__barrier_cycles": {"1": 1}}
UNTIMED = {**GRID, "core__max_neurons": 40} | {f"cost__{f.name}": None for f in fields(Cost) if f.name != "units"}


def explain(program) -> dict:
    return collect_report(program, predict(program))["explanation"]


def test_the_next_best_number_of_cores_is_told_with_its_time_and_objective():
    program = nw.compile(dense_net(20, 90, 90), small_chip(**BARRIER))
    doc = collect_report(program, predict(program))
    rows, n_cores = dict(doc["explanation"]["rows"]), program.mapping.n_cores
    others = [row for row in doc["explanation"]["tried_cores"] if row["n_cores"] != n_cores]
    chosen = next(row for row in doc["explanation"]["tried_cores"] if row["n_cores"] == n_cores)
    best = min(others, key=lambda row: row["objective"])
    assert list(rows) == ["binds", "tried", "chosen", "next best", "bound"]
    assert rows["chosen"].startswith(f"{n_cores} cores: the number of cores that minimizes")
    assert rows["next best"].startswith(f"{best['n_cores']} cores at ")
    slower, worse = (100 * (best[key] / chosen[key] - 1) for key in ("step_us", "objective"))
    assert worse > 0 and rows["next best"].endswith(
        f"({slower:+.1f} %); {worse:+.1f} % by this rule, with a price for messages"
    )
    assert all(f"{row['n_cores']} (" in rows["tried"] for row in doc["explanation"]["tried_cores"])


def test_the_bound_is_below_the_step_and_lower_on_any_number_of_cores():
    program = nw.compile(dense_net(20, 90, 90), small_chip(**BARRIER), options=nw.Options(n_cores=2))
    doc = collect_report(program, predict(program))
    same, any_number = (doc["explanation"]["least"][name]["step_us"] for name in ("same_cores", "any_cores"))
    assert any_number < same <= doc["time"]["step_us"]
    rows = dict(doc["explanation"]["rows"])
    assert f"(this one takes {doc['time']['step_us'] / same:.2f} times that)" in rows["bound"]
    assert rows["chosen"] == "2 cores: as n_cores=2 asks"
    assert rows["next best"] == "unknown: no other number of cores was tried that holds the network"


def test_numbers_of_cores_that_are_too_few_are_told():
    rows = dict(
        explain(nw.compile(dense_net(20, 90, 90), small_chip(**BARRIER), options=nw.Options(optimize="cores")))["rows"]
    )
    assert rows["chosen"] == "2 cores: the fewest cores that hold the network"
    program = nw.compile(dense_net(20, 90, 90), small_chip(**UNTIMED))
    rows, tried = dict(explain(program)["rows"]), explain(program)["tried_cores"]
    assert {row["step_us"] for row in tried} == {None} and rows["tried"].startswith("cores: ")
    assert [f"{row['n_cores']} (too few)" in rows["tried"] for row in tried] == [not row["fits"] for row in tried]
    assert rows["chosen"] == "5 cores: the fewest cores that hold the network, as the chip has no times per core"
    assert rows["bound"] == NO_TIMES and rows["binds"].startswith("space: ")


@pytest.mark.parametrize("options", [{"partitioner": "sequential"}, {"step_limit_us": 1e6, "optimize": "cores"}])
def test_other_rules_are_named(options):
    rows = dict(explain(nw.compile(dense_net(20, 90), small_chip(**BARRIER), options=nw.Options(**options)))["rows"])
    if "step_limit_us" in options:
        assert rows["chosen"] == "1 core: few cores that keep step_limit_us=1000000.0"
    else:
        assert rows["chosen"] == "1 core: as partitioner 'sequential' cuts the network"
        assert rows["tried"].endswith("the mapping is given, or comes from partitioner 'sequential'")


def test_a_program_without_these_entries_is_explained_as_far_as_it_is_known():
    program = nw.compile(dense_net(20, 90), small_chip(**BARRIER))
    rows = dict(explain(replace(program, manifest={}))["rows"])
    assert rows["tried"].endswith("or comes from partitioner 'unknown'")
    assert rows["next best"].startswith("unknown: ")


def test_the_barrier_of_a_bound_is_the_lowest_of_all_numbers_of_routers():
    costs = {"1": 90, "3": 40, "4": 70, "9": 20, "60": 5}
    chip = small_chip(noc__columns=8, noc__rows=8, noc__cores_per_router=3, cost__barrier_cycles=costs)
    n_cores = np.arange(1, 193)
    expected = [
        min(chip.barrier_cycles(k) for k in range(-(-n // 3), max(-(-n // 3), min(n, 64)) + 1)) for n in n_cores
    ]
    assert _fewest_cycles(chip, chip.barrier_cycles, n_cores).tolist() == expected


def test_a_number_of_cores_beyond_the_step_limit_is_no_next_best():
    network, limit = dense_net(64, 128, 64, 10), 4.0
    program = nw.compile(network, "loihi1", options=nw.Options(optimize="cores", step_limit_us=limit))
    explained = explain(program)
    assert any(row["step_us"] > limit for row in explained["tried_cores"])
    kept = [row["n_cores"] for row in explained["tried_cores"] if row["fits"] and row["step_us"] <= limit]
    others = [n for n in kept if n != program.mapping.n_cores]
    text = dict(explained["rows"])["next best"]
    assert text.startswith(f"{min(others)} core") if others else "keeps the limit" in text


def test_where_nothing_was_tried_no_rule_is_claimed():
    program = nw.compile(dense_net(20, 90), small_chip(**BARRIER))
    given = nw.compile(dense_net(20, 90), small_chip(**BARRIER), mapping=program.mapping)
    doc = collect_report(given, predict(given))
    assert dict(doc["explanation"]["rows"])["chosen"].endswith("as given, or as the limits of the chip require")
    assert "cores" not in dict(doc["verdict_rows"])


def test_a_program_of_an_older_version_tells_its_fewest_cores():
    program = nw.compile(dense_net(20, 90, 90), small_chip(**BARRIER))
    manifest = {key: value for key, value in program.manifest.items() if key != "tried_cores"}
    old = replace(program, manifest={**manifest, "fewest_cores": {"n_cores": 2, "step_us": 9.5}})
    doc = collect_report(old, predict(old))
    assert dict(doc["explanation"]["rows"])["tried"].startswith("cores (time per step): 2 (9.5 us)")
    assert dict(doc["verdict_rows"])["fewest cores"] == "2 are enough, at 9.5 us per step"


def test_a_chip_of_faster_cores_has_no_bound():
    chip = small_chip(**BARRIER)
    chip = chip.replace({"cost.synop_dense_cycles": [1] * (chip.n_cores // 2) + [2] * (chip.n_cores // 2)})
    program = nw.compile(dense_net(20, 90), chip)
    assert dict(explain(program)["rows"])["bound"] == NO_BOUND
