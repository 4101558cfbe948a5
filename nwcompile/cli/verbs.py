"""Verbs of the command line, with their lines in `nwcompile --help`."""

VERBS = {
    "compile": "compile a model for a chip",
    "check": "check whether a model fits a chip, and list every violation",
    "estimate": "compare a model on many chips: cores, time, energy, bottleneck",
    "sweep": "evaluate a grid of settings and store every point",
    "simulate": "run a program or a float model on an input",
    "evaluate": "measure the accuracy of the float model and on the chip",
    "bits": "find the narrowest weights of each layer that keep the accuracy",
    "robustness": "measure the accuracy on devices with mismatch, stuck synapses and dead neurons",
    "crosscheck": "compare backends layer by layer and show the first difference",
    "report": "run a program on an input and write a report, or compare two programs (--diff)",
    "export": "write a program as files for another simulator or for a chip's tools",
    "verify": "compare a spike log of a chip or its hardware description with the program",
    "show": "show the neurons, axons and memory of each core",
    "noc": "simulate the network on chip alone, with a packet trace or generated load",
    "chips": "list the chip models, show one, or print their JSON Schema",
    "explain": "explain an error code: explain NW4001",
    "completion": "print a script for shell completion",
}
