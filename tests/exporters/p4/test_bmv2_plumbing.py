# SPDX-License-Identifier: Apache-2.0
"""The plumbing around p4c and bmv2: namespaces, interfaces, entries, packets and errors.

The stand-ins for both tools are this project's own interpreter, so equal scores here say nothing
of bmv2. That is what ``n3ic verify p4 --with-bmv2`` is for, and the last test, where the tools
are installed.
"""

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from n3ic.errors import MissingDependencyError, UsageError, VerifyError
from n3ic.exporters.p4.exporter import EXPORTER
from n3ic.exporters.p4.run import bmv2, packet_io
from n3ic.model.difference import first_difference
from n3ic.model.network import BinaryModel
from n3ic.model.random_models import random_model
from n3ic.model.verification_vectors import verification_vectors
from n3ic.targets.directory import export
from n3ic.targets.verification import verify_directory
from tests.support.p4_stand_ins import can_make_namespaces, needs_namespaces

ALL_TOOLS = ("p4c-bm2-ss", "simple_switch", "simple_switch_CLI")


def namespaces() -> list[str]:
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, timeout=600)
    return [
        line.split()[0]
        for line in listed.stdout.splitlines()
        if line.startswith(f"n3ic-{os.getpid()}-")
    ]


@pytest.fixture
def exported(tmp_path: Path) -> tuple[BinaryModel, Path]:
    model = random_model((20, 5, 3), np.random.default_rng(3))
    out = tmp_path / "out"
    out.mkdir()
    EXPORTER.write(model, EXPORTER.parse_options({}), out)
    return model, out


def options(**given: str) -> dict[str, object]:
    return dict(EXPORTER.parse_options({"with-bmv2": "yes", **given}, verify=True))


@pytest.mark.slow
@needs_namespaces
def test_packets_cross_the_stand_in_and_nothing_remains(stand_ins: Path, exported) -> None:
    model, out = exported
    before = namespaces()
    words = verification_vectors(model, 60)
    run = EXPORTER.run(out, model, options(), words)
    assert first_difference(model, run.inference, words) is None
    assert run.inference.hidden == ()
    assert run.executor == "simple_switch 0.0.0-stand-in, compiled by p4c-bm2-ss 0.0.0-stand-in"
    assert namespaces() == before


@pytest.mark.slow
@needs_namespaces
@pytest.mark.parametrize(
    ("port", "output"),
    [
        ("7", "scores"),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in (("0", "both"), ("1", "both"))),
    ],
)
def test_shunted_packets_leave_through_their_port(
    stand_ins: Path, at_the_threshold, tmp_path: Path, port: str, output: str
) -> None:
    model, words = at_the_threshold(3)
    out = tmp_path / "shunting"
    out.mkdir()
    given = {"shunt-port": port, "output": output}
    EXPORTER.write(model, EXPORTER.parse_options(given), out)
    run = EXPORTER.run(out, model, options(**given), words[::3])
    assert first_difference(model, run.inference, words[::3]) is None
    if port != "0":
        change = (out / "commands.txt").read_text()
        (out / "commands.txt").write_text(change.replace(f"shunt_to 0x00{port}", "shunt_to 0x000"))
        with pytest.raises(VerifyError, match=f"leaves through port 0, {port} expected"):
            EXPORTER.run(out, model, options(**given), words[::3])


@pytest.mark.slow
@needs_namespaces
def test_a_switch_without_nanomsg_is_not_given_its_option(stand_ins, exported, monkeypatch) -> None:
    model, out = exported
    monkeypatch.setenv("N3IC_SPOIL", "bare")
    words = verification_vectors(model, 5)
    run = EXPORTER.run(out, model, options(), words)
    assert first_difference(model, run.inference, words) is None


