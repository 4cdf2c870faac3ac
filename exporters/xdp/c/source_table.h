// SPDX-License-Identifier: Apache-2.0
/*
 * The table of sources, which all CPUs share. One that counts to a source locks its set, also while
 * it holds a flow; nothing is locked under a set. Needs acquire_lock of meter.c.
 */
#ifndef N3IC_SOURCE_TABLE_H
#define N3IC_SOURCE_TABLE_H

#include "sources.h"

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, METER_SOURCE_SETS);
    __type(key, __u32);
    __type(value, struct source_set);
} source_sets SEC(".maps");

struct source_values {
    uint32_t of[METER_SOURCES];
};

/* Takes the set of a flow's source; NULL where others hold it. */
static inline struct source_set *lock_source(const struct key *k, const uint64_t *secret,
                                             struct counters *c) {
    uint32_t number = source_set_of(secret, k);
    struct source_set *set = bpf_map_lookup_elem(&source_sets, &number);

    if (set && options.locked && !acquire_lock(&set->busy)) {
        c->contended++;
        return NULL;
    }
    return set;
}

/*
 * Counts the first packet of a flow to its source, or the first that comes back. `k` is canonical.
 * A global function, so that the verifier follows it once.
 */
__attribute__((noinline)) int count_source(const struct key *k, uint32_t turned, uint32_t answers,
                                           uint64_t now) {
    const uint32_t packets = PACKETS;
    struct counters *c = bpf_map_lookup_elem(&counted, &packets);
    const uint64_t secret[SECRET_WORDS] = {options.secret[0], options.secret[1]};
    struct source_counts bits = {0};
    struct source_set *set;
    struct key own;

    if (!k || !c)
        return 0;
    own = *k;
    if (turned)
        swap_endpoints(&own);
    if (!answers)
        bits = bits_of_flow(secret, &own);
    set = lock_source(&own, secret, c);
    if (!set)
        return 0;
    if (answers)
        answer_of_source(set, &own, now);
    else
        c->forgotten += begin_of_source(set, &own, &bits, now);
    release_lock(&set->busy);
    return 0;
}

/* The features by source of a flow that is decided; `k` is in its forward direction. */
__attribute__((noinline)) int read_source(const struct key *k, uint64_t now, uint32_t user,
                                          struct source_values *out) {
    struct counters *c = bpf_map_lookup_elem(&counted, &user);
    const uint64_t secret[SECRET_WORDS] = {options.secret[0], options.secret[1]};
    struct source_set *set;

    if (!k || !c || !out)
        return 0;
    set = lock_source(k, secret, c);
    if (!set)
        return 0;
    features_of_source(set, k, now, out->of);
    release_lock(&set->busy);
    return 0;
}

#endif
