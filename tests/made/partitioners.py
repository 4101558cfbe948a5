"""The partitioners whose packages are installed."""

import importlib.util

from nwcompile.passes.partition.partition import PARTITIONERS

OPTIONAL = {"hypergraph": "mtkahypar"}  # runs only if this package is installed
METHODS = [m for m in PARTITIONERS if m not in OPTIONAL or importlib.util.find_spec(OPTIONAL[m])]
