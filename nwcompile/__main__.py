"""`python -m nwcompile` is `nwcompile`."""

import sys

from nwcompile.cli import main

sys.exit(main())
