"""Read the neurons of sinabs 3.1.3, squeezed and recurrent ones too, as `sinabs/layers/functional/*.py` computes them.

IAF, LIF and ExpLeak are built-in neurons:

    i = alpha_syn*(i + x) with tau_syn, else x;  v = alpha_mem*v + (1 - alpha_mem)*i with norm_input, else + i
    SingleSpike: n = v >= threshold;  MultiSpike: n = trunc(v/threshold), at least 0;  MaxSpike: with an upper limit
    MembraneSubtract: v - n*threshold;  MembraneReset: 0 where it fired;  then max(v - min_v_mem, 0) + min_v_mem

with alpha = exp(-1/tau), tau in steps. The ...Recurrent kinds add recurrent(n of the last step) to x. IAF is LIF with
alpha_mem = 1. Without spike_fn, as in ExpLeak, the output is v.

ALIF, whose threshold rises with its spikes, and IAF and LIF with other spike or reset functions are traced through
their own step functions, `alif_forward_single` and `lif_forward_single`.
"""

import sys
from functools import partial
from typing import Any

import numpy as np
import torch

from nwcompile.frontend.torch.kind import Kind, ReadNeurons, clear_buffers, layer_error, read_numbers, trace_step
from nwcompile.frontend.torch.operations import IDENTITIES, SHAPERS, UnfollowableError, operation_from_module
from nwcompile.ir.connection import Connection
from nwcompile.ir.neuron import NeuronSpec

REFUSED: dict[str, str] = {}
STATES = ("v_mem", "i_syn", "b", "spike_threshold")


def fit_batch(module: Any, n_samples: int) -> None:
    """Set the number of samples in a part that splits one axis into samples and steps.

    A squeezed layer or UnflattenTime is built for a fixed number of samples or steps; the network takes any number.
    """
    if type(module).__module__.startswith("sinabs.") and hasattr(module, "batch_size"):
        module.batch_size = n_samples
        if hasattr(module, "num_timesteps"):
            module.num_timesteps = -1


def _read_spec(module, layer, shape) -> ReadNeurons:
    beta = module.alpha_mem_calculated
    fields: dict[str, Any] = {"beta": read_numbers(module, layer, "tau_mem", beta, shape)}
    if module.norm_input:
        fields["gain"] = read_numbers(module, layer, "tau_mem", 1 - beta, shape)
    if module.alpha_syn_calculated is not None:
        alpha = read_numbers(module, layer, "tau_syn", module.alpha_syn_calculated, shape)
        fields |= {"alpha": alpha, "current_order": "add_then_decay"}
    if module.spike_fn is None:
        if module.min_v_mem is not None:
            raise layer_error(module, layer, "min_v_mem clamps the state, but not the membrane that it gives; use None")
        return ReadNeurons(NeuronSpec(fires=False, reset="none", **fields), _build_recurrence(module, layer, shape))
    if module.min_v_mem is not None:
        fields |= {"v_min": read_numbers(module, layer, "min_v_mem", module.min_v_mem, shape), "clamp": "shift"}
    fields["threshold"] = read_numbers(module, layer, "spike_threshold", module.spike_threshold, shape)
    reset = _built_in_reset(module, layer, shape, fields["threshold"])
    if reset is None or not _fires_as_built_in(module):
        return _read_leaky(module, layer, shape)
    fields["reset"] = reset
    spikes = "multi" if _output_kind(module) == "counts" else "binary"
    return ReadNeurons(NeuronSpec(strict=False, spikes=spikes, **fields), _build_recurrence(module, layer, shape))


def _read_adaptive(module, layer, shape) -> ReadNeurons:
    functional = vars(sys.modules[_base_class(module, "ALIF").__module__])["functional"]
    more = {
        "alpha_adapt": module.alpha_adapt_calculated,
        "adapt_scale": module.adapt_scale,
        "b0": module.b0,
    }
    return _read_step(module, layer, shape, functional.alif_forward, ("b",), more)


def _read_leaky(module, layer, shape) -> ReadNeurons:
    """Trace IAF or LIF with a spike or reset function that no built-in neuron has."""
    functional = vars(sys.modules[_base_class(module, "LIF").__module__])["functional"]
    return _read_step(module, layer, shape, functional.lif_forward, (), {"spike_threshold": module.spike_threshold})


