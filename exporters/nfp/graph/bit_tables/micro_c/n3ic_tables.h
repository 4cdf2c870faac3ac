/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Look-up tables: the indices of all tables from features or from packed input bits, then one row
 * of each table, whose entries are added up. A row is one word unless its entries need more.
 *
 * All parameters are in n3ic_words (n3ic_weights.h), which has the layout of weights.bin.
 */
#ifndef N3IC_TABLES_H
#define N3IC_TABLES_H

#include "n3ic_cuts.h"

/* Place of the next word of indices; bounded, so that wrong weights overrun no array. */
__intrinsic uint32_t n3ic_next_index_word(uint32_t word) {
    return word + 1 < N3IC_INDEX_WORDS ? word + 1 : word;
}

/* Sets the bits of the indices that the words from `mark` on name. */
__intrinsic void n3ic_set_index_bits(uint32_t mark, N3IC_STATE uint32_t *x) {
    uint32_t i;

    for (i = 0; i < N3IC_INDEX_WORDS; i++)
        x[i] |= n3ic_words[mark + i];
}

/* The indices of all tables, packed in `x`, from features: no input bit is made. */
static void n3ic_encode(N3IC_STATE uint32_t *features, N3IC_STATE uint32_t *x) {
    uint32_t parts = n3ic_words[5];
    uint32_t part = n3ic_words[6];
    uint32_t kind;
    uint32_t value;
    uint32_t count;
    uint32_t cut;
    uint32_t mark;
    uint32_t i;

    for (i = 0; i < N3IC_INDEX_WORDS; i++)
        x[i] = 0;
    for (; parts > 0; parts--) {
        kind = n3ic_words[part];
        value = features[kind & 0x7fff];
        count = kind >> 16;
        cut = n3ic_words[part + 1];
        mark = n3ic_words[part + 2];
        if ((kind & 0x8000) == 0) {
            if (value > cut) /* the largest value stands in place of cuts */
                value = cut;
            for (; count > 0; count--) {
                if (value & 1)
                    n3ic_set_index_bits(mark, x);
                value >>= 1;
                mark += N3IC_INDEX_WORDS;
            }
        } else {
            count = n3ic_count_reached_cuts(cut, count, value);
            if (count > 0)
                n3ic_set_index_bits(mark + (count - 1) * N3IC_INDEX_WORDS, x);
        }
        part += 3;
    }
}

/* The indices of all tables, packed in `x`, from packed input bits in `x`; overwrites `y`. */
static void n3ic_address(N3IC_STATE uint32_t *x, N3IC_STATE uint32_t *y) {
    uint32_t groups = n3ic_words[18];
    uint32_t group = N3IC_FIRST_GROUP;
    uint32_t at = n3ic_words[19];
    uint32_t numbers = 0;
    uint32_t odd = 0;
    uint32_t word = 0;
    uint32_t shift = 0;
    uint32_t packed = 0;
    uint32_t tables;
    uint32_t size;
    uint32_t bit;
    uint32_t i;

    for (; groups > 0; groups--) {
        size = n3ic_words[group + 1] & 255;
        for (tables = n3ic_words[group]; tables > 0; tables--) {
            if (shift + size > 32) {
                y[word] = packed;
                word = n3ic_next_index_word(word);
                packed = 0;
                shift = 0;
            }
            for (i = 0; i < size; i++) {
                if (odd == 0)
                    numbers = n3ic_words[at++];
                odd ^= 1;
                bit = numbers & 0xffff;
                numbers >>= 16;
                packed |= (x[bit / 32] >> (bit % 32) & 1) << shift;
                shift++;
            }
        }
        group += N3IC_GROUP_WORDS;
    }
    y[word] = packed;
    for (i = 0; i < N3IC_INDEX_WORDS; i++)
        x[i] = y[i];
}

/* Class scores of the indices in `x`. Two classes have one sum, the score of the second. */
static void n3ic_run(uint32_t place, N3IC_STATE uint32_t *x, N3IC_STATE uint32_t *y,
                     N3IC_STATE int32_t *scores) {
    N3IC_STATE int32_t *sums = scores + (N3IC_CLASSES - N3IC_SUMS);
    uint32_t groups = n3ic_words[18];
    uint32_t group = N3IC_FIRST_GROUP;
    uint32_t bias = n3ic_words[20];
    uint32_t word = 0;
    uint32_t shift = 0;
    uint32_t packed = x[0];
#if N3IC_SUMS == 1
    uint32_t total = n3ic_words[bias];
#else
    uint32_t left;
    uint32_t used;
    uint32_t i;
#endif
    uint32_t tables;
    uint32_t size;
    uint32_t slot;
    uint32_t row;
    uint32_t slots;
    uint32_t first;
    uint32_t bit;
    uint32_t entries;

#ifdef N3IC_TRACE
    for (bit = 0; bit < N3IC_INDEX_WORDS; bit++)
        n3ic_box[place].hidden[bit] = x[bit];
#endif
    scores[0] = 0;
#if N3IC_SUMS > 1
    for (i = 0; i < N3IC_SUMS; i++)
        sums[i] = (int32_t)n3ic_words[bias + i];
#endif
    for (; groups > 0; groups--) {
        size = n3ic_words[group + 1];
        slot = size >> 8 & 255;
        row = size >> 16;
        size &= 255;
        slots = n3ic_words[group + 2];
        first = n3ic_words[group + 3];
        for (tables = n3ic_words[group]; tables > 0; tables--) {
            if (shift + size > 32) {
                word = n3ic_next_index_word(word);
                packed = x[word];
                shift = 0;
            }
            bit = (packed >> shift & (((uint32_t)1 << size) - 1)) * row;
            shift += size;
            entries = n3ic_words[first + bit / 32]; /* the one load of a table, if a row fits */
#if N3IC_SUMS == 1
            if (slots)
                total += entries >> (bit % 32) & (((uint32_t)1 << slot) - 1);
#else
            entries >>= bit % 32;
            bit /= 32;
            used = 0;
            i = 0;
            for (left = slots; left > 0; left >>= 1) {
                if (left & 1) {
                    if (used == 32) {
                        bit++;
                        entries = n3ic_words[first + bit];
                        used = 0;
                    }
                    sums[i] += (int32_t)(entries & (((uint32_t)1 << slot) - 1));
                    entries >>= slot;
                    used += slot;
                }
                i++;
            }
#endif
            first += ((row << size) + 31) / 32;
        }
        group += N3IC_GROUP_WORDS;
    }
#if N3IC_SUMS == 1
    sums[0] = (int32_t)total;
#endif
    (void)place;
    (void)y;
}

#endif /* N3IC_TABLES_H */
