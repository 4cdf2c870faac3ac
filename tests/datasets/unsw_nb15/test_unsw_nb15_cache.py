# SPDX-License-Identifier: Apache-2.0
"""The cache gives what the file gives, or nothing."""

import io

import numpy as np
import pytest

from n3ic.datasets.unsw_nb15 import cache, loader
from n3ic.datasets.unsw_nb15.loader import load_table
from n3ic.datasets.unsw_nb15.reader import read_flows
from n3ic.datasets.unsw_nb15.synthetic import write_csv
from n3ic.util.cache import Cache


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


@pytest.fixture
def parses(monkeypatch):
    """Counts the files that were parsed rather than taken from the cache."""
    count = []
    monkeypatch.setattr(
        loader, "read_flows", lambda *a, **k: count.append(1) or read_flows(*a, **k)
    )
    return count


def folder():
    return Cache.open(cache.CACHE).directory


def entry():
    (path,) = folder().glob("*.npz")
    return path


def same(a, b):
    assert a.features.keys() == b.features.keys()
    for name in a.features:
        np.testing.assert_array_equal(a.features[name], b.features[name])
        assert a.features[name].dtype == b.features[name].dtype
    np.testing.assert_array_equal(a.label, b.label)
    np.testing.assert_array_equal(a.category, b.category)
    assert (a.name, a.synthetic, a.sha256, a.sources) == (b.name, b.synthetic, b.sha256, b.sources)


def test_second_load_is_from_the_cache_and_equal(home, parses):
    path = write_csv(home / "f.csv", 200, 4)
    first = load_table(path)
    same(first, load_table(path))
    assert len(parses) == 1
    assert entry().parent.stat().st_mode & 0o777 == 0o700
    path.rename(home / "g.csv")
    assert len(load_table(home / "g.csv")) == 200
    assert len(parses) == 1


def test_changed_bytes_miss(home, parses):
    path = write_csv(home / "f.csv", 200, 4)
    load_table(path)
    write_csv(path, 200, 5)
    load_table(path)
    assert len(parses) == 2


def test_other_loader_misses(home, parses, monkeypatch):
    path = write_csv(home / "f.csv", 200, 4)
    load_table(path)
    monkeypatch.setattr(cache, "loader_version", lambda: "0" * 64)
    load_table(path)
    assert len(parses) == 2
    assert entry().name.endswith("-0000000000000000.npz")


def test_damaged_entry_is_ignored(home, parses):
    path = write_csv(home / "f.csv", 200, 4)
    first = load_table(path)
    sound = entry().read_bytes()
    rng = np.random.default_rng(0)
    damaged = [b"", b"junk", sound[:-100], sound[: len(sound) // 2]]
    damaged += [
        sound[:position] + bytes([sound[position] ^ 0xFF]) + sound[position + 1 :]
        for position in rng.integers(0, len(sound), 12)
    ]
    for data in damaged:
        entry().write_bytes(data)
        same(first, load_table(path))


def test_poisoned_entry_is_ignored(home, parses):
    """An entry of another file, or with changed arrays, is never used."""
    path, other = write_csv(home / "f.csv", 200, 4), write_csv(home / "g.csv", 200, 5)
    first = load_table(path)
    mine = entry()
    load_table(other)
    (theirs,) = set(folder().glob("*.npz")) - {mine}
    sound = mine.read_bytes()
    mine.write_bytes(theirs.read_bytes())
    same(first, load_table(path))
    mine.write_bytes(sound)
    with np.load(mine) as arrays:
        changed = dict(arrays)
    changed["column:dur"] = changed["column:dur"] + 1
    buffer = io.BytesIO()
    np.savez(buffer, **changed)
    mine.write_bytes(buffer.getvalue())
    same(first, load_table(path))
    assert len(parses) == 4


def test_pickles_are_not_read(home, parses):
    path = write_csv(home / "f.csv", 200, 4)
    first = load_table(path)
    buffer = io.BytesIO()
    np.savez(buffer, meta=np.array([{"rows": 1}], dtype=object))
    entry().write_bytes(buffer.getvalue())
    same(first, load_table(path))
    assert len(parses) == 2


@pytest.mark.parametrize("above", [0, 1, 2])
def test_folder_that_others_may_write_is_not_used(home, parses, above):
    path = write_csv(home / "f.csv", 200, 4)
    load_table(path)
    (folder(), *folder().parents)[above].chmod(0o777)
    load_table(path)
    assert len(parses) == 2


def test_a_link_in_the_cache_is_not_followed(home, parses):
    path = write_csv(home / "f.csv", 200, 4)
    load_table(path)
    entry_path = entry()
    entry_path.rename(home / "elsewhere.npz")
    entry_path.symlink_to(home / "elsewhere.npz")
    load_table(path)
    assert len(parses) == 2


def test_unwritable_cache_does_no_harm(home, parses):
    (home / "cache").write_text("a file where the folder should be")
    assert len(load_table(write_csv(home / "f.csv", 50, 4))) == 50
    assert len(parses) == 1
