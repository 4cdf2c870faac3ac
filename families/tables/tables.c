// SPDX-License-Identifier: Apache-2.0
/*
 * Sums the entries of look-up tables that are loaded at run time: bnn.h, as prediction calls it.
 *
 * Rows are computed in blocks. Each input bit becomes a plane: a byte per row, 255 if the bit
 * is set there, or a bit per row. Planes give the indices of a table for all rows of a block.
 */
#include "bnn.h"

#include <stdlib.h>
#include <string.h>

#define BLOCK 64u        /* rows at a time */
#define MAX_WORDS 64u    /* of a packed input: planes and rows lie on the stack */
#define MAX_CLASSES 64u  /* so do sums */
#define PAST 3u          /* words that are loaded past the last row */
#define BEYOND 64u       /* bytes that are loaded past the last entry */
#define MAX_INDEX_BITS 8 /* bits that address a table */
#define INLINE static inline __attribute__((always_inline))

/* The blob: this header, then bias, bits, sizes, entries by table and sum, and zeros beyond. */
struct header {
    uint32_t inputs, features, classes, shunt, tables, index_bits, entries;
    uint32_t span; /* tables whose entries add up in a signed byte */
};

struct bnn {
    struct header of;
    uint32_t words, sums, kernel;
    const int32_t *bias;
    const uint16_t *bits;  /* the input bits of each table, the least significant first */
    const uint8_t *sizes;  /* their number, by table */
    const int8_t *entries; /* by table, by sum */
};

typedef uint8_t mask[BLOCK] __attribute__((aligned(BLOCK)));

/* --- blocks of rows to octets of input bits --------------------------------------------- */

/* Byte i of `octet[k]` holds input bits 8 k to 8 k + 7 of row i. */
INLINE void octets_plain(const struct bnn *net, const uint32_t *rows, mask *restrict octet) {
    for (uint32_t w = 0; w < net->words; w++, octet += 4) {
        uint32_t column[BLOCK];
        for (uint32_t i = 0; i < BLOCK; i++) {
            column[i] = rows[i * net->words + w];
        }
        for (uint32_t k = 0; k < 4; k++) {
            for (uint32_t i = 0; i < BLOCK; i++) {
                octet[k][i] = (uint8_t)(column[i] >> 8 * k);
            }
        }
    }
}

INLINE void masks_plain(const struct bnn *net, mask *octet, mask *restrict set) {
    for (uint32_t b = 0; b < net->of.inputs; b++) {
        const uint8_t bit = (uint8_t)(1u << b % 8);
        for (uint32_t i = 0; i < BLOCK; i++) {
            set[b][i] = octet[b / 8][i] & bit ? 255 : 0;
        }
    }
}

/* --- sums of a block -------------------------------------------------------------------- */

typedef void sums_fn(const struct bnn *net, const uint32_t *rows, int32_t (*restrict sum)[BLOCK]);

static void sums_portable(const struct bnn *net, const uint32_t *rows,
                          int32_t (*restrict sum)[BLOCK]) {
    mask octet[4 * MAX_WORDS];
    mask set[32 * MAX_WORDS];
    octets_plain(net, rows, octet);
    masks_plain(net, octet, set);
    const uint16_t *bit = net->bits;
    const int8_t *own = net->entries;
    for (uint32_t t = 0; t < net->of.tables; bit += net->sizes[t++]) {
        mask at = {0};
        for (uint32_t j = 0; j < net->sizes[t]; j++) {
            for (uint32_t i = 0; i < BLOCK; i++) {
                at[i] |= set[bit[j]][i] & (uint8_t)(1u << j);
            }
        }
        for (uint32_t s = 0; s < net->sums; s++, own += 1u << net->sizes[t]) {
            for (uint32_t i = 0; i < BLOCK; i++) {
                sum[s][i] += own[at[i]];
            }
        }
    }
}

#if defined(__x86_64__)
#include <immintrin.h>

#define AVX2 __attribute__((target("avx2")))
#define AVX512 __attribute__((target("avx512f,avx512bw,avx512vbmi,gfni")))

INLINE AVX2 __m256i loaded(const void *from) {
    return _mm256_loadu_si256((const __m256i *)from);
}

/* Lane l holds four words of row 16 l. */
INLINE AVX2 __m256i lanes_avx2(const uint32_t *row, size_t width) {
    const __m128i first = _mm_loadu_si128((const __m128i *)row);
    const __m128i last = _mm_loadu_si128((const __m128i *)(row + 16 * width));
    return _mm256_inserti128_si256(_mm256_castsi128_si256(first), last, 1);
}

