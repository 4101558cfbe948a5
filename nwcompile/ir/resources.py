"""Resources: the limits of a core, with their names in the code, in chip files and in texts for users."""

from typing import NamedTuple

NEURONS, IN_AXONS, OUT_AXONS, SYNAPSE_BITS = range(4)  # rows of `RESOURCES`, and columns of tables [core, resource]


class Resource(NamedTuple):
    """One limit of a core."""

    key: str  # name in the code and in JSON
    limit_key: str  # key in section `core` of a chip file
    name: str  # name in errors, reports and notes
    unit: str  # unit of an amount


RESOURCES = (
    Resource("neurons", "max_neurons", "neurons", "neurons"),
    Resource("in_axons", "max_in_axons", "fan-in axons", "axons"),  # (source neuron or input line, core) pairs
    Resource("out_axons", "max_out_axons", "fan-out axons", "axons"),  # (neuron, destination core) pairs
    Resource("synapse_bits", "synapse_bits", "synapse memory", "bits"),
)
N_RESOURCES = len(RESOURCES)
RESOURCE_OF = {resource.key: resource for resource in RESOURCES}
