"""Builds the sample reports of docs/gallery.md, each by a real run.

    python docs/make_gallery.py             all five, into build/gallery
    python docs/make_gallery.py NAME DIR    the samples that are more than commands: loihi2, board

`make docs` keeps them until this file, the package or an example changes. PilotNet needs two files of Intel's lava-dl
in NWCOMPILE_REFERENCE. Without them the sample for Loihi 2 is the demo network, and the page says so.
"""

import os
import shutil
import subprocess
import sys
import time
from hashlib import sha256
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "docs")]
KEPT = ROOT / "build" / "gallery"
REFERENCE = Path(os.environ.get("NWCOMPILE_REFERENCE") or ROOT.parent / "shared" / "reference")
PILOTNET = [REFERENCE / "lava_gts" / "pilotnet_lif" / name for name in ("network.net", "input.npz")]
PAGES = {"loihi1": "report.html", "loihi2": "report.html", "board": "report.html", "sweep": "sweep.html",
         "diff": "diff.html"}  # fmt: skip
COMMANDS = {  # as docs/gallery.md prints them
    "loihi1": ["python examples/01_mnist.py --out loihi1"],
    "loihi2": ["python docs/make_gallery.py loihi2 loihi2"],
    "board": ["python docs/make_gallery.py board board"],
    "sweep": ["nwcompile sweep examples/sweep.toml -o sweep"],
    "diff": [
        "nwcompile compile demo --chip loihi1 --calibration demo --cores 1 -o one",
        "nwcompile compile demo --chip loihi1 --calibration demo --cores 8 -o eight",
        "nwcompile report --diff one/net.nwc eight/net.nwc --input demo --gate step_us -o diff",
    ],
}
TOOLS = {"python": [sys.executable], "nwcompile": [sys.executable, "-m", "nwcompile"]}
BOARD_CORES = 256  # Two chips of 128.
N_STEPS = 8  # A ReLU of 8 levels becomes a neuron of 8 steps.
N_EPOCHS = 2
N_TEST = 100  # Images for the accuracy; two of them are simulated cycle by cycle.


class GalleryError(Exception):
    """A command of the gallery fails."""


def write_loihi2(folder: Path) -> None:
    """Report PilotNet on the fewest cores of Loihi 2, with the image that lava-dl stores; else the demo network."""
    import nwcompile as nw
    from benchmarks.pilotnet import pilotnet

    if not has_pilotnet():
        demo = nw.demo("loihi2")
        nw.report(demo.program, demo.run, folder, accuracy=demo.report["accuracy"])
        return
    network, x = pilotnet(REFERENCE)
    program = nw.compile(network, "loihi2", x, nw.Options(optimize="cores"))
    nw.report(program, nw.simulate(program, x, "cycle", profile=True), folder)


def write_board(folder: Path) -> None:
    """Report a ReLU network, trained on MNIST and converted to spikes, on two chips of a board."""
    import torch
    from torch import nn

    import nwcompile as nw
    from examples.mnist_snn import digits

    data = digits()
    images, test = (part.reshape(-1, 1, 28, 28) for part in (data.train_images, data.test_images[:N_TEST]))
    torch.manual_seed(0)
    ann = nn.Sequential(
        nn.Conv2d(1, 24, 3, padding=1, bias=False), nn.BatchNorm2d(24), nw.nn.QuantizedReLU(N_STEPS),
        nn.Conv2d(24, 16, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(16), nw.nn.QuantizedReLU(N_STEPS),
        nn.AvgPool2d(2), nn.Flatten(), nn.Linear(784, 10),
    )  # fmt: skip
    optimizer = torch.optim.Adam(ann.parameters(), lr=5e-3)
    pixels, labels = torch.from_numpy(images), torch.from_numpy(data.train_labels)
    for _ in range(N_EPOCHS):
        for rows in torch.randperm(len(images)).split(64):
            optimizer.zero_grad()
            nn.functional.cross_entropy(ann(pixels[rows]), labels[rows]).backward()
            optimizer.step()
    network = nw.convert(ann.eval(), images[::40], steps=N_STEPS, method="quantized")
    options = nw.Options(n_cores=BOARD_CORES)
    program = nw.compile(network, "loihi2_kapoho", nw.encode(images[:20], N_STEPS), options)
    x, accuracy = nw.encode(test, N_STEPS), {"n_samples": N_TEST}
    for name, model in (("float", network), ("chip", program)):
        answers = nw.simulate(model, x, "sequence").output.sum(1).argmax(1)
        accuracy[name] = float((answers == data.test_labels[:N_TEST]).mean())
    nw.report(program, nw.simulate(program, x[:2], "cycle", profile=True), folder, accuracy=accuracy)


def has_pilotnet() -> bool:
    """Whether the files of PilotNet are at hand."""
    return all(file.exists() for file in PILOTNET)


def build_gallery() -> Path:
    """Return the folder of the samples, built now or kept from when nothing was different."""
    from run_tutorials import state_of

    digest = sha256((state_of(Path(__file__)) + str(has_pilotnet())).encode())
    for file in (*sorted((ROOT / "examples").glob("*.*")), ROOT / "benchmarks" / "pilotnet.py"):
        digest.update(file.read_bytes())
    folder = KEPT / digest.hexdigest()[:16]
    if not folder.exists():
        shutil.rmtree(KEPT, ignore_errors=True)
        unfinished = folder.with_suffix(".unfinished")
        unfinished.mkdir(parents=True)
        for name, commands in COMMANDS.items():
            start = time.perf_counter()
            for command in commands:
                _run(command, unfinished)
            print(f"gallery {name}: {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
        unfinished.rename(folder)
    return folder


def _run(command: str, folder: Path) -> None:
    """Run a command in a folder; the files of the repository that it names are those here."""
    tool, *words = command.split()
    given = [str(ROOT / word) if (ROOT / word).is_file() else word for word in words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NWCOMPILE_QUIET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([*TOOLS[tool], *given], cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        raise GalleryError(f"{command}: exit code {done.returncode}\n{done.stdout}{done.stderr}")


if __name__ == "__main__":
    match sys.argv[1:]:
        case []:
            print(build_gallery())
        case ["loihi2" | "board" as name, folder]:
            {"loihi2": write_loihi2, "board": write_board}[name](Path(folder))
        case _:
            sys.exit(__doc__)