INLINE AVX512 __m512i lanes_avx512(const uint32_t *row, size_t width) {
    const __m256i first = lanes_avx2(row, width);
    const __m256i last = lanes_avx2(row + 32 * width, width);
    return _mm512_inserti64x4(_mm512_castsi256_si512(first), last, 1);
}

/* Octets of `sizeof(vector)` rows from row `first` on; row r becomes byte r ^ flip. Four words are
 * transposed at a time; those past a row's last one are wasted. A lane of 16 rows keeps its place.
 */
#define DEFINE_OCTETS(name, target, vector, op, lanes, repeated, flip)                             \
    INLINE target void name(const uint32_t *rows, const uint32_t width, uint32_t first,            \
                            mask *restrict octet) {                                                \
        const vector by_byte =                                                                     \
            repeated(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));         \
        rows += first * width;                                                                     \
        for (uint32_t w = 0; w < width; w += 4) {                                                  \
            vector column[4][4];                                                                   \
            for (uint32_t g = 0; g < 4; g++) {                                                     \
                const vector a = lanes(rows + (4 * g ^ flip) * width + w, width);                  \
                const vector b = lanes(rows + ((4 * g + 1) ^ flip) * width + w, width);            \
                const vector c = lanes(rows + ((4 * g + 2) ^ flip) * width + w, width);            \
                const vector d = lanes(rows + ((4 * g + 3) ^ flip) * width + w, width);            \
                const vector ab = op##_unpacklo_epi32(a, b);                                       \
                const vector cd = op##_unpacklo_epi32(c, d);                                       \
                const vector ab_high = op##_unpackhi_epi32(a, b);                                  \
                const vector cd_high = op##_unpackhi_epi32(c, d);                                  \
                column[0][g] = op##_shuffle_epi8(op##_unpacklo_epi64(ab, cd), by_byte);            \
                column[1][g] = op##_shuffle_epi8(op##_unpackhi_epi64(ab, cd), by_byte);            \
                column[2][g] = op##_shuffle_epi8(op##_unpacklo_epi64(ab_high, cd_high), by_byte);  \
                column[3][g] = op##_shuffle_epi8(op##_unpackhi_epi64(ab_high, cd_high), by_byte);  \
            }                                                                                      \
            for (uint32_t k = 0; k < 4 && w + k < width; k++) {                                    \
                const vector a = op##_unpacklo_epi32(column[k][0], column[k][1]);                  \
                const vector b = op##_unpackhi_epi32(column[k][0], column[k][1]);                  \
                const vector c = op##_unpacklo_epi32(column[k][2], column[k][3]);                  \
                const vector d = op##_unpackhi_epi32(column[k][2], column[k][3]);                  \
                mask *out = octet + 4 * (w + k);                                                   \
                *(vector *)(out[0] + first) = op##_unpacklo_epi64(a, c);                           \
                *(vector *)(out[1] + first) = op##_unpackhi_epi64(a, c);                           \
                *(vector *)(out[2] + first) = op##_unpacklo_epi64(b, d);                           \
                *(vector *)(out[3] + first) = op##_unpackhi_epi64(b, d);                           \
            }                                                                                      \
        }                                                                                          \
    }

DEFINE_OCTETS(octets_avx2, AVX2, __m256i, _mm256, lanes_avx2, _mm256_broadcastsi128_si256, 0u)
DEFINE_OCTETS(octets_avx512, AVX512, __m512i, _mm512, lanes_avx512, _mm512_broadcast_i32x4, 7u)

INLINE AVX2 void masks_avx2(uint32_t inputs, mask *octet, mask *restrict set) {
    for (uint32_t b = 0; b < inputs; b += 8, octet++) {
        for (uint32_t i = 0; i < BLOCK; i += 32) {
            const __m256i eight = loaded(*octet + i);
#pragma GCC unroll 8
            for (uint32_t k = 0; k < 8; k++) {
                const __m256i bit = _mm256_set1_epi8((char)(1u << k));
                const __m256i found = _mm256_cmpeq_epi8(_mm256_and_si256(eight, bit), bit);
                _mm256_store_si256((__m256i *)(set[b + k] + i), found);
            }
        }
    }
}

