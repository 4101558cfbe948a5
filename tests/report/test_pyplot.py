"""Plots with matplotlib: their marks are the spikes, states and times of the run."""

import sys

import numpy as np
import pytest

import nwcompile as nw
from nwcompile.cost.energy import predict
from nwcompile.errors import ModelError, OptionError
from nwcompile.report.json.collect import collect_report
from tests.made.nets import two_layer_net, two_layer_samples

pytest.importorskip("matplotlib")
X = two_layer_samples()


@pytest.fixture(scope="module")
def program() -> nw.Program:
    return nw.compile(two_layer_net(), "loihi1", X, nw.Options(n_cores=3))


@pytest.fixture(scope="module")
def run(program) -> nw.Run:
    return nw.simulate(program, X, backend="cycle", record="all")


def test_raster_has_a_mark_for_each_spike_of_the_sample(run):
    figure = run.plot_raster(sample=2)
    assert [panel.get_title("left") for panel in figure.axes] == ["hidden", "out"]
    for panel in figure.axes:
        (marks,) = panel.lines
        step, neuron = np.nonzero(run.spikes[panel.get_title("left")][2])
        assert len(step) and np.array_equal(marks.get_xdata(), step) and np.array_equal(marks.get_ydata(), neuron)


def test_states_are_those_of_the_neurons_that_spike_most(run):
    figure = run.plot_states(sample=1)
    assert [panel.get_title("left") for panel in figure.axes] == ["hidden", "out"]
    panel = figure.axes[0]
    named = [int(text.get_text()) for text in panel.get_legend().get_texts()]
    spikes = run.spikes["hidden"][1].reshape(9, -1)
    n_spikes = np.count_nonzero(spikes, axis=0)
    assert sorted(n_spikes[named]) == sorted(n_spikes)[-5:]
    for neuron, line, dots in zip(named, panel.lines[::2], panel.lines[1::2], strict=True):
        assert np.array_equal(line.get_ydata(), run.states["hidden"]["v"][1].reshape(9, -1)[:, neuron])
        assert np.array_equal(dots.get_xdata(), np.flatnonzero(spikes[:, neuron]))
    (only,) = run.plot_states("out", neurons=[4, 0]).axes
    assert [text.get_text() for text in only.get_legend().get_texts()] == ["4", "0"]


def test_floorline_has_the_steps_and_cores_of_the_report(program, run):
    doc = collect_report(program, run)
    (panel,) = nw.report.plot_floorline(doc).axes
    lines = {line.get_label(): line for line in panel.lines}
    assert lines["measured"].get_ydata().tolist() == doc["steps"]["measured_us"]
    assert lines["bound of this run"].get_ydata().tolist() == doc["steps"]["bound_us"]
    assert len(lines["a core, mean of the steps"].get_xdata()) == 3
    assert lines["floor and slope"].get_ydata().min() >= doc["floorline"]["floor_us"]
    predicted = nw.report.plot_floorline(collect_report(program, predict(program)))
    assert "measured" not in {line.get_label() for line in predicted.axes[0].lines}


def test_a_figure_is_shown_once_as_pyplot_forgets_it(run):
    from matplotlib import pyplot

    before = pyplot.get_fignums()
    run.plot_raster()
    assert pyplot.get_fignums() == before


def test_plots_say_what_they_lack(program, run, monkeypatch):
    totals = nw.simulate(program, X, backend="cycle", record="totals")
    with pytest.raises(ModelError, match="the run keeps totals only, no single steps; simulate without record='tot"):
        totals.plot_raster()
    with pytest.raises(ModelError, match="the run is predicted, not simulated, and has no spikes; use a run of nw.sim"):
        predict(program).plot_raster()
    with pytest.raises(ModelError, match="the run keeps no states; simulate with record='all' for them"):
        nw.simulate(program, X).plot_states("hidden")
    with pytest.raises(ModelError, match="the run keeps totals only"):
        totals.plot_states()
    for arguments, text in (
        ({"sample": 4}, r"there is no sample 4; the run has samples 0\.\.3"),
        ({"layer": "hiden"}, "unknown layer 'hiden'; choose one of: hidden, out"),
        ({"state": "w"}, "unknown state 'w'; choose one of: "),
        ({"layer": "out", "neurons": [1, 5]}, r"there is no neuron 5 in layer 'out', which has neurons 0\.\.4"),
        ({"neurons": 3}, "plot_states: neurons=3 must be a list of whole numbers or None"),
    ):
        with pytest.raises(OptionError, match=text):
            run.plot_states(**arguments)
    with pytest.raises(OptionError, match=r"doc is not the content of a report\.json; give what nw\.report returns"):
        nw.report.plot_floorline({})
    timeless = collect_report(program, run) | {"time": None}
    with pytest.raises(ModelError, match="chip loihi1 has no times, so there is no floorline to plot"):
        nw.report.plot_floorline(timeless)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(
        OptionError, match=r"needs matplotlib, which is not installed: pip install 'nwcompile\[plot\]'"
    ) as e:
        run.plot_raster()
    assert e.value.code == "NW1102"
