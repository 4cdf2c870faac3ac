# SPDX-License-Identifier: Apache-2.0
"""The ten minutes of the how-to, followed as written."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from n3ic.errors import N3icError
from n3ic.exporters.netfpga.tools import tap
from tests.support.command_line import n3ic

NAMESPACE, TAP = f"n3q{os.getpid()}", f"n3u{os.getpid()}"  # in place of the page's
# Verilator builds so small a model in a fifth of the time.
FEW_BITS = " --bits 64 --hidden 16"


@pytest.mark.exhaustive
@pytest.mark.usefixtures("small_baselines", "few_epochs")
def test_the_ten_minutes_as_written(repository, tmp_path):
    pytest.importorskip("torch")
    if shutil.which("ping") is None:
        pytest.skip("needs ping: apt install iputils-ping")
    try:
        tap.require()
        tap.ip("netns", "add", f"{NAMESPACE}-try")
        tap.ip("netns", "del", f"{NAMESPACE}-try")
    except N3icError as error:
        pytest.skip(str(error))
    page = (repository / "docs" / "how-to" / "front-end.md").read_text()
    (text,) = re.findall(r"^```sh\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    text = text.replace("train anomaly", f"train anomaly{FEW_BITS}")
    text = text.replace("--rows 3000", "--rows 600")  # each is sent twice to the simulated card
    assert "n3icask" in text and "n3ic0" in text
    *offline, text = re.split(r"^(?=n3ic simulate)", text, flags=re.MULTILINE)
    for line in "".join(offline).splitlines():
        n3ic(*shlex.split(line)[1:], cwd=tmp_path)  # in this process, which has imported it all
    assert (tmp_path / "card").is_dir()
    text = text.replace("n3icask", NAMESPACE).replace("n3ic0", TAP)
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "COLUMNS": "200",
    }
    try:
        completed = subprocess.run(
            ["bash", "-emx", "-c", text],
            cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=1800,
        )  # fmt: skip
    finally:
        gone = subprocess.run(["ip", "netns", "del", NAMESPACE], capture_output=True, text=True)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    assert gone.returncode != 0  # the page takes it away itself
    assert "3 received" in completed.stdout
    assert (
        completed.stdout.count("rows answered, each with the model's verdict, class, margin") == 2
    )
    assert "requests over UDP" in completed.stdout
    assert "requests over TCP" in completed.stdout
    log = (tmp_path / "card.log").read_text()
    assert re.search(r"requests [1-9]", log)
