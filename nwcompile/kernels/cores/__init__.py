"""Kernels of a core, whatever network lies between the cores; no file here imports a network engine.

| purpose | function | file |
|---|---|---|
| update a neuron, or a layer over time | `step`, `scan` | neuron.py |
| neurons that are programs, called by address | `step_program`, `Programs` | programs/call.py |
| accumulate the synapses of a spike | `deliver`, `scan_loop`, `sparse_drive` | synapse.py |
| axons, outbox, where each core stands | `CoreTables`, `CoreWork` | tables.py |
| send side: work, then messages, copy by copy | `begin_cores`, `work_before_next`, `count_sent` | send_side.py |
| receive side: input lines, counts | `take_input_message`, `serve_inputs`, `count_received` | receive_side.py |
| stalls, latencies, buffers of a profile | `Probes`, `begin_probes`, `probe_ready`, `probe_taken` | probes.py |
"""
