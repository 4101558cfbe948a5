"""The table on disk: whole lines only, one writer, and every row that was told to be done."""

import json
import os

import pytest

from nwcompile.errors import ArtifactError
from nwcompile.workbench.sweep.store import FILE, Store


def row(number: int) -> dict:
    return {"id": f"p{number}", "bits": number, "error": None, "seconds": 0.5}


def filled(folder, n: int = 3) -> Store:
    with Store(folder) as store:
        for number in range(n):
            store.add(row(number))
    return store


def test_store_gives_back_its_rows(tmp_path):
    filled(tmp_path / "deep" / "down")
    with Store(tmp_path / "deep" / "down") as store:
        assert list(store.rows.values()) == [row(0), row(1), row(2)]
        store.add({**row(1), "bits": 7})
    with Store(tmp_path / "deep" / "down") as store:
        assert store.rows["p1"]["bits"] == 7 and store.n_unreadable == 0


@pytest.mark.parametrize("cut", range(1, 50, 7))
def test_store_takes_a_cut_line_away_and_goes_on(tmp_path, cut):
    filled(tmp_path)
    path = tmp_path / FILE
    path.write_bytes(path.read_bytes()[:-cut])
    with Store(tmp_path) as store:
        assert list(store.rows) == (["p0", "p1", "p2"] if cut == 1 else ["p0", "p1"])
        store.add(row(5))
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [r["id"] for r in rows][-2:] == (["p2", "p5"] if cut == 1 else ["p1", "p5"])


def test_store_leaves_lines_that_are_no_rows(tmp_path):
    damaged = ["no json", '{"id": 3}', "[1]", "[" * 100_000]
    damaged += [json.dumps({**row(1), "error": 5}), json.dumps({**row(1), "bits": float("nan")})]
    (tmp_path / FILE).write_text("\n".join([*damaged, json.dumps(row(0)), ""]))
    with Store(tmp_path) as store:
        assert list(store.rows) == ["p0"] and store.n_unreadable == len(damaged)
    assert (tmp_path / FILE).read_text().startswith("no json\n")


def test_store_has_one_writer(tmp_path):
    path = tmp_path / FILE
    with Store(tmp_path) as store:
        with pytest.raises(ArtifactError) as e, Store(tmp_path):
            pass
        store.add(row(0))
    assert str(e.value) == (
        f"{path} is being written to by another sweep; wait until that is done, or choose another folder"
    )
    assert e.value.code == "NW7006"
    with Store(tmp_path) as store:
        assert list(store.rows) == ["p0"]


def test_store_says_where_it_cannot_write(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    with pytest.raises(ArtifactError) as e, Store(tmp_path / "file"):
        pass
    assert str(e.value) == (
        f"{tmp_path / 'file' / FILE} cannot be opened: {tmp_path / 'file'} is not a folder; choose another folder"
    )

    real = os.write

    def full(file, data):
        if len(data) < 10:
            raise OSError(28, "No space left on device")
        return real(file, data[:-5])

    with Store(tmp_path) as store:
        store.add(row(0))
        before = (tmp_path / FILE).read_bytes()
        monkeypatch.setattr("os.write", full)
        with pytest.raises(ArtifactError) as e:
            store.add(row(1))
        assert (tmp_path / FILE).read_bytes() == before
    assert str(e.value) == (
        f"{tmp_path / FILE} cannot be written: No space left on device; the points before this one are kept, and the "
        "same command continues from there"
    )


def test_store_without_a_folder_keeps_rows_in_memory():
    with Store(None) as store:
        store.add(row(1))
    assert list(store.rows) == ["p1"]
