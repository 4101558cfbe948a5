"""Import trained torch modules of every supported framework as a Network.

stage                                                function                   file
the steps of an import, in order                     from_torch                 importing.py
unwrap a module, run it, and restore its state       Stepwise, preserve_state   modules.py
the example input, in one or several parts           prepare_example            inputs.py
record a module as torch operators, and find layers  import_operators           operators/
symbolic values of tensors                           Source, Applied, ...       symbols.py
linear maps of modules as connections                operation_from_module      operations.py
neuron modules of the frameworks                     find_kind, trace_step      kinds/, kind.py
prove what the module computes after its layers      Tries                      readouts.py
connections and layers of a recording                Builder                    build.py
compare the network's spikes with the module's       compare_spikes             compare.py
ReLU networks -> spiking networks                    convert                    convert.py, activations.py
ONNX files -> torch modules, for `convert`           load_onnx                  onnx.py
quantization-aware training of a module              quantize_aware             quantize_aware.py
"""

from nwcompile.errors import require_torch

require_torch("from_torch")

from nwcompile.frontend.torch.importing import from_torch as from_torch

ERROR_CODE = "NW2301"
