"""Program: the configuration of a chip: fixed-point network with effective weights, schedule, mapping and axons."""

from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from nwcompile.argument_types import checked
from nwcompile.errors import ArtifactError, ModelError, NwError
from nwcompile.ir import artifact
from nwcompile.ir import connection as connections
from nwcompile.ir.activity import Activity, MultiSpike
from nwcompile.ir.chip import Chip
from nwcompile.ir.flat import cores_of_sources, count_lines, count_neurons, csr_groups, join_layers
from nwcompile.ir.host import Encoding, Host, add_registers
from nwcompile.ir.manifest import verify_manifest
from nwcompile.ir.mapping import Mapping
from nwcompile.ir.network import Network, Node
from nwcompile.ir.neuron import FixedPoint, NeuronSpec
from nwcompile.ir.neuron_programs.program import NeuronProgram
from nwcompile.ir.options import ON_MULTI_SPIKE
from nwcompile.ir.readout import Readout
from nwcompile.ir.schedule import Schedule
from nwcompile.ir.shown import count_text, format_lines, grouped
from nwcompile.lazy_names import look_up

ERROR_CODE = "NW7001"
SCHEMA = 2  # Version of the content of .nwc files, see docs/artifact.md.
HOST_SCHEMA = 3  # For programs with a host; tools that do not know hosts must not run them.
PROGRAM_SCHEMA = 4  # For programs with neuron programs, for the same reason.
READOUT_SCHEMA = 5  # For programs with a readout, for the same reason.
STAGGER_SCHEMA = 6  # For programs with staggered layers, for the same reason.
OLD_SCHEMA = 1  # The release before; still readable. Its option `optimise` is `optimize` now.
DENSE, SPARSE, CONV = range(3)  # rows of `SYNAPSE_KINDS`
SYNAPSE_KINDS = ("dense", "sparse", "conv")
WEIGHT_TYPES = (np.int8, np.int16, np.int32)
# Kinds of connections in a file; the network of a host may have any of them.
KINDS: dict[str, Any] = {kind.__name__: kind for kind in connections.Connection.__subclasses__()}


@dataclass(frozen=True, eq=False)
class Axons:
    """Axon table: one axon per (source, destination core), with what a message on it reads.

    Sources are input lines and neurons in the order of `Network.offsets`. CSR by source: axons of source s are
    `offset[s]:offset[s+1]`, sorted by core.
    """

    offset: np.ndarray  # int64[source + 1]
    core: np.ndarray  # int32[axon]: destination (logical core)
    synops: np.ndarray  # int32[axon, 3]: stored weights read, by kind (dense, sparse, conv)
    words: np.ndarray  # int32[axon]: synapse-memory words read
    row_bits: np.ndarray  # int64[axon]: synapse memory of the axon's rows in its core
    kernel_bits: np.ndarray  # int64[core]: shared kernels in each core (chips with weight sharing)

    @property
    def n_axons(self) -> int:
        """Number of axons."""
        return len(self.core)

    @cached_property
    def source(self) -> np.ndarray:
        """int32[axon]: source of each axon."""
        return csr_groups(self.offset).astype(np.int32)


