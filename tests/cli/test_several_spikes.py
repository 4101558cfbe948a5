"""`--on-multi-spike` from the command line to the report."""

import json

import numpy as np

GRADED = """
import numpy as np
import nwcompile as nw

def make():
    spec = nw.NeuronSpec(threshold=1.0, spikes="multi")
    weight = np.full((4, 6), 1.5, "float32")
    return nw.Network.from_arrays({"a": spec, "b": spec}, [nw.Dense("in", "a", weight),
                                  nw.Dense("a", "b", weight[:, :4])], {"in": 6})
"""


def test_cli_sends_several_spikes_one_by_one_when_told_to(command, model, folder):
    (folder / "toy.py").write_text(GRADED)
    line = "compile toy:make --chip loihi1 --calibration data.npz --cores 1 -o build"
    code, out, err = command(line)
    assert (code, out) == (1, "") and "on_multi_spike='graded' (a message carries the count) or 'repeat'" in err
    says = {}
    for mode in ("graded", "repeat"):
        code, out, _ = command(f"{line} --on-multi-spike {mode}")
        says[mode] = json.loads((folder / "build/report.json").read_text())
        assert code == 0 and says[mode]["provenance"]["options"]["on_multi_spike"] == mode
        assert says[mode]["multi_spike"]["text"] in " ".join(out.split())
    sent = {mode: doc["multi_spike"]["sent"]["messages_per_sample"] for mode, doc in says.items()}
    assert sent["repeat"] > sent["graded"] == says["repeat"]["multi_spike"]["binary"]["messages_per_sample"]
    assert command("crosscheck build/net.nwc --input data.npz")[0] == 0
    np.savez("graded.npz", x=np.full((1, 3, 6), 3))
    assert command("simulate build/net.nwc --input graded.npz")[0] == 0


def test_cli_lists_the_ways_to_send_several_spikes(command, model):
    code, _, err = command("compile toy:make --chip loihi1 --on-multi-spike repeated -o build")
    assert code == 2 and "unknown on-multi-spike 'repeated'; choose one of: repeat, graded, refuse" in err
