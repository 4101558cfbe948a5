"""Networks of millions of neurons on boards: cores, chips, and the time and memory of every stage of the compiler.

    python benchmarks/large_nets.py [--cells dvs_gesture:128:loihi2_kapoho,...] [--partitioner coarse] [--against ""]

SpikingJelly's own classes, as their authors write them: SEW-ResNet-18 (connection "ADD", IF neurons, 1,000 classes),
Spiking VGG-11 with batch norm (10 classes) and DVSGestureNet (LIF neurons, its own 128 channels, max pooling). Weights
are drawn; batch norms have the statistics of the input, and linear maps have gains, as in tests/zoo, so that layers
spike. SEW-ResNet-18 and VGG-11 see photographs, DVSGestureNet events of moving digits. Two samples calibrate, a third
one is compared between backends: by default without `cycle`, which asked for more than 14 GB at 79 million axons.
A cell is `net:size:board`, a process of its own: seconds are CPU seconds of that process (all its threads), memory is
the largest resident set while a stage ran (VmHWM, cleared before each).
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
import types
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("NUMBA_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import numpy as np
import torch

import nwcompile as nw
from benchmarks.record import RESULTS, show, write
from nwcompile.ir.chip_sections import chips_used
from tests.zoo import inputs
from tests.zoo.net import Net, norms_from_input, scale_weights, spike_rate

CELLS = "sew_resnet_18:224:loihi2_kapoho,vgg_11:128:loihi2_hala,dvs_gesture:128:loihi2_kapoho"
LIMIT_BYTES = 14 << 30  # Of addresses of a cell's process: it ends with a MemoryError before the machine swaps.
LIMIT_S = 1800  # Seconds a cell may take, compared with the 600 of compiling.
N_STEPS = 4  # As SpikingJelly's ImageNet scripts take (T = 4).
N_SAMPLES = 3  # Two calibrate, one is held out.


def sew_resnet_18(size: int) -> Net:
    """SEW-ResNet-18 of [T, B, 3, size, size], as its own file builds it."""
    model = _model("sew_resnet")
    module = model.sew_resnet18(spiking_neuron=_neuron().IFNode, cnf="ADD", **_given())
    return _net(module, _photographs(size), {})


def vgg_11(size: int) -> Net:
    """Spiking VGG-11 with batch norm, its 4,096 wide classifier included."""
    model = _model("spiking_vgg")
    module = model.spiking_vgg11_bn(spiking_neuron=_neuron().IFNode, num_classes=10, **_given())
    return _net(module, _photographs(size), {"classifier.0": 4.0, "classifier.3": 4.0, "classifier.6": 4.0})


def dvs_gesture(size: int) -> Net:
    """DVSGestureNet; maps of other sizes than 128 x 128 need another first linear layer, which is put in."""
    from spikingjelly.activation_based import layer
    from spikingjelly.activation_based.model.parametric_lif_net import DVSGestureNet

    module = DVSGestureNet(128, _neuron().LIFNode, **_given())
    for i, part in enumerate(module.conv_fc):
        if isinstance(part, layer.Linear) and part.in_features == 128 * 4 * 4 and size != 128:
            module.conv_fc[i] = layer.Linear(128 * (size // 32) ** 2, part.out_features)
    names = [name for name, part in module.named_modules() if isinstance(part, torch.nn.Linear)]
    events = inputs.moving_digits(N_SAMPLES, N_STEPS, size, max(1, size // 32))
    return _net(module, events, dict.fromkeys(names, 7.16))


NETS: dict[str, Callable[[int], Net]] = {
    "sew_resnet_18": sew_resnet_18,
    "vgg_11": vgg_11,
    "dvs_gesture": dvs_gesture,
}


def _model(name: str) -> types.ModuleType:
    """A file of SpikingJelly's model zoo. It asks torchvision for a downloader only, which nothing here calls."""
    from importlib import import_module
    from importlib.util import find_spec

    if find_spec("torchvision") is None:
        for part in ("torchvision", "torchvision._internally_replaced_utils"):
            sys.modules.setdefault(part, types.ModuleType(part))
        sys.modules["torchvision._internally_replaced_utils"].load_state_dict_from_url = None  # type: ignore[attr-defined]
    return import_module(f"spikingjelly.activation_based.model.{name}")


def _neuron() -> types.ModuleType:
    from spikingjelly.activation_based import neuron

    return neuron


def _given() -> dict:
    from spikingjelly.activation_based import surrogate

    return {"surrogate_function": surrogate.ATan(), "detach_reset": True}


