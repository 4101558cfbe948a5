"""PilotNet (lava-dl's public networks) on loihi2: cores and step times, beside Intel's measurement of its own.

    python benchmarks/pilotnet.py [--reference DIR] [--sdnn FILE]

`Intel's cut` is the mapping that lava-dl's pilotnet_snn/benchmark notebook prints, layer by layer: columns of maps on
74 cores. Its sites are not told, so our placer chooses them. The others are what the compiler finds. Times are those of
the cycle backend for the image that lava-dl stores with the network, given in each of 16 steps: the mean of hardware
steps 0 to 15, while the pipeline of layers fills. Measured on Loihi 2: 408.91 inferences of 16 steps a second, which is
152.9 us a step; `error %` is that of our time for Intel's cut. `bound` is the floorline, below which no step can be.

`SDNN small` is lava-dl's stored sigma-delta network, of frames of half the size, on its stored frame. `SDNN` is that of
its tutorial, as large as the LIF network, which Intel measured on 61 cores without input neurons (the LIF's cut): FILE
is tutorials/lava/lib/dl/netx/pilotnet_sdnn/network.net of lava-dl d825ac5, left out where it is not given. It gets the
LIF network's image, in its own units. The same frame goes in in every step: all of it is a change from nothing, so that
these are the messages of a first frame, or of one after a cut; Intel's video is not stored. After as many steps as
there are layers the answer stands; `messages`, `synops` and `inference us` are of these steps together, or of the LIF's
16. `settled us` is a step in which nothing changes, but the input neurons look.
"""

import argparse
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.record import save

REFERENCE = Path(__file__).resolve().parents[2] / "shared" / "reference"
N_STEPS = 16
N_SETTLED_STEPS = 4
MEASURED_US = 1e6 / (408.91 * N_STEPS)
COLUMNS = {"layer0": 16, "layer1": 4, "layer2": 4, "layer3": 8, "layer4": 8, "layer5": 16}  # of a map, on a core
NEURONS = {"layer7": 9}  # of a dense layer, on a core; the others take one
MEASURED = "Intel's cut"
WORDS = 16_000
WORDS_OF_OLDER_TEXT = 12_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reference", default=str(REFERENCE), help="folder that holds lava_gts/pilotnet_lif")
    parser.add_argument("--sdnn", help="network.net of lava-dl's tutorial pilotnet_sdnn")
    args = parser.parse_args()
    settings = {"steps": N_STEPS, "chip": "loihi2", "measured us a step": MEASURED_US}
    save("pilotnet", rows(Path(args.reference), args.sdnn), settings)


def rows(reference: Path = REFERENCE, tutorial: str | None = None) -> list[dict]:
    """A row for each mapping: cores, those without the input layer, and microseconds of a step."""
    import nwcompile as nw

    networks = {"LIF": pilotnet(reference), "SDNN small": sigma_delta(reference)}
    cases = [
        ("LIF", MEASURED, WORDS, nw.Options(partitioner=intels_cut)),
        ("LIF", "fewest cores", WORDS, nw.Options(optimize="cores")),
        ("LIF", "fewest cores", WORDS_OF_OLDER_TEXT, nw.Options(optimize="cores")),
        ("LIF", "shortest step", WORDS, nw.Options(optimize="time")),
        ("SDNN small", "fewest cores", WORDS, nw.Options(optimize="cores")),
        ("SDNN small", "shortest step", WORDS, nw.Options(optimize="time")),
    ]
    if tutorial is not None:
        networks["SDNN"] = of_tutorial(reference, tutorial)
        cases += [("SDNN", *case) for _, *case in (cases[0], cases[1], cases[3])]
    table = []
    for kind, name, n_words, options in cases:
        network, x = networks[kind]
        n_steps = N_STEPS if kind == "LIF" else len(network.layers)
        chip = nw.Chip.load("loihi2").replace({"core.synapse_bits": n_words * 64})
        program = nw.compile(network, chip, x, options)
        run = nw.simulate(program, x, "cycle")
        every_us = run.step_cycles * chip.core.cycle_ns / 1000
        step_us = every_us[:n_steps]
        mean = float(step_us.mean())
        table.append(
            {
                "network": kind,
                "mapping": name,
                "words a core": n_words,
                "cores": program.mapping.n_cores,
                "without input": len(np.unique(np.concatenate([program.mapping.core_of[n] for n in hidden(network)]))),
                "bound us": float(bound_us(program, run)[:n_steps].mean()),
                "step us": mean,
                "longest us": float(step_us.max()),
                "error %": 100 * (mean / MEASURED_US - 1) if name == MEASURED and kind == "LIF" else "",
                "messages": int(run.counters["messages_in"][:n_steps].sum()),
                "synops": int(run.counters["synops"][:n_steps].sum()),
                "inference us": float(step_us.sum()),
                "settled us": "" if kind == "LIF" else float(every_us[n_steps]),
            }
        )
        print(table[-1], flush=True)
    return table


