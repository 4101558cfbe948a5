"""Kernels in forked processes, as the workers of a DataLoader are."""

import os
import threading

import torch
from torch.utils.data import DataLoader, Dataset

from nwcompile import nn
from nwcompile.nn.ops.threads import run_on_threads
from tests.interrupts import PATIENCE_S


class Encoded(Dataset):
    """Samples that a layer has encoded."""

    def __init__(self):
        torch.manual_seed(0)
        self.layer = nn.LIFLayer(300, taus=10e-3)
        self.current = torch.rand(4, 3000, 300)

    def __len__(self):
        return len(self.current)

    def __getitem__(self, i):
        nn.prepare_net(self.layer)
        with torch.no_grad():
            return self.layer(self.current[i : i + 1])[0][0].to(torch.uint8)


def test_layers_run_in_the_forked_workers_of_a_loader():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        data = Encoded()
        expected = torch.stack([data[i] for i in range(4)])  # the process that forks has threads of its own by then
        assert 0 < expected.float().mean() < 1
        loader = DataLoader(data, batch_size=2, num_workers=2, multiprocessing_context="fork", timeout=PATIENCE_S)
        assert torch.equal(torch.cat(list(loader)), expected)
    finally:
        torch.set_num_threads(before)


def test_parts_run_on_new_threads_in_a_forked_process():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        both = threading.Barrier(2, timeout=PATIENCE_S)  # which one thread alone does not pass
        run_on_threads(lambda k: both.wait(), 2)
        child = os.fork()
        if child == 0:
            try:
                run_on_threads(lambda k: both.wait(), 2)
            except threading.BrokenBarrierError:
                os._exit(1)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        torch.set_num_threads(before)
