# SPDX-License-Identifier: Apache-2.0
"""Where a refreshed model goes: each target's own atomic swap."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

from n3ic.errors import UsageError
from n3ic.model.classifier import Classifier
from n3ic.plugins import Plugin, find
from n3ic.targets.directory import export
from n3ic.targets.manifest import MANIFEST

GROUP = "n3ic.stream_pushes"


class ModelPush(Plugin):
    """How a model is put in the place of the running one.

    An entry point in the group ``n3ic.stream_pushes`` names an instance.
    """

    @abstractmethod
    def push(self, model: Classifier, place: str) -> None:
        """Swap the model, whole or not at all; putting the same model twice does no harm.

        Args:
            model: the new model.
            place: where, as typed after the colon.

        Raises:
            N3icError: the swap failed; the former model runs on.
            OSError: likewise.
        """


class FilePush(ModelPush):
    """Replaces a model file, which ``n3ic stream`` and ``n3ic predict`` read."""

    name: ClassVar[str] = "file"
    summary: ClassVar[str] = "a model file: file:PATH"

    def push(self, model: Classifier, place: str) -> None:
        """See :meth:`ModelPush.push`."""
        model.save(place)


class HostPush(ModelPush):
    """Exports for the host, and turns the link ``current`` to the new export."""

    name: ClassVar[str] = "host"
    summary: ClassVar[str] = "exports for the host: host:FOLDER, of which FOLDER/current runs"

    def push(self, model: Classifier, place: str) -> None:
        """See :meth:`ModelPush.push`."""
        folder = Path(place)
        name = model.digest[:16]
        if not (folder / name / MANIFEST).is_file():
            # The trained shape stays, so that each export loads where the others did.
            export(model, "host", folder / name, simplify=False)
        link, new = folder / "current", folder / f".current-{os.getpid()}"
        new.unlink(missing_ok=True)
        new.symlink_to(name)
        new.replace(link)


class XdpPush(ModelPush):
    """Updates the program of an interface while traffic flows."""

    name: ClassVar[str] = "xdp"
    summary: ClassVar[str] = "a program on an interface: xdp:INTERFACE or xdp:INTERFACE:SLOT"

    def push(self, model: Classifier, place: str) -> None:
        """See :meth:`ModelPush.push`."""
        from n3ic.systems.xdp.deployment import update
        from n3ic.systems.xdp.program_record import Interface

        interface, _, slot = place.partition(":")
        if slot and not (slot.isascii() and slot.isdecimal()):
            raise UsageError(f"xdp:{place}: expected a number as slot, got {slot!r}")
        update(Interface.named(interface), model, int(slot) if slot else None)


FILE, HOST, XDP = FilePush(), HostPush(), XdpPush()


def push_to(where: str) -> Callable[[Classifier], None]:
    """The swap of a target.

    Args:
        where: ``TARGET:PLACE``, such as ``xdp:eth0``, ``host:exports`` or ``file:model.n3ic``.

    Raises:
        UsageError: the target is unknown, or no place is named.
    """
    target, colon, place = where.partition(":")
    found: ModelPush = find(GROUP, target, ModelPush)
    if not colon or not place:
        raise UsageError(f"{where}: expected {found.summary}")
    return lambda model: found.push(model, place)
