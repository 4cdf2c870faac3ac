# SPDX-License-Identifier: Apache-2.0
"""The description of a core: the ports and files that every style of executor shares."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from n3ic.errors import VerifyError
from n3ic.model.classifier import Classifier
from n3ic.util.plain_data import from_plain

FILE = "core.json"
MAX_WIDTH = 1 << 24
SCORE_BITS = 12  # default width of a score, enough for popcounts of up to nine bits
SOURCE = re.compile(r"(rtl/)?[A-Za-z0-9_]+\.v")
SHARED_RTL = Path(__file__).resolve().parent / "rtl"  # shared by executors and packet path
_OPENING = "`timescale 1ns / 1ps\n`default_nettype none\n"
_CLOSING = "`default_nettype wire\n"  # the default, for files of others that are read after


def copy_blocks(out: Path, *folders: Path) -> None:
    """Copy the hand-written Verilog of folders into ``out/rtl``."""
    (out / "rtl").mkdir(exist_ok=True)
    for block in (path for folder in folders for path in sorted(folder.glob("*.v"))):
        (out / "rtl" / block.name).write_bytes(block.read_bytes())


def framed(text: str) -> str:
    """Put a Verilog file between the directives with which an undeclared name is an error.

    The first line, the licence, stays the first one.
    """
    licence, rest = text.split("\n", 1)
    return f"{licence}\n{_OPENING}{rest}{_CLOSING}"


def unframed(text: str) -> str:
    """Undo :func:`framed`; any other text is returned as it is."""
    licence, _, rest = text.partition("\n")
    if not (rest.startswith(_OPENING) and rest.endswith(_CLOSING)):
        return text
    return f"{licence}\n{rest.removeprefix(_OPENING).removesuffix(_CLOSING)}"


def frame_sources(out: Path) -> None:
    """Frame the Verilog of an export, ``out/rtl/*.v``, once it is all written."""
    for path in sorted((out / "rtl").glob("*.v")):
        path.write_text(framed(unframed(path.read_text("utf-8"))), "utf-8")


@dataclass(frozen=True)
class CorePorts:
    """The port widths of ``n3ic_core``, and its source files.

    Attributes:
        style: ``sequential`` or ``unrolled``; ``spatial`` for a sum-product network.
        n_in: number of input bits.
        n_classes: number of classes.
        class_w: width of a class index, in bits.
        score_w: width of a score in two's complement, in bits.
        trace_w: number of hidden bits of all layers, which a debug build shows.
        write_port: whether weights can be rewritten.
        wr_aw: address width of the write port, in bits.
        wr_dw: data width of the write port, in bits.
        sources: Verilog files, relative to the export directory.
        update: description of the executor that an update must match; empty without a write port.
        modules: number of executors that take turns.
        shunts: whether a result says that its margin is below the model's threshold.
    """

    style: str
    n_in: int
    n_classes: int
    class_w: int
    score_w: int
    trace_w: int
    write_port: bool
    wr_aw: int
    wr_dw: int
    sources: tuple[str, ...]
    update: str = ""
    modules: int = 1
    shunts: bool = False

    def save(self, directory: Path) -> None:
        """Write the description into an export directory."""
        data = asdict(self)
        if not self.shunts:
            del data["shunts"]
        text = json.dumps(data, indent=2) + "\n"
        (directory / FILE).write_text(text, encoding="utf-8")

    @classmethod
    def load(cls, directory: Path, model: Classifier | None = None) -> CorePorts:
        """Read the description from an export directory.

        Args:
            directory: the export directory.
            model: the model that the core should compute; None to skip the check of its shape.

        Raises:
            VerifyError: the file is missing or damaged, or describes a core of another shape.
        """
        path = directory / FILE
        try:
            core = from_plain(cls, json.loads(path.read_text(encoding="utf-8")), strict=True)
            core._check()
        except (OSError, ValueError, RecursionError) as error:
            raise VerifyError(f"{path}: not the description of a core ({error})") from error
        shape = (core.n_in, core.n_classes)
        if model is not None and shape != (model.input.n_bits, len(model.classes)):
            raise VerifyError(
                f"{path}: a core of {core.n_in} inputs and {core.n_classes} classes, "
                f"the model is {model.shape_text}"
            )
        return core

    def _check(self) -> None:
        """Check values, because they reach command lines of tools."""
        for field in fields(self):
            value = getattr(self, field.name)
            if type(value) is int and not 0 <= value <= MAX_WIDTH:
                raise ValueError(f"{field.name} is {value!r}, not a number up to {MAX_WIDTH}")
        if self.style not in ("sequential", "unrolled", "spatial"):
            raise ValueError(f"style is {self.style!r}")
        for source in self.sources:
            if not SOURCE.fullmatch(source):
                raise ValueError(f"{source!r} is not a Verilog file of the export")
