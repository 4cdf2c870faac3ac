// SPDX-License-Identifier: Apache-2.0
// Takes frames from an AXI4-Stream port and delivers those for this node: ARP requests, and UDP
// datagrams with correct lengths and checksums. It drops all other frames. Of these it counts IPv4
// for this node's address as `bad`.
//
// Accepts IPv4 without options, fragments (DF may be set) or a VLAN tag; a UDP checksum may be
// absent. A frame has at most BEATS beats. Byte b of a frame is frame[8*b +: 8].
module n3ic_cluster_rx #(
    parameter BEATS = 5
) (
    input  wire                clk,
    input  wire                rst,
    input  wire [47:0]         mac,   // of this node; big-endian, as all fields here
    input  wire [31:0]         ip,
    input  wire [15:0]         port,
    input  wire [255:0]        s_axis_tdata,
    input  wire [31:0]         s_axis_tkeep,
    input  wire                s_axis_tvalid,
    output wire                s_axis_tready,
    input  wire                s_axis_tlast,
    // At most one of the two is valid, until it is taken
    output reg                 arp_valid,
    output reg                 udp_valid,
    input  wire                taken,
    output wire [47:0]         from_mac,  // of ARP
    output wire [31:0]         from_ip,
    output wire [15:0]         length,    // bytes of a UDP payload
    output wire [256*BEATS-1:0] frame,
    output reg                 bad,       // one clock for each
    output wire                idle
);
    reg  [256*BEATS-1:0] bytes;
    reg  [3:0]  at;        // received beats; stops at BEATS
    reg  [15:0] size;      // received bytes
    reg         hole;      // in tkeep
    reg  [3:0]  judging;   // clocks since the last beat, one-hot
    reg         waiting;   // for the receiver
    wire        take = s_axis_tvalid && s_axis_tready;
    wire        fits = {28'd0, at} < BEATS;
    assign s_axis_tready = judging == 4'd0 && !waiting;
    assign frame = bytes;
    assign idle  = at == 4'd0 && judging == 4'd0 && !waiting && !bad;

    // --- collect ------------------------------------------------------------------------------
    reg  [5:0] ones;
    integer b, m, w, k;  // one for each block, because the blocks run concurrently
    always @* begin
        ones = 6'd0;
        for (b = 0; b < 32; b = b + 1) ones = ones + {5'd0, s_axis_tkeep[b]};
    end
    wire [31:0] above = s_axis_tkeep + 32'd1;  // a power of two where the low bits are set
    wire torn = s_axis_tkeep == 32'd0 || (s_axis_tkeep & above) != 32'd0
             || (!s_axis_tlast && s_axis_tkeep != 32'hffffffff);
    reg  [255:0] beat_q;
    reg  [3:0]   at_q;
    reg          took;
    always @(posedge clk) begin
        took <= take && fits && !rst;
        if (take) begin
            beat_q <= s_axis_tdata;
            at_q   <= at;
            size   <= ((at == 4'd0) ? 16'd0 : size) + {10'd0, ones};
            hole   <= torn || (hole && at != 4'd0);
            at     <= s_axis_tlast ? 4'd0 : fits ? at + 4'd1 : at;
            for (k = 0; k < BEATS; k = k + 1)
                if ({28'd0, at} == k) bytes[256*k +: 256] <= s_axis_tdata;
        end
        judging <= {judging[2:0], take && s_axis_tlast};
        waiting <= (judging[3] && (is_arp || is_udp)) || (waiting && !taken);
        if (rst) begin
            at      <= 4'd0;
            judging <= 4'd0;
            waiting <= 1'b0;
        end
    end

    // --- fields -------------------------------------------------------------------------------
    function [15:0] swap2(input [15:0] x);
        swap2 = {x[7:0], x[15:8]};
    endfunction
    function [31:0] swap4(input [31:0] x);
        swap4 = {x[7:0], x[15:8], x[23:16], x[31:24]};
    endfunction
    function [47:0] swap6(input [47:0] x);
        swap6 = {x[7:0], x[15:8], x[23:16], x[31:24], x[39:32], x[47:40]};
    endfunction
    wire [15:0] ethertype  = swap2(bytes[8*12 +: 16]);
    wire [15:0] total      = swap2(bytes[8*16 +: 16]);
    wire [15:0] udp_length = swap2(bytes[8*38 +: 16]);
    wire        is_ip      = ethertype == 16'h0800 && bytes[8*14 +: 8] == 8'h45
                          && swap6(bytes[0 +: 48]) == mac && swap4(bytes[8*30 +: 32]) == ip;
    wire        arp_asks   = ethertype == 16'h0806 && swap4(bytes[8*38 +: 32]) == ip
                          && bytes[8*14 +: 64] == 64'h0100_0406_0008_0100;  // IPv4, a request
    assign from_mac  = swap6(bytes[8*22 +: 48]);
    assign from_ip   = swap4(bytes[8*28 +: 32]);
    assign length    = udp_length - 16'd8;

    // --- checksums ----------------------------------------------------------------------------
    // Beat 0 counts from byte 26, where the addresses start; the last beat up to the UDP length.
    wire [15:0] told  = (at_q == 4'd1) ? swap2(beat_q[8*6 +: 16]) : udp_length;
    wire [15:0] begin_at = {7'd0, at_q, 5'd0};
    wire [15:0] end_at   = told + 16'd34;
    reg  [31:0] mask;
    always @*
        for (m = 0; m < 32; m = m + 1)
            mask[m] = (at_q == 4'd0) ? m >= 26 : begin_at + m[15:0] < end_at;
    wire [19:0] beat_sum;
    n3ic_cluster_sum partial (.clk(clk), .beat(beat_q), .mask(mask), .sum(beat_sum));
    function [15:0] fold(input [23:0] x);  // end-around carries
        reg [16:0] once;
        begin
            once = {1'b0, x[15:0]} + {9'd0, x[23:16]};
            fold = once[15:0] + {15'd0, once[16]};
        end
    endfunction
    reg         summing, first;
    reg  [23:0] udp_sum, ip_sum;
    reg  [19:0] header;
    always @* begin
        header = 20'd0;
        for (w = 0; w < 10; w = w + 1) header = header + {4'd0, swap2(bytes[8*14+16*w +: 16])};
    end
    always @(posedge clk) begin
        summing <= took;
        first   <= at_q == 4'd0;
        if (summing) udp_sum <= (first ? 24'd17 : udp_sum) + {4'd0, beat_sum};
        ip_sum <= {4'd0, header};
    end

    // --- judge --------------------------------------------------------------------------------
    wire whole  = !hole && size >= 16'd42 && {16'd0, size} <= 32 * BEATS;
    wire is_arp = whole && arp_asks;
    wire is_udp = whole && is_ip && {bytes[8*20 +: 6], bytes[8*21 +: 8]} == 14'd0
               && !bytes[8*20+7] && bytes[8*23 +: 8] == 8'd17
               && swap2(bytes[8*36 +: 16]) == port && udp_length >= 16'd8
               && {1'b0, total} == {1'b0, udp_length} + 17'd20
               && {1'b0, size} >= {1'b0, total} + 17'd14
               && fold(ip_sum) == 16'hffff
               && (bytes[8*40 +: 16] == 16'd0 || fold(udp_sum + {8'd0, udp_length}) == 16'hffff);
    always @(posedge clk) begin
        arp_valid <= ((judging[3] && is_arp) || (arp_valid && !taken)) && !rst;
        udp_valid <= ((judging[3] && is_udp) || (udp_valid && !taken)) && !rst;
        bad       <= judging[3] && size >= 16'd34 && is_ip && !is_udp && !rst;
    end
endmodule