AXON_TYPES = {"offset": np.int64, "core": np.int32, "synops": np.int32, "words": np.int32, "row_bits": np.int64,
              "kernel_bits": np.int64}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Program:
    """A network mapped to a chip. Every simulator takes it; `save` writes it, `Program.load` reads it back.

    `network` has only Dense, Conv2d and Sparse connections between inputs and layers, with effective integer weights
    (exponent 0, biases folded into the neurons). Its `host` is the part that the CPU computes before the chip.
    `manifest` is JSON: tool version, options, seed, per-layer quantization table, warnings. `on_multi_spike` is the
    handling of several spikes in a step (`Options`).
    """

    network: Network
    schedule: Schedule
    mapping: Mapping
    chip: Chip
    axons: Axons
    activity: Activity | None = None
    manifest: dict = field(default_factory=dict)
    on_multi_spike: str = "refuse"

    def __repr__(self) -> str:
        network, mapping = self.network, self.mapping
        n_neurons = count_text(count_neurons(network), "neuron")
        head = f"Program for {self.chip.name}: {count_text(len(network.layers), 'layer')}, {n_neurons} on "
        head += f"{grouped(mapping.n_cores)} of {count_text(self.chip.n_cores, 'core')}"
        rows = [
            f"{self.schedule.execution}, depth {self.schedule.depth}",
            f"{count_text(self.axons.n_axons, 'axon')}, "
            + count_text(int(self.axons.row_bits.sum() + self.axons.kernel_bits.sum()), "bit") + " of synapse memory",
            f"outputs: {', '.join(network.outputs)}",
            *([] if self.host is None else [f"input: {self.host.summary}"]),
            *([] if network.readout is None else [f"class: {network.readout.text}"]),
            *(f"warning: {text}" for text in self.warnings),
        ]  # fmt: skip
        return format_lines(head, rows, "warnings")

    def _repr_html_(self) -> str:
        return look_up("nwcompile.ir.program", "html_of_program")(self)

    def cores_frame(self, run=None):
        """Return a pandas.DataFrame with one row per core in use: site, layers, tables, synops and time of a mean step.

        Figures are means per step and sample of `run`; without a run they are predicted from the calibration. This and
        the two methods below have the content of report.json under "cores", "links" and "layers", with units in the
        names. Raises OptionError if pandas is not installed, and ModelError for a run of another program.
        """
        return look_up("nwcompile.ir.program", "cores_frame")(self, run)

    def links_frame(self, run=None):
        """Return a pandas.DataFrame with one row per link that carried flits: location, kind, mean flits of a step."""
        return look_up("nwcompile.ir.program", "links_frame")(self, run)

    def layers_frame(self, run=None):
        """Return a pandas.DataFrame with one row per layer: neurons, cores, limit, mean activity, quantization."""
        return look_up("nwcompile.ir.program", "layers_frame")(self, run)

    @property
    def host(self) -> Host | None:
        """The part that the CPU computes before the chip, or None."""
        return self.network.host

    def attach_host(self, network: Network, host: Host | None, registers: dict[str, Encoding]) -> "Program":
        """Return the program with the input layout of `network` and with `host`, whose `registers` are now known."""
        if (host, network.layout, network.left_out, network.readout) == (None, "BT", "", None):
            return self
        host = None if host is None else replace(host, gives={**host.gives, **registers})
        laid_out = self.network.change_layout(network.layout, network.n_steps)
        readout = None if network.readout is None else network.readout.in_integers(self.manifest["quantization"])
        return replace(self, network=replace(laid_out, host=host, left_out=network.left_out, readout=readout))

    @property
    def host_layers(self) -> dict[str, Node]:
        """Layers that spike on the host, by name."""
        return {} if self.host is None else {name: self.host.network.node(name) for name in self.host.layers}

    @cached_property
    def loaded_program(self) -> "Program":
        """The same program with the registers that the host writes as inputs; every backend runs this form."""
        return self.with_registers()

    def with_registers(self, registers: dict[str, str] | None = None) -> "Program":
        """Return the program with registers, {input: layer}, as further inputs; by default those of its host.

        A register is an input without axons. A value that is written in a step acts in that step of its layer, but one
        step later in a layer of offset 0, which comes first in a step.
        """
        full = add_registers(self.network, registers)
        if full is self.network:
            return self
        n_own, offset = len(self.network.connections), self.schedule.offset
        written = [c.replace(delay=int(offset[c.target] == 0)) for c in full.connections[n_own:]]
        full = replace(full, connections=(*self.network.connections, *written))
        schedule = replace(
            self.schedule,
            offset={**offset, **{c.source: 0 for c in written}},
            delay=(*self.schedule.delay, *(offset[c.target] or self.schedule.period for c in written)),
        )
        n_before = count_lines(self.network)
        n_written = count_lines(full) - n_before
        ends = self.axons.offset
        lines = np.full(n_written, ends[n_before])
        axons = replace(self.axons, offset=np.concatenate([ends[: n_before + 1], lines, ends[n_before + 1 :]]))
        return replace(self, network=full, schedule=schedule, axons=axons, activity=None)

    @property
    def repeats(self) -> bool:
        """Whether n spikes in a step are n messages to every destination; otherwise one message carries the count."""
        return self.on_multi_spike == "repeat"

    def message_flits(self, name: str) -> int:
        """Flits of one message of a layer or input, including the payload if it carries a count or a sign.

        Messages of inputs do so if the chip or `on_multi_spike` allows values other than 0 and 1.
        """
        noc, spec = self.chip.noc, self.network.node(name).neuron
        if spec is None:
            is_graded = self.on_multi_spike == "graded" or self.chip.neuron.spikes != ["binary"]
            carries = is_graded and not self.repeats
        else:
            carries = spec.message in ("bipolar", "graded") or (spec.message == "multi" and not self.repeats)
        return noc.flits_per_message + (noc.payload_flits if carries else 0)

    @cached_property
    def core_of(self) -> np.ndarray:
        """int32[source]: logical core of every source in the order of `Network.offsets`; -1 for input lines."""
        return cores_of_sources(self.network, join_layers(self.network, self.mapping.core_of))

    @cached_property
    def visiting_order(self) -> np.ndarray:
        """int64[neuron]: neurons by core, in the order of the core's visits; numbers as in `Network.offsets`."""
        neurons, visit = np.flatnonzero(self.core_of >= 0), self.mapping.visit
        place = join_layers(self.network, visit) if visit else neurons
        return neurons[np.lexsort((place, self.core_of[neurons]))]

    @property
    def _schema(self) -> int:
        if self.schedule.stagger:
            return STAGGER_SCHEMA
        if self.network.readout is not None:
            return READOUT_SCHEMA
        if self.network.programs:
            return PROGRAM_SCHEMA
        return SCHEMA if self.host is None else HOST_SCHEMA

    @property
    def output_scale(self) -> dict[str, float]:
        """Integer state units per unit of the float network's membrane, by layer."""
        return {row["layer"]: row.get("scale") for row in self.manifest.get("quantization", [])}

    @property
    def legalization(self) -> list[dict]:
        """Changes that the chip required, one row each (`ir/manifest.py:Change`)."""
        return self.manifest.get("legalization", [])

    @property
    def warnings(self) -> list[str]:
        """Warnings of the compiler, after the note on results that the import left out."""
        left_out = [self.network.left_out] if self.network.left_out else []
        return [*left_out, *self.manifest.get("warnings", [])]

    @cached_property
    def data(self) -> bytes:
        """Bytes of the .nwc file."""
        return artifact.encode(*self._pack_content())

    def _pack_content(self) -> tuple[dict, dict[str, np.ndarray]]:
        """Return manifest and arrays of the .nwc file."""
        pack = _Pack()
        schedule = {**asdict(self.schedule), "delay": list(self.schedule.delay)}
        if not self.schedule.stagger:
            del schedule["stagger"]
        manifest = {
            "schema": self._schema,
            **self.manifest,
            "chip": self.chip.to_dict(),
            "chip_hash": self.chip.hash,
            "network_hash": self.network.hash,
            "inputs": [[n.name, list(n.shape), *n.filled_by] for n in self.network.inputs.values()],
            "nodes": [pack.pack_node(n) for n in self.network.nodes.values()],
            "connections": [
                pack.pack_fields(f"connection{i}", c.canonical_fields()) for i, c in enumerate(self.network.connections)
            ],
            "schedule": schedule,
            "on_multi_spike": self.on_multi_spike,
            "mapping_note": {str(k): v for k, v in self.mapping.note.items()},
        }
        if self.network.layout != "BT":
            manifest["layout"] = {"name": self.network.layout, "n_steps": self.network.n_steps}
        if self.network.left_out:
            manifest["left_out"] = self.network.left_out
        if self.network.readout is not None:
            manifest["readout"] = self.network.readout.to_dict()
            pack.arrays |= {f"readout{k}": array for k, array in enumerate(self.network.readout.arrays)}
        if self.host is not None:
            manifest["host"] = pack.pack_host(self.host)
        pack.arrays["site_of"] = self.mapping.site_of
        for i, name in enumerate(self.network.layers):
            pack.arrays[f"core_of{i}"] = self.mapping.core_of[name]
            if self.mapping.visit:
                pack.arrays[f"visit{i}"] = self.mapping.visit[name]
        for f in fields(Axons):
            pack.arrays[f"axons_{f.name}"] = getattr(self.axons, f.name)
        if self.activity is not None:
            several = {name: multi.largest for name, multi in self.activity.multi.items()}
            manifest["activity"] = {"names": list(self.activity.counts), "n_samples": self.activity.n_samples,
                                    "several": several}  # fmt: skip
            for i, name in enumerate(self.activity.counts):
                pack.arrays[f"activity{i}"] = self.activity.counts[name]
                if name in self.activity.updates:
                    pack.arrays[f"updates{i}"] = self.activity.updates[name]
                if name in self.activity.heard:
                    pack.arrays[f"heard{i}"] = self.activity.heard[name]
                if name in several:
                    pack.arrays[f"multi{i}"] = self.activity.multi[name].by_source
        return manifest, pack.arrays

    @cached_property
    def hash(self) -> str:
        """SHA-256 at the end of the .nwc file."""
        return self.data[-artifact.DIGEST_BYTES :].decode()

    @checked()
    def save(self, path: Path | str) -> None:
        """Write the .nwc file atomically; raise ArtifactError if that fails, and leave no partial file.

        The file is written in pieces, so no second copy of the program is in memory.
        """
        known = vars(self)
        if "data" in known:
            artifact.write_bytes(path, self.data)
            return

        def write_program(stream) -> None:
            known["hash"] = artifact.write_archive(stream, *self._pack_content())

        artifact.write_files({path: write_program})

    @classmethod
    @checked()
    def load(cls, path: Path | str) -> "Program":
        """Read a .nwc file; raise ArtifactError if it is truncated, altered or of an unknown schema."""
        manifest, arrays = artifact.read_file(path)
        schema = manifest.get("schema")
        if schema not in (OLD_SCHEMA, SCHEMA, HOST_SCHEMA, PROGRAM_SCHEMA, READOUT_SCHEMA, STAGGER_SCHEMA):
            known = f"{SCHEMA}, {HOST_SCHEMA} with a host, {PROGRAM_SCHEMA} with neuron programs, "
            known += f"{READOUT_SCHEMA} with a readout, {STAGGER_SCHEMA} with staggered layers, "
            known += f"nor {OLD_SCHEMA} of the release before"
            raise ArtifactError(f"{path}: schema {schema} is not {known}, which this version reads; compile again")
        try:
            if schema == OLD_SCHEMA:
                manifest = _upgrade_schema_1(manifest)
            program = _unpack_program(manifest, arrays)
            program.verify()
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, MemoryError, NwError) as e:
            raise ArtifactError(f"{path}: content is not consistent ({e}); compile the network again") from None
        return program

    def _verify_network(self) -> None:
        """Raise ModelError unless the network has the form that `emit` returns and all backends support."""
        if len(self.network.layers) < len(self.network.nodes) or not self.network.is_fixed:
            raise ModelError("a program holds layers of whole numbers and no junctions; compile the network again")
        for c in self.network.connections:
            if not isinstance(c, connections.Dense | connections.Conv2d | connections.Sparse):
                raise c.fail(f"a program holds no {type(c).__name__}; compile the network again")
            if c.bias is not None or c.exponent or np.asarray(c.weight).dtype not in WEIGHT_TYPES:
                raise c.fail("a program holds weights of 8, 16 or 32 bits without exponent and bias; compile it again")

    def verify(self) -> None:
        """Raise an NwError unless the parts fit each other."""
        self.network.verify()
        if self.host is not None:
            self.host.verify(self.network)
        if self.network.readout is not None:
            self.network.readout.verify({*self.network.layers, *self.host_layers})
        self._verify_network()
        self.mapping.verify(self.network, self.chip)
        self.schedule.verify(self.network)
        if self.on_multi_spike not in ON_MULTI_SPIKE:
            raise ArtifactError(f"on_multi_spike {self.on_multi_spike!r} is none of {', '.join(ON_MULTI_SPIKE)}")
        verify_manifest(self.manifest)
        if self.activity is not None:
            self.activity.verify(self.network)
            self.activity.verify_counts()
        n_sources = count_lines(self.network) + count_neurons(self.network)
        axons = self.axons
        tables = {name: getattr(axons, name) for name in AXON_TYPES}
        whole = (
            all(table.dtype == AXON_TYPES[name] and table.min(initial=0) >= 0 for name, table in tables.items())
            and axons.offset.shape == (n_sources + 1,)
            and axons.offset[0] == 0
            and axons.offset[-1] == axons.n_axons
            and (np.diff(axons.offset) >= 0).all()
            and (axons.n_axons == 0 or axons.core.max() < self.mapping.n_cores)
            and ((np.diff(axons.source) > 0) | (np.diff(axons.core) > 0)).all()
            and axons.synops.shape == (axons.n_axons, len(SYNAPSE_KINDS))
            and axons.words.shape == axons.row_bits.shape == axons.core.shape == (axons.n_axons,)
            and axons.kernel_bits.shape == (self.mapping.n_cores,)
        )
        if not whole:
            raise ArtifactError("the axon table does not fit the network; compile it again")


