"""Import trained torch modules of every supported framework as a Network.

stage                                                function                   file
the steps of an import, in order                     from_torch                 importing.py
unwrap a module, run it, and restore its state       Stepwise, preserve_state   modules.py
the example input, in one or several parts           prepare_example            inputs.py
run the module and record what it does               ModuleRecorder             record.py
follow tensors through torch functions               Tracker                    track.py, moves.py, functions.py
symbolic values of tensors                           Source, Applied, ...       symbols.py
linear maps of modules as connections                operation_from_module      operations.py
neuron modules of the frameworks                     find_kind, trace_step      kinds/, kind.py
refuse modules that cannot be compiled               verify_recording           check.py
results that the network does not return             Results                    results.py
what the module computes after its layers            find_readout               readouts.py
neurons that no framework names                      import_operators           operators/
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
