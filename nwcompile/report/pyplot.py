"""Plots with matplotlib: spikes and states of a run, and the floorline of a report.

Every function returns a Figure: the last line of a notebook cell shows it, and `savefig` writes it. Colors are those of
the caller's matplotlib style, so `plt.style.use("dark_background")` suits a dark notebook.
"""

from collections.abc import Sequence

import numpy as np

from nwcompile.argument_types import checked
from nwcompile.errors import ModelError, OptionError, unknown_choice
from nwcompile.ir.run import Run
from nwcompile.report.html.plots import SERIES
from nwcompile.report.text import basis_text

ERROR_CODE = "NW3008"
NO_MATPLOTLIB = (
    "a plot needs matplotlib, which is not installed: pip install 'nwcompile[plot]' (report.html has plots without it)"
)
WIDTH = 7.2  # Inches, as are all heights here.
PANEL_HEIGHTS = (1.1, 3.0)  # The least and the most of a layer in a raster.
MARK = 5.0  # Points of a spike in a panel with room for it.
LEAST_MARK = 1.0  # Points; less would be invisible.
POINTS = 72.0  # Points per inch.
MARKS = {"core": (".", "0.55"), "predicted": ("+", "C4"), "bound": ("s", "C0"), "measured": ("o", "C1")}  # and colors
MOST_VECTORS = 10_000  # More marks make an SVG slow to open.
MOST_LINES = 5  # Neurons of a layer if none are named; more lines cannot be told apart.


def plot_raster(run: Run, sample: int = 0):
    """Plot a mark for each neuron and step with a spike, one panel per layer."""
    _check_sample(run, sample)
    flat = {name: _of_sample(spikes, sample) for name, spikes in run.spikes.items()}
    heights = [float(np.clip(MARK * s.shape[1] / POINTS, *PANEL_HEIGHTS)) for s in flat.values()]
    figure, panels = _panels(heights, f"spikes of sample {sample}, backend {run.backend}")
    for i, (name, spikes) in enumerate(flat.items()):
        step, neuron = np.nonzero(spikes)
        mark = float(np.clip(POINTS * heights[i] / spikes.shape[1], LEAST_MARK, MARK))
        marks = {"color": f"C{i}", "markersize": mark, "markeredgewidth": 1.2, "rasterized": len(step) > MOST_VECTORS}
        panels[i].plot(step, neuron, "|", **marks)
        panels[i].set_title(name, loc="left", fontsize="small", parse_math=False)
        panels[i].set(ylabel="neuron", xlim=(-0.5, len(spikes) - 0.5), ylim=(-0.5, spikes.shape[1] - 0.5))
        panels[i].yaxis.get_major_locator().set_params(integer=True)
    return _with_steps(figure, panels)


