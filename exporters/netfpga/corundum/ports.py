# SPDX-License-Identifier: Apache-2.0
"""Parameters and ports of Corundum's ``mqnic_app_block``.

Names, widths and defaults are those of the application template and of the page
``mqnic_app_block`` of Corundum's documentation (https://github.com/corundum/corundum, version of
December 2023). ``mqnic_core`` connects all of them by name.
"""

from __future__ import annotations

from dataclasses import dataclass

APP_ID = "32'h4e334943"  # "N3IC"
_ONE = "1"


@dataclass(frozen=True)
class Port:
    """A port.

    Attributes:
        direction: ``input`` or ``output``.
        width: width in bits, a constant expression of Verilog.
        name: the name.
        value: what an output is tied to; empty for an input and for one that is connected.
    """

    direction: str
    width: str
    name: str
    value: str = ""


@dataclass(frozen=True)
class Stream:
    """A stream that passes the block: from ``s_axis_NAME`` to ``m_axis_NAME``.

    Attributes:
        name: such as ``sync_rx``.
        count: how many of it lie side by side: the parameter of ports or of interfaces.
        signals: names and widths of what moves with ``valid``, and ``valid``.
        ready: name of what moves the other way.
    """

    name: str
    count: str
    signals: tuple[tuple[str, str], ...]
    ready: str

    def ports(self) -> list[Port]:
        """Its ports on both sides."""
        ports = []
        for side, forward, back in (("s", "input", "output"), ("m", "output", "input")):
            for signal, width in (*self.signals, (self.ready, _ONE)):
                way = back if signal == self.ready else forward
                name = f"{side}_axis_{self.name}_{signal}"
                ports.append(Port(way, _times(self.count, width), name))
        return ports


def _times(count: str, width: str) -> str:
    return count if width == _ONE else f"{count}*{width}"


def _packets(name: str, count: str, widths: str, user: str, *more: tuple[str, str]) -> Stream:
    signals = [("tdata", f"{widths}_DATA_WIDTH"), ("tkeep", f"{widths}_KEEP_WIDTH")]
    signals += [("tvalid", _ONE), ("tlast", _ONE), *more, ("tuser", user)]
    return Stream(name, count, tuple(signals), "tready")


def _streams() -> list[Stream]:
    streams = []
    for level, count, widths in (
        ("direct", "PORT_COUNT", "AXIS"),
        ("sync", "PORT_COUNT", "AXIS_SYNC"),
        ("if", "IF_COUNT", "AXIS_IF"),
    ):
        for way in ("TX", "RX"):
            more: tuple[tuple[str, str], ...] = ()
            if level == "if":
                more = tuple((f"t{s}", f"{widths}_{way}_{s.upper()}_WIDTH") for s in ("id", "dest"))
            user = f"{widths}_{way}_USER_WIDTH"
            streams.append(_packets(f"{level}_{way.lower()}", count, widths, user, *more))
        completion = (("ts", "PTP_TS_WIDTH"), ("tag", "TX_TAG_WIDTH"), ("valid", _ONE))
        streams.append(Stream(f"{level}_tx_cpl", count, completion, "ready"))
    return streams


STREAMS = tuple(_streams())
NETWORK = next(stream for stream in STREAMS if stream.name == "if_rx")


def _ports(
    direction: str, prefix: str, signals: str, value: str = "", count: str = ""
) -> list[Port]:
    """Ports of one direction, from pairs ``name:width`` parted by spaces; ``name`` is one bit."""
    ports = []
    for signal in signals.split():
        name, _, width = signal.partition(":")
        width = width or _ONE
        whole = _times(count, width) if count else width
        ports.append(Port(direction, whole, prefix + name, value))
    return ports


def _dma(kind: str) -> list[Port]:
    """DMA descriptors and their memory, unused: what is read is 0, what is written is dropped."""
    common = "dma_addr:DMA_ADDR_WIDTH ram_sel:RAM_SEL_WIDTH ram_addr:RAM_ADDR_WIDTH"
    ends = "len:DMA_LEN_WIDTH tag:DMA_TAG_WIDTH valid"
    ports = []
    for way, more in (("read", ""), ("write", "imm:DMA_IMM_WIDTH imm_en")):
        desc = f"axis_{kind}_dma_{way}_desc_"
        ports += _ports("output", f"m_{desc}", f"{common} {more} {ends}", "0")
        ports += _ports("input", f"m_{desc}", "ready")
        ports += _ports("input", f"s_{desc}status_", "tag:DMA_TAG_WIDTH error:4 valid")
    ram, segments = f"{kind}_dma_ram_", "RAM_SEG_COUNT"
    where = "sel:RAM_SEL_WIDTH addr:RAM_SEG_ADDR_WIDTH valid"
    written = f"{where} be:RAM_SEG_BE_WIDTH data:RAM_SEG_DATA_WIDTH"
    ports += _ports("input", f"{ram}wr_cmd_", written, count=segments)
    ports += _ports("output", f"{ram}wr_cmd_", "ready", "{RAM_SEG_COUNT{1'b1}}", segments)
    ports += _ports("output", f"{ram}wr_", "done", f"{ram}wr_cmd_valid", segments)
    ports += _ports("input", f"{ram}rd_cmd_", where, count=segments)
    ports += _ports("output", f"{ram}rd_cmd_", "ready", f"{ram}rd_resp_ready", segments)
    ports += _ports("output", f"{ram}rd_resp_", "data:RAM_SEG_DATA_WIDTH", "0", segments)
    ports += _ports("output", f"{ram}rd_resp_", "valid", f"{ram}rd_cmd_valid", segments)
    ports += _ports("input", f"{ram}rd_resp_", "ready", count=segments)
    return ports


