"""Networks of ReLUs, for conversion."""

import torch
from torch import nn

X = torch.rand(6, 2, 6, 6, generator=torch.Generator().manual_seed(1))


def conv_net(relu=nn.ReLU) -> nn.Sequential:
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), relu(), nn.AvgPool2d(2), nn.Flatten(), nn.Dropout(0.5),
        nn.Linear(36, 12), nn.BatchNorm1d(12), relu(), nn.Linear(12, 3),
    )  # fmt: skip
    for _ in range(20):
        net(X)  # sets statistics of norms and steps of quantized ReLUs
    return net.eval()


class Residual(nn.Module):
    """A network with one ReLU module used twice, a ReLU function, and a skip."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(5, 5), nn.Linear(5, 5)
        self.relu, self.drop = nn.ReLU(inplace=True), nn.Dropout(0.3)

    def forward(self, x):
        x = self.relu(self.first(x))
        return torch.relu(x + self.second(self.drop(self.relu(self.first(x)))))
