# SPDX-License-Identifier: Apache-2.0
"""The entries as other tools read them: protobuf's text and JSON, and Python's own interpreter."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from n3ic.exporters.p4.exporter import EXPORTER as P4
from n3ic.families.tables.random_models import random_tables
from n3ic.families.trees.random_models import random_trees
from n3ic.model.classifier import Classifier
from n3ic.model.random_models import random_model
from n3ic.targets.base import Exporter

TEXTS = ("p4runtime-1.txtpb", "p4runtime-2.txtpb", "p4runtime-3.txtpb")
# The fields that n3ic writes, with the numbers of p4/v1/p4runtime.proto.
MESSAGES = {
    "WriteRequest": (
        ("device_id", 1, "uint64"),
        ("election_id", 3, "Uint128"),
        ("updates", 4, "*Update"),
    ),
    "Uint128": (("high", 1, "uint64"), ("low", 2, "uint64")),
    "Update": (("type", 1, "Type"), ("entity", 2, "Entity")),
    "Entity": (("table_entry", 2, "TableEntry"),),
    "TableEntry": (
        ("table_id", 1, "uint32"),
        ("match", 2, "*FieldMatch"),
        ("action", 3, "TableAction"),
        ("priority", 4, "int32"),
        ("is_default_action", 8, "bool"),
    ),
    "FieldMatch": (("field_id", 1, "uint32"), ("exact", 2, "Exact"), ("ternary", 3, "Ternary")),
    "Exact": (("value", 1, "bytes"),),
    "Ternary": (("value", 1, "bytes"), ("mask", 2, "bytes")),
    "TableAction": (("action", 1, "Action"),),
    "Action": (("action_id", 1, "uint32"), ("params", 4, "*Param")),
    "Param": (("param_id", 2, "uint32"), ("value", 3, "bytes")),
}
POOL = ("descriptor_pb2", "descriptor_pool", "message_factory")
SCALARS = {"uint64": 4, "uint32": 13, "int32": 5, "bool": 8, "bytes": 12}


def protobuf(name: str) -> Any:
    return pytest.importorskip(f"google.protobuf.{name}")


@pytest.fixture(scope="module", name="request_type")
def request_type_fixture() -> Any:
    """``WriteRequest`` as a class of protobuf."""
    descriptor_pb2, pool_of, classes = (protobuf(name) for name in POOL)
    file = descriptor_pb2.FileDescriptorProto(name="p4.proto", package="p4", syntax="proto3")
    kinds = file.enum_type.add(name="Type")
    for number, name in enumerate(("UNSPECIFIED", "INSERT", "MODIFY", "DELETE")):
        kinds.value.add(name=name, number=number)
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, number, kind in fields:
            own = message.field.add(name=field, number=number, label=3 if kind[0] == "*" else 1)
            if kind in SCALARS:
                own.type = SCALARS[kind]
            else:
                own.type = 14 if kind == "Type" else 11
                own.type_name = f".p4.{kind.lstrip('*')}"
    pool = pool_of.DescriptorPool()
    pool.Add(file)
    return classes.GetMessageClass(pool.FindMessageTypeByName("p4.WriteRequest"))


def models() -> dict[str, Classifier]:
    rng = np.random.default_rng
    return {
        "masked": random_model((70, 40, 3), rng(1), density=0.5).with_shunt(2),
        "tables": random_tables(rng(2)),
        "trees": random_trees(rng(3)),
    }


@pytest.fixture(scope="module", params=models(), name="written")
def written_fixture(request, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp(request.param)
    model = models()[request.param]
    target: Exporter[Any] = P4.for_family(model.family)
    target.write(model, target.parse_options({}), out)
    return out


def test_protobuf_reads_the_same_requests_as_text_and_as_json(written, request_type) -> None:
    text_format, json_format = protobuf("text_format"), protobuf("json_format")
    documents = json.loads((written / "p4runtime.json").read_text())
    for name, document in zip(TEXTS, documents, strict=True):
        text = text_format.Parse((written / name).read_text(), request_type())
        assert text.updates
        assert text == json_format.ParseDict(document, request_type())


class Recorder:
    """What ``bfrt_python`` gives a script: each call is kept as a command."""

    def __init__(self, commands: list[str], *path: str) -> None:
        self.commands, self.path = commands, path

    def __getattr__(self, name: str) -> "Recorder":
        return Recorder(self.commands, *self.path, name)

    def __call__(self, *keys: int, **data: int) -> None:
        if self.path == ("complete_operations",):
            self.commands.append("end")
            return
        program, pipe, table, verb = self.path
        assert (program, pipe) == ("n3ic", "pipe")
        if verb == "clear":
            self.commands.append(f"table_clear {table}")
            return
        kind, _, action = verb.partition("_with_")
        values = " ".join(map(hex, data.values()))
        if kind == "set_default":
            assert not keys
            self.commands.append(f"table_set_default {table} {action} {values}".strip())
            return
        assert kind == "add" and len(keys) in (1, 3)
        key, last = hex(keys[0]), ""
        if len(keys) == 3:
            key, last = f"{keys[0]:#x}&&&{keys[1]:#x}", f" {keys[2]}"
        self.commands.append(f"table_add {table} {action} {key} => {values}{last}")


def test_the_calls_for_bfrt_do_what_the_commands_do(written) -> None:
    called: list[str] = []
    exec((written / "bfrt.py").read_text(), {"bfrt": Recorder(called)})

    def plain(line: str) -> list[str]:
        return [
            "&&&".join(f"{int(n, 16):#x}" for n in word.split("&&&")) if word[:2] == "0x" else word
            for word in line.split()
        ]

    commands = (written / "commands.txt").read_text().splitlines()
    assert [plain(line) for line in called] == [*(plain(line) for line in commands), ["end"]]
