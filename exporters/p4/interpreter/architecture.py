# SPDX-License-Identifier: Apache-2.0
"""The two supported architectures: the environment of a program, and its compiler's limits.

v1model: the file ``v1model.p4`` of p4c and bmv2's ``simple_switch``. SimpleSumeSwitch: the file
``sume_switch.p4`` of P4-NetFPGA, and the rules of P4-SDNet that the N3IC paper reports (4.2).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from n3ic.exporters.p4.interpreter.types import Bit, RecordType

Role = Literal["packet_in", "packet_out", "headers", "metadata", "intrinsic", "digest"]


@dataclass(frozen=True)
class BlockShape:
    """A block of a package: its kind and its parameters' roles."""

    title: str
    kind: Literal["parser", "control"]
    parameters: tuple[Role, ...]


@dataclass(frozen=True)
class Architecture:
    """A P4 architecture.

    Attributes:
        name: name that users know.
        include: file that a program includes.
        package: package that ``main`` instantiates.
        blocks: parameters of the package.
        intrinsic: type of the intrinsic metadata.
        ingress: field with the port that a packet came from.
        egress: field for the port that a packet leaves through.
        drop: value of ``egress`` that drops the packet.
        digest_bits: required width of ``digest_data``; 0 for an architecture without it.
        zeroed: whether metadata starts as 0.
    """

    name: str
    include: str
    package: str
    blocks: tuple[BlockShape, ...]
    intrinsic: RecordType
    ingress: str
    egress: str
    drop: int
    digest_bits: int
    zeroed: bool


def _fields(*pairs: tuple[str, int]) -> tuple[tuple[str, Bit], ...]:
    return tuple((name, Bit(width)) for name, width in pairs)


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
    intrinsic=RecordType(
        "struct",
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
    ingress="ingress_port",
    egress="egress_spec",
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
    intrinsic=RecordType(
        "struct",
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
    ingress="src_port",
    egress="dst_port",
    drop=0,
    digest_bits=256,
    zeroed=False,
)

ARCHITECTURES = {a.package: a for a in (V1MODEL, SUME)}
