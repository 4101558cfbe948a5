from nwcompile.ir.chip_sections import CoreLimits
from nwcompile.ir.resources import IN_AXONS, N_RESOURCES, NEURONS, OUT_AXONS, RESOURCE_OF, RESOURCES, SYNAPSE_BITS
from nwcompile.kernels.mapping import core_usage


def test_rows_are_those_of_the_table():
    keys = [resource.key for resource in RESOURCES]
    assert [keys[i] for i in (NEURONS, IN_AXONS, OUT_AXONS, SYNAPSE_BITS)] == [
        "neurons", "in_axons", "out_axons", "synapse_bits"
    ]  # fmt: skip
    assert list(RESOURCE_OF) == keys and len({resource.name for resource in RESOURCES}) == N_RESOURCES == len(keys)


def test_every_resource_has_a_limit_in_the_chip_file():
    assert {resource.limit_key for resource in RESOURCES} <= set(CoreLimits.__dataclass_fields__)


def test_kernels_count_the_same_resources_and_load_after_them():
    assert core_usage.LOAD == N_RESOURCES
    assert core_usage.N_RESOURCES == N_RESOURCES + 1
