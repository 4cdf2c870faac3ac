// SPDX-License-Identifier: Apache-2.0
/* Counts packets and bytes in classes by a hash of the 5-tuple. */
#include "card_task.h"

enum { CLASSES = 256 };

struct counters {
    uint32_t counts[2 * CLASSES]; /* packets and bytes of each class */
};

static uint32_t counters_read(const void *state, uint32_t address) {
    const struct counters *my = state;
    return my->counts[address % (2 * CLASSES)];
}

static uint32_t counters_run(void *state, uint8_t *head) {
    struct counters *my = state;
    uint32_t *mine = my->counts + 2 * (card_hash(head) % CLASSES);
    mine[0]++;
    mine[1] += card_head_u16(head + 16);
    return 0;
}

extern const struct card_task_kind card_task_counters;
const struct card_task_kind card_task_counters = {sizeof(struct counters), 0, NULL, counters_read,
                                                  counters_run};
