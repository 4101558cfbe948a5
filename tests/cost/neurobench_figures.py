"""Makes neurobench.json: what the package neurobench 2.3.0 says of the networks in neurobench_nets.py.

Not a part of the tests: neurobench asks for torchaudio, tonic and more, which its metrics do not use. Once:
    pip install --no-deps --target SITE neurobench==2.3.0 tqdm
    PYTHONPATH=SITE:. python tests/cost/neurobench_figures.py
"""

import json
from importlib.metadata import version
from pathlib import Path

import snntorch
import torch
from neurobench.benchmarks import Benchmark
from neurobench.metrics.static import ConnectionSparsity, Footprint, ParameterCount
from neurobench.metrics.workload import ActivationSparsity, MembraneUpdates, SynapticOperations
from neurobench.models import SNNTorchModel, TorchModel

from nwcompile import nn
from tests.cost.neurobench_nets import CASES, Case

METRICS = [[Footprint, ConnectionSparsity, ParameterCount], [ActivationSparsity, SynapticOperations, MembraneUpdates]]


class Spikes(torch.nn.Module):
    """A layer of ours whose output is the spikes alone: the package counts tensors, not pairs."""

    def __init__(self, layer: torch.nn.Module):
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)[0]


def model_of(net: torch.nn.Module) -> TorchModel | SNNTorchModel:
    if any(isinstance(layer, snntorch.SpikingNeuron) for layer in net):
        return SNNTorchModel(net)
    model = TorchModel(torch.nn.Sequential(*(Spikes(m) if isinstance(m, nn.LIFLayer) else m for m in net)))
    model.add_activation_module(Spikes)
    return model


def figures(case: Case) -> dict:
    """All samples in one batch, and the bytes of the buffers that the footprint holds besides parameters."""
    net = case.make()
    n_buffer_bytes = sum(b.numel() * b.element_size() for b in net.buffers())
    x = torch.from_numpy(case.x)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, torch.zeros(len(x))), batch_size=len(x))
    with torch.no_grad():
        found = Benchmark(model_of(net), loader, [], [], METRICS).run(quiet=True)
    return {**found, "buffer_bytes": n_buffer_bytes}


if __name__ == "__main__":
    torch.set_num_threads(1)
    made = {"neurobench": version("neurobench"), "snntorch": version("snntorch"), "torch": torch.__version__}
    doc = {"made_with": made, "figures": {name: figures(case) for name, case in CASES.items()}}
    path = Path(__file__).with_name("neurobench.json")
    path.write_text(json.dumps(doc, indent=1) + "\n")
    print(path.read_text())
