"""Export to RANC: memory files equal to those that its RTL ran, packets, and what is refused."""

import json

import numpy as np
import pytest

import nwcompile as nw
from nwcompile.errors import ChipError, ModelError
from nwcompile.families.merges.export import ranc_files
from nwcompile.families.merges.export_design import Design
from nwcompile.families.merges.export_memory import (
    NEURON,
    CoreMemory,
    Parameters,
    axon_types,
    csram,
    packet_words,
)
from nwcompile.ir.chip import Chip
from nwcompile.ir.connection import Dense
from nwcompile.ir.network import Network
from nwcompile.ir.neuron import FixedPoint, NeuronSpec
from nwcompile.report.json.collect import collect_report
from tests.made.ranc_cases import CASES, bus, case, recorded_input, recorded_program, weights

FIELDS = {
    "v0": "v0",
    "reset_potential": "reset_potential",
    "leak": "leak",
    "threshold": "th",
    "negative_threshold": "neg",
    "reset_mode": "reset_mode",
    "dx": "dx",
    "dy": "dy",
    "axon": "dst_axon",
    "delay": "delay",
}


def parameters(rtl: dict) -> Parameters:
    return Parameters(
        columns=rtl["X"],
        rows=rtl["Y"],
        n_neurons=rtl["N"],
        n_axons=rtl["A"],
        n_types=rtl["NW"],
        potential_bits=rtl["PW"],
        weight_bits=rtl["WW"],
        leak_bits=rtl["LW"],
        buffer_depth=rtl["buffer_depth"],
        bus=(rtl["bus_x"], rtl["bus_y"]),
        n_outputs=rtl["NUM_OUTPUTS"],
    )


def recorded_core(rtl: dict, core: int) -> CoreMemory:
    neuron = np.zeros(rtl["N"], NEURON)
    for ours, theirs in FIELDS.items():
        neuron[ours] = rtl[theirs][core]
    return CoreMemory(neuron, rtl["conn"][core] != 0, rtl["weights"][core], rtl["axon_type"][core])


