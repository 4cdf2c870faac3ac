/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A token bucket a tenant, of bytes. For the data plane: it asks n3ic_admit() about each frame that
 * names a graph, before it asks any network, and drops what is not admitted.
 *
 * The buckets lie in IMEM, where all islands see them. A lock a bucket, taken by the memory's test
 * and set, makes filling and taking one step; who floods waits for its own tenant's lock alone.
 */
#ifndef N3IC_CARD_RATE_H
#define N3IC_CARD_RATE_H

#include "n3ic_port.h"

#include "n3ic_card_config.h"

#include "n3ic_card_graphs.h"

struct n3ic_bucket {
    uint32_t lock;
    uint32_t dropped; /* frames */
    uint64_t tokens;  /* 2^-32 bytes, at the tick `filled` */
    uint64_t filled;
};

__declspec(shared scope(global) export imem) volatile struct n3ic_bucket n3ic_buckets[N3IC_TENANTS];

/*
 * Whether a frame of some bytes that names a graph may pass; it is then charged for them. `now` is
 * of one clock for all who ask, in ticks of 16 cycles since the card started, such as the frame's
 * arrival; where it is behind another's, the bucket fills no further.
 */
static uint32_t n3ic_admit(uint32_t graph, uint32_t bytes, uint64_t now) {
    uint32_t tenant = n3ic_graphs[graph].tenant;
    volatile __imem struct n3ic_bucket *bucket = &n3ic_buckets[tenant];
    uint64_t burst = n3ic_rates[tenant].burst;
    uint64_t cost = (uint64_t)bytes << 32;
    uint64_t tokens;
    uint64_t gone;
    uint32_t passes;

    while (!n3ic_try_lock(&bucket->lock))
        n3ic_pause();
    tokens = bucket->tokens;
    gone = now > bucket->filled ? now - bucket->filled : 0;
    if (gone >= n3ic_rates[tenant].full) {
        tokens = burst;
    } else {
        tokens += gone * n3ic_rates[tenant].step;
        if (tokens > burst)
            tokens = burst;
    }
    passes = cost <= tokens;
    if (passes)
        tokens -= cost;
    else
        bucket->dropped++;
    bucket->tokens = tokens;
    bucket->filled += gone;
    n3ic_store(bucket->lock, 0);
    return passes;
}

#endif /* N3IC_CARD_RATE_H */
