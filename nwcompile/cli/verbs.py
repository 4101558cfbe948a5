"""Verbs of the command line, with their lines in `nwcompile --help`."""

VERBS = {
    "compile": "compile a model for a chip: DIR/net.nwc and DIR/report.{json,html}",
    "check": "say whether a model fits a chip, or everything that does not",
    "estimate": "a model on many chips, side by side: cores, time, energy, what binds",
    "sweep": "a model at many points of chip, options and input: kept point by point, the best on a page",
    "simulate": "run a program (or a float model) on an input",
    "evaluate": "accuracy on labeled data: float, and on the chip",
    "bits": "the narrowest weights of each layer that keep the accuracy, for --bits",
    "robustness": "accuracy of a program on many devices that differ: mismatch, stuck synapses, dead neurons",
    "crosscheck": "run a model or program on several backends: each layer, and the first difference",
    "report": "run a program on an input and write its report; or compare two mappings (--diff)",
    "export": "a program as the files of another simulator, or of an FPGA's design",
    "verify": "does a log of spikes, of a chip or of its hardware description, equal the program",
    "show": "what lies on the cores of a program or a compiled model",
    "noc": "the network on chip by itself: replay packets, or generate load",
    "chips": "the chip models: list, show NAME, and their schema",
    "explain": "what an error's code means, and what to do: explain NW4001",
    "completion": "the lines that let a shell complete verbs, flags, chips and files",
}
