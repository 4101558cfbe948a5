"""to_nir: nir reads the file, from_nir reads the very network; what other readers miss is said."""

import warnings

import nir
from hypothesis import given

from nwcompile.errors import NwWarning
from nwcompile.frontend.nir import from_nir
from nwcompile.frontend.nir_write import to_nir
from tests.frontend.float_networks import networks


@given(networks())
def test_any_float_network_survives(tmp_path_factory, network):
    path = tmp_path_factory.getbasetemp() / "any.nir"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NwWarning)
        to_nir(network, path)
    graph = nir.read(path)
    assert from_nir(path).hash == from_nir(graph).hash == network.hash
