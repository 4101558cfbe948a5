"""The programs of tests/made/neuron_programs.py, where benchmarks/programs.py looks for them."""

from tests.made.neuron_programs import adaptive, cuba, every_operation

__all__ = ["adaptive", "cuba", "every_operation"]
