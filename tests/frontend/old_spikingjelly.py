"""Import networks of the SpikingJelly on the path, of a version before 2.0, and compare every spike.

`python -m tests.frontend.old_spikingjelly clock_driven` prints the spikes that differ.
"""

import importlib
import json
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import partial

import torch

import nwcompile as nw
from tests.research_nets import REFERENCE, compare_layers, import_net

NODES = (
    ("IFNode", {"v_reset": None}),
    ("LIFNode", {"tau": 3.0}),
    ("LIFNode", {"tau": 3.0, "v_reset": -0.25}),
    ("LIFNode", {"tau": 3.0, "decay_input": False}),
    ("ParametricLIFNode", {"init_tau": 2.3, "v_reset": None}),
    ("QIFNode", {}),
    ("EIFNode", {}),
    ("IzhikevichNode", {}),
    ("KLIFNode", {}),
)
NETS = {"clock_driven": ("clock_driven_sew", "MultiStepLIFNode"), "activation_based": ("dqn_membrane", "LIFNode")}


def find_nodes(neuron) -> Iterator[tuple[str, bool, Callable[[], torch.nn.Module]]]:
    """Yield a name, whether it takes all steps, and the constructor, of every node that this version has."""
    for name, options in NODES:
        for cls, mode in ((name, {}), (f"MultiStep{name}", {}), (name, {"step_mode": "m"})):
            try:
                getattr(neuron, cls)(**options, **mode)
            except (AttributeError, TypeError):
                continue
            yield f"{cls} {options | mode}", cls != name or bool(mode), partial(getattr(neuron, cls), **options, **mode)


def make_nets(package: str) -> Iterator[tuple[str, bool, torch.nn.Module, tuple[int, ...]]]:
    """Yield a name, whether it takes all steps, the network, and the shape of its input."""
    neuron, layer = (importlib.import_module(f"spikingjelly.{package}.{name}") for name in ("neuron", "layer"))
    linear, conv = torch.nn.Linear, torch.nn.Conv2d
    for label, takes_all, make in find_nodes(neuron):
        yield label, takes_all, torch.nn.Sequential(linear(20, 30), make(), linear(30, 10), make()), (20,)

    class Own(neuron.LIFNode):
        def neuronal_charge(self, x):
            self.v = 0.75 * self.v + x

    class Twice(neuron.LIFNode):
        def forward(self, x):
            return super().forward(2 * x)

    for own in (Own(), Twice()):
        yield type(own).__name__, False, torch.nn.Sequential(linear(20, 10), own), (20,)
    yield (
        "SynapseFilter",
        False,
        torch.nn.Sequential(layer.SynapseFilter(tau=4.0), linear(20, 9), neuron.IFNode()),
        (20,),
    )
    inside = torch.nn.Sequential(conv(2, 4, 3, padding=1), torch.nn.BatchNorm2d(4), neuron.IFNode())
    flat = torch.nn.Sequential(torch.nn.Flatten(), linear(100, 9), neuron.IFNode())
    yield "convolutions", False, torch.nn.Sequential(inside, *flat), (2, 5, 5)
    if hasattr(layer, "LinearRecurrentContainer"):
        for name, given in (("LinearRecurrentContainer", (10, 10)), ("ElementWiseRecurrentContainer", (torch.add,))):
            cell = getattr(layer, name)(neuron.IFNode(), *given)
            yield name, False, torch.nn.Sequential(linear(20, 10), cell, linear(10, 9), neuron.IFNode()), (20,)


def compare_net(functional, net: torch.nn.Module, takes_all: bool, shape: tuple[int, ...]) -> list[int] | str:
    """Return the different spikes, the spikes and the layers of a network on three inputs, or the refusal."""
    torch.manual_seed(1)
    for part in net.modules():
        if hasattr(part, "weight") and part.weight.ndim > 1:
            torch.nn.init.normal_(part.weight, 0.1, 4 / part.weight[0].numel() ** 0.5)
    inputs = [(torch.rand(20, 2, *shape) < share).float() for share in (0.2, 0.5)] + [torch.randn(20, 2, *shape)]
    expected = []
    with torch.no_grad():
        for x in inputs:
            functional.reset_net(net.eval())
            expected.append(net(x) if takes_all else torch.stack([net(step) for step in x]))
    try:
        network = nw.from_torch(net, inputs[0][:8], layout="TB")  # the state of the last run is left in the module
    except nw.NwError as e:
        return str(e)
    got = [torch.from_numpy(nw.simulate(network, x.numpy()).output).transpose(0, 1) for x in inputs]
    n_different = sum(int((a != b).sum()) for a, b in zip(got, expected, strict=True))
    return [n_different, int(sum(a.sum() for a in expected)), len(network.layers)]


def main(package: str) -> None:
    """Print the counts of every network as JSON."""
    warnings.simplefilter("ignore")
    functional = importlib.import_module(f"spikingjelly.{package}.functional")
    counts = {}
    for name, takes_all, net, shape in make_nets(package):
        counts[name] = compare_net(functional, net, takes_all, shape)
    net, needs = NETS[package]  # a network of the reference, whose example has spikes
    if REFERENCE.is_dir() and hasattr(importlib.import_module(f"spikingjelly.{package}.neuron"), needs):
        network = import_net(net)
        counts[net] = [compare_layers(net, network), 1, len(network.layers)]
    print(json.dumps(counts))


if __name__ == "__main__":
    main(sys.argv[1])
