"""What a file says of a program beside its parts: of the types that are written, or refused when it is loaded."""

import copy
import random
from dataclasses import replace
from math import nan

import numpy as np
import pytest

import nwcompile as nw
from nwcompile.errors import ArtifactError
from nwcompile.ir import artifact
from nwcompile.ir.manifest import Manifest, name_own_layers
from nwcompile.report.html.page import render_html
from nwcompile.report.json.collect import collect_report
from nwcompile.report.terminal import render_text

OF_OTHER_TYPES = ("x", 5, -1.5, nan, True, None, [], {}, [None], {"a": 1})
LAYER = {"layer": "a"}
STATE = {"state": "v", "unit": None, "scale": 1.0, "bits": 8, "overflow": "modulo", "bound": None, "largest": 1 << 70}
CHANGE = {"layer": "a", "was": "b", "has": "c", "how": "d", "label": "exact", "price": None}
PRICE = {"n_samples": 4, "spikes_changed_percent": 1.0, "output_changed_percent": None}
ACCURACY = {"accuracy_ideal": 0.5, "accuracy_chip": 0.25}


@nw.neuron
def adaptive(state, x, beta=0.9, jump=0.3):
    v = beta * state.v + x
    threshold = (state.a / 4).exp()
    spike = nw.nn.spike(v, threshold)
    return {"v": v - spike * threshold, "a": beta * state.a + jump * spike}, spike


@pytest.fixture(scope="module")
def program() -> nw.Program:
    """Of a neuron program with a table, and with the entries that only other networks have."""
    rng = np.random.default_rng(0)
    edges = [nw.Dense(s, t, rng.normal(0.3, 0.5, (6, 6)).astype(np.float32)) for s, t in ("xa", "ab")]
    layers = {"a": (adaptive.program(), (6,)), "b": (nw.NeuronSpec(beta=0.5), (6,))}
    network = nw.Network.from_arrays(layers, edges, {"x": (6,)})
    made = nw.compile(network, "loihi2", (rng.random((8, 9, 6)) < 0.4).astype(np.float32))
    others = {
        "legalization": [{**CHANGE, "label": "approximate", "price": {"rate_ideal": 0.5, "rate_chip": 0.25}}],
        "price": {**PRICE, **ACCURACY, "accuracy_lost_interval_points": [-1.0, 2.0]},
        "fewest_cores": {"n_cores": 1, "step_us": 2.5},
        "tried_cores": [{"n_cores": 1, "fits": True, "step_us": None, "objective": 2.5}],
    }
    return replace(made, manifest={**made.manifest, **others})


def places(value, place=()):
    """Every place in a nested value."""
    yield place
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*place, key))


def test_the_manifest_has_every_entry(program):
    assert set(program.manifest) == set(Manifest.__annotations__)
    assert program.manifest["quantization"][0]["states"] and program.manifest["quantization"][0]["tables"]


def test_a_program_with_altered_entries_is_refused_or_reported(program, tmp_path):
    manifest, arrays = artifact.decode(program.data, "net")
    run = nw.simulate(program, np.ones((1, 4, 6)))
    file, rng, n_refused, n_reported = tmp_path / "net.nwc", random.Random(0), 0, 0
    for place in places(program.manifest):
        if not place:
            continue
        altered = copy.deepcopy(manifest)
        table = altered
        for key in place[:-1]:
            table = table[key]
        if rng.random() < 0.3:
            del table[place[-1]]
        else:
            table[place[-1]] = rng.choice(OF_OTHER_TYPES)
        file.write_bytes(artifact.encode(altered, arrays))
        try:
            loaded = nw.Program.load(file)
        except ArtifactError:
            n_refused += 1
            continue
        doc = collect_report(loaded, run)
        assert render_text(doc) and render_html(doc)
        n_reported += 1
    assert n_refused > 50 and n_reported > 20


@pytest.mark.parametrize(
    ("entry", "value", "text"),
    [
        ("warnings", "one", "warnings is not what this version writes"),
        ("seed", 1.5, "seed is not what this version writes"),
        ("quantization", [{"scale": 1.0}], "quantization is not what this version writes"),
        ("quantization", [{**LAYER, "bits": "8"}], "quantization is not what this version writes"),
        ("quantization", [{**LAYER, "tau_v": [1.0]}], "quantization is not what this version writes"),
        ("quantization", [{**LAYER, "states": [{**STATE, "overflow": "wrap"}]}],
         "quantization is not what this version writes"),
        ("quantization", [{**LAYER, "scale": nan}], "the manifest has a number that is not finite"),
        ("legalization", [{**CHANGE, "label": "free"}],
         "Change: label='free' must be one of 'exact', 'approximate', 'host'"),
        ("legalization", [{**CHANGE, "costs": 1}], "legalization is not what this version writes"),
        ("price", {**PRICE, "accuracy_ideal": 0.5}, "price is not what this version writes"),
        ("fewest_cores", {"n_cores": 1}, "fewest_cores is not what this version writes"),
        ("tried_cores", [{"n_cores": 1}], "tried_cores is not what this version writes"),
    ],
)  # fmt: skip
def test_entries_of_other_types_are_refused(program, entry, value, text):
    with pytest.raises(nw.NwError) as caught:
        replace(program, manifest={entry: value}).verify()
    assert str(caught.value) == text


def test_entries_that_older_versions_left_out_may_be_absent(program):
    manifest = {
        "quantization": [{**LAYER, "states": [STATE]}],
        "legalization": [CHANGE],
        "price": {**PRICE, **ACCURACY},
    }
    replace(program, manifest=manifest).verify()
    replace(program, manifest={}).verify()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("split a/copy2 over 3 cores", "split a (one of its copies) over 3 cores"),
        ("a/splitter -> core 1", "a (its splitter) -> core 1"),
        ("conv/1/relay3 needs 'b/2/part1'", "conv/1 (its relay neurons) needs 'b (a partial sum)'"),
        ("a/relay1/copy2 and a/max/b", "a (its relay neurons) and a (its maximum)"),
        ("a/full, a/sums2, b/gates", "a (before pooling), a (its sums), b (its products)"),
        ("own/copy2 of aa/copy2 is events/step", "own/copy2 of aa/copy2 is events/step"),
        ("f.0/max/f.3 after a/copy.0.", "f.0 (its maximum) after a/copy.0."),
        (
            "a/copy b is a/copy-b, of a/copy2: f.3/copy",
            "a/copy b is a/copy-b, of a (one of its copies): f.3 (one of its copies)",
        ),
    ],
)
def test_names_of_inserted_layers_become_those_of_the_user(text, said):
    assert (
        name_own_layers(text, {*"ab", "conv/1", "own", "own/copy2", "f.0", "f.3", "a/copy.0", "a/copy b", "a/copy-b"})
        == said
    )
