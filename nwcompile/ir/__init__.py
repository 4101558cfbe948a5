"""The intermediate representation: frozen values that stages, simulators and reports exchange.

Nothing here computes a result.

noun                       file                         what it is
Network                    network.py:Network           layers, inputs and connections, float or fixed-point
NeuronSpec                 neuron.py:NeuronSpec         every field that decides how a neuron updates
NeuronProgram              neuron_programs/             any other neuron, as the operations of its step
Dense, Conv2d, Sparse ...  connection.py:Connection     linear maps between layers
Chip                       chip.py:Chip                 the hardware as data; keys in chip_sections.py
Schedule                   schedule.py:Schedule         the micro-step in which each layer works
Activity                   activity.py:Activity         messages of each neuron; mapping optimizes for them
Mapping                    mapping.py:Mapping           neuron -> core -> site
Program                    program.py:Program           the configuration of a chip; its bytes: artifact.py:encode
Run, Profile               run.py:Run                   the result of a simulation, and its times
Readout                    readout.py:Readout           how the host turns what layers do into the module's answer
Manifest                   manifest.py:Manifest         what the compiler reports about a program, by entry
Options                    options.py:Options           all choices that a user has when compiling

layers and encoding of input on the host                       host.py:Host
the integer arithmetic of all backends, each rule named once   arithmetic.py
routes, multicast trees and lanes of the network on chip       noc/
reading and checking a chip file, key by key                   chip_check.py:read_section
names of the limits of a core                                  resources.py:RESOURCES
all neurons as one vector; lists of lists (CSR)                flat.py
repr in at most ten lines; pandas DataFrames                   shown.py:format_lines, data_frame
"""
