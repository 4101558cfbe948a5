"""Operators of the layers, registered with torch so that they can be compiled, exported and loaded by name.

`import nwcompile.nn` registers them. The kernels are in `nwcompile.nn.ops.cpu` and, for device "cuda", in
`nwcompile.nn.ops.gpu`, which is loaded on first use. A state holds the membranes, `[1, B, N]`; with recurrent weights
also the spikes of the previous step, `[2, B, N]`.
"""

from contextlib import nullcontext
from types import ModuleType

import torch
from torch import Tensor
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

from nwcompile.errors import BackendError, ModelError
from nwcompile.nn.ops import cpu

DEVICES = ("cpu", "cuda")
KERNEL_DTYPES = (torch.float32, torch.float64)
FREED = "second time"  # Part of torch's error about a graph that a backward pass has freed.


def select_kernels(tensor: Tensor) -> ModuleType:
    """Return the kernels for a tensor's device, `nn.ops.cpu` or `nn.ops.gpu`. Raises BackendError without triton."""
    if tensor.device.type == "cpu":
        return cpu
    try:
        from nwcompile.nn.ops import gpu
    except ImportError as e:
        raise BackendError(f"the GPU kernels need triton ({e}); pip install 'nwcompile[cuda]'", code="NW6102") from None
    return gpu


