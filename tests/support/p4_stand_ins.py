# SPDX-License-Identifier: Apache-2.0
"""The stand-ins for p4c and bmv2, as tools on the PATH."""

import os
import shutil
import sys
from pathlib import Path

import pytest

from n3ic.errors import VerifyError
from n3ic.exporters.p4.run import bmv2

STAND_INS = Path(__file__).parents[1] / "exporters" / "p4" / "stand_ins"
TOOLS = {
    "p4c-bm2-ss": "p4c.py",
    "simple_switch": "switch.py",
    "simple_switch_CLI": "cli.py",
}


def can_make_namespaces() -> bool:
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return False
    try:
        with bmv2.network_namespace():
            return True
    except VerifyError:
        return False


needs_namespaces = pytest.mark.skipif(
    not can_make_namespaces(), reason="needs root, ip (iproute2) and network namespaces with veth"
)


@pytest.fixture
def stand_ins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, script in TOOLS.items():
        tool = folder / name
        tool.write_text(f"#!{sys.executable}\n" + (STAND_INS / script).read_text())
        tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder
