"""Fit: what is to lie on the chip, and how often it sends."""

from dataclasses import replace

from nwcompile.ir.activity import Activity
from nwcompile.ir.host import on_chip, registers_of
from nwcompile.passes.compilation import Compilation, Stage
from nwcompile.passes.partition.merge_axons import merge_axons
from nwcompile.sim.sequence.run import record
from nwcompile.sim.values import verify_counts


def calibrate(c: Compilation) -> Compilation:
    """Count how often each neuron sends in the samples, and take the registers of the host out of the network."""
    fixed = on_chip(c.network)
    activity = _activity(c).without({*c.network.inputs} - {*fixed.inputs})
    return replace(
        c,
        network=fixed,
        timing=c.timing.on_chip(c.network),
        activity=activity,
        registers={**registers_of(c.input.host), **c.quantized.registers},
        changes=[*c.changes, *c.lasting],
        samples=None,  # no later stage reads them
        normal=None,
        legal=None,
    )


def _activity(c: Compilation) -> Activity:
    """How often each neuron of the network in integers spikes on the samples, or an even guess without any."""
    if c.samples is None:
        return Activity.uniform(c.network)
    way = c.options.on_multi_spike
    activity, spikes = record(c.network, c.samples, repeats=way == "repeat")
    verify_counts(c.network, c.chip, way, spikes)
    return activity


def merge(c: Compilation) -> Compilation:
    """Let neurons share axons where the chip's axons join what comes."""
    merged = merge_axons(c.network, c.timing, c.chip, c.activity, c.given_mapping)
    if not merged.changes:
        return c
    return replace(
        c,
        network=merged.network,
        timing=merged.timing,
        activity=merged.activity,
        changes=[*c.changes, *merged.changes],
        quantized=c.quantized.without(merged.gone),
    )


STAGES = (Stage("calibrate", calibrate), Stage("merge", merge))
