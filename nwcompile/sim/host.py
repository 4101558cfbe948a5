"""The host: float layers and linear maps that the CPU computes before the chip, once for every input."""

from dataclasses import dataclass, replace

import numpy as np

from nwcompile.errors import ModelError
from nwcompile.ir.arithmetic import round_mantissa
from nwcompile.ir.host import Encoding, Host
from nwcompile.ir.run import HostWork, Run
from nwcompile.sim.reference.run import NetworkMachine
from nwcompile.sim.runs import run_machine
from nwcompile.sim.values import verify_whole


@dataclass(frozen=True, eq=False)
class HostRun:
    """Host results: `spikes` [B, T, *shape] of its layers, and its work, summed over samples.

    `n_macs`: multiplications with weights. `n_writes`: register writes, counted only where the number changes.
    `n_clipped`: numbers clipped to the range of a register or message.
    """

    host: Host
    spikes: dict[str, np.ndarray]
    n_macs: int
    n_writes: int
    n_clipped: int


def compute_host(host: Host, inputs: dict[str, np.ndarray], n_steps: int) -> tuple[Run, int]:
    """Run the host's float network on float32 `[B, T, *shape]`; return the Run and its number of steps.

    The reference backend runs it, so the spikes equal the framework's. If nothing depends on earlier steps and the
    samples are constant, one step is computed and represents all.
    """
    n_computed = 1 if not host.has_delays and _is_static(host, inputs) else n_steps
    computed = {n: x[:, :n_computed] for n, x in inputs.items()}
    return run_machine(NetworkMachine(host.network, False, n_computed), computed, n_computed), n_computed


def _is_static(host: Host, inputs: dict[str, np.ndarray]) -> bool:
    """Whether every connected input is constant over the steps."""
    heard = {c.source for c in host.network.connections}
    return all((x == x[:, :1]).all() for name, x in inputs.items() if name in heard)


def run_host(host: Host, inputs: dict[str, np.ndarray], n_steps: int) -> tuple[HostRun, dict[str, np.ndarray]]:
    """Run the host on float32 `[B, T, *shape]`; return its HostRun and the chip's inputs, int32 `[B, T, *shape]`.

    Raises ModelError for samples that change over time if the registers are written once, and for fractions where
    whole numbers are required.
    """
    n_samples = len(next(iter(inputs.values())))
    if host.is_static and not _is_static(host, inputs):
        raise ModelError(
            "the input changes from step to step, but this program writes its neurons' biases once for a sample; give "
            "the same input in all steps, or compile with input_layer='host'",
            code="NW6002",
        )
    if host.way == "exact":
        for name, x in inputs.items():
            verify_whole(name, x)
    run, n_computed = compute_host(host, inputs, n_steps)
    made, n_writes, n_clipped = {}, 0, 0
    for name, encoding in host.gives.items():
        if encoding.scale is None:
            verify_whole(name, run.spikes[encoding.layer])
            made[name] = run.spikes[encoding.layer].astype(np.int32)
            continue
        numbers, clipped = encode(encoding, run.states[encoding.layer]["v"])
        if encoding.neurons is not None and len(encoding.neurons) < numbers[0, 0].size:
            numbers = numbers.reshape(*numbers.shape[:2], -1)[:, :, encoding.neurons]
        if host.way != "exact":  # in mode "exact", two lines take one sign each
            n_clipped += clipped * (n_steps if n_computed < n_steps else 1)
        made[name] = np.broadcast_to(numbers, (n_samples, n_steps, *numbers.shape[2:])).astype(np.int32)
        if encoding.register is not None:
            n_writes += int(np.count_nonzero(np.diff(made[name].astype(np.int64), axis=1, prepend=0)))
    done = HostRun(
        host=host,
        spikes={name: run.spikes[name] for name in host.layers},
        n_macs=host.macs * n_samples * n_computed,
        n_writes=n_writes,
        n_clipped=n_clipped,
    )
    return done, made


def encode(encoding: Encoding, x: np.ndarray) -> tuple[np.ndarray, int]:
    """Convert membranes `[B, T, *shape]` to the chip's integers, int64; also return how many were clipped."""
    assert encoding.scale is not None, "spikes are sent as they are"
    wanted = np.asarray(encoding.scale) * x.astype(np.float64) + np.asarray(encoding.offset)
    if encoding.register is None:
        numbers = np.rint(wanted)
    else:
        unit = encoding.shift_bits
        bits = encoding.mantissa_bits or 1
        numbers = round_mantissa(wanted * (1 << unit), bits, encoding.exponent_max, unit) >> unit
        wanted = np.clip(np.rint(wanted), encoding.low - 1, encoding.high + 1)
    beyond = (np.rint(wanted) < encoding.low) | (np.rint(wanted) > encoding.high)
    return np.clip(numbers, encoding.low, encoding.high).astype(np.int64), int(np.count_nonzero(beyond))


def with_host(run: Run, done: HostRun | None) -> Run:
    """Add the spikes of host layers and the host's work to a run. Host registers do not count as activity."""
    if done is None:
        return run
    work = HostWork(done.host.way, tuple(done.spikes), done.n_macs, done.n_writes, done.n_clipped)
    activity = run.activity
    if activity is not None and done.host.registers:
        activity = activity.drop_nodes(done.host.registers)
    spikes = done.spikes
    if run.totals is not None:  # one step with the sum of magnitudes
        spikes = {n: np.abs(s, dtype=np.int64).sum(1, keepdims=True) for n, s in spikes.items()}
    return replace(run, spikes={**spikes, **run.spikes}, activity=activity, host=work)
