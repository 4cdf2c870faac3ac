// SPDX-License-Identifier: Apache-2.0
// Sends the inputs of admitted packets to regions, as SuperNIC's scheduler does (section IV-D). If
// each task of a region's chain has a credit, all credits are reserved and the packet runs through
// the whole chain. Otherwise only the first task's credit is taken, and a packet that finds no
// credit further on returns and is scheduled again. A credit is a place in a task.
//
// Each tenant has a head: the leg of its oldest packet that is sent next. A tenant waits for another
// tenant's head only if both want the same region, and never for a head that cannot go. Branches of
// a packet are sent one after another.
//
// A packet is within its tenant's guarantee if the tenant's token bucket, which counts beats, is not
// overdrawn when one of its legs is sent. Heads within take turns. Heads beyond go while none within
// can, by start-time fair queueing: each packet puts its tenant's turn off by its graph's step.
module n3ic_card_scheduler #(
    parameter TENANTS  = 2,
    parameter QUEUE_W  = 2,
    parameter GRAPH_W  = 1,
    parameter SEQ_W    = 5,
    parameter BRANCH_W = 1,
    parameter LEG_W    = 1,
    parameter MODEL_W  = 1,
    parameter REGIONS  = 2,
    parameter TASKS    = 1,   // of a chain
    parameter CREDIT_W = 3,   // log2 of a task's credits
    parameter [REGIONS*TASKS-1:0] PRESENT = {REGIONS * TASKS {1'b1}},  // tasks that exist
    parameter BEATS_W  = 7,
    parameter LEGS     = 1    // packets may be sent more than once
) (
    input  wire                       clk,
    input  wire                       rst,
    // A packet was admitted
    input  wire                       admit,
    input  wire [QUEUE_W-1:0]         admit_queue,
    input  wire [SEQ_W-1:0]           admit_seq,
    input  wire [GRAPH_W-1:0]         admit_graph,
    input  wire [BEATS_W:0]           admit_beats,
    // Token buckets: rate in 1/65536 beats per clock, and size in beats
    input  wire [17*TENANTS-1:0]      rates,
    input  wire [12*TENANTS-1:0]      bursts,
    // A packet came back from a region
    input  wire                       back,
    input  wire [QUEUE_W-1:0]         back_queue,
    input  wire [SEQ_W-1:0]           back_seq,
    input  wire [BRANCH_W-1:0]        back_branch,
    input  wire [LEG_W-1:0]           back_leg,
    input  wire [TASKS-1:0]           back_skip,    // tasks that it has completed
    // The plan: where a leg of a graph's branch runs
    output reg  [GRAPH_W-1:0]         ask_graph,
    output reg  [BRANCH_W-1:0]        ask_branch,
    output reg  [LEG_W-1:0]           ask_leg,
    input  wire [REGIONS-1:0]         leg_regions,
    input  wire [TASKS-1:0]           leg_skip,
    input  wire [MODEL_W-1:0]         leg_model,
    input  wire                       leg_last,
    input  wire                       branch_last,
    input  wire [11:0]                step,
    // A leg is sent
    output reg  [REGIONS-1:0]         send,
    output reg  [QUEUE_W-1:0]         send_queue,
    output reg  [SEQ_W-1:0]           send_seq,
    output reg  [GRAPH_W-1:0]         send_graph,
    output reg  [BRANCH_W-1:0]        send_branch,
    output reg  [LEG_W-1:0]           send_leg,
    output reg                        send_last,     // no leg comes after it
    output reg  [TASKS-1:0]           send_skip,
    output reg  [MODEL_W-1:0]         send_model,
    output reg                        send_reserved, // it holds a credit of every task
    output reg                        send_again,    // it was in a region before
    output reg                        beyond,        // it begins a packet beyond the guarantee
    // Credits: task k of region r is bit r * TASKS + k
    input  wire [REGIONS*TASKS-1:0]   returned,
    input  wire [REGIONS*TASKS-1:0]   wanted,        // by a packet inside the region
    output wire [REGIONS*TASKS-1:0]   granted,
    input  wire [REGIONS-1:0]         hold,          // nothing is sent to the region
    output reg  [REGIONS-1:0]         idle           // the region holds none of its credits
);
    localparam CREDITS = 1 << CREDIT_W;
    localparam BACK_W  = SEQ_W + BRANCH_W;  // log2 of the legs of a tenant that can be under way
    localparam ENTRY_W = SEQ_W + BRANCH_W + LEG_W + TASKS;

    // --- work of each tenant: fresh packets, and legs that came back -----------------------------
    (* no_rw_check *)
    reg [GRAPH_W+BEATS_W:0] packets [0:(1 << (QUEUE_W + SEQ_W))-1];  // graph, beats
    (* no_rw_check *)  // a leg is fetched after it was written
    reg [ENTRY_W-1:0] backs  [0:(1 << (QUEUE_W + BACK_W))-1];
    reg [SEQ_W:0]     fresh_in   [0:TENANTS-1];
    reg [SEQ_W:0]     fresh_out  [0:TENANTS-1];
    reg [BRANCH_W-1:0] branch    [0:TENANTS-1];  // of the oldest fresh packet
    reg [BACK_W:0]    back_in    [0:TENANTS-1];
    reg [BACK_W:0]    back_out   [0:TENANTS-1];
    reg [TENANTS-1:0] has_head, fetching;
    wire admitted = admit && admit_queue != TENANTS[QUEUE_W-1:0];
    wire [TENANTS-1:0] has_back, has_fresh;
    genvar t;
    generate
        for (t = 0; t < TENANTS; t = t + 1) begin : g_work
            assign has_back[t]  = back_in[t] != back_out[t];
            assign has_fresh[t] = fresh_in[t] != fresh_out[t];
        end
    endgenerate

    // --- heads are fetched, in four clocks -------------------------------------------------------
    wire [TENANTS-1:0] fetch;
    wire               fetches = |fetch;
    n3ic_card_turns #(.N(TENANTS)) fetch_turns (
        .clk(clk), .rst(rst), .asks((has_back | has_fresh) & ~has_head & ~fetching),
        .taken(fetches), .turn(fetch)
    );
    reg  [QUEUE_W-1:0] chosen;
    integer i;
    always @* begin
        chosen = {QUEUE_W {1'b0}};
        for (i = 0; i < TENANTS; i = i + 1) if (fetch[i]) chosen = chosen | i[QUEUE_W-1:0];
    end
    reg                fetch1, fetch2, fetch3, again1, again2, again3;
    reg [QUEUE_W-1:0]  of1, of2, of3;
    reg  [ENTRY_W-1:0]        back1;
    reg  [SEQ_W+BRANCH_W-1:0] fresh1;
    wire [SEQ_W-1:0]    seq1;
    wire [BRANCH_W-1:0] branch1;
    wire [LEG_W-1:0]    leg1;
    wire [TASKS-1:0]    skip1;
    reg  [SEQ_W-1:0]    seq2, seq3;
    reg  [TASKS-1:0]    skip2, skip3;
    reg [REGIONS-1:0]  regions3;
    reg [MODEL_W-1:0]  model3;
    reg                last3;
    reg [GRAPH_W-1:0]  graph3;
    reg [BRANCH_W-1:0] branch3;
    reg [LEG_W-1:0]    leg3;
    reg [BEATS_W:0]    beats2, beats3;
    reg [11:0]         step3;
    reg                first3;  // leg of its packet
    // A leg that came back goes before fresh packets: it is older, and holds a place in the store.
    wire chosen_back = has_back[chosen];
    assign {seq1, branch1, leg1, skip1} = again1 ? back1 : {fresh1, {(LEG_W + TASKS) {1'b0}}};
    always @(posedge clk) begin
        fetch1 <= fetches && !rst;
        of1    <= chosen;
        again1 <= chosen_back;
        back1  <= backs[{chosen, back_out[chosen][BACK_W-1:0]}];
        fresh1 <= {fresh_out[chosen][SEQ_W-1:0], branch[chosen]};
        fetch2     <= fetch1 && !rst;
        of2        <= of1;
        again2     <= again1;
        seq2       <= seq1;
        skip2      <= skip1;
        {ask_graph, beats2} <= packets[{of1, seq1}];
        ask_branch <= branch1;
        ask_leg    <= leg1;
        fetch3     <= fetch2 && !rst;
        of3        <= of2;
        again3     <= again2;
        seq3       <= seq2;
        skip3      <= skip2 | leg_skip;
        regions3   <= leg_regions;
        model3     <= leg_model;
        last3      <= leg_last;
        graph3     <= ask_graph;
        branch3    <= ask_branch;
        leg3       <= ask_leg;
        beats3     <= beats2;
        step3      <= step;
        first3     <= !again2 && ask_branch == {BRANCH_W {1'b0}};
    end

    // --- heads and their colours -------------------------------------------------------------------
    localparam HEAD_W = SEQ_W + GRAPH_W + BRANCH_W + LEG_W + 2 + TASKS + MODEL_W;
    reg  [HEAD_W-1:0]  heads        [0:TENANTS-1];
    reg  [REGIONS-1:0] head_regions [0:TENANTS-1];
    wire [REGIONS-1:0] all_free, first_free;
    wire [TENANTS-1:0] ready, turn;
    generate
        for (t = 0; t < TENANTS; t = t + 1) begin : g_ready
            assign ready[t] = has_head[t] && |(head_regions[t] & first_free);
        end
    endgenerate
    reg [QUEUE_W-1:0] sent;
    reg [REGIONS-1:0] candidates;
    integer j;
    always @* begin
        sent       = {QUEUE_W {1'b0}};
        candidates = {REGIONS {1'b0}};
        for (j = 0; j < TENANTS; j = j + 1)
            if (turn[j]) begin
                sent       = sent | j[QUEUE_W-1:0];
                candidates = candidates | head_regions[j];
            end
    end
    reg  [BEATS_W:0]   head_beats [0:TENANTS-1];
    reg  [11:0]        head_step  [0:TENANTS-1];
    reg  [TENANTS-1:0] head_first, head_paid, poor;
    wire [TENANTS-1:0] covered = head_paid | ~poor;
    wire [TENANTS-1:0] pays   = turn & ~head_paid & ~poor;
    wire [TENANTS-1:0] begins = turn & ~covered & head_first;  // beyond the guarantee
    wire               paid3;
    generate
        for (t = 0; t < TENANTS; t = t + 1) begin : g_bucket
            reg  signed [31:0] tokens;
            wire signed [31:0] paid = tokens - $signed({1'b0, pays[t] ? head_beats[t] : {(BEATS_W + 1) {1'b0}}, 16'd0});
            wire signed [31:0] full = {4'd0, bursts[12*t +: 12], 16'd0};
            always @(posedge clk) begin
                tokens  <= (paid < full) ? paid + $signed({15'd0, rates[17*t +: 17]}) : full;
                poor[t] <= paid <= 0;
                if (rst) tokens <= full;
            end
        end
        if (LEGS) begin : g_paid  // later legs of a packet that was paid for are within, too
            reg paid [0:(1 << (QUEUE_W + SEQ_W))-1];
            wire [SEQ_W-1:0] seq = heads[sent][HEAD_W-1 -: SEQ_W];
            always @(posedge clk) if (|(turn & head_first) || |pays) paid[{sent, seq}] <= |pays;
            assign paid3 = !first3 && paid[{of3, seq3}];
        end else begin : g_one
            assign paid3 = 1'b0;
        end
    endgenerate

    // --- heads take turns --------------------------------------------------------------------------
    wire [TENANTS-1:0] ready_within = ready & covered;
    wire [TENANTS-1:0] ready_beyond = ready & ~covered;
    wire [TENANTS-1:0] turn_within;
    n3ic_card_turns #(.N(TENANTS)) head_turns (
        .clk(clk), .rst(rst), .asks(ready_within), .taken(|ready_within), .turn(turn_within)
    );
    // How far each tenant's turn is ahead of the turn that was taken last. A tenant saves up none.
    // The one whose turn is due first goes, unless a tenant whose turn is due before is having its
    // next head fetched, and took the same region last.
    reg  [11:0]        lead [0:TENANTS-1];
    reg  [TENANTS-1:0] first_beyond, next_beyond;
    reg  [11:0]        least;
    reg  [REGIONS-1:0] contended;
    integer m;
    always @* begin
        next_beyond = {TENANTS {1'b0}};
        least       = 12'd0;
        contended   = {REGIONS {1'b0}};
        for (m = 0; m < TENANTS; m = m + 1)
            if (ready_beyond[m] && (next_beyond == {TENANTS {1'b0}} || lead[m] < least)) begin
                next_beyond    = {TENANTS {1'b0}};
                next_beyond[m] = 1'b1;
                least          = lead[m];
                contended      = head_regions[m];
            end
        for (m = 0; m < TENANTS; m = m + 1)
            if ((has_back[m] || has_fresh[m] || fetching[m]) && !has_head[m] && lead[m] < least
                && |(head_regions[m] & contended)) next_beyond = {TENANTS {1'b0}};
    end
    // Leads change with a turn, so the next one is chosen a clock later.
    always @(posedge clk) first_beyond <= |(turn & ~covered) ? {TENANTS {1'b0}} : next_beyond;
    // A tenant that is alone need not wait for it.
    wire [TENANTS-1:0] active = has_head | has_back | has_fresh | fetching;
    wire               alone  = (active & (active - 1'b1)) == {TENANTS {1'b0}};
    assign turn = |ready_within ? turn_within : ready_beyond & (alone ? active : first_beyond);
    wire go = |turn;
    // Instances of a chain take turns; those that are free as a whole come before others.
    wire               whole = |(candidates & all_free);
    wire [REGIONS-1:0] region;
    n3ic_card_turns #(.N(REGIONS)) region_turns (
        .clk(clk), .rst(rst), .asks(candidates & (whole ? all_free : first_free)), .taken(go),
        .turn(region)
    );
    always @(posedge clk) begin
        send          <= rst ? {REGIONS {1'b0}} : region;
        send_queue    <= sent;
        send_reserved <= whole;
        beyond        <= |begins && !rst;
        {send_seq, send_graph, send_branch, send_leg, send_last, send_again, send_skip, send_model}
            <= heads[sent];
    end

    // --- the tenants' state ------------------------------------------------------------------------
    integer n;
    always @(posedge clk) begin
        if (admitted) packets[{admit_queue, admit_seq}] <= {admit_graph, admit_beats};
        if (back) backs[{back_queue, back_in[back_queue][BACK_W-1:0]}]
            <= {back_seq, back_branch, back_leg, back_skip};
        if (fetch3) heads[of3]
            <= {seq3, graph3, branch3, leg3, last3, again3, skip3, model3};
        if (fetch3) begin
            head_regions[of3] <= regions3;
            head_beats[of3]   <= beats3;
            head_step[of3]    <= step3;
            head_first[of3]   <= first3;
            head_paid[of3]    <= paid3;
        end
        for (n = 0; n < TENANTS; n = n + 1) begin
            if (admitted && admit_queue == n) fresh_in[n] <= fresh_in[n] + 1'b1;
            if (back && back_queue == n) back_in[n] <= back_in[n] + 1'b1;
            if (fetch[n] && chosen_back) back_out[n] <= back_out[n] + 1'b1;
            if (fetch2 && of2 == n && !again2) begin
                branch[n] <= branch_last ? {BRANCH_W {1'b0}} : branch[n] + 1'b1;
                if (branch_last) fresh_out[n] <= fresh_out[n] + 1'b1;
            end
            if (fetch[n]) fetching[n] <= 1'b1;
            else if (fetch3 && of3 == n) fetching[n] <= 1'b0;
            if (fetch3 && of3 == n) has_head[n] <= 1'b1;
            else if (turn[n]) has_head[n] <= 1'b0;
            // Only who wants the same region is behind in its turn.
            if (turn[n] && !covered[n]) lead[n] <= head_first[n] ? head_step[n] : 12'd0;
            else if (|(turn & ~covered) && |(head_regions[n] & region))
                lead[n] <= (lead[n] > lead[sent]) ? lead[n] - lead[sent] : 12'd0;
            if (rst) begin
                fresh_in[n]  <= {(SEQ_W + 1) {1'b0}};
                fresh_out[n] <= {(SEQ_W + 1) {1'b0}};
                branch[n]    <= {BRANCH_W {1'b0}};
                back_in[n]   <= {(BACK_W + 1) {1'b0}};
                back_out[n]  <= {(BACK_W + 1) {1'b0}};
                has_head[n]  <= 1'b0;
                fetching[n]  <= 1'b0;
                lead[n]      <= 12'd0;
            end
        end
    end

    // --- credits ----------------------------------------------------------------------------------
    genvar r, k;
    generate
        for (r = 0; r < REGIONS; r = r + 1) begin : g_region
            wire [TASKS-1:0] some, home;
            assign all_free[r]   = &some && !hold[r];
            assign first_free[r] = some[0] && !hold[r];
            always @(posedge clk) idle[r] <= &home;
            for (k = 0; k < TASKS; k = k + 1) if (!PRESENT[r*TASKS+k]) begin : g_none
                assign some[k] = 1'b1;
                assign home[k] = 1'b1;
                assign granted[r*TASKS+k] = 1'b0;
            end else begin : g_task
                reg [CREDIT_W:0] credits;
                // The scheduler has priority; a packet inside a region that finds no credit comes back.
                wire reserve = region[r] && (whole || k == 0);
                assign some[k] = credits != {(CREDIT_W + 1) {1'b0}};
                assign home[k] = credits == CREDITS[CREDIT_W:0];
                assign granted[r*TASKS+k] = wanted[r*TASKS+k] && some[k] && !reserve;
                wire less = reserve || granted[r*TASKS+k];
                always @(posedge clk)
                    if (rst) credits <= CREDITS[CREDIT_W:0];
                    else if (less && !returned[r*TASKS+k]) credits <= credits - 1'b1;
                    else if (!less && returned[r*TASKS+k]) credits <= credits + 1'b1;
            end
        end
    endgenerate
endmodule
