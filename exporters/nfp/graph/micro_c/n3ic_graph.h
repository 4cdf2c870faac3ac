/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A graph of integer operations: steps that set values, or add to them. Trees whose leaves are
 * constants are descended node by node, one word each.
 *
 * All parameters are in n3ic_words (n3ic_weights.h), which has the layout of weights.bin.
 */
#ifndef N3IC_GRAPH_H
#define N3IC_GRAPH_H

#include "n3ic_cuts.h"

/* Kinds of steps. */
#define N3IC_CONSTANT 0
#define N3IC_LOOKUP 1
#define N3IC_TREES 2
#define N3IC_CHOOSE 3
#define N3IC_ADD 4
#define N3IC_OFFSET 5
#define N3IC_LOG_ADD 6
#define N3IC_TIMES 7
#define N3IC_SCALE 8
#define N3IC_ROUND 9
#define N3IC_SELECT 10
#define N3IC_VOTES 11
#define N3IC_ADDS 0x80 /* the result is added to the value */

/* A leaf's mark, and what is added to its value. */
#define N3IC_LEAF 0x80000000u
#define N3IC_LEAF_HALF 0x40000000u

/* Values are in two's complement, and sums wrap: only what is read must be in range. */
#if N3IC_VALUE_WORDS == 2
typedef uint64_t n3ic_value;
#define N3IC_NEGATIVE(value) ((value) >> 63)
#else
typedef uint32_t n3ic_value;
#define N3IC_NEGATIVE(value) ((value) >> 31)
#endif

/* The input bit of a number. */
#define N3IC_BIT(x, bit) ((x)[(bit) / 32] >> ((bit) % 32) & 1)

/* Sets the `count` bits of `x` from `bit` on that `source` has. */
__intrinsic void n3ic_set_bits(N3IC_STATE uint32_t *x, uint32_t bit, uint32_t count,
                               uint32_t source) {
    if (count < 32)
        source &= ((uint32_t)1 << count) - 1;
    x[bit / 32] |= source << (bit % 32);
    /* Bits in two words have bit % 32 > 0, so the shift is below 32, as C demands. */
    if (bit % 32 + count > 32 && bit / 32 + 1 < N3IC_INPUT_WORDS)
        x[bit / 32 + 1] |= source >> (32 - bit % 32);
}

/* The packed input bits `x` of features. */
static void n3ic_encode(N3IC_STATE uint32_t *features, N3IC_STATE uint32_t *x) {
    uint32_t fields = n3ic_words[5];
    uint32_t field = n3ic_words[6];
    uint32_t bit = 0;
    uint32_t value;
    uint32_t width;
    uint32_t count;
    uint32_t at;
    uint32_t i;

    for (i = 0; i < N3IC_INPUT_WORDS; i++)
        x[i] = 0;
    for (; fields > 0; fields--) {
        value = features[n3ic_words[field]];
        width = n3ic_words[field + 2];
        count = n3ic_words[field + 3]; /* the largest value */
        if (value > count)
            value = count;
        if (n3ic_words[field + 1] == 0) {
            n3ic_set_bits(x, bit, width, value);
        } else {
            count = n3ic_count_reached_cuts(n3ic_words[field + 4], width, value);
            for (at = bit; count > 0; at += i) {
                i = 32 - at % 32;
                if (i > count)
                    i = count;
                n3ic_set_bits(x, at, i, 0xffffffff);
                count -= i;
            }
        }
        bit += width;
        field += N3IC_FIELD_WORDS;
    }
}

/* The number of bits of `x` that are set, of `width` bits from `bit` on. */
__intrinsic uint32_t n3ic_count_bits(N3IC_STATE uint32_t *x, uint32_t bit, uint32_t width) {
    uint32_t count = 0;
    uint32_t part;
    uint32_t bits;

    while (width > 0) {
        part = 32 - bit % 32;
        if (part > width)
            part = width;
        bits = x[bit / 32] >> (bit % 32);
        if (part < 32)
            bits &= ((uint32_t)1 << part) - 1;
        count += n3ic_popcount(bits);
        bit += part;
        width -= part;
    }
    return count;
}

/* The value in the words from `at` on. */
__intrinsic n3ic_value n3ic_value_at(uint32_t at) {
#if N3IC_VALUE_WORDS == 2
    n3ic_value high = n3ic_words[at + 1];

    return high << 32 | n3ic_words[at];
#else
    return n3ic_words[at];
#endif
}

/* The entry of a table for the number of bits of its field that are set. */
__intrinsic n3ic_value n3ic_entry(N3IC_STATE uint32_t *x, uint32_t table) {
    uint32_t field = n3ic_words[table];
    uint32_t count = n3ic_count_bits(x, field & 0xffff, (field >> 16) + 1);

    return n3ic_value_at(table + 1 + N3IC_VALUE_WORDS * count);
}

/* The entry of a table for the number that some input bits make, the least significant first. */
__intrinsic n3ic_value n3ic_selected(N3IC_STATE uint32_t *x, uint32_t table) {
    uint32_t bits = n3ic_words[table];
    uint32_t index = 0;
    uint32_t numbers = 0;
    uint32_t bit;
    uint32_t i;

    for (i = 0; i < bits; i++) {
        if (i % 2 == 0) {
            table++;
            numbers = n3ic_words[table];
        }
        bit = numbers & 0xffff;
        index |= N3IC_BIT(x, bit) << i;
        numbers >>= 16;
    }
    return n3ic_value_at(table + 1 + N3IC_VALUE_WORDS * index);
}

