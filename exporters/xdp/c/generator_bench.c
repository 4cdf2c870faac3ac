/*
 * A generator of packets on a link: as a live test run each frame gets the next source address and
 * is sent to the other end. And the least that this end can do there: count and drop.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>

#include <bpf/bpf_helpers.h>

#define FLOWS 1000

struct frame {
    struct ethhdr ethernet;
    struct iphdr ip;
} __attribute__((packed));

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, __u64);
} dropped SEC(".maps");

__u32 flow;

SEC("xdp") int generate(struct xdp_md *ctx) {
    struct frame *frame = (void *)(long)ctx->data;

    if ((void *)(frame + 1) > (void *)(long)ctx->data_end)
        return XDP_ABORTED;
    flow = flow + 1 < FLOWS ? flow + 1 : 0;
    frame->ip.saddr = flow;
    return XDP_TX;
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
