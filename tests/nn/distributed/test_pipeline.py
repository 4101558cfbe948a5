"""A network over processes of their own: results bit for bit, gradients to 1e-6, and no process waits for ever."""

import pytest
import torch

from nwcompile import nn
from nwcompile.errors import BackendError, ModelError, OptionError
from nwcompile.nn.distributed.pipeline import TimePipeline, split_layers
from tests.nn.distributed import ranks


@pytest.mark.parametrize("n_ranks, cases", [
    (2, [("lif", 1), ("lif", 4), ("lif", 40), ("h1", 3), ("frozen", 4), ("readout", 4)]),
    (4, [("lif", 5), ("learning", 23)]),
])  # fmt: skip
def test_pipeline_equals_one_process(n_ranks, cases, tmp_path):
    results = ranks.start(n_ranks, ranks.compared, tmp_path, cases)
    for (kind, n_chunks), of_ranks in zip(cases, zip(*results, strict=True), strict=True):
        assert all(as_expected for as_expected, _ in of_ranks), (kind, n_chunks)
        off = {name: error for _, errors in of_ranks for name, error in errors.items()}
        assert set(off) == {name for name, p in ranks.network(kind).named_parameters() if p.requires_grad}
        assert max(off.values()) < 1e-6, (kind, n_chunks)


def test_pipeline_test_nets_are_alive():
    for kind in ("lif", "h1", "learning", "frozen"):
        result, _, grads = ranks.in_one_process(kind)
        assert 0.05 < result[0].mean() < 0.8, kind
        assert all(g.abs().max() > 0 for g in grads.values() if g is not None), kind


def test_pipeline_trains_as_one_process_does(tmp_path):
    first, last = ranks.start(2, ranks.trained, tmp_path, 4)
    assert first == [None] * 8
    assert last == pytest.approx(ranks.trained_alone(4), rel=1e-9) and last[-1] < last[0]


def test_no_process_waits_for_one_that_has_stopped(tmp_path):
    told, other = ranks.start(2, ranks.left_alone, tmp_path)
    assert told == 3 * [
        "BackendError: pipeline, process 0 of 2: another process has stopped or did not answer in 5 s; see its own "
        "error, then start all of them again"
    ]
    assert other is None  # it has died


def test_pipeline_refuses_what_it_cannot_cut(tmp_path):
    (told,) = ranks.start(1, ranks.refused, tmp_path)
    assert told == [
        "a pipeline takes whole sequences [B, T, *shape], got shape (23, 12)",
        "a pipeline takes whole sequences [B, T, *shape], got shape (3, 0, 12)",
        "a pipeline takes whole sequences [B, T, *shape], got a NoneType",
        "LIFSynapse(12, 20): input of shape (1, 1, 3) must end in 12",
        *3
        * [
            "0: BatchNorm1d would take its statistics from chunks; give it running statistics and call eval() on it, "
            "or remove it"
        ],
        "step computes gradients, but torch.inference_mode is on; call it outside, or forward",
        "loss_fn must return one number that depends on the result, not a NoneType",
        "loss_fn must return one number that depends on the result, not a tensor of shape (2,) without a gradient",
        "1: surrogate 'eventprop' has no gradient across the bounds of chunks, as a spike's is a difference of steps; "
        "give n_chunks=1 or another surrogate",
        "no error",
        "no error",
    ]


def test_pipeline_refuses_processes_that_come_with_something_else(tmp_path):
    for told, goes_on in ranks.start(2, ranks.disagreed, tmp_path):
        assert told == [
            "pipeline: process 1 called with n_chunks 5, process 0 with 4; give all the same",
            "pipeline: process 1 called with other layers than process 0; give all the same",
            "pipeline: process 1 called with shape of x (3, 22, 12), process 0 with (3, 23, 12); give all the same",
            "pipeline: process 1 called with method step, process 0 with forward; give all the same",
        ]
        assert goes_on == "no error"


def net_of(*sizes):
    return nn.Sequential(*(m for n, k in zip(sizes, sizes[1:], strict=False)
                           for m in (nn.LIFSynapse(n, k), nn.LIFLayer(k))))  # fmt: skip


def test_shares_make_the_largest_as_small_as_can_be():
    net = net_of(10, 10, 10, 10, 40, 1)  # 110, 110, 110, 440 and 41 parameters and neurons
    assert split_layers(net, 1) == [(0, 10)]
    assert split_layers(net, 2) == [(0, 6), (6, 10)]
    assert split_layers(net, 3) == [(0, 6), (6, 8), (8, 10)]
    assert split_layers(net, 5) == [(0, 2), (2, 4), (4, 6), (6, 8), (8, 10)]
    flat = nn.Sequential(torch.nn.Flatten(1), *net_of(3, 4, 5), nn.LIFSynapse(5, 2))
    assert split_layers(flat, 2) == [(0, 3), (3, 6)]


def test_shares_refuse_more_processes_than_layers():
    with pytest.raises(OptionError) as e:
        split_layers(net_of(3, 4, 5), 3)
    assert str(e.value) == "3 processes for 2 spiking layers; a pipeline takes one of each at least"


@pytest.mark.parametrize("change, error, text", [
    ({}, BackendError, "a pipeline needs processes: call torch.distributed.init_process_group first"),
    ({"net": torch.nn.Linear(2, 2)}, ModelError, "a pipeline takes a nwcompile.nn.Sequential, not a Linear"),
    ({"n_chunks": 0}, OptionError, "n_chunks is 0, must be a whole number >= 1"),
    ({"timeout_s": float("inf")}, OptionError, "timeout_s is inf, must be a number of seconds > 0"),
])  # fmt: skip
def test_pipeline_refuses_in_one_sentence(change, error, text):
    with pytest.raises(error) as e:
        TimePipeline(**{"net": net_of(2, 3), "n_chunks": 2} | change)
    assert str(e.value) == text
