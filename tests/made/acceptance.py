"""Networks of other projects, compiled for the first chip that holds them and compared in three backends."""

import numpy as np
import pytest

import nwcompile as nw

ROOMY = {"noc.columns": 8, "noc.rows": 8, "core.max_in_axons": 1024, "core.synapse_bits": 1 << 20}
DEFAULTS = nw.Options()
CHIPS = (
    nw.Chip.load("loihi1"),
    nw.Chip.load("loihi1").replace({"neuron.strict": [False, True]}),
    nw.Chip.load("tiny"),
    nw.Chip.load("tiny").replace(ROOMY),
)


def compiled(network: nw.Network, x: np.ndarray, options: nw.Options) -> nw.Program:
    refusals = []
    for chip in CHIPS:
        try:
            return nw.compile(network, chip, calibration=x, options=options)
        except nw.FitError as e:
            refusals.append(str(e))
    pytest.fail("\n".join(refusals))


def agreement(network: nw.Network, x: np.ndarray, options: nw.Options = DEFAULTS) -> tuple[nw.Program, object]:
    """Assert that all backends agree on a run with spikes; return the program and the crosscheck."""
    program = compiled(network, x, options)
    against = ("reference", "cycle", "sequence") if network.is_fixed else ("float", "reference", "cycle", "sequence")
    result = nw.crosscheck(program, x, against, network=None if network.is_fixed else network)
    assert result.agree, str(result)
    assert all(row.fired["cycle"] for row in result.layers)
    return program, result
