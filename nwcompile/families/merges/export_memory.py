"""RANC memory: the files that its RTL reads with $readmemb (Mack et al., doi 10.1109/TCAD.2020.3038151)."""

from dataclasses import dataclass

import numpy as np

OFFSET_BITS = 9  # of dx and of dy, the distance of a packet's destination
DELAY_BITS = 4  # of the number of ticks that a packet waits in its axon's memory
N_TICKS = 16  # words of that memory; a packet of delay 15 would address the word that is being read

NEURON = np.dtype(
    [
        ("v0", np.int64),  # potential before the first tick
        ("reset_potential", np.int64),
        ("leak", np.int64),  # added in every tick
        ("threshold", np.int64),
        ("negative_threshold", np.int64),
        ("reset_mode", np.int64),  # 0: to reset_potential; 1: by subtraction
        ("dx", np.int64),
        ("dy", np.int64),
        ("axon", np.int64),  # destination of its packet, on the core at (dx, dy) from its own
        ("delay", np.int64),
    ]
)


@dataclass(frozen=True)
class Parameters:
    """The parameters of the design; a bitstream or simulation must be built with the same ones."""

    columns: int
    rows: int
    n_neurons: int  # per core
    n_axons: int
    n_types: int
    potential_bits: int  # of potentials, reset potentials and both thresholds
    weight_bits: int
    leak_bits: int
    buffer_depth: int
    bus: tuple[int, int]  # the place of the output bus
    n_outputs: int

    @property
    def axon_bits(self) -> int:
        """Bits of an axon's number."""
        return max(1, (self.n_axons - 1).bit_length())

    @property
    def packet_bits(self) -> int:
        """Bits of a packet: dx, dy, axon, delay."""
        return 2 * OFFSET_BITS + self.axon_bits + DELAY_BITS

    @property
    def verilog(self) -> dict[str, int]:
        """The values by the names of the RTL's parameters."""
        return {
            "GRID_DIMENSION_X": self.columns,
            "GRID_DIMENSION_Y": self.rows,
            "OUTPUT_CORE_X_COORDINATE": self.bus[0],
            "OUTPUT_CORE_Y_COORDINATE": self.bus[1],
            "NUM_OUTPUTS": self.n_outputs,
            "NUM_NEURONS": self.n_neurons,
            "NUM_AXONS": self.n_axons,
            "NUM_TICKS": N_TICKS,
            "NUM_WEIGHTS": self.n_types,
            "NUM_RESET_MODES": 2,
            "POTENTIAL_WIDTH": self.potential_bits,
            "WEIGHT_WIDTH": self.weight_bits,
            "LEAK_WIDTH": self.leak_bits,
            "THRESHOLD_WIDTH": self.potential_bits,
            "DX_MSB": self.packet_bits - 1,
            "DX_LSB": self.packet_bits - OFFSET_BITS,
            "DY_MSB": self.packet_bits - OFFSET_BITS - 1,
            "DY_LSB": self.packet_bits - 2 * OFFSET_BITS,
            "ROUTER_BUFFER_DEPTH": self.buffer_depth,
        }

    def number(self, x, y):
        """The number of a place, which is in its file names."""
        return x + self.columns * y


@dataclass(frozen=True, eq=False)
class CoreMemory:
    """The memory of one core."""

    neuron: np.ndarray  # NEURON[slot]
    connected: np.ndarray  # bool[slot, axon]
    weight: np.ndarray  # int64[slot, axon type]
    axon_type: np.ndarray  # int64[axon]


def empty_core(parameters: Parameters) -> CoreMemory:
    """A core whose neurons have no synapses and never fire."""
    neuron = np.zeros(parameters.n_neurons, NEURON)
    neuron["threshold"], neuron["negative_threshold"] = 1, -(1 << (parameters.potential_bits - 1))
    return CoreMemory(
        neuron=neuron,
        connected=np.zeros((parameters.n_neurons, parameters.n_axons), bool),
        weight=np.zeros((parameters.n_neurons, parameters.n_types), np.int64),
        axon_type=np.zeros(parameters.n_axons, np.int64),
    )


def csram(parameters: Parameters, core: CoreMemory) -> bytes:
    """Render csram_NNN.mem, one line per neuron, with the connection of the last axon leftmost."""
    neuron, wide = core.neuron, parameters.potential_bits
    fields = [
        core.connected[:, ::-1],
        _to_bits(neuron["v0"], wide),
        _to_bits(neuron["reset_potential"], wide),
        _to_bits(core.weight, parameters.weight_bits).reshape(parameters.n_neurons, -1),
        _to_bits(neuron["leak"], parameters.leak_bits),
        _to_bits(neuron["threshold"], wide),
        _to_bits(neuron["negative_threshold"], wide),
        _to_bits(neuron["reset_mode"], 1),
        _to_bits(neuron["dx"], OFFSET_BITS),
        _to_bits(neuron["dy"], OFFSET_BITS),
        _to_bits(neuron["axon"], parameters.axon_bits),
        _to_bits(neuron["delay"], DELAY_BITS),
    ]
    return _to_lines(np.concatenate(fields, 1))


def axon_types(parameters: Parameters, core: CoreMemory) -> bytes:
    """Render tc_NNN.mem, one line per axon."""
    return _to_lines(_to_bits(core.axon_type, max(1, (parameters.n_types - 1).bit_length())))


def packet_words(parameters: Parameters, dx, dy, axon, delay) -> list[str]:
    """Format packets as the text of their bits, most significant first."""
    widths = (OFFSET_BITS, OFFSET_BITS, parameters.axon_bits, DELAY_BITS)
    fields = [_to_bits(np.asarray(values), n) for values, n in zip((dx, dy, axon, delay), widths, strict=True)]
    return _to_lines(np.concatenate(fields, 1)).decode().split()


def _to_bits(values: np.ndarray, n_bits: int) -> np.ndarray:
    """bool[..., bit]: integers in two's complement, most significant bit first."""
    return (np.asarray(values, np.int64)[..., None] >> np.arange(n_bits - 1, -1, -1)) & 1 != 0


def _to_lines(bits: np.ndarray) -> bytes:
    """Format rows of bits as lines of text."""
    text = np.full((bits.shape[0], bits.shape[1] + 1), ord("\n"), np.uint8)
    text[:, :-1] = ord("0") + bits.astype(np.uint8)
    return text.tobytes()