@pytest.mark.slow
@needs_namespaces
def test_a_switch_that_computes_something_else_is_found(stand_ins, exported, monkeypatch) -> None:
    model, out = exported
    monkeypatch.setenv("N3IC_SPOIL", "flip")
    words = verification_vectors(model, 5)
    run = EXPORTER.run(out, model, options(), words)
    assert "class" in str(first_difference(model, run.inference, words))


@pytest.mark.slow
@needs_namespaces
def test_a_switch_that_changes_the_packet_is_found(stand_ins, exported, monkeypatch) -> None:
    model, out = exported
    monkeypatch.setenv("N3IC_SPOIL", "tail")
    with pytest.raises(VerifyError, match="vector 0: bytes of the packet differ"):
        EXPORTER.run(out, model, options(), verification_vectors(model, 5))


@pytest.mark.slow
@needs_namespaces
def test_lost_packets_name_the_vector(stand_ins, exported, monkeypatch) -> None:
    model, out = exported
    before = namespaces()
    monkeypatch.setenv("N3IC_SPOIL", "deaf")
    monkeypatch.setattr(bmv2, "PACKET_SECONDS", 0.3)
    with pytest.raises(VerifyError, match=r"vector 0: no packet came back within 0\.3 s"):
        EXPORTER.run(out, model, options(), verification_vectors(model, 5))
    assert namespaces() == before


@pytest.mark.slow
@needs_namespaces
def test_a_switch_that_ends_is_reported_with_its_log(stand_ins, exported, monkeypatch) -> None:
    model, out = exported
    monkeypatch.setenv("N3IC_SPOIL", "crash")
    with pytest.raises(VerifyError, match="simple_switch ended with 3: cannot open the interface"):
        EXPORTER.run(out, model, options(), verification_vectors(model, 5))


@pytest.mark.slow
@needs_namespaces
def test_entries_are_read_back_from_the_switch(stand_ins, exported, monkeypatch) -> None:
    model, out = exported
    program = EXPORTER.program(out, model, EXPORTER.parse_options({}))

    def load() -> int:
        with bmv2.network_namespace() as namespace:
            compiled = bmv2.compile_program(program.source, out)
            with bmv2.running_switch(namespace, compiled, out / "log") as process:
                return bmv2.load_entries(namespace, program, process, out / "log")

    # a table of weights and one of limits a layer, and the two readings of the model
    assert load() == 2 * 2 + 2
    monkeypatch.setenv("N3IC_SPOIL", "ignore")
    with pytest.raises(VerifyError, match=r"6 of 6 differ; table_dump model: expected set_model"):
        load()


def test_what_p4c_says_is_in_the_error(stand_ins: Path, tmp_path: Path) -> None:
    with pytest.raises(VerifyError, match="p4c-bm2-ss refuses the program: error: line 1"):
        bmv2.compile_program("control", tmp_path)


def test_a_missing_tool_is_named(exported, monkeypatch, tmp_path: Path) -> None:
    model, out = exported
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    with pytest.raises(MissingDependencyError, match="needs p4c-bm2-ss: install p4c"):
        EXPORTER.run(out, model, options(), verification_vectors(model, 3))


def test_root_is_asked_for(stand_ins, monkeypatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    with pytest.raises(UsageError, match="run it as root"):
        bmv2.require()


def test_packets_survive_their_framing() -> None:
    packets = [b"", b"a", bytes(1500)]
    assert list(packet_io.split(packet_io.join(packets))) == packets


@pytest.mark.skipif(
    not all(shutil.which(tool) for tool in ALL_TOOLS) or not can_make_namespaces(),
    reason="needs root, p4c-bm2-ss, simple_switch and simple_switch_CLI",
)
@pytest.mark.slow
def test_the_real_switch_computes_the_reference_scores(tmp_path: Path) -> None:
    model = random_model((40, 6, 3), np.random.default_rng(3), density=0.7)
    export(model, "p4", tmp_path / "out")
    result = verify_directory(tmp_path / "out", vectors=100, options={"with-bmv2": True})
    assert result.ok, str(result)
    assert result.executor.startswith("simple_switch")
