"""Read noise of memory cells: each column's sum gets new Gaussian noise in every step.

A cell with weight w that is read with a spike s gives w*s*(1 + deviation*e), and every read has its own standard normal
e. A column adds what its cells give, so its sum deviates by deviation * e * sqrt(sum (w*s)^2), with one e for each sum.
"""

import numpy as np

from nwcompile.ir.connection import Connection, Dense, synapse_list
from nwcompile.ir.host import Injected
from nwcompile.ir.network import Network
from nwcompile.ir.program import Program
from nwcompile.ir.run import Run
from nwcompile.sim import simulate
from nwcompile.sim.inputs import Inputs

LARGEST = (1 << 31) - 1  # Inputs are int32.


def simulate_reads(
    program: Program, inputs: Inputs, deviation: float, draws: dict[str, np.ndarray], backend: str, device: str, record
) -> Run:
    """Simulate a program whose synaptic sums are read with noise; `draws` are e of its layers, float[B, T, *shape].

    The noise enters as numbers in bias registers, so each backend runs it exactly. It depends on the spikes of its own
    step. The run is therefore repeated until its noise no longer changes. Each repetition settles at
    least one more layer, or one more step of layers that feed each other.
    """
    network = program.network
    registers = {name: f"{name}/read noise" for name in draws}
    noisy = program.with_registers({register: name for name, register in registers.items()})
    squares = {c: _square_weights(network, c) for c in network.connections if not isinstance(c, Injected)}
    from_inputs = {name: _sum_squares(network, name, squares, inputs, inputs.shape) for name in draws}
    noise = {registers[name]: np.zeros(e.shape, np.int32) for name, e in draws.items()}
    while True:
        run = simulate(noisy, inputs.replace(noise), backend, device, record=record)
        sent = {name: network.node(name).merge_axon_spikes(x) for name, x in run.spikes.items()}
        given, noise = noise, {}
        for name, e in draws.items():
            power = from_inputs[name] + _sum_squares(network, name, squares, sent, inputs.shape)
            read = np.rint(deviation * e * np.sqrt(power).reshape(e.shape))
            if program.schedule.offset[name] == 0:  # its registers act a step later, and nothing is read in its first
                read = np.roll(read, -1, axis=1)
            noise[registers[name]] = np.clip(read, -LARGEST, LARGEST).astype(np.int32)
        if all(np.array_equal(array, given[register]) for register, array in noise.items()):
            return run


def _sum_squares(network: Network, name: str, squares: dict, sent: dict, shape: tuple[int, int]) -> np.ndarray:
    """Return the sums of (w*s)^2 of a layer's neurons, float64[B, T, n], over the sources in `sent` [B, T, *shape]."""
    n_samples, n_steps = shape
    power = np.zeros((n_samples, n_steps, network.node(name).n_neurons))
    for c in network.into(name):
        n_heard = n_steps - c.aligned_delay
        if c in squares and c.source in sent and n_heard > 0:
            x = sent[c.source][:, :n_heard].reshape(n_samples * n_heard, -1).astype(np.float64) ** 2
            power[:, c.aligned_delay :] += (x @ squares[c]).reshape(n_samples, n_heard, -1)
    return power


def _square_weights(network: Network, connection: Connection):
    """Return the squared weights of a connection, float64[source, target], as a sparse matrix unless it is dense."""
    weight = np.asarray(connection.weight, np.float64) ** 2
    if isinstance(connection, Dense):
        return weight.T
    from scipy.sparse import csr_array

    source, target = network.node(connection.source), network.node(connection.target)
    pre, post, place = synapse_list(connection, source.shape)
    return csr_array((weight.reshape(-1)[place], (pre, post)), (source.n_neurons, target.n_neurons))
