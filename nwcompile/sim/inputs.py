"""Inputs: check a network's inputs `[B, T, *shape]`, convert them, and run the host on them."""

from collections.abc import Callable, Sequence

import numpy as np

from nwcompile.errors import ModelError, shown
from nwcompile.ir.chip import Chip
from nwcompile.ir.host import Injected
from nwcompile.ir.network import LAYOUTS, Network
from nwcompile.sim.host import HostRun, run_host
from nwcompile.sim.values import verify_values, verify_whole

ERROR_CODE = "NW6001"
LARGEST_STEPS = (1 << 31) - 1
LARGEST_FLOAT = float(np.finfo(np.float32).max)


class Inputs(dict):
    """Prepared inputs by name, `[B, T, *shape]`, registers included: the result of `prepare_inputs`.

    `shape`: (B, T). `host_run`: the host's results (`sim.host.HostRun`), None without a host.
    """

    shape: tuple[int, int] = (1, 1)
    host_run: HostRun | None = None

    def replace(self, changes: dict[str, np.ndarray]) -> "Inputs":
        """Return a copy with further or other arrays `[B, T, *shape]`."""
        changed = Inputs({**self, **changes})
        changed.shape, changed.host_run = self.shape, self.host_run
        return changed


def append_step(inputs: Inputs) -> Inputs:
    """Append an empty step to prepared inputs."""
    longer = Inputs({name: np.concatenate([a, np.zeros_like(a[:, :1])], 1) for name, a in inputs.items()})
    longer.shape = inputs.shape[0], inputs.shape[1] + 1
    return longer


