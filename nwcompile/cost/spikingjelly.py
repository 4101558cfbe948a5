"""SpikingJelly: operations as its op_counter (spikingjelly 2.0.0) counts them, on the network as it was imported.

Written from its rules (`activation_based/op_counter/synop.py`, `mac.py`). A matrix product or convolution whose input
holds only 0 and 1 in a call is synaptic operations, as many as weights meet a 1, zero weights included and taps on
padding left out; it is nothing but multiplications otherwise, zeros and taps on padding included. Where only the
weights hold 0 and 1, those are what counts as spikes; where both do, the ones that meet. Biases count nowhere. A batch
norm multiplies every number once. Its ACCounter is not reproduced: it adds what torch adds inside norms, pools and
neurons, which depends on how a module is written and on the backend of its neurons, and a network does not tell.
"""

from dataclasses import dataclass

import numpy as np

from nwcompile.cost.layer_calls import calls, is_one_of, multiplications, outputs
from nwcompile.cost.neurobench import fan_out
from nwcompile.ir.connection import Connection, Conv1d, Conv2d, Dense, Scale
from nwcompile.ir.network import Network


@dataclass(frozen=True)
class OpCounts:
    """Operations of a sample: what SynOpCounter and MACCounter give."""

    synops: float
    macs: float


def op_counts(network: Network, values: dict[str, np.ndarray]) -> OpCounts:
    """The OpCounts of a float network, not normalized, where its nodes send `values[name]`, float32[B, T, *shape].

    Raises ModelError for connections that no layer of torch is known to be.
    """
    synops = macs = 0
    n_samples, n_steps = next(iter(values.values())).shape[:2]
    for connection, x in calls(network, values):
        if isinstance(connection, Scale):
            macs += x.size
        if not isinstance(connection, Dense | Conv1d | Conv2d):
            continue
        is_spikes, weights_are = is_one_of(x, 0, 1), bool(is_one_of(np.asarray(connection.weight)[None], 0, 1)[0])
        sent = x[is_spikes].sum((0, 1), dtype=np.float64).reshape(-1)
        synops += int(sent @ _uses(network, connection, weights_are))
        n_other = (n_steps - int(is_spikes.sum())) * n_samples
        if weights_are:
            places = 1 if isinstance(connection, Dense) else outputs(network, connection)
            synops += n_other * int(np.count_nonzero(connection.weight)) * places
        else:
            macs += n_other * multiplications(network, connection)
    return OpCounts(synops / n_samples, macs / n_samples)


def _uses(network: Network, connection: Connection, only_ones: bool) -> np.ndarray:
    """int64[source]: weights that a spike meets, or of weights 0 and 1 only the ones."""
    shape = network.node(connection.source).shape
    conv = connection.as_conv2d((shape[0], shape[1])) if isinstance(connection, Conv1d) else connection
    return fan_out(network, conv if only_ones else conv.replace(weight=np.ones(np.shape(conv.weight), np.int8)))
