"""Modules of quantization-aware training, compared with their compiled programs."""

import numpy as np
import pytest

import nwcompile as nw
from tests.made import spikes as drawn

BACKENDS = ("reference", "cycle", "sequence")


def assert_equal_bits(module, x, backends=BACKENDS, steps=None, options=None) -> nw.Program:
    """Assert that spikes, u and v of every layer equal those of the compiled program."""
    program = nw.compile(module.network(), module.chip, x, options or nw.Options())
    found = module.record(x, steps)
    for backend in backends:
        run = nw.simulate(program, x, backend=backend, record="all", steps=steps)
        for name, own in found.items():
            np.testing.assert_array_equal(own["spikes"], run.spikes[name])
            np.testing.assert_array_equal(own["u"], run.states[name]["u"])
            np.testing.assert_array_equal(own["v"], run.states[name]["v"])
    return program


def spikes(*shape: int, seed: int = 0) -> np.ndarray:
    """Random float32 spikes at a rate of 0.6."""
    return drawn.spikes(*shape, seed=seed, rate=0.6, dtype=np.float32)


def refused(call) -> str:
    with pytest.raises(nw.NwError) as caught:
        call()
    return str(caught.value)