/* A word of 64 rows for each input bit. Squares of 8 rows and 8 bits are transposed by a product
 * with the unit matrix, which takes rows from last to first: octets hold them in that order. */
INLINE AVX512 void planes_avx512(uint32_t inputs, mask *octet, uint64_t *restrict plane) {
    const __m512i unit = _mm512_set1_epi64((long long)0x8040201008040201u);
    const __m512i place = _mm512_set_epi64(
        0x3f372f271f170f07, 0x3e362e261e160e06, 0x3d352d251d150d05, 0x3c342c241c140c04,
        0x3b332b231b130b03, 0x3a322a221a120a02, 0x3931292119110901, 0x3830282018100800);
    for (uint32_t b = 0; b < inputs; b += 8, octet++) {
        const __m512i squares = _mm512_gf2p8affine_epi64_epi8(unit, _mm512_load_si512(*octet), 0);
        _mm512_storeu_si512(plane + b, _mm512_permutexvar_epi8(place, squares));
    }
}

/* The entries that 32 rows address. A shuffle selects among 16 by the low bits of a byte; each
 * further bit of the index chooses between the results of two. */
INLINE AVX2 __m256i found_avx2(mask *set, uint32_t first, const uint16_t *bit, const int8_t *own,
                               const uint32_t size, __m256i at) {
    __m256i found[1 << (MAX_INDEX_BITS - 4)];
    uint32_t count = size > 4 ? 1u << (size - 4) : 1;
    for (uint32_t h = 0; h < count; h++) {
        const __m128i sixteen = _mm_loadu_si128((const __m128i *)(own + 16 * h));
        found[h] = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(sixteen), at);
    }
    for (uint32_t j = 4; j < size; j++) {
        const __m256i plane = loaded(&set[bit[j]][first]);
        count /= 2;
        for (uint32_t h = 0; h < count; h++) {
            found[h] = _mm256_blendv_epi8(found[2 * h], found[2 * h + 1], plane);
        }
    }
    return found[0];
}

/* Adds a table's entries to signed bytes. The size is a constant at each call. */
INLINE AVX2 void add_avx2(mask *set, const uint16_t *bit, const int8_t *own, const uint32_t size,
                          const uint32_t sums, __m256i (*restrict total)[2]) {
    for (uint32_t h = 0; h < 2; h++) {
        __m256i at = _mm256_setzero_si256();
        for (uint32_t j = 0; j < size && j < 4; j++) {
            const __m256i weight = _mm256_set1_epi8((char)(1u << j));
            at = _mm256_or_si256(at, _mm256_and_si256(loaded(&set[bit[j]][32 * h]), weight));
        }
        for (uint32_t s = 0; s < sums; s++) {
            const __m256i found = found_avx2(set, 32 * h, bit, own + (s << size), size, at);
            total[s][h] = _mm256_add_epi8(total[s][h], found);
        }
    }
}

INLINE AVX2 void widen_avx2(const uint32_t sums, __m256i (*restrict total)[2],
                            int32_t (*restrict sum)[BLOCK]) {
    for (uint32_t s = 0; s < sums; s++) {
        int8_t part[BLOCK];
        for (uint32_t h = 0; h < 2; h++) {
            _mm256_storeu_si256((__m256i *)(part + 32 * h), total[s][h]);
            total[s][h] = _mm256_setzero_si256();
        }
        for (uint32_t i = 0; i < BLOCK; i += 8) {
            const __m256i wide = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(part + i)));
            _mm256_storeu_si256((__m256i *)(sum[s] + i),
                                _mm256_add_epi32(loaded(sum[s] + i), wide));
        }
    }
}

INLINE AVX2 void tables_avx2(const struct bnn *net, mask *set, const uint32_t sums,
                             int32_t (*restrict sum)[BLOCK]) {
    __m256i total[MAX_CLASSES][2];
    for (uint32_t s = 0; s < sums; s++) {
        total[s][0] = total[s][1] = _mm256_setzero_si256();
    }
    const uint16_t *bit = net->bits;
    const int8_t *own = net->entries;
    for (uint32_t t = 0, left = net->of.span; t < net->of.tables; t++) {
        const uint32_t size = net->sizes[t];
        if (size == 5) {
            add_avx2(set, bit, own, 5, sums, total);
        } else if (size == 4) {
            add_avx2(set, bit, own, 4, sums, total);
        } else {
            add_avx2(set, bit, own, size, sums, total);
        }
        bit += size;
        own += sums << size;
        if (!--left || t + 1 == net->of.tables) {
            widen_avx2(sums, total, sum);
            left = net->of.span;
        }
    }
}

