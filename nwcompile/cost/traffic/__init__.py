"""Traffic: the axons of a mapping, and the messages, events and flits that an activity sends over them.

content                                                         function
symbolic synapses, in classes of neurons with the same readers  wiring.py:connection_wiring
destination cores of every source, without axons                destinations.py:find_destinations
the axons of a mapping, and their memory in each core           axons.py:build_axons
synapse memory of synapses, rows and kernels                    memory.py:row_memory
every counter that an activity causes                           events.py:count_events
flits over every link                                           link_flits.py:link_flits
senders to each core, and messages over each link               core_traffic.py:core_traffic
single messages, and multicast trees that fork in routers       multicast.py:spike_fanout
the merged routes of a message to several cores                 multicast.py:build_trees
messages that enter and leave through io.sites                  io_sites.py:io_routes
the cost of a message's route for an objective                  route_cost.py:route_cost
"""