def _read_step(module, layer, shape, forward, states: tuple[str, ...], arguments: dict) -> ReadNeurons:
    """Trace a layer's step: `forward` takes all steps; its Python module also has the one-step function."""
    one_step = vars(sys.modules[forward.__module__])[f"{forward.__name__}_single"]
    names = ("v_mem", *states) if module.alpha_syn_calculated is None else ("v_mem", "i_syn", *states)
    arguments = {
        **arguments,
        "alpha_mem": module.alpha_mem_calculated,
        "alpha_syn": module.alpha_syn_calculated,
        "spike_fn": module.spike_fn,
        "reset_fn": module.reset_fn,
        "surrogate_grad_fn": module.surrogate_grad_fn,
        "min_v_mem": module.min_v_mem,
        "norm_input": module.norm_input,
    }

    def step(states, x):
        spikes, becomes = one_step(input_data=x, state=dict(states), **arguments)
        return {name: becomes[name] for name in names}, spikes

    program = trace_step(module, layer, shape, step, dict.fromkeys(names, 0))
    return ReadNeurons(program, _build_recurrence(module, layer, shape))


def _base_class(module, name: str) -> type:
    return next(cls for cls in type(module).__mro__ if cls.__name__ == name)


def _spike_fn(module) -> str:
    """Return the name of the module's spike function, with its package if that is not sinabs."""
    spike_fn = module.spike_fn
    cls = spike_fn if isinstance(spike_fn, type) else type(spike_fn)
    return cls.__name__ if cls.__module__.startswith("sinabs.") else f"{cls.__module__}.{cls.__name__}"


def _output_kind(module) -> str:
    if module.spike_fn is None:
        return "membrane"
    name = _spike_fn(module)
    is_single = name == "SingleSpike" or (name == "MaxSpike" and module.spike_fn.max_num_spikes_per_bin == 1)
    return "spikes" if is_single else "counts"


def _fires_as_built_in(module) -> bool:
    limit = module.spike_fn.max_num_spikes_per_bin if _spike_fn(module) == "MaxSpike" else None
    return _spike_fn(module) in ("SingleSpike", "MultiSpike", "MaxSpike") and limit in (None, 1)


def _built_in_reset(module, layer, shape, threshold) -> str | None:
    """Return the reset of an equal built-in neuron, or None."""
    reset_fn = module.reset_fn
    name = type(reset_fn).__name__ if type(reset_fn).__module__.startswith("sinabs.") else ""
    if name == "MembraneReset" and not reset_fn.reset_value:  # a value is added to every membrane, even without a spike
        return "zero"
    value = reset_fn.subtract_value if name == "MembraneSubtract" else None
    is_threshold = value is None or not np.any(read_numbers(module, layer, "subtract_value", value, shape) != threshold)
    return "subtract" if name == "MembraneSubtract" and is_threshold else None


def _build_recurrence(module, layer, shape) -> tuple[Connection, ...]:
    if not hasattr(module, "rec_connect"):
        return ()
    inner, flat = module.rec_connect, shape
    if isinstance(inner, torch.nn.Sequential):
        parts = [m for m in inner if not isinstance(m, (*IDENTITIES, *SHAPERS))]
        if len(parts) != 1:
            raise layer_error(
                module, layer, f"rec_connect of {len(parts)} layers with weights is not supported; use one"
            )
        (inner,) = parts
    if isinstance(inner, torch.nn.Linear):
        flat = (inner.in_features,)
    try:
        done = operation_from_module(inner, f"{layer}.rec_connect", flat)
    except UnfollowableError as e:
        raise layer_error(module, layer, f"rec_connect is a {type(inner).__name__}, {e}") from None
    if done.has_bias:
        text = "rec_connect has a bias, which sinabs adds from step 1 on, but a chip from step 0 on; use bias=False"
        raise layer_error(module, layer, text)
    return done.build_connections(layer, layer, 1, flat)


LEADS = {"": lambda _: ("BT",), "Squeeze": lambda _: ("B*T", "B"), "Recurrent": lambda _: ("BT",)}
NAMES = {"IAF": _read_spec, "LIF": _read_spec, "ExpLeak": _read_spec, "ALIF": _read_adaptive}
KINDS = tuple(
    Kind("sinabs", f"{name}{form}", read, leads, clear=partial(clear_buffers, names=STATES), gives=_output_kind)
    for name, read in NAMES.items()
    for form, leads in LEADS.items()
    if f"{name}{form}" != "ExpLeakRecurrent"
)
