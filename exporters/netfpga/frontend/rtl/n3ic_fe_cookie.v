// SPDX-License-Identifier: Apache-2.0
// HalfSipHash-2-4 (Aumasson and Bernstein) of four words: the part of a SYN cookie that only the
// holder of the key can compute. One round per clock.
module n3ic_fe_cookie (
    input  wire         clk,
    input  wire         rst,
    input  wire [63:0]  key,
    input  wire         start,
    input  wire [127:0] message,  // the first word lowest; read until the hash is valid
    output reg          valid,    // for one clock
    output wire [31:0]  hash
);
    localparam [3:0] LAST = 4'd13;  // ten rounds of words, four at the end
    reg        busy;
    reg [3:0]  round;
    reg [31:0] v0, v1, v2, v3;
    assign hash = v1 ^ v3;

    // Words enter before every other round; the fifth is the length, the sixth ends the message.
    function [31:0] word(input [2:0] index, input [127:0] text);
        case (index)
            3'd0: word = text[31:0];
            3'd1: word = text[63:32];
            3'd2: word = text[95:64];
            3'd3: word = text[127:96];
            3'd4: word = 32'h1000_0000;
            default: word = 32'd0;
        endcase
    endfunction
    wire        even = !round[0] && round <= 4'd10;
    wire [31:0] mixed = even ? word(round[3:1], message) : 32'd0;  // into v3 now
    wire [31:0] done  = even && round != 4'd0 ? word(round[3:1] - 3'd1, message) : 32'd0;  // into v0
    wire [31:0] a0 = v0 ^ done, a1 = v1, a3 = v3 ^ mixed;
    wire [31:0] a2 = round == 4'd10 ? v2 ^ 32'hff : v2;
    wire [31:0] b0 = a0 + a1, b2 = a2 + a3;
    wire [31:0] b1 = {a1[26:0], a1[31:27]} ^ b0, b3 = {a3[23:0], a3[31:24]} ^ b2;
    wire [31:0] c0 = {b0[15:0], b0[31:16]} + b3, c2 = b2 + b1;
    wire [31:0] c3 = {b3[24:0], b3[31:25]} ^ c0, c1 = {b1[18:0], b1[31:19]} ^ c2;
    always @(posedge clk) begin
        valid <= busy && round == LAST && !rst;
        if (start) begin
            busy  <= 1'b1;
            round <= 4'd0;
            v0    <= key[31:0];
            v1    <= key[63:32];
            v2    <= key[31:0] ^ 32'h6c79_6765;
            v3    <= key[63:32] ^ 32'h7465_6462;
        end else if (busy) begin
            round <= round + 4'd1;
            v0    <= c0;
            v1    <= c1;
            v2    <= {c2[15:0], c2[31:16]};
            v3    <= c3;
            if (round == LAST) busy <= 1'b0;
        end
        if (rst) busy <= 1'b0;
    end
endmodule
