// SPDX-License-Identifier: Apache-2.0
/*
 * Blocks and rows of look-up tables in registers of 32 bytes, with AVX2.
 *
 * A plane is a register with a byte a row, in which an index finds a bit at its own place, from the
 * fifth bit on at the highest. Of features it is a mask: 255 where the row has the bit, else 0. Of
 * packed bits it is an octet of them, shifted: other bits are beside.
 */

#if NET_X86
#include <immintrin.h>

#define VECTOR static inline __attribute__((always_inline)) AVX2

VECTOR __m256i load_words(const void *from) {
    return _mm256_loadu_si256((const __m256i *)from);
}

/* The four words of a row in the lower half, those of the row 16 rows below in the upper half. */
VECTOR __m256i row_pair(const uint32_t *row, size_t width) {
    const __m128i low = _mm_loadu_si128((const __m128i *)row);
    const __m128i high = _mm_loadu_si128((const __m128i *)(row + 16 * width));
    return _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
}

/* The columns of a block. Register g of a column has the rows from 4 g on in its lower half, and
 * those from 16 + 4 g on in its upper half: packing four registers to bytes gives their order. */
VECTOR void columns_of(const uint32_t *rows, const uint32_t width, __m256i (*restrict column)[4]) {
    if (width < 4) {
        for (uint32_t w = 0; w < width; w++) {
            for (uint32_t g = 0; g < 4; g++) {
                const uint32_t *at = rows + 4 * g * width + w;
                int32_t value[8];
                for (uint32_t e = 0; e < 4; e++) {
                    value[e] = (int32_t)at[e * width];
                    value[4 + e] = (int32_t)at[(16 + e) * width];
                }
                column[w][g] = load_words(value);
            }
        }
        return;
    }
#pragma GCC unroll 4
    for (uint32_t next = 0; next < width; next += 4) {
        const uint32_t w = next + 4 <= width ? next : width - 4;
        for (uint32_t g = 0; g < 4; g++) {
            const uint32_t *at = rows + 4 * g * width + w;
            const __m256i a = row_pair(at, width);
            const __m256i b = row_pair(at + width, width);
            const __m256i c = row_pair(at + 2 * width, width);
            const __m256i d = row_pair(at + 3 * width, width);
            const __m256i ab = _mm256_unpacklo_epi32(a, b);
            const __m256i cd = _mm256_unpacklo_epi32(c, d);
            const __m256i ab_high = _mm256_unpackhi_epi32(a, b);
            const __m256i cd_high = _mm256_unpackhi_epi32(c, d);
            if (w == next) { /* else those of the turn before */
                column[w][g] = _mm256_unpacklo_epi64(ab, cd);
            }
            if (w + 1 >= next) {
                column[w + 1][g] = _mm256_unpackhi_epi64(ab, cd);
            }
            if (w + 2 >= next) {
                column[w + 2][g] = _mm256_unpacklo_epi64(ab_high, cd_high);
            }
            column[w + 3][g] = _mm256_unpackhi_epi64(ab_high, cd_high);
        }
    }
}

VECTOR void planes_of_words_avx2(const uint32_t *words, __m256i *restrict plane) {
    __m256i column[WORDS < 4 ? 4 : WORDS][4];
    __m256i octet[4 * WORDS];
    columns_of(words, WORDS, column);
    const __m256i of_bytes = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
#pragma GCC unroll 8
    for (uint32_t w = 0; w < WORDS; w++) {
        __m256i part[4];
        for (uint32_t g = 0; g < 4; g++) {
            part[g] = _mm256_shuffle_epi8(column[w][g], of_bytes);
        }
        const __m256i a = _mm256_unpacklo_epi32(part[0], part[1]);
        const __m256i b = _mm256_unpackhi_epi32(part[0], part[1]);
        const __m256i c = _mm256_unpacklo_epi32(part[2], part[3]);
        const __m256i d = _mm256_unpackhi_epi32(part[2], part[3]);
        octet[4 * w] = _mm256_unpacklo_epi64(a, c);
        octet[4 * w + 1] = _mm256_unpackhi_epi64(a, c);
        octet[4 * w + 2] = _mm256_unpacklo_epi64(b, d);
        octet[4 * w + 3] = _mm256_unpackhi_epi64(b, d);
    }
    /* Bits that come from a neighbour's byte are none that an index reads. */
#pragma GCC unroll 256
    for (uint32_t p = 0; p < PLANES; p++) {
        const int32_t by = plane_shifts[p];
        const __m256i from = octet[plane_octets[p]];
        plane[p] = by < 0 ? _mm256_slli_epi16(from, -by) : _mm256_srli_epi16(from, by);
    }
}

/* Joins registers of 32 bits a row to one of a byte a row. Their numbers fit, or are 0 and -1. */
VECTOR __m256i bytes_of(const __m256i *part) {
    return _mm256_packs_epi16(_mm256_packs_epi32(part[0], part[1]),
                              _mm256_packs_epi32(part[2], part[3]));
}