def add_sample_axis(network: Network, sample: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Add a sample axis to a sample [T, n] by input name, in the network's layout."""
    axis = 1 if network.layout == "TB" else 0
    return {
        name: np.expand_dims(array.reshape(len(array), *network.node(name).shape), axis)
        for name, array in sample.items()
    }


def prepare_inputs(
    network: Network,
    x,
    steps: int | None = None,
    chip: Chip | None = None,
    on_multi_spike: str = "refuse",
    before: Callable[[int, int, int], None] | None = None,
) -> tuple[Inputs, int, int]:
    """Return `(inputs, B, T)`; inputs are C-contiguous `[B, T, *shape]`, float32 (float network) or int32 (fixed).

    `x`, in the layout `network.layout`, is an array for a network with one input, a dict of arrays by input name, or
    None with `steps=N` (B = 1). Missing inputs are silent. In layout "B" a sample `[B, *shape]` is repeated `steps`
    times, by default as often as the module looped. The network's host runs here, once. Inputs that are already
    prepared are returned unchanged. With a `chip`, it must accept the values, under `on_multi_spike` (`Options`).
    `before(B, T, bytes)` is called before large arrays are allocated, with the bytes of converted copies.
    Raises ModelError for wrong names, shapes, dtypes or values.
    """
    if isinstance(x, Inputs):
        if before is not None:
            before(*x.shape, 0)
        return x, *x.shape
    named = _by_name(network, x)
    whole = isinstance(steps, int | np.integer) and not isinstance(steps, bool)
    if steps is not None and not (whole and 1 <= steps <= LARGEST_STEPS):
        raise ModelError(f"steps={shown(steps)} must be a whole number from 1 to {LARGEST_STEPS}")
    if not named and steps is None:
        expected = "[B, T, *shape]" if network.layout == "BT" else LAYOUTS[network.layout]
        raise ModelError(f"no input: give x of shape {expected}, or x=None with steps=N")
    arrays = {name: _check_array(network, name, value, steps) for name, value in named.items()}
    of_host = () if network.host is None else network.host.network.inputs
    registers = {c.source for c in network.connections if isinstance(c, Injected)}  # wider than a message
    for name, array in arrays.items():
        if name in of_host or name in registers:
            continue
        if network.is_fixed or chip is not None:
            verify_whole(name, array)
        if chip is not None:
            verify_values(name, int(array.min()), int(array.max()), chip, on_multi_spike)
    sizes = {array.shape[:2] for array in arrays.values()} or {(1, steps)}
    if len(sizes) > 1:
        raise ModelError(
            f"inputs differ in [B, T]: {', '.join(str(list(s)) for s in sorted(sizes))}; give them all alike"
        )
    n_samples, n_steps = sizes.pop()
    if steps is not None and steps != n_steps:
        raise ModelError(f"steps={steps} but x has T = {n_steps}; leave steps out or make them equal")
    if before is not None:
        is_made = (a for n, a in arrays.items() if n not in of_host and a.dtype != _input_dtype(network))
        before(n_samples, n_steps, sum(np.dtype(_input_dtype(network)).itemsize * a.size for a in is_made))
    for name, node in network.given_inputs.items():
        arrays.setdefault(name, np.zeros((n_samples, n_steps, *node.shape), _input_dtype(network)))
    arrays |= constant_inputs(network, n_samples, n_steps)
    inputs = Inputs()
    inputs.shape = n_samples, n_steps
    if network.host is not None:
        floats = {name: np.ascontiguousarray(arrays[name], np.float32) for name in of_host}
        inputs.host_run, made = run_host(network.host, floats, n_steps)
        for name in network.host.gives:
            if name in network.inputs and chip is not None:
                verify_values(name, int(made[name].min()), int(made[name].max()), chip, on_multi_spike)
        arrays = {name: array for name, array in arrays.items() if name in network.inputs} | made
    arrays |= repeat_lines(network, arrays)
    ordered = [*network.inputs, *(name for name in arrays if name not in network.inputs)]
    inputs.update({name: np.ascontiguousarray(arrays[name], _input_dtype(network)) for name in ordered})
    return inputs, n_samples, n_steps


def repeat_lines(network: Network, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the inputs that repeat lines of others, `[B, T, *shape]`."""
    copies = {name: node.repeats for name, node in network.inputs.items() if node.repeats is not None}
    return {name: arrays[of].reshape(*arrays[of].shape[:2], -1)[..., lines] for name, (of, lines) in copies.items()}


def constant_inputs(network: Network, n_samples: int, n_steps: int) -> dict[str, np.ndarray]:
    """Return the inputs with a constant value, `[B, T, *shape]`."""
    always = {name: node for name, node in network.inputs.items() if node.constant is not None}
    return {
        name: np.full((n_samples, n_steps, *node.shape), node.constant, _input_dtype(network))
        for name, node in always.items()
    }


def add_constants(network: Network, samples: Inputs | None) -> Inputs | None:
    """Add the inputs that the compiler added to the network to prepared samples."""
    if samples is None or all(name in samples for name in network.inputs):
        return samples
    return samples.replace(constant_inputs(network, *samples.shape))


def frames_of(network: Network, steps: Sequence[tuple]) -> dict[str, np.ndarray]:
    """Return int64[n, *shape] by input, for n steps of (lines, values); `values` are integers, or one for all lines.

    Lines are numbered across the given inputs, in order. Values of a repeated line add up. Raises ModelError for
    numbers outside the lines.
    """
    sizes = {name: node.n_neurons for name, node in network.given_inputs.items()}
    n_lines = sum(sizes.values())
    frames = np.zeros((len(steps), n_lines), np.int64)
    for t, (lines, values) in enumerate(steps):
        try:
            numbers = np.asarray(lines)
        except ValueError:  # nested lists of different lengths
            numbers = np.zeros(())
        if numbers.shape == (0,):
            continue
        if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
            raise ModelError(f"step {t} of the events must be a list of whole numbers, the lines that spike in it")
        if not 0 <= numbers.min() <= numbers.max() < n_lines:
            wrong = numbers[(numbers < 0) | (numbers >= n_lines)][0]
            raise ModelError(f"step {t} of the events names line {wrong}; the lines are 0..{n_lines - 1}")
        np.add.at(frames[t], numbers, values)
    first = np.cumsum([0, *sizes.values()])
    return {
        name: frames[:, first[i] : first[i + 1]].reshape(len(steps), *network.given_inputs[name].shape)
        for i, name in enumerate(sizes)
    }


def _input_dtype(network: Network):
    return np.int32 if network.is_fixed else np.float32


def _by_name(network: Network, x) -> dict:
    if x is None:
        return {}
    if isinstance(x, dict):
        for name in x:
            if name not in network.given_inputs and name not in network.inputs:
                raise ModelError(f"there is no input {name!r}; inputs: {', '.join(network.given_inputs) or 'none'}")
        return x
    given = network.given_inputs
    if len(given) != 1:
        names = ", ".join(given) or "none"
        raise ModelError(f"the network has {len(given)} inputs ({names}); give x as a dict by input name")
    return {next(iter(given)): x}


def _check_array(network: Network, name: str, value, steps: int | None) -> np.ndarray:
    """Check one input and return it as finite numbers `[B, T, *shape]`."""
    shape = {**network.inputs, **network.given_inputs}[name].shape
    expected = _expected_shape(network.layout, shape)
    try:
        array = np.asarray(value.detach().cpu().numpy() if hasattr(value, "detach") else value)
    except (TypeError, ValueError, RuntimeError) as e:
        raise ModelError(f"input {name!r} must be numbers of shape {expected}: {e}") from None
    if array.dtype == bool:
        array = array.astype(np.int8)
    if array.dtype.kind not in "iuf":
        raise ModelError(f"input {name!r} of dtype {array.dtype} must be numbers of shape {expected}")
    is_static = network.layout == "B" and array.shape[1:] == shape
    n_outer = 1 if is_static else 2
    if array.shape[n_outer:] != shape or 0 in array.shape[:n_outer]:
        hint = ""
        if array.shape[1:] == shape and not is_static:
            hint = " (is the time axis missing?)"
        elif 0 in array.shape[:n_outer]:
            n_samples = array.shape[1 if network.layout == "TB" else 0]
            hint = f" (give {'a sample' if n_samples == 0 else 'a step'} or more)"
        raise ModelError(f"input {name!r} must be {expected}, got shape {list(array.shape)}{hint}")
    n_steps = network.n_steps if steps is None else steps
    if is_static and n_steps is None:
        raise ModelError(
            f"input {name!r} of shape {list(array.shape)} is the same in every step, and nothing says how many steps "
            "there are; give steps=N"
        )
    if not np.isfinite(array).all():
        raise ModelError(f"input {name!r} has NaN or infinite values; clean the data first")
    if array.dtype.kind == "f" and max(float(array.max(initial=0)), -float(array.min(initial=0))) > LARGEST_FLOAT:
        raise ModelError(
            f"input {name!r} has values beyond {LARGEST_FLOAT:.3g}, the largest float32; scale the data down"
        )
    if is_static and n_steps is not None:
        array = np.broadcast_to(array[:, None], (len(array), n_steps, *shape))
    elif network.layout == "TB":
        array = array.swapaxes(0, 1)
    return array


def _expected_shape(layout: str, shape: tuple[int, ...]) -> str:
    """Describe the expected shape of samples, with the layout if it is not "BT"."""
    rest = ", ".join(map(str, shape))
    if layout == "TB":
        return f"[T, B, {rest}] (layout 'TB', as the network was imported: steps first, then samples)"
    if layout == "B":
        return f"[B, {rest}], the same in every step, or [B, T, {rest}] (layout 'B', as the network was imported)"
    return f"[B, T, {rest}]"
