"""Error codes: NW4001 and others, one for each kind of cause, the same in all releases, each with a page.

The code follows from where an error is raised, since a file is one idea: `raised_in` names packages, modules and
functions of nwcompile (`ir.chip:Chip.load`), and the longest name that holds the raising function decides. A class
(`FitError`) has its code wherever it is raised; `else:ModelError` is what no other row tells of. So raising an error
needs no number beside its sentence, and a new one in an old file has a code already; a new file is added to a row.
Pages: `docs/errors/NW4001.md`, which `nwcompile explain NW4001` prints.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import TracebackType

PACKAGE = Path(__file__).resolve().parent
PAGES = PACKAGE / "error_pages" if (PACKAGE / "error_pages").is_dir() else PACKAGE.parent / "docs" / "errors"


@dataclass(frozen=True)
class ErrorCode:
    """One kind of cause: its code, what is wrong in one line, and where errors of it are raised."""

    code: str
    title: str
    raised_in: str

    @property
    def page(self) -> Path:
        """What it means, an example that raises it, and what to do."""
        return PAGES / f"{self.code}.md"


CODES = (
    # the command line, options, packages
    ErrorCode("NW1000", "The system lacks memory, or refuses to read or write", "else:NwError"),
    ErrorCode(
        "NW1001",
        "The command line has a verb, flag or word that is unknown",
        "cli:_run cli.arguments",
    ),
    ErrorCode("NW1002", "Flags are missing, or do not go together", "cli"),
    ErrorCode(
        "NW1003",
        "What was named is no model or program",
        "cli.inputs.load:check_kind cli.inputs.load:program_of",
    ),
    ErrorCode(
        "NW1004",
        "A factory gives no model",
        "cli.inputs.load:network_of cli.inputs.load:_factory cli.inputs.load:_call",
    ),
    ErrorCode("NW1005", "There is no place for the results", "cli.inputs.load:writable cli.inputs.load:writable_file"),
    ErrorCode(
        "NW1006",
        "A file of samples or labels cannot be used",
        "cli.inputs.data cli.evaluate cli.robustness cli.bits:_labels cli.bits:_labeled cli.bits:_split",
    ),
    ErrorCode(
        "NW1007",
        "The widths of weights, or what they may cost, cannot be used",
        "cli.bits cli.bits_file passes.prepare.weight_bits workbench.bit_width_search",
    ),
    ErrorCode("NW1008", "A log of spikes does not fit the program", "cli.inputs.spike_log sim.spike_log"),
    ErrorCode(
        "NW1009", "The work needs more memory than there is", "memory argument_types:checked NotEnoughMemoryError"
    ),
    ErrorCode("NW1010", "An argument of a function has the wrong type", "argument_types:_verify"),
    ErrorCode(
        "NW1101",
        "An option of compiling is unknown or out of range",
        "ir.options errors:whole plugins:chosen passes.stages.run:_position else:OptionError",
    ),
    ErrorCode(
        "NW1102",
        "An optional package is not installed",
        "ir.shown:data_frame passes.partition.baselines.hypergraph:library cli.completion:library "
        "workbench.sweep.search workbench.sweep.workers:_processes workbench.sweep.workers:_dask "
        "nn.data.event_files:library",
    ),
    ErrorCode(
        "NW1103",
        "A plugin cannot give what it promises",
        "plugins ir.chip:Chip._of_plugin cli.inputs.load:_read_by_plugin cli.export:exporter",
    ),
    # models that come from files and frameworks
    ErrorCode("NW2000", "The network, or what is given to it, cannot be used", "else:ModelError"),
    ErrorCode("NW2001", "An HDF5 file cannot be read", "frontend.hdf5 frontend.hdf5_child"),
    ErrorCode("NW2101", "A NIR file or graph is not whole", "frontend.nir.file frontend.nir.wiring frontend.nir.order"),
    ErrorCode("NW2102", "What a NIR file leaves unsaid is missing or wrong", "frontend.nir frontend.nir.overrides"),
    ErrorCode("NW2103", "The neurons of a NIR node cannot be read", "frontend.nir.dialects"),
    ErrorCode("NW2104", "A NIR node without neurons cannot be read", "frontend.nir.stateless"),
    ErrorCode(
        "NW2105",
        "A network cannot be written as NIR",
        "frontend.nir.write frontend.nir.tree frontend.nir.nearest_operation",
    ),
    ErrorCode(
        "NW2106",
        "The notes in a NIR file do not hold",
        "frontend.nir.noted frontend.nir.notes frontend.nir:_as_noted",
    ),
    ErrorCode("NW2201", "A lava-dl file is not whole", "frontend.lava"),
    ErrorCode(
        "NW2202",
        "The neurons of a lava-dl layer cannot be read",
        "frontend.lava.neuron frontend.lava.programs frontend.lava.slayer",
    ),
    ErrorCode(
        "NW2203",
        "The synapses or delays of a lava-dl layer cannot be read",
        "frontend.lava.wires frontend.lava.delay",
    ),
    ErrorCode("NW2301", "A torch module does what cannot be followed", "frontend.torch"),
    ErrorCode("NW2302", "The example input of from_torch cannot be used", "frontend.torch.inputs"),
    ErrorCode(
        "NW2303",
        "A framework's neurons have a setting that is not supported",
        "frontend.torch.kind frontend.torch.kinds",
    ),
    ErrorCode(
        "NW2304",
        "The steps of a torch module differ from each other",
        "frontend.torch.check:_verify_calls frontend.torch.check:_verify_steps frontend.torch.build:Builder",
    ),
    ErrorCode("NW2305", "A network cannot be converted to spikes", "frontend.torch.convert frontend.torch.activations"),
    ErrorCode("NW2306", "A module cannot be trained in the chip's integers", "frontend.torch.quantize_aware nn.qat"),
    ErrorCode("NW2401", "Real values cannot be encoded as spikes", "frontend.encode"),
    # the network and what is made from it
    ErrorCode("NW3001", "Layers and inputs make no network", "ir.network"),
    ErrorCode("NW3002", "A connection does not fit its ends, or its numbers", "ir.connection"),
    ErrorCode("NW3003", "A neuron has a field that is wrong", "ir.neuron"),
    ErrorCode("NW3004", "A neuron program is wrong", "ir.neuron_programs"),
    ErrorCode("NW3005", "A function cannot be made a neuron", "nn.neurons"),
    ErrorCode("NW3006", "An activity is not one of the network", "ir.activity"),
    ErrorCode("NW3007", "A mapping or a schedule is not one of the network", "ir.mapping ir.schedule"),
    ErrorCode("NW3008", "A run is not whole, or lacks what was asked of it", "ir.run"),
    # chips
    ErrorCode(
        "NW4001",
        "A chip is unknown, or its file cannot be read",
        "ir.chip:Chip.load ir.chip:Chip._of_file ir.chip:Chip.from_toml else:ChipError",
    ),
    ErrorCode(
        "NW4002",
        "A key of a chip file is unknown, missing or out of range",
        "ir.chip ir.chip_check:check_names ir.chip_check:read_section ir.chip_check:check_value "
        "ir.chip_check:_check_number ir.chip_check:_typed",
    ),
    ErrorCode("NW4003", "Keys of a chip file contradict each other", "ir.chip:Chip.verify ir.chip_check"),
    ErrorCode("NW4004", "A figure of a chip file has no source", "ir.chip:Chip._verify_sources"),
    ErrorCode("NW4005", "Messages find no way on the chip, or could block each other", "ir.noc"),
    ErrorCode("NW4006", "Sites for input and output are wrong", "ir.chip_check:check_io"),
    # compiling
    ErrorCode("NW5001", "The network does not fit the chip", "FitError"),
    ErrorCode(
        "NW5002",
        "Approximating costs too much, or its price cannot be measured",
        "LossError passes.legalize.price passes.legalize.approximate",
    ),
    ErrorCode("NW5003", "A partitioner cannot do this", "passes.partition"),
    ErrorCode("NW5004", "A placer gives no placement", "passes.place"),
    ErrorCode("NW5005", "Sites for cores of a layer are wrong", "passes.fit.fixed_sites"),
    ErrorCode(
        "NW5006",
        "What should be least needs figures that the chip file lacks",
        "passes.partition.floorline.objective passes.partition.floorline.step_time cost.traffic.route_cost",
    ),
    ErrorCode("NW5007", "Input cannot come to the chip", "passes.prepare.input_layer"),
    ErrorCode(
        "NW5008",
        "A network cannot be put into the compiler's form",
        "passes.prepare.normalize cost.traffic.wiring cost.layer_calls cost.neurobench:fan_out",
    ),
    ErrorCode("NW5009", "Layers feed each other too fast for a pipelined chip", "passes.prepare.schedule"),
    ErrorCode("NW5010", "Neurons or weights cannot be written in the chip's integers", "passes.quantize"),
    ErrorCode(
        "NW5011",
        "A stage is given a network of the wrong kind",
        "passes.emit passes.fit.check passes.stages.prepare flow",
    ),
    # running
    ErrorCode("NW6001", "Input does not fit the network", "sim.inputs"),
    ErrorCode("NW6002", "Input has values that the program or the chip does not take", "sim.values sim.host"),
    ErrorCode("NW6003", "Labels do not fit the output", "sim.accuracy sim.robustness:verified_labels"),
    ErrorCode("NW6004", "A stream is fed wrongly", "sim.session cli.inputs.stream"),
    ErrorCode(
        "NW6101",
        "A backend is unknown, or does not cover what was asked",
        "sim sim.cycle.overload sim.cycle.merges else:BackendError",
    ),
    ErrorCode(
        "NW6102",
        "There is no GPU, or no Triton",
        "sim.sequence.cuda.device nn.ops.device nn.ops.torch_ops:kernels",
    ),
    ErrorCode("NW6103", "Sums or weights are too large for a kernel", "sim.sequence nn.ops"),
    ErrorCode("NW6104", "A step of the chip does not end", "sim.cycle.run"),
    ErrorCode("NW6105", "The float network to compare with is not the program's", "sim.float_difference"),
    ErrorCode("NW6106", "Devices cannot be varied so", "sim.variation sim.robustness"),
    ErrorCode(
        "NW6201",
        "Packets or load for a network on chip are wrong",
        "sim.cycle.noc sim.cycle.packets sim.cycle.bus cli.noc",
    ),
    # files and reports
    ErrorCode("NW7001", "A file is no whole .nwc program", "ir.artifact:read ir.program ir.host ir.manifest"),
    ErrorCode("NW7002", "A file cannot be read or written", "ir.artifact else:ArtifactError"),
    ErrorCode(
        "NW7003",
        "What a report is given does not belong together",
        "report.json cost.summary cost.compare cost.neurobench",
    ),
    ErrorCode("NW7004", "No chip is named to estimate for", "workbench"),
    ErrorCode("NW7005", "The grid or the plan of a sweep is wrong", "workbench.sweep cli.sweep"),
    ErrorCode("NW7006", "The folder of a sweep cannot be used", "workbench.sweep.store"),
    ErrorCode(
        "NW7007",
        "The workers of a sweep are missing or have stopped",
        "workbench.sweep.workers workbench.sweep.measure",
    ),
    ErrorCode("NW7008", "The folder of a checkpoint cannot be used", "checkpoint"),
    ErrorCode("NW7101", "A program cannot be exported to RANC", "report.export.ranc report.export.ranc_design"),
    ErrorCode("NW7102", "A program cannot be exported to SANA-FE", "report.export.sanafe report.export.sanafe_network"),
    ErrorCode("NW7103", "A program cannot be exported to Xylo", "report.export.xylo"),
    ErrorCode("NW7104", "A run cannot be shown as a timeline", "report.export.perfetto"),
    # training
    ErrorCode("NW8001", "A trainable layer is given a wrong size, parameter or input", "nn.layers nn.event"),
    ErrorCode("NW8002", "Mismatch cannot be trained or drawn so", "nn.layers.mismatch nn.training.inject"),
    ErrorCode("NW8003", "A loss, a metric or pruning is given what it cannot use", "nn.training"),
    ErrorCode(
        "NW8101",
        "Recordings of events cannot be made bins or frames",
        "nn.data.events nn.data.event_files nn.data.binning nn.data.coding",
    ),
    ErrorCode("NW8102", "Samples do not make a data set or a batch", "nn.data"),
    ErrorCode("NW8103", "A cache of samples cannot be kept or read", "nn.data.cache"),
    ErrorCode("NW8201", "A pipeline over processes cannot run", "nn.distributed"),
)
BY_CODE = {row.code: row for row in CODES}
PACKAGE_NAME = "nwcompile"
OTHERWISE = "else:"  # Before the name of a class: its errors that no other row tells of.


def code_of(error: BaseException) -> str:
    """The code of an error of nwcompile."""
    rows = _by_name()
    classes = [kind.__name__ for kind in type(error).__mro__]
    places = _places(_raised_in(error.__traceback__))
    names = [*classes, *places, *(OTHERWISE + name for name in classes)]
    return next(rows[name] for name in names if name in rows)


def _places(place: str) -> list[str]:
    """The names that hold a place, the longest first: `ir.chip:Chip.load`, `ir.chip:Chip`, `ir.chip`, `ir`."""
    module, _, function = place.partition(":")
    inner, outer = function.partition(".<locals>")[0].split("."), module.split(".")
    names = [f"{module}:{'.'.join(inner[:n])}" for n in range(len(inner), 0, -1)]
    return names + [".".join(outer[:n]) for n in range(len(outer), 0, -1)]


def _raised_in(traceback: TracebackType | None) -> str:
    """The last function of this package that a traceback went through, as `ir.chip:Chip.load`; empty without one."""
    place = ""
    while traceback is not None:
        package, _, module = traceback.tb_frame.f_globals.get("__name__", "").partition(".")
        if package == PACKAGE_NAME:
            place = f"{module}:{traceback.tb_frame.f_code.co_qualname}"
        traceback = traceback.tb_next
    return place


@cache
def _by_name() -> dict[str, str]:
    """The code of every place and class of the table."""
    return {name: row.code for row in CODES for name in row.raised_in.split()}
