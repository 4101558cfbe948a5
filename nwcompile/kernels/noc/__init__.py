"""Kernels of the networks on chip: three engines, told by the first word of each file.

| engine | for | routers | with cores | packets alone |
|---|---|---|---|---|
| event | any mesh or torus, profiles | event_router.py | `event_cores.run_events` | `event_replay.replay_events` |
| lockstep | common ones, faster | lockstep_router.py | `run_lockstep` of lockstep_cores.py | `replay_lockstep` |
| bus | the segmented ladder bus | bus.py | `bus_cores.run_bus` | `bus.replay_bus` |

mesh.py describes routers for both router engines; event_queue.py and lockstep_state.py say what is done when. Why there
are two engines: docs/decisions/two-noc-engines.md.
"""
