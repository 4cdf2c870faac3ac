"""The options of both P4 targets: what packets ask, and what they are answered."""

from __future__ import annotations

from n3ic.errors import UsageError
from n3ic.model.network import BinaryModel, shape_text
from n3ic.options import Option, Options
from n3ic.targets.device import Problem
from n3ic.targets.packets import FIELD_BITS, PacketLayout

PACKET_OPTIONS = (
    Option(
        "output",
        "what the result header tells",
        "both",
        choices=("class", "scores", "both"),
    ),
    Option(
        "ethertype", "EtherType of packets with n3ic headers", 0x2323, minimum=0x600, maximum=0xFFFF
    ),
    Option("input", "where the input bits come from", "header", choices=("header", "field")),
    Option(
        "field",
        "with --input field: the field that holds them",
        "ipv6.src_dst",
        choices=tuple(FIELD_BITS),
        only_with=(("input", ("field",)),),
    ),
    Option(
        "udp-port",
        "with --field udp.payload: the destination port",
        0x2323,
        minimum=1,
        maximum=0xFFFF,
        only_with=(("input", ("field",)), ("field", ("udp.payload",))),
    ),
)


SHUNTING = Option(
    "shunting",
    "threshold for shunting: of a model that has one, or of all, so that entries of models with "
    "one can be loaded later",
    "model",
    choices=("model", "all"),
    newer=True,
)
_NO_PORT = -1


def shunt_port(largest: int, example: str) -> Option:
    """The option that says where shunted packets go.

    Args:
        largest: the largest port.
        example: what a port is, in words.
    """
    return Option(
        "shunt-port",
        f"port that shunted packets leave through ({example}); {_NO_PORT}: that of all others",
        _NO_PORT,
        minimum=_NO_PORT,
        maximum=largest,
        newer=True,
    )


def shunts(model: BinaryModel, options: Options) -> bool:
    """Whether a model's program has a threshold for shunting under some options."""
    return model.shunt > 0 or options.get("shunting") == "all"


def packet_layout(model: BinaryModel, options: Options) -> PacketLayout:
    """The packets that a model's program takes under some options."""
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


def packet_problems(model: BinaryModel, packets: PacketLayout) -> list[Problem]:
    """Problems of the packets: an input that its field cannot hold.

    Raises:
        UsageError: the EtherType is one that the program must tell from its own, a port is given
            for shunted packets and none is shunted, or nothing tells which ones are.
    """
    if packets.ethertype in (0x0800, 0x86DD):
        raise UsageError(f"--ethertype {packets.ethertype:#06x} is that of IP: choose another one")
    if packets.shunt_port is not None and not packets.shunts:
        raise UsageError(f"--shunt-port {packets.shunt_port}: the model has no shunting threshold")
    if packets.shunts and packets.shunt_port is None and not packets.has_class:
        raise UsageError(
            f"--output {packets.output} does not tell what is shunted: choose class or both, or "
            "give --shunt-port"
        )
    held = FIELD_BITS.get(packets.field, packets.input_bits)
    if packets.input_bits <= held:
        return []
    text = f"{packets.input_bits} input bits do not fit the {held} bits of {packets.field}"
    return [Problem(text, layer=0, nearest=shape_text((held, *model.shape[1:])))]
