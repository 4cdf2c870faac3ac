// SPDX-License-Identifier: Apache-2.0

/*
 * Computes the sum-product network of the tables above, with the interface of bnn.h.
 *
 * Rows are computed in blocks: each step of the program is one loop over the rows of a block,
 * which compilers turn into vector code. Values have one of two forms. Logarithms of base 2 have 32
 * bits: a product adds them, a sum is the larger operand plus a correction from a table. Fixed
 * point numbers have 64 bits.
 */

/* Tables of eight entries lie in one AVX2 register: a shuffle reads eight rows at once. */
#if NET_X86 && SPN_LOG && !defined(__clang__)
#define SPN_SHUFFLES 1
typedef int32_t spn_eight __attribute__((vector_size(32), aligned(4), may_alias));
#else
#define SPN_SHUFFLES 0
#endif

#define FEW_CUTS 32u /* more are searched in halves */

/* --- bins ------------------------------------------------------------------------------ */

NET_INLINE uint32_t count_bits(uint32_t bits) {
#if defined(__GNUC__)
    return (uint32_t)__builtin_popcount(bits);
#else
    /* Sums in fields of 2, 4 and 8 bits; the product adds the four bytes into the highest. */
    bits -= (bits >> 1) & 0x55555555u;
    bits = (bits & 0x33333333u) + ((bits >> 2) & 0x33333333u);
    return (((bits + (bits >> 4)) & 0x0f0f0f0fu) * 0x01010101u) >> 24;
#endif
}

/* The bin of each feature is the number of bits set in its field: a thermometer code. */
NET_INLINE void bins_of_words(const uint32_t *words, size_t rows, uint32_t (*bins)[BLOCK]) {
    memset(bins, 0, sizeof(uint32_t[FIELDS][BLOCK]));
    for (const struct part *p = parts; p < parts + PARTS; p++) {
        uint32_t *bin = bins[p->field];
        for (size_t i = 0; i < rows; i++) {
            bin[i] += count_bits(words[i * WORDS + p->word] & p->mask);
        }
    }
}

/* Number of cuts that a value reaches. Cuts increase, so a binary search finds it. */
NET_INLINE uint32_t count_reached_cuts(const uint32_t *cut, uint32_t count, uint32_t value) {
    uint32_t low = 0;
    while (count) {
        const uint32_t half = count / 2;
        const uint32_t above = value >= cut[low + half];
        low += above ? half + 1 : 0;
        count = above ? count - half - 1 : half;
    }
    return low;
}

NET_INLINE void bins_of_features(const uint32_t *features, size_t rows, uint32_t (*bins)[BLOCK]) {
    uint32_t value[BLOCK] = {0};
    for (uint32_t f = 0; f < FIELDS; f++) {
        const uint32_t *cut = cuts + fields[f].first;
        const uint32_t width = fields[f].width;
        for (size_t i = 0; i < rows; i++) {
            value[i] = features[i * FIELDS + f];
        }
        /* Loops run over whole blocks, which vectorises; values of missing rows are not used. */
        if (width > FEW_CUTS) {
            for (size_t i = 0; i < BLOCK; i++) {
                bins[f][i] = count_reached_cuts(cut, width, value[i]);
            }
            continue;
        }
        memset(bins[f], 0, sizeof bins[f]);
        for (uint32_t k = 0; k < width; k++) {
            for (size_t i = 0; i < BLOCK; i++) {
                bins[f][i] += value[i] >= cut[k];
            }
        }
    }
}

/* --- the network ----------------------------------------------------------------------- */

#if SPN_SHUFFLES
NET_INLINE void look_up_eight(spn_value *to, const spn_value *a, const uint32_t *bin,
                              const spn_value *table) {
    const spn_eight entries = *(const spn_eight *)table;
    for (size_t i = 0; i < BLOCK; i += 8) {
        spn_eight values = __builtin_shuffle(entries, *(const spn_eight *)(bin + i));
        if (a) {
            values += *(const spn_eight *)(a + i);
        }
        *(spn_eight *)(to + i) = values;
    }
}
#endif

/* Runs all steps for the first `rows` of a block. `rows` and `vector` (whether the CPU has AVX2)
 * are constants at each call, so that inlining makes a loop of fixed length for each. */