AVX2 static void sums_avx2(const struct bnn *net, const uint32_t *rows,
                           int32_t (*restrict sum)[BLOCK]) {
    mask octet[4 * MAX_WORDS];
    mask set[32 * MAX_WORDS];
    octets_avx2(rows, net->words, 0, octet);
    octets_avx2(rows, net->words, 32, octet);
    masks_avx2(net->of.inputs, octet, set);
    if (net->sums == 1) {
        tables_avx2(net, set, 1, sum);
    } else {
        tables_avx2(net, set, net->sums, sum);
    }
}

/* The entries of 64 rows: a permutation selects among 64, one of two registers among 128. */
INLINE AVX512 __m512i found_avx512(const int8_t *own, uint32_t size, __m512i at) {
    if (size <= 6) {
        return _mm512_permutexvar_epi8(at, _mm512_loadu_si512(own));
    }
    const __m512i low =
        _mm512_permutex2var_epi8(_mm512_loadu_si512(own), at, _mm512_loadu_si512(own + 64));
    if (size == 7) {
        return low;
    }
    const __m512i high =
        _mm512_permutex2var_epi8(_mm512_loadu_si512(own + 128), at, _mm512_loadu_si512(own + 192));
    return _mm512_mask_blend_epi8(_mm512_movepi8_mask(at), low, high);
}

/* Bit j of a table's index in 64 rows. */
INLINE AVX512 __m512i bit_avx512(const uint64_t *plane, const uint16_t *bit, uint32_t j) {
    const __mmask64 rows = _load_mask64((__mmask64 *)(uintptr_t)(plane + bit[j]));
    return _mm512_maskz_mov_epi8(rows, _mm512_set1_epi8((char)(1u << j)));
}

INLINE AVX512 void add_avx512(const uint64_t *plane, const uint16_t *bit, const int8_t *own,
                              const uint32_t size, const uint32_t sums, __m512i *restrict total) {
    __m512i at = bit_avx512(plane, bit, 0);
#pragma GCC unroll 4
    for (uint32_t j = 1; j < size; j += 2) { /* 0xfe: the OR of all three */
        const uint32_t next = j + 1 < size ? j + 1 : j;
        at = _mm512_ternarylogic_epi64(at, bit_avx512(plane, bit, j), bit_avx512(plane, bit, next),
                                       0xfe);
    }
    for (uint32_t s = 0; s < sums; s++) {
        total[s] = _mm512_add_epi8(total[s], found_avx512(own + (s << size), size, at));
    }
}

INLINE AVX512 void widen_avx512(__m512i total, int32_t *restrict sum) {
    const __m128i part[4] = {_mm512_castsi512_si128(total), _mm512_extracti32x4_epi32(total, 1),
                             _mm512_extracti32x4_epi32(total, 2),
                             _mm512_extracti32x4_epi32(total, 3)};
#pragma GCC unroll 4
    for (uint32_t q = 0; q < 4; q++) {
        int32_t *at = sum + 16 * q;
        const __m512i wide = _mm512_cvtepi8_epi32(part[q]);
        _mm512_storeu_si512(at, _mm512_add_epi32(_mm512_loadu_si512(at), wide));
    }
}

INLINE AVX512 void tables_avx512(const struct bnn *net, const uint64_t *plane, const uint32_t sums,
                                 int32_t (*restrict sum)[BLOCK]) {
    __m512i total[MAX_CLASSES];
    for (uint32_t s = 0; s < sums; s++) {
        total[s] = _mm512_setzero_si512();
    }
    const uint16_t *bit = net->bits;
    const int8_t *own = net->entries;
    for (uint32_t t = 0, left = net->of.span; t < net->of.tables; t++) {
        const uint32_t size = net->sizes[t];
        if (size == 5) {
            add_avx512(plane, bit, own, 5, sums, total);
        } else if (size == 4) {
            add_avx512(plane, bit, own, 4, sums, total);
        } else {
            add_avx512(plane, bit, own, size, sums, total);
        }
        bit += size;
        own += sums << size;
        if (!--left || t + 1 == net->of.tables) {
            for (uint32_t s = 0; s < sums; s++) {
                widen_avx512(total[s], sum[s]);
                total[s] = _mm512_setzero_si512();
            }
            left = net->of.span;
        }
    }
}

