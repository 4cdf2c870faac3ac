// SPDX-License-Identifier: Apache-2.0
// Network address translation: the first mapping of the source, else of the destination. A packet a
// clock, three clocks each.
module n3ic_task_nat #(
    parameter HEAD_W = 352,
    parameter MEM    = "nat.mem"  // a mapping per line
) (
    input  wire              clk,
    input  wire              rst,
    input  wire              in_valid,
    output wire              in_ready,
    input  wire [HEAD_W-1:0] in_head,
    output reg               out_valid,
    input  wire              out_ready,
    output reg  [HEAD_W-1:0] out_head,
    output wire [15:0]       out_class,
    input  wire              wr_en,
    input  wire [15:0]       wr_addr,
    input  wire [31:0]       wr_data
);
    localparam MAPPINGS = 32;
    localparam WORDS    = 4;
    wire                commit;
    wire [11:0]         index;
    wire [32*WORDS-1:0] entry;
    n3ic_card_entry #(.WORDS(WORDS)) words (
        .clk(clk), .wr_en(wr_en), .wr_addr(wr_addr), .wr_data(wr_data), .commit(commit),
        .index(index), .entry(entry)
    );
    /* verilator lint_off UNUSEDSIGNAL */
    reg [32*WORDS-1:0] mappings [0:MAPPINGS-1];
    /* verilator lint_on UNUSEDSIGNAL */
    initial $readmemh(MEM, mappings);
    always @(posedge clk) if (commit && index < MAPPINGS) mappings[index[4:0]] <= entry;

    // --- which mappings match ------------------------------------------------------------------
    wire [31:0] source, destination, ports;
    /* verilator lint_off PINCONNECTEMPTY */
    n3ic_card_tuple #(.HEAD_W(HEAD_W)) tuple (
        .head(in_head), .source(source), .destination(destination), .ports(ports), .protocol(),
        .hash()
    );
    /* verilator lint_on PINCONNECTEMPTY */
    reg                has1, has2, from, to;
    reg [HEAD_W-1:0]   head1, head2;
    reg [MAPPINGS-1:0] from_hits, to_hits;
    reg [47:0]         values [0:MAPPINGS-1];  // of each, were it the first: port, address
    reg [47:0]         value;
    wire               step = !out_valid || out_ready;
    assign in_ready  = step;
    assign out_class = 16'd0;
    genvar m;
    generate
        for (m = 0; m < MAPPINGS; m = m + 1) begin : g_mapping
            wire [31:0] near_address  = mappings[m][31:0];
            wire [31:0] far_address = mappings[m][63:32];
            wire [15:0] near    = mappings[m][95:80];
            wire [15:0] far     = mappings[m][79:64];
            wire        is_from = mappings[m][96] && source == near_address && ports[31:16] == near;
            wire        is_to   = mappings[m][96] && destination == far_address && ports[15:0] == far;
            always @(posedge clk) if (step) begin
                from_hits[m] <= is_from;
                to_hits[m]   <= is_to;
                values[m]    <= is_from ? {far, far_address} : {near, near_address};
            end
        end
    endgenerate

    // --- the first of them ---------------------------------------------------------------------
    wire [MAPPINGS-1:0] hits  = (|from_hits) ? from_hits : to_hits;
    wire [MAPPINGS-1:0] first = hits & (~hits + 1'b1);
    reg  [47:0]         chosen;
    integer i;
    always @* begin
        chosen = 48'd0;
        for (i = 0; i < MAPPINGS; i = i + 1) chosen = chosen | (values[i] & {48 {first[i]}});
    end

    // --- its packet ------------------------------------------------------------------------------
    wire [31:0] old = from ? {head2[8*26 +: 8], head2[8*27 +: 8], head2[8*28 +: 8], head2[8*29 +: 8]}
                           : {head2[8*30 +: 8], head2[8*31 +: 8], head2[8*32 +: 8], head2[8*33 +: 8]};
    wire [31:0] now = {value[7:0], value[15:8], value[23:16], value[31:24]};  // first byte lowest
    wire [15:0] checksum;
    n3ic_card_checksum sum (
        .checksum({head2[8*24 +: 8], head2[8*25 +: 8]}), .old(old), .now(value[31:0]),
        .result(checksum)
    );
    reg [HEAD_W-1:0] sent;
    always @* begin
        sent = head2;
        if (from || to) sent[8*24 +: 16] = {checksum[7:0], checksum[15:8]};
        if (from) sent[8*26 +: 32] = now;
        if (from) sent[8*34 +: 16] = {value[39:32], value[47:40]};
        if (to) sent[8*30 +: 32] = now;
        if (to) sent[8*36 +: 16] = {value[39:32], value[47:40]};
    end
    always @(posedge clk) begin
        if (step) begin
            has1      <= in_valid;
            head1     <= in_head;
            has2      <= has1;
            head2     <= head1;
            from      <= |from_hits;
            to        <= !(|from_hits) && |to_hits;
            value     <= chosen;
            out_valid <= has2;
            out_head  <= sent;
        end
        if (rst) begin
            has1      <= 1'b0;
            has2      <= 1'b0;
            out_valid <= 1'b0;
        end
    end
endmodule