def _photographs(size: int) -> torch.Tensor:
    return inputs.photographs(N_SAMPLES, size, max(1, 192 // size)).unsqueeze(0).repeat(N_STEPS, 1, 1, 1, 1)


def _net(module: torch.nn.Module, x: torch.Tensor, gains: dict[str, float]) -> Net:
    from spikingjelly.activation_based import functional

    functional.set_step_mode(module, step_mode="m")

    def run(x):
        functional.reset_net(module)
        return module(x)

    net = norms_from_input(Net(module, x, "TB", run))
    parts = dict(module.named_modules())
    return scale_weights(net, [parts[name] for name in gains], tuple(gains.values()))


class Stages:
    """CPU seconds and the largest resident set of what was done since the last mark."""

    def __init__(self) -> None:
        self.rows: list[dict] = []
        self._begin()

    def mark(self, name: str) -> None:
        peak = _status_gb("VmHWM")
        self.rows.append({"stage": name, "cpu_s": round(time.process_time() - self.start, 2), "peak_gb": peak})
        print(f"  {name:12} {self.rows[-1]['cpu_s']:8.1f} s {peak:6.2f} GB", file=sys.stderr, flush=True)
        self._begin()

    def _begin(self) -> None:
        self.start = time.process_time()
        Path("/proc/self/clear_refs").write_text("5")  # the peak is what is resident now


def _status_gb(key: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return round(next(int(line.split()[1]) for line in lines if line.startswith(f"{key}:")) / (1 << 20), 3)


def land(name: str, size: int, board: str, partitioner: str, compared: tuple[str, ...]) -> dict:
    """One cell: compiled, and compared between the backends of `compared` on the sample held out."""
    stages = Stages()
    torch.manual_seed(14)
    net = NETS[name](size)
    spiking = [p for p in net.module.modules() if isinstance(p, _neuron().BaseNode)]
    rates = [round(spike_rate(net, part), 4) for part in spiking]
    calibration, held_out = net.calibration, net.held_out
    stages.mark("framework")
    network = nw.from_torch(net.module, calibration, net.layout)
    stages.mark("import")
    del net, spiking
    options = nw.Options(partitioner=partitioner)
    program = nw.compile(network, board, calibration, options, on_stage=lambda name, _v, _s: stages.mark(name))
    stages.mark("end")
    used = program.chip
    row = {
        "net": name,
        "size": size,
        "board": board,
        "partitioner": partitioner,
        "neurons": sum(node.n_neurons for node in program.network.nodes.values()),
        "stored_weights": sum(int(np.size(c.weight)) for c in program.network.connections),
        "convolutions": sum(type(c).__name__ == "Conv2d" for c in program.network.connections),
        "sparse": sum(type(c).__name__ == "Sparse" for c in program.network.connections),
        "cores": program.mapping.n_cores,
        "chips": chips_used(program.chip.noc, program.mapping.site_of),
        "cores_of_board": used.n_cores,
        "tried_cores": program.manifest.get("tried_cores"),
        "rates": rates,
        "warnings": [w for w in program.manifest["warnings"] if "cores" in w],
    }
    row["compile_s"] = round(sum(r["cpu_s"] for r in stages.rows if r["stage"] not in ("framework", "import")), 1)
    row["peak_gb"] = max(r["peak_gb"] for r in stages.rows)
    if compared:
        print(row, file=sys.stderr, flush=True)  # what is known, should comparing end in want of memory
        try:
            result = nw.crosscheck(program, held_out, against=compared)
            row |= {"agree": result.agree, "compared": f"{', '.join(compared)}: {result.n_compared} values"}
        except MemoryError as e:
            row |= {"agree": None, "compared": f"{', '.join(compared)}: {e}"}
        stages.mark("crosscheck")
        row["crosscheck_gb"] = stages.rows[-1]["peak_gb"]
    return row | {"stages": stages.rows}


def in_a_process(cell: str, args: argparse.Namespace) -> dict:
    """The row of a cell, or what its process said last."""
    command = [sys.executable, "-W", "ignore", __file__, "--cell", cell, "--partitioner", args.partitioner]
    command += ["--against", args.against]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        return {"cell": cell, "error": f"not done within {LIMIT_S} s"}
    if done.returncode:
        return {"cell": cell, "error": f"ended with {done.returncode}"}
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", default=CELLS)
    parser.add_argument("--partitioner", default="floorline")
    parser.add_argument("--against", default="reference,sequence", help="backends compared; none: an empty text")
    parser.add_argument("--cell", help="one cell, in this process")
    args = parser.parse_args()
    if args.cell:
        resource.setrlimit(resource.RLIMIT_AS, (LIMIT_BYTES, LIMIT_BYTES))
        name, size, board = args.cell.split(":")
        compared = tuple(word for word in args.against.split(",") if word)
        print(json.dumps(land(name, int(size), board, args.partitioner, compared)))
        return
    path = RESULTS / "large_nets.json"
    rows = json.loads(path.read_text())["rows"] if path.exists() else []
    for cell in args.cells.split(","):
        row = in_a_process(cell, args)
        print(row, file=sys.stderr, flush=True)
        if "error" not in row:
            kept = ("net", "size", "board", "partitioner")
            rows = [r for r in rows if any(r[key] != row[key] for key in kept)] + [row]
            write("large_nets", rows, {"steps": N_STEPS, "samples": N_SAMPLES})
    show([{k: v for k, v in row.items() if k not in ("stages", "rates", "warnings", "tried_cores")} for row in rows])


if __name__ == "__main__":
    main()
