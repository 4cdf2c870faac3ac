// SPDX-License-Identifier: Apache-2.0

/*
 * Sums the entries of the look-up tables above, with the interface of bnn.h.
 *
 * Rows of packed bits are computed in blocks: the bytes of a block's rows lie beside each
 * other, and loops over rows, which compilers turn into vector code, take the bits of an index.
 * Rows of features need no bits: the interval of each feature gives words that are OR-ed, which
 * hold all indices.
 */

/* A shuffle of a register looks 16 rows up at once. */
#if NET_X86 && !defined(__clang__)
#define TABLES_SHUFFLES 1
typedef int8_t tables_octets __attribute__((vector_size(16), aligned(1), may_alias));
typedef int16_t tables_wide __attribute__((vector_size(32)));
typedef uint8_t tables_row __attribute__((vector_size(32), aligned(1), may_alias));
#else
#define TABLES_SHUFFLES 0
#endif

#define FEW_CUTS 16u /* more are searched in halves */

/* --- indices --------------------------------------------------------------------------- */

NET_INLINE void indices_of_words(const uint32_t *words, const size_t rows,
                                 uint8_t (*restrict index)[BLOCK], const int vector) {
    uint8_t octet[4 * WORDS][BLOCK];
    for (uint32_t w = 0; w < WORDS; w++) {
        uint32_t column[BLOCK];
        for (size_t i = 0; i < rows; i++) {
            column[i] = words[i * WORDS + w];
        }
        for (uint32_t k = 0; k < 4; k++) {
            for (size_t i = 0; i < rows; i++) {
                octet[4 * w + k][i] = (uint8_t)(column[i] >> 8 * k);
            }
        }
    }
    const uint16_t *bit = bits;
#if TABLES_SHUFFLES
    const int whole = vector && rows == BLOCK;
    for (uint32_t t = 0; whole && t < TABLES; bit += sizes[t], t++) {
        tables_row value = {0};
        for (uint32_t j = sizes[t]; j > 0; j--) {
            const tables_row from = *(const tables_row *)octet[bit[j - 1] / 8];
            const tables_row unset = (tables_row)((from & (uint8_t)(1u << bit[j - 1] % 8)) == 0);
            value += value + 1 + unset; /* all bits, -1, where it is not set */
        }
        *(tables_row *)index[t] = value;
    }
    if (whole) {
        return;
    }
#else
    (void)vector;
#endif
    for (uint32_t t = 0; t < TABLES; bit += sizes[t], t++) {
        uint8_t value[BLOCK] = {0};
        for (uint32_t j = sizes[t]; j > 0; j--) {
            const uint8_t *from = octet[bit[j - 1] / 8];
            const uint8_t mask = (uint8_t)(1u << bit[j - 1] % 8);
            for (size_t i = 0; i < rows; i++) {
                value[i] = (uint8_t)(2 * value[i] + ((from[i] & mask) != 0));
            }
        }
        memcpy(index[t], value, rows);
    }
}

/* Number of cuts that a value reaches. */
NET_INLINE uint32_t reached(const uint32_t *cut, uint32_t count, uint32_t value) {
    uint32_t low = 0;
    if (count <= FEW_CUTS) {
        for (uint32_t k = 0; k < count; k++) {
            low += value >= cut[k];
        }
        return low;
    }
    while (count) {
        const uint32_t half = count / 2;
        const uint32_t above = value >= cut[low + half];
        low += above ? half + 1 : 0;
        count = above ? count - half - 1 : half;
    }
    return low;
}

NET_INLINE void indices_of_features(const uint32_t *features, uint64_t *restrict index) {
    for (const struct part *p = parts; p < parts + PARTS; p++) {
        const uint32_t value = features[p->feature];
        if (!p->raw) {
            const uint64_t *mark = marks[p->marks + reached(part_cuts + p->cuts, p->count, value)];
            for (uint32_t k = 0; k < INDEX_WORDS; k++) {
                index[k] |= mark[k];
            }
            continue;
        }
        const uint32_t clamped = value < p->clamp ? value : p->clamp;
        for (uint32_t b = 0; b < p->count; b++) {
            const uint64_t all = 0 - (uint64_t)(clamped >> b & 1u);
            for (uint32_t k = 0; k < INDEX_WORDS; k++) {
                index[k] |= marks[p->marks + b][k] & all;
            }
        }
    }
}

/* --- sums ------------------------------------------------------------------------------ */

#if TABLES_SHUFFLES
/* The sums of a block for tables of up to 32 entries, which lie in two registers. */
NET_INLINE uint32_t shuffled_sums(const uint8_t (*restrict index)[BLOCK],
                                  int32_t (*restrict sum)[BLOCK]) {
    const int8_t *table = entries;
    uint32_t t = 0;
    while (t < TABLES && sizes[t] <= 5) {
        /* 16 bits hold the sums of so many entries of 8. */
        const uint32_t end = t + 255 < TABLES ? t + 255 : TABLES;
        tables_wide wide[SUMS][BLOCK / 16] = {0};
        for (; t < end && sizes[t] <= 5; table += SUMS << sizes[t], t++) {
            for (uint32_t s = 0; s < SUMS; s++) {
                const int8_t *own = table + (s << sizes[t]);
                const tables_octets low = *(const tables_octets *)own;
                const tables_octets high = *(const tables_octets *)(own + 16);
                for (size_t i = 0; i < BLOCK / 16; i++) {
                    const tables_octets at = *(const tables_octets *)(index[t] + 16 * i);
                    const tables_octets found = sizes[t] == 5 ? __builtin_shuffle(low, high, at)
                                                              : __builtin_shuffle(low, at);
                    wide[s][i] += __builtin_convertvector(found, tables_wide);
                }
            }
        }
        for (uint32_t s = 0; s < SUMS; s++) {
            for (size_t i = 0; i < BLOCK; i++) {
                sum[s][i] += wide[s][i / 16][i % 16];
            }
        }
    }
    return t;
}
#endif

