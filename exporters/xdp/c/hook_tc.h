// SPDX-License-Identifier: Apache-2.0
/*
 * The program in the kernel's stack, at tcx: it sees what an interface takes and what it sends.
 *
 * A packet is metered as a capture on the interface shows it: with the tag that the kernel keeps
 * beside it, and before the kernel or the card cuts a large one.
 */
#ifndef N3IC_HOOK_TC_H
#define N3IC_HOOK_TC_H

#include <linux/pkt_cls.h>

#define TAG 4 /* bytes of a VLAN tag */

/*
 * Copies the first `n` bytes of a frame as on the wire, with its tag; their number, or 0 if it is
 * too short.
 */
static inline uint32_t copy_frame(struct __sk_buff *skb, uint32_t n, uint8_t *to) {
    if (!skb->vlan_present)
        return n < SHORTEST || bpf_skb_load_bytes(skb, 0, to, n) ? 0 : n;
    if (n < SHORTEST + TAG || bpf_skb_load_bytes(skb, 0, to, 12) ||
        bpf_skb_load_bytes(skb, 12, to + 12 + TAG, n - 12 - TAG))
        return 0;
    *(uint16_t *)(to + 12) = (uint16_t)skb->vlan_proto;
    *(uint16_t *)(to + 14) = __builtin_bswap16((uint16_t)skb->vlan_tci);
    return n;
}

static inline void sample_tc(struct __sk_buff *skb, struct counters *c, struct order o) {
    uint32_t length = skb->len + (skb->vlan_present ? TAG : 0);
    struct sample *x = begin_sample(skb->ifindex, length, o, c);

    if (x)
        end_sample(x, copy_frame(skb, sampled_bytes(length), x->bytes));
}

static inline int act_tc(struct __sk_buff *skb, struct counters *c, struct order o) {
    const uint32_t *to;

    if (just_passes(o, c))
        return TC_ACT_UNSPEC; /* the next program decides */
    if (o.action == ACT_TAKEN || o.action == ACT_DROP) {
        c->dropped += o.action == ACT_DROP;
        sample_tc(skb, c, o);
        return TC_ACT_SHOT;
    }
    switch (o.action) {
    case ACT_MARK:
        skb->mark = o.argument;
        break;
    case ACT_INTERFACE:
    case ACT_MIRROR:
        to = bpf_map_lookup_elem(&interfaces, &o.argument);
        if (to && o.action == ACT_INTERFACE)
            return bpf_redirect(*to, 0);
        if (to && !bpf_clone_redirect(skb, *to, 0))
            c->mirrored++;
        else if (o.action == ACT_MIRROR)
            c->not_mirrored++;
    }
    return TC_ACT_UNSPEC;
}

/* Reads a packet that has `size` bytes with its tag. */
static inline enum aside read_tc(struct __sk_buff *skb, uint32_t size, uint32_t length,
                                 struct arrival *a) {
    struct frame f = {(void *)(long)skb->data, (void *)(long)skb->data_end};
    uint32_t linear = f.end - f.data, n = size < HEAD ? size : HEAD;
    int whole = !skb->vlan_present && options.clock != CLOCK_TRAILER;
    struct head *h;

    a->vlan = NO_TAG;
    if (whole && parse_usual(f, length, METER_TUNNELS, a->packet))
        return PACKET_OK;
    if (whole && !METER_TUNNELS && linear >= n)
        return read_frame(f, length, a);
    h = bpf_map_lookup_elem(&heads, &zeroth);
    n = h ? copy_frame(skb, n, h->bytes) : 0;
    if (!n)
        return ASIDE_LINK_SHORT;
    return read_frame((struct frame){h->bytes, h->bytes + n}, length, a);
}

static inline int read_trailer(struct __sk_buff *skb, struct trailer *t) {
    uint32_t size = skb->len;

    return size >= sizeof *t && !bpf_skb_load_bytes(skb, size - sizeof *t, t, sizeof *t) &&
           t->captured <= size + TAG - sizeof *t;
}

SEC("tc")
int n3ic_tc(struct __sk_buff *skb) {
    struct scratch *s = bpf_map_lookup_elem(&scratches, &zeroth);
    struct counters *c = bpf_map_lookup_elem(&counted, &zeroth);
    uint32_t size = skb->len + (skb->vlan_present ? TAG : 0);
    struct trailer t = {.length = size, .captured = size};
    struct packet p;
    struct arrival a = {.packet = &p, .interface = skb->ifindex};
    enum aside reason;

    if (options.clock == CLOCK_TRAILER && !read_trailer(skb, &t))
        return TC_ACT_SHOT;
    if (!s || !c)
        return TC_ACT_UNSPEC;
    if (skb->gso_segs > 1) {
        c->super++;
        c->segments += skb->gso_segs;
    }
    reason = read_tc(skb, t.captured, t.length, &a);
    return act_tc(skb, c, process_packet(&a, reason, &t, s, c));
}

#endif
