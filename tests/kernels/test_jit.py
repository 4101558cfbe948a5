"""Kernels are compiled wherever the package lies, and again when any of them has changed."""

import ast
import errno
import inspect
import runpy
import time
from functools import partial
from pathlib import Path
from threading import Event

import pytest
from numba import config, int64, njit
from numba.core.compiler import Flags

from nwcompile.errors import NwWarning
from nwcompile.kernels import jit
from nwcompile.kernels.cores.programs import build
from nwcompile.kernels.jit import compiled
from nwcompile.threads import at_once
from tests.interrupts import PATIENCE_S


def test_kernel_is_compiled_where_nothing_can_be_kept():
    names = {}
    exec("def twice(x):\n    return 2 * x", names)  # has no file, so there is no place for its machine code
    with pytest.raises(RuntimeError, match="no locator available"):
        njit(cache=True)(names["twice"])
    assert compiled()(names["twice"])(3) == 6


def test_kernel_is_kept_until_a_source_that_it_imports_from_changes(tmp_path, monkeypatch):
    path, other = tmp_path / "twice.py", tmp_path / "package" / "kernels" / "two.py"
    path.write_text("from package.kernels import two\nfrom package.kernels import (  # both\n    one,\n    three,\n)\n")
    other.parent.mkdir(parents=True)
    other.write_text("from package.kernels.two import TWO\n")
    third = other.with_name("three.py")
    third.write_text("THREE = 3\n")
    monkeypatch.setattr(jit, "PACKAGE", tmp_path / "package")
    assert set(jit.imports_of(path)) == {other, third}
    before = jit.stamp_of(path)
    assert jit.stamp_of(path) == before
    other.write_text("TWO = 2\n")
    jit.stamp_of.cache_clear()
    assert jit.stamp_of(path) != before


def test_all_imports_of_kernels_are_found_as_by_a_parser():
    for path in jit.PACKAGE.rglob("*.py"):
        parsed = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
        parsed = [node for node in parsed if node.module.startswith("nwcompile.")]
        files = set()
        for node in parsed:
            module = jit.PACKAGE.parent.joinpath(*node.module.split("."))
            files |= {module.with_suffix(".py"), *(module / f"{name.name}.py" for name in node.names)}
        assert {file for file in files if file.exists()} <= set(jit.imports_of(path)), path


def test_kernel_that_is_kept_is_not_made_again_until_its_stamp_changes(tmp_path, monkeypatch):
    path = tmp_path / "twice.py"
    path.write_text("def twice(x):\n    return 2 * x\n")

    alive = []  # Numba finds what a function of no module was kept with only while one such function is alive

    def from_cache() -> int:
        function = compiled()(runpy.run_path(str(path))["twice"])
        assert function(3) == 6
        alive.append(function)
        return sum(function.stats.cache_hits.values())

    assert [from_cache(), from_cache()] == [0, 1]
    monkeypatch.setattr(jit, "stamp_of", lambda _: "changed")
    assert [from_cache(), from_cache()] == [0, 1]


def cut(kept: Path) -> None:
    kept.write_bytes(kept.read_bytes()[:-9])