AVX512 static void sums_avx512(const struct bnn *net, const uint32_t *rows,
                               int32_t (*restrict sum)[BLOCK]) {
    mask octet[4 * MAX_WORDS];
    uint64_t plane[32 * MAX_WORDS];
    octets_avx512(rows, net->words, 0, octet);
    planes_avx512(net->of.inputs, octet, plane);
    if (net->sums == 1) {
        tables_avx512(net, plane, 1, sum);
    } else {
        tables_avx512(net, plane, net->sums, sum);
    }
}
#endif

/* --- kernels ---------------------------------------------------------------------------- */

static int always(void) {
    return 1;
}

#if defined(__x86_64__)
static int has_avx2(void) {
    return __builtin_cpu_supports("avx2");
}

static int has_avx512(void) {
    return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vbmi") &&
           __builtin_cpu_supports("gfni");
}
#endif

static const struct kernel {
    const char *name;
    int (*supported)(void);
    sums_fn *sums;
} kernels[] = {
    {"portable", always, sums_portable},
#if defined(__x86_64__)
    {"avx2", has_avx2, sums_avx2},
    {"avx512", has_avx512, sums_avx512},
#endif
};
#define KERNELS (sizeof kernels / sizeof *kernels)

const char *bnn_kernel_name(uint32_t index) {
    return index < KERNELS ? kernels[index].name : NULL;
}

int bnn_kernel_supported(uint32_t index) {
    return index < KERNELS && kernels[index].supported();
}

int bnn_use_kernel(struct bnn *net, const char *name) {
    for (uint32_t k = 0; k < KERNELS; k++) {
        if (!strcmp(name, kernels[k].name) && kernels[k].supported()) {
            net->kernel = k;
            return BNN_OK;
        }
    }
    return BNN_NO_KERNEL;
}

const char *bnn_kernel(const struct bnn *net) {
    return kernels[net->kernel].name;
}

/* --- networks --------------------------------------------------------------------------- */

const char *bnn_strerror(int status) {
    static const char *const texts[] = {
        [BNN_OK] = "no error",
        [BNN_BAD_SIZE] = "the size of the tables differs from their header's",
        [BNN_BAD_SHAPE] = "sizes do not belong together, or are beyond the limits",
        [BNN_NO_MEMORY] = "out of memory",
        [BNN_NO_KERNEL] = "no kernel of that name, or this CPU cannot run it",
    };
    return status >= 0 && (size_t)status < sizeof texts / sizeof *texts && texts[status]
               ? texts[status]
               : "unknown error";
}

/* Whether all sizes and indices stay within the memory. */
static int fits(const struct bnn *net) {
    size_t bits = 0;
    size_t entries = 0;
    for (uint32_t t = 0; t < net->of.tables; t++) {
        if (net->sizes[t] < 1 || net->sizes[t] > MAX_INDEX_BITS) {
            return 0;
        }
        bits += net->sizes[t];
        entries += (size_t)net->sums << net->sizes[t];
    }
    for (uint32_t k = 0; k < net->of.index_bits; k++) {
        if (net->bits[k] >= net->of.inputs) {
            return 0;
        }
    }
    return bits == net->of.index_bits && entries == net->of.entries;
}

int bnn_load_blob(struct bnn **out, const void *blob, size_t size) {
    struct header of;
    *out = NULL;
    if (size < sizeof of) {
        return BNN_BAD_SIZE;
    }
    memcpy(&of, blob, sizeof of);
    if (!of.inputs || of.inputs > 32 * MAX_WORDS || of.classes < 2 || of.classes > MAX_CLASSES ||
        !of.tables || !of.span) {
        return BNN_BAD_SHAPE;
    }
    const uint32_t sums = of.classes == 2 ? 1 : of.classes;
    const size_t bias = sums * sizeof(int32_t);
    const size_t bits = (size_t)of.index_bits * sizeof(uint16_t);
    if (size != sizeof of + bias + bits + of.tables + of.entries + BEYOND) {
        return BNN_BAD_SIZE;
    }
    struct bnn *net = malloc(sizeof *net + size);
    if (!net) {
        return BNN_NO_MEMORY;
    }
    char *held = (char *)(net + 1);
    memcpy(held, blob, size);
    *net = (struct bnn){.of = of, .words = (of.inputs + 31) / 32, .sums = sums};
    net->bias = (const void *)(held + sizeof of);
    net->bits = (const void *)(held + sizeof of + bias);
    net->sizes = (const void *)(held + sizeof of + bias + bits);
    net->entries = (const void *)(net->sizes + of.tables);
    for (uint32_t k = 0; k < KERNELS; k++) {
        net->kernel = kernels[k].supported() ? k : net->kernel;
    }
    if (!fits(net)) {
        free(net);
        return BNN_BAD_SHAPE;
    }
    *out = net;
    return BNN_OK;
}

