"""Tiny NIR graphs."""

import numpy as np


def weights(*shape: int) -> np.ndarray:
    """float32 weights around 0.3, large enough to cause spikes, that depend on the shape only."""
    return np.random.default_rng(shape).normal(0.3, 0.6, shape).astype(np.float32)


def graph(edges, type_check: bool = True, **nodes):
    """Build a nir.NIRGraph; `edges` is text like "input > fc > lif > output, lif > rec > lif"."""
    import nir

    pairs = []
    for chain in edges.split(","):
        names = [name.strip() for name in chain.split(">")]
        pairs += zip(names[:-1], names[1:], strict=True)
    return nir.NIRGraph(nodes, pairs, type_check=type_check)


def inputs(*shape: int):
    import nir

    return nir.Input(input_type={"input": np.array(shape)})


def outputs(*shape: int):
    import nir

    return nir.Output(output_type={"output": np.array(shape)})


def linear(n_out: int, n_in: int):
    import nir

    return nir.Linear(weights(n_out, n_in))


def lif(*shape: int, tau=1e-3, r=10.0, v_leak=0.0, v_threshold=1.0, v_reset=0.0):
    """Build a LIF node with tau and r that snnTorch writes for beta = 0.9 and dt = 1e-4."""
    import nir

    full = {"tau": tau, "r": r, "v_leak": v_leak, "v_threshold": v_threshold, "v_reset": v_reset}
    return nir.LIF(**{key: np.full(shape, value) for key, value in full.items()})


def cuba(*shape: int, tau_syn=2e-4, tau_mem=4e-4, r=4.0, w_in=2.0, v_leak=0.0, v_threshold=1.0, v_reset=0.0):
    """Build a CubaLIF node with constants that SpikingJelly writes for c_decay = 0.5, v_decay = 0.75, dt = 1e-4."""
    import nir

    full = {"tau_syn": tau_syn, "tau_mem": tau_mem, "r": r, "w_in": w_in, "v_leak": v_leak}
    full |= {"v_threshold": v_threshold, "v_reset": v_reset}
    return nir.CubaLIF(**{key: np.full(shape, value) for key, value in full.items()})


def if_node(*shape: int, r=1.0, v_threshold=1.0, v_reset=0.0):
    import nir

    return nir.IF(np.full(shape, r), np.full(shape, v_threshold), np.full(shape, v_reset))


def conv(weight, stride=1, padding=0, dilation=1, groups=1, input_shape=None):
    import nir

    return nir.Conv2d(input_shape, weight, stride, padding, dilation, groups, np.zeros(len(weight), np.float32))


def one_layer(neuron, n: int = 3):
    """Build the graph input(2) > fc > neuron > output."""
    return graph("input > fc > n > output", input=inputs(2), fc=linear(n, 2), n=neuron, output=outputs(n))
