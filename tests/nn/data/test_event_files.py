"""Event files beside the events that lie in them: bytes by the formats' descriptions, and files that faery writes."""

import sys

import numpy as np
import pytest

from nwcompile.errors import ModelError, OptionError
from nwcompile.nn.data import Binning, read_events
from tests.frontend.frameworks import framework
from tests.made.recordings import nmnist, recorded_frames

ROWS = [(5, 0, 0, 1), (10, 1, 33, 0), (10, 2, 2, 1), (999, 3, 3, 1), (2000, 33, 4, 0), (70000, 5, 5, 1)]  # t, x, y, p


@pytest.fixture(autouse=True)
def faery():
    framework("tonic")
    return framework("faery")


def evt2(rows) -> bytes:
    """Prophesee's EVT 2.0: words of 32 bits, the upper 28 bits of a time (8), then off (0) and on (1) events."""
    words, high = [], None
    for t, x, y, p in rows:
        if t >> 6 != high:
            high = t >> 6
            words.append((8 << 28) | high)
        words.append((p << 28) | ((t & 63) << 22) | (x << 11) | y)
    return b"% evt 2.0\n% geometry 34x34\n% end\n" + np.array(words, "<u4").tobytes()


def evt3(rows) -> bytes:
    """Prophesee's EVT 3.0: words of 16 bits, the upper (8) and lower (6) 12 bits of a time, a row (0), an x (2)."""
    words = [
        word for t, x, y, p in rows for word in (0x8000 | (t >> 12), 0x6000 | (t & 4095), y, 0x2000 | (p << 11) | x)
    ]
    return b"% evt 3.0\n% geometry 34x34\n% end\n" + np.array(words, "<u2").tobytes()


def dat(rows) -> bytes:
    """Prophesee's DAT, version 2: a type and a size, then a time and a word of x, y and p for each event."""
    words = [word for t, x, y, p in rows for word in (t, (p << 28) | (y << 14) | x)]
    return b"% Version 2\n% Width 34\n% Height 34\n\x0c\x08" + np.array(words, "<u4").tobytes()


WRITTEN = {"bin": nmnist, "raw": evt2, "3.raw": evt3, "dat": dat}


@pytest.mark.parametrize("name", WRITTEN)
def test_event_file_is_read_as_its_format_is_described(tmp_path, name):
    path = tmp_path / f"a.{name}"
    path.write_bytes(WRITTEN[name](ROWS))
    events = read_events(path)
    assert events[["t", "x", "y", "p"]].tolist() == ROWS
    assert Binning((34, 34, 2), bin_length=1000, include_incomplete=True)(events).sum() == len(ROWS)


@pytest.mark.parametrize(("name", "first"), [("a.aedat4", 5), ("a.aedat", 5), ("a.es", 0), ("a.raw", 5), ("a.dat", 5)])
def test_event_file_that_faery_writes_is_read(tmp_path, faery, name, first):
    given = np.array([tuple(row) for row in ROWS], faery.EVENTS_DTYPE)
    kind = {".es": "es", ".raw": "evt", ".dat": "dat"}.get(name[1:], "aedat")
    faery.events_stream_from_array(given, dimensions=(34, 34)).to_file(str(tmp_path / name), file_type=kind)
    assert read_events(tmp_path / name).tolist() == [(t - ROWS[0][0] + first, x, y, p) for t, x, y, p in ROWS]


def test_recorded_digit_in_bins_is_the_frames_of_its_file(reference):
    folder = reference / "nir" / "02_cnn"
    binning = Binning((34, 34, 2), bin_length=1000, start=0, max_bins=300)
    spikes = binning(read_events(folder / "tonic_sample_nmnist.bin"))
    assert np.array_equal(spikes.reshape(1, 300, 2, 34, 34), recorded_frames(folder)) and spikes.any()


def test_event_file_that_cannot_be_read_is_named(tmp_path):
    for name, data, said in (
        ("a.txt", b"", "does not have the suffix of an event file; known are .bin, .aedat4, .aedat, .raw, .dat, .es"),
        ("a.aedat4", b"#!AER-DAT4.0\r\n", "faery cannot read it: failed to fill whole buffer"),
        ("a.raw", evt2(ROWS)[34:], "faery cannot read it: the header has no version"),
        ("a.bin", nmnist(ROWS)[:-2], "tonic cannot read it: "),
        ("a.aedat", b"#!AER-DAT3.1\r\n#\r\n" + bytes(40), "is AEDAT 3.1, and only AEDAT 4 is read; earlier versions do "
         "not say how their camera numbers pixels: read it with the tool that recorded it, and give an array of "
         "fields t, x, y, p"),
    ):  # fmt: skip
        (tmp_path / name).write_bytes(data)
        with pytest.raises(ModelError) as e:
            read_events(tmp_path / name)
        assert str(e.value).startswith(f"{tmp_path / name}: {said}")
    with pytest.raises(ModelError, match="none.raw: cannot be read: No such file or directory"):
        read_events(tmp_path / "none.raw")


@pytest.mark.parametrize(("name", "library"), [("a.bin", "tonic"), ("a.raw", "faery")])
def test_event_file_without_its_reader_says_how_to_install_it(tmp_path, monkeypatch, name, library):
    (tmp_path / name).write_bytes(b"")
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(OptionError) as e:
        read_events(tmp_path / name)
    text = f"event files of this kind need {library}, which is not installed: pip install 'nwcompile[events]'"
    assert str(e.value) == text
