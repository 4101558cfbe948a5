"""Networks on chip as nouns: which links there are, and which of them every message takes, before anything runs.

| what | function or noun | file |
|---|---|---|
| routers of a mesh or torus, without its faults | `Grid`, `build_grid` | routing.py |
| output, hops and links of a route; dateline class | `find_ports`, `count_hops`, `list_route_links`, `vc_classes` | routing.py |
| a board of several chips: how many, how many in use | `count_chips`, `chips_used`, `fewest_chips` | board.py |
| routers without channels: FIFOs joined by merges | `MERGE_CYCLES` | merges.py |
| segmented ladder bus: links, longest transfer | `list_transfer_links`, `longest_transfer_cycles` | bus.py |
"""

ERROR_CODE = "NW4005"
