"""norse's first network and the network of sinabs' first page for its chips."""

import torch
from torch import nn

from tests.frontend.frameworks import framework
from tests.zoo import inputs
from tests.zoo.net import Net, scale_weights

norse = framework("norse.torch")
sinabs = framework("sinabs")
sinabs_layers = framework("sinabs.layers")


def norse_readme(n_steps: int = 16, n_samples: int = 12) -> Net:
    """20C5-MP2-50C5-MP2-800FC10 with LIF cells and an LI readout, one step a call; spikes of Poisson rates."""
    torch.manual_seed(21)
    module = norse.SequentialState(
        nn.Conv2d(1, 20, 5, 1),
        norse.LIFCell(),
        nn.MaxPool2d(2, 2),
        nn.Conv2d(20, 50, 5, 1),
        norse.LIFCell(),
        nn.MaxPool2d(2, 2),
        nn.Flatten(),
        nn.Linear(800, 10),
        norse.LICell(),
    )

    def run(x):
        state, outputs = None, []
        for x_t in x.unbind(0):
            output, state = module(x_t, state)
            outputs.append(output)
        return torch.stack(outputs)

    x = inputs.poisson(inputs.digits(n_samples), n_steps, 0.5)
    return scale_weights(Net(module, x, "TB", run), [module[0], module[3]], (6.78, 4.64))


def sinabs_dynapcnn(n_steps: int = 12, n_samples: int = 12) -> Net:
    """8C3-AP2-16C3-AP2-16C3(stride 2)-FC10 of IAF neurons on N-MNIST, steps merged with samples as for the chip."""
    torch.manual_seed(22)
    neuron = {"batch_size": n_samples, "min_v_mem": -1.0, "spike_threshold": 1.0}
    module = nn.Sequential(
        nn.Conv2d(2, 8, kernel_size=(3, 3), padding=(1, 1), bias=False),
        sinabs_layers.IAFSqueeze(**neuron),
        nn.AvgPool2d(2, 2),
        nn.Conv2d(8, 16, kernel_size=(3, 3), padding=(1, 1), bias=False),
        sinabs_layers.IAFSqueeze(**neuron),
        nn.AvgPool2d(2, 2),
        nn.Conv2d(16, 16, kernel_size=(3, 3), padding=(1, 1), stride=(2, 2), bias=False),
        sinabs_layers.IAFSqueeze(**neuron),
        nn.Flatten(),
        nn.Linear(16 * 4 * 4, 10, bias=False),
        sinabs_layers.IAFSqueeze(**neuron),
    )

    def run(x):
        sinabs.reset_states(module)
        return module(x.flatten(0, 1))

    x = inputs.moving_digits(n_samples, n_steps, 34, 1).transpose(0, 1).contiguous()
    net = Net(module, x, "BT", run)
    return scale_weights(net, [module[i] for i in (0, 3, 6, 9)], (3.88, 2.25, 3.0, 2.69))
