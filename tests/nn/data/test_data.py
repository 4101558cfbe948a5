"""Packed bits, their cache on disk, and batches: the same from every loader, and nothing half-written."""

import multiprocessing
import os

import numpy as np
import pytest
import torch

from nwcompile import nn
from nwcompile.errors import ArtifactError, ModelError, NwWarning, OptionError
from nwcompile.nn import data
from nwcompile.nn.ops.scan import LIFNeurons, fire
from nwcompile.nn.ops.surrogate import atan
from tests.interrupts import PATIENCE_S
from tests.made.tensors import equal

BINNING = data.Binning((6, 4, 2), bin_length=10, include_incomplete=True, spatial_factor=0.5)
FIELDS = np.dtype([("x", "<i2"), ("y", "<i2"), ("t", "<i8"), ("p", "?")])


def recordings(n=7, seed=0):
    """Pairs (events, label), each longer than the one before: 10 to 70 steps."""
    rng = np.random.default_rng(seed)
    found = []
    for i in range(n):
        events = np.zeros(60, FIELDS)
        for field, size in (("x", 6), ("y", 4), ("t", 100 * (i + 1)), ("p", 2)):
            events[field] = rng.integers(0, size, 60)
        found.append((events, i % 3))
    return found


class Counted:
    """A data set that counts how often it was read."""

    def __init__(self, samples):
        self.samples, self.n_read = samples, 0

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, i):
        self.n_read += 1
        return self.samples[i]


def same(one: data.Packed, other: data.Packed):
    return equal((one.words, one.lengths, one.labels), (other.words, other.lengths, other.labels))


