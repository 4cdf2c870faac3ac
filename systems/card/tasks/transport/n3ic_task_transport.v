// SPDX-License-Identifier: Apache-2.0
// The card's part of a go-back-N transport: numbers packets, and asks for lost ones. A packet a
// clock, two clocks each: the second one reads and writes its connection.
module n3ic_task_transport #(
    parameter HEAD_W = 416
) (
    input  wire              clk,
    input  wire              rst,
    input  wire              in_valid,
    output wire              in_ready,
    input  wire [HEAD_W-1:0] in_head,
    output reg               out_valid,
    input  wire              out_ready,
    output reg  [HEAD_W-1:0] out_head,
    output reg  [15:0]       out_class
);
    localparam CONNECTIONS = 256;
    localparam AT = 8 * 44;  // kind, spare, connection, sequence
    localparam [7:0] SEND = 8'd0, DATA = 8'd1, NACK = 8'd2, OPEN = 8'd3;
    (* ram_style = "distributed" *)
    reg [31:0] nexts [0:CONNECTIONS-1];
    (* ram_style = "distributed" *)
    reg [32:0] expects [0:CONNECTIONS-1];  // asked, expected
    integer i;
    initial for (i = 0; i < CONNECTIONS; i = i + 1) begin
        nexts[i]   = 32'd0;
        expects[i] = 33'd0;
    end
    reg               has;
    reg [HEAD_W-1:0]  head;
    wire              step = !out_valid || out_ready;
    wire [7:0]        kind     = head[AT +: 8];
    wire [7:0]        at       = head[AT+24 +: 8];
    wire [31:0]       sequence_ = {head[AT+32 +: 8], head[AT+40 +: 8], head[AT+48 +: 8], head[AT+56 +: 8]};
    wire [31:0]       number   = nexts[at];
    wire [31:0]       expected = expects[at][31:0];
    wire              asked    = expects[at][32];
    wire [31:0]       ahead    = sequence_ - expected;
    wire              due      = ahead == 32'd0;
    wire              later    = !ahead[31];
    wire              denied   = kind == DATA && !due && later && asked;
    wire              asks     = kind == DATA && !due && !denied;
    wire [HEAD_W-1:0] reply;
    n3ic_card_reply #(.HEAD_W(HEAD_W)) back (.head(head), .reply(reply));
    reg [HEAD_W-1:0]  sent;
    assign in_ready = step;
    always @* begin
        sent = asks ? reply : head;
        if (kind == SEND) begin
            sent[AT +: 8]     = DATA;
            sent[AT+32 +: 32] = {number[7:0], number[15:8], number[23:16], number[31:24]};
        end
        if (asks) begin
            sent[AT +: 8]     = NACK;
            sent[AT+32 +: 32] = {expected[7:0], expected[15:8], expected[23:16], expected[31:24]};
        end
    end
    always @(posedge clk) begin
        if (step) begin
            has       <= in_valid;
            head      <= in_head;
            out_valid <= has;
            out_head  <= sent;
            out_class <= denied ? 16'hfffe : asks ? 16'd1 : (kind == NACK) ? 16'd2 : 16'd0;
            if (has && kind == SEND) nexts[at] <= number + 32'd1;
            if (has && kind == NACK) nexts[at] <= sequence_;
            if (has && kind == OPEN) nexts[at] <= 32'd0;
            if (has && kind == OPEN) expects[at] <= 33'd0;
            if (has && kind == DATA && due) expects[at] <= {1'b0, expected + 32'd1};
            if (has && asks && later) expects[at] <= {1'b1, expected};
        end
        if (rst) begin
            has       <= 1'b0;
            out_valid <= 1'b0;
        end
    end
endmodule
