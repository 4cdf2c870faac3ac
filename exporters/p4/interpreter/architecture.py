# SPDX-License-Identifier: Apache-2.0
"""The supported architectures: the environment of a program, and its compiler's limits.

v1model: the file ``v1model.p4`` of p4c and bmv2's ``simple_switch``. PSA and PNA: ``psa.p4`` and
``pna.p4`` of p4c, of which egress and pre-control do nothing here. SimpleSumeSwitch: the file
``sume_switch.p4`` of P4-NetFPGA, and the rules of P4-SDNet that the N3IC paper reports (4.2).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from n3ic.exporters.p4.interpreter.types import Bit, RecordType

# packet_in, packet_out, headers, metadata, digest, empty, or a part of the intrinsic metadata.
Role = str


@dataclass(frozen=True)
class BlockShape:
    """A block of a package: its kind and its parameters' roles.

    A parser or control that is idle does nothing; an engine is no part of the program.
    """

    title: str
    kind: Literal["parser", "control", "idle parser", "idle control", "engine"]
    parameters: tuple[Role, ...]


@dataclass(frozen=True)
class Architecture:
    """A P4 architecture.

    Attributes:
        name: name that users know.
        include: file that a program includes.
        package: package that ``main`` instantiates.
        blocks: parameters of the package, and of the packages that it holds.
        intrinsics: types of the intrinsic metadata, by role.
        ingress: role and field of the port that a packet came from.
        egress: role and field of the port that a packet leaves through.
        drop: value of ``egress`` that drops the packet.
        sends: whether packets are dropped unless they are sent to a port by a function.
        digest_bits: required width of ``digest_data``; 0 for an architecture without it.
        zeroed: whether metadata starts as 0.
        most_shift: largest amount of a shift that the compiler takes.
    """

    name: str
    include: str
    package: str
    blocks: tuple[BlockShape, ...]
    intrinsics: Mapping[Role, RecordType]
    ingress: tuple[Role, str]
    egress: tuple[Role, str]
    drop: int
    digest_bits: int
    zeroed: bool
    sends: bool = False
    most_shift: int = 256  # of p4c's bmv2 back ends


def _fields(*pairs: tuple[str, int]) -> tuple[tuple[str, Bit], ...]:
    return tuple((name, Bit(width)) for name, width in pairs)


def _intrinsic(name: str, fields: tuple[tuple[str, Bit], ...]) -> dict[Role, RecordType]:
    return {"intrinsic": RecordType("struct", name, fields)}


def _structs(prefix: str, **fields: tuple[tuple[str, Bit], ...]) -> dict[Role, RecordType]:
    """The structs ``PREFIX_ROLE_metadata_t`` by role; of enums and flags, no program knows."""
    return {
        role: RecordType("struct", f"{prefix}_{role}_metadata_t", listed)
        for role, listed in fields.items()
    }


_BOTH: tuple[Role, ...] = ("headers", "metadata")
_ALL: tuple[Role, ...] = (*_BOTH, "intrinsic")

V1MODEL = Architecture(
    name="v1model",
    include="v1model.p4",
    package="V1Switch",
    blocks=(
        BlockShape(
            "parser",
            "parser",
            (
                "packet_in",
                "headers",
                "metadata",
                "intrinsic",
            ),
        ),
        BlockShape("verify checksum", "control", _BOTH),
        BlockShape("ingress", "control", _ALL),
        BlockShape("egress", "control", _ALL),
        BlockShape("compute checksum", "control", _BOTH),
        BlockShape("deparser", "control", ("packet_out", "headers")),
    ),
    intrinsics=_intrinsic(
        "standard_metadata_t",
        _fields(
            ("ingress_port", 9),
            ("egress_spec", 9),
            ("egress_port", 9),
            ("instance_type", 32),
            ("packet_length", 32),
            ("enq_timestamp", 32),
            ("enq_qdepth", 19),
            ("deq_timedelta", 32),
            ("deq_qdepth", 19),
            ("ingress_global_timestamp", 48),
            ("egress_global_timestamp", 48),
            ("mcast_grp", 16),
            ("egress_rid", 16),
            ("checksum_error", 1),
            ("priority", 3),
        ),
    ),
    ingress=("intrinsic", "ingress_port"),
    egress=("intrinsic", "egress_spec"),
    drop=511,
    digest_bits=0,
    zeroed=True,
)

SUME = Architecture(
    name="SimpleSumeSwitch",
    include="sume_switch.p4",
    package="SimpleSumeSwitch",
    blocks=(
        BlockShape(
            "TopParser",
            "parser",
            ("packet_in", *_BOTH, "digest", "intrinsic"),
        ),
        BlockShape("TopPipe", "control", (*_BOTH, "digest", "intrinsic")),
        BlockShape(
            "TopDeparser",
            "control",
            ("packet_out", *_BOTH, "digest", "intrinsic"),
        ),
    ),
    intrinsics=_intrinsic(
        "sume_metadata_t",
        _fields(
            ("dma_q_size", 16),
            ("nf3_q_size", 16),
            ("nf2_q_size", 16),
            ("nf1_q_size", 16),
            ("nf0_q_size", 16),
            ("send_dig_to_cpu", 8),
            ("drop", 8),
            ("dst_port", 8),
            ("src_port", 8),
            ("pkt_len", 16),
        ),
    ),
    ingress=("intrinsic", "src_port"),
    egress=("intrinsic", "dst_port"),
    drop=0,
    digest_bits=256,
    zeroed=False,
    most_shift=1 << 31,
)

PSA = Architecture(
    name="PSA",
    include="psa.p4",
    package="PSA_Switch",
    blocks=(
        BlockShape(
            "ingress parser",
            "parser",
            ("packet_in", *_BOTH, "ingress_parser_input", "empty", "empty"),
        ),
        BlockShape("ingress", "control", (*_BOTH, "ingress_input", "ingress_output")),
        BlockShape(
            "ingress deparser",
            "control",
            ("packet_out", "empty", "empty", "empty", *_BOTH, "ingress_output"),
        ),
        BlockShape("PacketReplicationEngine", "engine", ()),
        BlockShape(
            "egress parser",
            "idle parser",
            ("packet_in", *_BOTH, "egress_parser_input", "empty", "empty", "empty"),
        ),
        BlockShape("egress", "idle control", (*_BOTH, "egress_input", "egress_output")),
        BlockShape(
            "egress deparser",
            "idle control",
            (
                *("packet_out", "empty", "empty", *_BOTH),
                *("egress_output", "egress_deparser_input"),
            ),
        ),
        BlockShape("BufferingQueueingEngine", "engine", ()),
    ),
    intrinsics=_structs(
        "psa",
        ingress_parser_input=_fields(("ingress_port", 32)),
        ingress_input=_fields(("ingress_port", 32), ("ingress_timestamp", 64)),
        ingress_output=_fields(
            ("class_of_service", 8), ("multicast_group", 32), ("egress_port", 32)
        ),
        egress_parser_input=_fields(("egress_port", 32)),
        egress_input=_fields(("egress_port", 32)),
        egress_output=(),
        egress_deparser_input=_fields(("egress_port", 32)),
    ),
    ingress=("ingress_input", "ingress_port"),
    egress=("ingress_output", "egress_port"),
    drop=1 << 32,  # no port: a flag of its own drops the packet
    digest_bits=0,
    zeroed=False,
    sends=True,
)

PNA = Architecture(
    name="PNA",
    include="pna.p4",
    package="PNA_NIC",
    blocks=(
        BlockShape("main parser", "parser", ("packet_in", *_BOTH, "main_parser_input")),
        BlockShape("pre-control", "idle control", (*_BOTH, "pre_input", "pre_output")),
        BlockShape("ingress", "control", (*_BOTH, "main_input", "main_output")),
        BlockShape("main deparser", "control", ("packet_out", *_BOTH, "main_output")),
    ),
    intrinsics=_structs(
        "pna",
        main_parser_input=_fields(("input_port", 32)),
        pre_input=_fields(("input_port", 32)),
        pre_output=(),
        main_input=_fields(("timestamp", 64), ("input_port", 32)),
        # No program can name the last field: send_to_port and drop_packet alone set it.
        main_output=_fields(("class_of_service", 8), ("$port", 33)),
    ),
    ingress=("main_input", "input_port"),
    egress=("main_output", "$port"),
    drop=1 << 32,
    digest_bits=0,
    zeroed=False,
    sends=True,
)

ARCHITECTURES = {a.package: a for a in (V1MODEL, PSA, PNA, SUME)}
