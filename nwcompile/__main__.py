"""`python -m nwcompile` runs the command line `nwcompile`."""

import sys

from nwcompile.cli import main

sys.exit(main())
