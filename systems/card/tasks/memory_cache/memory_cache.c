// SPDX-License-Identifier: Apache-2.0
/* A cache of key-value pairs in front of a store, in on-board memory: a slot for each key. */
#include <string.h>

#include "card_task.h"

#ifndef CARD_SLOTS
#define CARD_SLOTS 65536 /* most slots of a task of the card */
#endif

enum { KEY = 8, VALUE = 16, HEADERS = 44 };
enum operation { GET, SET, FOUND, DELETE };

struct slot {
    uint8_t key[KEY], value[VALUE], valid, spare[7];
};

struct memory_cache {
    uint32_t counts[4]; /* gets, hits, pairs written, faults, of which a host has none */
    uint32_t slots;     /* a power of two */
    struct slot slots_of[CARD_SLOTS];
};

static void memory_cache_write(void *state, uint32_t address, uint32_t word) {
    struct memory_cache *my = state;
    if (address == 0 && word <= CARD_SLOTS)
        my->slots = word;
}

static uint32_t memory_cache_read(const void *state, uint32_t address) {
    const struct memory_cache *my = state;
    return my->counts[address & 3];
}

static uint32_t memory_cache_run(void *state, uint8_t *head) {
    struct memory_cache *my = state;
    uint8_t *operation = head + HEADERS, *key = operation + 1, *value = key + KEY;
    uint32_t hash = card_mix(card_head_u32(key) ^ card_head_u32(key + 4));
    struct slot *slot = my->slots ? &my->slots_of[hash & (my->slots - 1)] : NULL;
    int hit = slot && slot->valid && memcmp(slot->key, key, KEY) == 0;
    switch (*operation) {
    case GET:
        my->counts[0]++;
        if (!hit)
            return 0;
        my->counts[1]++;
        *operation = FOUND;
        memcpy(value, slot->value, VALUE);
        card_reply(head);
        return 1;
    case SET:
    case FOUND:
        my->counts[2]++;
        if (slot) {
            memcpy(slot->key, key, KEY);
            memcpy(slot->value, value, VALUE);
            slot->valid = 1;
        }
        return 0;
    case DELETE:
        if (hit)
            slot->valid = 0;
        return 0;
    default:
        return 0;
    }
}

extern const struct card_task_kind card_task_memory_cache;
const struct card_task_kind card_task_memory_cache = {
    sizeof(struct memory_cache), 1, memory_cache_write, memory_cache_read, memory_cache_run};
