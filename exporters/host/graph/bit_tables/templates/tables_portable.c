// SPDX-License-Identifier: Apache-2.0
/*
 * Blocks and rows of look-up tables in plain C.
 *
 * A block holds a byte a row for each input bit, 0 or 1, in words of eight rows. They give the
 * indices of a table for all rows of a block. A row alone has a byte an input bit.
 */

#define LANES (BLOCK / 8)

/* The bits of raw values take the place of comparisons. */
NET_INLINE void set_raw(const uint32_t *features, uint32_t *words) {
    for (const struct code *c = codes; RAW && c < codes + CODES; c++) {
        const uint32_t value = features[c->feature] < c->clamp ? features[c->feature] : c->clamp;
        for (uint32_t k = 0; c->raw && k < c->width; k++) {
            const uint32_t at = c->first + k;
            words[at / 32] &= ~(1u << at % 32);
            words[at / 32] |= (value >> k & 1u) << at % 32;
        }
    }
}

static void encode(const uint32_t *features, uint32_t *words) {
    memset(words, 0, WORDS * sizeof *words);
    for (uint32_t k = 0; k < INPUTS; k++) {
        words[k / 32] |= (uint32_t)(features[compared[k]] >= cuts[k]) << k % 32;
    }
    set_raw(features, words);
}

union lanes {
    uint64_t lane[LANES];
    uint8_t octet[BLOCK];
};

NET_INLINE void block_of_words(const uint32_t *words, union lanes *restrict set) {
    for (uint32_t w = 0; w < WORDS; w++) {
        uint32_t column[BLOCK];
        for (size_t i = 0; i < BLOCK; i++) {
            column[i] = words[i * WORDS + w];
        }
        for (uint32_t k = 0; k < 4; k++) {
            union lanes part;
            for (size_t i = 0; i < BLOCK; i++) {
                part.octet[i] = (uint8_t)(column[i] >> 8 * k);
            }
            for (uint32_t b = 0; b < 8; b++, set++) {
                for (uint32_t l = 0; l < LANES; l++) {
                    set->lane[l] = part.lane[l] >> b & 0x0101010101010101u;
                }
            }
        }
    }
}

NET_INLINE void block_of_features(const uint32_t *features, union lanes *restrict set) {
    for (const struct code *c = codes; c < codes + CODES; c++) {
        uint32_t raw[BLOCK];
        int32_t value[BLOCK]; /* in the same order: SSE2 compares signed numbers */
        for (size_t i = 0; i < BLOCK; i++) {
            const uint32_t feature_value = features[i * FIELDS + c->feature];
            raw[i] = feature_value < c->clamp ? feature_value : c->clamp;
            value[i] = (int32_t)(feature_value ^ 0x80000000u);
        }
        for (uint32_t k = 0; k < c->width; k++, set++) {
            const int32_t cut = (int32_t)(cuts[c->first + k] ^ 0x80000000u);
            if (c->raw) {
                for (size_t i = 0; i < BLOCK; i++) {
                    set->octet[i] = raw[i] >> k & 1u;
                }
            } else {
                for (size_t i = 0; i < BLOCK; i++) {
                    set->octet[i] = value[i] >= cut;
                }
            }
        }
    }
}

NET_INLINE void sums_of_block(const union lanes *set, int32_t (*restrict sum)[BLOCK]) {
    const uint16_t *bit = bits;
    for (uint32_t t = 0; t < TABLES; bit += SIZE(t), t++) {
        union lanes at = set[bit[0]];
        for (uint32_t j = 1; j < SIZE(t); j++) {
            for (uint32_t l = 0; l < LANES; l++) {
                at.lane[l] |= set[bit[j]].lane[l] << j;
            }
        }
        for (uint32_t s = 0; s < SUMS; s++) {
            const int8_t *own = entries + START(t) + (s << SIZE(t));
            for (size_t i = 0; i < BLOCK; i++) {
                sum[s][i] += own[at.octet[i]];
            }
        }
    }
}

/* --- rows alone ------------------------------------------------------------------------ */

NET_INLINE void row_of_words(const uint32_t *words, uint8_t *restrict set) {
    static const uint8_t spread[16][4] = {
        {0, 0, 0, 0}, {1, 0, 0, 0}, {0, 1, 0, 0}, {1, 1, 0, 0}, {0, 0, 1, 0}, {1, 0, 1, 0},
        {0, 1, 1, 0}, {1, 1, 1, 0}, {0, 0, 0, 1}, {1, 0, 0, 1}, {0, 1, 0, 1}, {1, 1, 0, 1},
        {0, 0, 1, 1}, {1, 0, 1, 1}, {0, 1, 1, 1}, {1, 1, 1, 1},
    };
    for (uint32_t k = 0; k < 8 * WORDS; k++) {
        memcpy(set + 4 * k, spread[words[k / 8] >> 4 * (k % 8) & 15u], 4);
    }
}

NET_INLINE void row_of_features(const uint32_t *features, uint8_t *restrict set) {
    if (RAW) {
        uint32_t words[WORDS];
        encode(features, words);
        row_of_words(words, set);
        return;
    }
    for (uint32_t k = 0; k < INPUTS; k++) {
        set[k] = features[compared[k]] >= cuts[k];
    }
}

NET_INLINE void indices_of_row(const uint8_t *set, uint8_t *restrict index) {
    const uint16_t *bit = bits;
    for (uint32_t t = 0; t < TABLES; bit += SIZE(t), t++) {
        uint32_t value = set[bit[0]];
        for (uint32_t j = 1; j < SIZE(t); j++) {
            value |= (uint32_t)set[bit[j]] << j;
        }
        index[t] = (uint8_t)value;
    }
}

NET_INLINE int32_t entry(const uint8_t *index, uint32_t t, uint32_t s) {
    return entries[START(t) + (s << SIZE(t)) + index[t]];
}

NET_INLINE void sums_of_row(const uint8_t *index, int32_t (*restrict sum)[BLOCK]) {
    for (uint32_t s = 0; s < SUMS; s++) {
        int32_t part[4] = {sum[s][0], 0, 0, 0};
        uint32_t t = 0;
        for (; t + 4 <= TABLES; t += 4) {
            for (uint32_t k = 0; k < 4; k++) {
                part[k] += entry(index, t + k, s);
            }
        }
        for (; t < TABLES; t++) {
            part[0] += entry(index, t, s);
        }
        sum[s][0] = part[0] + part[1] + part[2] + part[3];
    }
}
