"""The network classes of NWAVE's tutorial 3, with only the import line changed."""

import os

import pytest
import torch

FAMILIES = {"lif": "LIFSNN", "h1v1": "H1SNN", "h1v2": "H1v2SNN"}


def tutorial_classes(reference) -> dict:
    """Execute the import of the layers and the classes of section 1 of the tutorial."""
    path = reference.parent / "seeds" / "nwave-tutorial-3.txt"
    if not path.is_file():
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"the tutorial is not in {path.parent}")
    text = path.read_text()
    imported = text[text.index("from nwavesdk.layers import") :].split(")")[0] + ")"
    prose = "The hardware-aware networks"
    classes = text[text.index("class LIFSNN") : text.index("def make_cpu_model")]
    code = "\n".join(line for line in classes.splitlines() if not line.startswith(prose))
    space = {}
    exec("import torch\nimport torch.nn as nn\n" + imported.replace("nwavesdk.layers", "nwcompile.nn"), space)
    exec(code, space)
    return space


def net_of(tutorial, family, seed=0):
    torch.manual_seed(seed)
    net = tutorial[FAMILIES[family]](16, 24, 8)
    with torch.no_grad():
        for synapse in (net.s1, net.s2):
            synapse.weight.copy_((synapse.weight * 3 * 256).round() / 256)
    return net