def _memory(kind: str) -> list[Port]:
    """AXI4 masters of DDR or HBM, unused."""
    axi, count = f"AXI_{kind}", f"{kind}_CH"
    access = f"id:{axi}_ID_WIDTH addr:{axi}_ADDR_WIDTH len:8 size:3 burst:2 lock cache:4"
    data = f"data:{axi}_DATA_WIDTH last"
    bus = f"m_axi_{kind.lower()}_"
    ports = _ports("input", f"{kind.lower()}_", "clk rst status", count=count)
    for way in ("aw", "ar"):
        user = f"user:{axi}_{way.upper()}USER_WIDTH"
        ports += _ports("output", bus + way, f"{access} prot:3 qos:4 {user} valid", "0", count)
        ports += _ports("input", bus + way, "ready", count=count)
    written = f"{data} strb:{axi}_STRB_WIDTH user:{axi}_WUSER_WIDTH valid"
    ports += _ports("output", f"{bus}w", written, "0", count)
    ports += _ports("output", bus, "bready rready", "0", count)
    answer = f"id:{axi}_ID_WIDTH resp:2 valid"
    ports += _ports("input", bus, "wready", count=count)
    ports += _ports("input", f"{bus}b", f"{answer} user:{axi}_BUSER_WIDTH", count=count)
    ports += _ports("input", f"{bus}r", f"{answer} {data} user:{axi}_RUSER_WIDTH", count=count)
    return ports


def _axi_lite() -> list[Port]:
    """The bus of the application's registers, and the unused one to the NIC's registers."""
    ports = []
    for bus, widths, (to, back), value, ready in (
        ("s_axil_app_ctrl_", "AXIL_APP_CTRL", ("input", "output"), "", ""),
        ("m_axil_ctrl_", "AXIL_CTRL", ("output", "input"), "0", "1'b1"),
    ):
        for way in ("aw", "ar"):
            ports += _ports(to, bus + way, f"addr:{widths}_ADDR_WIDTH prot:3 valid", value)
        written = f"data:{widths}_DATA_WIDTH strb:{widths}_STRB_WIDTH valid"
        ports += _ports(to, f"{bus}w", written, value)
        ports += _ports(to, bus, "bready rready", ready)
        ports += _ports(back, bus, "awready wready arready bvalid rvalid bresp:2 rresp:2")
        ports += _ports(back, bus, f"rdata:{widths}_DATA_WIDTH")
    return ports


def _clocks() -> list[Port]:
    """The clock of the PTP, and the clocks of the direct streams."""
    stamp, outs = "PTP_TS_WIDTH", "PTP_PEROUT_COUNT"
    single = "clk rst sample_clk td_sd pps pps_str sync_locked sync_pps sync_pps_str"
    single += f" sync_ts_rel:{stamp} sync_ts_rel_step sync_ts_tod:{stamp} sync_ts_tod_step"
    return [
        *_ports("input", "ptp_", single),
        *_ports("input", "ptp_perout_", f"locked:{outs} error:{outs} pulse:{outs}"),
        *_ports("input", "direct_", "tx_clk tx_rst rx_clk rx_rst", count="PORT_COUNT"),
    ]


PORTS = (
    *_ports("input", "", "clk rst"),
    *_axi_lite(),
    *_dma("ctrl"),
    *_dma("data"),
    *_clocks(),
    *(port for stream in STREAMS for port in stream.ports()),
    *_memory("DDR"),
    *_memory("HBM"),
    *_ports("output", "m_axis_stat_", "tdata:STAT_INC_WIDTH tid:STAT_ID_WIDTH tvalid", "0"),
    *_ports("input", "m_axis_stat_", "tready"),
    *_ports("input", "", "gpio_in:APP_GPIO_IN_WIDTH jtag_tdi jtag_tms jtag_tck"),
    *_ports("output", "", "gpio_out:APP_GPIO_OUT_WIDTH", "0"),
    *_ports("output", "", "jtag_tdo", "jtag_tdi"),
)


