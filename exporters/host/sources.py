# SPDX-License-Identifier: Apache-2.0
"""Renders the files of an export: C sources, Makefile and README."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from n3ic.exporters.host.training_distribution import domain_values
from n3ic.kernel import build
from n3ic.meter.source import meter_source
from n3ic.model.classifier import Classifier
from n3ic.model.inputs import InputSpec
from n3ic.model.meter_spec import MeterSpec
from n3ic.model.network import BinaryModel
from n3ic.targets.identifiers import c_string
from n3ic.util.templates import render

TEMPLATES = Path(__file__).resolve().parent / "templates"
FLOW_STEMS = ("domain", "lines", "capture", "live")  # parts of flow-exec, each with its header
_BYTES_A_LINE = 16
_NUMBERS_A_LINE = 12


def kernel_source() -> str:
    """Return the text of the kernel's C file, without weights."""
    return build.SOURCE.read_text(encoding="utf-8")


def weights_section(model: BinaryModel, weights: bytes) -> str:
    """Return the C that holds the blob's bytes and defines ``bnn_init``."""
    rows = [
        ", ".join(f"0x{byte:02x}" for byte in weights[i : i + _BYTES_A_LINE])
        for i in range(0, len(weights), _BYTES_A_LINE)
    ]
    values = {
        "shape": model.shape_text,
        "digest": model.digest,
        "size": len(weights),
        "rows": rows,
    }
    return render(TEMPLATES, "bnn_weights.c.j2", values)


def compiled_in(templates: Path, constants: str, values: Mapping[str, Any], *code: str) -> str:
    """Return the C of a compiled-in network: its constants, then the code that reads them.

    Args:
        templates: folder of the template and the C files.
        constants: file name of the template for the constants.
        values: values for the templates; the filter ``lines`` of the one for the constants writes
            numbers as lines of C.
        code: file names of the C that reads the constants, templates as well.
    """
    text = render(templates, constants, values, {"lines": _lines})
    shared = (TEMPLATES / "compiled_in.c").read_text("utf-8")
    return text + shared + "".join(render(templates, name, values) for name in code)


def _lines(numbers: Sequence[Any]) -> str:
    """Write numbers as lines of C."""
    rows = (numbers[i : i + _NUMBERS_A_LINE] for i in range(0, len(numbers), _NUMBERS_A_LINE))
    return "\n".join(f"    {', '.join(map(str, row))}," for row in rows)


def copy_sources(model: Classifier, out: Path) -> None:
    """Write the programs and their build files; ``flow-exec`` only if the model has a meter."""
    shutil.copyfile(build.HEADER, out / "bnn.h")
    for name in ("bnn_exec.c", "CMakeLists.txt", "n3ic.pc.in"):
        shutil.copyfile(TEMPLATES / name, out / name)
    sources = model.meter is not None and model.meter.sources.features
    values = {"metered": model.meter is not None, "sources": sources}
    makefile = render(TEMPLATES, "Makefile.j2", values)
    (out / "Makefile").write_text(makefile, "utf-8")
    if model.meter is not None:
        for name, text in flow_sources(model.meter, model.input).items():
            (out / name).write_text(text, "utf-8")


def flow_sources(spec: MeterSpec, own: InputSpec) -> dict[str, str]:
    """Render the sources of ``flow-exec`` by file name: the meter and the packet readers.

    Args:
        spec: the meter.
        own: the network's input spec, with its rates and ranges of the training rows.
    """
    names = {
        "registers": [c_string(register.name) for register in spec.registers],
        "features": [c_string(name) for name in spec.feature_names],
    }
    same = ("flow_exec.c", *(f"{stem}.{kind}" for stem in FLOW_STEMS for kind in "ch"))
    return {
        **meter_source(spec),
        **{name: (TEMPLATES / "flow" / name).read_text("utf-8") for name in same},
        "flow_names.h": render(TEMPLATES / "flow", "flow_names.h.j2", names),
        "domain_rows.h": render(TEMPLATES / "flow", "domain_rows.h.j2", domain_values(own)),
    }


def readme(templates: Path, model: Classifier, **values: Any) -> str:
    """Render the README of an export directory from a template."""
    names = {
        "shape": model.shape_text,
        "features": model.input.features,
        "classes": model.classes,
        "n_words": model.input.n_words,
        "shunt": model.shunt,
        "meter": str(model.meter) if model.meter else "",
    }
    return render(templates, "README.md.j2", names | values)
