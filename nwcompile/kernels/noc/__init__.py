"""Kernels of the routers: two engines. The first word of a file name is its engine.

| engine | for | routers, with cores, packets only |
|---|---|---|
| event | any mesh or torus, profiles | event_router.py, event_cores.py, event_replay.py |
| lockstep | common routers, faster | lockstep_router.py, lockstep_cores.py, lockstep_replay.py |

mesh.py holds the router structures of both router engines. event_queue.py and lockstep_state.py hold their schedules.
docs/decisions/two-noc-engines.md explains why there are two router engines.
"""
