// SPDX-License-Identifier: Apache-2.0
/*
 * Makes packets of many flows from the one packet that a test run repeats, and passes each on to
 * the program that is measured. Either some flows take turns, or each packet begins a new flow and
 * has its time appended. The programs for comparison only pass the packet, or parse and pass it.
 */
#include "test_frames.h"

#define inline inline __attribute__((always_inline))

#include "packet.h"

struct {
    __uint(type, BPF_MAP_TYPE_PROG_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, __u32);
} measured SEC(".maps");

SEC("xdp.frags") int spread(struct xdp_md *ctx) {
    if (next_source(ctx))
        bpf_tail_call(ctx, &measured, 0);
    return XDP_ABORTED;
}

SEC("xdp.frags") int pass(struct xdp_md *ctx) {
    return XDP_PASS;
}

SEC("xdp.frags") int parse(struct xdp_md *ctx) {
    struct frame frame = {(void *)(long)ctx->data, (void *)(long)ctx->data_end};
    struct packet p;
    enum aside reason = parse_frame(LINK_ETHERNET, frame, ctx->data_end - ctx->data, 0, &p);

    /* Keep the compiler from dropping fields that nothing reads. */
    __asm__ volatile("" : : "r"(&p) : "memory");
    return reason == PACKET_OK ? XDP_PASS : XDP_ABORTED;
}

/* What user space sets before each run. */
struct flood {
    __u64 time_ns, interval_ns; /* time of the next packet, and between two */
    __u64 next;                 /* number of the next packet */
    __u64 sources;              /* number of sources that take turns; 0 for all addresses */
    __u64 tick_ns;
};

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct flood);
} floods SEC(".maps");

struct tcp_frame {
    struct ipv4_frame ip;
    __u16 ports[2];
} __attribute__((packed));

struct trailer { /* as in state.h */
    __u64 time;
    __u32 length, captured;
};

SEC("xdp.frags") int flood_on(struct xdp_md *ctx) {
    const __u32 first = 0;
    struct flood *f = bpf_map_lookup_elem(&floods, &first);
    __u32 size = ctx->data_end - ctx->data;
    struct trailer t = {.length = size, .captured = size};
    struct tcp_frame *frame;

    if (!f || !f->tick_ns || bpf_xdp_adjust_tail(ctx, sizeof t))
        return XDP_ABORTED;
    frame = (void *)(long)ctx->data;
    if ((void *)(frame + 1) > (void *)(long)ctx->data_end)
        return XDP_ABORTED;
    if (f->sources) {
        frame->ip.ip.saddr = 0x0a + ((__u32)(f->next % f->sources) << 8); /* 10.x.x.0 */
        frame->ports[0] = f->next / f->sources;
    } else {
        frame->ip.ip.saddr = 0x0b + ((__u32)f->next << 8); /* 11.x.x.x */
        frame->ports[0] = f->next >> 24;
    }
    t.time = f->time_ns / f->tick_ns;
    f->next++;
    f->time_ns += f->interval_ns;
    if (bpf_xdp_store_bytes(ctx, size, &t, sizeof t))
        return XDP_ABORTED;
    bpf_tail_call(ctx, &measured, 0);
    return XDP_ABORTED;
}

char permission[] SEC("license") = "Dual BSD/GPL";
