# SPDX-License-Identifier: Apache-2.0
"""``sbom.spdx.json``: what an export consists of and what made it, as SPDX 2.3.

Source: ISO/IEC 5962 and https://spdx.github.io/spdx-spec/v2.3/.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from n3ic.errors import ExportError
from n3ic.model.classifier import Classifier
from n3ic.options import OptionValue
from n3ic.targets.manifest import MANIFEST, MAX_JSON_BYTES, MODEL, VERIFICATION
from n3ic.util.files import read_regular, write_atomic
from n3ic.util.json_text import json_text

SBOM = "sbom.spdx.json"
_LEFT_OUT = (MANIFEST, SBOM, VERIFICATION)  # each has digests of other files, or changes later
_CREATED = "1970-01-01T00:00:00Z"  # of every export: the same model gives the same bytes
_LICENCE = "Apache-2.0"
_HEAD = 400  # bytes of a file that may say its licence
_SDK = "n3ic"
_EXPORT, _DOCUMENT, _TOOL = "SPDXRef-Export", "SPDXRef-DOCUMENT", "SPDXRef-Tool-"


def library_versions() -> dict[str, str]:
    """Versions of Python and of the libraries that an export's bytes depend on, by name."""
    libraries = {name: version(name) for name in ("jinja2", "numpy")}
    return {**libraries, "python": platform.python_version()}


def claimed_versions(directory: Path) -> dict[str, str]:
    """The versions that an export's own document claims; this machine's if it is damaged.

    An export may be verified beside other libraries than wrote it, and must still compare equal.
    """
    own = library_versions()
    try:
        data = json.loads(read_regular(directory / SBOM, MAX_JSON_BYTES))
        packages = [p for p in data["packages"] if p["SPDXID"].startswith(_TOOL)]
        claims = {p["name"]: p["versionInfo"] for p in packages if p["name"] != _SDK}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return own
    return claims if all(isinstance(text, str) for text in claims.values()) else own


def write_bill_of_materials(
    directory: Path,
    model: Classifier,
    target: str,
    options: Mapping[str, OptionValue],
    tool: str,
    libraries: Mapping[str, str],
    names: list[str],
) -> None:
    """Write ``sbom.spdx.json`` into an export directory whose other files are written.

    Args:
        directory: the export directory.
        model: the trained model, the export's input.
        target: the target's name.
        options: the options of the export that apply, by name.
        tool: name and version of what writes the export, such as ``n3ic 0.1``.
        libraries: see :func:`library_versions`.
        names: paths of the directory's files.

    Raises:
        ExportError: the directory holds no model file.
    """
    names = sorted(name for name in names if name not in _LEFT_OUT)
    if MODEL not in names:
        raise ExportError(f"{directory} holds no {MODEL}, expected the model of the export")
    files = [_file(directory, name, index) for index, name in enumerate(names)]
    number = tool.removeprefix(f"{_SDK} ")
    versions = {**libraries, _SDK: number}
    tools = [_package(f"{_TOOL}{n}", n, v) for n, v in sorted(versions.items())]
    note = {"target": target, "options": dict(options), "model": model.digest}
    document = {
        "spdxVersion": "SPDX-2.3",
        "SPDXID": _DOCUMENT,
        "dataLicense": "CC0-1.0",
        "name": f"{target} export of model {model.digest[:16]}",
        "creationInfo": {"created": _CREATED, "creators": [f"Tool: {_SDK}-{number}"]},
        "packages": [_export(model, target, files, json.dumps(note, sort_keys=True)), *tools],
        "files": files,
        "relationships": [
            _relationship(_DOCUMENT, "DESCRIBES", _EXPORT),
            _relationship(_EXPORT, "GENERATED_FROM", f"SPDXRef-File-{names.index(MODEL)}"),
            *(_relationship(_EXPORT, "CONTAINS", file["SPDXID"]) for file in files),
            *(_relationship(package["SPDXID"], "BUILD_TOOL_OF", _EXPORT) for package in tools),
        ],
    }
    digest = hashlib.sha256(json_text(document).encode()).hexdigest()
    space = f"https://spdx.org/spdxdocs/n3ic-{target}-{digest}"
    write_atomic(directory / SBOM, json_text({**document, "documentNamespace": space}))


def _file(directory: Path, name: str, index: int) -> dict[str, Any]:
    content = (directory / name).read_bytes()
    digest = hashlib.sha1(content, usedforsecurity=False).hexdigest()  # SPDX demands it
    said = f"SPDX-License-Identifier: {_LICENCE}".encode() in content[:_HEAD]
    return {
        "SPDXID": f"SPDXRef-File-{index}",
        "fileName": f"./{name}",
        "checksums": [
            {"algorithm": "SHA1", "checksumValue": digest},
            {"algorithm": "SHA256", "checksumValue": hashlib.sha256(content).hexdigest()},
        ],
        "licenseConcluded": "NOASSERTION",
        "licenseInfoInFiles": [_LICENCE if said else "NONE"],
        "copyrightText": "NOASSERTION",
    }


def _export(
    model: Classifier, target: str, files: list[dict[str, Any]], note: str
) -> dict[str, Any]:
    """The export as a package; its verification code is that of section 7.9."""
    sums = sorted(file["checksums"][0]["checksumValue"] for file in files)
    code = hashlib.sha1("".join(sums).encode(), usedforsecurity=False).hexdigest()
    return {
        **_package(_EXPORT, f"n3ic-{target}", model.digest[:16]),
        "filesAnalyzed": True,
        "licenseInfoFromFiles": sorted({file["licenseInfoInFiles"][0] for file in files}),
        "packageVerificationCode": {
            "packageVerificationCodeValue": code,
            "packageVerificationCodeExcludedFiles": [f"./{name}" for name in _LEFT_OUT],
        },
        "comment": note,
    }


def _package(identifier: str, name: str, number: str) -> dict[str, Any]:
    return {
        "SPDXID": identifier,
        "name": name,
        "versionInfo": number,
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": "NOASSERTION",
        "copyrightText": "NOASSERTION",
    }


def _relationship(element: str, kind: str, other: str) -> dict[str, str]:
    return {"spdxElementId": element, "relationshipType": kind, "relatedSpdxElement": other}
