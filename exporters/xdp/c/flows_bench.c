// SPDX-License-Identifier: Apache-2.0
/*
 * Packets of many flows for test runs, which repeat one packet: each goes on to the program that is
 * measured. And what this is compared with: to pass the packet, and to parse it, too.
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

SEC("xdp") int spread(struct xdp_md *ctx) {
    if (next_source(ctx))
        bpf_tail_call(ctx, &measured, 0);
    return XDP_ABORTED;
}

SEC("xdp") int pass(struct xdp_md *ctx) {
    return XDP_PASS;
}

SEC("xdp") int parse(struct xdp_md *ctx) {
    struct frame frame = {(void *)(long)ctx->data, (void *)(long)ctx->data_end};
    struct packet p;
    enum aside reason = parse_frame(LINK_ETHERNET, frame, ctx->data_end - ctx->data, 0, &p);

    /* As if all of it were read. */
    __asm__ volatile("" : : "r"(&p) : "memory");
    return reason == PACKET_OK ? XDP_PASS : XDP_ABORTED;
}

char permission[] SEC("license") = "Dual BSD/GPL";
