"""The networks of research code in the reference: which import, with which spikes, and which land on a chip.

`python -m tests.research_nets` prints the table of docs/hand-written-neurons.md.
"""

import importlib.util
import os
import sys
import warnings
from pathlib import Path
from types import ModuleType

import numpy as np
import torch

import nwcompile as nw
from nwcompile.frontend.torch import _try_operators
from nwcompile.frontend.torch.inputs import convert_rockpool, prepare_example
from nwcompile.frontend.torch.operators import Imported

REFERENCE = Path(os.environ.get("NWCOMPILE_REFERENCE", "../shared/reference")) / "research_nets"
CHIPS = ("loihi2", "spinnaker2")


def find_nets() -> list[str]:
    """Return the names of all networks."""
    return sorted(file.stem for file in REFERENCE.glob("*.py"))


def load_net(name: str) -> ModuleType:
    """Return the Python module of a network; a missing framework raises ModuleNotFoundError."""
    if str(REFERENCE) not in sys.path:
        sys.path.insert(0, str(REFERENCE))
    spec = importlib.util.spec_from_file_location(name, REFERENCE / f"{name}.py")
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[name] = loaded
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the frameworks
        spec.loader.exec_module(loaded)
    return loaded


def import_net(name: str) -> nw.Network:
    """Import a network as its user would."""
    module, x, options = load_net(name).make()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return nw.from_torch(module, x, **options)


def compare_layers(name: str) -> int:
    """Return the number of spikes that differ from the module's, over all layers and up to three samples.

    The module's spikes are those of its operators, recorded on each sample.
    """
    module, x, options = load_net(name).make()
    module, layout = convert_rockpool(module), options.get("layout", "BT")
    example = prepare_example(module, x, layout)
    n_different, network = 0, None
    for sample in range(min(3, len(example))):
        imported = _try_operators(module, example[sample : sample + 1], layout)
        assert isinstance(imported, Imported), imported
        network = network or imported.network
        given = example[sample : sample + 1]
        given = given.expand(1, imported.n_steps, *given.shape[2:]) if layout == "B" else given
        run = nw.simulate(network, given.float().numpy())
        for layer, spikes in imported.spikes.items():
            n_different += int((run.spikes[layer].reshape(spikes.shape) != spikes.numpy()).sum())
    return n_different


def land_net(network: nw.Network, x: torch.Tensor) -> str:
    """Return the first chip on which a network lands, or the refusal of the last one."""
    text = ""
    for chip in CHIPS:
        try:
            nw.compile(network, chip, calibration=np.asarray(x))
            return chip
        except nw.NwError as e:
            text = str(e).splitlines()[0]
    return text


def main() -> None:
    """Print one row for each network."""
    warnings.simplefilter("ignore")
    print("| network | imported | chip |\n|---|---|---|")
    for name in find_nets():
        try:
            network = import_net(name)
        except ImportError as e:
            print(f"| {name} | not tried: {e} | |")
            continue
        except (nw.NwError, AttributeError) as e:
            print(f"| {name} | refused: {str(e)[:110]} | |")
            continue
        _, x, _ = load_net(name).make()
        print(f"| {name} | {len(network.layers)} layers | {land_net(network, x)[:90]} |", flush=True)


if __name__ == "__main__":
    main()
