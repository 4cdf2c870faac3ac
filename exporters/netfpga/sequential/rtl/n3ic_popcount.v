// SPDX-License-Identifier: Apache-2.0
// Computes popcount(XNOR(w, x) & mask) of N pairs, a new one each clock. `side` is delayed as the
// count is. `side_early` leaves two clocks before, to address the memory of thresholds.
module n3ic_popcount #(
    parameter N      = 256,
    parameter W      = 9,  // bits of the result, at least clog2(N + 1)
    parameter SIDE_W = 8,
    parameter MASKED = 0,  // 1: a mask says which connections count
    parameter TABLES = 0   // 1: tables of 256 entries as in the paper, 0: compressors
) (
    input  wire              clk,
    input  wire              rst,
    input  wire              in_valid,
    input  wire [SIDE_W-1:0] in_side,
    input  wire [N-1:0]      weights,
    input  wire [N-1:0]      mask,
    input  wire [N-1:0]      inputs,
    output wire              out_valid,
    output wire [SIDE_W-1:0] out_side,
    output wire [SIDE_W-1:0] side_early,
    output wire [W-1:0]      count
);
    // Pairs of a first-level group: as many as six table inputs hold.
    localparam PAIRS  = (MASKED != 0) ? 2 : 3;
    localparam GROUPS = (N + PAIRS - 1) / PAIRS;
    localparam GW     = $clog2(GROUPS + 1);

    function integer count_latency(input integer n);
        integer left;
        begin
            count_latency = 1;
            for (left = n; left > 6; left = (left + 5) / 6) count_latency = count_latency + 2;
        end
    endfunction
    localparam LATENCY = (TABLES == 0) ? 2 + count_latency(GROUPS)
                       : (N > 8) ? 2 + $clog2((N + 7) / 8) : 3;

    wire [N-1:0] agree;
    generate
        if (MASKED != 0) begin : g_mask
            assign agree = ~(weights ^ inputs) & mask;
        end else begin : g_all
            /* verilator lint_off UNUSEDSIGNAL */
            wire [N-1:0] unused = mask;
            /* verilator lint_on UNUSEDSIGNAL */
            assign agree = ~(weights ^ inputs);
        end
    endgenerate

    genvar g;
    generate
        if (TABLES != 0) begin : g_tables
            reg [N-1:0] agree_q;
            always @(posedge clk) agree_q <= agree;
            n3ic_tables #(.N(N), .W(W)) tables (.clk(clk), .bits(agree_q), .count(count));
        end else begin : g_compress
            wire [3*GROUPS-1:0] a;
            reg  [GROUPS-1:0]   odd, two;
            wire [GW-1:0]       odds, twos;
            reg  [W-1:0]        sum;
            for (g = 0; g < GROUPS; g = g + 1) begin : g_group
                // Written per bit, as the last group may be short and masked groups hold two.
                assign a[3*g] = agree[PAIRS*g];
                if (PAIRS * g + 1 < N) begin : g_second
                    assign a[3*g+1] = agree[PAIRS*g+1];
                end else begin : g_no_second
                    assign a[3*g+1] = 1'b0;
                end
                if (PAIRS == 3 && PAIRS * g + 2 < N) begin : g_third
                    assign a[3*g+2] = agree[PAIRS*g+2];
                end else begin : g_no_third
                    assign a[3*g+2] = 1'b0;
                end
                always @(posedge clk) begin
                    odd[g] <= ^a[3*g +: 3];
                    two[g] <= (a[3*g] & a[3*g+1]) | (a[3*g+2] & (a[3*g] | a[3*g+1]));
                end
            end
            n3ic_count #(.N(GROUPS), .W(GW)) count_odd (.clk(clk), .bits(odd), .count(odds));
            n3ic_count #(.N(GROUPS), .W(GW)) count_two (.clk(clk), .bits(two), .count(twos));
            /* verilator lint_off UNUSEDSIGNAL */
            wire [GW+1:0] total = {2'd0, odds} + {1'b0, twos, 1'b0};  // at most N
            /* verilator lint_on UNUSEDSIGNAL */
            always @(posedge clk) sum <= total[W-1:0];
            assign count = sum;
        end
    endgenerate

    // Only the valid bits are reset: the others may become shift registers.
    reg [LATENCY-1:0]        valid;
    reg [SIDE_W-1:0]         side [0:LATENCY-1];
    integer i;
    always @(posedge clk) begin
        valid   <= rst ? {LATENCY {1'b0}} : {valid[LATENCY-2:0], in_valid};
        side[0] <= in_side;
        for (i = 1; i < LATENCY; i = i + 1) side[i] <= side[i-1];
    end
    assign out_valid  = valid[LATENCY-1];
    assign out_side   = side[LATENCY-1];
    assign side_early = side[LATENCY-3];
endmodule
