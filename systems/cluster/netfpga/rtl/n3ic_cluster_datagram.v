// SPDX-License-Identifier: Apache-2.0
// The responder's first half: drops every UDP payload that is not a datagram of the cluster with
// at most one packet. A datagram has a header of 22 bytes, packets of 64 bytes and a CRC-32
// (docs/reference/cluster-protocol.md). Numbers are big-endian.
module n3ic_cluster_datagram (
    input  wire          clk,
    input  wire          rst,
    // The payload of n3ic_cluster_rx
    input  wire          in_valid,
    output wire          in_taken,
    input  wire [15:0]   in_length,
    input  wire [719:0]  in_payload,  // byte b in in_payload[8*b +: 8]
    // Valid until taken
    output reg           out_valid,
    input  wire          out_taken,
    output reg           begins,
    output reg           acknowledges,
    output reg           carries,     // a packet
    output reg  [31:0]   session,
    output reg  [7:0]    sender,
    output reg  [7:0]    receiver,
    output reg  [31:0]   sequence_,
    output reg  [31:0]   acknowledge,
    output reg  [31:0]   selective,
    output reg  [511:0]  packet,
    output reg           bad          // one clock for each dropped payload
);
    localparam [3:0] SHORT = 4'd3, LONG = 4'd11;  // words of 8 bytes under the CRC

    wire [175:0] head;
    wire [511:0] body;
    genvar g;
    generate
        for (g = 0; g < 22; g = g + 1) begin : g_head
            assign head[8*(21-g) +: 8] = in_payload[8*g +: 8];
        end
        for (g = 0; g < 64; g = g + 1) begin : g_body
            assign body[8*(63-g) +: 8] = in_payload[8*(22+g) +: 8];
        end
    endgenerate
    wire       has_packet = head[148:144] == 5'd1;
    wire [3:0] words      = has_packet ? LONG : SHORT;
    wire       shaped     = head[175:152] == 24'h4e3301 && head[149] == 1'b0
                         && (has_packet || head[148:144] == 5'd0)
                         && in_length == (has_packet ? 16'd90 : 16'd26)
                         && (head[150] || head[63:0] == 64'd0)
                         && (has_packet || head[95:64] == 32'd0)
                         && (!head[151] || (has_packet && head[95:64] == 32'd0));

    // Two zero bytes go first to fill whole words; they leave the register's initial 0 unchanged.
    // Inverting the first four bytes of the datagram equals starting the register with ones.
    reg          busy;
    reg  [3:0]   at;
    reg  [31:0]  crc;
    wire [31:0]  crc_next;
    wire [703:0] summed = {in_payload[687:32], ~in_payload[31:0], 16'd0};
    wire [63:0]  word   = summed[64*at +: 64];
    n3ic_cluster_crc step (.crc(crc), .word(word), .next(crc_next));
    wire [31:0]  sent   = has_packet ? in_payload[719:688] : in_payload[207:176];
    // The four bytes of the CRC are big-endian.
    wire         fits   = {sent[7:0], sent[15:8], sent[23:16], sent[31:24]} == ~crc;
    wire         judge  = busy && at == words && !out_valid;
    assign in_taken = judge;
    always @(posedge clk) begin
        if (in_valid && !busy) begin
            busy <= 1'b1;
            at   <= 4'd0;
            crc  <= 32'd0;
        end else if (busy && at != words) begin
            at  <= at + 4'd1;
            crc <= crc_next;
        end else if (judge) begin
            busy         <= 1'b0;
            begins       <= head[151];
            acknowledges <= head[150];
            carries      <= has_packet;
            session      <= head[143:112];
            sender       <= head[111:104];
            receiver     <= head[103:96];
            sequence_    <= head[95:64];
            acknowledge  <= head[63:32];
            selective    <= head[31:0];
            packet       <= body;
        end
        out_valid <= ((judge && shaped && fits) || (out_valid && !out_taken)) && !rst;
        bad       <= judge && !(shaped && fits) && !rst;
        if (rst) busy <= 1'b0;
    end
endmodule
