// SPDX-License-Identifier: Apache-2.0
/* A cache of key-value pairs in front of a store, in sets whose oldest pair goes first. */
#include <string.h>

#include "card_task.h"

enum { SETS = 256, WAYS = 4, KEY = 8, VALUE = 16, HEADERS = 44 };
enum operation { GET, SET, FOUND, DELETE };

struct pair {
    uint8_t valid, key[KEY], value[VALUE];
};

struct cache {
    struct pair pairs[SETS][WAYS];
    uint8_t oldest[SETS];
    uint32_t counts[4]; /* gets, hits, pairs written */
};

static uint32_t cache_read(const void *state, uint32_t address) {
    const struct cache *my = state;
    return my->counts[address & 3];
}

static uint32_t cache_run(void *state, uint8_t *head) {
    struct cache *my = state;
    uint8_t *operation = head + HEADERS, *key = operation + 1, *value = key + KEY;
    uint32_t set = card_mix(card_head_u32(key) ^ card_head_u32(key + 4)) % SETS;
    struct pair *hit = NULL, *pairs = my->pairs[set];
    for (int way = 0; way < WAYS; way++)
        if (pairs[way].valid && memcmp(pairs[way].key, key, KEY) == 0)
            hit = &pairs[way];
    switch (*operation) {
    case GET:
        my->counts[0]++;
        if (hit == NULL)
            return 0;
        my->counts[1]++;
        *operation = FOUND;
        memcpy(value, hit->value, VALUE);
        card_reply(head);
        return 1;
    case SET:
    case FOUND:
        my->counts[2]++;
        if (hit == NULL) {
            hit = &pairs[my->oldest[set]];
            my->oldest[set] = (my->oldest[set] + 1) % WAYS;
        }
        hit->valid = 1;
        memcpy(hit->key, key, KEY);
        memcpy(hit->value, value, VALUE);
        return 0;
    case DELETE:
        if (hit != NULL)
            hit->valid = 0;
        return 0;
    default:
        return 0;
    }
}

extern const struct card_task_kind card_task_cache;
const struct card_task_kind card_task_cache = {sizeof(struct cache), 1, NULL, cache_read,
                                               cache_run};
