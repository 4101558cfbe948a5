"""How much the long tests do: `make test-long` 500 examples of each random test, CI fewer."""

import os

EXAMPLES = int(os.environ.get("LONG_EXAMPLES", "500"))