def flip(kept: Path) -> None:
    data = bytearray(kept.read_bytes())
    data[len(data) // 2] ^= 1
    kept.write_bytes(data)


def of_another_version(kept: Path) -> None:
    kept.write_bytes(b"cnwcompile.kernels.gone\nName\n.")


def in_the_way(kept: Path) -> None:
    kept.unlink()
    kept.mkdir()


@pytest.mark.parametrize("suffix", ["nbi", "nbc"])
@pytest.mark.parametrize("damage", [Path.unlink, partial(Path.write_bytes, data=b""), cut, flip, of_another_version])
def test_kernel_whose_kept_file_is_damaged_is_made_again_and_kept(damage, suffix, tmp_path):
    path = tmp_path / "twice.py"
    path.write_text("def twice(x):\n    return 2 * x\n")
    function = runpy.run_path(str(path))["twice"]
    assert compiled()(function)(3) == 6
    (kept,) = (tmp_path / "__pycache__").glob(f"*.{suffix}")
    damage(kept)
    again, after = compiled()(function), compiled()(function)
    assert again(3) == after(3) == 6
    assert not again.stats.cache_hits and sum(after.stats.cache_hits.values()) == 1


def test_kernels_that_cannot_be_kept_are_made_in_memory_with_one_warning(tmp_path, monkeypatch):
    path = tmp_path / "twice.py"
    path.write_text("def twice(x):\n    return 2 * x\n")
    function = runpy.run_path(str(path))["twice"]

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(jit.CacheFile, "_open_for_write", full)
    jit._warn_no_cache.cache_clear()
    with pytest.warns(NwWarning) as said:
        assert compiled()(function)(3) == compiled()(function)(3) == 6
        assert jit.AsCFunction(int64(int64), function).address
    assert [str(warning.message)[:32] for warning in said] == ["compiled kernels cannot be kept "]
    (tmp_path / "__pycache__").rmdir()
    (tmp_path / "__pycache__").write_text("a file where the folder was")
    assert compiled()(function)(3) == 6


@pytest.mark.parametrize("damage", [partial(Path.write_bytes, data=b"\xff"), cut, in_the_way])
def test_neuron_program_whose_kept_text_is_damaged_is_made_again(damage, tmp_path, monkeypatch):
    monkeypatch.setenv(build.FOLDER, str(tmp_path))
    text = "ONE = 1\n"
    kept = build._write_to_cache("one.py", text)
    damage(kept)
    again = build._write_to_cache("one.py", text)
    assert again is None if kept.is_dir() else again.read_text() == text
    assert len(list(tmp_path.iterdir())) == 1


def test_neuron_program_that_cannot_be_kept_is_compiled_in_memory(tmp_path, monkeypatch):
    monkeypatch.setenv(build.FOLDER, str(tmp_path / "file" / "folder"))
    (tmp_path / "file").write_text("no folder")
    text = "from nwcompile.kernels.jit import kernel\n\n\n@kernel\ndef four(x):\n    return x + 4\n"
    module = build._compile_module(text)
    assert module.four(3) == 7 and inspect.getsource(module.four.py_func) == text[text.index("@kernel") :]


@pytest.mark.parametrize("installed, folder", [(True, "cache/nwcompile/kernels"), (False, "__pycache__")])
def test_kernel_of_an_installation_is_kept_in_the_users_cache_and_of_a_checkout_beside_it(
    installed, folder, tmp_path, monkeypatch
):
    path = tmp_path / "twice.py"
    path.write_text("def twice(x):\n    return 2 * x\n")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(jit, "IS_INSTALLED", installed)
    assert compiled()(runpy.run_path(str(path))["twice"])(3) == 6
    assert [kept.is_relative_to(tmp_path / folder) for kept in tmp_path.rglob("*.nbi")] == [True]
    assert config.CACHE_DIR == ""


def test_where_kernels_are_kept_is_as_it_was_after_threads_that_name_a_folder_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(jit, "IS_INSTALLED", True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    named = Event()

    def name_a_folder(k: int) -> str:
        if k == 1:
            assert named.wait(PATIENCE_S)
        with jit.use_user_cache():
            named.set()
            time.sleep(0.05 * (k + 1))
            return config.CACHE_DIR

    assert at_once(name_a_folder, range(2), 2) == [str(tmp_path / "nwcompile" / "kernels")] * 2
    assert config.CACHE_DIR == ""


def test_flags_of_the_compiler_are_listed_as_numba_lists_them():
    flags = Flags()
    flags.nrt, flags.forceinline = True, True
    assert list(flags.values().items()) == [(name, getattr(flags, name)) for name in flags.options]
