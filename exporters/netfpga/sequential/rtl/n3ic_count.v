// SPDX-License-Identifier: Apache-2.0
// Counts the ones among N bits. It counts groups of six bits, then counts the bits of equal weight
// in these counts, and adds the three results.
// Latency in clocks: L(N) = 1 for N <= 6, else 2 + L(ceil(N / 6)).
module n3ic_count #(
    parameter N = 86,
    parameter W = 7  // bits of the result, at least clog2(N + 1)
) (
    input  wire         clk,
    input  wire [N-1:0] bits,
    output wire [W-1:0] count
);
    localparam GROUPS = (N + 5) / 6;
    localparam PAD    = 6 * GROUPS;
    localparam GW     = $clog2(GROUPS + 1);

    wire [PAD-1:0] padded;
    // The sum never reaches its upper bits, which stay unused.
    /* verilator lint_off UNUSEDSIGNAL */
    wire [2:0]     group [0:GROUPS-1];
    /* verilator lint_on UNUSEDSIGNAL */
    genvar g;
    generate
        if (PAD > N) begin : g_pad
            assign padded = {{(PAD - N) {1'b0}}, bits};
        end else begin : g_exact
            assign padded = bits;
        end
        for (g = 0; g < GROUPS; g = g + 1) begin : g_group
            n3ic_compress compress (.clk(clk), .bits(padded[6*g +: 6]), .count(group[g]));
        end
        if (N <= 6) begin : g_one
            assign count = group[0][W-1:0];
        end else begin : g_more
            wire [GROUPS-1:0] plane0, plane1, plane2;
            wire [GW-1:0]     count0, count1, count2;
            reg  [W-1:0]      sum;
            for (g = 0; g < GROUPS; g = g + 1) begin : g_plane
                assign plane0[g] = group[g][0];
                assign plane1[g] = group[g][1];
                assign plane2[g] = group[g][2];
            end
            n3ic_count #(.N(GROUPS), .W(GW)) ones  (.clk(clk), .bits(plane0), .count(count0));
            n3ic_count #(.N(GROUPS), .W(GW)) twos  (.clk(clk), .bits(plane1), .count(count1));
            n3ic_count #(.N(GROUPS), .W(GW)) fours (.clk(clk), .bits(plane2), .count(count2));
            /* verilator lint_off UNUSEDSIGNAL */
            wire [GW+2:0]     total = {3'd0, count0} + {2'd0, count1, 1'b0} + {1'b0, count2, 2'd0};
            /* verilator lint_on UNUSEDSIGNAL */
            always @(posedge clk) sum <= total[W-1:0];
            assign count = sum;
        end
    endgenerate
endmodule
