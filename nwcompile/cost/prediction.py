"""Prediction: the run predicted from a program's activity, without simulation."""

import numpy as np

from nwcompile.cost.energy import measure_energy
from nwcompile.cost.traffic.events import count_events
from nwcompile.cost.traffic.link_flits import link_flits
from nwcompile.ir.activity import Activity
from nwcompile.ir.program import Program
from nwcompile.ir.run import Run


def predict(program: Program, activity: Activity | None = None) -> Run:
    """Predict a run from an activity, by default the program's: exact event counts, no spikes, no times."""
    activity = activity or program.activity or Activity.uniform(program.network)
    flits = link_flits(program, activity)
    return Run(
        backend="prediction",
        device="none",
        window="aligned",
        n_samples=activity.n_samples,
        spikes={},
        states={},
        output=np.zeros(0),
        activity=activity,
        link_flits=flits,
        **measure_energy(program, count_events(program, activity), lambda: flits),
    )
