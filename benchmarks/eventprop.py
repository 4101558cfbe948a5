"""EventProp in steps beside a surrogate gradient: what is kept for the backward pass, and what is learned.

    OMP_NUM_THREADS=1 python -m benchmarks.eventprop

kept: bytes that a layer [B, T, N] = [32, 100, 512] keeps from its forward pass, by how many of its steps are spikes.
digits: scikit-learn's handwritten digits, a pixel a spike that comes the sooner the darker it is; 1297 to train with,
500 to test. 64-100-10 current-based LIF neurons, the last read by their membranes, early steps more than late ones.
Adam, 30 epochs, mean and range over seeds. "readout alone": EventProp with the first weights left as they were drawn.
`MB`: what the net keeps of a batch of 64, all layers and synapses, once it is trained.
"""

import statistics
import time
from collections.abc import Callable

import torch

from benchmarks.record import save
from nwcompile import nn
from nwcompile.nn.ops.scan import LIFNeurons, scan
from nwcompile.nn.ops.surrogate import look_up_layer_surrogate

ACTIVITIES = (0.01, 0.05, 0.2)
SHAPE = 32, 100, 512
WAYS = {"eventprop": "eventprop", "fast_sigmoid": "fast_sigmoid", "readout alone": "eventprop"}
SEEDS, EPOCHS, BATCH, RATE = 5, 30, 64, 2e-3
N_HIDDEN, N_STEPS, STEP_S = 100, 40, 1e-3
TAU_SYN_S, TAU_MEM_S = 5e-3, 20e-3


def kept_bytes(run: Callable) -> int:
    """Bytes that `run` keeps for a backward pass, what several operations keep counted once."""
    kept = {}

    def keep(tensor):
        kept[tensor.untyped_storage().data_ptr()] = tensor  # held, so that its memory goes to no other
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        run()
    return sum(tensor.untyped_storage().nbytes() for tensor in kept.values())


def of_a_layer(surrogate: str, reset: str, activity: float, shape: tuple[int, int, int]) -> tuple[int, int]:
    """Bytes that a layer keeps, and its spikes."""
    drawn = torch.rand(shape, generator=torch.Generator().manual_seed(0))
    current = drawn.lt(activity).float().requires_grad_()  # of the threshold, or 0
    neurons = LIFNeurons(torch.full(shape[2:], 0.5), torch.ones(shape[2]), reset, look_up_layer_surrogate(surrogate))
    results = []
    n_bytes = kept_bytes(lambda: results.extend(scan(current, neurons.initial_state(current), neurons)))
    return n_bytes, int(results[0].sum())


class Digits(torch.nn.Module):
    def __init__(self, surrogate: str):
        super().__init__()
        self.synapses = torch.nn.ModuleList([nn.LIFSynapse(64, N_HIDDEN), nn.LIFSynapse(N_HIDDEN, 10)])
        with torch.no_grad():
            self.synapses[0].weight.normal_(3 / 8, 5 / 8)
        lif = {"dt": STEP_S, "surrogate": surrogate}
        integrates = {**lif, "thresholds": 1e9, "reset_mechanism": "none"}
        self.currents = torch.nn.ModuleList([nn.LIFLayer(n, TAU_SYN_S, **integrates) for n in (N_HIDDEN, 10)])
        self.hidden = nn.LIFLayer(N_HIDDEN, TAU_MEM_S, reset_mechanism="zero", **lif)
        self.readout = nn.LIFLayer(10, TAU_MEM_S, **integrates)

    def forward(self, spikes: torch.Tensor) -> torch.Tensor:
        """Spikes `[B, T, 64]` to logits `[B, 10]`."""
        nn.prepare_net(self)
        hidden, _ = self.hidden(self.currents[0](self.synapses[0](spikes))[1] * (STEP_S / TAU_MEM_S))
        _, mem = self.readout(self.currents[1](self.synapses[1](hidden))[1])
        return (mem * torch.exp(-torch.arange(N_STEPS) / 20)[:, None]).mean(1)


def data() -> tuple[torch.Tensor, torch.Tensor]:
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    dark = torch.tensor(pixels, dtype=torch.float32)[:, None] / 16
    spikes = torch.zeros(len(pixels), N_STEPS, 64).scatter_(1, ((1 - dark) * 20).long(), 1.0)
    return spikes * (dark > 0.1), torch.tensor(labels)


def trained(way: str, seed: int) -> tuple[float, float, float]:
    """Test accuracy in per cent, CPU seconds, and MB that the net keeps of a batch."""
    begin = time.process_time()
    torch.manual_seed(seed)
    x, y = data()
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(0))
    train, test = order[:1297], order[1297:]
    net = Digits(WAYS[way])
    net.synapses[0].weight.requires_grad_(way != "readout alone")
    optimizer = torch.optim.Adam(net.parameters(), RATE)
    for _ in range(EPOCHS):
        for batch in train[torch.randperm(len(train))].split(BATCH):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(net(x[batch]), y[batch]).backward()
            optimizer.step()
    seconds = time.process_time() - begin
    with torch.no_grad():
        accuracy = 100 * (net(x[test]).argmax(1) == y[test]).float().mean().item()
    return accuracy, seconds, kept_bytes(lambda: net(x[test[:BATCH]])) / 1e6


def main() -> None:
    torch.set_num_threads(1)
    rows = []
    for activity in ACTIVITIES:
        for reset in ("subtraction", "zero"):
            sizes = {name: of_a_layer(name, reset, activity, SHAPE)[0] / 1e6 for name in ("eventprop", "fast_sigmoid")}
            rows.append(
                {"spikes %": 100 * activity, "reset": reset, **{f"{k} MB": round(v, 2) for k, v in sizes.items()}}
            )
    save("eventprop_kept", rows, {"shape": SHAPE})
    rows = []
    for way in WAYS:
        accuracy, seconds, kept = zip(*(trained(way, seed) for seed in range(SEEDS)), strict=True)
        rows.append({"way": way, "accuracy %": round(statistics.mean(accuracy), 1), "least": round(min(accuracy), 1),
                     "most": round(max(accuracy), 1), "CPU s": round(statistics.median(seconds), 1),
                     "MB": round(kept[0], 2)})  # fmt: skip
    save("eventprop_digits", rows, {"seeds": SEEDS, "epochs": EPOCHS, "hidden": N_HIDDEN})


if __name__ == "__main__":
    main()
