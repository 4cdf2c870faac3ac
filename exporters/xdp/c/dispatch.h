// SPDX-License-Identifier: Apache-2.0
/*
 * Which of the resident models decides: a small table of rules, of which the first counts.
 */
#ifndef N3IC_DISPATCH_H
#define N3IC_DISPATCH_H

#include "key.h"

#define SLOTS 64 /* models that are resident */
#define RULES 64

/* All that is not 0 must agree with a flow's first packet. */
struct rule {
    uint64_t address[2], mask[2]; /* of either end */
    uint32_t interface;
    uint16_t vlan;     /* 4096: has none */
    uint16_t udp_port; /* of either end */
    uint8_t address_bytes;
    uint8_t slot;
    uint8_t pad[6];
};

struct rules {
    uint32_t count, otherwise; /* the slot of flows that no rule names */
    struct rule rule[RULES];
};

#ifdef __bpf__
struct rules_map {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __uint(key_size, sizeof(__u32));
    __uint(value_size, sizeof(struct rules)); /* by number: no type information reaches it */
};

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
    __uint(max_entries, 1);
    __type(key, __u32);
    __array(values, struct rules_map);
} dispatch SEC(".maps");

#define NO_TAG 4096

/* The tag behind the addresses. */
static inline uint16_t vlan_of(struct frame f) {
    const uint8_t *tag = held(f, 12, 4);
    uint32_t kind = tag ? be16(tag) : 0;

    return kind == 0x8100 || kind == 0x88a8 || kind == 0x9100 ? be16(tag + 2) & 0xfff : NO_TAG;
}

static inline int matches_prefix(const struct rule *r, const uint8_t *address) {
    const uint64_t *words = (const uint64_t *)address;

    return !(((words[0] & r->mask[0]) ^ r->address[0]) | ((words[1] & r->mask[1]) ^ r->address[1]));
}

static inline int matches_rule(const struct rule *r, uint32_t interface, uint16_t vlan,
                               const struct key *k) {
    if ((r->interface && r->interface != interface) || (r->vlan && r->vlan != vlan))
        return 0;
    if (r->udp_port && (k->protocol != PROTO_UDP ||
                        (r->udp_port != k->source_port && r->udp_port != k->destination_port)))
        return 0;
    return !r->address_bytes ||
           (r->address_bytes == k->address_bytes &&
            (matches_prefix(r, k->source) || matches_prefix(r, k->destination)));
}

/* The slot of the model for a flow or packet: that of the first rule that agrees with it. */
static inline uint32_t slot_of(uint32_t interface, uint16_t vlan, const struct key *k) {
    const uint32_t first = 0;
    void *table = bpf_map_lookup_elem(&dispatch, &first);
    const struct rules *rules = table ? bpf_map_lookup_elem(table, &first) : NULL;

    if (!rules)
        return 0;
#pragma clang loop unroll(disable)
    for (uint32_t i = 0; i < RULES; i++) {
        if (i >= rules->count)
            break;
        if (matches_rule(&rules->rule[i], interface, vlan, k))
            return rules->rule[i].slot;
    }
    return rules->otherwise;
}

#endif

#endif
