"""nwcompile compiles trained spiking networks for neuromorphic chips, and proves that they still work.

Public names are imported on first use. So `import nwcompile` is fast: it loads neither NumPy, torch, Numba nor Triton.
"""

from functools import partial
from importlib import import_module
from importlib.util import find_spec

from nwcompile.lazy_names import FROM_ABOVE

__version__ = "0.1.0"

_HOME = {
    "Activity": "nwcompile.ir.activity",
    "ArtifactError": "nwcompile.errors",
    "BackendError": "nwcompile.errors",
    "Chip": "nwcompile.ir.chip",
    "ChipError": "nwcompile.errors",
    "Chunk": "nwcompile.sim.session",
    "Conv1d": "nwcompile.ir.connection",
    "Conv2d": "nwcompile.ir.connection",
    "Dense": "nwcompile.ir.connection",
    "FitError": "nwcompile.errors",
    "FixedPoint": "nwcompile.ir.neuron",
    "Mapping": "nwcompile.ir.mapping",
    "ModelError": "nwcompile.errors",
    "Network": "nwcompile.ir.network",
    "NeuronProgram": "nwcompile.ir.neuron_programs.program",
    "NeuronSpec": "nwcompile.ir.neuron",
    "NwError": "nwcompile.errors",
    "OptionError": "nwcompile.errors",
    "Options": "nwcompile.ir.options",
    "MaxPool2d": "nwcompile.ir.connection",
    "Pool2d": "nwcompile.ir.connection",
    "Program": "nwcompile.ir.program",
    "Robustness": "nwcompile.sim.variation",
    "Run": "nwcompile.ir.run",
    "Scale": "nwcompile.ir.connection",
    "Session": "nwcompile.sim.session",
    "Sparse": "nwcompile.ir.connection",
    "compile": "nwcompile.flow",
    "convert": "nwcompile.frontend.torch.convert",
    "crosscheck": "nwcompile.sim.crosscheck",
    "demo": "nwcompile.workbench.demo",
    "encode": "nwcompile.frontend.encode",
    "estimate": "nwcompile.workbench.estimate",
    "evaluate": "nwcompile.sim.accuracy",
    "from_lava": "nwcompile.frontend.lava",
    "from_nir": "nwcompile.frontend.nir",
    "load_onnx": "nwcompile.frontend.torch.onnx",
    "from_torch": "nwcompile.frontend.torch",
    "neuron": "nwcompile.nn.neurons",
    "read_out": "nwcompile.sim.answers",
    "robustness": "nwcompile.sim.variation",
    "simulate": "nwcompile.sim",
    "sweep": "nwcompile.workbench.sweep.sweep",
    "to_nir": "nwcompile.frontend.nir.write",
}


def _from(module: str, name: str):
    return getattr(import_module(module), name)


FROM_ABOVE["nwcompile.nn.quantize_aware"] = partial(_from, "nwcompile.frontend.torch.quantize_aware", "quantize_aware")
for _name in ("cores_frame", "links_frame", "layers_frame"):
    FROM_ABOVE[f"nwcompile.ir.program.{_name}"] = partial(_from, "nwcompile.report.frames", _name)
for _name in ("plot_raster", "plot_states"):
    FROM_ABOVE[f"nwcompile.ir.run.{_name}"] = partial(_from, "nwcompile.report.pyplot", _name)
for _noun in ("chip", "mapping", "network", "program", "run"):
    FROM_ABOVE[f"nwcompile.ir.{_noun}.html_of_{_noun}"] = partial(
        _from, "nwcompile.report.html.notebook", f"html_of_{_noun}"
    )
_MODULES = ("errors", "nn", "report")  # `nwcompile.report` is a module that can be called

_NEED_TORCH = {"convert", "from_torch", "load_onnx", "neuron", "nn"}
_has_torch = find_spec("torch") is not None
__all__ = sorted({*_HOME, *_MODULES, "__version__"} - (set() if _has_torch else _NEED_TORCH))


def __getattr__(name: str):
    if name in _NEED_TORCH and not _has_torch:
        import_module("nwcompile.errors").require_torch(f"nwcompile.{name}")
    if name in _HOME:
        value = getattr(import_module(_HOME[name]), name)
    elif name in _MODULES:
        value = import_module(f"nwcompile.{name}")
    else:
        raise AttributeError(f"module 'nwcompile' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
