// SPDX-License-Identifier: Apache-2.0
/* Packets of many flows, made from one: each gets the next source address. */
#ifndef N3IC_TEST_FRAMES_H
#define N3IC_TEST_FRAMES_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>

#include <bpf/bpf_helpers.h>

struct ipv4_frame {
    struct ethhdr ethernet;
    struct iphdr ip;
} __attribute__((packed));

struct {
    __u32 flow, flows; /* the last flow, and the number that take turns */
} turn SEC(".data.turn") = {0, 1000};

/* Returns 0 if the packet is too short. */
static __always_inline int next_source(struct xdp_md *ctx) {
    struct ipv4_frame *frame = (void *)(long)ctx->data;
    volatile __u32 *source = (void *)&frame->ip.saddr;

    if ((void *)(frame + 1) > (void *)(long)ctx->data_end)
        return 0;
    turn.flow = turn.flow + 1 < turn.flows ? turn.flow + 1 : 0;
    *source = turn.flow; /* one store, because a 4-byte load would wait for 1-byte stores */
    return 1;
}

#endif
