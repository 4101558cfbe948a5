"""The partitioners that can run here."""

import importlib.util

from nwcompile.passes.partition.partition import PARTITIONERS

OPTIONAL = {"hypergraph": "mtkahypar"}  # runs only where this package is installed
METHODS = [m for m in PARTITIONERS if m not in OPTIONAL or importlib.util.find_spec(OPTIONAL[m])]
