// SPDX-License-Identifier: Apache-2.0
/*
 * Looks for idle flows in the kernel, so that user space gets only their keys and not the table.
 *
 * User space runs it and hands the keys to n3ic_end, which looks again under the flow's lock.
 */
#include <linux/bpf.h>
#include <stdint.h>

#include <bpf/bpf_helpers.h>

/* As in meter.c. */
#define inline inline __attribute__((always_inline))
#define NETWORK_KEEP_ROWS

#include "build.h"
#include "idle.h"

struct { /* that of the metering program */
#if N3ICD_BUCKETS
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(map_flags, BPF_F_MMAPABLE);
    __uint(key_size, sizeof(__u32));
    __uint(value_size, sizeof(struct bucket));
#else
    __uint(type, METER_DROP_NEW ? BPF_MAP_TYPE_HASH : BPF_MAP_TYPE_LRU_HASH);
    __uint(key_size, sizeof(struct key));
    __uint(value_size, sizeof(struct slot));
#endif
    __uint(max_entries, 1);
} flows SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(map_flags, BPF_F_MMAPABLE);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct idle_flows);
} found SEC(".maps");

/* Notes a flow that is idle; 1 where there is no more room. */
static inline int note_idle_flow(struct idle_flows *out, const struct key *k, const struct flow *f,
                                 uint64_t now) {
    uint32_t at = out->count;
    uint64_t last = f->last;

    out->flows++;
    if (now < last || now - last <= METER_IDLE_TIMEOUT)
        return 0;
    if (at >= IDLE_AT_ONCE)
        return 1;
    out->flow[at].key = *k;
    out->flow[at].last = last;
    out->flow[at].touched = f->touched;
    out->count = at + 1;
    return 0;
}

static long collect_idle_flows(void *map, const void *key, void *value,
                               struct idle_search *search) {
    const uint32_t first = 0;
    struct idle_flows *out = bpf_map_lookup_elem(&found, &first);

    (void)map;
    (void)key;
    if (!out)
        return 1;
#if N3ICD_BUCKETS
    const struct bucket *b = value;

    for (int i = 0; i < WAYS; i++)
        if (b->slot[i].key.address_bytes &&
            note_idle_flow(out, &b->slot[i].key, &b->slot[i].flow, search->now))
            return 1;
    return 0;
#else
    const struct slot *s = value;

    return note_idle_flow(out, &s->key, &s->flow, search->now);
#endif
}

SEC("syscall")
int n3ic_idle(struct idle_search *input) {
    const uint32_t first = 0;
    struct idle_flows *out = bpf_map_lookup_elem(&found, &first);
    struct idle_search search = {input->now};

    if (!out)
        return 0;
    out->count = out->flows = 0;
    bpf_for_each_map_elem(&flows, collect_idle_flows, &search, 0);
    return 0;
}

char n3icd_license[] SEC("license") = "Apache-2.0";
