// SPDX-License-Identifier: Apache-2.0
/* What a packet task of a card offers. */
#ifndef CARD_TASK_H
#define CARD_TASK_H

#include <stddef.h>
#include <stdint.h>

enum { CARD_DENIED = 0xfffe }; /* class of a packet that a task drops */

struct card_task_kind {
    size_t size;   /* bytes of its state, which begins as zeros */
    int has_class; /* whether the class is a verdict, else it is CARD_DENIED or nothing */
    /* Writes a word of the table: 16 times an entry plus a word. */
    void (*write)(void *state, uint32_t address, uint32_t word);
    /* Reads what the task counts; NULL for a task that counts nothing. */
    uint32_t (*read)(const void *state, uint32_t address);
    /* Processes the head of a packet in place, and returns its class. */
    uint32_t (*run)(void *state, uint8_t *head);
};

/* Writes a word of an entry; its last word copies the whole entry into the table. Returns whether
 * it did. */
static inline int card_stage(uint32_t *staged, uint32_t *table, uint32_t entries, uint32_t words,
                             uint32_t address, uint32_t word) {
    uint32_t at = address & 15, index = address >> 4;
    if (at >= words)
        return 0;
    staged[at] = word;
    if (at + 1 < words || index >= entries)
        return 0;
    for (uint32_t i = 0; i < words; i++)
        table[index * words + i] = staged[i];
    return 1;
}

static inline uint32_t card_head_u16(const uint8_t *at) {
    return (uint32_t)at[0] << 8 | at[1];
}

static inline uint32_t card_head_u32(const uint8_t *at) {
    return card_head_u16(at) << 16 | card_head_u16(at + 2);
}

#endif
