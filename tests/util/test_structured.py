# SPDX-License-Identifier: Apache-2.0
"""Files that a user names: links and pipes are read, others are refused in a line."""

import os
import threading

import pytest

from n3ic.errors import DataError
from n3ic.util.structured import read_json, read_toml


def test_links_are_followed_and_pipes_read(tmp_path):
    (tmp_path / "file").write_bytes(b"a = 1")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=(b'{"a": 1}',))
    writer.start()
    assert read_json(tmp_path / "pipe", 8, DataError, "a number") == {"a": 1}
    writer.join()
    assert read_toml(tmp_path / "link", 5, DataError, "a number") == {"a": 1}
    with pytest.raises(DataError, match=r"link: not a number: larger than 4 KiB$"):
        (tmp_path / "file").write_bytes(bytes(4097))
        read_toml(tmp_path / "link", 4096, DataError, "a number")


@pytest.mark.parametrize("read", [read_json, read_toml])
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("absent", "cannot be read: No such file"),
        ("", "cannot be read: Is a directory"),
        ("a\0b", "cannot be read: embedded null"),
        ("latin", "not a (JSON|TOML) file: 'utf-8' codec"),
        ("deep", "not a (JSON|TOML) file: "),
    ],
)
def test_what_is_no_such_file_is_refused(tmp_path, read, name, message):
    (tmp_path / "latin").write_bytes(b'"\xe9"')
    (tmp_path / "deep").write_bytes(b"[" * 100_000)
    with pytest.raises(DataError, match=message) as refused:
        read(tmp_path / name, 1 << 20, DataError, "a number")
    assert len(str(refused.value)) < 300 + len(str(tmp_path))
