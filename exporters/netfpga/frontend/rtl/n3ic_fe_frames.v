// SPDX-License-Identifier: Apache-2.0
// Turns answers into Ethernet frames: writes the headers and appends the payload. Sources take
// turns. While an answer waits, one beat leaves per clock.
/* verilator lint_off WIDTH */  // loop variables have 32 bits
module n3ic_fe_frames #(
    parameter W       = 64,
    parameter SOURCES = 3,
    parameter META_W  = 236,
    parameter [15:0] MSS = 16'd1460
) (
    input  wire                      clk,
    input  wire                      rst,
    input  wire [47:0]               cfg_mac,
    input  wire [31:0]               cfg_ip,
    input  wire [15:0]               cfg_port,
    // Kind (1 ARP, 2 echo, 3 UDP, 4 TCP), MAC, IP, port, bytes of payload, their sum. For TCP also
    // sequence and acknowledgement number, our port, flags, window, and whether to announce the MSS.
    input  wire [SOURCES-1:0]        meta_valid,
    input  wire [META_W*SOURCES-1:0] metas,
    output wire [SOURCES-1:0]        meta_pop,
    input  wire [SOURCES-1:0]        beat_valid,
    input  wire [8*W*SOURCES-1:0]    beats,
    output wire [SOURCES-1:0]        beat_pop,

    output reg  [8*W-1:0]            m_axis_tdata,
    output reg  [W-1:0]              m_axis_tkeep,
    output reg                       m_axis_tvalid,
    input  wire                      m_axis_tready,
    output reg                       m_axis_tlast
);
    localparam HEADER = 58;
    localparam LOG = $clog2(W);
    integer i, j;

    // --- whose turn it is -------------------------------------------------------------------
    reg  [SOURCES-1:0] served;  // sources that had their turn in this round
    reg  [SOURCES-1:0] grant;
    always @* begin
        grant = {SOURCES {1'b0}};
        for (i = SOURCES - 1; i >= 0; i = i - 1)
            if (meta_valid[i]) grant = {{(SOURCES - 1) {1'b0}}, 1'b1} << i;
        for (i = SOURCES - 1; i >= 0; i = i - 1)
            if (meta_valid[i] && !served[i]) grant = {{(SOURCES - 1) {1'b0}}, 1'b1} << i;
    end
    reg  [META_W-1:0] chosen;
    always @* begin
        chosen = {META_W {1'b0}};
        for (i = 0; i < SOURCES; i = i + 1) if (grant[i]) chosen = chosen | metas[META_W*i +: META_W];
    end
    wire free_a, free_b, free_c, ends;
    assign meta_pop = free_a ? grant : {SOURCES {1'b0}};
    reg              valid_a;
    reg [META_W-1:0] meta_a;
    reg [SOURCES-1:0] source_a;
    always @(posedge clk) begin
        if (free_a) begin
            valid_a  <= |grant;
            meta_a   <= chosen;
            source_a <= grant;
            served   <= |(grant & served) ? grant : served | grant;
        end
        if (rst) begin
            valid_a <= 1'b0;
            served  <= {SOURCES {1'b0}};
        end
    end

    // --- sums -------------------------------------------------------------------------------
    wire [2:0]  kind;
    wire [31:0] ip, seq, ack;
    wire [15:0] port, length, sum, own, window;
    wire [7:0]  flags;
    wire        mss;
    /* verilator lint_off UNUSEDSIGNAL */
    wire [47:0] mac;
    /* verilator lint_on UNUSEDSIGNAL */
    assign {kind, mac, ip, port, length, sum, seq, ack, own, flags, window, mss} = meta_a;
    wire        tcp   = kind == 3'd4;
    wire        udp   = kind == 3'd3;
    wire [15:0] head  = tcp ? (mss ? 16'd24 : 16'd20) : udp ? 16'd8 : 16'd4;  // bytes after IPv4's
    wire [15:0] inner = head + length;
    wire [7:0]  protocol = tcp ? 8'd6 : udp ? 8'd17 : 8'd1;
    wire [15:0] from  = tcp ? own : cfg_port;
    reg               valid_b;
    reg [META_W-1:0]  meta_b;
    reg [SOURCES-1:0] source_b;
    reg [19:0]        ip_sum_b, sum_b;
    reg [15:0]        inner_b, from_b;
    reg [7:0]         protocol_b;
    always @(posedge clk) begin
        if (free_b) begin
            valid_b    <= valid_a;
            meta_b     <= meta_a;
            source_b   <= source_a;
            inner_b    <= inner;
            protocol_b <= protocol;
            from_b     <= from;
            ip_sum_b   <= 20'h08500 + {4'd0, inner + 16'd20} + {4'd0, 8'd64, protocol}
                + {4'd0, cfg_ip[31:16]} + {4'd0, cfg_ip[15:0]} + {4'd0, ip[31:16]} + {4'd0, ip[15:0]};
            // An echo has no pseudo header, and its type and code are 0.
            sum_b <= kind == 3'd2 ? {4'd0, sum} : {4'd0, sum} + {12'd0, protocol} + {4'd0, inner}
                + {4'd0, cfg_ip[31:16]} + {4'd0, cfg_ip[15:0]} + {4'd0, ip[31:16]} + {4'd0, ip[15:0]}
                + {4'd0, from} + {4'd0, port}
                + (tcp ? {4'd0, head[5:2], 4'd0, flags} + {4'd0, window} + {4'd0, seq[31:16]} + {4'd0, seq[15:0]}
                         + {4'd0, ack[31:16]} + {4'd0, ack[15:0]} + (mss ? 20'h00204 + {4'd0, MSS} : 20'd0)
                       : {4'd0, inner});
        end
        if (rst) valid_b <= 1'b0;
    end

    // --- headers, their first byte highest ------------------------------------------------------
    function [15:0] folded(input [19:0] value);
        reg [16:0] half;
        begin
            half   = {1'b0, value[15:0]} + {13'd0, value[19:16]};
            folded = ~(half[15:0] + {15'd0, half[16]});
        end
    endfunction
    wire [2:0]  kind_b;
    wire [47:0] mac_b;
    wire [31:0] ip_b, seq_b, ack_b;
    wire [15:0] port_b, length_b, window_b;
    /* verilator lint_off UNUSEDSIGNAL */
    wire [15:0] sum_of_b, own_b;  // in sum_b and from_b
    /* verilator lint_on UNUSEDSIGNAL */
    wire [7:0]  flags_b;
    wire        mss_b;
    assign {kind_b, mac_b, ip_b, port_b, length_b, sum_of_b, seq_b, ack_b, own_b, flags_b, window_b, mss_b} = meta_b;
    wire [15:0] check = folded(sum_b);
    wire [159:0] ip_header = {
        16'h4500, inner_b + 16'd20, 16'h0000, 16'h4000, 8'd64, protocol_b, folded(ip_sum_b), cfg_ip, ip_b
    };
    wire [8*HEADER-1:0] header_b =
        kind_b == 3'd1 ? {mac_b, cfg_mac, 16'h0806, 64'h0001_0800_0604_0002, cfg_mac, cfg_ip, mac_b, ip_b, 128'd0}
        : {mac_b, cfg_mac, 16'h0800, ip_header,
            kind_b == 3'd2 ? {16'h0000, check, 160'd0}
            : kind_b == 3'd3 ? {from_b, port_b, inner_b, check == 16'd0 ? 16'hffff : check, 128'd0}
            : {from_b, port_b, seq_b, ack_b, mss_b ? 4'd6 : 4'd5, 4'd0, flags_b, window_b, check, 16'd0,
                mss_b ? {16'h0204, MSS} : 32'd0}};
    reg                valid_c;
    reg [8*HEADER-1:0] header_c;  // its first byte lowest
    reg [SOURCES-1:0]  source_c;
    reg [6:0]          head_c;    // bytes of it
    reg [15:0]         length_c, frame_c;
    wire [6:0]  head_b  = kind_b == 3'd1 || kind_b == 3'd3 ? 7'd42 : kind_b == 3'd2 ? 7'd38 : mss_b ? 7'd58 : 7'd54;
    wire [15:0] whole_b = {9'd0, head_b} + length_b;
    always @(posedge clk) begin
        if (free_c) begin
            valid_c  <= valid_b;
            source_c <= source_b;
            head_c   <= head_b;
            length_c <= length_b;
            frame_c  <= whole_b < 16'd60 ? 16'd60 : whole_b;
            for (i = 0; i < HEADER; i = i + 1)
                header_c[8*i +: 8] <= i < head_b ? header_b[8*(HEADER - 1 - i) +: 8] : 8'd0;
        end
        if (rst) valid_c <= 1'b0;
    end

    // --- beats ---------------------------------------------------------------------------------
    reg  [12:0]    index;  // number of the frame's next beat
    reg  [15:0]    sent;   // bytes of the payload taken from the source
    reg  [8*W-1:0] earlier; // the previous beat of the payload
    wire [12:0]    split = {6'd0, head_c >> LOG};  // the beat in which the header ends
    reg  [8*W-1:0] now;
    reg            there;
    always @* begin
        now = {8*W {1'b0}};
        there = 1'b0;
        for (i = 0; i < SOURCES; i = i + 1)
            if (source_c[i]) begin
                now   = now | beats[8*W*i +: 8*W];
                there = there | beat_valid[i];
            end
    end
    wire needs = index >= split && sent < length_c;
    wire ready = valid_c && (!needs || there);
    wire send  = ready && (!m_axis_tvalid || m_axis_tready);
    wire [15:0] place = {3'd0, index} << LOG;
    wire [15:0] left  = frame_c - place;
    assign ends   = send && left <= W;
    assign free_c = !valid_c || ends;
    assign free_b = !valid_b || free_c;
    assign free_a = !valid_a || free_b;
    assign beat_pop = send && needs ? source_c : {SOURCES {1'b0}};
    // The payload is rotated by the bytes that the header leaves in a beat: 42, 38, 54 or 58 bytes.
    wire [8*W-1:0]  current = needs ? now : {8*W {1'b0}};
    wire [16*W-1:0] pair = {current, index > split ? earlier : {8*W {1'b0}}};
    reg  [8*W-1:0]  body, heading;
    always @* begin
        body = {8*W {1'b0}};
        for (i = 38; i <= 58; i = i + 4)
            if (head_c == i) body = pair >> (8 * (W - i % W));
        heading = {8*W {1'b0}};
        for (j = 0; j < (HEADER + W - 1) / W; j = j + 1)
            if (index == j)
                for (i = 0; i < W; i = i + 1)
                    if (j * W + i < HEADER) heading[8*i +: 8] = header_c[8*((j * W + i) % HEADER) +: 8];
    end
    always @(posedge clk) begin
        if (send) begin
            m_axis_tdata  <= (index >= split ? body : {8*W {1'b0}}) | heading;
            m_axis_tlast  <= left <= W;
            for (i = 0; i < W; i = i + 1) m_axis_tkeep[i] <= i < left;
            index  <= ends ? 13'd0 : index + 1'b1;
            sent   <= ends ? 16'd0 : needs ? sent + W : sent;
            earlier <= current;
        end
        m_axis_tvalid <= send || (m_axis_tvalid && !m_axis_tready);
        if (rst) begin
            m_axis_tvalid <= 1'b0;
            index <= 13'd0;
            sent  <= 16'd0;
        end
    end
endmodule
/* verilator lint_on WIDTH */