def plot_states(run: Run, layer: str | None = None, state: str = "v", neurons: Sequence[int] | None = None,
                sample: int = 0):  # fmt: skip
    """Plot a state of neurons after each step, one panel per layer; dots are the neuron's spikes."""
    _check_sample(run, sample)
    if layer is not None and layer not in run.spikes:
        raise OptionError(unknown_choice("layer", layer, run.spikes))
    states = {name: kept for name, kept in run.states.items() if kept and layer in (name, None)}
    if not states:
        raise ModelError("the run keeps no states; simulate with record='all' for them")
    chosen = [name for name, kept in states.items() if state in kept]
    if not chosen:
        raise OptionError(unknown_choice("state", state, sorted({key for kept in states.values() for key in kept})))
    figure, panels = _panels([2.2] * len(chosen), f"state {state} of sample {sample}, backend {run.backend}")
    for panel, name in zip(panels, chosen, strict=True):
        values, spikes = _of_sample(run.states[name][state], sample), _of_sample(run.spikes[name], sample)
        for neuron in _choose_neurons(spikes, neurons, name):
            (line,) = panel.plot(values[:, neuron], linewidth=1.2, label=f"{neuron}")
            fired = np.flatnonzero(spikes[:, neuron])
            panel.plot(fired, values[fired, neuron], "o", color=line.get_color(), markersize=4)
        panel.set_title(name, loc="left", fontsize="small", parse_math=False)
        panel.set_ylabel(state)
        panel.legend(title="neuron", loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    return _with_steps(figure, panels)


@checked()
def plot_floorline(doc: dict):
    """Return a matplotlib Figure of the floorline of a report: step time in us against synops of a core, both log.

    `doc` is what `nwcompile.report` returns, or the content of report.json. The line is the lower bound: the floor
    (barrier and compute) and the slope (reading synapses). There is a point for every hardware step, by the synops of
    its busiest core, and a small one for every core in a mean step (`cost/time/floorline.py`). Raises ModelError if the
    chip has no times, and OptionError if `doc` is no report or matplotlib is not installed.
    """
    if not {"steps", "floorline", "time", "cores", "chip"} <= set(doc):
        raise OptionError("plot_floorline: doc is not the content of a report.json; give what nw.report returns")
    if doc["time"] is None:
        raise ModelError(f"chip {doc['chip']['name']} has no times, so there is no floorline to plot")
    figure, (panel,) = _panels([4.0], f"floorline on {doc['chip']['name']}")
    steps, line = doc["steps"], doc["floorline"]
    core_synops, core_us = ([core[key] for core in doc["cores"]] for key in ("synops_per_step", "busy_us_per_step"))
    series = [("core", np.array(core_synops), line["barrier_us"] + np.array(core_us))]
    for name in ("predicted", "bound", "measured"):
        if steps[f"{name}_us"] is not None:
            synops = steps["predicted_max_synops" if name == "predicted" else "max_synops"]
            series.append((name, np.array(synops), np.array(steps[f"{name}_us"])))
    some = np.concatenate([synops for _, synops, _ in series])
    x = np.geomspace(max(some[some > 0].min(initial=some.max()), 1.0) / 2, max(some.max(), 1.0) * 2)
    bound = np.maximum(line["floor_us"], line["barrier_us"] + line["us_per_synop"] * x)
    panel.loglog(x, bound, color="0.5", label="floor and slope")
    for name, synops, us in series:
        mark, color = MARKS[name]
        face = "none" if name == "bound" else color
        at = np.maximum(synops, x[0])
        panel.loglog(at, us, mark, color=color, markerfacecolor=face, markersize=6, label=SERIES[name])
    panel.set(
        xlabel="synops of a core, or of the busiest one, in a step", ylabel=f"us per step ({basis_text(doc, 'us')})"
    )
    for axis in (panel.xaxis, panel.yaxis):
        axis.get_major_locator().set_params(subs=(1.0, 2.0, 5.0))
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter("")
    panel.legend(frameon=False)
    return figure


def _panels(heights: list[float], title: str):
    """Return a Figure and its panels, one below the other. pyplot forgets the figure, so a notebook shows it once."""
    try:
        from matplotlib import pyplot
    except ImportError:
        raise OptionError(NO_MATPLOTLIB, code="NW1102") from None
    figure, panels = pyplot.subplots(len(heights), figsize=(WIDTH, sum(heights) + 0.9), height_ratios=heights,
                                     sharex=True, squeeze=False, layout="constrained")  # fmt: skip
    pyplot.close(figure)
    figure.suptitle(title, fontsize="medium", parse_math=False)
    return figure, list(panels[:, 0])


def _with_steps(figure, panels: list):
    """Label the axis of steps below the last panel."""
    panels[-1].set_xlabel("step")
    panels[-1].xaxis.get_major_locator().set_params(integer=True)
    return figure


def _check_sample(run: Run, sample: int) -> None:
    if run.totals is not None:
        raise ModelError("the run keeps totals only, no single steps; simulate without record='totals' for them")
    if not run.spikes:
        raise ModelError("the run is predicted, not simulated, and has no spikes; use a run of nw.simulate")
    if not 0 <= sample < run.n_samples:
        raise OptionError(f"there is no sample {sample}; the run has samples 0..{run.n_samples - 1}")


def _of_sample(values: np.ndarray, sample: int) -> np.ndarray:
    """The values [T, n] of one sample of an array [B, T, *shape]."""
    return values[sample].reshape(values.shape[1], -1)


def _choose_neurons(spikes: np.ndarray, neurons: Sequence[int] | None, layer: str) -> Sequence[int]:
    """The named neurons, or those that spike most."""
    n = spikes.shape[1]
    if neurons is None:
        return sorted(np.argsort(-np.count_nonzero(spikes, axis=0), kind="stable")[:MOST_LINES].tolist())
    if not len(neurons):
        raise OptionError("neurons is empty; name some neurons, or leave it out")
    if wrong := [neuron for neuron in neurons if not 0 <= neuron < n]:
        raise OptionError(f"there is no neuron {wrong[0]} in layer {layer!r}, which has neurons 0..{n - 1}")
    return neurons
