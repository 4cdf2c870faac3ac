// SPDX-License-Identifier: Apache-2.0
// AXI4-Lite from one clock to another, one access at a time; a write before a read. The clocks may
// have any ratio: a level that changes says that an access or its answer waits, and two registers
// bring it over. All other signals stand still then.
module n3ic_axil_bridge #(
    parameter ADDRESS_W = 12
) (
    // From the shell; it has no strobes
    input  wire                 s_clk,
    input  wire                 s_rst,
    input  wire [ADDRESS_W-1:0] s_axil_awaddr,
    input  wire                 s_axil_awvalid,
    output wire                 s_axil_awready,
    input  wire [31:0]          s_axil_wdata,
    input  wire                 s_axil_wvalid,
    output wire                 s_axil_wready,
    output wire [1:0]           s_axil_bresp,
    output reg                  s_axil_bvalid,
    input  wire                 s_axil_bready,
    input  wire [ADDRESS_W-1:0] s_axil_araddr,
    input  wire                 s_axil_arvalid,
    output wire                 s_axil_arready,
    output wire [31:0]          s_axil_rdata,
    output wire [1:0]           s_axil_rresp,
    output reg                  s_axil_rvalid,
    input  wire                 s_axil_rready,
    // To the registers
    input  wire                 m_clk,
    input  wire                 m_rst,
    output wire [ADDRESS_W-1:0] m_axil_awaddr,
    output reg                  m_axil_awvalid,
    input  wire                 m_axil_awready,
    output wire [31:0]          m_axil_wdata,
    output wire [3:0]           m_axil_wstrb,
    output reg                  m_axil_wvalid,
    input  wire                 m_axil_wready,
    input  wire [1:0]           m_axil_bresp,
    input  wire                 m_axil_bvalid,
    output wire                 m_axil_bready,
    output wire [ADDRESS_W-1:0] m_axil_araddr,
    output reg                  m_axil_arvalid,
    input  wire                 m_axil_arready,
    input  wire [31:0]          m_axil_rdata,
    input  wire [1:0]           m_axil_rresp,
    input  wire                 m_axil_rvalid,
    output wire                 m_axil_rready
);
    // --- the shell's clock ------------------------------------------------------------------
    reg                 asked, busy, writes;  // asked changes with each access
    reg [ADDRESS_W-1:0] address;
    reg [31:0]          word;
    reg                 answered;             // changes with each answer, in the other clock
    (* ASYNC_REG = "TRUE" *) reg [1:0] answered_here;
    wire idle  = !busy && !s_axil_bvalid && !s_axil_rvalid && !s_rst;
    wire write = idle && s_axil_awvalid && s_axil_wvalid;
    wire read  = idle && s_axil_arvalid && !write;
    assign s_axil_awready = write;
    assign s_axil_wready  = write;
    assign s_axil_arready = read;
    always @(posedge s_clk) begin
        answered_here <= {answered_here[0], answered};
        if (write || read) begin
            asked   <= !asked;
            busy    <= 1'b1;
            writes  <= write;
            address <= write ? s_axil_awaddr : s_axil_araddr;
            word    <= s_axil_wdata;
        end
        if (busy && answered_here[1] == asked) begin
            busy          <= 1'b0;
            s_axil_bvalid <= writes;
            s_axil_rvalid <= !writes;
        end
        if (s_axil_bvalid && s_axil_bready) s_axil_bvalid <= 1'b0;
        if (s_axil_rvalid && s_axil_rready) s_axil_rvalid <= 1'b0;
        if (s_rst) begin
            asked         <= 1'b0;
            busy          <= 1'b0;
            s_axil_bvalid <= 1'b0;
            s_axil_rvalid <= 1'b0;
            answered_here <= 2'd0;
        end
    end

    // --- the registers' clock ---------------------------------------------------------------
    reg [31:0] answer;
    reg [1:0]  response;
    (* ASYNC_REG = "TRUE" *) reg [1:0] asked_here;
    reg        running;
    wire       begins = asked_here[1] != answered && !running;
    wire       ends   = m_axil_bvalid || m_axil_rvalid;
    assign s_axil_bresp  = response;
    assign s_axil_rresp  = response;
    assign s_axil_rdata  = answer;
    assign m_axil_awaddr = address;
    assign m_axil_araddr = address;
    assign m_axil_wdata  = word;
    assign m_axil_wstrb  = 4'hf;
    assign m_axil_bready = running;
    assign m_axil_rready = running;
    always @(posedge m_clk) begin
        asked_here <= {asked_here[0], asked};
        if (m_axil_awready) m_axil_awvalid <= 1'b0;
        if (m_axil_wready) m_axil_wvalid <= 1'b0;
        if (m_axil_arready) m_axil_arvalid <= 1'b0;
        if (begins) begin
            running        <= 1'b1;
            m_axil_awvalid <= writes;
            m_axil_wvalid  <= writes;
            m_axil_arvalid <= !writes;
        end
        if (running && ends) begin
            running  <= 1'b0;
            answered <= asked_here[1];
            answer   <= m_axil_rdata;
            response <= m_axil_bvalid ? m_axil_bresp : m_axil_rresp;
        end
        if (m_rst) begin
            running        <= 1'b0;
            answered       <= 1'b0;
            asked_here     <= 2'd0;
            m_axil_awvalid <= 1'b0;
            m_axil_wvalid  <= 1'b0;
            m_axil_arvalid <= 1'b0;
        end
    end
endmodule
