/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A token bucket of bytes for each tenant. The data plane calls n3ic_admit() for each frame that
 * names a graph, before it asks any network, and drops frames that are not admitted.
 *
 * The buckets are in IMEM, where all islands see them. Each bucket has a lock, taken by the
 * memory's test and set, so that filling and taking are one step. A flood waits for its own
 * tenant's lock only.
 */
#ifndef N3IC_CARD_RATE_H
#define N3IC_CARD_RATE_H

#include "n3ic_port.h"

#include "n3ic_card_config.h"

#include "n3ic_card_graphs.h"

struct n3ic_bucket {
    uint32_t lock;
    uint32_t dropped; /* frames */
    uint64_t tokens;  /* 2^-32 bytes, as of the tick `filled` */
    uint64_t filled;
};

__declspec(shared scope(global) export imem) volatile struct n3ic_bucket n3ic_buckets[N3IC_TENANTS];

/*
 * Returns whether a frame for a graph may pass, and charges its bytes if so. `now` is the frame's
 * arrival in ticks of 16 cycles since the card started, by one clock for all callers. If `now` is
 * behind the time of the last fill, the bucket fills no further.
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
    /* Beyond this time the bucket is full, and gone * step could exceed 64 bits. */
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
