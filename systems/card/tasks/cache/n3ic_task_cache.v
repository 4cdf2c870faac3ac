// SPDX-License-Identifier: Apache-2.0
// A cache of key-value pairs in front of a store, in sets whose oldest pair goes first. A packet
// every two clocks, two clocks each: the second one compares and writes, so that the next packet
// finds what this one wrote.
module n3ic_task_cache #(
    parameter HEAD_W = 552
) (
    input  wire              clk,
    input  wire              rst,
    input  wire              in_valid,
    output wire              in_ready,
    input  wire [HEAD_W-1:0] in_head,
    output reg               out_valid,
    input  wire              out_ready,
    output reg  [HEAD_W-1:0] out_head,
    output reg  [15:0]       out_class,
    /* verilator lint_off UNUSEDSIGNAL */
    input  wire [15:0]       rd_addr,
    /* verilator lint_on UNUSEDSIGNAL */
    output reg  [31:0]       rd_data
);
    localparam SETS = 256;
    localparam WAYS = 4;
    localparam AT   = 8 * 44;  // operation, key, value
    localparam [7:0] GET = 8'd0, SET = 8'd1, FOUND = 8'd2, DELETE = 8'd3;

    // --- the set is read ------------------------------------------------------------------------
    /* verilator lint_off UNUSEDSIGNAL */
    wire [31:0] hash;
    /* verilator lint_on UNUSEDSIGNAL */
    wire [63:0] in_key = in_head[AT+8 +: 64];
    wire [31:0] folded = in_key[31:0] ^ in_key[63:32];
    n3ic_card_mix mix (
        .word({folded[7:0], folded[15:8], folded[23:16], folded[31:24]}), .hash(hash)
    );
    reg              has;
    reg [HEAD_W-1:0] head;
    reg [7:0]        set;
    wire             act = has && (!out_valid || out_ready);
    wire             take = in_valid && in_ready;
    assign in_ready = !has;

    // --- and compared ---------------------------------------------------------------------------
    wire [7:0]      operation = head[AT +: 8];
    wire            writes = operation == SET || operation == FOUND;
    reg [1:0]       oldest [0:SETS-1];
    wire [1:0]      eldest = oldest[set];
    wire [WAYS-1:0] hits;
    wire            hit = |hits;
    wire [128*WAYS-1:0] values;
    integer i;
    initial for (i = 0; i < SETS; i = i + 1) oldest[i] = 2'd0;
    genvar w;
    generate
        for (w = 0; w < WAYS; w = w + 1) begin : g_way
            (* ram_style = "block" *)
            reg [191:0] pairs [0:SETS-1];
            reg         valid [0:SETS-1];
            reg [191:0] pair;
            integer     k;
            initial for (k = 0; k < SETS; k = k + 1) valid[k] = 1'b0;
            wire mine = hit ? hits[w] : eldest == w[1:0];
            assign hits[w] = valid[set] && pair[63:0] == head[AT+8 +: 64];
            assign values[128*w +: 128] = pair[191:64] & {128 {hits[w]}};
            always @(posedge clk) begin
                if (take) pair <= pairs[hash[7:0]];
                if (act && writes && mine) pairs[set] <= head[AT+8 +: 192];
                if (act && writes && mine) valid[set] <= 1'b1;
                if (act && operation == DELETE && hits[w]) valid[set] <= 1'b0;
            end
        end
    endgenerate

    // --- its answer -------------------------------------------------------------------------------
    wire [HEAD_W-1:0] reply;
    n3ic_card_reply #(.HEAD_W(HEAD_W)) back (.head(head), .reply(reply));
    reg [127:0]       value;
    reg [HEAD_W-1:0]  sent;
    integer v;
    wire              answers = operation == GET && hit;
    always @* begin
        value = 128'd0;
        for (v = 0; v < WAYS; v = v + 1) value = value | values[128*v +: 128];
        sent = answers ? reply : head;
        if (answers) sent[AT +: 8] = FOUND;
        if (answers) sent[AT+72 +: 128] = value;
    end
    reg [31:0] gets, found, written;
    always @(posedge clk) begin
        if (take) begin
            head <= in_head;
            set  <= hash[7:0];
        end
        has <= take || (has && !act);
        if (out_ready) out_valid <= 1'b0;
        if (act) begin
            out_valid <= 1'b1;
            out_head  <= sent;
            out_class <= {15'd0, answers};
            if (operation == GET) gets <= gets + 1'b1;
            if (answers) found <= found + 1'b1;
            if (writes) written <= written + 1'b1;
            if (writes && !hit) oldest[set] <= eldest + 1'b1;
        end
        rd_data <= (rd_addr[1:0] == 2'd0) ? gets : (rd_addr[1:0] == 2'd1) ? found
                 : (rd_addr[1:0] == 2'd2) ? written : 32'd0;
        if (rst) begin
            has       <= 1'b0;
            out_valid <= 1'b0;
            gets      <= 32'd0;
            found     <= 32'd0;
            written   <= 32'd0;
        end
    end
endmodule
