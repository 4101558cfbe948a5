"""The 50 cells: how each network of the zoo lands on each chip, and the bound that keeps the rest off."""

import pytest

from nwcompile.ir.manifest import APPROXIMATE, EXACT, HOST
from tests.zoo.cell import BOARDS, CHIPS, DOES_NOT_FIT, land

MOST_RATE_CHANGE = 10.0  # Percent: a cell whose layers fire more or less than that is no landing.
BOARD = "board"  # Follows a label where one chip is too small.

# A row a network, a column a chip; what is no label is the limit that bounds the network.
TABLE = {
    "tutorial_5": ("approximate", "host", "host", "fan-in axons", "approximate"),
    "tutorial_6": ("approximate", "host", "host", "fan-in axons", "approximate"),
    "tutorial_7": ("approximate", "exact", "exact", "fan-in axons", "approximate"),
    "regression": ("approximate", "host", "host", "axon types", "host"),  # on speck only the readout is on the chip
    "speech_commands": ("approximate", "exact", "exact", "axon types", "approximate"),
    "fashion_csnn": ("host", "host", "host", "fan-in axons", "cores"),
    "dvs_gesture": ("exact, board", "exact", "exact, board", "fan-in axons", "neurons"),
    "sew_resnet_18": ("host, board", "host", "host, board", "fan-in axons", "synapse memory"),
    "norse_readme": ("exact", "exact", "exact", "fan-in axons", "approximate"),
    "sinabs_dynapcnn": ("approximate", "exact", "exact", "fan-in axons", "approximate"),
}
QUICK = {("regression", "loihi2"), ("regression", "spinnaker2"), ("regression", "loihi1")}
CELLS = [
    pytest.param(name, chip, expected, marks=[pytest.mark.long] * ((name, chip) not in QUICK), id=f"{name}-{chip}")
    for name, row in TABLE.items()
    for chip, expected in zip(CHIPS, row, strict=True)
]


# The residual network adds thousands of numbers a neuron: one in some thousand spikes is a matter of float32 rounding.
@pytest.mark.filterwarnings("ignore:layer 'layer.*' spikes differently from the module")
@pytest.mark.parametrize(("name", "chip", "expected"), CELLS)
def test_cell_lands_as_the_table_says_and_every_backend_agrees(name, chip, expected, reference):
    cell = land(name, chip, partitioner="sequential", placer="row-major")
    label = expected.removesuffix(f", {BOARD}")
    if label not in (EXACT, APPROXIMATE, HOST):
        assert (cell.label, cell.reason.split("  ")[0]) == (DOES_NOT_FIT, label)
        return
    assert (cell.label, cell.agree) == (label, True), cell.reason
    assert cell.chip == (BOARDS[chip] if expected.endswith(BOARD) else chip)
    if label == APPROXIMATE:
        assert cell.spikes_changed_percent is not None
        off = {layer: percent for layer, percent in cell.rate_changes.items() if abs(percent) > MOST_RATE_CHANGE}
        assert not off, f"layers that fire otherwise than on the ideal chip, in %: {off}"
    else:
        for layer, (on_chip, in_float) in cell.rates.items():
            assert on_chip == pytest.approx(in_float, rel=MOST_RATE_CHANGE / 100), f"{layer}: rate of chip and float"
