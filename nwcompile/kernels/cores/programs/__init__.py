"""Kernels of neuron programs, one for each program: written as source text, compiled once on a machine.

purpose                                              function                    file
what a program does, as the text of a module         source_of, triton_source_of source.py
what its gradient does, likewise                     gradient_source_of          gradient.py
its operations on whole numbers                      shr0, sign, ...             operations.py
that text as compiled functions, kept by its hash    built, built_gradient, ...  build.py
a program's step called from any kernel              step_program                call.py
"""
