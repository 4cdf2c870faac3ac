# SPDX-License-Identifier: Apache-2.0
"""The options of both P4 targets: form of requests, and content of results."""

from __future__ import annotations

from n3ic.errors import UsageError
from n3ic.model.classifier import Classifier
from n3ic.model.network import BinaryModel, shape_text
from n3ic.options import Option, Options
from n3ic.targets.device import Problem
from n3ic.targets.packets import FIELD_BITS, PacketLayout

PACKET_OPTIONS = (
    Option(
        "output",
        "content of the result header",
        "both",
        choices=("class", "scores", "both"),
    ),
    Option(
        "ethertype", "EtherType of packets with n3ic headers", 0x2323, minimum=0x600, maximum=0xFFFF
    ),
    Option("input", "source of the input bits", "header", choices=("header", "field")),
    Option(
        "field",
        "with --input field: field that holds the input bits",
        "ipv6.src_dst",
        choices=tuple(FIELD_BITS),
        only_with=(("input", ("field",)),),
    ),
    Option(
        "udp-port",
        "with --field udp.payload: UDP destination port",
        0x2323,
        minimum=1,
        maximum=0xFFFF,
        only_with=(("input", ("field",)), ("field", ("udp.payload",))),
    ),
)


SHUNTING = Option(
    "shunting",
    "threshold for shunting: model: only if the model has one; all: always, so that models with "
    "a threshold can be loaded later",
    "model",
    choices=("model", "all"),
    newer=True,
)
_NO_PORT = -1


def shunt_port(largest: int, example: str) -> Option:
    """Define the option for the port of shunted packets."""
    return Option(
        "shunt-port",
        f"port for shunted packets ({example}); {_NO_PORT}: the port of all other packets",
        _NO_PORT,
        minimum=_NO_PORT,
        maximum=largest,
        newer=True,
    )


def shunts(model: Classifier, options: Options) -> bool:
    """Whether a model's program has a shunting threshold under the given options."""
    return model.shunt > 0 or options.get("shunting") == "all"


def packet_layout(model: Classifier, options: Options) -> PacketLayout:
    """The packet layout of a model's program under the given options."""
    port = int(options["shunt-port"])
    return PacketLayout(
        input_bits=model.input.n_bits,
        classes=len(model.classes),
        output=str(options["output"]),
        field=str(options["field"]) if options["input"] == "field" else "",
        ethertype=int(options["ethertype"]),
        udp_port=int(options["udp-port"]),
        shunts=shunts(model, options),
        shunt_port=None if port == _NO_PORT else port,
    )


def packet_problems(model: Classifier, packets: PacketLayout) -> list[Problem]:
    """Check that the packet's field can hold the input.

    Raises:
        UsageError: the EtherType belongs to IP; or a port for shunted packets is given, but the
            program shunts none; or the output does not say which packets are shunted.
    """
    if packets.ethertype in (0x0800, 0x86DD):  # the parser could not tell requests from IP
        raise UsageError(f"--ethertype {packets.ethertype:#06x} belongs to IP: choose another one")
    if packets.shunt_port is not None and not packets.shunts:
        raise UsageError(f"--shunt-port {packets.shunt_port}: the model has no shunting threshold")
    if packets.shunts and packets.shunt_port is None and not packets.has_class:
        raise UsageError(
            f"--output {packets.output} does not tell which packets are shunted: choose class or "
            "both, or pass --shunt-port"
        )
    capacity = FIELD_BITS.get(packets.field, packets.input_bits)
    if packets.input_bits <= capacity:
        return []
    text = f"{packets.input_bits} input bits do not fit the {capacity} bits of {packets.field}"
    if not isinstance(model, BinaryModel):
        return [Problem(text)]
    return [Problem(text, layer=0, nearest=shape_text((capacity, *model.shape[1:])))]
