// SPDX-License-Identifier: Apache-2.0
/*
 * Walks down trees, in C that BPF and any host compile.
 *
 * An entry is two words. A node has the number of the value that it tests; and the number of the
 * first of the two entries that may follow, above a byte to which the value is added: a carry leads
 * to the second one. A leaf has what it adds to the score, and leads to itself, as its byte is 0.
 * So every walk has the same number of steps and nothing branches on an input; masks keep offsets
 * where the verifier allows them.
 */
#ifndef GRAPH_WALKS_H
#define GRAPH_WALKS_H

#include "network_rows.h"

#define GRAPH_ENTRY 8    /* bytes */
#define GRAPH_UNROLLED 8 /* steps without a branch */

/* Four bits, each in a byte of its own. */
#define GRAPH_BITS(row) ((__u32)(row) * 0x00204081u & 0x01010101u)

/* `row` with one more bit of the number of cuts that the value reaches; see network_cut(). */
static __always_inline __u64 graph_search(const void *value, __u64 v, __u64 row, __u32 at,
                                          int log2) {
    const __u32 next = at + (4u << log2) - 4;
    const char *cut = network_at(value, row * 4, next) + NETWORK_NEAR(next);

    return row + (network_cut(cut, v, 0) << log2);
}

/* The entry that follows the one at an offset. */
static __always_inline __u64 graph_step(const char *entries, const __u8 *values, __u64 at,
                                        __u32 values_mask, __u32 entries_mask) {
    const __u32 *entry = (const __u32 *)(entries + at);
    __u64 test = *(const volatile __u32 *)entry & values_mask;
    __u64 next = *(const volatile __u32 *)(entry + 1);

    next += *(const volatile __u8 *)(values + test);
    return next >> 5 & entries_mask; /* a number above a byte, as an offset */
}

/* The sum of the leaves to which the trees lead whose roots stand from `at` to `end`. */
static __always_inline __u64 graph_walks(const char *entries, const __u8 *values, __u32 at,
                                         __u32 end, __u32 steps, __u32 values_mask,
                                         __u32 entries_mask) {
    __u64 sum = 0;

#pragma clang loop unroll(disable)
    for (; at < end; at += GRAPH_ENTRY) {
        __u64 here = at;

#pragma clang loop unroll(disable)
        for (__u32 i = 0; i < steps / GRAPH_UNROLLED; i++)
#pragma clang loop unroll(full)
            for (__u32 j = 0; j < GRAPH_UNROLLED; j++)
                here = graph_step(entries, values, here, values_mask, entries_mask);
#pragma clang loop unroll(full)
        for (__u32 i = 0; i < steps % GRAPH_UNROLLED; i++)
            here = graph_step(entries, values, here, values_mask, entries_mask);
        sum += (__u64)(__s64) * (const volatile __s32 *)(entries + here);
    }
    return sum;
}

#endif
