# SPDX-License-Identifier: Apache-2.0
"""The sizes of a front end's messages and memories, and its Verilog."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from n3ic.errors import UsageError
from n3ic.exporters.netfpga.core import SHARED_RTL, CorePorts, copy_blocks
from n3ic.exporters.netfpga.frontend.messages import HEADER, VERDICT_BYTES, result_bytes
from n3ic.exporters.netfpga.latency import pipeline_clocks
from n3ic.exporters.netfpga.packet.wrapper import data_width, features_text, input_width
from n3ic.model.classifier import Classifier
from n3ic.options import Options
from n3ic.util.templates import render

FOLDER = Path(__file__).resolve().parent
TOP = "n3ic_front_top"
DISSECTOR = "n3ic.lua"
UDP_HEADERS = 28  # bytes: IPv4 without options 20, UDP 8
MAX_ROW = 1024  # bytes
RECORD_BYTES = 512  # bytes of results in a segment, for a host with the smallest MSS
MOST_RECORD_BYTES = 1408
MAX_SESSIONS = 1024
COUNTERS = (
    "other",
    "header",
    "fragment",
    "source",
    "taken",
    "damaged",
    "requests",
    "faults",
    "dropped",
    "resets",
    "sessions",
    "resends",
    "cookies",
    "full",
    "evicted",
)


@dataclass(frozen=True)
class FrontendParameters:
    """Sizes of a front end.

    Attributes:
        beat: bytes per beat.
        executors: rows computed per clock.
        row: bytes per row.
        result: bytes per result.
        mtu: maximum bytes of an IPv4 packet.
        bypass: whether rows are computed before their frame has ended.
        tcp: whether the front end answers over TCP.
        sessions: maximum number of TCP connections.
        idle: silent ticks after which a connection may have to leave.
        plans_w: binary logarithm of the number of inferences in flight.
    """

    beat: int
    executors: int
    row: int
    result: int
    mtu: int
    bypass: bool
    tcp: bool
    sessions: int
    plans_w: int
    idle: int = 8

    @property
    def max_rows(self) -> int:
        """Maximum rows of a request, such that the results fit a datagram."""
        return (self.mtu - UDP_HEADERS - HEADER.size) // self.result

    @property
    def beats_w(self) -> int:
        """Binary logarithm of the beats of the longest packet."""
        return (-(-self.mtu // self.beat)).bit_length()

    @property
    def parameters(self) -> dict[str, int]:
        """Parameters of ``n3ic_front``, without the model's digest."""
        own = {
            "W": self.beat,
            "N": self.executors,
            "ROW": self.row,
            "RESULT": self.result,
            "MAX_ROWS": self.max_rows,
            "MTU": self.mtu,
            "BYPASS": int(self.bypass),
            "BEATS_W": self.beats_w,
            "PLANS_W": self.plans_w,
        }
        tcp = {
            "TCP": 1,
            "SESSIONS": self.sessions,
            "SESSION_W": self.session_w,
            "MSS": self.mss,
            "POOL_W": self.pool_w,
            "BUFFER_W": self.buffer_w,
            "SEG_RECORDS": self.segment_records,
            "IDLE": self.idle,
        }
        return own | (tcp if self.tcp else {})

    @property
    def growth(self) -> int:
        """Maximum bytes of results per byte of a request."""
        return max(1, -(-self.result // self.row))

    @property
    def mss(self) -> int:
        """Announced MSS: bytes of a TCP segment, fewer if results are longer than rows."""
        return min(1460 if self.growth <= 2 else 536, self.mtu - 40)

    @property
    def segment_results(self) -> int:
        """Maximum bytes of results per segment, including a row that the previous one began."""
        return (self.mss + max(self.row, HEADER.size)) * self.growth + 2 * HEADER.size

    @property
    def segment_records(self) -> int:
        """Maximum segments of results per segment received, for a host with an MSS of 536 bytes."""
        return -(-self.segment_results // RECORD_BYTES) + 1

    @property
    def buffer_w(self) -> int:
        """Binary logarithm of the beats of a buffer, which holds the results of a segment."""
        return (MOST_RECORD_BYTES // self.beat - 1).bit_length()

    @property
    def pool_w(self) -> int:
        """Binary logarithm of the buffers that all sessions share."""
        return 7 if self.sessions > 64 else 6

    @property
    def session_w(self) -> int:
        """Width of a session number, in bits."""
        return (self.sessions - 1).bit_length()


def frontend_parameters(model: Classifier, options: Options) -> FrontendParameters:
    """Compute the sizes of a front end from its options.

    Raises:
        UsageError: a row does not fit a datagram, or the core lacks the scores asked for.
    """
    row = -(-input_width(model, options) // 8)
    full = options["answers"] == "full"
    if full and options.get("outputs") == "class" and options.get("style") == "unrolled":
        raise UsageError("--answers full needs scores and margin: use --outputs scores")
    room = int(options["mtu"]) - UDP_HEADERS - HEADER.size
    if row > min(room, MAX_ROW):
        raise UsageError(
            f"a row has {row} bytes, the front end takes {min(room, MAX_ROW)} at most"
            + (": use --mtu" if room < MAX_ROW else "")
        )
    result = result_bytes(len(model.classes)) if full else VERDICT_BYTES
    if result > room:
        raise UsageError(f"a result has {result} bytes, a datagram {room}: use --answers verdict")
    return FrontendParameters(
        beat=data_width(options) // 8,
        executors=int(options["executors"]),
        row=row,
        result=result,
        mtu=int(options["mtu"]),
        bypass=bool(options["bypass"]),
        tcp=options["front-end"] == "tcp",
        sessions=int(options["sessions"]),
        idle=int(options["idle"]),
        plans_w=max(6, (pipeline_clocks(model, options) + 16).bit_length()),
    )


def write(model: Classifier, options: Options, core: CorePorts, out: Path) -> None:
    """Write the front end, its dissector and the input stage below ``out``."""
    form = frontend_parameters(model, options)
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
    (out / DISSECTOR).write_bytes((FOLDER / DISSECTOR).read_bytes())
    (out / "rtl" / f"{TOP}.v").write_text(render(FOLDER, f"{TOP}.v.j2", values))
