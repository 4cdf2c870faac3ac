/*
 * Packets of many flows for test runs, which repeat one packet: each gets the next source address
 * and goes on to the program that is measured.
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
    __uint(type, BPF_MAP_TYPE_PROG_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, __u32);
} measured SEC(".maps");

__u32 flow;

SEC("xdp") int spread(struct xdp_md *ctx) {
    struct frame *frame = (void *)(long)ctx->data;

    if ((void *)(frame + 1) > (void *)(long)ctx->data_end)
        return XDP_ABORTED;
    flow = flow + 1 < FLOWS ? flow + 1 : 0;
    /* In one store: a load of four bytes waits for stores of one. */
    *(volatile __u32 *)((char *)frame + 26) = flow;
    bpf_tail_call(ctx, &measured, 0);
    return XDP_ABORTED;
}

SEC("xdp") int pass(struct xdp_md *ctx) {
    return XDP_PASS;
}

char permission[] SEC("license") = "Dual BSD/GPL";
