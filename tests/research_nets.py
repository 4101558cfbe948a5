"""The networks of research code in the reference: which import, with which spikes, and which land on a chip.

`python -m tests.research_nets` prints the rows of the table in docs/hand-written-neurons.md.
"""

import importlib.util
import os
import subprocess
import sys
import warnings
from pathlib import Path
from textwrap import shorten
from types import ModuleType

import numpy as np
import torch

import nwcompile as nw
from nwcompile.frontend.torch.importing import _choose_import, _possible_leads, _try_leads
from nwcompile.frontend.torch.inputs import prepare_example
from nwcompile.frontend.torch.modules import convert_rockpool
from nwcompile.frontend.torch.operators import Imported

REFERENCE = Path(os.environ.get("NWCOMPILE_REFERENCE", "../shared/reference")) / "research_nets"
CHIPS = ("loihi2", "spinnaker2")
OLD_SPIKINGJELLY = {"clock_driven_sew": "0.0.0.0.12", "dqn_membrane": "0.0.0.0.14"}  # which a network needs
PHASED = "execution='phased'"  # the advice of a refusal
MOST_LETTERS = 120  # of a refusal in the table


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


def compare_layers(name: str, network: nw.Network, samples: slice = slice(0, 3)) -> int:
    """Return the number of spikes of the imported `network` that differ from the module's, in all layers and `samples`.

    The module's spikes are those of its operators, recorded on each sample.
    """
    module, x, options = load_net(name).make()
    module, layout = convert_rockpool(module), options.get("layout", "BT")
    n_different = 0
    for given in prepare_example(module, x, layout)[samples].split(1):
        results = _try_leads(module, given, _possible_leads(module, layout), None, looks_inside=True)
        imported = _choose_import(results, module, given, layout)
        assert isinstance(imported, Imported), imported
        given = given.expand(1, imported.n_steps, *given.shape[2:]) if layout == "B" else given
        run = nw.simulate(network, (given.transpose(0, 1) if layout == "TB" else given).float().numpy())
        for layer, spikes in imported.spikes.items():
            n_different += int((run.spikes[layer].reshape(spikes.shape) != spikes.numpy()).sum())
    return n_different


def compile_net(network: nw.Network, x: torch.Tensor, chip: str) -> nw.Program:
    """Compile a network, in phases if its loops are too short for a pipeline."""
    try:
        return nw.compile(network, chip, calibration=np.asarray(x))
    except nw.ModelError as e:
        if PHASED not in str(e):
            raise
        return nw.compile(network, chip, np.asarray(x), nw.Options(execution="phased"))


def land_net(network: nw.Network, x: torch.Tensor) -> str:
    """Return the first chip on which a network lands, or the refusal of the first one."""
    refusals = []
    for chip in CHIPS:
        try:
            program = compile_net(network, x, chip)
            return chip if program.schedule.execution == "pipelined" else f"{chip}, {PHASED}"
        except nw.FitError as e:
            refusals.append(f"no: {e.violations[0]}")
        except nw.NwError as e:
            refusals.append(f"no: {e}")
    return refusals[0].splitlines()[0]


def describe_net(name: str) -> str:
    """Return a network's row of the table: its style, what is imported or why not, and a chip on which it lands."""
    try:
        loaded = load_net(name)
        _, x, _ = loaded.make()
        network = import_net(name)
    except ImportError as e:
        return f"| {name} | needs {e.name} | | |"
    except (nw.NwError, AttributeError) as e:
        text = shorten(str(e).replace(f"{name}.py:", "line "), MOST_LETTERS, placeholder=" ...")
        return f"| {name} | {loaded.STYLE} | refused: {text} | |"
    n_layers, landed = len(network.layers), shorten(land_net(network, x), MOST_LETTERS, placeholder=" ...")
    return f"| {name} | {loaded.STYLE} | {n_layers} layer{'s' * (n_layers > 1)} | {landed} |"


def main(names: list[str]) -> None:
    """Print one row for each network; those of an older SpikingJelly are imported in a process of their own."""
    warnings.simplefilter("ignore")
    for name in names or find_nets():
        folder = Path(sys.prefix) / f"spikingjelly-{OLD_SPIKINGJELLY.get(name)}"
        if not names and folder.is_dir():
            command = [sys.executable, "-m", "tests.research_nets", name]
            subprocess.run(command, env={**os.environ, "PYTHONPATH": str(folder)}, check=True)
        else:
            print(describe_net(name), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
