# SPDX-License-Identifier: Apache-2.0
"""What a stream needs to resume, in one file that is always replaced as a whole.

The file holds a magic line, a line of JSON, the meter's state (zstd), the records that sinks which
cannot be cut have yet to get (zstd), the running model's file (zstd), and the SHA-256 of all that.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from n3ic.errors import DataError, N3icError
from n3ic.meter.source import meter_source
from n3ic.model.classifier import Classifier
from n3ic.util.files import reserved_folder, sync_folder, write_atomic
from n3ic.util.plain_data import from_plain

NAME = "stream.state"
_MAGIC = b"n3ic stream state 1\n"
_DIGEST = 32
_LARGEST = 1 << 34  # bytes of the parts, unpacked
_OURS = re.compile(r"stream\.state$|stream\.state\.")


@dataclass(frozen=True)
class StreamId:
    """The stream that a state belongs to; another stream cannot resume from it.

    Attributes:
        model: digest of the model that it was begun with.
        meter: digest of the meter's specification and code; empty without a meter.
        source: name of the source.
        link: link type of the source's packets; None for rows.
        sinks: names of the sinks, in their order.
        features: whether the sinks also write the model's features.
    """

    model: str
    meter: str
    source: str
    link: int | None
    sinks: tuple[str, ...]
    features: bool

    def difference(self, other: StreamId) -> str:
        """Describe the differences in words; empty if there are none."""
        return "; ".join(
            f"its {name} is {getattr(self, name)!r}, not {getattr(other, name)!r}"
            for name in asdict(self)
            if getattr(self, name) != getattr(other, name)
        )


@dataclass(frozen=True)
class Successor:
    """A model that took the place of another.

    Attributes:
        model: its digest.
        flow: number of the first flow that it decides.
    """

    model: str
    flow: int


@dataclass(frozen=True)
class StreamPoint:
    """A point of a stream.

    Attributes:
        of: which stream it is.
        id: a random identifier of the stream.
        position: the source's position.
        ending: whether the source has ended; the meter still holds the remaining flows.
        finished: whether the remaining flows are decided too.
        commits: how many states had been written, including this one.
        flows: number of flows decided so far.
        classes: number of these flows, by verdict.
        packets: number of packets so far.
        lost: packets lost so far, by place and reason.
        offsets: the offset of each sink, as its ``flush`` returned it.
        successors: the models that followed the first one, in their order.
    """

    of: StreamId
    id: str
    position: Mapping[str, Any] = field(default_factory=dict)
    ending: bool = False
    finished: bool = False
    commits: int = 0
    flows: int = 0
    classes: Mapping[str, int] = field(default_factory=dict)
    packets: int = 0
    lost: Mapping[str, int] = field(default_factory=dict)
    offsets: tuple[Mapping[str, Any], ...] = ()
    successors: tuple[Successor, ...] = ()

    @property
    def running(self) -> str:
        """Digest of the model that decided the last flows, and goes on."""
        return self.successors[-1].model if self.successors else self.of.model


@dataclass(frozen=True)
class StreamState:
    """A consistent snapshot of a stream.

    Attributes:
        point: the point of the stream.
        meter: the meter's state; empty without a meter.
        pending: bytes of the last records, up to ``point.flows``, for sinks that cannot be cut.
        model: bytes of the file of the running model, which decided these records; empty in states
            of older versions.
    """

    point: StreamPoint
    meter: bytes = b""
    pending: bytes = b""
    model: bytes = b""

    def write(self, folder: Path) -> None:
        """Replace the state of a folder.

        Raises:
            N3icError: The file cannot be written; the previous state is untouched.
        """
        import pyarrow as pa

        codec = pa.Codec("zstd", 1)
        parts = self.meter, self.pending, self.model
        packed = [codec.compress(part, asbytes=True) for part in parts]
        sizes = [[len(a), len(b)] for a, b in zip(parts, packed, strict=True)]
        head = json.dumps({"point": asdict(self.point), "sizes": sizes}, sort_keys=True)
        data = b"".join((_MAGIC, head.encode(), b"\n", *packed))
        write_atomic(folder / NAME, data + hashlib.sha256(data).digest())
        sync_folder(folder)

    @classmethod
    def read(cls, folder: Path) -> StreamState | None:
        """Read the state of a folder; None if it has none.

        Raises:
            DataError: The file is damaged, or other users could have written it.
        """
        path = folder / NAME
        try:
            data = path.read_bytes()
            others = folder.stat().st_mode & 0o022 or path.stat().st_uid != os.geteuid()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
        if others:  # the meter's state is restored unchecked
            raise DataError(
                f"{path}: other users could have written it: chmod go-w {folder}, or name another "
                "folder"
            )
        body, digest = data[:-_DIGEST], data[-_DIGEST:]
        if not body.startswith(_MAGIC) or hashlib.sha256(body).digest() != digest:
            raise DataError(
                f"{path}: damaged, or of another version of n3ic; remove it and the sinks' output "
                "to begin again"
            )
        return cls._parsed(body, path)

    @classmethod
    def _parsed(cls, body: bytes, path: Path) -> StreamState:
        import pyarrow as pa

        head, _, rest = body.removeprefix(_MAGIC).partition(b"\n")
        try:
            header = json.loads(head)
            parts = []
            for size, packed in header["sizes"]:
                if not 0 <= size <= _LARGEST:
                    raise ValueError(f"a part of {size} bytes")
                parts.append(pa.Codec("zstd").decompress(rest[:packed], size, asbytes=True))
                rest = rest[packed:]
            return cls(from_plain(StreamPoint, header["point"], strict=True), *parts)
        except (ValueError, KeyError, TypeError, pa.ArrowException) as error:
            raise DataError(f"{path}: damaged: {error}") from error


@contextmanager
def state_folder(path: str | Path) -> Iterator[Path]:
    """Reserve the folder of a stream's state for this process; it is made if necessary.

    Raises:
        UsageError: The folder holds other files, or another process uses it.
        N3icError: The folder cannot be made.
    """
    folder = Path(path)
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise N3icError(f"cannot make {folder}: {error.strerror or error}") from error
    with reserved_folder(folder, _OURS) as reserved:
        yield reserved


def stream_id(
    model: Classifier, source: str, link: int | None, sinks: tuple[str, ...], features: bool
) -> StreamId:
    """The identity of a stream, which its state records."""
    meter = ""
    if link is not None and model.meter is not None:
        definition = [model.meter.to_json(), sorted(meter_source(model.meter).items())]
        meter = hashlib.sha256(json.dumps(definition).encode()).hexdigest()
    return StreamId(model.digest, meter, source, link, sinks, features)
