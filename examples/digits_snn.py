"""The network that `nw.demo()` shows: 64-32-10 LIF neurons on the 8 x 8 digits of scikit-learn, trained here.

    python examples/digits_snn.py        # writes nwcompile/workbench/demo.npz

1,597 images are trained on; the other 200, which the file holds, are not. The images are the "Optical Recognition of
Handwritten Digits" of the UCI repository (E. Alpaydin, C. Kaynak, 1998; CC BY 4.0), which scikit-learn ships.
"""

import sys
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from nwcompile import nn
from nwcompile.workbench.demo import FILE, STEP_S, TAU_S, encode_images

HIDDEN = 32  # Neurons between image and digits.
N_SHOWN = 200
N_EPOCHS = 30
BATCH = 64
LEARNING_RATE = 4e-3
COUNT_SCALE = 10.0  # logits are spike rates (0..1) times this


def main() -> None:
    from sklearn.datasets import load_digits

    torch.manual_seed(0)
    torch.set_num_threads(1)
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    images, labels = digits.data[order].astype(np.uint8), digits.target[order].astype(np.int64)
    lif = {"taus": TAU_S, "thresholds": 1.0, "reset_mechanism": "zero", "dt": STEP_S, "surrogate": "atan"}
    linear = [torch.nn.Linear(64, HIDDEN, bias=False), torch.nn.Linear(HIDDEN, 10, bias=False)]
    net = nn.Sequential(linear[0], nn.LIFLayer(HIDDEN, **lif), linear[1], nn.LIFLayer(10, **lif))
    x, y = torch.from_numpy(encode_images(images[N_SHOWN:])), torch.from_numpy(labels[N_SHOWN:])
    optimizer = torch.optim.Adam(net.parameters(), lr=LEARNING_RATE)
    for _ in range(N_EPOCHS):
        for rows in torch.randperm(len(x)).split(BATCH):
            nn.prepare_net(net)
            loss = torch.nn.functional.cross_entropy(COUNT_SCALE * net(x[rows])[0].mean(1), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    nn.prepare_net(net)
    with torch.no_grad():
        spikes = net(torch.from_numpy(encode_images(images[:N_SHOWN])))[0].numpy()
    right = (spikes.sum(1).argmax(1) == labels[:N_SHOWN]).mean()
    weights = {f"weight{i}": layer.weight.detach().numpy() for i, layer in enumerate(linear)}
    np.savez_compressed(FILE, images=images[:N_SHOWN], labels=labels[:N_SHOWN].astype(np.uint8), **weights)
    print(f"{FILE.name}: {100 * right:.1f} % of {N_SHOWN} images, {FILE.stat().st_size} bytes")


if __name__ == "__main__":
    main()
