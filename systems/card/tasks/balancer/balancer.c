// SPDX-License-Identifier: Apache-2.0
/* A load balancer: a hash of the 5-tuple picks a bucket, and the bucket a backend. */
#include "card_task.h"

enum { BUCKETS = 64, WORDS = 3 };

struct balancer {
    uint32_t staged[WORDS];
    uint32_t buckets[BUCKETS * WORDS]; /* address; hardware address, above bit 0 */
};

static void balancer_write(void *state, uint32_t address, uint32_t word) {
    struct balancer *my = state;
    card_stage(my->staged, my->buckets, BUCKETS, WORDS, address, word);
}

static uint32_t balancer_run(void *state, uint8_t *head) {
    const struct balancer *my = state;
    const uint32_t *bucket = my->buckets + WORDS * (card_hash(head) % BUCKETS);
    if (bucket[2] & 1) {
        card_head_set_u32(head, bucket[1]);
        card_head_set_u16(head + 4, bucket[2] >> 16);
        card_set_address(head, 30, bucket[0]);
    }
    return 0;
}

extern const struct card_task_kind card_task_balancer;
const struct card_task_kind card_task_balancer = {sizeof(struct balancer), 0, balancer_write, NULL,
                                                  balancer_run};
