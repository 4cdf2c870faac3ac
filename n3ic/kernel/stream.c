// SPDX-License-Identifier: Apache-2.0
/* See stream.h. */
#include "stream.h"

#include <stdlib.h>
#include <string.h>

#define BLOCK 256u /* rows at once: few enough for their words to stay in the cache */

static const char pairs[201] = "00010203040506070809101112131415161718192021222324"
                               "25262728293031323334353637383940414243444546474849"
                               "50515253545556575859606162636465666768697071727374"
                               "75767778798081828384858687888990919293949596979899";

/* May write one byte too many, which the separator after the number overwrites. */
static char *put_unsigned(char *at, uint64_t value) {
    if (value < 100) { /* margins and scores, of either length: no branch to mispredict */
        const size_t skipped = value < 10;
        memcpy(at, pairs + 2 * value + skipped, 2);
        return at + 2 - skipped;
    }
    char digits[20];
    char *start = digits + sizeof digits;
    while (value >= 100) {
        start -= 2;
        memcpy(start, pairs + 2 * (value % 100), 2);
        value /= 100;
    }
    if (value >= 10) {
        start -= 2;
        memcpy(start, pairs + 2 * value, 2);
    } else {
        *--start = (char)('0' + value);
    }
    const size_t size = (size_t)(digits + sizeof digits - start);
    memcpy(at, start, size);
    return at + size;
}

static char *put_signed(char *at, int32_t value) {
    *at = '-';
    at += value < 0;
    return put_unsigned(at, value < 0 ? (uint64_t)-(int64_t)value : (uint64_t)value);
}

/* --- input bits, column by column ------------------------------------------------------- */

/* Vectors no wider than the target's registers: compilers split wider ones number by number. */
typedef uint32_t four __attribute__((vector_size(16), aligned(4), may_alias));
typedef uint32_t eight __attribute__((vector_size(32), aligned(4), may_alias));

typedef void thermometer_fn(const uint32_t *values, const uint32_t *cuts, uint32_t n, uint32_t bit,
                            uint32_t *words);

/* Bit `bit + k` of each row's word says whether its value reaches cut k. */
#define DEFINE_THERMOMETER(name, lanes, target)                                                    \
    target static void name(const uint32_t *values, const uint32_t *cuts, uint32_t n,              \
                            uint32_t bit, uint32_t *words) {                                       \
        for (uint32_t r = 0; r < BLOCK; r += sizeof(lanes) / sizeof *values) {                     \
            const lanes value = *(const lanes *)(values + r);                                      \
            lanes set = *(const lanes *)(words + r);                                               \
            for (uint32_t k = 0; k < n; k++) {                                                     \
                set |= (lanes)(value >= cuts[k]) & (1u << (bit + k));                              \
            }                                                                                      \
            *(lanes *)(words + r) = set;                                                           \
        }                                                                                          \
    }

DEFINE_THERMOMETER(thermometer_portable, four, )
#if defined(__x86_64__)
DEFINE_THERMOMETER(thermometer_avx2, eight, __attribute__((target("avx2"))))
#endif

static thermometer_fn *fastest_thermometer(void) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) {
        return thermometer_avx2;
    }
#endif
    return thermometer_portable;
}

static void set_binary(const uint32_t *values, uint32_t clamp, uint32_t width, uint32_t bit,
                       uint32_t *words) {
    for (uint32_t r = 0; r < BLOCK; r++) {
        const uint32_t value = values[r] < clamp ? values[r] : clamp;
        words[r] |= value << bit;
        if (bit + width > 32) {
            words[BLOCK + r] |= value >> (32 - bit);
        }
    }
}

/* The buffers of one block; words lie by word, then by row, and `packed` by row. */
struct block {
    thermometer_fn *set_thermometer;
    uint32_t *words;
    uint32_t *packed;
    int32_t *scores;
    uint32_t values[BLOCK];
    uint32_t classes[BLOCK];
    int32_t margins[BLOCK];
};

