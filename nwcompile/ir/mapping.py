"""Mapping: neuron -> logical core, and logical core -> site (x, y, port)."""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from nwcompile.argument_types import checked, has_type
from nwcompile.errors import ModelError, shown
from nwcompile.ir.chip import Chip
from nwcompile.ir.network import Network
from nwcompile.ir.shown import count_text, format_lines
from nwcompile.lazy_names import look_up

ERROR_CODE = "NW3007"
MEANING = {"core_of": "core of each neuron", "visit": "place of each neuron in its core's order"}


@dataclass(frozen=True, eq=False)
class Mapping:
    """Logical core of every neuron, `core_of[layer]` int32[n], and site of every core, `site_of` int32[n_cores, 3].

    Neurons are in flat C order. `note[core]` names a core's fullest resource. `visit[layer]`, int32[n]: a rank for
    every neuron; a core visits its neurons in order of rank. Equal ranks go by layer, then by neuron. An empty `visit`
    means that all ranks are equal.
    """

    core_of: dict[str, np.ndarray]
    site_of: np.ndarray
    note: dict[int, str] = field(default_factory=dict)
    visit: dict[str, np.ndarray] = field(default_factory=dict)

    @classmethod
    def from_arrays(cls, core_of: dict, site_of, visit: dict | None = None) -> "Mapping":
        """Build a mapping from the logical core of every neuron, by layer, and (x, y, port) of every core.

        `visit` is the order in which cores visit their neurons; the compiler chooses it if it is not given. Raises
        ModelError unless all values are integers and every core has three coordinates; `verify` checks the rest.
        """
        sites = _as_whole_numbers("site_of", site_of)
        if sites.size % 3 or sites.shape[-1:] != (3,):
            raise ModelError(f"mapping: site_of of shape {sites.shape} must be [core, 3], (x, y, port) of every core")
        order = _convert_layers("visit", {} if visit is None else visit)
        return cls(_convert_layers("core_of", core_of), sites.reshape(-1, 3), {}, order)

    def __repr__(self) -> str:
        n_neurons = count_text(sum(map(len, self.core_of.values())), "neuron")
        head = f"Mapping: {n_neurons} on {count_text(self.n_cores, 'core')} at {count_text(self.n_tiles, 'router')}"
        rows = []
        for name, cores in self.core_of.items():
            used = np.unique(cores)
            numbers = ", ".join(map(str, used[:4])) + (f", ... {used[-1]}" if len(used) > 4 else "")
            n_neurons, n_cores = count_text(len(cores), "neuron"), count_text(len(used), "core")
            rows.append(f"layer {name}: {n_neurons} on {n_cores}: {numbers}")
        return format_lines(head, rows, "layers")

    def _repr_html_(self) -> str:
        return look_up("nwcompile.ir.mapping", "html_of_mapping")(self)

    @property
    def n_cores(self) -> int:
        """Number of logical cores in use."""
        return len(self.site_of)

    @cached_property
    def n_tiles(self) -> int:
        """Number of routers with at least one core in use; the cost of the barrier depends on it."""
        return len(np.unique(self.site_of[:, :2], axis=0))

    @checked()
    def where(self, layer: str, neuron: int) -> tuple[int, tuple[int, int, int]]:
        """Return logical core and site (x, y, port) of one neuron."""
        if layer not in self.core_of or not 0 <= neuron < len(self.core_of[layer]):
            raise ModelError(
                f"there is no neuron {shown(neuron)} in a layer {layer!r}; layers: {', '.join(self.core_of)}"
            )
        core = int(self.core_of[layer][neuron])
        x, y, port = map(int, self.site_of[core])
        return core, (x, y, port)

    @checked()
    def who(self, core: int) -> dict[str, np.ndarray]:
        """Return the neurons on a logical core, flat indices by layer."""
        if not 0 <= core < self.n_cores:
            raise ModelError(f"there is no core {shown(core)}; the mapping uses cores 0..{self.n_cores - 1}")
        by_layer = {layer: np.flatnonzero(cores == core) for layer, cores in self.core_of.items()}
        return {layer: neurons for layer, neurons in by_layer.items() if len(neurons)}

    def verify(self, network: Network, chip: Chip) -> None:
        """Raise ModelError unless every neuron has a core and every core has a site of its own on the chip."""
        for name in network.layers:
            cores, n = self.core_of.get(name), network.node(name).n_neurons
            if cores is None or cores.shape != (n,):
                given = () if cores is None else cores.shape
                raise ModelError(f"mapping: layer {name!r} needs the cores of its {n} neurons, got {given}")
            if n and (cores.min() < 0 or cores.max() >= self.n_cores):
                worst = cores.min() if cores.min() < 0 else cores.max()
                raise ModelError(f"mapping: layer {name!r} names core {worst}; site_of has {self.n_cores} cores")
        for name in network.layers if self.visit else ():
            places, n = self.visit.get(name), network.node(name).n_neurons
            if places is None or places.shape != (n,) or places.dtype.kind != "i":
                raise ModelError(f"mapping: layer {name!r} needs whole numbers in `visit` for its {n} neurons")
        if self.site_of.ndim != 2 or any(a.dtype.kind != "i" for a in (self.site_of, *self.core_of.values())):
            raise ModelError("mapping: cores and sites must be whole numbers, sites of shape [core, 3]")
        if not has_type(self.note, dict[int, str]):
            raise ModelError("mapping: notes must be texts by core")
        extra = {*self.core_of, *self.visit} - set(network.layers)
        if extra:
            raise ModelError(f"mapping: there is no layer {sorted(extra)[0]!r}; layers: {', '.join(network.layers)}")
        bound = np.array([chip.noc.columns, chip.noc.rows, chip.noc.cores_per_router])
        outside = np.flatnonzero(((self.site_of < 0) | (self.site_of >= bound)).any(1))
        if len(outside):
            core = int(outside[0])
            site = tuple(map(int, self.site_of[core]))
            raise ModelError(f"mapping: core {core} is at site {site}, outside {chip.name}")
        if chip.noc.faults:
            closed = np.flatnonzero(~chip.grid.is_open[chip.site_index(self.site_of) // chip.noc.cores_per_router])
            if len(closed):
                core = int(closed[0])
                x, y, _ = map(int, self.site_of[core])
                raise ModelError(f"mapping: core {core} is at router {x},{y}, which {chip.name} has out of use")
        kept = np.flatnonzero(np.isin(chip.site_index(self.site_of), chip.io_cores))
        if len(kept):
            core = int(kept[0])
            site = tuple(map(int, self.site_of[core]))
            raise ModelError(f"mapping: core {core} is at site {site}, which {chip.name} keeps for input and output")
        if len(np.unique(self.site_of, axis=0)) < self.n_cores:
            raise ModelError("mapping: two cores share one site; give every core a site of its own")


def _convert_layers(name: str, table: dict) -> dict[str, np.ndarray]:
    if not isinstance(table, dict):
        raise ModelError(f"mapping: {name} must be {{layer: {MEANING[name]}}}, not {type(table).__name__}")
    return {layer: _as_whole_numbers(f"{name}[{layer!r}]", values).reshape(-1) for layer, values in table.items()}


def _as_whole_numbers(name: str, value) -> np.ndarray:
    array = np.asarray(value)
    whole = array.dtype.kind in "iuf" and (array == np.trunc(array)).all()
    if array.size and not (whole and array.min() >= -1 and array.max() < 1 << 31):
        some = shown(array.reshape(-1)[:3].tolist())
        raise ModelError(f"mapping: {name} must be whole numbers, got {array.dtype} {some}...")
    return array.astype(np.int32)
