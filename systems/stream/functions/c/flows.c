// SPDX-License-Identifier: Apache-2.0
/* See flows.h. The meter's own headers parse frames, so that a flow here is a flow there. */
#include "flows.h"

#include "key.h"

enum { ADDRESS_BYTES = 16, SHIFT = 32 };

/* The key of both directions: the lower end comes first. */
static struct key key_of_flow(const struct packet *p, enum flow_key by) {
    struct key k = {.address_bytes = p->address_bytes};
    const int order = memcmp(p->source, p->destination, ADDRESS_BYTES);
    const int turned = order > 0 || (order == 0 && p->source_port > p->destination_port);
    if (by == FLOW_SOURCE_HOST) {
        memcpy(k.source, p->source, ADDRESS_BYTES);
        return k;
    }
    memcpy(k.source, turned ? p->destination : p->source, ADDRESS_BYTES);
    memcpy(k.destination, turned ? p->source : p->destination, ADDRESS_BYTES);
    if (by == FLOW_HOST_PAIR) {
        return k;
    }
    k.source_port = turned ? p->destination_port : p->source_port;
    k.destination_port = turned ? p->source_port : p->destination_port;
    k.protocol = p->protocol;
    return k;
}

static uint64_t datagram_of(const struct flow_shares *s, const struct packet *p) {
    struct key k = {.address_bytes = p->address_bytes, .protocol = p->protocol};
    memcpy(k.source, p->source, ADDRESS_BYTES);
    memcpy(k.destination, p->destination, ADDRESS_BYTES);
    k.source_port = (uint16_t)(p->identification >> 16);
    k.destination_port = (uint16_t)p->identification;
    return hash_of_key(s->secret[0], s->secret[1], &k);
}

unsigned flow_share(struct flow_shares *s, const uint8_t *frame, uint32_t captured, uint32_t length,
                    unsigned shares) {
    const struct frame f = {frame, captured};
    struct packet p = {0};
    if (parse_frame(LINK_ETHERNET, f, length, 0, &p) != PACKET_OK) {
        return 0;
    }
    const struct key k = key_of_flow(&p, s->by);
    uint64_t flow = hash_of_key(s->secret[0], s->secret[1], &k);
    if (p.fragmented && s->by == FLOW_FIVE_TUPLE) {
        const uint64_t datagram = datagram_of(s, &p);
        const unsigned at = datagram % FLOW_FRAGMENTS;
        if (!p.later) {
            s->fragments[at].datagram = datagram;
            s->fragments[at].flow = flow;
        } else if (s->fragments[at].datagram == datagram) {
            flow = s->fragments[at].flow;
        } /* else its first one is unknown, and every meter puts it aside */
    }
    return (unsigned)((flow >> SHIFT) * shares >> SHIFT);
}
