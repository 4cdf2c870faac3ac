// SPDX-License-Identifier: Apache-2.0
/*
 * A generator of packets on a link: in a live test run it sends each frame to the other end. The
 * program at that end does the minimum: it counts and drops.
 */
#include "test_frames.h"

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, __u64);
} dropped SEC(".maps");

SEC("xdp") int generate(struct xdp_md *ctx) {
    return next_source(ctx) ? XDP_TX : XDP_ABORTED;
}

SEC("xdp") int nothing(struct xdp_md *ctx) {
    return XDP_DROP;
}

SEC("xdp") int drop(struct xdp_md *ctx) {
    __u32 zero = 0;
    __u64 *count = bpf_map_lookup_elem(&dropped, &zero);

    if (count)
        ++*count;
    return XDP_DROP;
}

char permission[] SEC("license") = "Dual BSD/GPL";
