# SPDX-License-Identifier: Apache-2.0
"""What a cache folder must be before its files are loaded or run."""

import os
import stat

import pytest

from n3ic.util.cache import Cache, UnsafeCacheError


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "n3ic" / "things"


def test_a_file_is_there_when_its_block_has_ended_well(home):
    cache = Cache.open("things")
    assert cache.directory == home
    assert cache.find("a") is None
    with cache.new_file("a") as out:
        out.write_bytes(b"whole")
        assert cache.find("a") is None
    assert cache.find("a").read_bytes() == b"whole"
    assert stat.S_IMODE(home.stat().st_mode) == stat.S_IMODE((home / "a").stat().st_mode) == 0o700
    with pytest.raises(ZeroDivisionError), cache.new_file("a") as out:
        out.write_bytes(b"half")
        raise ZeroDivisionError
    assert (home / "a").read_bytes() == b"whole"
    assert [p.name for p in home.iterdir()] == ["a"]


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o755])
def test_a_folder_that_others_can_use_is_refused(home, mode):
    Cache.open("things")
    home.chmod(mode)
    with pytest.raises(UnsafeCacheError, match="mode 0700"):
        Cache.open("things")


def test_a_folder_above_that_others_can_write_is_refused(home):
    Cache.open("things")
    home.parent.parent.chmod(0o777)
    with pytest.raises(UnsafeCacheError, match="somebody else"):
        Cache.open("things")


@pytest.mark.parametrize("kind", ["writable", "link", "hard link", "directory"])
def test_a_planted_file_is_not_found(home, tmp_path, kind):
    cache = Cache.open("things")
    planted = tmp_path / "planted"
    planted.write_bytes(b"")
    target = home / "a"
    if kind == "link":
        target.symlink_to(planted)
    elif kind == "hard link":
        os.link(planted, target)
    elif kind == "directory":
        target.mkdir()
    else:
        target.write_bytes(b"")
        target.chmod(0o666)
    assert cache.find("a") is None
