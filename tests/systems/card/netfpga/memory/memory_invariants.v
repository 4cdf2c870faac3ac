// SPDX-License-Identifier: Apache-2.0
// What holds in n3ic_card_memory at every clock; test_card_memory.py puts it before the end of the module.
// P is any physical page, W any word of it, Q any port. The queue of reads shows its words there.
    (* anyconst *) wire [FRAME_W-1:0] P;
    (* anyconst *) wire [PAGE_W-1:0]  W;
    reg begun = 1'b0, owned, clean;
    reg [INDEX_W-1:0]       owner;    // the virtual page that was given P last
    reg [QUEUE_W*PORTS-1:0] askers;   // the tenant of each port's request
    wire opens = mine && !revoked;
    (* anyconst *) wire [PORTS-1:0] Q;  // its bit
    localparam DEPTH = 1 << ORDER_W;
    wire [PORTS*DEPTH-1:0] content;
    wire [ORDER_W-1:0]     oldest, newest;
    reg [ORDER_W:0] reading, ahead;       // reads of the memory under way, and those before Q's
    reg             pending, answered;    // Q's is one of them, and was answered in the last clock
    reg [255:0]     given;
    wire            mine_comes = pending && ahead == 0 && back_valid;
    reg [PORTS-1:0] entry, seen;
    reg [255:0]     shows;
    integer k;
    always @(posedge clk) begin
        reading  <= reading + (sent && !mem_write) - (back_valid && reading != 0);
        ahead    <= ahead - back_valid;
        given    <= back_data;
        answered <= mine_comes;
        if (mine_comes) pending <= 1'b0;
        if (sent && !mem_write && who == Q) begin
            pending <= 1'b1;
            ahead   <= reading - back_valid;
        end
        if (rst) {reading, pending, answered} <= 0;
    end
    always @(posedge clk) begin
        begun <= 1'b1;
        if (rst || ((wipes || opens) && page == P)) owned <= 1'b0;
        else if (places && page == P) {owned, owner} <= {1'b1, index};
        if (rst) clean <= 1'b0;
        else if (sent && mem_addr == {P, W}) clean <= clears;
        for (k = 0; k < PORTS; k = k + 1)
            if (taken[k]) askers[QUEUE_W*k +: QUEUE_W] <= tenants[QUEUE_W*k +: QUEUE_W];
    end
    wire [31:0] due  = BASES >> 16 * mem_tenant;   // the tenant's virtual pages, by the plan
    wire [31:0] many = LIMITS >> 16 * mem_tenant;
    wire [31:0] last = {16'd0, due[15:0]} + {16'd0, many[15:0]};
    wire under = state == ADD || state == LOOK || state == HOLD || state == CHECK || (mem_valid && !clears);
    wire mapped = under && state != ADD && fits;
    wire held = holders[P][INDEX_W];
    always @* begin
        if (!begun) assume (rst);
        assume (!back_valid || reading != 0);  // the memory answers what was asked
        assume (Q != 0 && (Q & (Q - 1'b1)) == 0);
        assume (P < PAGES);
        if (begun) begin
            // --- what was to be proved ---
            // A page is reached for its owner alone: the tenant to which its virtual page belongs.
            if (sent && !clears && mem_addr[PAGE_W +: FRAME_W] == P)
                assert (owned && {32'd0, owner} >= due[15:0] && {32'd0, owner} < last);
            // The request's tenant is that of the port at the clock at which it was taken.
            for (k = 0; k < PORTS; k = k + 1)
                if (sent && who[k]) assert (mem_tenant == askers[QUEUE_W*k +: QUEUE_W]);
            // A page holds zeros when it gets an owner.
            if (places && page == P) assert (clean);
            // All else that is written are zeros of the card.
            if (sent && clears) assert (mem_write && mem_data == 256'd0 && mem_tenant == TENANTS);
            // A port sees a word of the memory only as the answer to its own read.
            shows = 256'd0;
            for (k = 0; k < PORTS; k = k + 1) if (Q[k]) shows = reads[256*k +: 256];
            assert (shows == (answered ? given : 256'd0));
            // --- what the induction needs ---
            assert (reading == level && newest == oldest + level[ORDER_W-1:0] && level <= DEPTH);
            assert (!answered || given == back);
            assert (((shown & Q) != 0) == answered);
            seen = under ? who : {PORTS {1'b0}};
            assert ((seen & ~waits) == 0);
            assert (!pending || (ahead < level && (waits & Q) != 0));
            for (k = 0; k < DEPTH; k = k + 1)
                if (k < level) begin
                    entry = content >> PORTS * ((oldest + k) & (DEPTH - 1));
                    assert (entry != 0 && (entry & (entry - 1'b1)) == 0);
                    assert ((entry & ~waits) == 0 && (entry & seen) == 0);
                    assert ((entry == Q) == (pending && k == ahead));
                    seen = seen | entry;
                end
            assert (state <= SEND);
            if (under || mem_valid) assert ((who & (who - 1'b1)) == 0);
            if (boots) assert (busy && gives);
            if (busy) assert (page < PAGES && index < VIRTUAL);
            if (busy && boots && !wipes) assert (page == index);
            if (wipes) assert (busy && !revoked && boots && gives && filled == 0 && index == 0);
            if (wipes) assert (!owned && (page <= P || !held));
            else assert (held == owned && (!owned || holders[P][INDEX_W-1:0] == owner));
            if (under) assert (!clears);
            for (k = 0; k < PORTS; k = k + 1)
                if (under && who[k]) assert (mem_tenant == askers[QUEUE_W*k +: QUEUE_W]);
            if (mapped) assert ({32'd0, at} >= due[15:0] && {32'd0, at} < last);
            if (state == CHECK && frame == P) assert (holder == holders[P]);
            if (mem_valid && !clears) assert (fits);
            if (mem_valid && !clears && frame == P) assert (held && holders[P] == {1'b1, at});
            if (mem_valid && clears)
                assert (busy && revoked && gives && mem_write && mem_data == 256'd0 && mem_tenant == TENANTS
                        && filled != 0 && filled == offset + 1'b1);
            assert (!whole || filled[PAGE_W-1:0] == 0);
            if (busy && revoked) assert (gives);
            if (!revoked) assert (filled == 0 || !busy);
            if (busy && revoked && page == P) assert (!held);
            if (busy && revoked && page == P && filled > W && !(mem_valid && clears && offset == W)) assert (clean);
        end
    end