/* Masks of comparisons. Values up to 2^16 - 1 or 2^8 - 1 take their place where all cuts are. */
VECTOR void masks_of_cuts(const __m256i *value, const uint32_t *cut, uint32_t count,
                          __m256i *restrict mask) {
    const uint32_t top = cut[count - 1];
    if (top > UINT16_MAX || count == 1) {
        for (uint32_t k = 0; k < count; k++) {
            const __m256i limit = _mm256_set1_epi32((int32_t)cut[k]);
            __m256i part[4];
            for (uint32_t g = 0; g < 4; g++) {
                part[g] = _mm256_cmpeq_epi32(_mm256_max_epu32(value[g], limit), value[g]);
            }
            mask[k] = bytes_of(part);
        }
        return;
    }
    __m256i low[4];
    for (uint32_t g = 0; g < 4; g++) {
        low[g] = _mm256_min_epu32(value[g], _mm256_set1_epi32((int32_t)(top | 255u)));
    }
    const __m256i first = _mm256_packus_epi32(low[0], low[1]);
    const __m256i last = _mm256_packus_epi32(low[2], low[3]);
    if (top > UINT8_MAX) {
        for (uint32_t k = 0; k < count; k++) {
            const __m256i limit = _mm256_set1_epi16((int16_t)cut[k]);
            mask[k] = _mm256_packs_epi16(_mm256_cmpeq_epi16(_mm256_max_epu16(first, limit), first),
                                         _mm256_cmpeq_epi16(_mm256_max_epu16(last, limit), last));
        }
        return;
    }
    const __m256i all = _mm256_packus_epi16(first, last);
    for (uint32_t k = 0; k < count; k++) {
        mask[k] = _mm256_cmpeq_epi8(_mm256_max_epu8(all, _mm256_set1_epi8((char)cut[k])), all);
    }
}

VECTOR void masks_of_features_avx2(const uint32_t *features, __m256i *restrict mask) {
    __m256i column[FIELDS < 4 ? 4 : FIELDS][4];
    columns_of(features, FIELDS, column);
    for (const struct code *c = codes; c < codes + CODES; mask += c->width, c++) {
        if (!c->raw) {
            masks_of_cuts(column[c->feature], cuts + c->first, c->width, mask);
            continue;
        }
        for (uint32_t k = 0; k < c->width; k++) {
            const __m256i bit = _mm256_set1_epi32((int32_t)(1u << k));
            __m256i part[4];
            for (uint32_t g = 0; g < 4; g++) {
                const __m256i value =
                    _mm256_min_epu32(column[c->feature][g], _mm256_set1_epi32((int32_t)c->clamp));
                part[g] = _mm256_cmpeq_epi32(_mm256_and_si256(value, bit), bit);
            }
            mask[k] = bytes_of(part);
        }
    }
}

/* 16 entries, in both halves. */
VECTOR __m256i load_sixteen_bytes(const int8_t *from) {
    return _mm256_castps_si256(_mm256_broadcast_ps((const __m128 *)from));
}

/* Adds the entries of one table, modulo 256, for 32 rows. A shuffle selects among 16 entries by the
 * low bits of a byte; each further bit of the index chooses between the results of two. */
VECTOR void look_up(const __m256i *plane, const uint16_t *of, const int8_t *own,
                    const uint32_t size, __m256i *restrict total) {
    __m256i at = _mm256_and_si256(plane[of[0]], _mm256_set1_epi8(1));
    for (uint32_t j = 1; j < size && j < 4; j++) {
        const __m256i weight = _mm256_set1_epi8((char)(1u << j));
        at = _mm256_or_si256(at, _mm256_and_si256(plane[of[j]], weight));
    }
    for (uint32_t s = 0; s < SUMS; s++) {
        __m256i looked_up[16];
        uint32_t count = size > 4 ? 1u << (size - 4) : 1;
        for (uint32_t h = 0; h < count; h++) {
            looked_up[h] = _mm256_shuffle_epi8(load_sixteen_bytes(own + (s << size) + 16 * h), at);
        }
        for (uint32_t j = 4; j < size; j++) {
            __m256i sign = plane[of[j]];
            __asm__("" : "+x"(sign)); /* GCC 12 would compare it with 0 in memory first */
            count /= 2;
            for (uint32_t h = 0; h < count; h++) {
                looked_up[h] = _mm256_blendv_epi8(looked_up[2 * h], looked_up[2 * h + 1], sign);
            }
        }
        total[s] = _mm256_add_epi8(total[s], looked_up[0]);
    }
}

/* The loop over the tables is unrolled: their sizes, planes and places are then constants. `of` is
 * the plane of each bit of the indices. */
