# SPDX-License-Identifier: Apache-2.0
"""The ten minutes of the how-to, followed as written."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from n3ic.errors import N3icError
from n3ic.exporters.xdp.libbpf import ARRAY, create_map

NAMESPACE, LINK = f"n3r{os.getpid()}", f"n3v{os.getpid()}"  # in place of the page's


@pytest.mark.slow
def test_the_ten_minutes_as_written(repository, tmp_path, clang):
    for tool in ("ip", "tcpreplay"):
        if shutil.which(tool) is None:
            pytest.skip(f"needs {tool}")
    try:
        create_map(ARRAY, "probe", 4, 4, 1).close()
    except N3icError as error:
        pytest.skip(str(error))
    page = (repository / "docs" / "how-to" / "xdp.md").read_text()
    blocks = re.findall(r"^```sh\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    assert "n3ictraffic" in page and "n3ic0" in page
    blocks = [b.replace("n3ictraffic", NAMESPACE).replace("n3ic0", LINK) for b in blocks]
    first, second, verdicts = blocks[:3]  # the others are of n3icd, in test_daemon_tools
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "N3IC_RUN": str(tmp_path / "run-folder"),
        "COLUMNS": "200",
    }
    try:
        said = subprocess.run(
            ["bash", "-ex", "-c", f"{first}\n{verdicts}\n{second}"],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=900,
        )
    finally:
        gone = subprocess.run(["ip", "netns", "del", NAMESPACE], capture_output=True, text=True)
    if "Operation not permitted" in said.stderr and "ip netns" in said.stderr:
        pytest.skip("needs the right to make network namespaces")
    assert said.returncode == 0, said.stdout + said.stderr
    assert gone.returncode != 0  # the page takes it away itself
    assert "native XDP, model in slot 0" in said.stdout
    assert "drift of slot 0" in said.stdout
    assert re.search(r"bittorrent, margin \d+", said.stdout)
    assert '"packets":' in said.stdout
    assert f"{LINK}: unloaded" in said.stdout
    assert not list((tmp_path / "run-folder" / "xdp").iterdir())
