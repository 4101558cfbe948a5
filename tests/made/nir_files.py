"""NIR files written by frameworks, in the reference folder: their names and import options."""

import warnings

import numpy as np

from nwcompile.errors import NwWarning
from nwcompile.frontend.nir import from_nir
from tests.conftest import stored

CASES = stored(
    "frameworks/*.nir",
    "norse_dense_lifbox",
    "rockpool_dense_lifneuron",
    "sinabs_conv_iaf_sumpool",
    "sinabs_dense_iaf_singlespike",
    "sinabs_dense_lif_norm",
    "snntorch_conv_avgpool",
    "snntorch_dense_leaky_default",
    "snntorch_dense_leaky_zero_nodelay",
    "snntorch_dense_synaptic_subtract",
    "snntorch_rec_rleaky_zero_nodelay",
    "spikingjelly_dense_cubalif",
    "spikingjelly_dense_if",
    "spikingjelly_dense_lif_decayinput",
)


def options(case: str, meta: dict) -> dict:
    """Options of from_nir that the author of the file would give."""
    dialect = case.split("_")[0]
    reset = str(meta.get("reset", case))
    neuron = {}
    if dialect in ("snntorch", "sinabs"):
        neuron["reset"] = "subtract" if "subtract" in reset else "zero" if "zero" in reset else "none"
        if dialect == "snntorch" and neuron["reset"] == "subtract":
            neuron["reset_timing"] = "next" if meta.get("reset_delay", "nodelay" not in case) else "both"
    if dialect == "sinabs":
        neuron |= {"spikes": {"SingleSpike": "binary", "MultiSpike": "multi"}[meta["spike_fn"]]}
        neuron |= {"v_min": meta.get("min_v_mem")}
        if "norm_input" in meta:
            neuron["norm_input"] = meta["norm_input"]
    return {"dialect": dialect, "dt": meta.get("dt", meta.get("dt_convention")), "neuron": neuron}


def imported(path, **told):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NwWarning)
        return from_nir(path, **told)


def first_difference(found: np.ndarray, expected: np.ndarray) -> str:
    where = np.argwhere(found != expected)
    if not len(where):
        return ""
    at = tuple(int(n) for n in min(where, key=lambda w: w[1]))
    return (
        f"{len(where)} of {found.size} differ, the first at [sample, step, ...] {at}: {found[at]}, not {expected[at]}"
    )
