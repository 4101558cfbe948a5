"""Prediction: the run that a program's activity predicts, before anything is simulated."""

import numpy as np

from nwcompile.cost.energy import energy_pj
from nwcompile.cost.traffic.events import count_events
from nwcompile.cost.traffic.link_flits import link_flits
from nwcompile.ir.activity import Activity
from nwcompile.ir.program import Program
from nwcompile.ir.run import Run


def predict(program: Program) -> Run:
    """The run that the program's activity predicts: exact event counts of the calibration, no spikes, no times."""
    activity = program.activity or Activity.uniform(program.network)
    counters = count_events(program, activity)
    return Run(
        backend="prediction",
        device="none",
        window="aligned",
        n_samples=activity.n_samples,
        spikes={},
        states={},
        output=np.zeros(0),
        counters=counters,
        energy_pj=energy_pj(counters, program.chip),
        activity=activity,
        link_flits=link_flits(program, activity),
    )
