"""Processes of a torch.distributed group, for tests: each runs a function of this file, none longer than a limit."""

import multiprocessing
import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist

from nwcompile import nn
from nwcompile.errors import ModelError, OptionError
from nwcompile.nn.distributed.pipeline import TimePipeline
from tests.interrupts import PATIENCE_S

LIMIT_S = PATIENCE_S
TOLD_S = 5  # How long a process that is left alone waits for the other.
SIZES = (12, 20, 16, 14, 5)


def start(n_ranks: int, check, folder, *arguments) -> list:
    """What `check(rank, n_ranks, *arguments)` returns in each of n_ranks processes, None where one has died."""
    context = multiprocessing.get_context("forkserver")  # imports torch once, and forks before it has any thread
    context.set_forkserver_preload([__name__])
    ends = [context.Pipe() for _ in range(n_ranks)]
    shared = f"file://{folder / 'store'}"
    processes = [context.Process(target=_rank, args=(ends[r][1], r, n_ranks, shared, check, arguments))
                 for r in range(n_ranks)]  # fmt: skip
    until = time.monotonic() + LIMIT_S
    for process, (_, theirs) in zip(processes, ends, strict=True):
        process.start()
        theirs.close()
    results = []
    for process, (ours, _) in zip(processes, ends, strict=True):
        try:
            results.append(ours.recv() if ours.poll(max(0, until - time.monotonic())) else "no answer in time")
        except EOFError:
            results.append(None)
        process.join(max(0.1, until - time.monotonic()) if results[-1] != "no answer in time" else 0.1)
        process.kill()
    return results


def _rank(end, rank, n_ranks, shared, check, arguments):
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    limit = timedelta(seconds=LIMIT_S)
    dist.init_process_group("gloo", init_method=shared, rank=rank, world_size=n_ranks, timeout=limit)
    end.send(check(rank, n_ranks, *arguments))


def network(kind: str) -> nn.Sequential:
    """12 inputs, 4 spiking layers, 5 outputs; weights on a grid of 2^-8."""
    torch.manual_seed(0)
    modules = []
    for i, (n, m) in enumerate(zip(SIZES, SIZES[1:], strict=False)):
        synapse, layer = (nn.H1v1Synapse, nn.H1v1Layer) if kind == "h1" and i > 0 else (nn.LIFSynapse, nn.LIFLayer)
        options = {"learn_taus": True, "learn_thresholds": True} if kind == "learning" else {}
        modules += [synapse(n, m, **({"stddev": 0.25} if kind == "h1" and i == 2 else {})),
                    layer(m, layer_topology="RC" if i in (1, 3) else "FF", **options)]  # fmt: skip
    net = nn.Sequential(*modules, *([nn.LIFSynapse(5, 5)] if kind == "readout" else []))
    with torch.no_grad():
        for name, p in net.named_parameters():
            if name.endswith(("weight", "w_rec")):
                p.copy_((torch.randn(p.shape) * 1.5 / len(p) ** 0.5 * 256).round() / 256)
    if kind == "frozen":
        net[:4].requires_grad_(False)
    return net


def inputs():
    return (torch.rand(3, 23, 12, generator=torch.Generator().manual_seed(1)) < 0.3).float()


def loss_of(result):
    target = torch.tensor([0, 3, 1])
    spikes, mem = result if isinstance(result, tuple) else (result, result)
    return torch.nn.functional.cross_entropy(mem.mean(1) + spikes.sum(1) ** 2 / 10, target)


def in_one_process(kind):
    """Result, loss and gradients by name."""
    net = network(kind)
    torch.manual_seed(7)  # what mismatch is drawn from
    nn.prepare_net(net)
    result = net(inputs())
    loss = loss_of(result)
    loss.backward()
    return result, loss.detach(), {name: p.grad for name, p in net.named_parameters()}


def compared(rank, n_ranks, cases):
    """Of each (kind, number of chunks): whether all is as in one process, and the largest error of a gradient."""
    return [compared_one(rank, n_ranks, *case) for case in cases]


def compared_one(rank, n_ranks, kind, n_chunks):
    expected, loss, grads = in_one_process(kind)
    net = network(kind)
    line = TimePipeline(net, n_chunks, timeout_s=LIMIT_S)
    is_last = rank == n_ranks - 1
    torch.manual_seed(7)
    own_loss = line.step(inputs() if rank == 0 else inputs().to("meta"), loss_of)
    own = {id(p) for p in line.layers.parameters()}
    off = {name: ((p.grad - grads[name]).abs().max() / grads[name].abs().max()).item()
           for name, p in net.named_parameters() if id(p) in own and p.requires_grad}  # fmt: skip
    as_expected = all(p.grad is None for p in net.parameters() if id(p) not in own or not p.requires_grad)
    as_expected &= bool(own_loss == loss) if is_last else own_loss is None
    if kind != "h1":  # whose mismatch is drawn anew
        result = line.forward(inputs())
        as_expected &= equal(result, expected) if is_last else result is None
    return as_expected, off


