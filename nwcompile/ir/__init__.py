"""The nouns: frozen values that stages, simulators and reports hand to one another. Nothing here computes a result.

noun                       file                         what it is
Network                    network.py:Network           layers, inputs and connections, float or fixed-point
NeuronSpec                 neuron.py:NeuronSpec         every field that decides how a neuron updates
NeuronProgram              neuron_programs/             any other neuron: the operations of its step
Dense, Conv2d, Sparse ...  connection.py:Connection     linear maps between layers
Chip                       chip.py:Chip                 the hardware as data; keys in chip_sections.py
Schedule                   schedule.py:Schedule         when each layer works
Activity                   activity.py:Activity         how often each neuron sends: what mapping optimizes for
Mapping                    mapping.py:Mapping           neuron -> core -> site
Program                    program.py:Program           what a chip is loaded with; its bytes: artifact.py:encode
Run, Profile               run.py:Run                   what simulating gave; where time went: profile.py:Profile
Manifest                   manifest.py:Manifest         what the compiler tells people of a program, entry by entry
Options                    options.py:Options           what a person may choose about compiling

what the host computes of input before the chip                host.py:Host
the integer arithmetic of all backends, each rule named once   arithmetic.py
routes, multicast trees and lanes of the network on chip       noc/
a chip file read and checked, key by key                       chip_check.py:read_section
the limits of a core, with one name each                       resources.py:RESOURCES
all neurons as one vector; lists of lists (CSR)                flat.py
how a noun shows itself: ten lines, or a pandas DataFrame      shown.py:format_lines, data_frame
"""
