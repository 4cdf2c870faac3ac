// SPDX-License-Identifier: Apache-2.0
/*
 * Sums the entries of the look-up tables above, with the interface of bnn.h.
 *
 * Rows are computed in blocks: each input bit becomes a mask, from packed bits or from comparisons
 * with cuts. The few rows that are no block are computed one by one.
 */

/* Rows from which on a block is faster than one by one, which it is filled up for. */
#define LEAST 16u
#define LEAST_VECTOR 8u

/* --- decisions ------------------------------------------------------------------------- */

/* The highest score wins, the lowest index on a tie. A margin below SHUNT is shunted. Computes
 * `most` rows, a constant at each call, and writes `count` of them. */
NET_INLINE void decide(const int32_t (*restrict sum)[BLOCK], const size_t most, size_t count,
                       size_t start, const struct sink *out) {
    int32_t margin[BLOCK];
    uint32_t class[BLOCK];
    if (CLASSES == 2) { /* the first scores 0 */
        for (size_t i = 0; i < most; i++) {
            margin[i] = sum[0][i] < 0 ? -sum[0][i] : sum[0][i];
            class[i] = margin[i] < SHUNT ? BNN_SHUNT : sum[0][i] > 0;
        }
    } else {
        int32_t best[BLOCK];
        int32_t second[BLOCK];
        for (size_t i = 0; i < most; i++) {
            const int32_t a = sum[0][i];
            const int32_t b = sum[1 % SUMS][i];
            best[i] = b > a ? b : a;
            second[i] = b > a ? a : b;
            class[i] = b > a;
        }
        for (uint32_t c = 2; c < CLASSES; c++) {
            for (size_t i = 0; i < most; i++) {
                const int32_t score = sum[c % SUMS][i];
                const int32_t lower = score < best[i] ? score : best[i];
                class[i] = score > best[i] ? c : class[i];
                best[i] = score > best[i] ? score : best[i];
                second[i] = lower > second[i] ? lower : second[i];
            }
        }
        for (size_t i = 0; i < most; i++) {
            margin[i] = best[i] - second[i]; /* scores are below 2^30 */
            class[i] = margin[i] < SHUNT ? BNN_SHUNT : class[i];
        }
    }
    if (out->classes) {
        memcpy(out->classes + start, class, count * sizeof *class);
    }
    if (out->margins) {
        memcpy(out->margins + start, margin, count * sizeof *margin);
    }
    for (size_t i = 0; out->scores && i < count; i++) {
        int32_t *score = out->scores + (start + i) * CLASSES;
        for (uint32_t c = 0; c < CLASSES; c++) {
            score[c] = CLASSES > SUMS ? c ? sum[0][i] : 0 : sum[c % SUMS][i];
        }
    }
}

/* --- sums ------------------------------------------------------------------------------- */

/* Adds entries to the sums of a block of rows, or of its first alone. `vector`: 1 where the CPU has
 * AVX2, 2 where it has AVX-512, else 0. */
NET_INLINE void add_entries(const uint32_t *input, int32_t (*restrict sum)[BLOCK], int is_words,
                            int alone, int vector) {
#if NET_X86
    if (vector) {
        (vector == 2 ? sums_avx512 : sums_avx2)(input, sum, is_words, alone);
        return;
    }
#else
    (void)vector;
#endif
    if (alone) {
        uint8_t set[32 * WORDS];
        uint8_t index[TABLES];
        if (is_words) {
            row_of_words(input, set);
        } else {
            row_of_features(input, set);
        }
        indices_of_row(set, index);
        sums_of_row(index, sum);
        return;
    }
    union lanes set[32 * WORDS];
    if (is_words) {
        block_of_words(input, set);
    } else {
        block_of_features(input, set);
    }
    sums_of_block(set, sum);
}

NET_INLINE void infer(const uint32_t *input, size_t rows, const struct sink *out, int is_words,
                      int vector) {
    const size_t width = is_words ? WORDS : FIELDS;
    const size_t least = vector ? LEAST_VECTOR : LEAST;
    uint32_t padded[BLOCK * (WORDS > FIELDS ? WORDS : FIELDS)];
    int32_t sum[SUMS][BLOCK];
    size_t start = 0;
    for (size_t count = 0; start < rows; start += count) {
        const uint32_t *from = input + start * width;
        const size_t left = rows - start;
        if (left < least) {
            for (uint32_t s = 0; s < SUMS; s++) {
                sum[s][0] = bias[s];
            }
            count = 1;
            add_entries(from, sum, is_words, 1, vector);
            decide((const int32_t (*)[BLOCK])sum, 1, 1, start, out);
            continue;
        }
        count = left < BLOCK ? left : BLOCK;
        if (count < BLOCK) { /* rows of zeros follow, which nobody reads */
            memcpy(padded, from, count * width * sizeof *from);
            memset(padded + count * width, 0, (BLOCK - count) * width * sizeof *from);
            from = padded;
        }
        for (uint32_t s = 0; s < SUMS; s++) {
            for (size_t i = 0; i < BLOCK; i++) {
                sum[s][i] = bias[s];
            }
        }
        add_entries(from, sum, is_words, 0, vector);
        if (count == BLOCK) { /* a constant */
            decide((const int32_t (*)[BLOCK])sum, BLOCK, BLOCK, start, out);
        } else {
            decide((const int32_t (*)[BLOCK])sum, BLOCK, count, start, out);
        }
    }
}
