"""Networks of snnTorch's tutorials and of NeuroBench, in their form: neuron arguments, loops over time, layouts."""

from pathlib import Path

import torch
from torch import nn

from tests.frontend.frameworks import framework
from tests.zoo import inputs
from tests.zoo.net import Net, scale_weights

snn = framework("snntorch")
surrogate = framework("snntorch.surrogate")
utils = framework("snntorch.utils")

SPEECH_COMMANDS = "models/neurobench/gsc__s2s_gsc_snntorch"


class Tutorial5(nn.Module):
    """Tutorial 5: 784-1000-10, beta 0.95; one static image `[B, 784]`, the loop over time inside."""

    def __init__(self, n_steps: int, n_hidden: int):
        super().__init__()
        self.n_steps = n_steps
        self.fc1 = nn.Linear(784, n_hidden)
        self.lif1 = snn.Leaky(beta=0.95)
        self.fc2 = nn.Linear(n_hidden, 10)
        self.lif2 = snn.Leaky(beta=0.95)

    def forward(self, x):
        mem1 = self.lif1.init_leaky()
        mem2 = self.lif2.init_leaky()
        spikes, membranes = [], []
        for _ in range(self.n_steps):
            spk1, mem1 = self.lif1(self.fc1(x), mem1)
            spk2, mem2 = self.lif2(self.fc2(spk1), mem2)
            spikes.append(spk2)
            membranes.append(mem2)
        return torch.stack(spikes, dim=0), torch.stack(membranes, dim=0)


class Regression(nn.Module):
    """The recurrent regression: 1-100-1, real numbers `[T, B, 1]` in, the last membrane out; its reset is off."""

    def __init__(self, n_hidden: int = 100):
        super().__init__()
        self.fc_in = nn.Linear(1, n_hidden)
        self.rlif = snn.RLeaky(beta=0.9, linear_features=n_hidden, spike_grad=surrogate.fast_sigmoid())
        self.fc_out = nn.Linear(n_hidden, 1)
        self.li_out = snn.Leaky(beta=0.8, threshold=1.0, learn_beta=True, reset_mechanism="none")

    def forward(self, x):
        spk, mem = self.rlif.init_rleaky()
        mem_out = self.li_out.init_leaky()
        outputs = []
        for step in range(x.shape[0]):
            spk, mem = self.rlif(self.fc_in(x[step]), spk, mem)
            _, mem_out = self.li_out(self.fc_out(spk), mem_out)
            outputs.append(mem_out)
        return torch.stack(outputs)


def tutorial_5(n_steps: int = 25, n_hidden: int = 1000, n_samples: int = 12) -> Net:
    torch.manual_seed(5)
    module = Tutorial5(n_steps, n_hidden)
    net = Net(module, inputs.digits(n_samples).view(n_samples, -1), "B", module)
    return scale_weights(net, [module.fc1, module.fc2], (2.01, 2.36))


def tutorial_6_layers() -> nn.Sequential:
    """12C5-MP2-64C5-MP2-1024FC10, beta 0.5: the pools are of currents, before the neurons."""
    neuron = {"beta": 0.5, "spike_grad": surrogate.fast_sigmoid(slope=25), "init_hidden": True}
    return nn.Sequential(
        nn.Conv2d(1, 12, 5),
        nn.MaxPool2d(2),
        snn.Leaky(**neuron),
        nn.Conv2d(12, 64, 5),
        nn.MaxPool2d(2),
        snn.Leaky(**neuron),
        nn.Flatten(),
        nn.Linear(64 * 4 * 4, 10),
        snn.Leaky(**neuron, output=True),
    )


def tutorial_6(n_steps: int = 8, n_samples: int = 8) -> Net:
    """Tutorial 6: the loop over time is outside, one step a call, and shows one image in every step."""
    torch.manual_seed(6)
    module = tutorial_6_layers()
    image = inputs.digits(n_samples)
    x = image.unsqueeze(0).expand(n_steps, *image.shape)
    net = Net(module, x, "TB", lambda x: forward_pass(module, x))
    return scale_weights(net, [module[0], module[3], module[7]], (2.12, 1.9, 2.85))


def tutorial_7(n_steps: int = 12, n_samples: int = 10) -> Net:
    """Tutorial 7: 12C5-MP2-32C5-MP2-800FC10 on N-MNIST `[T, B, 2, 34, 34]`, beta 0.5; pools of spikes."""
    torch.manual_seed(7)
    neuron = {"beta": 0.5, "spike_grad": surrogate.atan(), "init_hidden": True}
    module = nn.Sequential(
        nn.Conv2d(2, 12, 5),
        snn.Leaky(**neuron),
        nn.MaxPool2d(2),
        nn.Conv2d(12, 32, 5),
        snn.Leaky(**neuron),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 5 * 5, 10),
        snn.Leaky(**neuron, output=True),
    )
    x = inputs.moving_digits(n_samples, n_steps, 34, 1)
    net = Net(module, x, "TB", lambda x: forward_pass(module, x))
    return scale_weights(net, [module[0], module[3], module[7]], (6.78, 2.56, 4.52))


def regression(n_steps: int = 20, n_samples: int = 22) -> Net:
    torch.manual_seed(8)
    module = Regression()
    net = Net(module, inputs.ramps(n_samples, n_steps), "TB", module)
    return scale_weights(net, [module.fc_in], (0.66,))


def speech_commands(reference: Path, n_steps: int = 30, n_samples: int = 22) -> Net:
    """NeuroBench's baseline 20-256-256-256-35, beta 0.9, with its trained weights; signed events `[B, T, 20]`."""
    neuron = {"beta": 0.9, "spike_grad": surrogate.fast_sigmoid(), "init_hidden": True}
    module = nn.Sequential(
        nn.Flatten(),
        nn.Linear(20, 256),
        snn.Leaky(**neuron),
        nn.Linear(256, 256),
        snn.Leaky(**neuron),
        nn.Linear(256, 256),
        snn.Leaky(**neuron),
        nn.Linear(256, 35),
        snn.Leaky(**neuron, output=True),
    )
    module.load_state_dict(torch.load(reference / SPEECH_COMMANDS, map_location="cpu", weights_only=True))
    x = inputs.signed_events(n_samples, n_steps, 20)
    return Net(module, x, "BT", lambda x: forward_pass(module, x.transpose(0, 1)))


def forward_pass(module: nn.Module, data: torch.Tensor) -> torch.Tensor:
    """The tutorials' own loop over `[T, B, ...]`."""
    utils.reset(module)
    return torch.stack([module(step)[0] for step in data])
