"""Hot loop that adds up the messages between cores, one core's after another's (Numba)."""

import numpy as np

from nwcompile.kernels.jit import compiled


@compiled()
def core_messages(start, atom, messages, offset, core, n_cores):
    """Messages from each core to each other that it sends any, as CSR by sending core.

    start: int64[home + 1] into atom: int64[flow] and messages: int64[flow]; offset: int64[atom + 1] into
    core: int64[...], the destinations. Returns (start int64[home + 1], core int64[pair], messages int64[pair]).
    """
    n_homes = len(start) - 1
    total = np.zeros(n_cores, np.int64)
    found = np.zeros(n_homes + 1, np.int64)
    to, sent = np.empty(16, np.int64), np.empty(16, np.int64)
    n = 0
    for home in range(n_homes):
        for f in range(start[home], start[home + 1]):
            for i in range(offset[atom[f]], offset[atom[f] + 1]):
                total[core[i]] += messages[f]
        for c in range(n_cores):
            if total[c]:
                if n == len(to):
                    to, sent = np.concatenate((to, to)), np.concatenate((sent, sent))
                to[n], sent[n] = c, total[c]
                n += 1
                total[c] = 0
        found[home + 1] = n
    return found, to[:n].copy(), sent[:n].copy()
