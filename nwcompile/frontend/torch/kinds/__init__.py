"""Recognize neuron modules by the module that defines their class; no framework is imported.

Built-in neurons are read into a NeuronSpec. For all others, one step is traced into a NeuronProgram.

framework                                            file
nwcompile.nn                                         nn_layers.py
snnTorch                                             snntorch.py
SpikingJelly                                         spikingjelly.py
sinabs                                               sinabs.py
norse                                                norse.py
"""

import torch

from nwcompile.frontend.torch.kind import Kind
from nwcompile.frontend.torch.kinds import nn_layers, norse, sinabs, snntorch, spikingjelly

ERROR_CODE = "NW2303"
FRAMEWORKS = (nn_layers, snntorch, spikingjelly, sinabs, norse)
KINDS = {(kind.package, kind.name): kind for framework in FRAMEWORKS for kind in framework.KINDS}
REFUSED = {
    (framework.__name__.rpartition(".")[2], name): reason
    for framework in (snntorch, spikingjelly, sinabs, norse)
    for name, reason in framework.REFUSED.items()
}
STATEFUL = {("spikingjelly", "MemoryModule"): spikingjelly.clear}  # neurons and modules that contain them
RELUS = (("torch", "ReLU"), ("sinabs", "NeuromorphicReLU"))
ENCODERS = ("norse.torch.module.encode", "spikingjelly.activation_based.encoding", "spikingjelly.clock_driven.encoding")
OLD = ("spikingjelly.clock_driven.neuron", "spikingjelly.activation_based.neuron")  # each one file before 2.0
OLDEST = "spikingjelly.clock_driven."
NEURON_MODULES = (
    *ENCODERS,
    "snntorch._neurons",
    "spikingjelly.activation_based.neuron.",
    "sinabs.layers.stateful_layer",
    "norse.torch.module.snn",
    "norse.torch.module.leaky_integrator",
    "norse.torch.module.lif_correlation",
    "norse.torch.module.coba_lif",
)


def _class_names(cls: type) -> tuple[str, str]:
    """Return the package and the name of a class."""
    return cls.__module__.partition(".")[0], cls.__name__


def find_kind(module: torch.nn.Module) -> Kind | None:
    """Return the Kind of `module`; None if it is no known neuron module, or is imported by its operators."""
    for cls in type(module).__mro__:
        kind = KINDS.get(_class_names(cls))
        if kind is not None and not _has_other_step(cls):
            is_unchanged = (getattr(type(module), name, None) is getattr(cls, name, None) for name in kind.decided_by)
            if all(is_unchanged):
                return kind
    return None


def clear(module: torch.nn.Module) -> None:
    """Clear the state of a framework's module, if it has one."""
    kind = find_kind(module)
    if kind is not None:
        kind.clear(module)
        return
    for cls in type(module).__mro__:
        STATEFUL.get(_class_names(cls), lambda _: None)(module)
        if cls.__module__.startswith(OLDEST) and "reset" in vars(cls):
            vars(cls)["reset"](module)


def _has_other_step(cls: type) -> bool:
    """Return whether a class is a neuron of SpikingJelly before 2.0 with other methods than in 2.0.

    IF, LIF and PLIF of activation_based are the same. The others are imported like neurons written by hand.
    """
    return cls.__module__ == OLD[0] or (cls.__module__ == OLD[1] and cls.__name__ not in spikingjelly.SPECS)


def fit_batch(module: torch.nn.Module, n_samples: int) -> None:
    """Set the number of samples in a module that was built for a fixed number of samples or steps."""
    sinabs.fit_batch(module, n_samples)


def is_relu(module: torch.nn.Module) -> bool:
    """Return whether spiking neurons may replace the module: torch's ReLU, or the rounding ReLU of sinabs."""
    return any(_class_names(cls) in RELUS for cls in type(module).__mro__)


def is_foreign_neuron(module: torch.nn.Module) -> bool:
    """Return whether `module` is a framework's neuron, known or not, or encodes samples as spikes."""
    return any(cls.__module__.startswith(NEURON_MODULES) for cls in type(module).__mro__)


def is_rewritten(module: torch.nn.Module) -> bool:
    """Return whether the module's class is your own: a framework's neuron with methods that compute something else."""
    is_own = not type(module).__module__.startswith(NEURON_MODULES)
    return is_own and is_foreign_neuron(module) and find_kind(module) is None


def explain_refusal(module: torch.nn.Module) -> str | None:
    """Return why a framework's neuron can never be imported, or advice about an encoder; None for other modules."""
    if any(cls.__module__.startswith(ENCODERS) for cls in type(module).__mro__):
        return (
            f"{type(module).__name__} makes spikes of the sample before the network, which cannot be followed: leave "
            "it out of the module and give its spikes to from_torch, compile and simulate, or feed the sample itself "
            "to the first layer in every step"
        )
    for cls in type(module).__mro__:
        reason = REFUSED.get(_class_names(cls))
        if reason is not None:
            return f"{type(module).__name__} cannot be a neuron program: {reason}"
    return None


def explain_unsupported(module: torch.nn.Module) -> str:
    """Return why a foreign neuron is not supported, and the supported ones of its framework."""
    reason = explain_refusal(module)
    if reason is not None:
        return reason
    known = next(cls for cls in type(module).__mro__ if cls.__module__.startswith(NEURON_MODULES))
    if is_rewritten(module):
        return (
            f"{type(module).__name__} is a {known.__name__} with methods of its own, and no step of it could be "
            "followed; it must compute the same in every step, from its own states and its input"
        )
    package = known.__module__.partition(".")[0]
    names = [name for framework, name in KINDS if framework == package]
    return f"{type(module).__name__} is not supported; supported neurons of {package}: {', '.join(names) or 'none'}"