/* The sum of the leaves to which the `trees` trees of a block lead. */
__intrinsic n3ic_value n3ic_leaves(N3IC_STATE uint32_t *x, uint32_t block, uint32_t trees) {
    n3ic_value sum = 0;
    uint32_t root;
    uint32_t node;
    uint32_t bit;

    for (root = 0; root < trees; root++) {
        node = n3ic_words[block + root];
        while (!(node & N3IC_LEAF)) {
            bit = node >> 16;
            node = n3ic_words[block + (node & 0xffff) + N3IC_BIT(x, bit)];
        }
        sum += (n3ic_value)(node & (N3IC_LEAF - 1)) - N3IC_LEAF_HALF;
    }
    return sum;
}

/* Adds, for each class, the values in the leaves to which trees lead that vote for all of them. */
__intrinsic void n3ic_add_votes(N3IC_STATE uint32_t *x, N3IC_STATE n3ic_value *values,
                                uint32_t block, uint32_t classes, uint32_t trees) {
    uint32_t nodes = block + classes;
    uint32_t root;
    uint32_t node;
    uint32_t bit;
    uint32_t slot;
    uint32_t i;

    for (root = 0; root < trees; root++) {
        node = n3ic_words[nodes + root];
        while (!(node & N3IC_LEAF)) {
            bit = node >> 16;
            node = n3ic_words[nodes + (node & 0xffff) + N3IC_BIT(x, bit)];
        }
        node = nodes + (node & (N3IC_LEAF - 1));
        for (i = 0; i < classes; i++) {
            slot = n3ic_words[block + i];
            values[slot] += (n3ic_value)n3ic_words[node + i] - N3IC_LEAF_HALF;
        }
    }
}

/* The larger of two logarithms, plus the table's entry for their distance. */
__intrinsic n3ic_value n3ic_log_add(n3ic_value a, n3ic_value b) {
    n3ic_value larger = a;
    n3ic_value distance = a - b;

    if (N3IC_NEGATIVE(a) != N3IC_NEGATIVE(b) ? N3IC_NEGATIVE(a) : a < b) {
        larger = b;
        distance = b - a;
    }
    if (distance < n3ic_words[20])
        larger += n3ic_words[n3ic_words[21] + (uint32_t)distance];
    return larger;
}

#if N3IC_VALUE_WORDS == 2
/* An exact product, rounded to nearest, halves up. Shifts to the right are of numbers that are not
 * negative: C leaves others to the compiler. */
__intrinsic n3ic_value n3ic_round(n3ic_value exact) {
    uint32_t fraction = n3ic_words[22];

    exact += (n3ic_value)1 << (fraction - 1);
    return N3IC_NEGATIVE(exact) ? ~(~exact >> fraction) : exact >> fraction;
}
#endif

/* Class scores of the packed input bits in `x`. */
static void n3ic_run(uint32_t place, N3IC_STATE uint32_t *x, N3IC_STATE uint32_t *y,
                     N3IC_STATE int32_t *scores) {
    N3IC_STATE n3ic_value values[N3IC_VALUES];
    uint32_t steps = n3ic_words[3];
    uint32_t step = N3IC_FIRST_STEP;
    uint32_t kind;
    uint32_t a;
    uint32_t b;
    uint32_t i;
    n3ic_value by;

    for (; steps > 0; steps--) {
        kind = n3ic_words[step];
        a = n3ic_words[step + 1];
        b = a >> 16;
        a &= 0xffff;
        by = n3ic_value_at(step + 2);
        switch (kind & (N3IC_ADDS - 1)) {
        case N3IC_LOOKUP:
            by = n3ic_entry(x, (uint32_t)by);
            break;
        case N3IC_SELECT:
            by = n3ic_selected(x, (uint32_t)by);
            break;
        case N3IC_VOTES:
            n3ic_add_votes(x, values, (uint32_t)by, a, b);
            step += 2 + N3IC_VALUE_WORDS;
            continue;
        case N3IC_TREES:
            by = n3ic_leaves(x, (uint32_t)by, b);
            break;
        case N3IC_CHOOSE:
            i = (uint32_t)by;
            by = N3IC_BIT(x, i) ? values[b] : values[a];
            break;
        case N3IC_ADD:
            by = values[a] + values[b];
            break;
        case N3IC_OFFSET:
            by += values[a];
            break;
        case N3IC_LOG_ADD:
            by = n3ic_log_add(values[a], values[b]);
            break;
#if N3IC_VALUE_WORDS == 2
        case N3IC_TIMES:
            by = n3ic_round(values[a] * values[b]);
            break;
        case N3IC_SCALE:
            by *= values[a];
            break;
        case N3IC_ROUND:
            by = n3ic_round(values[a]);
            break;
#endif
        default: /* N3IC_CONSTANT */
            break;
        }
        if (kind & N3IC_ADDS)
            by += values[kind >> 8];
        values[kind >> 8] = by;
        step += 2 + N3IC_VALUE_WORDS;
    }
    a = n3ic_words[19];
    for (i = 0; i < N3IC_CLASSES; i++)
        scores[i] = (int32_t)values[n3ic_words[a + i]];
    (void)place;
    (void)y;
}

#endif /* N3IC_GRAPH_H */
