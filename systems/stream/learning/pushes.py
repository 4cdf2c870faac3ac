# SPDX-License-Identifier: Apache-2.0
"""Puts refreshed models on targets, each with its own atomic swap."""

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
    """How a model replaces the running one on a target.

    An entry point in the group ``n3ic.stream_pushes`` names an instance.
    """

    @abstractmethod
    def push(self, model: Classifier, place: str) -> None:
        """Swap the model, completely or not at all; pushing the same model twice is harmless.

        Args:
            model: the new model.
            place: where, as typed after the colon.

        Raises:
            N3icError: The swap failed; the former model keeps running.
            OSError: Likewise.
        """


class FilePush(ModelPush):
    """Replaces a model file; a stream with ``--follow`` and ``n3ic predict`` read it."""

    name: ClassVar[str] = "file"
    summary: ClassVar[str] = "a model file: file:PATH"

    def push(self, model: Classifier, place: str) -> None:
        """See :meth:`ModelPush.push`."""
        model.save(place)


class HostPush(ModelPush):
    """Exports for the host, and points the link ``current`` to the new export."""

    name: ClassVar[str] = "host"
    summary: ClassVar[str] = "exports for the host: host:FOLDER, of which FOLDER/current runs"

    def push(self, model: Classifier, place: str) -> None:
        """See :meth:`ModelPush.push`."""
        folder = Path(place)
        name = model.digest[:16]
        if not (folder / name / MANIFEST).is_file():
            # Keep the trained shape, so that each export can take the place of the others.
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
    """The function that swaps the model of a target.

    Args:
        where: ``TARGET:PLACE``, such as ``xdp:eth0``, ``host:exports`` or ``file:model.n3ic``.

    Raises:
        UsageError: The target is unknown, or no place is named.
    """
    target, colon, place = where.partition(":")
    push: ModelPush = find(GROUP, target, ModelPush)
    if not colon or not place:
        raise UsageError(f"{where}: expected {push.summary}")
    return lambda model: push.push(model, place)