@pytest.mark.parametrize("n_steps", [1, 7, 8, 9, 31, 32, 33, 64, 100])
def test_bits_come_back_as_they_were(n_steps):
    spikes = (np.random.default_rng(n_steps).random((n_steps, 5)) < 0.5).astype(np.uint8)
    words = data.pack_bits(spikes)
    assert words.dtype == np.int32 and words.shape == (-(-n_steps // 32), 5)
    back = data.unpack_bits(torch.from_numpy(words)[None], n_steps, torch.uint8)
    assert np.array_equal(back[0].numpy(), spikes)


@pytest.mark.parametrize("spikes", [np.ones((3, 5)), np.ones((3, 5), np.int64), np.ones((2, 3, 5), np.uint8)])
def test_bits_are_of_one_sample_of_uint8(spikes):
    with pytest.raises(ModelError, match=r"^pack_bits takes spikes uint8 \[T, N\], not "):
        data.pack_bits(spikes)


def test_bits_are_laid_out_as_those_of_the_kernels():
    current = torch.rand(2, 45, 9, generator=torch.Generator().manual_seed(0))
    n = LIFNeurons(torch.full((9,), 0.9), torch.ones(9), "subtraction", atan)
    spikes, words = (fire(current, n.initial_state(current), n, form)[0] for form in ("uint8", "bits"))
    assert 0 < spikes.float().mean() < 1
    assert np.array_equal(np.stack([data.pack_bits(s) for s in spikes.numpy()]), words.numpy())


def test_unpacking_on_other_devices_is_that_of_the_cpu():
    words = torch.randint(-(2**31), 2**31 - 1, (2, 3, 5), dtype=torch.int32, generator=torch.Generator().manual_seed(0))
    shifted = ((words[:, :, None] >> torch.arange(32, dtype=torch.int32)[:, None]) & 1).flatten(1, 2)[:, :70]
    assert torch.equal(data.unpack_bits(words, 70, torch.uint8), shifted.to(torch.uint8))
    assert data.unpack_bits(words.to("meta"), 70, torch.float32).shape == (2, 70, 5)


@pytest.mark.parametrize("form", ["float", "uint8", "bits"])
def test_batches_are_equal_from_every_loader(form, tmp_path):
    samples = recordings()
    on_disk = data.cached(samples, BINNING, tmp_path)
    every = (data.Transformed(samples, BINNING), data.packed(samples, BINNING), on_disk, on_disk.to("cpu"))
    loaders = [data.batches(of, form, batch_size=3) for of in every]
    for naive, *others in zip(*loaders, strict=True):
        assert all(equal(naive, other) for other in others)
    spikes, lengths, labels = naive
    n_steps = len(BINNING(samples[6][0]))
    assert spikes.shape == (1, -(-n_steps // 32) if form == "bits" else n_steps, 12) and lengths.tolist() == [n_steps]
    assert labels.tolist() == [0] and spikes.any()


def test_batches_pad_short_recordings_with_silence():
    samples = recordings()
    spikes, lengths, _ = next(iter(data.batches(data.packed(samples, BINNING), batch_size=7)))
    assert lengths.tolist() == [len(BINNING(events)) for events, _ in samples]
    for i, (events, _) in enumerate(samples):
        assert np.array_equal(spikes[i, : lengths[i]].numpy(), BINNING(events)) and not spikes[i, lengths[i] :].any()


def test_labels_become_one_tensor():
    for labels, expected in (
        ([np.uint8(3), 4], torch.tensor([3, 4])), ([[0.5, 1], [2, 3]], torch.tensor([[0.5, 1], [2, 3]]).double()),
        (np.array([1.5, 2], ">f4"), torch.tensor([1.5, 2])),
        (np.array([1.5, 2], np.longdouble), torch.tensor([1.5, 2]).double()),
        ([True, False], torch.tensor([True, False])),
    ):  # fmt: skip
        found = data.packed([(EVENTS, label) for label in labels], BINNING).labels
        assert torch.equal(found, expected) and found.dtype == expected.dtype


def test_packed_spikes_are_a_data_set():
    samples = recordings()
    of = data.packed(samples, BINNING)
    assert len(of) == 7 and of.n_bytes == of.words.numel() * 4
    assert np.array_equal(of[-1][0].numpy(), BINNING(samples[6][0])) and of[4][1] == 1
    with pytest.raises(IndexError):
        of[7]


def test_batches_come_from_forked_workers_while_layers_train(tmp_path):
    """The parent's kernels have threads by then; workers run none."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        layer, samples = nn.LIFLayer(12), recordings()
        layer(torch.rand(64, 1000, 12))
        options = {"batch_size": 2, "num_workers": 2, "multiprocessing_context": "fork", "timeout": PATIENCE_S}
        expected = list(data.batches(data.Transformed(samples, BINNING), batch_size=2))
        for of in (data.Transformed(samples, BINNING), data.cached(samples, BINNING, tmp_path)):
            found = []
            for batch in data.batches(of, **options):
                nn.prepare_net(layer)
                layer(batch.spikes)
                found.append(batch)
            assert all(equal(a, b) for a, b in zip(found, expected, strict=True))
    finally:
        torch.set_num_threads(before)


def test_batches_refuse_a_form_that_is_none():
    with pytest.raises(OptionError) as e:
        data.batches(data.packed(recordings(1), BINNING), "bit")
    assert str(e.value) == "unknown form 'bit'; choose one of: bits, float, uint8"


@pytest.mark.parametrize("options", [{"collate_fn": list}, {"batch_size": None}])
def test_batches_refuse_what_would_leave_samples_apart(options):
    with pytest.raises(OptionError) as e:
        data.batches(data.packed(recordings(1), BINNING), **options)
    assert str(e.value) == "batches are put together here: give no collate_fn, and a batch_size >= 1"


def test_batches_refuse_samples_of_several_widths():
    samples = [(np.ones((3, n), np.uint8), 0) for n in (4, 5)]
    with pytest.raises(ModelError) as e:
        next(iter(data.batches(data.Transformed(samples, lambda spikes: spikes), batch_size=2)))
    assert str(e.value) == "samples of a batch have 4 to 5 neurons; all must have the same number"


@pytest.mark.parametrize("of, text", [
    (recordings(2), "batches are made of spikes [T, N]; give what packed, cached or Transformed makes of samples"),
    (data.Transformed(iter([]), BINNING),
     "samples of type list_iterator must be a list, or a data set with a length and numbered access"),
])  # fmt: skip
def test_batches_refuse_what_are_no_spikes(of, text):
    with pytest.raises(ModelError) as e:
        next(iter(data.batches(of, batch_size=2)))
    assert str(e.value) == text


def test_batches_of_data_on_a_gpu_take_no_workers():
    of = data.packed(recordings(1), BINNING)
    on_gpu = data.Packed(of.words.to("meta"), of.lengths, of.labels)
    with pytest.raises(OptionError) as e:
        data.batches(on_gpu, num_workers=2)
    assert str(e.value) == "num_workers is 2, but processes cannot read a cache on a GPU; use num_workers=0"


def test_cache_is_made_once(tmp_path, monkeypatch):
    samples = recordings()
    first = data.cached(samples, BINNING, tmp_path)
    monkeypatch.setattr("nwcompile.nn.data.cache.packed", None)
    assert same(data.cached(samples, BINNING, tmp_path), first) and len(list(tmp_path.iterdir())) == 1


def test_cache_with_a_name_reads_no_recording_twice(tmp_path):
    samples = Counted(recordings())
    first = data.cached(samples, BINNING, tmp_path, name="seven recordings, 1")
    assert samples.n_read == 7
    assert same(data.cached(samples, BINNING, tmp_path, name="seven recordings, 1"), first) and samples.n_read == 7
    data.cached(samples, BINNING, tmp_path, name="seven recordings, 2")
    assert samples.n_read == 14


def test_cache_is_found_by_everything_that_its_content_depends_on(tmp_path, monkeypatch):
    samples = recordings()
    other = [(events.copy(), label) for events, label in samples]
    other[3][0]["x"][5] ^= 1
    relabeled = [*samples[:3], (samples[3][0], 7), *samples[4:]]
    wide = data.Binning((6, 4, 2), bin_length=10, include_incomplete=True)
    for given, transform in ((samples, BINNING), (other, BINNING), (relabeled, BINNING), (samples, wide)):
        assert same(data.cached(given, transform, tmp_path), data.packed(given, transform))
    assert len(list(tmp_path.iterdir())) == 4
    monkeypatch.setattr(data.Binning, "version", data.Binning.version + 1)
    data.cached(samples, BINNING, tmp_path)
    assert len(list(tmp_path.iterdir())) == 5


def test_cache_takes_fields_in_any_order_and_nothing_of_what_lies_between(tmp_path):
    events, label = recordings(1)[0]
    swapped = events[["t", "p", "y", "x"]]  # a view of the same memory
    padded = [np.full(60, fill, np.dtype(events.dtype.descr, align=True)) for fill in (0, -1)]
    for one in padded:
        for field in FIELDS.names:
            one[field] = events[field]
    for n, recording in ((1, swapped), (2, padded[0]), (2, padded[1])):
        assert same(data.cached([(recording, label)], BINNING, tmp_path), data.packed([(events, label)], BINNING))
        assert len(list(tmp_path.iterdir())) == n


@pytest.mark.parametrize("damage", ["cut", "empty", "flipped", "longer"])
def test_cache_makes_a_damaged_file_anew(damage, tmp_path):
    samples = recordings()
    first = data.cached(samples, BINNING, tmp_path)
    kept = data.Packed(first.words.clone(), first.lengths, first.labels)
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    flipped = whole[:200] + bytes([whole[200] ^ 1]) + whole[201:]
    path.unlink()  # the mapping of `first` keeps the old file
    path.write_bytes({"cut": whole[:-1], "empty": b"", "flipped": flipped, "longer": whole + b"x"}[damage])
    with pytest.warns(NwWarning) as caught:
        found = data.cached(samples, BINNING, tmp_path)
    text = f"{path} is damaged or cut short (its SHA-256 does not match); it is rewritten"
    assert [str(w.message) for w in caught] == [text]
    assert same(found, kept) and path.read_bytes() == whole


def interrupt(*_):
    raise KeyboardInterrupt


def test_interrupted_cache_leaves_nothing_and_can_be_made_after(tmp_path, monkeypatch):
    samples = recordings()
    with monkeypatch.context() as m, pytest.raises(KeyboardInterrupt):
        m.setattr(os, "replace", interrupt)
        data.cached(samples, BINNING, tmp_path)
    assert list(tmp_path.iterdir()) == []
    with monkeypatch.context() as m, pytest.raises(KeyboardInterrupt):
        m.setattr(data.Binning, "_find_neurons", interrupt)
        data.cached(samples, BINNING, tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert same(data.cached(samples, BINNING, tmp_path), data.packed(samples, BINNING))


def make_at_once(barrier, folder, results):
    barrier.wait(PATIENCE_S)
    for seed in range(5):
        results.put((seed, data.cached(recordings(seed=seed), BINNING, folder).words.numpy().tobytes()))


def test_cache_may_be_made_by_two_processes_at_once(tmp_path):
    context = multiprocessing.get_context("fork")
    barrier, results = context.Barrier(2), context.Queue()
    processes = [context.Process(target=make_at_once, args=(barrier, tmp_path, results)) for _ in range(2)]
    for process in processes:
        process.start()
    found = [results.get(timeout=PATIENCE_S) for _ in range(10)]
    for process in processes:
        process.join(PATIENCE_S)
        assert process.exitcode == 0
    for seed, words in found:
        assert words == data.packed(recordings(seed=seed), BINNING).words.numpy().tobytes()
    assert len(list(tmp_path.iterdir())) == 5


def test_cache_needs_a_folder_to_write_to(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    with pytest.raises(ArtifactError) as e:
        data.cached(recordings(1), BINNING, tmp_path / "file" / "cache")
    path = tmp_path / "file" / "cache"
    assert str(e.value).startswith(str(path)) and str(e.value).endswith("choose another folder for the cache")
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(ArtifactError) as e:
        data.cached(recordings(1), BINNING, tmp_path)
    assert str(e.value) == f"{tmp_path} cannot hold the cache: Permission denied; choose a folder you may write to"


def test_random_coding_is_not_cached(tmp_path):
    with pytest.raises(OptionError) as e:
        data.cached([(np.ones(4) / 2, 0)], data.RandomRate(20), tmp_path)
    assert str(e.value) == (
        "RandomRate(n_steps=20) draws new spikes at every call, so they cannot be cached; use "
        "nwcompile.nn.data.Transformed, which transforms at each access, or a deterministic transform"
    )
    assert list(tmp_path.iterdir()) == []


def test_random_coding_draws_anew_with_the_given_rate():
    images = [(np.array([[0.0, 0.25], [0.5, 1.0]]), 1)] * 3
    torch.manual_seed(0)
    spikes, _, labels = next(iter(data.batches(data.Transformed(images, data.RandomRate(2000)), batch_size=3)))
    assert spikes.shape == (3, 2000, 4) and labels.tolist() == [1, 1, 1]
    assert torch.allclose(spikes.mean(1), torch.tensor([0.0, 0.25, 0.5, 1.0]).expand(3, 4), atol=0.05)
    assert not torch.equal(spikes[0], spikes[1])


@pytest.mark.parametrize("numbers, text", [
    ([0.5, 1.5], "number 1 is 1.5, must be from 0 to 1, the probability of a spike in a step"),
    (["a"], "numbers of type <U1 cannot be the probability of a spike; give 0 to 1"),
    ([float("nan")], "number 0 is nan, must be from 0 to 1, the probability of a spike in a step"),
])  # fmt: skip
def test_random_coding_refuses_what_is_no_probability(numbers, text):
    with pytest.raises(ModelError) as e:
        data.RandomRate(5)(np.array(numbers))
    assert str(e.value) == text
    with pytest.raises(OptionError) as e:
        data.RandomRate(0)
    assert str(e.value) == "RandomRate: n_steps is 0, must be a whole number >= 1"


def test_cache_takes_only_transforms_that_say_what_they_depend_on(tmp_path):
    with pytest.raises(OptionError) as e:
        data.cached(recordings(1), lambda events: BINNING(events), tmp_path)
    assert str(e.value) == (
        "a transform of type function cannot be cached: only a frozen dataclass with deterministic = True and a "
        "version says what its results depend on; use nwcompile.nn.data.Binning or Transformed"
    )


EVENTS = recordings(1)[0][0]
OUTSIDE = np.array([(9, 0, 0, 0)], FIELDS)
WRONG = [
    ([(EVENTS, 0), (OUTSIDE, 1)],
     "sample 1: event 0 has x = 9, outside a sensor of 6x4x2 (width, height, polarities) (x from 0 to 5); give the "
     "sensor that recorded it, and crop the rest"),
    ([], "the data set has no samples; give one at least"),
    ([EVENTS], "sample 0 is of type ndarray, must be a pair (recording, label)"),
    ([(EVENTS, "cat")], "labels such as 'cat' are not numbers of one shape; number the classes from 0"),
    ([(EVENTS, np.uint64(1 << 63))], f"label {1 << 63} exceeds a signed 64-bit integer; number the classes from 0"),
    (iter([(EVENTS, 0)]),
     "samples of type list_iterator must be a list, or a data set with a length and numbered access"),
    ([(EVENTS, [1]), (EVENTS, [1, 2])], "labels such as [1] are not numbers of one shape; number the classes from 0"),
]  # fmt: skip


@pytest.mark.parametrize("samples, text", WRONG)
def test_packing_refuses_a_data_set_in_one_sentence(samples, text, tmp_path):
    for make in (data.packed, lambda *given: data.cached(*given, tmp_path)):
        with pytest.raises(ModelError) as e:
            make(samples, BINNING)
        assert str(e.value) == text
    assert list(tmp_path.iterdir()) == []


def test_packing_refuses_what_a_transform_may_not_give():
    for given in ([1], np.zeros((0, 2), np.uint8), np.zeros((3, 2)), np.full((3, 2), 2, np.uint8)):
        with pytest.raises(ModelError) as e:
            data.packed([(EVENTS, 0)], lambda events, given=given: given)
        text = "sample 0: function must give an array uint8 [T, N] of 0 and 1, T and N at least 1"
        assert str(e.value) == text
    shapes = iter([(3, 4), (3, 5)])
    with pytest.raises(ModelError) as e:
        data.packed([(EVENTS, 0)] * 2, lambda events: np.zeros(next(shapes), np.uint8))
    assert str(e.value) == "sample 1: 5 neurons, sample 0 has 4; all must have the same number"


def test_cache_refuses_recordings_that_are_no_arrays(tmp_path):
    with pytest.raises(ModelError) as e:
        data.cached([(object(), 0)], BINNING, tmp_path)
    assert str(e.value) == "sample 0 holds Python objects of type object, not an array"
