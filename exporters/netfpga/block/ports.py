# SPDX-License-Identifier: Apache-2.0
"""The streams and settings of an export's top, beside clock, reset and registers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from n3ic.exporters.netfpga.packet.wrapper import data_width, input_width
from n3ic.model.classifier import Classifier
from n3ic.options import Options

if TYPE_CHECKING:
    from n3ic.exporters.netfpga.frontend.parameters import FrontendParameters

Port = tuple[str, int, str]  # direction, width in bits, name
_USER = 128  # bits of the packet path's sideband


def ports_of(
    model: Classifier, options: Options, front: FrontendParameters | None
) -> tuple[Port, ...]:
    """List the ports that the top with registers passes on, streams last."""
    if front is not None:
        settings = [("input", 48, "cfg_mac"), ("input", 32, "cfg_ip"), ("input", 16, "cfg_port")]
        if front.tcp:
            settings += [("input", 32, "cfg_resend"), ("input", 64, "cfg_key")]
        return (*settings, *_stream("s", front.beat, 1), *_stream("m", front.beat, 0))
    side: list[Port] = []
    if options["input"] == "side":
        side = [
            ("input", input_width(model, options), "s_side_tdata"),
            ("input", 1, "s_side_tvalid"),
            ("output", 1, "s_side_tready"),
        ]
    beat = data_width(options) // 8
    return (*side, *_stream("s", beat, _USER), *_stream("m", beat, _USER))


def _stream(side: str, beat: int, user: int) -> list[Port]:
    """The ports of an AXI4-Stream; ``s`` is a slave, ``m`` a master."""
    forward, back = ("input", "output") if side == "s" else ("output", "input")
    return [
        (forward, 8 * beat, f"{side}_axis_tdata"),
        (forward, beat, f"{side}_axis_tkeep"),
        *([(forward, user, f"{side}_axis_tuser")] if user else []),
        (forward, 1, f"{side}_axis_tvalid"),
        (back, 1, f"{side}_axis_tready"),
        (forward, 1, f"{side}_axis_tlast"),
    ]


def registers_ports(address_bits: int) -> tuple[Port, ...]:
    """List the ports of the AXI4-Lite slave ``s_axil``, for byte addresses of some bits."""
    signals = (
        ("awaddr", address_bits, "input"), ("awvalid", 1, "input"), ("awready", 1, "output"),
        ("wdata", 32, "input"), ("wstrb", 4, "input"),
        ("wvalid", 1, "input"), ("wready", 1, "output"),
        ("bresp", 2, "output"), ("bvalid", 1, "output"), ("bready", 1, "input"),
        ("araddr", address_bits, "input"), ("arvalid", 1, "input"), ("arready", 1, "output"),
        ("rdata", 32, "output"), ("rresp", 2, "output"),
        ("rvalid", 1, "output"), ("rready", 1, "input"),
    )  # fmt: skip
    return tuple((direction, width, f"s_axil_{name}") for name, width, direction in signals)
