"""Size of the long tests: 500 examples of each random test in `make test-long`, fewer in CI."""

import os

EXAMPLES = int(os.environ.get("LONG_EXAMPLES", "500"))
