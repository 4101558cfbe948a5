"""Traffic: which axons a mapping needs, and the messages, events and flits that an activity sends over them.

what it tells                                                   function
who reads whom, in classes of neurons that are read alike       wiring.py:connection_wiring
the cores that every source sends to, without axons             destinations.py:find_destinations
the axons of a mapping, and what they take in each core         axons.py:build_axons
what synapses, rows and kernels take of the synapse memory      memory.py:row_memory
every counter that an activity causes                           events.py:count_events
flits over every link                                           link_flits.py:link_flits
who sends to which core, and what crosses a link                core_traffic.py:core_traffic
single messages, and multicast trees that fork in routers       multicast.py:spike_fanout
the merged routes of a message to several cores                 trees.py:build_trees
messages that enter and leave through io.sites                  io_sites.py:io_routes
tokens between cores that wait for their neighbors only         tokens.py:list_tokens, add_tokens
what the route of a message costs for an objective              route_cost.py:route_cost
"""
