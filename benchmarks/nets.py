"""Programs that the benchmarks of the cycle backend run: networks on Loihi 1, each neuron's core given."""

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import nwcompile as nw
from nwcompile.passes.emit import emit
from nwcompile.passes.prepare.schedule import schedule

CORES_PER_TILE = 4
THRESHOLD = 1000


def random_net(
    n_neurons: int, n_cores: int, fan_out: int, active: float, seed: int = 0, threshold: int = THRESHOLD
) -> dict[str, np.ndarray]:
    """Neurons that fire by a bias of their own, the mean one in a part `active` of the steps, and send at random.

    bias, core int64[neuron]; src, dst, w int64[synapse]; neuron: v += bias + input, fires above the threshold, then
    v = 0.
    """
    rng = np.random.default_rng(seed)
    bias = rng.integers(threshold / 2 * active, 1.5 * threshold * active, n_neurons, endpoint=True)
    src = np.repeat(np.arange(n_neurons), fan_out)
    dst, w = rng.integers(0, n_neurons, (n_neurons * fan_out)), rng.integers(-2, 3, n_neurons * fan_out)
    return {"bias": bias, "src": src, "dst": dst, "w": w, "core": np.arange(n_neurons) * n_cores // n_neurons}


def program_of(net: dict[str, np.ndarray], per_tile: int = CORES_PER_TILE, threshold: int = THRESHOLD) -> nw.Program:
    """A net of `random_net` on as many tiles of `per_tile` cores of Loihi 1 as it needs, from south to north."""
    n_tiles = -(-int(net["core"].max() + 1) // per_tile)
    rows = int(2 ** (n_tiles.bit_length() // 2)) if n_tiles != 32 else 4
    keys = {"noc.columns": -(-n_tiles // rows), "noc.rows": rows, "noc.cores_per_router": per_tile,
            "core.synapse_bits": None, "core.max_in_axons": None, "core.max_out_axons": None}  # fmt: skip
    chip = nw.Chip.load("loihi1").replace(keys)
    spec = nw.NeuronSpec(threshold=threshold << 6, fixed=chip.fixed_point, bias=net["bias"] << 6)
    edge = nw.Sparse("n", "n", net["src"], net["dst"], net["w"].astype(np.int8), delay=1)
    network = nw.Network.from_arrays({"n": (spec, (len(net["bias"]),))}, [edge])
    core = np.arange(net["core"].max() + 1)
    tile = core // per_tile
    mapping = nw.Mapping.from_arrays({"n": net["core"]}, np.stack([tile // rows, tile % rows, core % per_tile], 1))
    return emit(network, schedule(network), mapping, chip, None, {})