VECTOR void sums_of_planes_avx2(const __m256i *plane, const uint16_t *of,
                                int32_t (*restrict sum)[BLOCK]) {
    const uint16_t *span = spans;
    uint32_t end = *span;
    __m256i total[SUMS];
    for (uint32_t s = 0; s < SUMS; s++) {
        total[s] = _mm256_setzero_si256();
    }
#pragma GCC unroll 64
    for (uint32_t t = 0; t < TABLES; t++) {
        look_up(plane, of, entries + START(t), SIZE(t), total);
        of += SIZE(t);
        if (t + 1 < end) {
            continue;
        }
        for (uint32_t s = 0; s < SUMS; s++) {
            int8_t part[BLOCK];
            _mm256_storeu_si256((__m256i *)part, total[s]);
            for (size_t i = 0; i < BLOCK; i++) {
                sum[s][i] += part[i];
            }
            total[s] = _mm256_setzero_si256();
        }
        end += t + 1 < TABLES ? *++span : 0;
    }
}

/* --- rows alone ------------------------------------------------------------------------ */

/* 32 indices at a time: a shuffle brings each index the byte of a bit, which is then tested. */
VECTOR void indices_of_words_avx2(const uint32_t *words, uint8_t *restrict index) {
    const __m128i place = _mm_setr_epi32(0, 1, 2, 3);
    const __m128i first = _mm_cmplt_epi32(place, _mm_set1_epi32(WORDS));
    const __m128i last = _mm_cmplt_epi32(place, _mm_set1_epi32((int)WORDS - 4));
    const uint32_t *rest = WORDS > 4 ? words + 4 : words;
    const __m256i low = _mm256_broadcastsi128_si256(_mm_maskload_epi32((const int *)words, first));
    const __m256i high = _mm256_broadcastsi128_si256(_mm_maskload_epi32((const int *)rest, last));
    for (uint32_t t = 0; t < ROOM; t += 32) {
        __m256i looked_up = _mm256_setzero_si256();
        for (uint32_t j = 0; j < MOST; j++) {
            const __m256i from = load_words(&octets[j][t]);
            const __m256i bit = load_words(&octet_bits[j][t]);
            /* Places from 16 on are those of the upper half: a shuffle gives 0 above 127. */
            const __m256i past = _mm256_set1_epi8(0x70);
            const __m256i other = _mm256_xor_si256(from, _mm256_set1_epi8(16));
            const __m256i octet =
                _mm256_or_si256(_mm256_shuffle_epi8(low, _mm256_adds_epu8(from, past)),
                                _mm256_shuffle_epi8(high, _mm256_adds_epu8(other, past)));
            const __m256i zero = _mm256_setzero_si256();
            const __m256i unset = _mm256_cmpeq_epi8(_mm256_and_si256(octet, bit), zero);
            const __m256i weight = _mm256_set1_epi8((char)(1u << j));
            looked_up = _mm256_or_si256(looked_up, _mm256_andnot_si256(unset, weight));
        }
        _mm256_storeu_si256((__m256i *)(index + t), looked_up);
    }
}

/* Eight comparisons at a time; `compared` and `cuts` go on to a multiple of 32. */
VECTOR void words_of_features_avx2(const uint32_t *features, uint32_t *restrict words) {
    for (uint32_t w = 0; w < WORDS; w++) {
        uint32_t word = 0;
        for (uint32_t k = 0; k < 4; k++) {
            const uint32_t *of = compared + 32 * w + 8 * k;
            const __m256i value = _mm256_i32gather_epi32((const int *)features, load_words(of), 4);
            const __m256i cut = load_words(cuts + 32 * w + 8 * k);
            const __m256i set = _mm256_cmpeq_epi32(_mm256_max_epu32(value, cut), value);
            word |= (uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(set)) << 8 * k;
        }
        words[w] = word;
    }
    set_raw(features, words);
}

/* --- a block, or a row alone ----------------------------------------------------------- */

VECTOR void sums_vector(const uint32_t *input, int32_t (*restrict sum)[BLOCK], int is_words,
                        int alone) {
    if (alone) {
        uint32_t words[WORDS];
        uint8_t index[ROOM];
        if (!is_words) {
            words_of_features_avx2(input, words);
            input = words;
        }
        if (WORDS <= 8) {
            indices_of_words_avx2(input, index);
            __asm__("" : "+m"(index)); /* loads of bytes are faster than extracts */
        } else {
            uint8_t set[32 * WORDS];
            row_of_words(input, set);
            indices_of_row(set, index);
        }
        sums_of_row(index, sum);
        return;
    }
    if (is_words) {
        __m256i plane[PLANES];
        planes_of_words_avx2(input, plane);
        sums_of_planes_avx2(plane, planes, sum);
    } else {
        __m256i mask[32 * WORDS];
        masks_of_features_avx2(input, mask);
        sums_of_planes_avx2(mask, bits, sum);
    }
}

AVX2 static void sums_avx2(const uint32_t *input, int32_t (*restrict sum)[BLOCK], int is_words,
                           int alone) {
    sums_vector(input, sum, is_words, alone);
}

/* The same with the instructions that AVX-512 adds for registers of 32 bytes. */
AVX512 static void sums_avx512(const uint32_t *input, int32_t (*restrict sum)[BLOCK], int is_words,
                               int alone) {
    sums_vector(input, sum, is_words, alone);
}
#endif
