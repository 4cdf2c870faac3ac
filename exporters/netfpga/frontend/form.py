"""What a front end is made for: its options, and the sizes of messages and memories."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from n3ic.errors import UsageError
from n3ic.exporters.netfpga import unrolled
from n3ic.exporters.netfpga.core import SHARED_RTL, Core, copy_blocks
from n3ic.exporters.netfpga.packet.wrapper import features_text, input_width
from n3ic.exporters.netfpga.spn.pipeline import pipeline
from n3ic.exporters.netfpga.spn.verilog import latency
from n3ic.model.classifier import Classifier
from n3ic.model.network import BinaryModel
from n3ic.model.spn import SpnModel
from n3ic.options import Option, Options
from n3ic.targets.messages import HEADER, VERDICT_BYTES, result_bytes
from n3ic.util.templates import render

FOLDER = Path(__file__).resolve().parent
TOP = "n3ic_front_top"
UDP_HEADERS = 28  # IPv4 without options, UDP
MAX_ROW = 1024  # bytes
COUNTERS = (
    "other",
    "header",
    "fragment",
    "source",
    "taken",
    "damaged",
    "requests",
    "faults",
)
FRONT = (("front-end", ("udp",)),)

OPTIONS = (
    Option(
        "front-end",
        "a network stack around the executor that answers inference messages; none: the packet "
        "path of the reference NIC",
        "none",
        choices=("none", "udp"),
        newer=True,
    ),
    Option(
        "data-width",
        "bits of a beat of the front end: 64 for 10G, 512 for 100G",
        "512",
        choices=("64", "512"),
        only_with=FRONT,
        newer=True,
    ),
    Option(
        "executors",
        "copies of an unrolled executor behind the front end, each an input a clock",
        1,
        minimum=1,
        maximum=4,
        only_with=(*FRONT, ("style", ("unrolled",))),
        newer=True,
    ),
    Option(
        "answers",
        "what the front end answers for a row: verdict, class, margin and scores, or the verdict",
        "full",
        choices=("full", "verdict"),
        only_with=FRONT,
        newer=True,
    ),
    Option(
        "mtu",
        "bytes of an IPv4 packet of the front end, at most",
        1500,
        minimum=576,
        maximum=9000,
        only_with=FRONT,
        newer=True,
    ),
    Option(
        "bypass",
        "rows go to the executor while their frame comes in; false: once it is known to be sound",
        True,
        only_with=FRONT,
        newer=True,
    ),
)


@dataclass(frozen=True)
class FrontForm:
    """Sizes of a front end.

    Attributes:
        beat: bytes of a beat.
        executors: rows that are computed in a clock.
        row: bytes of a row.
        result: bytes of a result.
        mtu: bytes of an IPv4 packet, at most.
        bypass: whether rows are computed before their frame has ended.
        tcp: whether it answers over TCP.
        plans_w: binary logarithm of the inferences that may be under way.
    """

    beat: int
    executors: int
    row: int
    result: int
    mtu: int
    bypass: bool
    tcp: bool
    plans_w: int

    @property
    def max_rows(self) -> int:
        """Most rows of a request: their results fit a datagram."""
        return (self.mtu - UDP_HEADERS - HEADER.size) // self.result

    @property
    def beats_w(self) -> int:
        """Binary logarithm of the beats that the longest packet needs."""
        return (-(-self.mtu // self.beat)).bit_length()


def front_form(model: Classifier, options: Options) -> FrontForm:
    """The sizes of the front end that options ask for.

    Raises:
        UsageError: rows are too long for a datagram, or scores are asked for that there are not.
    """
    row = -(-input_width(model, options) // 8)
    full = options["answers"] == "full"
    if full and options.get("outputs") == "class" and options["style"] == "unrolled":
        raise UsageError("--answers full has scores and margin: use --outputs scores")
    room = int(options["mtu"]) - UDP_HEADERS - HEADER.size
    if row > min(room, MAX_ROW):
        raise UsageError(
            f"a row has {row} bytes, the front end takes {min(room, MAX_ROW)} at most"
            + (": use --mtu" if room < MAX_ROW else "")
        )
    result = result_bytes(len(model.classes)) if full else VERDICT_BYTES
    if result > room:
        raise UsageError(f"a result has {result} bytes, a datagram {room}: use --answers verdict")
    return FrontForm(
        beat=int(options["data-width"]) // 8,
        executors=int(options["executors"]),
        row=row,
        result=result,
        mtu=int(options["mtu"]),
        bypass=bool(options["bypass"]),
        tcp=options["front-end"] == "tcp",
        plans_w=max(6, (_clocks(model, options) + 16).bit_length()),
    )


def _clocks(model: Classifier, options: Options) -> int:
    """Inferences that a pipelined executor has under way; 0 of one that is none."""
    if isinstance(model, SpnModel):
        return latency(pipeline(model))
    assert isinstance(model, BinaryModel)  # noqa: S101 - there are two families
    if options["style"] != "unrolled":
        return 0
    return unrolled.latency(
        model, pipeline=int(options["pipeline"]), outputs=str(options["outputs"])
    )


def write(model: Classifier, options: Options, core: Core, out: Path) -> None:
    """Write the front end and the input stage below ``out``."""
    form = front_form(model, options)
    features = options["input-stage"] == "features"
    copy_blocks(out, SHARED_RTL, FOLDER / "rtl")
    if features:
        (out / "rtl" / "n3ic_features.v").write_text(features_text(model))
    values = {
        "shape": model.shape_text,
        "core": core,
        "front": form,
        "in_w": input_width(model, options),
        "features": features,
        "full": options["answers"] == "full",
        "digest": model.digest[:8],
        "counters": len(COUNTERS),
        "names": COUNTERS,
    }
    (out / "rtl" / f"{TOP}.v").write_text(render(FOLDER, f"{TOP}.v.j2", values))
