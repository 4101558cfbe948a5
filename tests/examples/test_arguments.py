"""Examples refuse a number that they cannot run with before they do anything else."""

from importlib import import_module
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.mark.parametrize(
    "name, given, text",
    [
        ("05_sinabs_mnist", "--images=0", "--images must be from 1 to 5000, --steps 8 or more"),
        ("05_sinabs_mnist", "--images=5001", "--images must be from 1 to 5000, --steps 8 or more"),
        ("05_sinabs_mnist", "--steps=7", "--images must be from 1 to 5000, --steps 8 or more"),
        ("06_quantize_aware", "--bits=0", "--bits must be from 1 to 8"),
        ("06_quantize_aware", "--bits=9", "--bits must be from 1 to 8"),
        ("10_own_neuron", "--epochs=0", "--epochs must be 1 or more"),
        ("07_ann_to_snn", "--images=0", "--images must be from 1 to 1000, --epochs 1 or more"),
        ("07_ann_to_snn", "--images=1001", "--images must be from 1 to 1000, --epochs 1 or more"),
        ("07_ann_to_snn", "--epochs=0", "--images must be from 1 to 1000, --epochs 1 or more"),
    ],
)
def test_example_refuses_a_number_out_of_range(name, given, text, monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(EXAMPLES))  # as for a script: 06 imports its neighbor
    monkeypatch.setattr("sys.argv", [name, given])
    with pytest.raises(SystemExit) as end:
        import_module(f"examples.{name}").main()
    assert end.value.code == 2 and capsys.readouterr().err.endswith(f"error: {text}\n")
