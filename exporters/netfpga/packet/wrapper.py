# SPDX-License-Identifier: Apache-2.0
"""The packet path: position of inputs in packets, and the input stage from features to bits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from n3ic.errors import UsageError
from n3ic.exporters.netfpga.core import SHARED_RTL, CorePorts, copy_blocks
from n3ic.exporters.netfpga.latency import pipeline_clocks
from n3ic.model.classifier import Classifier
from n3ic.model.inputs import InputSpec
from n3ic.options import Option, Options
from n3ic.targets.identifiers import comment
from n3ic.util.templates import render

ETHERNET_BYTES = 14
UDP_PAYLOAD = 42  # offset in bytes: Ethernet 14, IPv4 without options 20, UDP 8
HEADER_BYTES = 12  # next type (2), model (4), class (2), margin (4); the P4 target's header
RESULT_BYTES = 10  # model 4, class 2, margin 4
SHUNTED = 0xFFFF  # class field of a result that the host decides
MAX_OFFSET = 2048
MAX_NEED = 254 * 32  # bytes that can be inspected: an 8-bit counter counts beats and stops at 255
BEAT = 32  # bytes of a beat in the reference NIC
RESULTS_W = 6  # default of n3ic_axis
_AROUND = 3  # clocks of an inference before and behind the core, the input stage's among them
FOLDER = Path(__file__).resolve().parent
_PATH = (("front-end", ("none",)),)  # options of the packet path, not of the front end

OPTIONS = (
    Option(
        "input-stage",
        "content of a packet: input bits, or integer features that the card turns into bits",
        "bits",
        choices=("bits", "features"),
    ),
    Option(
        "feature-bits",
        "bits of a feature: 32, or as many as its largest cut needs (own); larger values arrive as "
        "all ones",
        "32",
        choices=("32", "own"),
        only_with=(*_PATH, ("input-stage", ("features",))),
        newer=True,
    ),
    Option(
        "input",
        "source of inputs: a field of the packet, or a side channel of flow statistics",
        "packet",
        choices=("packet", "side"),
        only_with=_PATH,
    ),
    Option(
        "match",
        "how requests are recognised: by EtherType or by UDP port",
        "ethertype",
        choices=("ethertype", "udp"),
        only_with=_PATH,
    ),
    Option(
        "ethertype",
        "EtherType of requests",
        0x2323,
        minimum=0x600,
        maximum=0xFFFF,
        only_with=(*_PATH, ("match", ("ethertype",))),
    ),
    Option(
        "udp-port",
        "UDP destination port of requests",
        0x2323,
        minimum=1,
        maximum=65535,
        only_with=(*_PATH, ("match", ("udp",))),
    ),
    Option(
        "offset",
        "first byte of the input in the frame; 0: directly after the result header",
        0,
        minimum=0,
        maximum=MAX_OFFSET,
        only_with=(*_PATH, ("input", ("packet",))),
    ),
    Option(
        "result",
        "where the result is written: into the packet, into tuser, or both",
        "packet",
        choices=("packet", "tuser", "both"),
        only_with=_PATH,
    ),
    Option(
        "shunt-port",
        "port for shunted packets, as a bit mask like tuser's (2: the host's nf0); "
        "0: the same port as for other packets",
        0,
        minimum=0,
        maximum=255,
        only_with=_PATH,
        newer=True,
    ),
    Option(
        "shell",
        "what the packet path is put into: a reference NIC as the NetFPGA's, the 250 MHz user box "
        "of OpenNIC shell or the application block of Corundum",
        "reference",
        choices=("reference", "opennic", "corundum"),
        only_with=(
            *_PATH,
            ("input", ("packet",)),
            ("result", ("packet",)),  # their sidebands have no room for a result
            ("shunt-port", (0,)),  # and no port of the host
        ),
        newer=True,
    ),
    Option(
        "data-width",
        "bits of a beat: 256 in the packet path (512 in OpenNIC shell and Corundum), or 512; "
        "512 with a front end (100G), or 64 (10G)",
        "auto",
        choices=("auto", "64", "256", "512"),
        newer=True,
    ),
)


@dataclass(frozen=True)
class PacketFormat:
    """Position of inputs and results in frames.

    Attributes:
        udp: whether to match the UDP destination port instead of the EtherType.
        value: the EtherType or the port.
        input_bytes: bytes of an input; 0 if it comes from the side channel.
        offset: first byte of the input in the frame.
        result_at: first byte of the result: model (4 bytes), class (2), margin (4).
        in_packet: whether the result is written into the packet.
        in_tuser: whether the result is written into ``tuser``.
        shunt_port: destination port of shunted packets in ``tuser``; 0 leaves it unchanged.
        beat: bytes of a beat.
    """

    udp: bool
    value: int
    input_bytes: int
    offset: int
    result_at: int
    in_packet: bool
    in_tuser: bool
    shunt_port: int = 0
    beat: int = BEAT

    @property
    def need(self) -> int:
        """Minimum bytes of a frame that is classified."""
        header = UDP_PAYLOAD if self.udp else ETHERNET_BYTES
        result = self.result_at + RESULT_BYTES if self.in_packet else 0
        return max(header, result, self.offset + self.input_bytes)


def packet_format(model: Classifier, options: Options) -> PacketFormat:
    """Compute the packet format from the options.

    Raises:
        UsageError: the result would overwrite the input; or the input is longer than the packet
            path inspects; or a port for shunted packets is given, but the model shunts none; or
            there is no packet path of the width.
    """
    udp = options["match"] == "udp"
    start = UDP_PAYLOAD if udp else ETHERNET_BYTES
    bits = input_width(model, options)
    from_packet = options["input"] == "packet"
    shunt_port = int(options["shunt-port"])
    if shunt_port and not (model.shunt or options.get("shunting") == "all"):
        raise UsageError(f"--shunt-port {shunt_port}: the model has no shunting threshold")
    offset = int(options["offset"]) or start + HEADER_BYTES
    form = PacketFormat(
        udp=udp,
        value=int(options["udp-port"] if udp else options["ethertype"]),
        input_bytes=-(-bits // 8) if from_packet else 0,
        offset=offset if from_packet else 0,
        result_at=start + 2,
        in_packet=options["result"] != "tuser",
        in_tuser=options["result"] != "packet" or shunt_port > 0,
        shunt_port=shunt_port,
        beat=data_width(options) // 8,
    )
    clash = form.offset < form.result_at + RESULT_BYTES and form.result_at < offset + bits // 8
    if form.need > MAX_NEED:
        raise UsageError(
            f"a request would have {form.need} bytes, the packet path inspects at most {MAX_NEED}; "
            "use --input side"
        )
    if from_packet and form.in_packet and clash:
        raise UsageError(
            f"--offset {form.offset}: the result is written to bytes {form.result_at} to "
            f"{form.result_at + RESULT_BYTES - 1}, over the input; use --result tuser"
        )
    return form


def data_width(options: Options) -> int:
    """Width of a beat in bits, in the packet path or the front end.

    Raises:
        UsageError: what the options choose has no such width.
    """
    chosen, shell = str(options["data-width"]), str(options.get("shell", "reference"))
    where, widths = f"--shell {shell}", [512]
    if options["front-end"] != "none":
        where, widths = f"--front-end {options['front-end']}", [512, 64]
    elif shell == "reference":
        where, widths = "the packet path", [256, 512]
    if chosen == "auto":
        return widths[0]
    if int(chosen) not in widths:
        listed = " or ".join(str(width) for width in sorted(widths))
        raise UsageError(f"--data-width {chosen}: {where} has beats of {listed} bits")
    return int(chosen)


def input_width(model: Classifier, options: Options) -> int:
    """Width of an input as it reaches the card, in bits: input bits, or features."""
    if options["input-stage"] == "features":
        return sum(feature_widths(model.input, options))
    return model.input.n_bits


def feature_widths(spec: InputSpec, options: Options) -> tuple[int, ...]:
    """Width of each feature as it reaches the card, in bits.

    A feature's own width holds all its clamps, so a saturated value gives the same input bits.
    """
    if options.get("feature-bits") != "own":
        return (32,) * len(spec.features)
    clamps: dict[str, int] = {}
    for field in spec.fields:
        clamps[field.feature] = max(field.clamp, clamps.get(field.feature, 0))
    return tuple(clamps[name].bit_length() for name in spec.features)


def features_number(row: Sequence[int], widths: Sequence[int]) -> int:
    """Pack the features of a row into one number as it reaches the card, the first one highest.

    Args:
        row: one non-negative integer per feature; values that exceed the width are saturated.
        widths: width of each feature in bits.
    """
    number = 0
    for value, width in zip(row, widths, strict=True):
        number = number << width | min(value, (1 << width) - 1)
    return number


def write(model: Classifier, options: Options, core: CorePorts, out: Path) -> None:
    """Write the packet path and the input stage below ``out``."""
    form = packet_format(model, options)
    features = options["input-stage"] == "features"
    folder = out / "rtl"
    copy_blocks(out, SHARED_RTL, FOLDER / "rtl")
    if features:
        (folder / "n3ic_features.v").write_text(
            features_text(model, feature_widths(model.input, options))
        )
    values = {
        "shape": model.shape_text,
        "core": core,
        "data_w": 8 * form.beat,
        "default_results_w": RESULTS_W,
        "results_w": _results_width(model, options, form),
        "in_w": input_width(model, options),
        "features": features,
        "side": options["input"] == "side",
        "offset": form.offset,
        "need": form.need,
        "udp": form.udp,
        "value": form.value,
        "to_packet": form.in_packet,
        "to_user": form.in_tuser,
        "result_at": form.result_at,
        "shunt_port": form.shunt_port,
        "digest": model.digest[:8],
    }
    (folder / "n3ic_top.v").write_text(render(FOLDER, "n3ic_top.v.j2", values))


def _results_width(model: Classifier, options: Options, form: PacketFormat) -> int:
    """Binary logarithm of the most inferences in flight.

    Requests of one beat come at one a clock. Larger ones come more slowly, and the default is
    enough.
    """
    if form.need > form.beat:
        return RESULTS_W
    return max(RESULTS_W, (pipeline_clocks(model, options) + _AROUND).bit_length())


def features_text(model: Classifier, widths: Sequence[int] = ()) -> str:
    """Render the Verilog of the input stage: comparators with the cuts of the input spec.

    Args:
        model: the model.
        widths: width of each feature in bits; empty for 32 each.
    """
    spec = model.input
    widths = widths or (32,) * len(spec.features)
    wires = {name: f"feature{i}" for i, name in enumerate(spec.features)}
    features = [
        {"wire": wires[name], "at": sum(widths[i + 1 :]), "width": width, "comment": comment(name)}
        for i, (name, width) in enumerate(zip(spec.features, widths, strict=True))
    ]
    fields: list[dict[str, Any]] = [
        {
            "index": i,
            "kind": f.kind,
            "wire": wires[f.feature],
            "first": first,
            "last": first + f.width - 1,
            "width": f.width,
            "clamp": f.clamp,
            "full": f.width == 32 and f.clamp == (1 << 32) - 1,
            "cuts": [(cut, at_least(wires[f.feature], cut)) for cut in f.cuts],
        }
        for i, (first, f) in enumerate(zip(spec.offsets, spec.fields, strict=True))
    ]
    return render(
        FOLDER,
        "n3ic_features.v.j2",
        {"n_in": spec.n_bits, "features": features, "fields": fields, "in_w": sum(widths)},
    )


def at_least(wire: str, cut: int) -> str:
    """Write ``wire >= cut`` for 32 bits by runs of equal bits of the cut, highest first.

    Where the cut has a run of zeros, any set bit makes the value larger. Where it has a run of
    ones, the value must have ones too, and the next run decides. Trailing zeros need no logic.
    Synthesis shares runs between the cuts of a feature, but not carry chains.
    """
    bits = f"{cut:032b}".rstrip("0")
    text, at = "", 31
    runs = [(len(list(run)), bit) for bit, run in groupby(bits)]
    for size, bit in runs:
        mark = "&" if bit == "1" else "|"
        text += f"{mark}{wire}[{at}:{at - size + 1}]"
        at -= size
        text += f" {mark} (" if at >= 32 - len(bits) else ""
    return text + ")" * (len(runs) - 1)
