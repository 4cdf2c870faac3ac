// SPDX-License-Identifier: Apache-2.0
/* Somebody else's program on an interface, which counts packets and passes them on. */
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#ifndef NAME
#define NAME passer
#endif

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, __u64);
} seen SEC(".maps");

SEC("xdp")
int NAME(struct xdp_md *ctx) {
    const __u32 first = 0;
    __u64 *count = bpf_map_lookup_elem(&seen, &first);

    if (count)
        __sync_fetch_and_add(count, 1);
    return XDP_PASS;
}

char passer_license[] SEC("license") = "Apache-2.0";
