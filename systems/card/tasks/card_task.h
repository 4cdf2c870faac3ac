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
    /* Writes a word of the table: 16 times an entry plus a word; NULL for a task without one. */
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

static inline void card_head_set_u16(uint8_t *at, uint32_t value) {
    at[0] = (uint8_t)(value >> 8);
    at[1] = (uint8_t)value;
}

static inline void card_head_set_u32(uint8_t *at, uint32_t value) {
    card_head_set_u16(at, value >> 16);
    card_head_set_u16(at + 2, value);
}

/* Spreads the bits of a word (xorshift of Marsaglia, 13, 17, 5). */
static inline uint32_t card_mix(uint32_t word) {
    word ^= word << 13;
    word ^= word >> 17;
    return word ^ word << 5;
}

/* A hash of the 5-tuple. */
static inline uint32_t card_hash(const uint8_t *head) {
    uint32_t destination = card_head_u32(head + 30), ports = card_head_u32(head + 34);
    return card_mix(card_head_u32(head + 26) ^ (destination << 11 | destination >> 21) ^
                    (ports << 19 | ports >> 13) ^ head[23]);
}

/* Changes an address of the IPv4 header, and its checksum (RFC 1624, equation 3). */
static inline void card_set_address(uint8_t *head, uint32_t at, uint32_t address) {
    uint32_t old = ~card_head_u32(head + at), sum = ~card_head_u16(head + 24) & 0xffff;
    sum += (old >> 16) + (old & 0xffff) + (address >> 16) + (address & 0xffff);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    card_head_set_u16(head + 24, ~sum);
    card_head_set_u32(head + at, address);
}

/* Sends a head back to its sender. */
static inline void card_reply(uint8_t *head) {
    static const uint8_t pairs[][3] = {{0, 6, 6}, {26, 30, 4}, {34, 36, 2}};
    for (int p = 0; p < 3; p++)
        for (uint32_t i = 0; i < pairs[p][2]; i++) {
            uint8_t *one = head + pairs[p][0] + i, *other = head + pairs[p][1] + i, first = *one;
            *one = *other;
            *other = first;
        }
}

#endif