def _upgrade_schema_1(manifest: dict) -> dict:
    """Convert the manifest of a schema 1 file to schema 2."""
    options = dict(manifest.get("options", {}))
    if "optimise" in options:
        options["optimize"] = options.pop("optimise")
    return {**manifest, "schema": SCHEMA} | ({"options": options} if options else {})


class _Pack:
    """Collect arrays by name, and return plain values for JSON."""

    def __init__(self):
        self.arrays: dict[str, np.ndarray] = {}

    def pack_fields(self, prefix: str, pairs) -> dict:
        out = {}
        for name, value in pairs:
            if isinstance(value, np.ndarray) and value.ndim:
                self.arrays[f"{prefix}_{name}"] = value
                out[name] = {"array": f"{prefix}_{name}"}
            elif isinstance(value, np.generic | np.ndarray):
                out[name] = value.item()
            elif isinstance(value, FixedPoint):
                out[name] = value.to_dict()
            else:
                out[name] = value
        return out

    def pack_neuron(self, node: Node) -> dict:
        return self.pack_fields(f"neuron_{len(self.arrays)}", node.neuron.canonical_fields())

    def pack_node(self, node: Node) -> list:
        """Name, shape and neuron of a node, then its `axon_of` if its neurons share axons."""
        row: list = [node.name, list(node.shape), None if node.neuron is None else self.pack_neuron(node)]
        if node.axon_of is not None:
            row.append(self.pack_fields(f"node_{len(self.arrays)}", [("axon_of", node.axon_of)]))
        return row

    def pack_host(self, host: Host) -> dict:
        network = host.network
        return {
            "way": host.way,
            "is_static": host.is_static,
            "inputs": [[n.name, list(n.shape)] for n in network.inputs.values()],
            "nodes": [self.pack_node(n) for n in network.nodes.values()],
            "connections": [
                self.pack_fields(f"host_connection{i}", c.canonical_fields()) for i, c in enumerate(network.connections)
            ],
            "gives": [
                [name, self.pack_fields(f"gives{i}", [(f.name, getattr(e, f.name)) for f in fields(e)])]
                for i, (name, e) in enumerate(host.gives.items())
            ],
        }


