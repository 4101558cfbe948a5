"""Events and frames to spikes, beside a loop over the events, and every refusal's text."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nwcompile.errors import ModelError, OptionError
from nwcompile.nn.data import Binning
from nwcompile.nn.data.cache import describe_settings

TONIC = np.dtype([("x", "<i2"), ("y", "<i2"), ("t", "<i8"), ("p", "?")])


def events(rows, dtype=TONIC):
    """Rows (x, y, t, p)."""
    return np.array([tuple(row) for row in rows], dtype)


def naive(recording, b: Binning) -> np.ndarray:
    """Binning of whole times, an event at a time, in fractions."""
    times = [int(e["t"]) for e in recording]
    start = (min(times) if times else 0) if b.start is None else b.start
    span = (max(times) + 1 if times else 0) - start
    if b.n_bins:
        n_steps, length = b.n_bins, Fraction(max(span, 1), b.n_bins)
    else:
        length = Fraction(b.bin_length)
        n_steps = -(-span // length) if b.include_incomplete else span // length
        if b.max_bins is not None:
            n_steps = b.max_bins if b.include_incomplete else min(n_steps, b.max_bins)
    n_steps = max(0, n_steps)
    left, top, width, height = b.crop or (0, 0, *b.sensor[:2])
    polarities, rows, columns = b.shape
    out = np.zeros((n_steps, polarities, rows, columns), np.uint8)
    for x, y, t, p in recording.tolist():
        k = (t - start) // length
        if left <= x < left + width and top <= y < top + height and 0 <= k < n_steps:
            row, column = Fraction((y - top) * rows, height), Fraction((x - left) * columns, width)
            out[k, int(p), int(row), int(column)] = 1
    return out.reshape(n_steps, b.n_neurons)


@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 4), st.integers(0, 60), st.booleans()), max_size=25),
    st.sampled_from([{"bin_length": 7}, {"bin_length": 1}, {"n_bins": 5}, {"bin_length": 3, "max_bins": 4}]),
    st.sampled_from([None, 0, 11]), st.sampled_from([None, (1, 0, 5, 3)]), st.sampled_from([1, 0.5, 1 / 3]),
    st.booleans(),
)  # fmt: skip
def test_binning_is_that_of_a_loop_over_events(rows, bins, start, crop, factor, incomplete):
    recording = events(rows)
    b = Binning((7, 5, 2), **bins, start=start, crop=crop, spatial_factor=factor, include_incomplete=incomplete)
    expected = naive(recording, b)
    if len(expected) == 0:
        with pytest.raises(ModelError, match="the recording has no events|has no whole bin"):
            b(recording)
    else:
        found = b(recording)
        assert found.dtype == np.uint8 and found.shape == (len(expected), b.n_neurons)
        assert np.array_equal(found, expected)


def test_binning_of_a_hand_made_recording():
    recording = events([(0, 0, 100, 1), (1, 0, 109, 0), (1, 1, 110, 1), (0, 1, 124, 0), (1, 1, 125, 0)])
    whole = Binning((2, 2, 2), bin_length=10)(recording)  # neurons: p, y, x
    assert whole.tolist() == [[0, 1, 0, 0, 1, 0, 0, 0], [0, 0, 0, 0, 0, 0, 0, 1]]
    rest = Binning((2, 2, 2), bin_length=10, include_incomplete=True)(recording)
    assert np.array_equal(rest[:2], whole) and rest[2:].tolist() == [[0, 0, 1, 1, 0, 0, 0, 0]]
    assert Binning((2, 2, 2), bin_length=13)(recording).shape == (2, 8)  # the last tick fills the second bin
    early = Binning((2, 2, 2), bin_length=10, start=80, max_bins=3)(recording)
    assert not early[:2].any() and np.array_equal(early[2], whole[0])
    late = Binning((2, 2, 2), bin_length=10, start=110)(recording)  # what is before the start is left out
    assert late.tolist() == [[0, 0, 0, 0, 0, 0, 0, 1]]


def test_binning_gives_recordings_of_one_length_whatever_events_they_hold():
    b = Binning((1, 1, 1), bin_length=200, start=0, include_incomplete=True, max_bins=5)
    for times, bins in (
        ((100, 450, 900), [1, 0, 1, 0, 1]),
        ((100, 450, 1000), [1, 0, 1, 0, 0]),  # the sixth bin is left out
        ((199, 200), [1, 1, 0, 0, 0]),
        ((-1,), [0] * 5),
        ((), [0] * 5),
    ):
        assert b(events([(0, 0, t, 0) for t in times])).ravel().tolist() == bins
    from_first = Binning((1, 1, 1), bin_length=0.5, include_incomplete=True, max_bins=3)
    assert from_first(events([(0, 0, 7.25, 0)], [("x", "u1"), ("y", "u1"), ("t", "f8"), ("p", "u1")])).tolist() == [
        [1],
        [0],
        [0],
    ]


def test_binning_in_equal_bins_shares_out_all_ticks():
    recording = events([(0, 0, 100 + t, 0) for t in range(10)])
    recording["x"] = np.arange(10) // 2
    assert np.array_equal(Binning((5, 1, 1), n_bins=5)(recording), np.eye(5))
    assert Binning((5, 1, 1), n_bins=3)(recording).tolist() == [[1, 1, 0, 0, 0], [0, 0, 1, 1, 0], [0, 0, 0, 1, 1]]


def test_binning_does_not_need_events_sorted_by_time():
    rng = np.random.default_rng(0)
    recording = events(zip(*rng.integers(0, [[3], [3], [500], [2]], (4, 80)), strict=True))
    for bins in ({"bin_length": 13}, {"n_bins": 7}):
        b = Binning((3, 3, 2), **bins)
        assert np.array_equal(b(recording), b(rng.permutation(recording)))


def test_binning_takes_times_in_seconds():
    dtype = [("x", "u1"), ("t", "f8")]
    recording = np.array([(0, 0.25), (1, 0.5), (2, 1.0)], dtype)
    assert Binning((3, 1, 1), bin_length=0.25)(recording).tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 0]]
    rest = Binning((3, 1, 1), bin_length=0.25, include_incomplete=True)(recording)
    assert rest.tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 0], [0, 0, 1]]
    assert Binning((3, 1, 1), n_bins=3)(recording).tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]


def test_binning_takes_whole_times_up_to_their_limit():
    for t in ((1 << 62) - 2, 1 - (1 << 62)):
        recording = events([(0, 0, t, 0), (1, 0, t + 1, 0)])
        assert Binning((2, 1, 1), bin_length=1)(recording).tolist() == [[1, 0], [0, 1]]
    for t in (1 << 62, -(1 << 62)):
        with pytest.raises(ModelError) as e:
            Binning((2, 1, 1), bin_length=1)(events([(0, 0, t, 0)]))
        assert str(e.value) == f"event 0 has t = {t}; t must be finite and below 2^62"


@pytest.mark.parametrize("kind", ["f2", ">f4", "f8", "g"])
def test_binning_takes_times_of_any_float(kind):
    recording = np.array([(0, 0.25), (1, 0.75)], [("x", "u1"), ("t", kind)])
    assert Binning((2, 1, 1), bin_length=0.5, start=0, include_incomplete=True)(recording).tolist() == [[1, 0], [0, 1]]


def test_binning_of_one_polarity_merges_all():
    recording = np.array([(0, 5, -1), (1, 6, 1)], [("x", "u1"), ("t", "u4"), ("p", "i1")])
    assert Binning((2, 1, 1), bin_length=1)(recording).tolist() == [[1, 0], [0, 1]]


def test_binning_of_frames_is_that_of_their_events():
    frames = np.random.default_rng(0).random((11, 2, 4, 6))
    t, p, y, x = np.nonzero(frames >= 0.7)
    b = Binning((6, 4, 2), bin_length=3, start=0, include_incomplete=True, spatial_factor=0.5, frame_threshold=0.7)
    expected = b(events(zip(x, y, t, p, strict=True)))
    assert np.array_equal(b(frames), expected) and len(expected) == 4
    assert np.array_equal(b(frames.reshape(11, -1)), expected)
    flat = np.ones((3, 4, 1))
    assert np.array_equal(Binning((1, 4, 1), bin_length=1)(flat), Binning((1, 4, 1), bin_length=1)(flat[:, None]))
    assert Binning((6, 4, 2), bin_length=3)(frames).shape == (3, 48)  # the last two frames fill no bin


def test_binning_takes_frames_as_tensors():
    frames = torch.rand(6, 8, generator=torch.Generator().manual_seed(0))
    b = Binning((4, 2, 1), bin_length=2)
    expected = b((frames >= 0.5).numpy())
    for recording in (frames, frames.clone().requires_grad_(), frames.double(), (frames >= 0.5).bfloat16()):
        assert np.array_equal(b(recording), expected)


def test_binning_settings_of_numpy_and_lists_are_plain_ones():
    b = Binning([np.int64(4), 2, 1], bin_length=np.float32(2), crop=[0, 0, 2, 2])
    assert b == Binning((4, 2, 1), bin_length=2.0, crop=(0, 0, 2, 2)) and hash(b) and describe_settings(b)


def test_binning_of_a_recording_without_events_is_silence():
    assert not Binning((2, 1, 1), n_bins=3)(events([])).any()
    assert Binning((2, 1, 1), n_bins=3)(events([])).shape == (3, 2)


def test_binning_gives_every_neuron_pixels_for_any_factor():
    x = np.arange(700)
    recording = np.zeros(700, [("x", "i4"), ("t", "i8")])
    recording["x"] = recording["t"] = x
    found = Binning((700, 1, 1), bin_length=1, spatial_factor=1 / 7)(recording)
    assert np.array_equal(found.argmax(1), x // 7) and found.shape == (700, 100)


SENSOR = (3, 2, 2)
WRONG = [
    (np.array([(1, 2)], [("x", "i2"), ("t", "i8")]),
     "the events lack the fields y, p (they have x, t); a sensor of 3x2x2 (width, height, polarities) needs x, y, "
     "t, p"),
    (np.array([(1, 0, 1)], [("x", "i2"), ("y", "i2"), ("p", "i2")]),
     "the events lack the field t (they have x, y, p); a sensor of 3x2x2 (width, height, polarities) needs x, y, t, p"),
    (events([(0, 0, 0, 0), (3, 0, 1, 0)]),
     "event 1 has x = 3, outside a sensor of 3x2x2 (width, height, polarities) (x from 0 to 2); give the sensor that "
     "recorded it, and crop the rest"),
    (events([(0, -1, 0, 0)]),
     "event 0 has y = -1, outside a sensor of 3x2x2 (width, height, polarities) (y from 0 to 1); give the sensor that "
     "recorded it, and crop the rest"),
    (events([(0, 0, np.nan, 0)], [("x", "i2"), ("y", "i2"), ("t", "f8"), ("p", "i2")]),
     "event 0 has t = nan; t must be finite and below 2^62"),
    (events([(1.5, 0, 0, 0)], [("x", "f4"), ("y", "i2"), ("t", "f8"), ("p", "i2")]),
     "event 0 has x = 1.5; x must be a whole number"),
    (events([("a", 0, 0, 0)], [("x", "U1"), ("y", "i2"), ("t", "f8"), ("p", "i2")]),
     "the events' field x is of type <U1; it must hold numbers"),
    (np.zeros(1, [("x", "2i4"), ("y", "i2"), ("t", "f8"), ("p", "i2")]),
     "the events' field x has shape (2,) in each event; it must be one number"),
    ([[1, 2], [3]], "an object of type list is not an array of numbers"),
    (events([(0, 0, 0, 0)])[None], "the events have shape (1, 1); they must be one array of events, [n]"),
    (events([]),
     "the recording has no events, so no bins of a length; leave it out, or choose n_bins"),
    (events([(0, 0, 5, 0), (0, 0, 7, 0)]),
     "the recording lasts 3 from 5 on, so it has no whole bin of 4; choose a shorter bin_length, or "
     "include_incomplete=True"),
    (events([(0, 0, 0, 0), (0, 0, 1 << 40, 0)]),
     "the recording has 274877906944 bins of 12 neurons, more than 4294967296 cells; choose a longer bin_length, "
     "max_bins, a crop or a smaller spatial_factor"),
    (np.zeros((5, 4)), "frames of shape (5, 4) do not fit a sensor of 3x2x2 (width, height, polarities); they must be "
     "[T, 2, 2, 3] or [T, 12]"),
    (np.ones((5, 2, 3, 2)), "frames of shape (5, 2, 3, 2) do not fit a sensor of 3x2x2 (width, height, polarities); "
     "they must be [T, 2, 2, 3] or [T, 12]"),
    (torch.ones(3, 12, device="meta"), "an object of type Tensor is not an array of numbers"),
    (events([(0, 0, 0, -1)], [("x", "i2"), ("y", "i2"), ("t", "i8"), ("p", "i1")]),
     "event 0 has p = -1, outside a sensor of 3x2x2 (width, height, polarities) (p from 0 to 1); number polarities "
     "from 0"),
    (np.full((5, 12), np.nan), "frame 0 holds NaN; frames must be numbers"),
    (np.float32(3), "a recording of shape () and type float32 is neither events with fields nor frames [T, ...]"),
]  # fmt: skip


@pytest.mark.parametrize("recording, text", WRONG)
def test_binning_refuses_a_recording_in_one_sentence(recording, text):
    with pytest.raises(ModelError) as e:
        Binning(SENSOR, bin_length=4)(recording)
    assert str(e.value) == text


OPTIONS = [
    ({"sensor": (3, 2)}, "Binning: sensor is (3, 2), must be (width, height, polarities), each >= 1"),
    ({"n_bins": 3}, "Binning: bin_length = 4 and n_bins = 3; give exactly one of them"),
    ({"bin_length": None}, "Binning: bin_length = None and n_bins = None; give exactly one of them"),
    ({"bin_length": None, "n_bins": 3, "max_bins": 2}, "Binning: max_bins = 2 goes with bin_length, not with n_bins"),
    ({"bin_length": 0}, "Binning: bin_length is 0, must be a number > 0 and below 2^62"),
    ({"bin_length": 1 << 62}, f"Binning: bin_length is {1 << 62}, must be a number > 0 and below 2^62"),
    ({"bin_length": float("nan")}, "Binning: bin_length is nan, must be a number > 0 and below 2^62"),
    ({"bin_length": None, "n_bins": 2.5}, "Binning: n_bins is 2.5, must be a whole number >= 1"),
    ({"max_bins": 0}, "Binning: max_bins is 0, must be a whole number >= 1"),
    ({"start": float("inf")},
     "Binning: start is inf, must be a number between -2^62 and 2^62, or None for the first event"),
    ({"start": -(10**400)},
     f"Binning: start is {-(10**400)}, must be a number between -2^62 and 2^62, or None for the first event"),
    ({"include_incomplete": "no"}, "Binning: include_incomplete is no, must be True or False"),
    ({"spatial_factor": 2}, "Binning: spatial_factor is 2, must be > 0 and at most 1"),
    ({"frame_threshold": float("nan")}, "Binning: frame_threshold is nan, must be a number between -2^62 and 2^62"),
    ({"sensor": None}, "Binning: sensor is None, must be (width, height, polarities), each >= 1"),
    ({"bin_length": "long"}, "Binning: bin_length is long, must be a number > 0 and below 2^62"),
    ({"start": "now"},
     "Binning: start is now, must be a number between -2^62 and 2^62, or None for the first event"),
    ({"crop": 3}, "Binning: crop is 3, must be (left, top, width, height) inside a sensor of 3x2"),
    ({"crop": (1, 0, 3, 2)},
     "Binning: crop is (1, 0, 3, 2), must be (left, top, width, height) inside a sensor of 3x2"),
]  # fmt: skip


@pytest.mark.parametrize("changed, text", OPTIONS)
def test_binning_refuses_settings_out_of_range(changed, text):
    with pytest.raises(OptionError) as e:
        Binning(**{"sensor": SENSOR, "bin_length": 4} | changed)
    assert str(e.value) == text
