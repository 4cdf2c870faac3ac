// SPDX-License-Identifier: Apache-2.0
// The sum or the maximum of COUNT signed numbers, two clocks later: of four at a time, then of all.
module n3ic_cluster_combine #(
    parameter COUNT   = 16,  // a multiple of 4
    parameter WIDTH   = 44,
    parameter MAXIMUM = 0
) (
    input  wire                    clk,
    input  wire [WIDTH*COUNT-1:0]  parts,
    output reg  signed [WIDTH-1:0] whole
);
    localparam GROUPS = COUNT / 4;
    wire signed [WIDTH-1:0] wholes [0:GROUPS-1];
    genvar g;
    generate
        for (g = 0; g < GROUPS; g = g + 1) begin : g_group
            reg signed [WIDTH-1:0] group;
            always @(posedge clk)
                group <= both(both(parts[WIDTH*(4*g) +: WIDTH], parts[WIDTH*(4*g+1) +: WIDTH]),
                              both(parts[WIDTH*(4*g+2) +: WIDTH], parts[WIDTH*(4*g+3) +: WIDTH]));
            assign wholes[g] = group;
        end
    endgenerate
    function signed [WIDTH-1:0] both(input signed [WIDTH-1:0] a, input signed [WIDTH-1:0] b);
        both = (MAXIMUM != 0) ? ((a > b) ? a : b) : a + b;
    endfunction
    reg signed [WIDTH-1:0] all;
    integer i;
    always @* begin
        all = wholes[0];
        for (i = 1; i < GROUPS; i = i + 1) all = both(all, wholes[i]);
    end
    always @(posedge clk) whole <= all;
endmodule