def _unpack_program(manifest: dict, arrays: dict[str, np.ndarray]) -> Program:
    host = _unpack_host(manifest["host"], arrays) if "host" in manifest else None
    layout = manifest.get("layout", {"name": "BT", "n_steps": None})
    network = _unpack_network(manifest, arrays).change_layout(layout["name"], layout["n_steps"])
    readout = None
    if "readout" in manifest:
        n_arrays = manifest["readout"]["n_arrays"]
        readout = Readout.from_dict(manifest["readout"], tuple(arrays[f"readout{k}"] for k in range(n_arrays)))
    network = replace(network, host=host, left_out=manifest.get("left_out", ""), readout=readout)
    table = manifest["schedule"]
    schedule = Schedule(**{**table, "delay": tuple(table["delay"])})
    core_of = {name: arrays[f"core_of{i}"] for i, name in enumerate(network.layers)}
    visit = {name: arrays[f"visit{i}"] for i, name in enumerate(network.layers) if f"visit{i}" in arrays}
    mapping = Mapping(core_of, arrays["site_of"], {int(k): v for k, v in manifest["mapping_note"].items()}, visit)
    axons = Axons(**{f.name: arrays[f"axons_{f.name}"] for f in fields(Axons)})
    activity = None
    if "activity" in manifest:
        names = manifest["activity"]["names"]
        updates = {n: arrays[f"updates{i}"] for i, n in enumerate(names) if f"updates{i}" in arrays}
        counts = {n: arrays[f"activity{i}"] for i, n in enumerate(names)}
        heard = {n: arrays[f"heard{i}"] for i, n in enumerate(names) if f"heard{i}" in arrays}
        several = manifest["activity"].get("several", {})
        multi = {n: MultiSpike(arrays[f"multi{names.index(n)}"], largest) for n, largest in several.items()}
        activity = Activity(counts, manifest["activity"]["n_samples"], updates, multi, heard)
    structure = ("schema", "layout", "left_out", "readout", "host", "chip", "chip_hash", "network_hash", "inputs",
                 "nodes", "connections", "schedule", "on_multi_spike", "mapping_note", "activity")  # fmt: skip
    rest = {k: v for k, v in manifest.items() if k not in structure}
    chip, on_multi_spike = Chip.from_dict(manifest["chip"]), manifest.get("on_multi_spike", "refuse")
    return Program(
        network=network,
        schedule=schedule,
        mapping=mapping,
        chip=chip,
        axons=axons,
        activity=activity,
        manifest=rest,
        on_multi_spike=on_multi_spike,
    )


