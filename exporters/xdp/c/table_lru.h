// SPDX-License-Identifier: Apache-2.0
/*
 * The flow table as a hash map of the kernel, which forgets about the flows seen longest ago.
 *
 * Needs start_flow and acquire_lock of meter.c.
 */
#ifndef N3IC_TABLE_H
#define N3IC_TABLE_H

/* Where the cache may not forget flows, those that find no room are put aside. */
struct {
    __uint(type, METER_DROP_NEW ? BPF_MAP_TYPE_HASH : BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, METER_CACHE_FLOWS);
    __type(key, struct key);
    __type(value, struct slot);
} flows SEC(".maps");

/* A flow that this CPU took. */
struct place {
    struct flow *flow;
};

static inline void unlock_flow(struct place *at) {
    release_lock(&at->flow->busy);
}

/* Takes an entry; 0 where others hold it, or the kernel gave it to another flow meanwhile. */
static inline int lock_entry(struct slot *e, const struct key *k, struct place *at) {
    at->flow = &e->flow;
    if (options.locked && !acquire_lock(&e->flow.busy))
        return 0;
    if (same_key(&e->key, k))
        return 1;
    unlock_flow(at);
    return 0;
}

/* Takes the flow of a key; 0 where there is none, or others hold it. */
static inline int find_flow(const struct key *k, struct scratch *s, struct place *at) {
    struct slot *e = bpf_map_lookup_elem(&flows, k);

    (void)s;
    return e && lock_entry(e, k, at);
}

/* Takes a flow out. It stays taken: what comes into its place is begun anew. */
static inline int remove_flow(struct place *at, const struct key *k) {
    (void)at;
    return bpf_map_delete_elem(&flows, k) == 0;
}

/* Takes the flow that a packet belongs to, a new one where there is none. */
static inline enum entered find_or_start_flow(const struct arrival *a, const struct key *k,
                                              struct scratch *s, struct counters *c,
                                              struct place *at) {
    struct slot *e = bpf_map_lookup_elem(&flows, k);

    if (!e) {
        if (!admits_flow(a))
            return EXCESS;
        s->entry.key = *k;
        start_flow(&s->entry.flow, a, c);
        if (bpf_map_update_elem(&flows, k, &s->entry, BPF_NOEXIST))
            c->started--;
        else
            c->inserted++;
        e = bpf_map_lookup_elem(&flows, k);
        if (!e)
            return TABLE_FULL;
    }
    return lock_entry(e, k, at) ? ENTERED : CONTENDED;
}

#endif
