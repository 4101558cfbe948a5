"""Check `neuron={...}`, the user's values for neuron fields that a NIR file does not store."""

from collections.abc import Mapping
from dataclasses import fields

import numpy as np

from nwcompile.errors import ModelError, shown, unknown_choice
from nwcompile.ir.neuron import CURRENT_ORDERS, MEMBRANES, RESET_TIMINGS, RESETS, SPIKES, NeuronSpec, to_plain

OVERRIDES = (
    *(f.name for f in fields(NeuronSpec) if f.name not in ("fixed", "decay_u", "decay_v", "bias_u")),
    "norm_input",
)
TRUE_OR_FALSE = ("strict", "fires", "norm_input")
CHOICES = {
    "reset": RESETS,
    "reset_timing": RESET_TIMINGS,
    "spikes": SPIKES,
    "membrane": MEMBRANES,
    "current_order": CURRENT_ORDERS,
}
SPIKING = ("IF", "LIF", "CubaLIF")


def resolve_overrides(neuron: Mapping, kinds: Mapping[str, str], dialect: str | None) -> dict[str, dict]:
    """Return the fields that `neuron=` sets for each neuron node; fields of a named node override common ones.

    `kinds`: the NIR type of every neuron node by name. Common fields apply to spiking nodes. Raises ModelError for
    unknown nodes, unknown fields, and values of the wrong type.
    """
    common = {key: value for key, value in neuron.items() if not isinstance(value, Mapping)}
    for name in neuron:
        if name not in common and name not in kinds:
            raise ModelError(unknown_choice("neuron node", name, kinds))
    for values in (common, *(value for value in neuron.values() if isinstance(value, Mapping))):
        for key, value in values.items():
            _check_field(key, value)
        if "norm_input" in values and dialect != "sinabs":
            raise ModelError(f"neuron field norm_input belongs to dialect 'sinabs', not {dialect!r}; leave it out")
    settings = {name: {**(common if kind in SPIKING else {}), **neuron.get(name, {})} for name, kind in kinds.items()}
    return {name: {key: to_plain(value) for key, value in fields.items()} for name, fields in settings.items()}


def _check_field(key, value) -> None:
    """Raise ModelError unless `key` can be set and `value` has its type; ranges are checked later."""
    if key not in OVERRIDES:
        raise ModelError(unknown_choice("neuron field", key, OVERRIDES))
    if key in TRUE_OR_FALSE:
        if not isinstance(value, bool | np.bool_):
            raise ModelError(f"neuron field {key}={shown(value)} must be True or False")
    elif key in CHOICES:
        if not isinstance(value, str) or value not in CHOICES[key]:
            raise ModelError(f"neuron field {key}: {unknown_choice(key, value, CHOICES[key])}")
    elif value is None and key in NeuronSpec.MAY_BE_NONE:
        return
    else:
        try:
            np.asarray(to_plain("" if value is None else value), np.float64)
        except (TypeError, ValueError):
            raise ModelError(f"neuron field {key}={shown(value)} must be a number, or one for each neuron") from None
