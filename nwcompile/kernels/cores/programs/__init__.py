"""Kernels of neuron programs: each program is written as source text and compiled once per machine.

purpose                                              function                    file
step of a program, as the text of a module           source_of, triton_source_of source.py
gradient of a program, likewise                      gradient_source_of          gradient.py
operations on whole numbers                          shr0, sign, ...             operations.py
compiled modules of these texts, cached by hash      build_module, ...           build.py
a program's step, called from any kernel             step_program                call.py
"""
