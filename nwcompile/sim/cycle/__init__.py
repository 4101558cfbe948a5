"""The cycle backend: cores and a flit-by-flit network on chip, which alone tells times.

| purpose | function | file |
|---|---|---|
| simulate samples, every step kept | `run_program`, `ChipRun` | run.py |
| any number of steps in the memory of a few | `run_totals` | totals.py |
| with a checkpoint, by some steps after others | `run_kept`, `Neurons` | kept.py |
| a sample without an end | `Stream` | stream.py |
| tables of axons and io sites | `axon_tables` | axons.py |
| tables of routers, for both router engines | `mesh_of`, `with_trees`, `queues` | noc_tables.py |
| the lockstep engine: whom it suits, its tables | `suits`, `suits_cores`, `lockstep_network` | lockstep.py |
| routers that are merges: their tables; their packets | `merge_network`; `packets` | merges.py; packets.py |
| the segmented bus: its tables, its schedule | `bus_of`, `bus_network`, `schedule_of` | bus.py |
| cores that wait for their neighbors only | `with_tokens`, `go` | neighbors.py |
| the network by itself, packets or generated load | `replay`, `load` | noc.py |
| stalls, latencies, critical path of a run | `probes_for`, `profile` | profile.py |
| steps that take too long, messages that are lost | `longest_step`, `stopped`, `take_losses` | overload.py |
"""
