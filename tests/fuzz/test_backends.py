"""Random programs through all backends. `make test-long`; LONG_EXAMPLES each."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nwcompile.sim.crosscheck import crosscheck
from tests.made.random_programs import inputs, programs


@pytest.mark.long
@pytest.mark.parametrize("window", ["aligned", "hardware"])
@settings(suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_fuzz_backends_agree(window, data):
    program = data.draw(programs())
    result = crosscheck(program, data.draw(inputs(program)), window=window)
    assert result.agree, str(result)
