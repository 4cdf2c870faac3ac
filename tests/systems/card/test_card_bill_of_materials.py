# SPDX-License-Identifier: Apache-2.0
"""A card's export says what it consists of, what it was made from and what made it (SPDX)."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from n3ic.errors import VerifyError
from n3ic.systems.card import export as card_export
from n3ic.systems.card.export import export_card
from n3ic.systems.card.models import network_of
from tests.support import software_cards as cards

pytest.importorskip("scipy", reason="needs n3ic[card]")


@pytest.fixture(name="exported")
def exported_fixture(tmp_path):
    cards.models(tmp_path)
    plan = cards.plan(tmp_path, cards.text("host"))
    return plan, export_card(plan, tmp_path / "out", verify=False).directory


def test_the_document_names_files_models_and_tools(exported):
    plan, path = exported
    document = json.loads((path / "sbom.spdx.json").read_text())
    listed = {
        of["fileName"].removeprefix("./"): of["checksums"][1]["checksumValue"]
        for of in document["files"]
    }
    manifest = json.loads((path / "manifest.json").read_text())
    assert listed == {n: d for n, d in manifest["files"].items() if n != "sbom.spdx.json"}
    packages = {of["name"]: of for of in document["packages"]}
    note = json.loads(packages["n3ic-host-card"]["comment"])
    assert note["card"] == plan.card.name and len(note["models"]) > 1
    for task, digest in note["models"].items():
        assert digest == network_of(plan.card, task).digest
        assert packages[task]["checksums"][0]["checksumValue"] == digest
    assert packages["numpy"]["versionInfo"] == np.__version__
    made_from = [r for r in document["relationships"] if r["relationshipType"] == "GENERATED_FROM"]
    assert len(made_from) == len(note["models"])
    parsing = pytest.importorskip("spdx_tools.spdx.parser.parse_anything")
    validation = pytest.importorskip("spdx_tools.spdx.validation.document_validator")
    read = parsing.parse_file(str(path / "sbom.spdx.json"))
    assert validation.validate_full_spdx_document(read) == []


def test_it_is_compared_beside_other_libraries_than_wrote_it(exported, monkeypatch):
    plan, path = exported
    compared: list[Path] = []
    target = card_export.card_target("host")
    monkeypatch.setattr(
        type(target), "verify_card", lambda self, plan, of, packets: compared.append(of)
    )
    monkeypatch.setattr(card_export, "library_versions", lambda: {"numpy": "9.9"})
    card_export.verify_card(plan, path, 1)
    assert compared
    text = (path / "sbom.spdx.json").read_text()
    digest = json.loads(text)["files"][0]["checksums"][1]["checksumValue"]
    (path / "sbom.spdx.json").write_text(text.replace(digest, 64 * "0"))
    with pytest.raises(VerifyError, match=r"^sbom\.spdx\.json: "):
        card_export.verify_card(plan, path, 1)
