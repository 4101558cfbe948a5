"""Kernels of a core, independent of the network between the cores; no file here imports a network engine.

| purpose | function | file |
|---|---|---|
| update a neuron, or a layer over time | `step`, `scan` | neuron.py |
| step neuron programs, called by address | `step_program`, `Programs` | programs/call.py |
| accumulate the synapses of a spike | `deliver`, `scan_loop`, `sparse_drive` | synapse.py |
| axons, outbox and state of the cores | `CoreTables`, `CoreWork` | tables.py |
| send side: work, then a message and its copies | `begin_cores`, `work_before_next`, `count_sent` | send_side.py |
| receive side: input lines, counts | `take_input_message`, `serve_inputs`, `count_received` | receive_side.py |
| profile: stalls, latencies, buffers | `Probes`, `begin_probes`, `probe_ready`, `probe_taken` | probes.py |
"""
