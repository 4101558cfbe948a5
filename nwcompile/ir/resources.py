"""Resources: what a core has a limit of. The one table of their names, in the code, in chip files and to people."""

from typing import NamedTuple

NEURONS, IN_AXONS, OUT_AXONS, SYNAPSE_BITS = range(4)  # rows of `RESOURCES`, and columns of tables [core, resource]


class Resource(NamedTuple):
    """One limit of a core."""

    key: str  # in the code and in JSON
    limit_key: str  # of the chip file's section `core`
    name: str  # in errors, reports and notes
    unit: str  # of an amount of it


RESOURCES = (
    Resource("neurons", "max_neurons", "neurons", "neurons"),
    Resource("in_axons", "max_in_axons", "fan-in axons", "axons"),  # (source neuron or input line, core) pairs
    Resource("out_axons", "max_out_axons", "fan-out axons", "axons"),  # (neuron, destination core) pairs
    Resource("synapse_bits", "synapse_bits", "synapse memory", "bits"),
)
N_RESOURCES = len(RESOURCES)
RESOURCE_OF = {resource.key: resource for resource in RESOURCES}