/* Adds the entries of a block; `vector` says whether the CPU has AVX2. */
NET_INLINE void sums_of_block(const uint8_t (*restrict index)[BLOCK], const size_t rows,
                              int32_t (*restrict sum)[BLOCK], const int vector) {
    uint32_t t = 0;
#if TABLES_SHUFFLES
    if (vector && rows == BLOCK) {
        t = shuffled_sums(index, sum);
    }
#else
    (void)vector;
#endif
    const int8_t *table = entries + starts[t];
    for (; t < TABLES; table += SUMS << sizes[t], t++) {
        for (uint32_t s = 0; s < SUMS; s++) {
            const int8_t *own = table + (s << sizes[t]);
            for (size_t i = 0; i < rows; i++) {
                sum[s][i] += own[index[t][i]];
            }
        }
    }
}

NET_INLINE void sums_of_row(const uint64_t *index, int32_t *restrict sum) {
    const int8_t *table = entries;
    for (uint32_t t = 0; t < TABLES; table += SUMS << sizes[t], t++) {
        const uint32_t at = (uint8_t)(index[t / 8] >> 8 * (t % 8));
        for (uint32_t s = 0; s < SUMS; s++) {
            sum[s] += table[(s << sizes[t]) + at];
        }
    }
}

/* The highest score wins, the lowest index on a tie. A margin below SHUNT is shunted. */
NET_INLINE void decide(const int32_t *score, size_t row, const struct sink *out) {
    int64_t best = score[0];
    int64_t second = INT64_MIN;
    uint32_t class_index = 0;
    for (uint32_t c = 1; c < CLASSES; c++) {
        if (score[c] > best) {
            second = best;
            best = score[c];
            class_index = c;
        } else if (score[c] > second) {
            second = score[c];
        }
    }
    if (out->classes) {
        out->classes[row] = best - second < SHUNT ? BNN_SHUNT : class_index;
    }
    if (out->margins) {
        out->margins[row] = (int32_t)(best - second);
    }
    for (uint32_t c = 0; out->scores && c < CLASSES; c++) {
        out->scores[row * CLASSES + c] = score[c];
    }
}

/* `rows` is a constant at each call, so that inlining makes loops of fixed length. */
NET_INLINE void infer_words(const uint32_t *words, const size_t rows, size_t start,
                            const struct sink *out, const int vector) {
    uint8_t index[TABLES][BLOCK];
    int32_t sum[SUMS][BLOCK];
    for (uint32_t s = 0; s < SUMS; s++) {
        for (size_t i = 0; i < rows; i++) {
            sum[s][i] = bias[s];
        }
    }
    indices_of_words(words, rows, index, vector);
    sums_of_block((const uint8_t (*)[BLOCK])index, rows, sum, vector);
    for (size_t i = 0; i < rows; i++) {
        int32_t score[CLASSES] = {0}; /* of two classes, the first scores 0 */
        for (uint32_t s = 0; s < SUMS; s++) {
            score[CLASSES - SUMS + s] = sum[s][i];
        }
        decide(score, start + i, out);
    }
}

NET_INLINE void infer(const uint32_t *input, size_t rows, const struct sink *out, int is_words,
                      int vector) {
    if (!is_words) {
        for (size_t i = 0; i < rows; i++) {
            uint64_t index[INDEX_WORDS] = {0};
            int32_t score[CLASSES] = {0};
            memcpy(score + (CLASSES - SUMS), bias, sizeof bias);
            indices_of_features(input + i * FIELDS, index);
            sums_of_row(index, score + (CLASSES - SUMS));
            decide(score, i, out);
        }
        return;
    }
    size_t start = 0;
    for (; start + BLOCK <= rows; start += BLOCK) {
        infer_words(input + start * WORDS, BLOCK, start, out, vector);
    }
    for (; start < rows; start++) {
        infer_words(input + start * WORDS, 1, start, out, vector);
    }
}

static void encode(const uint32_t *features, uint32_t *words) {
    memset(words, 0, WORDS * sizeof *words);
    uint32_t bit = 0;
    for (const struct code *c = codes; c < codes + CODES; c++) {
        const uint32_t value = features[c->feature] < c->clamp ? features[c->feature] : c->clamp;
        for (uint32_t k = 0; k < c->width; k++, bit++) {
            const uint32_t set = c->raw ? value >> k & 1u : value >= cuts[c->first + k];
            words[bit / 32] |= set << bit % 32;
        }
    }
}
