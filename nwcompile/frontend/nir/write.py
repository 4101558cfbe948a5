"""Write a float Network as a NIR file that every reader understands; from_nir reads an equal network back.

`nearest_neuron` and `nearest_operation` choose the nodes, `tree` joins them, `notes` stores what the nodes cannot
express, and `noted` reads the notes.
"""

import io
import warnings
from os import PathLike, fspath

import numpy as np

from nwcompile.errors import ModelError, NwWarning, shown
from nwcompile.frontend.nir.tree import build_nir_tree
from nwcompile.ir.artifact import write_bytes
from nwcompile.ir.network import Network

ERROR_CODE = "NW2105"


def to_nir(network: Network, path, dt: float = 1e-4) -> None:
    """Write a float network atomically as a NIR file at `path`; `nw.from_nir(path)` returns an equal network.

    `dt`: the time step of the time constants, in seconds as in most frameworks (`nearest_neuron` has the formulas).
    Other readers see the nearest standard nodes. What those cannot express (how spikes are compared, counted and reset,
    clamps, refractory steps, lists of synapses, ...) is in the metadata of the nodes, and one NwWarning names it.
    Raises ModelError if `network` is no float Network or too large to write, and ArtifactError if the file cannot be
    written.
    """
    if not isinstance(network, Network):
        raise ModelError(f"to_nir takes a Network, not {type(network).__name__}")
    if not isinstance(path, str | PathLike):
        raise ModelError(f"to_nir takes the path of the file to write, not {type(path).__name__}")
    number = not isinstance(dt, bool) and isinstance(dt, int | float | np.integer | np.floating)
    if not number or not np.isfinite(dt) or dt <= 0:
        raise ModelError(f"dt={shown(dt)} must be a number above 0, in seconds")
    if network.is_fixed:
        raise ModelError(
            "to_nir: NIR has no fixed-point neurons; write the float network, and keep a compiled one as a .nwc program"
        )
    network.verify()
    import nir

    tree = build_nir_tree(network, float(dt))
    graph = {"nodes": tree.nodes, "edges": tree.edges, "metadata": tree.metadata, "type_check": tree.is_typed}
    stream = io.BytesIO()
    nir.write(stream, nir.dict2NIRNode({"type": "NIRGraph", **graph}), compression_opts=1)
    write_bytes(path, stream.getvalue())
    lost = [f"{what} of {', '.join(where)}" for what, where in tree.lost.items()]
    if not tree.is_typed:
        lost.append("the shapes of kernels that are not square (nir.read needs type_check=False)")
    if lost:
        message = f"{fspath(path)}: other readers do not see {'; '.join(lost)}; from_nir reads it from the metadata"
        warnings.warn(message, NwWarning, stacklevel=2)
