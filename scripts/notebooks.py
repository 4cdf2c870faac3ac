#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Run the notebooks, each from a clean kernel in an empty folder, and keep what they show.

``scripts/notebooks.py`` runs all of them, ``scripts/notebooks.py 5-export-and-prove`` one. The
files depend only on the cells and on what they compute: they hold no times and no names of folders,
and cells are numbered from the first. A cell with the tag ``varies`` shows something that differs
from run to run (measured times, versions of compilers); its text is kept but never compared.
"""

from __future__ import annotations

import argparse
import base64
import os
import platform
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from io import BytesIO
from itertools import zip_longest
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode
from PIL import Image
from traitlets.config import Config

FOLDER = Path(__file__).resolve().parent.parent / "notebooks"
SECONDS = 600  # the longest that a cell may take
VARIES = "varies"
_TEXTS = ("text/plain", "text/html", "text/markdown")
_LIBRARIES = ("numpy", "scikit-learn", "torch")
_PATH = re.compile(r"(?:/[\w.+-]+)*/(?:tmp|T|pytest)[\w.+-]*(?:/[\w.+-]+)*")
_ADDRESS = re.compile(r"\b0x[0-9a-f]{6,}\b")


def execute(path: Path, folder: Path, kernel: str = "python3") -> NotebookNode:
    """Run a notebook from a clean kernel.

    Args:
        path: the notebook.
        folder: an empty folder, where its cells write.
        kernel: name of the kernel, as Jupyter knows it.

    Returns:
        The notebook with the new outputs of its cells.

    Raises:
        CellExecutionError: A cell fails.
    """
    notebook = nbformat.read(path, as_version=4)
    # By sockets in a folder: a port of TCP that is free now may be another process's by the time
    # that the kernel takes it. Their names must be short.
    with tempfile.TemporaryDirectory(prefix="n3ic-kernel-") as sockets:
        client = NotebookClient(
            notebook,
            config=Config(KernelManager={"transport": "ipc", "ip": f"{sockets}/kernel"}),
            kernel_name=kernel,
            timeout=SECONDS,
            startup_timeout=SECONDS,  # the kernel starts slowly on a busy machine
            record_timing=False,
            coalesce_streams=True,
            resources={"metadata": {"path": str(folder)}},
            extra_arguments=["--log-level=ERROR"],
        )
        # One thread, as in the tests: float sums depend on the order of their terms.
        client.execute(env=os.environ | {"OMP_NUM_THREADS": "1"})
    return tidy(notebook)


def tidy(notebook: NotebookNode) -> NotebookNode:
    """Remove from the notebook, in place, what differs from run to run."""
    notebook.metadata = NotebookNode(
        computed_on=computed_on(),
        kernelspec={"display_name": "Python 3", "language": "python", "name": "python3"},
        language_info={"name": "python"},
    )
    count = 0
    for i, cell in enumerate(notebook.cells):
        cell.id = f"cell-{i:02}"
        tags = cell.metadata.get("tags")
        cell.metadata = NotebookNode(tags=tags) if tags else NotebookNode()
        if cell.cell_type != "code":
            continue
        count += 1
        cell.execution_count = count
        for output in cell.outputs:
            if "execution_count" in output:
                output.execution_count = count
            if "metadata" in output:
                output.metadata = NotebookNode()
            if "image/png" in output.get("data", ()):
                output.data["image/png"] = _with_palette(output.data["image/png"])
    return notebook


def _with_palette(png: str) -> str:
    """The same picture in 256 colours, which takes a third of the bytes."""
    out = BytesIO()
    picture = Image.open(BytesIO(base64.b64decode(png))).convert("RGB")
    picture.quantize(256, dither=Image.Dither.NONE).save(out, "PNG", optimize=True)
    return base64.b64encode(out.getvalue()).decode("ascii")


def computed_on() -> dict[str, str]:
    """What floating-point results depend on: the processor's instructions and the libraries."""
    import torch

    vendor = platform.processor()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        match = re.search(r"^vendor_id\s*:\s*(\S+)", cpuinfo.read_text(), re.MULTILINE)
        vendor = match[1] if match else vendor
    processor = (platform.machine(), vendor, torch.backends.cpu.get_cpu_capability())
    return {"processor": " ".join(processor)} | {name: version(name) for name in _LIBRARIES}


def differences(written: NotebookNode, executed: NotebookNode, *, texts: bool = True) -> list[str]:
    """Describe what a notebook shows differently, one line per cell; empty if nothing differs.

    Args:
        written: the notebook as it was written.
        executed: the notebook as it ran.
        texts: whether to compare texts too, or only the number and the types of the outputs.
    """
    out = []
    for before, now in zip_longest(written.cells, executed.cells):
        old, new = (list(_outputs(cell, texts)) if cell else None for cell in (before, now))
        if old != new:
            name = (before or now).id
            out.append(f"{name}:\n--- kept\n{_lines(old)}\n--- now\n{_lines(new)}")
    return out


def _outputs(cell: NotebookNode, texts: bool) -> Iterator[tuple[str, str]]:
    """The type and the text of each output of a cell; pictures have no text."""
    compared = texts and VARIES not in cell.metadata.get("tags", ())
    for output in cell.get("outputs", ()):
        if output.output_type == "stream":
            yield output.name, _stable(output.text) if compared else ""
        elif output.output_type == "error":
            yield "error", output.ename
        else:
            for kind, data in sorted(output.data.items()):
                yield kind, _stable(data) if compared and kind in _TEXTS else ""


def _stable(text: str) -> str:
    return _ADDRESS.sub("ADDRESS", _PATH.sub("PATH", text)).strip()


def _lines(outputs: Sequence[tuple[str, str]] | None) -> str:
    return "\n".join(f"{kind}: {text}" for kind, text in outputs or ())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the notebooks that are named, or all."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    available = sorted(path.stem for path in FOLDER.glob("*.ipynb"))
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(available))
    names = parser.parse_args(arguments).names or available
    if unknown := sorted(set(names) - set(available)):
        parser.error(f"no notebook {', '.join(unknown)}; expected one of {', '.join(available)}")
    for name in names:
        path = FOLDER / f"{name}.ipynb"
        with tempfile.TemporaryDirectory(prefix="n3ic-notebook-") as folder:
            notebook = execute(path, Path(folder))
        nbformat.write(notebook, path)
        print(f"{path.name}: {path.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
