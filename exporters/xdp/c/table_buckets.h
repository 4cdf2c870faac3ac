// SPDX-License-Identifier: Apache-2.0
/*
 * The flow table as an array of buckets: a flow's hash names its bucket, and a new flow that finds
 * it full takes the place of the one there that was seen longest ago, which is decided first.
 *
 * A CPU locks a bucket while it counts a packet to one of its flows. Needs start_flow, report and
 * acquire_lock of meter.c.
 */
#ifndef N3IC_TABLE_H
#define N3IC_TABLE_H

#define BUCKETS ((SLOTS_PER_FLOW * METER_CACHE_FLOWS + WAYS - 1) / WAYS)

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(map_flags, BPF_F_MMAPABLE); /* so that it begins with a page, and slots with a line */
    __uint(max_entries, BUCKETS);
    __uint(key_size, sizeof(__u32));
    __uint(value_size, sizeof(struct bucket));
} flows SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(map_flags, BPF_F_MMAPABLE);
    __uint(max_entries, BUCKETS);
    __type(key, __u32);
    __type(value, struct tags);
} tags SEC(".maps");

/* A flow of a bucket that this CPU took. */
struct place {
    struct flow *flow;
    struct bucket *bucket;
    struct tags *tags;
    uint32_t tag, slot;
};

/* The slot that a flow takes if it is free, and where it is looked for first. */
static inline uint32_t home_of(uint32_t tag) {
    return tag >> 29 & (WAYS - 1);
}

static inline int is_in_slot(const struct place *at, uint32_t slot, const struct key *k) {
    return at->tags->tag[slot] == at->tag && same_key(&at->bucket->slot[slot].key, k);
}

/*
 * The slot of a key; WAYS where it has none. By way of memory, so that the verifier does not follow
 * all that comes behind once for each slot.
 */
static inline uint32_t slot_of_key(const struct place *at, const struct key *k, struct scratch *s) {
    uint32_t slot = home_of(at->tag);

    if (!is_in_slot(at, slot, k)) {
        slot = WAYS;
#pragma unroll
        for (int i = 0; i < WAYS; i++) {
            if (is_in_slot(at, i, k)) {
                slot = i;
                break;
            }
        }
    }
    *(volatile uint32_t *)&s->slot = slot;
    return *(volatile uint32_t *)&s->slot;
}

/* The flow's own slot or another one if it is free, or else that of the flow seen longest ago. */
__attribute__((noinline)) int slot_for_new(const struct bucket *b, const struct tags *t,
                                           uint32_t home) {
    uint64_t last = ~0ull, touched = ~0ull;
    int oldest = 0;

    if (!b || !t)
        return 0;
    home &= WAYS - 1;
    if (!t->tag[home])
        return (int)home;
#pragma clang loop unroll(disable)
    for (int i = 0; i < WAYS; i++) {
        const struct flow *f = &b->slot[i].flow;

        if (!t->tag[i])
            return i;
        if (f->last < last || (f->last == last && f->touched < touched)) {
            last = f->last;
            touched = f->touched;
            oldest = i;
        }
    }
    return oldest;
}

/* Takes the bucket of a key; 0 where others hold it. */
static inline int lock_bucket(const struct key *k, struct place *at) {
    uint64_t hash = hash_of_key(options.secret[0], options.secret[1], k);
    uint32_t index = (hash >> 32) * options.buckets >> 32;

    at->tag = (uint32_t)hash | 1;
    at->bucket = bpf_map_lookup_elem(&flows, &index);
    at->tags = bpf_map_lookup_elem(&tags, &index);
    return at->bucket && at->tags && (!options.locked || acquire_lock(&at->tags->busy));
}

static inline void unlock_flow(struct place *at) {
    release_lock(&at->tags->busy);
}

static inline void select_slot(struct place *at, uint32_t slot) {
    at->slot = slot & (WAYS - 1);
    at->flow = &at->bucket->slot[at->slot].flow;
}

/* Takes the flow of a key; 0 where there is none, or others hold its bucket. */
static inline int find_flow(const struct key *k, struct scratch *s, struct place *at) {
    uint32_t slot;

    if (!lock_bucket(k, at))
        return 0;
    slot = slot_of_key(at, k, s);
    if (slot >= WAYS) {
        unlock_flow(at);
        return 0;
    }
    select_slot(at, slot);
    return 1;
}

/* Takes a flow out, and leaves its bucket. */
static inline int remove_flow(struct place *at, const struct key *k) {
    (void)k;
    at->tags->tag[at->slot] = 0;
    at->bucket->slot[at->slot].key.address_bytes = 0;
    unlock_flow(at);
    return 1;
}

/* Takes the flow that a packet belongs to, a new one where there is none. */
static inline enum entered find_or_start_flow(const struct arrival *a, const struct key *k,
                                              struct scratch *s, struct counters *c,
                                              struct place *at) {
    uint32_t slot;

    if (!lock_bucket(k, at))
        return CONTENDED;
    slot = slot_of_key(at, k, s);
    if (slot < WAYS) {
        select_slot(at, slot);
        return ENTERED;
    }
    if (!admits_flow(a)) {
        unlock_flow(at);
        return EXCESS;
    }
    select_slot(at, slot_for_new(at->bucket, at->tags, home_of(at->tag)));
    if (at->tags->tag[at->slot]) {
        int idle = a->now > at->flow->last && a->now - at->flow->last > METER_IDLE_TIMEOUT;
        struct key other = at->bucket->slot[at->slot].key;

        if (METER_DROP_NEW && !idle) {
            unlock_flow(at);
            return TABLE_FULL;
        }
        if (at->flow->fins != CLOSED)
            report(at->flow, &other, idle ? BY_IDLE : BY_EVICTION, at->flow->last, PACKETS);
        c->replaced++;
    }
    start_flow(at->flow, a, c);
    c->inserted++;
    at->bucket->slot[at->slot].key = *k;
    at->tags->tag[at->slot] = at->tag;
    return ENTERED;
}

#endif
