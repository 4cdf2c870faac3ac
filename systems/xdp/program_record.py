# SPDX-License-Identifier: Apache-2.0
"""Records of the programs on interfaces, which ``n3icd`` writes: where it answers, and its pack.

They lie in a folder of ``/run``: a reboot empties it, just as it detaches the programs.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from n3ic.errors import UsageError
from n3ic.exporters.xdp.layout import VERSION
from n3ic.exporters.xdp.packing import PACK, unpack
from n3ic.exporters.xdp.source import Table
from n3ic.model.classifier import Classifier
from n3ic.model.meter_spec import MeterSpec

_RECORD = "n3icd.json"
_REPLACED_S = 2.0  # n3icd removes a record before it writes the next one
_LOOK_S = 0.01


@dataclass(frozen=True)
class Interface:
    """A network interface in the network namespace of this thread.

    Attributes:
        name: its name, such as ``eth0``.
        index: its index in the kernel.
    """

    name: str
    index: int

    @classmethod
    def named(cls, name: str) -> Interface:
        """Find an interface by name.

        Raises:
            UsageError: No interface has that name.
        """
        try:
            return cls(name, socket.if_nametoindex(name))
        except OSError as error:
            names = ", ".join(sorted(n for _, n in socket.if_nameindex()))
            raise UsageError(f"no interface {name!r}, expected one of {names}") from error

    @property
    def folder(self) -> Path:
        """Folder of its records, per network namespace, as others may use the same name."""
        return run_folder() / "xdp" / f"{self.name}-{network_namespace()}"


def network_namespace() -> int:
    """The number of this thread's network namespace."""
    return Path("/proc/thread-self/ns/net").stat().st_ino


def run_folder() -> Path:
    """The folder of what lasts until a reboot."""
    return Path(os.environ.get("N3IC_RUN", "/run/n3ic"))


@dataclass(frozen=True)
class ProgramRecord:
    """A program that ``n3icd`` loaded, or took over.

    Attributes:
        program_id: its number in the kernel.
        mode: attach mode: ``native``, ``generic`` or ``tcx``.
        clock: clock of the program, ``kernel`` or ``coarse``.
        per_cpu: whether each window covers the flows of one CPU only.
        policies: policies as typed.
        rules: rules as typed.
        otherwise: slot of flows without a matching rule.
        table: flow table that the program was compiled with.
        frags: whether it takes frames that lie in several pieces.
        priority: its priority in libxdp's dispatcher; None if it runs alone.
        configured: path of the pack that n3icd was configured with.
        pins: folder of its pins.
        socket: path of the socket on which n3icd reports decided flows.
        control: path of the socket on which n3icd takes requests.
        pack: the pack that is now loaded.
    """

    program_id: int
    mode: str
    clock: str
    per_cpu: bool
    policies: tuple[str, ...]
    rules: tuple[str, ...]
    otherwise: int
    table: Table
    frags: bool
    priority: int | None
    configured: str
    pins: str
    socket: str
    control: str
    pack: bytes

    @property
    def place(self) -> str:
        """Where it is attached, as text for people."""
        if self.mode == "tcx":
            return "tcx, both directions"
        beside = "" if self.priority is None else f", in a dispatcher, priority {self.priority}"
        return f"{self.mode} XDP{'' if self.frags else ' without frames in several pieces'}{beside}"

    @property
    def compiled(self) -> Classifier:
        """The network for whose structure it was compiled."""
        return _unpacked(self.pack).compiled

    @property
    def spec(self) -> MeterSpec:
        """Its meter.

        Raises:
            UsageError: The pack is damaged.
        """
        spec = self.compiled.meter
        if spec is None:
            raise UsageError(f"{self.configured}: its network has no meter; unload and load again")
        return spec

    @property
    def networks(self) -> Mapping[str, Classifier]:
        """The networks of its pack, by digest."""
        return _unpacked(self.pack).networks


_unpacked = lru_cache(maxsize=2)(unpack)  # the same pack is read again and again


def find_record(interface: Interface) -> ProgramRecord | None:
    """Read the record of an interface's program; None if there is none.

    Raises:
        UsageError: It is damaged, or may not be read.
    """
    end = time.monotonic() + _REPLACED_S
    while True:
        try:
            folders = sorted(interface.folder.glob(f"*/{_RECORD}"))
            if folders:
                return _read(folders[-1].parent)
            if not interface.folder.exists():
                return None
        except FileNotFoundError:
            pass  # an update replaces it
        except PermissionError as error:
            raise UsageError(f"{interface.folder}: not permitted: run as root") from error
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UsageError(
                f"{interface.folder}: damaged: {error}; unload and load again"
            ) from error
        if time.monotonic() > end:
            return None
        time.sleep(_LOOK_S)


def read_record(interface: Interface) -> ProgramRecord:
    """Read the record of an interface's program.

    Raises:
        UsageError: There is none, it is damaged, or it may not be read.
    """
    record = find_record(interface)
    if record is None:
        raise UsageError(
            f"{interface.name}: n3ic has loaded nothing there (n3ic xdp load {interface.name} "
            "EXPORT), or not in this network namespace; n3icd with records = in its configuration "
            "keeps its record there, and N3IC_RUN names the folder above"
        )
    return record


def _read(folder: Path) -> ProgramRecord:
    """Read what ``n3icd`` wrote: see ``record_write`` in ``exporters/xdp/daemon/store.c``."""
    fields: dict[str, Any] = json.loads((folder / _RECORD).read_bytes())
    pack = (folder / PACK).read_bytes()
    about = _unpacked(pack).about
    if fields["version"] != VERSION:
        raise ValueError(f"version {fields['version']!r}, this n3ic reads {VERSION}")
    return ProgramRecord(
        int(folder.name),
        fields["mode"],
        about["clock"],
        about["per_cpu"],
        tuple(about["policies"]),
        tuple(about["rules"]),
        about["otherwise"],
        about["table"],
        fields["frags"],
        fields.get("priority"),
        fields["pack"],
        fields["pins"],
        fields["socket"],
        fields["control"],
        pack,
    )


def remove_record(interface: Interface) -> None:
    """Remove the records of an interface."""
    shutil.rmtree(interface.folder, ignore_errors=True)
