"""Convert the delay layers of nwcompile.nn to connections: one for every distinct delay, in whole steps."""

from math import prod

import numpy as np

from nwcompile.ir.connection import Connection, Conv2d, Dense, Scale, Sparse, synapse_list
from nwcompile.nn import Delay, DelayedConv2d, DelayedLinear

DELAYING = (Delay, DelayedLinear, DelayedConv2d)


def delay_connections(module, source: str, target: str, late: int, shape: tuple[int, ...]) -> tuple[Connection, ...]:
    """Return the connections that compute `module` for a source of `shape`, each with `late` additional steps."""
    steps = module.delays.rounded_steps.cpu().numpy()
    if isinstance(module, Delay):
        whole: Connection = Scale(source, target, delay=late)
        axons = np.arange(prod(shape))
        pre, post, weight, steps = axons, axons, np.ones(len(axons), np.float32), steps.reshape(-1)
    elif isinstance(module, DelayedLinear):
        of_synapse = module.effective_weight().detach().float().cpu().T.contiguous().numpy().copy()
        whole = Dense(source, target, of_synapse, delay=late)
        pre, post, place = synapse_list(whole, shape)
        weight, steps = of_synapse.reshape(-1)[place], steps.T.reshape(-1)[place]
    else:
        whole = module.connection(source, target, late)
        assert isinstance(whole, Conv2d)
        pre, post, place = synapse_list(whole, shape)
        weight, steps = np.asarray(whole.weight).reshape(-1)[place], steps.reshape(-1)[place]
    occurring = np.unique(steps)
    if len(occurring) == 1:
        return (whole.replace(delay=late + int(occurring[0])),)
    return tuple(
        Sparse(source, target, pre[k], post[k], weight[k], delay=late + int(d))
        for d, k in ((d, np.flatnonzero(steps == d)) for d in occurring)
    )
