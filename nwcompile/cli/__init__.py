"""The command line: `nwcompile VERB ...`. Results go to stdout, progress and warnings to stderr.

Exit code 0: success; 1: does not fit, does not agree, or is worse (report --diff); 2: wrong usage or unusable input;
130: interrupted.

shared by all verbs                        VERBS (their list), inputs/, outputs/
flags                                      arguments.py (of each verb), flags.py (shared)
a model for a chip                         compile.py, check.py, estimate.py, show.py, bits.py (bits_file.py: its file)
running a program                          simulate.py, evaluate.py, crosscheck.py, report.py, robustness.py, noc.py
many points; other tools; recorded spikes  sweep.py; export.py; verify.py
help                                       chips.py, explain.py, completion.py
"""

import io
import json
import os
import platform
import sys
import warnings
from importlib import import_module

from nwcompile import __version__
from nwcompile.cli.outputs.terminal import print_text
from nwcompile.errors import FitError, NwError, NwWarning, OptionError, escape_controls, unknown_choice

ERROR_CODE = "NW1002"
INTERRUPTED = 130  # exit code after Ctrl-C, by convention of shells
BUG_REPORT = ("numpy", "numba", "scipy", "networkx", "pymetis", "torch", "nir")  # packages whose versions matter
FLAGS = ("-h", "--help", "--version")  # without a verb
USAGE = "usage: nwcompile VERB ...   (nwcompile VERB --help says more)"
VERBS = {
    "compile": "compile a model for a chip",
    "check": "check whether a model fits a chip, and list every violation",
    "estimate": "compare a model on many chips: cores, time, energy, bottleneck",
    "sweep": "evaluate a grid of settings and store every point",
    "simulate": "run a program or a float model on an input",
    "evaluate": "measure the accuracy of the float model and on the chip",
    "bits": "find the narrowest weights of each layer that keep the accuracy",
    "robustness": "measure the accuracy on devices with mismatch and defects",
    "crosscheck": "compare backends layer by layer and show the first difference",
    "report": "run a program and write a report, or compare two (--diff)",
    "export": "write a program for another simulator or a chip's tools",
    "verify": "compare a spike log of a chip or of its RTL with the program",
    "show": "show the neurons, axons and memory of each core",
    "noc": "simulate the network on chip alone, with a trace or a load",
    "chips": "list the chip models, show one, or print their JSON Schema",
    "explain": "explain an error code: explain NW4001",
    "completion": "print a script for shell completion",
}


def main(argv: list[str] | None = None) -> int:
    """Run one command line and return its exit code. Bad input prints one sentence instead of a traceback."""
    argv = sys.argv[1:] if argv is None else argv
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    as_json = "--json" in argv
    with warnings.catch_warnings():
        warnings.simplefilter("always", NwWarning)
        warnings.showwarning = lambda message, *_: print_text(
            f"nwcompile: warning: {escape_controls(str(message))}", sys.stderr
        )
        try:
            return _run_verb(argv)
        except NwError as e:
            return _report_error(e, as_json)
        except KeyboardInterrupt:
            print("nwcompile: interrupted; nothing was half-written", file=sys.stderr)
            return INTERRUPTED
        except MemoryError:
            advice = "give fewer samples (--samples N), steps or cycles, or a smaller chip"
            return _report_error(NwError(f"not enough memory; {advice}"), as_json)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        except OSError as e:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            what = "" if e.filename is None else f" {e.filename}"
            return _report_error(NwError(f"the system refuses to read or write{what}: {e.strerror or e}"), False)


def _describe_environment() -> str:
    """Name the versions that a bug report needs: Python, the system, and the packages, as installed or missing."""
    from importlib import metadata  # takes as long as the whole of --help

    versions = {}
    for name in BUG_REPORT:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = "missing"
    packages = ", ".join(f"{name} {version}" for name, version in versions.items())
    return f"Python {platform.python_version()} on {platform.system()} {platform.machine()}; {packages}"


def _run_verb(argv: list[str]) -> int:
    if not argv or argv[0] in ("-h", "--help"):
        print("\n".join([USAGE, "", *(f"  {verb:<11} {text}" for verb, text in VERBS.items())]))
        return 0 if argv else 2
    if argv[0] == "--version":
        print_text(f"nwcompile {__version__}\n{_describe_environment()}")
        return 0
    verb, *rest = argv
    if verb not in VERBS:
        what, known = ("flag", FLAGS) if verb.startswith("-") else ("verb", VERBS)
        raise OptionError(unknown_choice(what, verb, known), code="NW1001")
    from nwcompile.cli.arguments import parse_arguments

    args = parse_arguments(verb, VERBS[verb], rest)
    code = import_module(f"nwcompile.cli.{verb}").run(args)
    if sys.stdout is not None:
        sys.stdout.flush()
    return code


def _report_error(error: NwError, as_json: bool) -> int:
    if as_json:
        table: dict[str, object] = {"error": type(error).__name__, "code": error.code, "message": str(error)}
        if isinstance(error, FitError):
            table["violations"] = [vars(v) for v in error.violations]
            table["change"], table["elsewhere"] = error.change, error.elsewhere
        print(json.dumps(table, indent=1))
    print_text(f"nwcompile: error[{error.code}]: {error}", sys.stderr)
    return error.exit_code