@torch.library.custom_op("nwcompile::lif_scan", mutates_args=(), device_types=DEVICES)
def lif_scan(
    current: Tensor,
    state: Tensor,
    beta: Tensor,
    threshold: Tensor,
    w_rec: Tensor | None,
    reset: str,
    floor: bool,
    detach_reset: bool,
    surrogate: str,
    slope: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Run LIF neurons on `current`, `[B, T, N]` or `[B, N]`: `spikes`, `mem` and the last state; see `nn.ops.scan`."""
    return select_kernels(current).forward(current, state, beta, threshold, w_rec, reset, floor)


@torch.library.custom_op("nwcompile::lif_scan_backward", mutates_args=(), device_types=DEVICES)
def lif_scan_backward(
    grad_spikes: Tensor | None,
    grad_mem: Tensor | None,
    grad_last: Tensor | None,
    current: Tensor,
    spikes: Tensor,
    mem: Tensor,
    state: Tensor,
    beta: Tensor,
    threshold: Tensor,
    w_rec: Tensor | None,
    reset: str,
    floor: bool,
    detach_reset: bool,
    surrogate: str,
    slope: float,
    learns: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients of current, state, beta and threshold; the last two are empty unless `learns`."""
    grads = (grad_spikes, grad_mem, grad_last)
    rule = (reset, floor, detach_reset, surrogate, slope)
    return _scan_backward(grads, current, spikes, mem, state, beta, threshold, w_rec, rule, learns)


@torch.library.custom_op("nwcompile::lif_fire", mutates_args=(), device_types=DEVICES)
def lif_fire(
    current: Tensor, state: Tensor, beta: Tensor, threshold: Tensor, reset: str, floor: bool, form: str
) -> tuple[Tensor, Tensor]:
    """Return spikes as "float", "uint8" or "bits", and the last state; without a gradient."""
    return select_kernels(current).fire(current, state, beta, threshold, reset, floor, form)


@torch.library.custom_op("nwcompile::spike_matmul", mutates_args=(), device_types=DEVICES)
def spike_matmul(x: Tensor, weight: Tensor) -> Tensor:
    """Return `x @ weight` of `[..., n_in]` and `[n_in, n_out]`, each row summed alone; see `nn.ops.spike_matmul`."""
    return select_kernels(x).spike_matmul(x, weight)


@torch.library.custom_op("nwcompile::delayed_sums", mutates_args=(), device_types=DEVICES)
def delayed_sums(
    x: Tensor, taps: Tensor, start: Tensor, by_target: list[Tensor], by_source: list[Tensor], n_out: int, reach: int
) -> Tensor:
    """Return the sums of delayed synapses, `[B, T, n_out]`; see `nn.ops.delays`."""
    order, row, source = by_target
    return select_kernels(x).delayed_sums(x, taps[order], start[order], row, source, n_out, reach, False)


@torch.library.custom_op("nwcompile::delayed_sums_backward", mutates_args=(), device_types=DEVICES)
def delayed_sums_backward(
    grad: Tensor,
    x: Tensor,
    taps: Tensor,
    start: Tensor,
    by_target: list[Tensor],
    by_source: list[Tensor],
    reach: int,
    of_x: bool,
    of_taps: bool,
) -> tuple[Tensor, Tensor]:
    """Return the gradients of `x` and `taps`; a gradient that is not wanted is empty."""
    grad_x, grad_taps = x.new_empty(0), taps.new_empty(0)
    if of_x:
        order, row, target = by_source
        grad_x = select_kernels(x).delayed_sums(grad, taps[order], start[order], row, target, x.shape[2], reach, True)
    if of_taps:
        order, row, source = by_target
        listed = select_kernels(x).delayed_products(x, grad, start[order], row, source, taps.shape[1], reach)
        grad_taps = torch.empty_like(listed)
        grad_taps[order] = listed
    return grad_x, grad_taps


@torch.library.custom_op("nwcompile::straight_through", mutates_args=())
def straight_through(source: Tensor, value: Tensor, factor: Tensor, spent: bool) -> Tensor:
    """Return `value`, computed from `source` in any way; its gradient reaches `source` times `factor`.

    Raises ModelError in a second backward pass through a freed graph, or in any backward pass if `spent`.
    """
    return value.clone()


@lif_scan.register_fake
def _(current, state, beta, threshold, w_rec, reset, floor, detach_reset, surrogate, slope):
    return beta.new_empty(current.shape), beta.new_empty(current.shape), _empty_dense(state)


@lif_scan_backward.register_fake
def _(grad_spikes, grad_mem, grad_last, current, spikes, mem, state, beta, *others):
    learns = others[-1]
    sums = beta.new_empty(beta.shape[0] if learns else 0), beta.new_empty(beta.shape[0] if learns else 0)
    return _empty_dense(current), _empty_dense(state), *sums


@lif_fire.register_fake
def _(current, state, beta, threshold, reset, floor, form):
    return cpu.empty_spikes(*current.shape[:2], beta, form), _empty_dense(state)


@spike_matmul.register_fake
def _(x, weight):
    return x.new_empty((*x.shape[:-1], weight.shape[1]))


@delayed_sums.register_fake
def _(x, taps, start, by_target, by_source, n_out, reach):
    return x.new_empty((*x.shape[:2], n_out))


@delayed_sums_backward.register_fake
def _(grad, x, taps, start, by_target, by_source, reach, of_x, of_taps):
    return x.new_empty(x.shape if of_x else 0), taps.new_empty(taps.shape if of_taps else 0)


@straight_through.register_fake
def _(source, value, factor, spent):
    return _empty_dense(value)


def _empty_dense(like: Tensor) -> Tensor:
    return torch.empty_like(like, memory_format=torch.contiguous_format)


def _keep_scan(ctx, inputs, output):
    current, state, beta, threshold, w_rec, *rule = inputs
    spikes, mem, _ = output
    ctx.save_for_backward(current, state, beta, threshold, w_rec, spikes, mem)
    ctx.rule = rule
    ctx.set_materialize_grads(False)


def _scan_backward(grads, current, spikes, mem, state, beta, threshold, w_rec, rule, learns):
    """Compute the gradients of current, state, beta and threshold with a surrogate or with EventProp."""
    of = select_kernels(current)
    reset, floor, detach_reset, surrogate, _ = rule
    if surrogate != "eventprop":
        return of.backward(grads, current, spikes, mem, state, beta, threshold, w_rec, rule, learns)
    kept = of.keep_spikes(current, spikes, mem, state, beta, threshold, reset, floor)
    return _spike_adjoint(grads, current.shape, current.dtype, kept, mem, state, beta, threshold, rule, learns)


def _spike_adjoint(grads, shape, dtype, kept, mem, state, beta, threshold, rule, learns):
    """Compute the gradients of current (in its dtype), state, beta and threshold with EventProp."""
    reset, floor, detach_reset, *_ = rule
    if reset == "none" and grads[0] is not None and grads[0].any():  # compiled graphs give zeros for None
        raise ModelError(NO_RESET)
    given = shape, kept, mem, state, beta, threshold, reset, floor, detach_reset, learns
    grad_current, *others = select_kernels(beta).spike_adjoint(grads, *given)
    return grad_current.to(dtype), *others


def _scan_gradient(ctx, grad_spikes, grad_mem, grad_last):
    current, state, beta, threshold, w_rec, spikes, mem = load_saved(ctx)
    needs = ctx.needs_input_grad
    grads = (grad_spikes, grad_mem, grad_last)
    tensors = (current, spikes, mem, state)
    learns = needs[2] or needs[3]
    if is_plain(current) and not torch.is_grad_enabled():  # enabled for gradients of gradients, which are refused
        gradients = _scan_backward(grads, *tensors, beta, threshold, w_rec, ctx.rule, learns)
    else:
        gradients = lif_scan_backward(*grads, *tensors, beta, threshold, w_rec, *ctx.rule, learns)
    grad_current, grad_state, grad_beta, grad_threshold = gradients
    grad_w = None
    if w_rec is not None and needs[4]:
        before = state[1] if current.ndim == 2 else torch.cat([state[1, :, None], spikes[:, :-1]], 1).flatten(0, 1)
        with full_precision(current):
            grad_w = before.T @ grad_current.reshape(before.shape)
    return (
        grad_current, grad_state, grad_beta if needs[2] else None, grad_threshold if needs[3] else None, grad_w,
        *[None] * len(ctx.rule)
    )  # fmt: skip


def _keep_operands(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def _spike_matmul_gradient(ctx, grad):
    x, weight = load_saved(ctx)
    of_x, of_weight = ctx.needs_input_grad
    with full_precision(grad):
        grad_x = grad @ weight.T if of_x else None
        if x.ndim != 2:
            x = x.reshape(-1, x.shape[-1])
            grad = grad.reshape(-1, grad.shape[-1])
        return grad_x, x.T @ grad if of_weight else None


def _keep_delayed(ctx, inputs, output):
    x, taps, start, ctx.by_target, ctx.by_source, _, ctx.reach = inputs
    ctx.save_for_backward(x, taps, start)


def _delayed_gradient(ctx, grad):
    of_x, of_taps, *_ = ctx.needs_input_grad
    lists = ctx.by_target, ctx.by_source
    grad_x, grad_taps = delayed_sums_backward(grad.contiguous(), *load_saved(ctx), *lists, ctx.reach, of_x, of_taps)
    return grad_x if of_x else None, grad_taps if of_taps else None, None, [None] * 3, [None] * 3, None, None


def _keep_factor(ctx, inputs, output):
    ctx.save_for_backward(inputs[2])
    ctx.spent = inputs[3]


def _straight_gradient(ctx, grad):
    (factor,) = load_saved(ctx)
    if ctx.spent:
        raise ModelError(SPENT)
    return grad * factor, None, None, None


NO_RESET = (
    "surrogate 'eventprop': without a reset spikes have no gradient; use the layer's membranes, another "
    "reset_mechanism or another surrogate"
)
SPENT = (
    "a second backward pass reached weights or states that an earlier one has used up; call "
    "nwcompile.nn.prepare_net(model) before the forward pass of every batch"
)


def is_used_up(tensor: torch.Tensor) -> bool:
    """Return whether a backward pass has freed the graph from which an operation of `nn.ops` made `tensor`."""
    return is_freed(tensor.grad_fn)


def is_freed(node) -> bool:
    """Return whether a backward pass has freed a node's saved tensors; False for None and for torch's own nodes.

    No saved tensor is unpacked: unpacking makes torch.utils.checkpoint recompute it, which it does only once.
    """
    try:
        getattr(node, "_raw_saved_tensors", None)
    except RuntimeError as e:
        return FREED in str(e)
    return False


def is_in_backward() -> bool:
    """Return whether a backward pass runs, in which torch.utils.checkpoint recomputes layers; False while compiling."""
    return not torch.compiler.is_compiling() and torch._C._current_graph_task_id() != -1


def load_saved(ctx) -> tuple:
    """Return the tensors saved for the backward pass. Raises ModelError if a backward pass has freed them."""
    if is_freed(ctx):
        raise ModelError(SPENT)
    return ctx.saved_tensors


class DirectScan(torch.autograd.Function):
    """`lif_scan` without torch's dispatcher, whose overhead exceeds a step of a small layer."""

    @staticmethod
    def forward(ctx, *inputs):
        current, state, beta, threshold, w_rec, reset, floor, *_ = inputs
        output = select_kernels(current).forward(current, state, beta, threshold, w_rec, reset, floor)
        _keep_scan(ctx, inputs, output)
        return output

    backward = staticmethod(_scan_gradient)


class SpikeScan(torch.autograd.Function):
    """`lif_scan` with EventProp and without torch's dispatcher; it saves only the values at spikes.

    If beta is trained, it saves the membranes too.
    """

    @staticmethod
    def forward(ctx, *inputs):
        current, state, beta, threshold, w_rec, *ctx.rule = inputs
        reset, floor, *_ = ctx.rule
        ctx.set_materialize_grads(False)
        spikes, mem, last = select_kernels(current).forward(current, state, beta, threshold, w_rec, reset, floor)
        if any(ctx.needs_input_grad):
            ctx.shape, ctx.dtype = current.shape, current.dtype
            kept = select_kernels(current).keep_spikes(current, spikes, mem, state, beta, threshold, reset, floor)
            ctx.save_for_backward(*kept, mem if ctx.needs_input_grad[2] else None, state, beta, threshold)
        return spikes, mem, last

    @staticmethod
    def backward(ctx, *grads):
        *kept, mem, state, beta, threshold = load_saved(ctx)
        needs = ctx.needs_input_grad
        if torch.is_grad_enabled():
            raise ModelError("surrogate 'eventprop' has no gradients of gradients; leave out create_graph=True")
        learns = needs[2] or needs[3]
        gradients = _spike_adjoint(grads, ctx.shape, ctx.dtype, kept, mem, state, beta, threshold, ctx.rule, learns)
        wanted = (gradient if need else None for gradient, need in zip(gradients, needs, strict=False))
        return *wanted, None, *[None] * len(ctx.rule)


class DirectSpikeMatmul(torch.autograd.Function):
    """`spike_matmul` without torch's dispatcher."""

    @staticmethod
    def forward(ctx, *inputs):
        _keep_operands(ctx, inputs, None)
        return select_kernels(inputs[0]).spike_matmul(*inputs)

    backward = staticmethod(_spike_matmul_gradient)


def full_precision(tensor: Tensor):
    """Return a context that disables autocast on the device of `tensor`."""
    kind = tensor.device.type
    return torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else nullcontext()


def is_plain(tensor: Tensor) -> bool:
    """Return whether a tensor holds plain numbers: no tracing, no fake tensor, no dispatch mode."""
    return (
        type(tensor) is Tensor
        and tensor.device.type in DEVICES
        and not torch.compiler.is_compiling()
        and not is_in_torch_dispatch_mode()
    )


lif_scan.register_autograd(_scan_gradient, setup_context=_keep_scan)
spike_matmul.register_autograd(_spike_matmul_gradient, setup_context=_keep_operands)
delayed_sums.register_autograd(_delayed_gradient, setup_context=_keep_delayed)
straight_through.register_autograd(_straight_gradient, setup_context=_keep_factor)
