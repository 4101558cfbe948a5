"""Kernels of the networks on chip: four engines, told by the first word of each file.

| engine | for | routers, with cores, packets alone |
|---|---|---|
| event | any mesh or torus, profiles | event_router.py, event_cores.py, event_replay.py |
| lockstep | common ones, faster | lockstep_router.py, lockstep_cores.py, lockstep_replay.py |
| bus | the segmented ladder bus | bus.py, bus_cores.py |
| merges | routers without channels (RANC) | merges.py |

mesh.py describes routers for both router engines; event_queue.py and lockstep_state.py say what is done when. Why there
are two router engines: docs/decisions/two-noc-engines.md.
"""
