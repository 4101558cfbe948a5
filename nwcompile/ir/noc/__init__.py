"""Networks on chip: their links, and the links that every message takes, known before simulation.

| what | function or noun | file |
|---|---|---|
| working routers of a mesh or torus | `Grid`, `build_grid` | routing.py |
| output, hops and links of a route | `find_ports`, `count_hops`, `list_route_links` | routing.py |
| dateline class of a message | `vc_classes` | routing.py |
"""

ERROR_CODE = "NW4005"
