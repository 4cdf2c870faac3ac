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

static inline int act_tc(struct __sk_buff *skb, struct counters *c, struct order o) {
    const uint32_t *to;

    if (just_passes(o, c))
        return TC_ACT_UNSPEC; /* the next program decides */
    switch (o.action) {
    case ACT_TAKEN:
        return TC_ACT_SHOT;
    case ACT_DROP:
        c->dropped++;
        return TC_ACT_SHOT;
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

/* The beginning of a frame as on the wire, in one piece: bytes of it, 0 where it is too short. */
static inline uint32_t copy_head(struct __sk_buff *skb, uint32_t size, struct head *h) {
    uint32_t n = size < HEAD ? size : HEAD;

    if (!skb->vlan_present) {
        if (n < SHORTEST || bpf_skb_load_bytes(skb, 0, h->bytes, n))
            return 0;
        return n;
    }
    if (n < SHORTEST + TAG || bpf_skb_load_bytes(skb, 0, h->bytes, 12) ||
        bpf_skb_load_bytes(skb, 12, h->bytes + 12 + TAG, n - 12 - TAG))
        return 0;
    *(uint16_t *)(h->bytes + 12) = (uint16_t)skb->vlan_proto;
    *(uint16_t *)(h->bytes + 14) = __builtin_bswap16((uint16_t)skb->vlan_tci);
    return n;
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
    n = h ? copy_head(skb, size, h) : 0;
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
