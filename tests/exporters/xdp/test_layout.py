# SPDX-License-Identifier: Apache-2.0
"""The layouts of maps and events: one header, which C of user space includes, and numpy types."""

import subprocess
from dataclasses import replace

import pytest

from n3ic.exporters.xdp import layout, resident, source
from n3ic.exporters.xdp.network.structure import structure_of
from n3ic.kernel import build
from n3ic.meter.standard import standard_spec
from n3ic.model.meter_spec import Decision
from tests.support.metering import network

SPEC = standard_spec(packets=8)
BY_TIME = replace(SPEC, decision=Decision(after=2_000_000))  # its flows have one member more


def types(spec, structure):
    """The numpy types by their names in C."""
    return {
        "key": layout.KEY,
        "rule": resident.RULE,
        "rules": resident.RULE_TABLE,
        "options": layout.OPTIONS,
        "trailer": layout.TRAILER,
        "flow": layout.flow_type(spec),
        "slot": layout.slot_type(spec),
        "own_slot": layout.bucket_type(spec)["slot"].base,
        "bucket": layout.bucket_type(spec),
        "tags": layout.TAGS,
        "event": layout.event_type(spec, structure),
        "counters": layout.COUNTERS,
        "policy": layout.POLICY,
        "prefix": layout.PREFIX,
        "subject": layout.SUBJECT,
        "verdict": layout.VERDICT,
        "guard": layout.GUARD,
        "config": layout.CONFIG,
        "tally": layout.tally_type(structure),
    }


@pytest.mark.parametrize("spec", [SPEC, BY_TIME], ids=["by packets", "by time"])
def test_c_of_user_space_includes_the_header_and_agrees(spec, tmp_path):
    try:
        compiler = build.find_compiler()
    except build.NoCompilerError as error:
        pytest.skip(str(error))
    structure = structure_of([network(spec)])
    for name, text in source.meter_program(spec, structure, per_cpu=False).items():
        (tmp_path / name).write_text(text)
    asked, wanted = [], {}
    for name, kind in types(spec, structure).items():
        asked.append((f"{name}", f"sizeof(struct {name})"))
        wanted[name] = kind.itemsize
        for member in kind.names:
            c = {"scores": "score"}.get(member, member)
            if (name, member) == ("event", "why"):  # the key's fields stand apart in numpy
                wanted.update({f"event.key.{n}": kind.fields[n][1] for n in layout.KEY.names})
                asked += [
                    (f"event.key.{n}", f"offsetof(struct event, key.{n})") for n in layout.KEY.names
                ]
            if name == "event" and member in layout.KEY.names:
                continue
            asked.append((f"{name}.{member}", f"offsetof(struct {name}, {c})"))
            wanted[f"{name}.{member}"] = kind.fields[member][1]
    lines = "".join(f'    printf("%s %zu\\n", "{what}", {c});\n' for what, c in asked)
    # model.h has the tallies, and includes state.h.
    program = f'#include <stdio.h>\n#include "model.h"\nint main(void) {{\n{lines}}}\n'
    (tmp_path / "layouts.c").write_text(program)
    command = [*compiler.command, "-DNETWORK_KEEP_ROWS", "-Wall", "-Werror", "-Wno-unused-function",
               "-o", "layouts", "layouts.c"]  # fmt: skip
    subprocess.run(command, cwd=tmp_path, check=True)
    completed = subprocess.run([tmp_path / "layouts"], capture_output=True, text=True, check=True)
    numbers = {what: int(n) for what, n in (line.split() for line in completed.stdout.splitlines())}
    assert numbers == wanted
