"""Networks of SpikingJelly's examples and model zoo, in step mode "m": all steps at once, `[T, B, ...]`."""

import torch
from torch import nn

from tests.frontend.frameworks import framework
from tests.zoo import inputs
from tests.zoo.net import Net, norms_from_input, scale_weights

functional = framework("spikingjelly.activation_based.functional")
layer = framework("spikingjelly.activation_based.layer")
neuron = framework("spikingjelly.activation_based.neuron")
surrogate = framework("spikingjelly.activation_based.surrogate")
parametric_lif_net = framework("spikingjelly.activation_based.model.parametric_lif_net")


class CSNN(nn.Module):
    """The Fashion-MNIST example: a static image `[B, 1, 28, 28]`, repeated T times inside; firing rates out."""

    def __init__(self, n_steps: int, channels: int):
        super().__init__()
        self.n_steps = n_steps
        self.conv_fc = nn.Sequential(
            layer.Conv2d(1, channels, kernel_size=3, padding=1, bias=False),
            layer.BatchNorm2d(channels),
            neuron.IFNode(surrogate_function=surrogate.ATan()),
            layer.MaxPool2d(2, 2),
            layer.Conv2d(channels, channels, kernel_size=3, padding=1, bias=False),
            layer.BatchNorm2d(channels),
            neuron.IFNode(surrogate_function=surrogate.ATan()),
            layer.MaxPool2d(2, 2),
            layer.Flatten(),
            layer.Linear(channels * 7 * 7, channels * 4 * 4, bias=False),
            neuron.IFNode(surrogate_function=surrogate.ATan()),
            layer.Linear(channels * 4 * 4, 10, bias=False),
            neuron.IFNode(surrogate_function=surrogate.ATan()),
        )
        functional.set_step_mode(self, step_mode="m")

    def forward(self, x):
        x_seq = x.unsqueeze(0).expand(self.n_steps, -1, -1, -1, -1)
        return self.conv_fc(x_seq).mean(0)


class BasicBlock(nn.Module):
    """Two 3 x 3 convolutions whose spikes are added to those of the block's input (connection "ADD")."""

    def __init__(self, n_in: int, n_out: int, stride: int):
        super().__init__()
        self.conv1 = layer.Conv2d(n_in, n_out, 3, stride, 1, bias=False)
        self.bn1, self.sn1 = layer.BatchNorm2d(n_out), integrate_and_fire()
        self.conv2 = layer.Conv2d(n_out, n_out, 3, 1, 1, bias=False)
        self.bn2, self.sn2 = layer.BatchNorm2d(n_out), integrate_and_fire()
        self.downsample = None
        if stride != 1 or n_in != n_out:
            self.downsample = nn.Sequential(layer.Conv2d(n_in, n_out, 1, stride, bias=False), layer.BatchNorm2d(n_out))
            self.downsample_sn = integrate_and_fire()

    def forward(self, x):
        out = self.sn1(self.bn1(self.conv1(x)))
        out = self.sn2(self.bn2(self.conv2(out)))
        identity = x if self.downsample is None else self.downsample_sn(self.downsample(x))
        return identity + out


class SEWResNet18(nn.Module):
    """SEW-ResNet-18 (Fang et al. 2021): a 7 x 7 convolution, a max pool, four stages of two blocks, a mean, a map."""

    def __init__(self, n_classes: int, width: int):
        super().__init__()
        self.conv1 = layer.Conv2d(3, width, kernel_size=7, stride=2, padding=3, bias=False)
        self.bn1, self.sn1 = layer.BatchNorm2d(width), integrate_and_fire()
        self.maxpool = layer.MaxPool2d(kernel_size=3, stride=2, padding=1)
        self.layer1 = nn.Sequential(BasicBlock(width, width, 1), BasicBlock(width, width, 1))
        self.layer2 = nn.Sequential(BasicBlock(width, 2 * width, 2), BasicBlock(2 * width, 2 * width, 1))
        self.layer3 = nn.Sequential(BasicBlock(2 * width, 4 * width, 2), BasicBlock(4 * width, 4 * width, 1))
        self.layer4 = nn.Sequential(BasicBlock(4 * width, 8 * width, 2), BasicBlock(8 * width, 8 * width, 1))
        self.avgpool = layer.AdaptiveAvgPool2d((1, 1))
        self.fc = layer.Linear(8 * width, n_classes)
        functional.set_step_mode(self, step_mode="m")

    def forward(self, x):
        x = self.maxpool(self.sn1(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(self.avgpool(x), 2))


def fashion_csnn(n_steps: int = 4, channels: int = 16, n_samples: int = 12) -> Net:
    torch.manual_seed(11)
    return _net(CSNN(n_steps, channels), inputs.digits(n_samples), "B", (1.75, 14.87))


def dvs_gesture(n_steps: int = 6, channels: int = 16, n_samples: int = 2) -> Net:
    """SpikingJelly's own DVSGestureNet: five times (conv, norm, LIF, max pool), two linear layers, 128 x 128 events."""
    torch.manual_seed(12)
    given = {"surrogate_function": surrogate.ATan(), "detach_reset": True}
    module = parametric_lif_net.DVSGestureNet(channels, neuron.LIFNode, **given)
    functional.set_step_mode(module, step_mode="m")
    return _net(module, inputs.moving_digits(n_samples, n_steps, 128, 4), "TB", (7.16, 7.16))


def sew_resnet_18(n_steps: int = 4, width: int = 64, n_samples: int = 5) -> Net:
    torch.manual_seed(13)
    image = inputs.photographs(n_samples)
    return _net(SEWResNet18(10, width), image.unsqueeze(0).repeat(n_steps, 1, 1, 1, 1), "TB", (1.0,))


def integrate_and_fire() -> nn.Module:
    return neuron.IFNode(surrogate_function=surrogate.ATan(), detach_reset=True)


def _net(module: nn.Module, x: torch.Tensor, layout: str, gains: tuple[float, ...]) -> Net:
    def run(x):
        functional.reset_net(module)
        return module(x)

    net = norms_from_input(Net(module, x, layout, run))
    return scale_weights(net, [part for part in module.modules() if isinstance(part, nn.Linear)], gains)