def _unpack_network(table: dict, arrays: dict[str, np.ndarray]) -> Network:
    """Build the network from the rows `inputs`, `nodes` and `connections`."""

    def load_values(row: dict) -> dict:
        return {k: arrays[v["array"]] if isinstance(v, dict) and "array" in v else v for k, v in row.items()}

    inputs = {}
    for name, shape, *more in table["inputs"]:
        inputs[name] = Node.from_file(name, tuple(shape), more)
    nodes = {}
    for name, shape, row, *shared in table["nodes"]:
        spec: NeuronSpec | NeuronProgram | None = None
        if row is not None and "program" in row:
            spec = NeuronProgram.from_canonical(load_values(row))
        elif row is not None:
            numbers = load_values(row)
            spec = NeuronSpec(**{**numbers, "fixed": FixedPoint(**numbers["fixed"]) if numbers["fixed"] else None})
        axons = load_values(shared[0]) if shared else {}
        nodes[name] = Node(name, tuple(shape), spec, **axons)
    edges = []
    for row in table["connections"]:
        row = {k: tuple(v) if isinstance(v, list) else v for k, v in load_values(row).items()}
        is_pool = row["kind"] in connections.POOLINGS  # A pool's own `kind` replaces its class name.
        edges.append(connections.Pool2d(**row) if is_pool else KINDS[row.pop("kind")](**row))
    return Network(inputs, nodes, tuple(edges))


def _unpack_host(table: dict, arrays: dict[str, np.ndarray]) -> Host:
    gives = {}
    for name, row in table["gives"]:
        numbers: dict[str, Any] = {k: arrays[v["array"]] if isinstance(v, dict) else v for k, v in row.items()}
        gives[name] = Encoding(**numbers)
    return Host(table["way"], _unpack_network(table, arrays), gives, table["is_static"])