static void encode(const struct stream_input *in, size_t start, size_t n, uint32_t n_words,
                   struct block *block) {
    const uint32_t *cuts = in->cuts;
    uint32_t at = 0;
    memset(block->words, 0, (size_t)n_words * BLOCK * sizeof *block->words);
    for (uint64_t i = 0; i < in->n_fields; i++) {
        const struct stream_field *field = &in->fields[i];
        const uint32_t *values = in->columns[field->column] + start;
        if (n < BLOCK) { /* whole blocks are read: copy the last rows, which may fill only a part */
            memcpy(block->values, values, n * sizeof *values);
            values = block->values;
        }
        if (!field->is_thermometer) {
            set_binary(values, field->clamp, field->width, at % 32,
                       block->words + (size_t)(at / 32) * BLOCK);
            at += field->width;
            continue;
        }
        for (uint32_t left = field->width; left;) {
            const uint32_t k = left < 32 - at % 32 ? left : 32 - at % 32;
            block->set_thermometer(values, cuts, k, at % 32,
                                   block->words + (size_t)(at / 32) * BLOCK);
            cuts += k;
            at += k;
            left -= k;
        }
    }
    for (uint32_t w = 0; w < n_words; w++) {
        for (size_t r = 0; r < n; r++) {
            block->packed[r * n_words + w] = block->words[(size_t)w * BLOCK + r];
        }
    }
}

int stream_encode(const struct stream_input *in, size_t rows, uint32_t n_words, uint32_t *packed) {
    struct block block = {.set_thermometer = fastest_thermometer()};
    block.words = malloc((size_t)BLOCK * n_words * sizeof *block.words);
    if (!block.words) {
        return -1;
    }
    for (size_t start = 0; start < rows; start += BLOCK) {
        block.packed = packed + start * n_words;
        encode(in, start, rows - start < BLOCK ? rows - start : BLOCK, n_words, &block);
    }
    free(block.words);
    return 0;
}

/* --- lines ------------------------------------------------------------------------------ */

size_t stream_lines(const struct bnn *net, const struct stream_input *in, size_t rows,
                    uint64_t first, const char *const *names, char *text, uint64_t *counts) {
    const uint32_t n_classes = bnn_classes(net);
    const uint32_t n_names = n_classes + (bnn_shunt(net) > 0);
    const uint32_t n_words = bnn_words(net);
    struct block block = {.set_thermometer = fastest_thermometer()};
    size_t *length = malloc(n_names * sizeof *length);
    block.words = malloc((size_t)BLOCK * n_words * sizeof *block.words);
    block.packed = malloc((size_t)BLOCK * n_words * sizeof *block.packed);
    block.scores = malloc((size_t)BLOCK * n_classes * sizeof *block.scores);
    char *at = text;
    size_t written = SIZE_MAX;
    if (length && block.words && block.packed && block.scores) {
        for (uint32_t c = 0; c < n_names; c++) {
            length[c] = strlen(names[c]);
        }
        for (size_t start = 0; start < rows; start += BLOCK) {
            const size_t n = rows - start < BLOCK ? rows - start : BLOCK;
            encode(in, start, n, n_words, &block);
            bnn_infer_batch(net, block.packed, n, block.classes, block.margins, block.scores);
            for (size_t r = 0; r < n; r++) {
                const uint32_t class = block.classes[r];
                const uint32_t name = class == BNN_SHUNT ? n_classes : class;
                const int32_t *score = block.scores + r * n_classes;
                counts[name]++;
                at = put_unsigned(at, first + start + r);
                *at++ = ',';
                memcpy(at, names[name], length[name]);
                at += length[name];
                *at++ = ',';
                at = put_signed(at, block.margins[r]);
                for (uint32_t c = 0; c < n_classes; c++) {
                    *at++ = ',';
                    at = put_signed(at, score[c]);
                }
                *at++ = '\n';
            }
        }
        written = (size_t)(at - text);
    }
    free(length);
    free(block.words);
    free(block.packed);
    free(block.scores);
    return written;
}
