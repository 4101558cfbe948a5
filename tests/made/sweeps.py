"""Set-ups of sweep tests: a network and samples that compile quickly, and workers within this process."""

import numpy as np

import nwcompile as nw
from nwcompile.code_version import code_version
from nwcompile.workbench.sweep.measure import measure_point
from nwcompile.workbench.sweep.points import Question, Samples
from tests.made.nets import integers

GRID = {"n_cores": [1, 2], "noc.buffer_flits": [1, 4], "bits": [4]}


def network(n_inputs: int = 6) -> nw.Network:
    spec = nw.NeuronSpec(threshold=1.0, beta=0.75, reset="zero")
    weight = integers((4, n_inputs), 0, -3, 5).astype(np.float32) / 4
    return nw.Network.from_arrays({"out": spec}, [nw.Dense("in", "out", weight)], {"in": n_inputs})


def samples(n: int = 3) -> np.ndarray:
    return (np.random.default_rng(3).random((n, 5, 6)) < 0.5).astype(np.float32)


def question(backend: str = "cycle") -> Question:
    return Question(network(), {"x": Samples(samples())}, None, backend)


class InProcess:
    """Replacement of nwcompile.workbench.sweep.workers.Workers without processes; `computed` lists all point ids."""

    computed: list[str]

    def __init__(self, question, processes=None, cluster=None):
        self.question = question

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def compute_points(self, points, keep=False):
        for point in points:
            self.computed.append(point.id)
            yield point, measure_point(self.question, point, code_version(), keep)


def figures(rows) -> list[dict]:
    return [{name: value for name, value in row.items() if name != "seconds"} for row in rows]