NET_INLINE void run_steps(const uint32_t (*restrict bins)[BLOCK],
                          spn_value (*restrict values)[BLOCK], const size_t rows,
                          const int vector) {
#if !SPN_SHUFFLES
    (void)vector;
#endif
    for (const struct step *s = program; s < program + STEPS; s++) {
        spn_value *restrict to = values[s->to];
        const spn_value *a = values[s->a];
        switch (s->kind) {
        case STEP_CONSTANT:
            for (size_t i = 0; i < rows; i++) {
                to[i] = s->by;
            }
            break;
        case STEP_LOOKUP_8:
        case STEP_LOOKUP: {
            const spn_value *table = tables + s->by;
            const uint32_t *bin = bins[s->b];
#if SPN_SHUFFLES
            if (vector && rows == BLOCK && s->kind == STEP_LOOKUP_8) {
                look_up_eight(to, NULL, bin, table);
                break;
            }
#endif
            for (size_t i = 0; i < rows; i++) {
                to[i] = table[bin[i]];
            }
            break;
        }
        case STEP_ADD_LOOKUP_8:
        case STEP_ADD_LOOKUP: {
            const spn_value *table = tables + s->by;
            const uint32_t *bin = bins[s->b];
#if SPN_SHUFFLES
            if (vector && rows == BLOCK && s->kind == STEP_ADD_LOOKUP_8) {
                look_up_eight(to, a, bin, table);
                break;
            }
#endif
            for (size_t i = 0; i < rows; i++) {
                to[i] = a[i] + table[bin[i]];
            }
            break;
        }
        case STEP_ADD: {
            const spn_value *b = values[s->b];
            for (size_t i = 0; i < rows; i++) {
                to[i] = a[i] + b[i];
            }
            break;
        }
        case STEP_OFFSET:
            for (size_t i = 0; i < rows; i++) {
                to[i] = a[i] + s->by;
            }
            break;
#if SPN_LOG
        case STEP_LOG_ADD: {
            const spn_value *b = values[s->b];
            uint32_t distance[BLOCK];
            for (size_t i = 0; i < rows; i++) {
                const uint32_t d = (uint32_t)(a[i] > b[i] ? a[i] - b[i] : b[i] - a[i]);
                to[i] = a[i] > b[i] ? a[i] : b[i];
                distance[i] = d < LOG_ADD ? d : LOG_ADD;
            }
            for (size_t i = 0; i < rows; i++) {
                to[i] += log_add[distance[i]];
            }
            break;
        }
#else
        /* Operands of a product are below 2^32: vector units have a 32 by 32 bit multiplication,
         * but not all have one of 64 bits. */
        case STEP_TIMES: {
            const spn_value *b = values[s->b];
            for (size_t i = 0; i < rows; i++) {
                const uint64_t exact = (uint64_t)(uint32_t)a[i] * (uint32_t)b[i];
                to[i] = (spn_value)((exact + HALF) >> FRACTION);
            }
            break;
        }
        case STEP_SCALE:
            for (size_t i = 0; i < rows; i++) {
                to[i] = (spn_value)((uint64_t)(uint32_t)a[i] * (uint32_t)s->by);
            }
            break;
        case STEP_ROUND:
            for (size_t i = 0; i < rows; i++) {
                to[i] = (spn_value)(((uint64_t)a[i] + HALF) >> FRACTION);
            }
            break;
#endif
        }
    }
}

/* The highest score wins, the lowest index on a tie. A margin below SHUNT is shunted. */
NET_INLINE void decide(const spn_value (*values)[BLOCK], size_t rows, size_t start,
                       const struct sink *out) {
    for (size_t i = 0; i < rows; i++) {
        int64_t best = values[scores_at[0]][i];
        int64_t second = INT64_MIN;
        uint32_t class_index = 0;
        for (uint32_t c = 1; c < CLASSES; c++) {
            const int64_t score = values[scores_at[c]][i];
            if (score > best) {
                second = best;
                best = score;
                class_index = c;
            } else if (score > second) {
                second = score;
            }
        }
        if (out->classes) {
            out->classes[start + i] = best - second < SHUNT ? BNN_SHUNT : class_index;
        }
        if (out->margins) {
            out->margins[start + i] = (int32_t)(best - second);
        }
        for (uint32_t c = 0; out->scores && c < CLASSES; c++) {
            out->scores[(start + i) * CLASSES + c] = (int32_t)values[scores_at[c]][i];
        }
    }
}

NET_INLINE void infer(const uint32_t *input, size_t rows, const struct sink *out, int is_words,
                      int vector) {
    uint32_t bins[FIELDS][BLOCK];
    spn_value values[SLOTS][BLOCK];
    for (size_t start = 0; start < rows; start += BLOCK) {
        const size_t n = rows - start < BLOCK ? rows - start : BLOCK;
        if (is_words) {
            bins_of_words(input + start * WORDS, n, bins);
        } else {
            bins_of_features(input + start * FIELDS, n, bins);
        }
        /* A part of a block runs as a whole one: the surplus rows have bins and are dropped. */
        if (n == 1) {
            run_steps((const uint32_t (*)[BLOCK])bins, values, 1, vector);
        } else {
            run_steps((const uint32_t (*)[BLOCK])bins, values, BLOCK, vector);
        }
        decide((const spn_value(*)[BLOCK])values, n, start, out);
    }
}

static void encode(const uint32_t *features, uint32_t *words) {
    memset(words, 0, WORDS * sizeof *words);
    for (uint32_t f = 0, bit = 0; f < FIELDS; f++) {
        for (uint32_t k = 0; k < fields[f].width; k++, bit++) {
            words[bit / 32] |= (uint32_t)(features[f] >= cuts[fields[f].first + k]) << bit % 32;
        }
    }
}
