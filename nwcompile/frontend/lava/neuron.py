"""Read the neurons of a lava-dl `.net` layer: CUBA and LOIHI compartments, the default of netx, and readouts."""

from collections.abc import Mapping

import numpy as np

from nwcompile.frontend.lava.entry import DENSE, Entry
from nwcompile.ir.neuron import FixedPoint, NeuronSpec
from nwcompile.ir.neuron_programs.program import NeuronProgram

ERROR_CODE = "NW2202"
RESONATORS = ("RF_PHASE", "RF_IZHIKEVICH", "ADRF_PHASE", "ADRF_IZHIKEVICH")
TYPES = ("CUBA", "LOIHI", "SDNN", "ALIF", *RESONATORS)
THRESHOLD_UNIT = BIAS_UNIT = 64
FULL_DECAY = 1 << 12
UNREACHED_THRESHOLD = 1 << 23  # The membrane saturates below this, so a larger threshold is never reached.
DEFAULT_TYPE = "CUBA"
DEFAULT = {
    "iDecay": 0,
    "vDecay": FULL_DECAY,
    "vThMant": UNREACHED_THRESHOLD // THRESHOLD_UNIT,
}  # netx hdf5.py, create_dense


def neuron_type(entry: Entry) -> str:
    """Return one of TYPES; dense layers without neurons have CUBA ones. Raise ModelError for other types."""
    if "neuron" not in entry.values:
        if entry.kind in DENSE:
            return DEFAULT_TYPE
        raise entry.fail("it has no neuron; export the model with a CUBA or LOIHI neuron in every layer")
    kind = entry.read_text("type", "neuron")
    if kind not in TYPES:
        raise entry.fail(f"neuron type {kind!r} is not supported; supported: {', '.join(TYPES)}")
    return kind


def neuron_spec(entry: Entry, shape: tuple[int, ...], override: Mapping) -> NeuronSpec:
    """Return the layer's NeuronSpec; bias, decays and thresholds are one number, one per channel or one per neuron.

    Both types fire at v > threshold: LOIHI neurons in SLAYER as on the chip, and CUBA neurons since lava-dl v0.3
    (301ac5d, #78, July 2022: SLAYER adds an epsilon to the threshold, `threshold_eps` in `slayer/neuron/cuba.py`,
    because the chip fires at v > threshold). The file of an older CUBA network needs `strict=False`, which it does not
    record.

    A threshold that a 24-bit v cannot reach makes the layer a readout. The bias adds to v, except in an `input` entry
    whose current does not decay at once: SLAYER adds weight*x + bias to u.
    """
    default = {} if "neuron" in entry.values else DEFAULT

    def read_field(key: str, missing=None):
        return entry.read_per_neuron(key, shape, default.get(key, missing), "neuron")

    if entry.read_integer("gradedSpike", False, "neuron") and "spikes" not in override:
        raise entry.fail(
            "gradedSpike is supported of CUBA neurons, not of these; train and export it with "
            f"binary spikes, or give neuron={{{entry.name!r}: {{'spikes': 'binary'}}}} for what lava's netx runs"
        )
    if entry.read_integer("weight_exp", 0, "neuron"):
        raise entry.fail("neuron/weight_exp is not 0: a batch norm that scales; train it with a norm of the mean only")
    threshold = THRESHOLD_UNIT * read_field("vThMant")
    refractory = read_field("refDelay", 1)
    decay_u = read_field("iDecay")
    bias = entry.read_per_neuron("bias", shape, 0)
    into_u = entry.kind == "input" and bool(np.any(decay_u != FULL_DECAY))
    spec = NeuronSpec(
        threshold=threshold,
        strict=True,
        fires=bool(np.any(threshold < UNREACHED_THRESHOLD)),
        fixed=FixedPoint(),
        decay_u=decay_u,
        decay_v=read_field("vDecay"),
        refractory=np.where(refractory == 1, 0, refractory),  # 1 freezes no step
        bias=0 if into_u else BIAS_UNIT * bias,
        bias_u=bias if into_u else 0,
    )
    return spec.replace(**override)


def average_spec() -> NeuronSpec:
    """Return a readout whose v is 64 times the number of spikes it receives in the step."""
    return NeuronSpec(fixed=FixedPoint(), threshold=UNREACHED_THRESHOLD, fires=False, reset="none", decay_v=FULL_DECAY)


def has_bias(spec: NeuronSpec | NeuronProgram) -> bool:
    """Return whether the neurons change without input."""
    if isinstance(spec, NeuronProgram):
        return bool(np.any(spec.parameters.get("bias", 0)))
    return bool(np.any(spec.bias) or np.any(spec.bias_u))
