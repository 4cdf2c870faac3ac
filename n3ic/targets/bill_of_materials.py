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
    if MODEL not in names:
        raise ExportError(f"{directory} holds no {MODEL}, expected the model of the export")
    note = {"target": target, "options": dict(options), "model": model.digest}
    number = model.digest[:16]
    title = f"{target} export of model {number}"
    _write(directory, target, title, number, note, tool, libraries, names, {})


def write_card_bill_of_materials(
    directory: Path,
    target: str,
    card: str,
    models: Mapping[str, str],
    tool: str,
    libraries: Mapping[str, str],
    names: list[str],
) -> None:
    """Write ``sbom.spdx.json`` into the export of a card, whose models are outside of it.

    Args:
        directory: the export directory.
        target: the target's name.
        card: the card's name.
        models: SHA-256 digest of each task's model, by the task's name.
        tool: name and version of what writes the export, such as ``n3ic 0.1``.
        libraries: see :func:`library_versions`.
        names: paths of the directory's files.
    """
    note = {"target": target, "card": card, "models": dict(models)}
    number = hashlib.sha256(json.dumps(note, sort_keys=True).encode()).hexdigest()[:16]
    title = f"{target} export of card {card}"
    _write(directory, f"{target}-card", title, number, note, tool, libraries, names, models)


def _write(
    directory: Path,
    kind: str,
    title: str,
    number: str,
    note: Mapping[str, Any],
    tool: str,
    libraries: Mapping[str, str],
    names: list[str],
    models: Mapping[str, str],
) -> None:
    """Write the document: the export, its files, its models and the tools that made it."""
    names = sorted(name for name in names if name not in _LEFT_OUT)
    files = [_file(directory, name, index) for index, name in enumerate(names)]
    versions = {**libraries, _SDK: tool.removeprefix(f"{_SDK} ")}
    tools = [_package(f"{_TOOL}{n}", n, v) for n, v in sorted(versions.items())]
    inputs = [_model(i, *pair) for i, pair in enumerate(sorted(models.items()))]
    sources = [package["SPDXID"] for package in inputs]
    if MODEL in names:
        sources.append(f"SPDXRef-File-{names.index(MODEL)}")
    document = {
        "spdxVersion": "SPDX-2.3",
        "SPDXID": _DOCUMENT,
        "dataLicense": "CC0-1.0",
        "name": title,
        "creationInfo": {"created": _CREATED, "creators": [f"Tool: {_SDK}-{versions[_SDK]}"]},
        "packages": [
            _export(f"n3ic-{kind}", number, files, json.dumps(note, sort_keys=True)),
            *inputs,
            *tools,
        ],
        "files": files,
        "relationships": [
            _relationship(_DOCUMENT, "DESCRIBES", _EXPORT),
            *(_relationship(_EXPORT, "GENERATED_FROM", source) for source in sources),
            *(_relationship(_EXPORT, "CONTAINS", file["SPDXID"]) for file in files),
            *(_relationship(package["SPDXID"], "BUILD_TOOL_OF", _EXPORT) for package in tools),
        ],
    }
    digest = hashlib.sha256(json_text(document).encode()).hexdigest()
    space = f"https://spdx.org/spdxdocs/n3ic-{kind}-{digest}"
    write_atomic(directory / SBOM, json_text({**document, "documentNamespace": space}))


def _model(index: int, task: str, digest: str) -> dict[str, Any]:
    """The model of a card's task, which the export was made from but does not hold."""
    sums = [{"algorithm": "SHA256", "checksumValue": digest}]
    return {**_package(f"SPDXRef-Model-{index}", task, digest[:16]), "checksums": sums}


def _file(directory: Path, name: str, index: int) -> dict[str, Any]:
    content = (directory / name).read_bytes()
    digest = hashlib.sha1(content, usedforsecurity=False).hexdigest()  # SPDX demands it
    licensed = f"SPDX-License-Identifier: {_LICENCE}".encode() in content[:_HEAD]
    return {
        "SPDXID": f"SPDXRef-File-{index}",
        "fileName": f"./{name}",
        "checksums": [
            {"algorithm": "SHA1", "checksumValue": digest},
            {"algorithm": "SHA256", "checksumValue": hashlib.sha256(content).hexdigest()},
        ],
        "licenseConcluded": "NOASSERTION",
        "licenseInfoInFiles": [_LICENCE if licensed else "NONE"],
        "copyrightText": "NOASSERTION",
    }


def _export(name: str, number: str, files: list[dict[str, Any]], note: str) -> dict[str, Any]:
    """The export as a package; its verification code is that of section 7.9."""
    sums = sorted(file["checksums"][0]["checksumValue"] for file in files)
    code = hashlib.sha1("".join(sums).encode(), usedforsecurity=False).hexdigest()
    return {
        **_package(_EXPORT, name, number),
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
