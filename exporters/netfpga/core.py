"""The core: what the executors of both styles look like from outside."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from n3ic.errors import VerifyError
from n3ic.model.network import BinaryModel

FILE = "core.json"
SHARED_RTL = Path(__file__).resolve().parent / "rtl"  # of the executors and the packet path


def copy_blocks(out: Path, *folders: Path) -> None:
    """Copy the hand-written Verilog of folders into ``out/rtl``."""
    (out / "rtl").mkdir(exist_ok=True)
    for block in (path for folder in folders for path in sorted(folder.glob("*.v"))):
        (out / "rtl" / block.name).write_bytes(block.read_bytes())


@dataclass(frozen=True)
class Core:
    """Widths of the ports of ``n3ic_core``, and the files that it is made of.

    Attributes:
        style: ``sequential`` or ``unrolled``.
        n_in: input bits.
        n_classes: classes.
        class_w: bits of a class index.
        score_w: bits of a score, two's complement.
        trace_w: hidden bits of all layers, which a debug build shows.
        write_port: whether weights can be rewritten.
        wr_aw: address bits of the write port.
        wr_dw: data bits of the write port.
        sources: Verilog files, relative to the export directory.
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

    def save(self, directory: Path) -> None:
        """Write it into an export directory."""
        text = json.dumps(asdict(self), indent=2) + "\n"
        (directory / FILE).write_text(text, encoding="utf-8")

    @classmethod
    def load(cls, directory: Path, model: BinaryModel) -> Core:
        """Read it from an export directory.

        Raises:
            VerifyError: it is missing, damaged, or of another model's shape.
        """
        path = directory / FILE
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            core = cls(**{**data, "sources": tuple(data["sources"])})
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise VerifyError(f"{path}: not the description of a core ({error})") from error
        if (core.n_in, core.n_classes) != (model.shape[0], model.shape[-1]):
            raise VerifyError(
                f"{path}: a core of {core.n_in} inputs and {core.n_classes} classes, "
                f"the model is {model.shape_text}"
            )
        return core
