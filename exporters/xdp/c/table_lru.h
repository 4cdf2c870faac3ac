// SPDX-License-Identifier: Apache-2.0
/*
 * The flow table as a hash map of the kernel, which forgets about the flows seen longest ago.
 *
 * Needs begin and seize of meter.c.
 */
#ifndef N3IC_TABLE_H
#define N3IC_TABLE_H

/* Where the cache may not forget flows, those that find no room are put aside. */
struct {
    __uint(type, METER_DROP_NEW ? BPF_MAP_TYPE_HASH : BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, METER_CACHE_FLOWS);
    __type(key, struct key);
    __type(value, struct flow);
} flows SEC(".maps");

/* A flow that this CPU took. */
struct place {
    struct flow *flow;
};

/* Takes the flow of a key; 0 where there is none, or others hold it. */
static inline int find(const struct key *k, struct scratch *s, struct place *at) {
    (void)s;
    at->flow = bpf_map_lookup_elem(&flows, k);
    return at->flow && (!options.locked || seize(&at->flow->busy));
}

static inline void leave(struct place *at) {
    release(&at->flow->busy);
}

/* Takes a flow out. It stays taken: what comes into its place is begun anew. */
static inline int forget(struct place *at, const struct key *k) {
    (void)at;
    return bpf_map_delete_elem(&flows, k) == 0;
}

/* Takes the flow that a packet belongs to, a new one where there is none. */
static inline enum entered enter(const struct arrival *a, const struct key *k, struct scratch *s,
                                 struct counters *c, struct place *at) {
    at->flow = bpf_map_lookup_elem(&flows, k);
    if (!at->flow) {
        begin(&s->flow, a, c);
        if (bpf_map_update_elem(&flows, k, &s->flow, BPF_NOEXIST))
            c->started--;
        else
            c->inserted++;
        at->flow = bpf_map_lookup_elem(&flows, k);
        if (!at->flow)
            return TABLE_FULL;
    }
    return !options.locked || seize(&at->flow->busy) ? ENTERED : CONTENDED;
}

#endif
