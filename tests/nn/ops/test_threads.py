"""Parts of tensors over threads."""

import threading

import pytest
import torch

from nwcompile import nn
from nwcompile.nn.ops import threads
from nwcompile.nn.ops.threads import _pools, run_on_threads
from tests.interrupts import PATIENCE_S


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_parts_are_done_by_all_threads_and_each_once(two_threads):
    both, done = threading.Barrier(2, timeout=PATIENCE_S), []

    def work(k):
        if k < 2:
            both.wait()
        done.append(k)

    run_on_threads(work, 7)
    assert sorted(done) == list(range(7))


def test_parts_wait_for_no_thread_that_is_late(two_threads):
    run_on_threads(lambda k: None, 2)
    later = threading.Event()
    busy = _pools[2].submit(later.wait, PATIENCE_S)
    try:
        done = []
        run_on_threads(done.append, 3)
        assert done == [0, 1, 2]
        assert not busy.done()
    finally:
        later.set()


@pytest.mark.parametrize("n_threads", [1, 2])
def test_parts_raise_what_one_of_them_raises(two_threads, n_threads):
    torch.set_num_threads(n_threads)
    with pytest.raises(ZeroDivisionError):
        run_on_threads(lambda k: 1 // (k - 2), 4)


@pytest.mark.parametrize("topology", ["FF", "RC"])
def test_parts_give_the_bits_of_one_piece(two_threads, monkeypatch, topology):
    def results():
        torch.manual_seed(0)
        net = nn.Sequential(nn.LIFSynapse(5, 40), nn.LIFLayer(40, taus=10e-3, thresholds=0.5,
                            reset_mechanism="subtraction", dt=1e-3, layer_topology=topology))  # fmt: skip
        x = (torch.rand(6, 20, 5) < 0.3).float().requires_grad_()
        nn.prepare_net(net)
        spikes, mem = net(x)
        (spikes.sum() + mem.square().sum()).backward()
        return [spikes, mem, x.grad]

    whole = results()
    monkeypatch.setattr(threads, "MIN_BLOCK_NUMBERS", 100)
    cut = results()
    assert len(threads.split_blocks(6, 20, 40, topology == "RC", 16)) > 1
    assert whole[0].sum() > 0 and all(torch.equal(a, b) for a, b in zip(whole, cut, strict=True))
