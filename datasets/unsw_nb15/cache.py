# SPDX-License-Identifier: Apache-2.0
"""Keeps parsed files in the user's cache folder.

An entry is found by the digest of the source's bytes and of the code that parsed them, and
carries the digest of its own arrays: a stale, damaged or foreign entry is never used.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import n3ic.data.delimited
import n3ic.data.files
import n3ic.model.inputs
from n3ic.datasets.unsw_nb15.reader import FlowFile
from n3ic.util.cache import Cache

CACHE = "unsw_nb15"
_FORMAT = 2


@cache
def loader_version() -> str:
    """Digest of the code that turns a file into columns, so that changed code gets a new entry."""
    digest = hashlib.sha256(str(_FORMAT).encode())
    folder = Path(__file__).parent
    names = ("reader.py", "columns.py", "catalogue.py", "catalogue.toml", "cache.py")
    for path in (
        *(folder / name for name in names),
        *(Path(str(m.__file__)) for m in (n3ic.data.files, n3ic.data.delimited, n3ic.model.inputs)),
    ):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _entry(sha256: str) -> str:
    return f"{sha256}-{loader_version()[:16]}.npz"


def write_cached(sha256: str, flows: FlowFile) -> None:
    """Keep the flows of a file, in place of the entries that older code made.

    The function does nothing if the cache cannot be written, or if somebody else could write it.
    """
    categories, codes = np.unique(flows.category, return_inverse=True)
    arrays: dict[str, NDArray[np.generic]] = {
        f"column:{name}": values for name, values in flows.columns.items()
    }
    arrays["label"] = flows.label.astype(np.uint8)
    arrays["codes"] = codes.astype(np.uint8)
    meta = {
        "source": sha256,
        "loader": loader_version(),
        "rows": len(flows),
        "layout": flows.layout,
        "coded": flows.coded,
        "synthetic": flows.synthetic,
        "categories": categories.tolist(),
    }
    meta["digest"] = _digest(meta, arrays)
    try:
        cache = Cache.open(CACHE)
        with cache.new_file(_entry(sha256)) as out, out.open("wb") as stream:
            np.savez(stream, meta=np.array(json.dumps(meta)), **arrays)  # type: ignore[arg-type]
        for older in set(cache.directory.glob(f"{sha256}-*.npz")) - {cache.find(_entry(sha256))}:
            older.unlink(missing_ok=True)
    except OSError:
        return


def read_cached(sha256: str) -> FlowFile | None:
    """Return the flows of the file with this digest; None without a valid entry."""
    try:
        path = Cache.open(CACHE).find(_entry(sha256))
        if path is None:
            return None
        with np.load(path, allow_pickle=False) as entry:
            arrays = {name: entry[name] for name in entry.files}
        meta = json.loads(str(arrays.pop("meta")))
        digest = meta.pop("digest")
        if meta["source"] != sha256 or meta["loader"] != loader_version():
            return None
        if digest != _digest(meta, arrays):
            return None
        rows = meta["rows"]
        if any(a.shape != (rows,) for a in arrays.values()):
            return None
        categories = np.array(meta["categories"], dtype=np.str_)
        return FlowFile(
            layout=str(meta["layout"]),
            columns={
                name.removeprefix("column:"): values
                for name, values in arrays.items()
                if name.startswith("column:")
            },
            label=arrays["label"].astype(np.int64),
            category=categories[arrays["codes"]],
            coded=bool(meta["coded"]),
            synthetic=bool(meta["synthetic"]),
        )
    except (OSError, ValueError, KeyError, TypeError, IndexError, EOFError, zipfile.BadZipFile):
        return None


def _digest(meta: dict[str, object], arrays: dict[str, NDArray[np.generic]]) -> str:
    digest = hashlib.sha256(json.dumps(meta, sort_keys=True).encode())
    for name in sorted(arrays):
        values = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {values.dtype.str} {values.shape} ".encode())
        digest.update(values.tobytes())
    return digest.hexdigest()
