# SPDX-License-Identifier: Apache-2.0
"""One program for three architectures: the same scores, ports and drops; what is not theirs."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from n3ic.errors import UsageError
from n3ic.exporters.p4.exporter import EXPORTER as P4
from n3ic.exporters.p4.exporter import P4Exporter
from n3ic.exporters.p4.interpreter import P4Error, Switch
from n3ic.exporters.p4.waiting import waiting_tables
from n3ic.families.tables.random_models import random_tables
from n3ic.families.trees.random_models import random_trees
from n3ic.model.classifier import Classifier
from n3ic.model.random_models import random_model
from n3ic.targets.directory import export
from n3ic.targets.verification import verify_directory

PORTABLE = ("psa", "pna")
START = "state start {\n        transition"  # of a parser that extracts nothing
IDLE = "output_metadata_t ostd) {\n    apply {"  # of a control without tables


def model_of(name: str) -> Classifier:
    rng = np.random.default_rng(1)
    if name == "masked":
        return random_model((70, 40, 3), rng, density=0.5).with_shunt(2)
    return random_tables(rng) if name == "tables" else random_trees(rng)


def written(out: Path, architecture: str, **given: str) -> tuple[P4Exporter, dict[str, Any]]:
    """Write the masked network."""
    model = model_of("masked")
    options = P4.parse_options({"architecture": architecture, **given}, verify=True)
    target = P4.for_options(options)
    assert isinstance(target, P4Exporter)
    out.mkdir(exist_ok=True)
    target.write(model, options, out)
    return target, dict(options)


@pytest.mark.first_case
@pytest.mark.parametrize("architecture", PORTABLE)
@pytest.mark.parametrize("name", ["masked", "tables", "trees"])
def test_an_export_is_verified(tmp_path: Path, name: str, architecture: str) -> None:
    model = model_of(name)
    export(model, "p4", tmp_path / "out", options={"architecture": architecture})
    result = verify_directory(tmp_path / "out", vectors=40)
    assert result.ok, str(result)
    assert len(result.decoded) == 5
    assert f"interpreter, {architecture.upper()}" in result.executor
    report = (tmp_path / "out" / "report.md").read_text()
    assert "No compiler for that architecture took it here (not compiled)" in report
    assert f"on a device with {architecture.upper()}\n" in report.splitlines(keepends=True)[0]
    assert "bmv2 shows" not in report
    assert "**It was not\ncompiled here.**" in (tmp_path / "out" / "README.md").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("architecture", PORTABLE)
@pytest.mark.parametrize("name", ["masked", "tables", "trees"])
def test_p4c_compiles_it(tmp_path: Path, name: str, architecture: str) -> None:
    if shutil.which(f"p4c-bm2-{architecture}") is None:
        pytest.skip(f"needs p4c-bm2-{architecture}")
    options = {"architecture": architecture, "shunt-port": "70" if name == "masked" else "-1"}
    export(model_of(name), "p4", tmp_path / "out", options=options)
    program, compiled = tmp_path / "out" / "n3ic.p4", tmp_path / "n3ic.json"
    command = [f"p4c-bm2-{architecture}", "-o", str(compiled), str(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr
    assert compiled.stat().st_size > 10_000


@pytest.mark.parametrize("architecture", PORTABLE)
def test_controls_are_those_of_v1model(tmp_path: Path, architecture: str) -> None:
    """Beside parser, deparser and forwarding, no line differs."""
    texts = {}
    for each in ("v1model", architecture):
        written(tmp_path / each, each)
        texts[each] = (tmp_path / each / "n3ic.p4").read_text()
    block = r"\n// Copies the input bits\..*?(?=\ncontrol N3icIngress)"
    controls = {each: re.findall(block, text, re.DOTALL) for each, text in texts.items()}
    assert controls["v1model"] == controls[architecture]
    assert len(controls["v1model"]) == 1 and "control ArgMax" in controls["v1model"][0]
    assert waiting_tables(texts["v1model"]) == waiting_tables(texts[architecture])
    for name in ("commands.txt", "p4runtime.json", "bfrt.py"):
        assert (tmp_path / "v1model" / name).read_text() == (
            tmp_path / architecture / name
        ).read_text()


@pytest.mark.parametrize("architecture", PORTABLE)
def test_packets_are_forwarded_shunted_and_dropped(tmp_path: Path, architecture: str) -> None:
    target, options = written(tmp_path, architecture, **{"shunt-port": "9"})
    model = model_of("masked")
    program = target.program(tmp_path, model, options)
    switch = program.switch()
    words = np.random.default_rng(0).integers(0, 1 << 32, (40, 3), dtype=np.uint32)
    words[:, 2] &= (1 << 6) - 1
    ports = []
    for request, verdict in zip(program.requests(words), model.infer(words).verdicts, strict=True):
        ports.append(switch.process(request, 1).port)
        assert ports[-1] == program.port(int(verdict))
    assert set(ports) == {0, 9}
    other = bytes.fromhex("020000000009") + bytes(6) + b"\x08\x06" + bytes(50)
    assert [switch.process(other, port).port for port in (0, 1, 2, 3)] == [1, 0, 3, 2]
    for port, most in ((63, 63), (70000, 70000 if architecture == "psa" else None)):
        # PNA's are those that the program lists, PSA's are any of 32 bits.
        switch.load(f"table_clear forward\ntable_add forward to_port 02:00:00:00:00:09 => {port}")
        assert switch.process(other, 1).port == most
    switch.load("table_clear forward\ntable_add forward drop_packet 02:00:00:00:00:09 =>")
    assert switch.process(other, 1).port is None


def test_bmv2_is_not_asked_for_another_architecture(tmp_path: Path) -> None:
    target, options = written(tmp_path, "psa", **{"with-bmv2": "true"})
    with pytest.raises(UsageError, match="runs programs for v1model, this one is for psa"):
        target.run(tmp_path, model_of("masked"), options, np.zeros((1, 3), dtype=np.uint32))


@pytest.mark.parametrize(
    ("architecture", "old", "new", "wrong"),
    [
        ("psa", "ingress_drop(ostd);", "drop_packet();", "PSA has no drop_packet"),
        ("psa", "ingress_drop(ostd);", "ingress_drop(meta);", "not called as PSA has it"),
        ("psa", "ingress_drop(ostd);", "mark_to_drop(ostd);", "mark_to_drop.* is not supported"),
        ("psa", "send_to_port(ostd, ", "send_to_port(", "not called as PSA has it"),
        ("psa", "    ingress_pipeline,\n", "    N3icParser(),\n", "PSA_Switch takes 8 blocks"),
        ("psa", "PacketReplicationEngine()", "N3icEgress()", "takes PacketReplicationEngine"),
        ("psa", ") main;", ") other;", "needs one package named main"),
        ("psa", f"{START} accept;", f"{START} reject;", "egress parser must do nothing"),
        ("psa", f"{IDLE} }}", f"{IDLE} meta.model = 0; }}", "the egress must do nothing"),
        ("psa", "in psa_egress_input_", "in psa_ingress_input_", "is struct psa_egress_input"),
        ("pna", " drop_packet();", " ingress_drop(ostd);", "PNA has no ingress_drop"),
        ("pna", "send_to_port(", "send_to_port(ostd, ", "not called as PNA has it"),
        ("pna", f"{IDLE} }}", f"{IDLE} meta.model = 0; }}", "the pre-control must do nothing"),
        ("pna", "key = { meta.egress_port:", "key = { ostd.$port:", "syntax error"),
        ("pna", "#include <pna.p4>", "#include <psa.p4>", "#include <pna.p4> is missing"),
    ],
)
def test_what_an_architecture_has_not_is_refused(
    tmp_path: Path, architecture: str, old: str, new: str, wrong: str
) -> None:
    written(tmp_path, architecture)
    text = (tmp_path / "n3ic.p4").read_text()
    assert old in text
    Switch(text)
    with pytest.raises(P4Error, match=wrong):
        Switch(text.replace(old, new, 1))


@pytest.mark.parametrize("architecture", PORTABLE)
def test_a_packet_that_is_sent_nowhere_is_dropped(tmp_path: Path, architecture: str) -> None:
    written(tmp_path, architecture)
    text = (tmp_path / "n3ic.p4").read_text()
    silent, count = re.subn(r"send_to_port\(.*\);", "meta.egress_port = 0;", text)
    assert count == 1
    assert Switch(text).process(bytes(60), 1).port == 0
    assert Switch(silent).process(bytes(60), 1).port is None


@pytest.mark.parametrize("architecture", PORTABLE)
def test_what_is_read_before_it_is_written_is_found(tmp_path: Path, architecture: str) -> None:
    """Metadata is undefined at first, other than in v1model."""
    written(tmp_path, architecture, **{"shunt-port": "9"})
    text = (tmp_path / "n3ic.p4").read_text()
    commands = (tmp_path / "commands.txt").read_text()
    switch, other = Switch(text), Switch(text.replace("        no_shunting();\n", ""))
    for each in (switch, other):
        each.load(commands)
    assert switch.process(bytes(60), 1).port == 0
    with pytest.raises(P4Error, match="shunted is read before it is written"):
        other.process(bytes(60), 1)
