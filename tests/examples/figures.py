"""Run an example, then compare what `compile` said of each of its programs with a run of the same samples.

    python -m tests.examples.figures examples/02_own_model.py

Exit code 1 names the figures that differ.
"""

import runpy
import sys
from pathlib import Path

import nwcompile as nw
from nwcompile.sim.cycle.overload import loses_messages
from tests.made.figures import contradictions


def main(example: str) -> int:
    compiled, compile = [], nw.compile

    def kept(network, chip, calibration=None, *rest, **options):
        program = compile(network, chip, calibration, *rest, **options)
        if calibration is not None and not loses_messages(program.chip):
            compiled.append((program, calibration))
        return program

    nw.compile = kept
    sys.path.insert(0, str(Path(example).parent))
    sys.argv = [example]
    runpy.run_path(example, run_name="__main__")
    differ = [text for program, x in compiled for text in contradictions(program, nw.simulate(program, x, "cycle"))]
    for text in differ:
        print(f"{example}: {text}", file=sys.stderr)
    print(f"{len(compiled)} programs: {len(differ)} figures of compile are others in a report of the same samples")
    return int(bool(differ))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