@pytest.mark.parametrize("name", CASES)
def test_memory_files_of_recorded_networks_are_equal_byte_for_byte(name):
    rtl = case(name)
    p = parameters(rtl)
    for core in range(p.columns * p.rows):
        if core != bus(rtl):
            memory = recorded_core(rtl, core)
            assert csram(p, memory) == b"".join(line + b"\n" for line in rtl["csram"][core]), core
            assert axon_types(p, memory) == b"".join(line + b"\n" for line in rtl["tc"][core]), core
    tick, core, axon, delay, word = rtl["input_packets"].T
    ours = packet_words(p, core % p.columns, core // p.columns, axon, delay)
    assert [int(bits, 2) for bits in ours] == word.tolist()


def recorded_axon(rtl: dict, program, numbers, source: int) -> int:
    """The axon that an input line or a neuron of `recorded_program` sets."""
    n_lines = program.network.inputs["in"].n_neurons
    number = np.concatenate([numbers[name] for name in program.network.layers])
    return source % rtl["A"] if source < n_lines else int(rtl["dst_axon"].reshape(-1)[number[source - n_lines]])


@pytest.mark.parametrize("name", ["one_neuron", "five_8x8_a", "five_256x256", "grid3x3_two_layers"])
def test_design_of_a_program_holds_what_the_rtl_held(name):
    """But for the numbers of axons, and neurons that nobody hears, which it leaves out."""
    rtl = case(name)
    program, numbers = recorded_program(rtl)
    design, added, n_heard = Design(program), weights(rtl), 0
    for core, number, source, delay in design.axons:
        place, axon = design.place[core], recorded_axon(rtl, program, numbers, source)
        memory = design.cores[int(place)]
        heard = memory.neuron["threshold"] == rtl["th"][place]
        ours = (memory.weight[:, memory.axon_type[number]] * memory.connected[:, number])[heard]
        assert np.array_equal(ours, added[place, heard, axon])
        assert source < rtl["A"] * rtl["X"] * rtl["Y"] or delay in rtl["delay"]
    for place, memory in design.cores.items():
        slots = np.flatnonzero(memory.connected.any(1))
        n_heard += len(slots)
        to_value = memory.neuron["reset_mode"][slots] == 0
        assert np.array_equal(memory.neuron["reset_potential"][slots], rtl["reset_potential"][place][slots] * to_value)
        for ours in set(FIELDS) - {"axon", "reset_potential"}:
            assert np.array_equal(memory.neuron[ours][slots], rtl[FIELDS[ours]][place][slots]), (place, ours)
    assert n_heard > 0.7 * design.is_heard[rtl["A"] * rtl["X"] * rtl["Y"] :].sum()


@pytest.mark.parametrize("name, window", [("two_layers_types_aligned", "aligned"), ("dense_9bit_aligned", "aligned"),
                                          ("two_layers_types_hardware", "hardware")])  # fmt: skip
@pytest.mark.parametrize("backend", ["reference", "cycle", "sequence"])
def test_layers_in_a_pipeline_are_the_rtl_in_both_windows(name, window, backend):
    """With aligned steps a layer of depth k is k - 1 ticks late, for which its v0 makes up."""
    rtl = case(name)
    program, numbers = recorded_program(rtl, is_pipeline=True)
    assert program.schedule.depth == 2
    late = int(window == "hardware")
    x = {"in": np.concatenate([recorded_input(rtl)["in"][:, late:], np.zeros((1, late, rtl["A"] * 3), np.int32)], 1)}
    run = nw.simulate(program, x, backend, record="all", window=window)
    design = Design(program)
    for layer, ids in numbers.items():
        k = 1 if window == "hardware" else program.schedule.offset[layer]
        n = rtl["T"] - k + 1
        for ours, key in ((run.spikes[layer], "rtl_spike"), (run.states[layer]["v"], "rtl_v")):
            assert np.array_equal(ours[0, :n], rtl[key].reshape(rtl["T"], -1)[k - 1 :, ids]), (layer, key)
        if window == "aligned":
            first = program.network.offsets[layer]
            assert np.array_equal(design.registers["v0"][first : first + len(ids)], rtl["v0"].reshape(-1)[ids])


def test_files_of_a_sample_are_what_was_sent_and_came_out():
    rtl = case("two_layers_types_aligned")
    program, _ = recorded_program(rtl, is_pipeline=True)
    x = {"in": recorded_input(rtl)["in"][0]}
    files = {path.name: data.decode("latin1") for path, data in ranc_files(program, "d", x).items()}

    def table(name: str) -> np.ndarray:
        return np.array([line.split(",") for line in files[name].splitlines()[1:]])

    sent = table("input_packets.csv")
    assert sent[:, 0].astype(int).tolist() == np.sort(rtl["input_packets"][:, 0]).tolist()
    tick, core, slot = np.nonzero(rtl["rtl_spike"])
    spikes = table("expected_spikes.csv").astype(int)
    spikes = spikes[spikes[:, 0] < rtl["T"]]
    heard = {(core, slot) for core, slot in table("neurons.csv")[:, 2:4].astype(int).tolist()}
    recorded = np.stack([tick, core, slot], 1).tolist()
    assert spikes.tolist() == [spike for spike in recorded if tuple(spike[1:]) in heard]
    assert len(spikes) > 0.9 * len(recorded)  # but for neurons that nobody hears
    out = table("expected_outputs.csv").astype(int)
    out = out[out[:, 0] < rtl["T"]]
    assert out.tolist() == rtl["rtl_out"].tolist()
    assert files["tb_correct.txt"].split()[: len(out)] == [f"{n:04b}" for n in rtl["rtl_out"][:, 1]]
    n_sent = np.bincount(sent[:, 0].astype(int), minlength=rtl["T"]).tolist()
    assert [int(n) for n in files["tb_num_inputs.txt"].split()] == n_sent
    doc = json.loads(files["simulator.json"])
    assert [len(packets) for packets in doc["packets"]] == n_sent
    assert len(doc["cores"]) == 2 and doc["output_bus"] == {"coordinates": [2, 0], "num_outputs": 10}
    config = json.loads(files["simulator_config.json"])
    assert config["neuron_reset_type"] == 0 and config["num_cores_x"] == 3  # it reads this key, and stops without it
    assert "out.txt simulator_config.json" in files["README.txt"].replace("\n ", "")
    assert json.loads(files["parameters.json"])["POTENTIAL_WIDTH"] == 20
    assert "Potentials of 20 bits cannot wrap in the first" in files["README.txt"]


def small(n_layers: int = 2, edges=(), bits: int = 24, destinations: int = 1, delay: int = 0, **fields) -> nw.Program:
    """Layers of 4 neurons that add up, in a row."""
    spec = NeuronSpec(threshold=5, strict=False, reset="subtract", fixed=FixedPoint(bits, 12, 0, "modulo"), **fields)
    names = [f"l{i}" for i in range(n_layers)]
    weight = np.arange(16, dtype=np.int16).reshape(4, 4) - 3
    row = [
        Dense(a, b, weight, delay=0 if i else delay)
        for i, (a, b) in enumerate(zip(["in", *names], names, strict=False))
    ]
    network = Network.from_arrays(dict.fromkeys(names, (spec, (4,))), [*row, *edges], {"in": (4,)})
    limits = {"state.bits": bits, "core.max_neuron_destinations": destinations}
    return nw.compile(network, Chip.load("ranc_dense").replace(limits))


def test_narrow_potentials_are_refused_where_a_sample_could_make_them_wrap():
    x = {"in": np.ones((40, 4), np.int8)}
    program = small(bits=9, bias=1)
    n_proved = Design(program).n_proved_ticks
    assert ranc_files(program, "d", {"in": x["in"][: n_proved - 2]})
    with pytest.raises(ModelError) as error:
        ranc_files(program, "d", x)
    text = f"potentials of 9 bits may wrap after {n_proved} ticks, and the sample takes 41; compile with a larger "
    assert str(error.value) == text + "state.bits"
    run = nw.simulate(program, x["in"][None, :n_proved], record="all")
    assert max(np.abs(states["v"]).max() for states in run.states.values()) < 256


@pytest.mark.parametrize(
    "make, text",
    [
        (lambda: small(fires=False),
         "layer 'l0' never fires: RANC's potentials cannot be read; give it a threshold"),
        (lambda: small(edges=[Dense("l1", "l1", np.eye(4, dtype=np.int16), delay=1)], destinations=2),
         "layer 'l1' is an output and feeds 'l1'; a neuron of RANC sends to one place, so add a layer for the output"),
        (lambda: small(3, bias=-6),
         "layer 'l2' begins 2 ticks late, and until then its leak reaches a threshold; RANC cannot hold a layer back"),
        (lambda: small(delay=1, bias=5),
         "layer 'l0' has its step 0 before the first tick, and its leak reaches a threshold in it; RANC cannot hold a "
         "layer back"),
        (lambda: small(3, [Dense("l0", "l2", np.eye(4, dtype=np.int16))]),
         "neuron 0 of layer 'l0' is read in 2 ways (cores or delays), and a neuron of RANC sends to one axon with one "
         "delay; put a layer between"),
    ],
)  # fmt: skip
def test_what_ranc_cannot_be_loaded_with_is_refused(make, text):
    with pytest.raises(ModelError) as error:
        Design(make())
    assert str(error.value) == text


def test_program_of_another_chip_is_refused():
    network = Network.from_arrays(
        {"a": (NeuronSpec(), (2,))}, [Dense("in", "a", np.ones((2, 1), np.float32))], {"in": (1,)}
    )
    with pytest.raises(ChipError, match='tiny: noc.router: RANC has "merges"; compile for ranc'):
        Design(nw.compile(network, "tiny"))


@pytest.mark.parametrize("key", ["core.max_in_axons", "weights.axon_types"])
def test_a_chip_file_without_a_figure_that_ranc_is_built_for_is_refused(key):
    section, name = key.split(".")
    table = Chip.load("ranc").to_dict()
    del table[section][name]
    network = Network.from_arrays({"a": NeuronSpec()}, [Dense("in", "a", np.eye(4, dtype=np.float32))], {"in": (4,)})
    with pytest.raises(ChipError, match=f"ranc: {key}: missing key; RANC is built for a number of them"):
        ranc_files(nw.compile(network, Chip.from_dict(table)), ".")


def test_output_neurons_that_send_elsewhere_too_do_not_fit():
    with pytest.raises(nw.FitError, match="destination cores of a neuron  l1 -> core 1  2 of 1"):
        small(edges=[Dense("l1", "l1", np.eye(4, dtype=np.int16), delay=1)])


def test_no_mapping_shortens_a_step_in_which_all_slots_are_visited():
    """More cores take as long; only a design with fewer slots would be faster."""
    program = small()
    run = nw.simulate(program, np.ones((1, 5, 4), np.int8), "cycle")
    said = collect_report(program, run)["advice"]
    assert said["gain"] == 1 and said["text"] == (
        "none for the mapping: a core visits all its 256 slots, used or not, for 100 % of each step; a design with "
        "fewer (core.max_neurons) is faster"
    )
    network, x = program.network, np.ones((1, 5, 4), np.int8)
    with pytest.raises(nw.FitError) as error:
        nw.compile(network, program.chip, x, nw.Options(optimize="cores", step_limit_us=600))
    assert "raise step_limit_us: a core visits all its slots in every step, which takes 660.5 us" in str(error.value)