def _memory_parameters(kind: str) -> str:
    axi = f"AXI_{kind}"
    users = " ".join(
        f"{axi}_{way}USER_ENABLE=0 {axi}_{way}USER_WIDTH=1" for way in ("AW", "W", "B", "AR", "R")
    )
    return f"""
    {kind}_CH=1 {kind}_ENABLE=0 {kind}_GROUP_SIZE=1
    {axi}_DATA_WIDTH=256 {axi}_ADDR_WIDTH=32 {axi}_STRB_WIDTH={axi}_DATA_WIDTH/8 {axi}_ID_WIDTH=8
    {users} {axi}_MAX_BURST_LEN=256 {axi}_NARROW_BURST=0 {axi}_FIXED_BURST=0 {axi}_WRAP_BURST=0
    """


# Names and defaults, in an order in which each default names earlier parameters only.
PARAMETERS = tuple(
    (name, value)
    for name, _, value in (
        item.partition("=")
        for item in f"""
    IF_COUNT=1 PORTS_PER_IF=1 SCHED_PER_IF=PORTS_PER_IF PORT_COUNT=IF_COUNT*PORTS_PER_IF
    CLK_PERIOD_NS_NUM=4 CLK_PERIOD_NS_DENOM=1 PTP_CLK_PERIOD_NS_NUM=4 PTP_CLK_PERIOD_NS_DENOM=1
    PTP_TS_WIDTH=96 PTP_PORT_CDC_PIPELINE=0 PTP_PEROUT_ENABLE=0 PTP_PEROUT_COUNT=1 PTP_TS_ENABLE=1
    TX_TAG_WIDTH=16 MAX_TX_SIZE=9214 MAX_RX_SIZE=9214
    {_memory_parameters("DDR")} {_memory_parameters("HBM")}
    APP_ID={APP_ID} APP_CTRL_ENABLE=1 APP_DMA_ENABLE=1 APP_AXIS_DIRECT_ENABLE=1
    APP_AXIS_SYNC_ENABLE=1 APP_AXIS_IF_ENABLE=1 APP_STAT_ENABLE=1
    APP_GPIO_IN_WIDTH=32 APP_GPIO_OUT_WIDTH=32
    DMA_ADDR_WIDTH=64 DMA_IMM_ENABLE=0 DMA_IMM_WIDTH=32 DMA_LEN_WIDTH=16 DMA_TAG_WIDTH=16
    RAM_SEL_WIDTH=4 RAM_ADDR_WIDTH=16 RAM_SEG_COUNT=2 RAM_SEG_DATA_WIDTH=256*2/RAM_SEG_COUNT
    RAM_SEG_BE_WIDTH=RAM_SEG_DATA_WIDTH/8
    RAM_SEG_ADDR_WIDTH=RAM_ADDR_WIDTH-$clog2(RAM_SEG_COUNT*RAM_SEG_BE_WIDTH) RAM_PIPELINE=2
    AXIL_APP_CTRL_DATA_WIDTH=32 AXIL_APP_CTRL_ADDR_WIDTH=16
    AXIL_APP_CTRL_STRB_WIDTH=AXIL_APP_CTRL_DATA_WIDTH/8
    AXIL_CTRL_DATA_WIDTH=32 AXIL_CTRL_ADDR_WIDTH=16 AXIL_CTRL_STRB_WIDTH=AXIL_CTRL_DATA_WIDTH/8
    AXIS_DATA_WIDTH=512 AXIS_KEEP_WIDTH=AXIS_DATA_WIDTH/8 AXIS_TX_USER_WIDTH=TX_TAG_WIDTH+1
    AXIS_RX_USER_WIDTH=(PTP_TS_ENABLE?PTP_TS_WIDTH:0)+1 AXIS_RX_USE_READY=0
    AXIS_SYNC_DATA_WIDTH=AXIS_DATA_WIDTH AXIS_SYNC_KEEP_WIDTH=AXIS_SYNC_DATA_WIDTH/8
    AXIS_SYNC_TX_USER_WIDTH=AXIS_TX_USER_WIDTH AXIS_SYNC_RX_USER_WIDTH=AXIS_RX_USER_WIDTH
    AXIS_IF_DATA_WIDTH=AXIS_SYNC_DATA_WIDTH*2**$clog2(PORTS_PER_IF)
    AXIS_IF_KEEP_WIDTH=AXIS_IF_DATA_WIDTH/8 AXIS_IF_TX_ID_WIDTH=12
    AXIS_IF_RX_ID_WIDTH=PORTS_PER_IF>1?$clog2(PORTS_PER_IF):1
    AXIS_IF_TX_DEST_WIDTH=$clog2(PORTS_PER_IF)+4 AXIS_IF_RX_DEST_WIDTH=8
    AXIS_IF_TX_USER_WIDTH=AXIS_SYNC_TX_USER_WIDTH AXIS_IF_RX_USER_WIDTH=AXIS_SYNC_RX_USER_WIDTH
    STAT_ENABLE=1 STAT_INC_WIDTH=24 STAT_ID_WIDTH=12
    """.split()
    )
)
