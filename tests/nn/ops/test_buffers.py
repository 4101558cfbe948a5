import numpy as np
import pytest
import torch

from nwcompile.nn.ops import cpu


@pytest.fixture
def store(monkeypatch):
    empty = {}
    monkeypatch.setattr(cpu, "_store", empty)
    monkeypatch.setattr(cpu, "STORE_BYTES", 1 << 21)
    return empty


def held(store):
    return sum(size * len(blocks) for size, blocks in store.items())


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.uint8, np.int32])
@pytest.mark.parametrize("shape", [(3, 5, 2), (0, 4), (20, 50, 400)])
def test_new_tensor_has_the_shape_and_dtype_and_shares_memory_with_its_array(store, shape, dtype):
    tensor, array = cpu.allocate_tensor(shape, dtype)
    assert tensor.shape == shape and tensor.is_contiguous()
    assert tensor.numpy().dtype == array.dtype == dtype
    array[:] = np.arange(array.size) % 100
    assert (tensor.numpy().reshape(-1) == array).all()
    if array.size > 1000:
        assert tensor.data_ptr() % 64 == 0


def test_memory_of_a_tensor_that_is_gone_is_used_again(store):
    tensor, array = cpu.allocate_tensor((300, 400), np.float32)
    place = tensor.data_ptr()
    view = tensor[3:].detach()
    del tensor, array
    assert held(store) == 0
    view.fill_(7)
    del view
    assert held(store) >= 480_000
    other, _ = cpu.allocate_tensor((299, 400), np.float32)
    assert other.data_ptr() == place and held(store) == 0
    both, _ = cpu.allocate_tensor((300, 400), np.float32)
    assert both.data_ptr() != place


def test_store_holds_no_more_than_it_may(store):
    for n in range(20, 50):
        kept = [cpu.allocate_tensor((n, 10_000), np.float32) for _ in range(3)]
        del kept
        assert held(store) <= 1 << 21
    assert held(store) > 0
    huge = cpu.allocate_tensor((1 << 20,), np.float64)
    del huge
    assert held(store) <= 1 << 21


def test_results_do_not_share_memory(store):
    torch.manual_seed(0)
    from nwcompile import nn

    layer = nn.LIFLayer(100)
    first = layer(torch.rand(4, 1000, 100))
    before = [t.clone() for t in first]
    nn.prepare_net(layer)
    layer(torch.rand(4, 1000, 100))
    for t, value in zip(first, before, strict=True):
        assert torch.equal(t, value)


def test_blocks_that_are_worth_huge_pages_are_large_enough_for_numpy_to_ask_for_them(store):
    for n_bytes, expected in ((cpu.LARGE_BYTES, 0), (cpu.PAGED_BYTES, cpu.HUGE_BYTES)):
        tensor, array = cpu.allocate_tensor((n_bytes,), np.uint8)
        del tensor, array
        ((block,),) = (blocks for size, blocks in store.items() if size == n_bytes)
        assert block.nbytes == max(expected, n_bytes + cpu.LINE_BYTES)
