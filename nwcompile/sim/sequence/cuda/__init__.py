"""The sequence-parallel backend on a GPU: `inference` runs a network, `product` proves its sums exact."""
