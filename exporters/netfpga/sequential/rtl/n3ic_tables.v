// SPDX-License-Identifier: Apache-2.0
// Counts the ones among N bits like the paper: a table of 256 entries per octet, then a tree of
// adders with a register per level. Latency in clocks: 1 + clog2(ceil(N / 8)), at least 2.
module n3ic_tables #(
    parameter N = 256,
    parameter W = 9  // bits of the result, at least clog2(N + 1)
) (
    input  wire         clk,
    input  wire [N-1:0] bits,
    output wire [W-1:0] count
);
    localparam OCTETS = (N + 7) / 8;
    localparam LEVELS = (OCTETS > 1) ? $clog2(OCTETS) : 1;
    localparam LEAVES = 1 << LEVELS;
    localparam SW     = 4 + LEVELS;

    reg [3:0] table_of [0:255];
    integer i;
    initial for (i = 0; i < 256; i = i + 1)
        table_of[i] = {3'd0, i[0]} + {3'd0, i[1]} + {3'd0, i[2]} + {3'd0, i[3]}
                    + {3'd0, i[4]} + {3'd0, i[5]} + {3'd0, i[6]} + {3'd0, i[7]};

    wire [8*LEAVES-1:0] padded;
    // Nodes in heap order: 1 is the root, LEAVES and up are the leaves.
    reg  [SW-1:0]       sum [1:2*LEAVES-1];
    genvar g;
    generate
        if (8 * LEAVES > N) begin : g_pad
            assign padded = {{(8 * LEAVES - N) {1'b0}}, bits};
        end else begin : g_exact
            assign padded = bits;
        end
        for (g = 0; g < LEAVES; g = g + 1) begin : g_leaf
            always @(posedge clk) sum[LEAVES + g] <= {{LEVELS {1'b0}}, table_of[padded[8*g +: 8]]};
        end
        for (g = 1; g < LEAVES; g = g + 1) begin : g_node
            always @(posedge clk) sum[g] <= sum[2 * g] + sum[2 * g + 1];
        end
    endgenerate
    assign count = sum[1][W-1:0];
endmodule
