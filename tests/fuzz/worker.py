"""A worker process of the fuzzer: `python -m tests.fuzz.worker READER SEED FOLDER START STOP`."""

import sys
from pathlib import Path

from tests.fuzz.watch import work

if __name__ == "__main__":
    name, seed, folder, start, stop = sys.argv[1:]
    work(name, int(seed), int(start), int(stop), Path(folder))