void bnn_free(struct bnn *net) {
    free(net);
}

uint32_t bnn_words(const struct bnn *net) {
    return net->words;
}

uint32_t bnn_features(const struct bnn *net) {
    return net->of.features;
}

uint32_t bnn_hidden_words(const struct bnn *net) {
    (void)net;
    return 0;
}

uint32_t bnn_classes(const struct bnn *net) {
    return net->of.classes;
}

uint32_t bnn_shunt(const struct bnn *net) {
    return net->of.shunt;
}

/* --- verdicts --------------------------------------------------------------------------- */

/* Scores of a block, by class. Two classes have one sum together: the first scores 0. */
static void write_scores(const struct bnn *net, int32_t (*sum)[BLOCK], uint32_t count,
                         int32_t *restrict scores) {
    if (net->sums == 1) {
        for (uint32_t i = 0; i < count; i++) {
            const int32_t pair[2] = {0, sum[0][i]};
            memcpy(scores + 2 * i, pair, sizeof pair); /* one store */
        }
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t c = 0; c < net->sums; c++) {
            scores[i * net->sums + c] = sum[c][i];
        }
    }
}

/* The highest score wins, the lowest class on a tie; a margin below the threshold is shunted. */
static void decide(const struct bnn *net, int32_t (*sum)[BLOCK], uint32_t count, uint32_t *classes,
                   int32_t *margins) {
    const int32_t shunt = (int32_t)net->of.shunt;
    int32_t best[BLOCK];
    int32_t second[BLOCK];
    uint32_t found[BLOCK];
    for (uint32_t i = 0; i < BLOCK; i++) {
        const int32_t a = net->sums == 1 ? 0 : sum[0][i];
        const int32_t b = net->sums == 1 ? sum[0][i] : sum[1][i];
        best[i] = b > a ? b : a;
        second[i] = b > a ? a : b;
        found[i] = b > a;
    }
    for (uint32_t c = 2; c < net->sums; c++) {
        for (uint32_t i = 0; i < BLOCK; i++) {
            const int32_t score = sum[c][i];
            const int32_t lower = score < best[i] ? score : best[i];
            found[i] = score > best[i] ? c : found[i];
            best[i] = score > best[i] ? score : best[i];
            second[i] = lower > second[i] ? lower : second[i];
        }
    }
    for (uint32_t i = 0; i < BLOCK; i++) {
        best[i] -= second[i]; /* scores are below 2^30 */
        found[i] = best[i] < shunt ? BNN_SHUNT : found[i];
    }
    if (classes) {
        memcpy(classes, found, count * sizeof *found);
    }
    if (margins) {
        memcpy(margins, best, count * sizeof *best);
    }
}

void bnn_infer_batch(const struct bnn *net, const uint32_t *words, size_t rows, uint32_t *classes,
                     int32_t *margins, int32_t *scores) {
    uint32_t padded[BLOCK * MAX_WORDS + PAST];
    int32_t sum[MAX_CLASSES][BLOCK];
    for (size_t start = 0; start < rows; start += BLOCK) {
        const size_t left = rows - start;
        const uint32_t count = left < BLOCK ? (uint32_t)left : BLOCK;
        const uint32_t *from = words + start * net->words;
        if (left <= BLOCK) { /* zeros follow; their results are not written */
            const size_t size = (size_t)count * net->words;
            memcpy(padded, from, size * sizeof *from);
            memset(padded + size, 0, (BLOCK * net->words + PAST - size) * sizeof *from);
            from = padded;
        }
        for (uint32_t s = 0; s < net->sums; s++) {
            for (uint32_t i = 0; i < BLOCK; i++) {
                sum[s][i] = net->bias[s];
            }
        }
        kernels[net->kernel].sums(net, from, sum);
        if (scores) {
            write_scores(net, sum, count, scores + start * net->of.classes);
        }
        if (classes || margins) {
            decide(net, sum, count, classes ? classes + start : NULL,
                   margins ? margins + start : NULL);
        }
    }
}
