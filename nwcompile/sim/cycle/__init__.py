"""The cycle backend: cores and a flit-by-flit network on chip. Only this backend measures times.

| purpose | function | file |
|---|---|---|
| the backend as a Machine | `CycleMachine` | machine.py |
| tables and state of a simulated chip | `ChipRun`, `State` | run.py |
| simulate any number of steps in constant memory | `run_totals` | totals.py |
| how a network moves messages; families have their own | `Engine`, `find_engine` | engine.py |
| tables of axons and io sites | `build_axon_tables` | axons.py |
| tables of routers, for both router engines | `build_mesh`, `add_trees`, `build_queues` | noc_tables.py |
| the lockstep engine: fit, tables | `fits_lockstep`, `cores_fit_lockstep`, `lockstep_network` | lockstep.py |
| the network without cores: packets, generated load | `replay_packets`, `offer_load` | noc.py |
| stalls, latencies, critical path of a run | `probes_for`, `build_profile` | profile.py |
| overlong steps, lost messages | `longest_step`, `explain_stop`, `take_losses` | overload.py |
"""