def equal(one, other):
    one, other = (of if isinstance(of, tuple) else (of,) for of in (one, other))
    return all(torch.equal(a, b) and not a.requires_grad for a, b in zip(one, other, strict=True))


def trained(rank, n_ranks, n_steps):
    """The loss of each of some steps of gradient descent, in the last process; chunks change on the way."""
    net, x, losses = network("lif").double(), inputs().double(), []
    for n_chunks in (4, 2):
        line = TimePipeline(net, n_chunks, timeout_s=LIMIT_S)
        optimizer = torch.optim.SGD(line.layers.parameters(), 0.05)
        for _ in range(n_steps):
            optimizer.zero_grad()
            loss = line.step(x, loss_of)
            line.forward(x[:, :11])  # another length between, without gradients
            optimizer.step()
            losses.append(None if loss is None else loss.item())
    return losses


def refused(rank, n_ranks):
    """The texts of errors that every process finds by itself."""
    line = TimePipeline(network("lif"), 4, timeout_s=LIMIT_S)
    norms = torch.nn.BatchNorm1d(12), torch.nn.BatchNorm1d(12, track_running_stats=False).eval()
    normed = [TimePipeline(nn.Sequential(norm, *network("lif")), 4, timeout_s=LIMIT_S) for norm in norms]
    net = nn.Sequential(nn.LIFSynapse(12, 5), nn.LIFLayer(5, surrogate="eventprop"))
    timed = [TimePipeline(net, n_chunks, timeout_s=LIMIT_S) for n_chunks in (4, 1)]
    calls = [lambda: line.forward(inputs()[0]), lambda: line.forward(inputs()[:, :0]), lambda: line.forward(None),
             lambda: line.forward(inputs()[..., :3]), lambda: normed[0].step(inputs(), loss_of),
             lambda: normed[0].forward(inputs()), lambda: normed[1].forward(inputs()),
             lambda: torch.inference_mode()(line.step)(inputs(), loss_of), lambda: line.step(inputs(), lambda _: None),
             lambda: line.step(inputs(), lambda _: torch.ones(2)), lambda: timed[0].step(inputs(), loss_of),
             lambda: timed[0].forward(inputs()), lambda: timed[1].step(inputs(), loss_of)]  # fmt: skip
    return [told(call) for call in calls]


def disagreed(rank, n_ranks):
    """The texts of errors where process 1 comes with something else; then that both can go on."""
    line, other = TimePipeline(network("lif"), 4, timeout_s=LIMIT_S), network("readout" if rank else "lif")
    calls = [lambda: TimePipeline(network("lif"), 4 + rank), lambda: TimePipeline(other, 4),
             lambda: line.forward(inputs()[:, rank:]),
             lambda: line.step(inputs(), loss_of) if rank else line.forward(inputs())]  # fmt: skip
    return [told(call) for call in calls], told(lambda: line.step(inputs(), loss_of))


def told(call) -> str:
    try:
        call()
    except (ModelError, OptionError) as e:
        return str(e)
    return "no error"


def trained_alone(n_steps):
    net, losses = network("lif").double(), []
    optimizer = torch.optim.SGD(net.parameters(), 0.05)
    for _ in range(2 * n_steps):
        optimizer.zero_grad()
        nn.prepare_net(net)
        loss = loss_of(net(inputs().double()))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def left_alone(rank, n_ranks):
    """Process 1 fails, is late, then dies, always before it goes backward; what process 0 is told each time."""
    TimePipeline(network("lif"), 4, timeout_s=LIMIT_S).step(inputs(), loss_of)  # kernels are loaded by then
    dist.barrier()
    told = []
    for loss_fn in (fails, is_late, dies):
        line = TimePipeline(network("lif"), 4, timeout_s=LIMIT_S if rank else TOLD_S)
        try:
            line.step(inputs(), loss_fn)
        except RuntimeError as e:
            told.append(f"{type(e).__name__}: {e}")
        if loss_fn is fails:
            assert rank == 0 or told == ["RuntimeError: shapes differ"]
        if loss_fn is fails or (loss_fn is is_late and rank == 0):
            dist.barrier()
    return told


def fails(result):
    raise RuntimeError("shapes differ")


def is_late(result):
    dist.barrier()  # process 0 comes there when it has been told
    raise RuntimeError("too late")


def dies(result):
    os._exit(3)
