// SPDX-License-Identifier: Apache-2.0
/* Small programs for the tests of the binding: a counter, and one that the verifier refuses. */
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

const volatile __u32 step = 1;

struct inner {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, __u64);
};

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
    __uint(max_entries, 4);
    __type(key, __u32);
    __array(values, struct inner);
} models SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 2);
    __type(key, __u32);
    __type(value, __u64);
} counters SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 10000);
    __type(key, __u64);
    __type(value, __u32);
} table SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, 4096);
} events SEC(".maps");

SEC("xdp") int count(struct xdp_md *ctx) {
    __u8 *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
    __u32 key = 0;
    __u64 *counted = bpf_map_lookup_elem(&counters, &key), *factor;
    void *model = bpf_map_lookup_elem(&models, &key);

    if (!counted || data + 14 > end)
        return XDP_ABORTED;
    factor = model ? bpf_map_lookup_elem(model, &key) : 0;
    *counted += factor ? *factor : step;
    bpf_ringbuf_output(&events, counted, 8, 0);
    data[0] = 0x23;
    return XDP_PASS;
}

#ifdef REFUSED
SEC("xdp") int refused(struct xdp_md *ctx) {
    return *(__u8 *)(long)ctx->data;
}
#endif

char permission[] SEC("license") = "Dual BSD/GPL";
