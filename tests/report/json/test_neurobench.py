"""NeuroBench in the report: keys with their units, and the table of the page."""

from nwcompile.report.json.collect import collect_report
from nwcompile.report.json.neurobench import NO_STATES, neurobench_lines, neurobench_table
from tests.made.programs import run_of, three_cores

FIGURES = {
    "footprint_bytes": 45, "synapse_bytes": 36, "neuron_bytes": 9, "state_bytes": 48, "connection_sparsity": 0.0,
    "activation_sparsity": 0.0, "dense_synops_per_sample": 72.0, "effective_macs_per_sample": 0.0,
    "effective_acs_per_sample": 54.0, "membrane_updates_per_sample": 8.0,
}  # fmt: skip


def test_report_has_the_neurobench_figures():
    program = three_cores()
    assert collect_report(program, run_of(program, record="all"))["neurobench"] == FIGURES


def test_report_of_a_run_without_states_says_that_membrane_updates_are_not_counted():
    program = three_cores()
    doc = collect_report(program, run_of(program))
    assert doc["neurobench"] == {**FIGURES, "membrane_updates_per_sample": None}
    assert f'<td></td><td class="left">{NO_STATES}</td>' in (neurobench_table(doc))
    assert neurobench_lines(doc)[-1].split() == ["membrane", "updates", "–"]
