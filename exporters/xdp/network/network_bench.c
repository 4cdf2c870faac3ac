// SPDX-License-Identifier: Apache-2.0
/*
 * The network under BPF_PROG_TEST_RUN: each run takes the next input of a map and writes its
 * result beside it. `parse` does everything else, so the difference is the cost of the network.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>

#include <bpf/bpf_helpers.h>

#include "network.h"

#ifndef INPUTS
#define INPUTS 1024 /* a power of two */
#endif

struct input {
    __u32 feature[NETWORK_FEATURES];
};

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct network);
} networks SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, INPUTS);
    __type(key, __u32);
    __type(value, struct input);
} inputs SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, INPUTS);
    __type(key, __u32);
    __type(value, struct network_result);
} results SEC(".maps");

__u32 next;

static __always_inline int run_measured(struct xdp_md *ctx, int with_network) {
    const struct ethhdr *frame = (void *)(long)ctx->data;
    __u32 zero = 0, at = next++ & (INPUTS - 1);
    const struct network *n = bpf_map_lookup_elem(&networks, &zero);
    const struct input *in = bpf_map_lookup_elem(&inputs, &at);
    struct network_result *out = bpf_map_lookup_elem(&results, &at);

    if ((void *)(frame + 1) > (void *)(long)ctx->data_end || !n || !in || !out)
        return XDP_ABORTED;
    if (with_network) {
        network_run(n, in->feature, out);
    } else {
        __u64 sum = 0;

#pragma unroll
        for (int i = 0; i < NETWORK_FEATURES; i++)
            sum += network_feature(in->feature, i);
        out->verdict = (__s32)sum;
    }
    return XDP_PASS;
}

SEC("xdp") int parse(struct xdp_md *ctx) {
    return run_measured(ctx, 0);
}

SEC("xdp") int network(struct xdp_md *ctx) {
    return run_measured(ctx, 1);
}

char permission[] SEC("license") = "Dual BSD/GPL";