def sigma_delta(reference: Path) -> tuple:
    """The small sigma-delta network, and its stored frame [1, T, 3, 33, 100] in every step."""
    import nwcompile as nw

    folder = reference / "lava_gts" / "pilotnet_sdnn"
    network = nw.from_lava(folder / "network.net")
    with np.load(folder / "traces.npz") as data:
        frame = data["input"].transpose(3, 2, 1, 0)
    return network, np.repeat(frame[None], len(network.layers) + N_SETTLED_STEPS, 1)


def of_tutorial(reference: Path, path: str) -> tuple:
    """The tutorial's sigma-delta network, and the LIF network's image [1, T, 3, 66, 200] as its transform makes it.

    Pixels p of 0..1 are trunc(80 p - 4) there and trunc(128 p - 64) here (netx, `get_input_transform`).
    """
    import nwcompile as nw

    network = nw.from_lava(path)
    with np.load(reference / "lava_gts" / "pilotnet_lif" / "input.npz") as data:
        pixels = (data["image"].transpose(2, 1, 0) + 4) / 80
    frame = np.trunc(128 * pixels - 64).astype(np.int32)
    return network, np.repeat(frame[None, None], len(network.layers) + N_SETTLED_STEPS, 1)


def pilotnet(reference: Path) -> tuple:
    """The network, its input layer fed with currents as they are stored, and the image [1, T, 3, 66, 200] of them."""
    import nwcompile as nw

    folder = reference / "lava_gts" / "pilotnet_lif"
    network = nw.from_lava(folder / "network.net")
    layer, into, *rest = network.nodes["layer0"], *network.connections
    fed = replace(layer, neuron=layer.neuron.replace(bias=0))  # the stored image is 40 * x + 36 already
    into = into.replace(weight=np.ones((1, 1, 1, 1), np.int64))
    with np.load(folder / "input.npz") as data:
        image = data["image"].transpose(2, 1, 0)
    x = np.repeat(image[None, None], N_STEPS, 1).astype(np.int32)
    return nw.Network(network.inputs, network.nodes | {"layer0": fed}, (into, *rest)), x


def hidden(network) -> list[str]:
    """The layers but the input layer."""
    return [name for name in network.layers if name != "layer0"]


def intels_cut(network, chip, activity, options) -> dict[str, np.ndarray]:
    """The core of every neuron, as the notebook prints them (a partitioner)."""
    core_of, first = {}, 0
    for name in network.layers:
        node = network.node(name)
        of = np.arange(node.n_neurons) // NEURONS.get(name, node.n_neurons)
        if name in COLUMNS:
            channels, rows, columns = node.shape
            of = np.tile(np.arange(columns) // COLUMNS[name], channels * rows)
        core_of[name] = first + of
        first += int(of.max()) + 1
    return core_of


def bound_us(program, run) -> np.ndarray:
    """Microseconds that each hardware step takes at least."""
    from nwcompile.cost.time.work import compute_work
    from nwcompile.cost.traffic.link_flits import link_flits

    done = compute_work(program, run.counters, link_flits(program, run.activity), 1)
    return done.bound_cycles * program.chip.core.cycle_ns / 1000


if __name__ == "__main__":
    main()
