// SPDX-License-Identifier: Apache-2.0
/* The program at a card's driver, before the kernel's stack: it sees what comes in. */
#ifndef N3IC_HOOK_XDP_H
#define N3IC_HOOK_XDP_H

/* Hands a packet to the AF_XDP socket of its queue, behind what is known of its flow. */
static inline int redirect_to_socket(struct xdp_md *ctx, struct scratch *s, struct counters *c,
                                     uint32_t at) {
    struct handed *h;

    if (!bpf_map_lookup_elem(&sockets, &at)) {
        c->no_socket++;
        return XDP_PASS;
    }
    if (bpf_xdp_adjust_meta(ctx, -(int)sizeof *h) == 0) {
        h = (void *)(long)ctx->data_meta;
        if ((void *)(h + 1) <= (void *)(long)ctx->data) {
            *h = s->handed;
            h->known = HANDED;
        }
    } else {
        c->not_marked++;
    }
    return bpf_redirect_map(&sockets, at, XDP_PASS);
}

static inline void sample_xdp(struct xdp_md *ctx, struct counters *c, struct order o) {
    uint32_t length = bpf_xdp_get_buff_len(ctx), n;
    struct sample *x = begin_sample(ctx->ingress_ifindex, length, o, c);

    if (!x)
        return;
    n = sampled_bytes(length);
    end_sample(x, n < SHORTEST || bpf_xdp_load_bytes(ctx, 0, x->bytes, n) ? 0 : n);
}

static inline int act_xdp(struct xdp_md *ctx, struct scratch *s, struct counters *c,
                          struct order o) {
    uint32_t *mark;

    if (just_passes(o, c))
        return XDP_PASS;
    if (o.action == ACT_TAKEN || o.action == ACT_DROP) {
        c->dropped += o.action == ACT_DROP;
        sample_xdp(ctx, c, o);
        return XDP_DROP;
    }
    switch (o.action) {
    case ACT_INTERFACE:
        return bpf_redirect_map(&interfaces, o.argument, XDP_PASS);
    case ACT_SOCKET: /* a socket is bound to a queue, and takes its packets alone */
        return redirect_to_socket(ctx, s, c, o.argument + ctx->rx_queue_index);
    case ACT_CPU:
        return bpf_redirect_map(&cpus, o.argument, XDP_PASS);
    case ACT_MARK: /* metadata before the packet, for a program of the stack behind */
        if (bpf_xdp_adjust_meta(ctx, -(int)sizeof *mark) == 0) {
            mark = (void *)(long)ctx->data_meta;
            if ((void *)(mark + 1) <= (void *)(long)ctx->data) {
                *mark = o.argument;
                return XDP_PASS;
            }
        }
        c->not_marked++;
    }
    return XDP_PASS;
}

/* Reads a packet of `size` bytes; its headers may lie in several pieces. */
static inline enum aside read_xdp(struct xdp_md *ctx, uint32_t size, uint32_t length,
                                  struct arrival *a) {
    struct frame f = {(void *)(long)ctx->data, (void *)(long)ctx->data_end};
    uint32_t linear = f.end - f.data, n = size < HEAD ? size : HEAD;
    struct head *h;

    a->vlan = NO_TAG;
    if (parse_usual(f, length, METER_TUNNELS, a->packet))
        return PACKET_OK;
    if (!METER_TUNNELS && linear >= n) /* else the verifier would follow two parsers */
        return read_frame(f, length, a);
    h = bpf_map_lookup_elem(&heads, &zeroth);
    if (!h || n < SHORTEST || bpf_xdp_load_bytes(ctx, 0, h->bytes, n))
        return ASIDE_LINK_SHORT;
    return read_frame((struct frame){h->bytes, h->bytes + n}, length, a);
}

/* Takes the trailer off a frame; 0 where there is none. */
static inline int cut_trailer(struct xdp_md *ctx, struct trailer *t) {
    uint32_t size = t->captured;

    if (size < sizeof *t || bpf_xdp_load_bytes(ctx, size - sizeof *t, t, sizeof *t) ||
        t->captured > size - sizeof *t || bpf_xdp_adjust_tail(ctx, (int)t->captured - (int)size))
        return 0;
    return 1;
}

/* Takes packets that lie in several pieces, too, as large ones do. */
SEC("xdp.frags")
int n3ic_meter(struct xdp_md *ctx) {
    struct scratch *s = bpf_map_lookup_elem(&scratches, &zeroth);
    struct counters *c = bpf_map_lookup_elem(&counted, &zeroth);
    uint32_t size = bpf_xdp_get_buff_len(ctx);
    struct trailer t = {.length = size, .captured = size};
    struct packet p;
    struct arrival a = {.packet = &p, .interface = ctx->ingress_ifindex};
    enum aside reason;

    if (options.clock == CLOCK_TRAILER && !cut_trailer(ctx, &t))
        return XDP_ABORTED;
    if (!s || !c)
        return XDP_PASS;
    reason = read_xdp(ctx, t.captured, t.length, &a);
    return act_xdp(ctx, s, c, process_packet(&a, reason, &t, s, c));
}

#endif
