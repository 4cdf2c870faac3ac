// SPDX-License-Identifier: Apache-2.0
// Sends UDP datagrams with checksums, and answers to ARP, on an AXI4-Stream port.
// Byte b of a payload is payload[8*b +: 8]; bytes beyond its length must be 0.
module n3ic_cluster_tx #(
    parameter BEATS = 5
) (
    input  wire                clk,
    input  wire                rst,
    input  wire [47:0]         mac,       // of this node; big-endian, as all fields here
    input  wire [31:0]         ip,
    input  wire [15:0]         port,
    input  wire                in_valid,
    output wire                in_ready,
    input  wire                in_arp,
    input  wire [47:0]         in_mac,    // the receiver's
    input  wire [31:0]         in_ip,
    input  wire [15:0]         in_port,
    input  wire [15:0]         in_length, // bytes of the payload
    input  wire [256*BEATS-337:0] in_payload,
    output wire [255:0]        m_axis_tdata,
    output wire [31:0]         m_axis_tkeep,
    output wire                m_axis_tvalid,
    input  wire                m_axis_tready,
    output wire                m_axis_tlast
);
    localparam [3:0] LAST = BEATS - 1;
    localparam [15:0] SHORTEST = 16'd60;  // bytes of a frame, without its check sequence

    function [15:0] swap2(input [15:0] x);
        swap2 = {x[7:0], x[15:8]};
    endfunction
    function [31:0] swap4(input [31:0] x);
        swap4 = {x[7:0], x[15:8], x[23:16], x[31:24]};
    endfunction
    function [47:0] swap6(input [47:0] x);
        swap6 = {x[7:0], x[15:8], x[23:16], x[31:24], x[39:32], x[47:40]};
    endfunction
    function [15:0] fold(input [23:0] x);  // end-around carries
        reg [16:0] once;
        begin
            once = {1'b0, x[15:0]} + {9'd0, x[23:16]};
            fold = once[15:0] + {15'd0, once[16]};
        end
    endfunction

    // --- frames -------------------------------------------------------------------------------
    wire [15:0] total = in_length + 16'd28;
    wire [15:0] udp   = in_length + 16'd8;
    // All words of the IPv4 header but the checksum: version, length, DF, TTL 64, UDP, addresses.
    wire [23:0] header = 24'h004500 + {8'd0, total} + 24'h004000 + 24'h004011
                       + {8'd0, ip[31:16]} + {8'd0, ip[15:0]}
                       + {8'd0, in_ip[31:16]} + {8'd0, in_ip[15:0]};
    wire [256*BEATS-1:0] datagram = {
        in_payload,
        16'd0, swap2(udp), swap2(in_port), swap2(port),
        swap4(in_ip), swap4(ip), swap2(~fold(header)), 16'h1140, 16'h0040, 16'd0, swap2(total),
        16'h0045, 16'h0008, swap6(mac), swap6(in_mac)
    };
    wire [256*BEATS-1:0] reply = {
        {(256 * BEATS - 336) {1'b0}},
        swap4(in_ip), swap6(in_mac), swap4(ip), swap6(mac), 64'h0200_0406_0008_0100,
        16'h0608, swap6(mac), swap6(in_mac)
    };

    // --- sum, then send -----------------------------------------------------------------------
    // The frame rotates by one beat per clock: once around for the sum, once more to be sent.
    reg                  summing, sending, arp, summed, ready;
    reg  [256*BEATS-1:0] bytes;
    reg  [3:0]           beat;
    reg  [15:0]          size;  // bytes of the frame
    reg  [23:0]          sum;
    wire [19:0]          beat_sum;
    wire [15:0]          left = size - {7'd0, beat, 5'd0};
    wire                 gone = m_axis_tvalid && m_axis_tready;
    n3ic_cluster_sum partial (
        .clk(clk), .beat(bytes[255:0]),
        .mask((beat == 4'd0) ? 32'hfc000000 : 32'hffffffff), .sum(beat_sum)
    );
    assign in_ready      = !summing && !sending;
    assign m_axis_tvalid = sending && ready;
    assign m_axis_tdata  = bytes[255:0];
    assign m_axis_tlast  = left <= 16'd32;
    assign m_axis_tkeep  = m_axis_tlast ? 32'hffffffff >> (6'd32 - left[5:0]) : 32'hffffffff;
    wire [15:0] check = ~fold(sum);
    always @(posedge clk) begin
        summed <= summing;
        if (summed) sum <= sum + {4'd0, beat_sum};
        if (in_valid && in_ready) begin
            arp     <= in_arp;
            bytes   <= in_arp ? reply : datagram;
            size    <= (in_arp || in_length < SHORTEST - 16'd42) ? SHORTEST : in_length + 16'd42;
            summing <= 1'b1;
            beat    <= 4'd0;
            sum     <= 24'd17 + {8'd0, udp};  // protocol and length of the pseudo-header
        end else if (summing || gone) begin
            bytes <= {bytes[255:0], bytes[256*BEATS-1:256]};
            beat  <= (summing && beat == LAST) ? 4'd0 : beat + 4'd1;
            if (summing && beat == LAST) begin
                summing <= 1'b0;
                sending <= 1'b1;
                ready   <= 1'b0;
            end
            if (gone && m_axis_tlast) sending <= 1'b0;
        end else if (sending && !ready && !summed) begin
            // A checksum of zero would mean that there is none (RFC 768), so it is sent as ones.
            if (!arp) bytes[8*40 +: 16] <= (check == 16'd0) ? 16'hffff : swap2(check);
            ready <= 1'b1;
        end
        if (rst) begin
            summing <= 1'b0;
            sending <= 1'b0;
        end
    end
endmodule
