// SPDX-License-Identifier: Apache-2.0
/* Binary neural network on a host CPU; see bnn.h for what it computes and how it is called. */
#include "bnn.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

#if defined(__GNUC__) && defined(__x86_64__)
#include <immintrin.h>
#define BNN_X86 1
#else
#define BNN_X86 0
#endif
/* Which kernels are compiled, besides the portable one. */
#if BNN_X86 && !defined(BNN_NO_POPCNT)
#define BNN_POPCNT 1
#else
#define BNN_POPCNT 0
#endif
#if BNN_X86 && !defined(BNN_NO_AVX2)
#define BNN_AVX2 1
#else
#define BNN_AVX2 0
#endif
#if BNN_X86 && !defined(BNN_NO_AVX512)
#define BNN_AVX512 1
#else
#define BNN_AVX512 0
#endif
#if defined(__GNUC__) && defined(__aarch64__) && !defined(BNN_NO_NEON)
#define BNN_NEON 1
#include <arm_neon.h>
#else
#define BNN_NEON 0
#endif
#if defined(__GNUC__)
#define BNN_INLINE static inline __attribute__((always_inline))
#else
#define BNN_INLINE static inline
#endif

#define MAX_BITS 65536u               /* inputs or outputs of a layer */
#define MAX_WORDS (MAX_BITS / 32u)    /* 32-bit words of a layer's inputs */
#define MAX_LAYERS 64u                /* the output layer included */
#define MAX_BLOB ((uint64_t)1 << 28)  /* bytes */
#define MAX_BLOCK ((uint64_t)1 << 31) /* bytes of one allocation */
#define LANES 16u                     /* neurons side by side in the vector layout */
#define SHUNT_ROWS 512u               /* inputs whose margins are held at once */
#define ENCODE_WORDS 4096u            /* words between features and classes; at least MAX_WORDS */

/* --- the network in memory ------------------------------------------------------------- */

struct layer {
    uint32_t inputs;
    uint32_t outputs;
    uint32_t words;            /* 32-bit words of the input */
    uint32_t words64;          /* 64-bit words of the input */
    uint32_t groups;           /* groups of LANES neurons */
    const uint32_t *lanes;     /* inverted weights, [groups][words][LANES] */
    const uint32_t *lane_mask; /* the same shape; NULL where every connection counts */
    const uint64_t *rows;      /* inverted weights, [outputs][words64] */
    const uint64_t *row_mask;
    const int32_t *limit; /* thresholds (INT32_MAX in the padding) or biases, [groups * LANES] */
    /*
     * Hidden layers of the AVX2 kernel: what each pattern of four inputs adds to 32 neurons, in
     * bytes, [outputs / 32][words * 8][16][32]; NULL where bytes cannot hold the thresholds.
     */
    const uint8_t *sums;
    const uint8_t *start;  /* where the sums of each neuron begin; 255 is its threshold */
    const uint32_t *flips; /* neurons that count what disagrees, and fire below the threshold */
};

/* Up to 16 bits of a thermometer field, or a whole binary field. */
struct chunk {
    uint32_t feature;
    uint32_t width;
    uint32_t clamp;
    uint32_t is_thermometer;
    const uint32_t *cuts; /* 16 of them */
};

/*
 * Input bits whose pattern selects a row of sums: those of a feature's thermometers, which the
 * interval between its cuts fixes, or up to four raw bits of a field.
 */
struct group {
    uint32_t feature;
    uint32_t n_cuts; /* 0: raw bits */
    uint32_t shift;  /* place of the raw bits in the clamped value */
    uint32_t clamp;
    uint32_t row; /* number of its first row */
    const uint32_t *cuts;
    const int32_t *below; /* cuts less one less 2^31, for signed comparison */
};

struct kernel;

struct bnn {
    uint32_t n_layers;
    uint32_t n_inputs;
    uint32_t n_words;
    uint32_t n_features;
    uint32_t n_classes;
    uint32_t n_chunks;
    uint32_t hidden_words;
    int32_t shunt; /* margins below it are not decided */
    int masked;
    uint32_t small; /* for the path of small networks: 2 * words + groups; else 0 */
    struct layer layer[MAX_LAYERS];
    const struct chunk *chunks;
    /*
     * What each pattern adds to the first layer's neurons, in lanes of 16 bits, neuron 0 lowest:
     * [row][row_words]. Row 0 is where the sums begin: with the top bit set, a neuron fires. NULL
     * where the kernel goes through the input bits.
     */
    const uint64_t *table;
    const struct group *groups;
    uint32_t n_groups;
    uint32_t row_words;
    const char **names;   /* classes, then features */
    const double *scales; /* integer units in one source unit of each feature */
    char model[65];
    const struct kernel *kernel;
    void *allocated; /* chain of blocks */
};

/* Where results go; any pointer may be NULL. */
struct sink {
    uint32_t *classes;
    int32_t *margins;
    int32_t *scores;
    uint32_t *hidden;
};

struct kernel {
    const char *name;
    int (*supported)(void);
    /* Begins with layer `from`, of which `words` are the inputs. */
    void (*infer)(const struct bnn *net, const uint32_t *words, size_t rows, const struct sink *out,
                  uint32_t from);
    void (*encode)(const struct bnn *net, const uint32_t *features, uint32_t *words);
    void (*prepare)(struct bnn *net); /* tables of its own; may be NULL */
    /* The first layer's outputs from features, where net->table is there; may be NULL. */
    void (*first)(const struct bnn *net, const uint32_t *features, size_t rows, uint32_t *words);
};

/* --- memory ----------------------------------------------------------------------------- */

struct block {
    struct block *next;
    size_t bytes; /* 64 of them are this header's */
};

/* Zeroed memory that bnn_free() releases; NULL when there is none or the size is absurd. */
static void *allocate_block(struct bnn *net, uint64_t count, uint64_t size) {
    if (count > MAX_BLOCK / size) {
        return NULL;
    }
    const size_t bytes = ((size_t)(count * size) + 127u) / 64u * 64u;
    struct block *block = aligned_alloc(64, bytes);
    if (!block) {
        return NULL;
    }
    memset(block, 0, bytes);
    block->next = net->allocated;
    block->bytes = bytes;
    net->allocated = block;
    return (char *)block + 64;
}

/* --- arg max and margin ---------------------------------------------------------------- */

struct best {
    uint32_t index;
    int32_t first;
    int32_t second;
};

BNN_INLINE void best_start(struct best *best) {
    best->index = 0;
    best->first = INT32_MIN;
    best->second = INT32_MIN;
}

/* Scores come in order of their index, so a tie stays with the lower one. */
BNN_INLINE void best_offer(struct best *best, int32_t score, uint32_t index) {
    if (score > best->first) {
        best->second = best->first;
        best->first = score;
        best->index = index;
    } else if (score > best->second) {
        best->second = score;
    }
}

BNN_INLINE void store_decision(const struct sink *out, size_t row, const struct best *best) {
    if (out->classes) {
        out->classes[row] = best->index;
    }
    if (out->margins) {
        out->margins[row] = best->first - best->second;
    }
}

BNN_INLINE void store_two_classes(const struct sink *out, size_t row, int32_t s0, int32_t s1) {
    if (out->scores) {
        out->scores[2 * row] = s0;
        out->scores[2 * row + 1] = s1;
    }
    if (out->classes) {
        out->classes[row] = s1 > s0;
    }
    if (out->margins) {
        out->margins[row] = s1 > s0 ? s1 - s0 : s0 - s1;
    }
}

/* --- the network layer by layer -------------------------------------------------------- */

typedef void fire_fn(const struct layer *layer, const uint32_t *x, uint32_t *y);
typedef void score_fn(const struct layer *layer, const uint32_t *x, struct best *best,
                      int32_t *scores);

/* Inlined into each kernel, with that kernel's two functions. */
BNN_INLINE void run_layers(const struct bnn *net, const uint32_t *words, size_t rows,
                           const struct sink *out, uint32_t from, fire_fn *fire, score_fn *score) {
    uint32_t buffer[2][MAX_WORDS];
    const uint32_t last = net->n_layers - 1;
    for (size_t r = 0; r < rows; r++) {
        const uint32_t *x = words + r * net->layer[from].words;
        uint32_t *hidden = out->hidden ? out->hidden + r * net->hidden_words : NULL;
        for (uint32_t l = from; l < last; l++) {
            uint32_t *y = buffer[l & 1];
            fire(&net->layer[l], x, y);
            x = y;
            if (hidden) {
                const uint32_t n = net->layer[l + 1].words;
                memcpy(hidden, y, n * sizeof *y);
                hidden += n;
            }
        }
        struct best best;
        best_start(&best);
        score(&net->layer[last], x, &best, out->scores ? out->scores + r * net->n_classes : NULL);
        store_decision(out, r, &best);
    }
}

/* Scores of one group of lanes. */
BNN_INLINE void offer_group(const struct layer *layer, uint32_t group, const int32_t *sums,
                            struct best *best, int32_t *scores) {
    const uint32_t start = group * LANES;
    const uint32_t n = layer->outputs - start < LANES ? layer->outputs - start : LANES;
    for (uint32_t j = 0; j < n; j++) {
        const int32_t s = sums[j] + layer->limit[start + j];
        best_offer(best, s, start + j);
        if (scores) {
            scores[start + j] = s;
        }
    }
}

BNN_INLINE void store_group(uint32_t *y, uint32_t group, uint32_t bits) {
    if (group & 1u) {
        y[group / 2] |= bits << 16;
    } else {
        y[group / 2] = bits;
    }
}

/* --- kernel: portable 64-bit words ----------------------------------------------------- */

BNN_INLINE uint32_t popcount_tree(uint64_t v) {
    v -= (v >> 1) & 0x5555555555555555u;
    v = (v & 0x3333333333333333u) + ((v >> 2) & 0x3333333333333333u);
    v = (v + (v >> 4)) & 0x0f0f0f0f0f0f0f0fu;
    return (uint32_t)((v * 0x0101010101010101u) >> 56);
}

BNN_INLINE void pair_words(const struct layer *layer, const uint32_t *x, uint64_t *wide) {
    for (uint32_t i = 0; i < layer->words / 2; i++) {
        wide[i] = x[2 * i] | (uint64_t)x[2 * i + 1] << 32;
    }
    if (layer->words & 1u) {
        wide[layer->words / 2] = x[layer->words - 1];
    }
}

typedef uint32_t popcount_fn(uint64_t v);

BNN_INLINE int32_t row_count(const struct layer *layer, uint32_t j, const uint64_t *x,
                             popcount_fn *popcount) {
    const uint64_t *w = layer->rows + (size_t)j * layer->words64;
    uint32_t count = 0;
    if (layer->row_mask) {
        const uint64_t *m = layer->row_mask + (size_t)j * layer->words64;
        for (uint32_t i = 0; i < layer->words64; i++) {
            count += popcount((w[i] ^ x[i]) & m[i]);
        }
    } else {
        for (uint32_t i = 0; i < layer->words64; i++) {
            count += popcount(w[i] ^ x[i]);
        }
    }
    return (int32_t)count;
}

BNN_INLINE void fire_rows(const struct layer *layer, const uint32_t *x, uint32_t *y,
                          popcount_fn *popcount) {
    uint64_t wide[MAX_WORDS / 2];
    pair_words(layer, x, wide);
    for (uint32_t j = 0; j < layer->outputs; j += 32) {
        const uint32_t n = layer->outputs - j < 32 ? layer->outputs - j : 32;
        uint32_t bits = 0;
        for (uint32_t i = 0; i < n; i++) {
            const int32_t count = row_count(layer, j + i, wide, popcount);
            bits |= (uint32_t)(count >= layer->limit[j + i]) << i;
        }
        y[j / 32] = bits;
    }
}

BNN_INLINE void score_rows(const struct layer *layer, const uint32_t *x, struct best *best,
                           int32_t *scores, popcount_fn *popcount) {
    uint64_t wide[MAX_WORDS / 2];
    pair_words(layer, x, wide);
    for (uint32_t j = 0; j < layer->outputs; j++) {
        const int32_t s = row_count(layer, j, wide, popcount) + layer->limit[j];
        best_offer(best, s, j);
        if (scores) {
            scores[j] = s;
        }
    }
}

static void fire_portable(const struct layer *layer, const uint32_t *x, uint32_t *y) {
    fire_rows(layer, x, y, popcount_tree);
}

static void score_portable(const struct layer *layer, const uint32_t *x, struct best *best,
                           int32_t *scores) {
    score_rows(layer, x, best, scores, popcount_tree);
}

static void infer_portable(const struct bnn *net, const uint32_t *words, size_t rows,
                           const struct sink *out, uint32_t from) {
    run_layers(net, words, rows, out, from, fire_portable, score_portable);
}

static int is_always_supported(void) {
    return 1;
}

typedef uint32_t reached_cuts_fn(const uint32_t *cuts, uint32_t value);

/* Input bits of one row; `reached_cuts` gives which of 16 cuts a value reaches, as bits. */
BNN_INLINE void encode_row(const struct bnn *net, const uint32_t *features, uint32_t *words,
                           reached_cuts_fn *reached_cuts) {
    uint64_t pending_bits = 0;
    uint32_t fill = 0;
    for (uint32_t i = 0; i < net->n_chunks; i++) {
        const struct chunk *c = &net->chunks[i];
        const uint32_t v = features[c->feature];
        uint32_t bits;
        if (c->is_thermometer) {
            bits = reached_cuts(c->cuts, v) & ((1u << c->width) - 1u);
        } else {
            bits = v < c->clamp ? v : c->clamp;
        }
        pending_bits |= (uint64_t)bits << fill;
        fill += c->width;
        if (fill >= 32) {
            *words++ = (uint32_t)pending_bits;
            pending_bits >>= 32;
            fill -= 32;
        }
    }
    if (fill) {
        *words = (uint32_t)pending_bits;
    }
}

/* Cuts increase, so the bits reached are the lowest ones and counting them is enough. */
BNN_INLINE uint32_t reached_cuts_portable(const uint32_t *cuts, uint32_t value) {
    uint32_t n = 0;
    for (uint32_t k = 0; k < 16; k++) {
        n += value >= cuts[k];
    }
    return (1u << n) - 1u;
}

static void encode_portable(const struct bnn *net, const uint32_t *features, uint32_t *words) {
    encode_row(net, features, words, reached_cuts_portable);
}

/* --- the first layer from features: rows of sums ----------------------------------------- */

#define ROW_NEURONS 32u /* in eight words of 16-bit lanes */
#define ROW_BLOCK (ROW_NEURONS / 4u)
#define MAX_GROUPS 1024u
#define MAX_ROW_INPUTS 4096u
#define MAX_TABLES (1u << 18) /* bytes; larger ones fall out of the cache */
#define AT_ONCE 8u            /* inputs whose rows are selected together */
#define FEW_AT_ONCE 4u        /* inputs; of fewer the bits are faster */

/* What a bit of a neuron's inputs adds: 1 where it is counted and agrees, or else disagrees. */
static uint32_t bit_sum(const struct layer *layer, uint32_t j, uint32_t bit, uint32_t value,
                        uint32_t flips) {
    const size_t at = (size_t)j * layer->words64 + bit / 64;
    if (bit >= layer->inputs || (layer->row_mask && !(layer->row_mask[at] >> bit % 64 & 1u))) {
        return 0;
    }
    return (uint32_t)(layer->rows[at] >> bit % 64 & 1u) ^ value ^ flips;
}

struct cut_bit {
    uint32_t cut;
    uint32_t bit;
};

static int compare_cuts(const void *a, const void *b) {
    const uint32_t x = ((const struct cut_bit *)a)->cut;
    const uint32_t y = ((const struct cut_bit *)b)->cut;
    return (x > y) - (x < y);
}

/* Adds to a row what some bits add to each neuron: of value `value`, less that of `instead`. */
static void add_bit(const struct bnn *net, uint64_t *row, uint32_t bit, uint32_t value,
                    int instead) {
    const struct layer *layer = &net->layer[0];
    for (uint32_t j = 0; j < layer->outputs; j++) {
        const uint64_t lane = (uint64_t)1 << 16 * (j % 4);
        row[j / 4] += lane * bit_sum(layer, j, bit, value, 0);
        if (instead) {
            row[j / 4] -= lane * bit_sum(layer, j, bit, value ^ 1u, 0);
        }
    }
}

/* Rows of the intervals of one feature; gives their number, 0 where it has no thermometer. */
static uint32_t thermometer_rows(const struct bnn *net, uint32_t feature, struct group *group,
                                 uint32_t *cuts, int32_t *below, struct cut_bit *pairs,
                                 uint64_t *table) {
    uint32_t n = 0;
    uint32_t bit = 0;
    for (uint32_t i = 0; i < net->n_chunks; bit += net->chunks[i++].width) {
        const struct chunk *c = &net->chunks[i];
        for (uint32_t k = 0; c->is_thermometer && c->feature == feature && k < c->width; k++) {
            pairs[n++] = (struct cut_bit){c->cuts[k], bit + k};
        }
    }
    if (!n) {
        return 0;
    }
    qsort(pairs, n, sizeof *pairs, compare_cuts);
    uint64_t *row = table + (size_t)group->row * net->row_words;
    for (uint32_t i = 0; i < n; i++) {
        add_bit(net, row, pairs[i].bit, 0, 0);
    }
    for (uint32_t i = 0; i < n; i++) {
        if (!i || pairs[i].cut != pairs[i - 1].cut) {
            memcpy(row + net->row_words, row, net->row_words * sizeof *row);
            row += net->row_words;
            cuts[group->n_cuts] = pairs[i].cut;
            below[group->n_cuts++] = (int32_t)((pairs[i].cut - 1) ^ 0x80000000u);
        }
        add_bit(net, row, pairs[i].bit, 1, 1);
    }
    group->feature = feature;
    group->cuts = cuts;
    group->below = below;
    return group->n_cuts + 1;
}

/* Rows of up to four raw bits. */
static uint32_t raw_rows(const struct bnn *net, const struct chunk *chunk, uint32_t bit,
                         uint32_t shift, struct group *group, uint64_t *table) {
    const uint32_t n = chunk->width - shift < 4 ? chunk->width - shift : 4;
    group->feature = chunk->feature;
    group->shift = shift;
    group->clamp = chunk->clamp;
    for (uint32_t v = 0; v < 1u << n; v++) {
        for (uint32_t k = 0; k < n; k++) {
            add_bit(net, table + (size_t)(group->row + v) * net->row_words, bit + shift + k,
                    v >> k & 1u, 0);
        }
    }
    return 1u << n;
}

/* The table of the first layer; without memory, or where it is large, there is none. */
static void prepare_rows(struct bnn *net) {
    const struct layer *layer = &net->layer[0];
    if (net->table || net->n_layers < 2 || net->n_inputs > MAX_ROW_INPUTS) {
        return;
    }
    uint64_t n_groups = net->n_features;
    uint64_t n_rows = 1 + (uint64_t)net->n_features;
    uint64_t n_cuts = 1;
    for (uint32_t i = 0; i < net->n_chunks; i++) {
        const struct chunk *c = &net->chunks[i];
        n_groups += c->is_thermometer ? 0 : (c->width + 3) / 4;
        n_rows += c->is_thermometer ? c->width : 16 * ((c->width + 3) / 4);
        n_cuts += c->is_thermometer ? c->width : 0;
    }
    net->row_words = (layer->outputs + ROW_NEURONS - 1) / ROW_NEURONS * ROW_BLOCK;
    if (n_groups > MAX_GROUPS || n_rows * net->row_words * 8 > MAX_TABLES) {
        return;
    }
    uint64_t *table = allocate_block(net, n_rows, net->row_words * sizeof *table);
    struct group *groups = allocate_block(net, n_groups, sizeof *groups);
    uint32_t *cuts = allocate_block(net, n_cuts, sizeof *cuts);
    int32_t *below = allocate_block(net, n_cuts, sizeof *below);
    struct cut_bit *pairs = malloc(n_cuts * sizeof *pairs);
    if (!table || !groups || !cuts || !below || !pairs) {
        free(pairs);
        return;
    }
    for (uint32_t j = 0; j < layer->outputs; j++) {
        table[j / 4] += (uint64_t)(32768 - layer->limit[j]) << 16 * (j % 4);
    }
    struct group *group = groups;
    uint32_t row = 1;
    for (uint32_t f = 0; f < net->n_features; f++) {
        group->row = row;
        const uint32_t n = thermometer_rows(net, f, group, cuts, below, pairs, table);
        cuts += n ? n - 1 : 0;
        below += n ? n - 1 : 0;
        row += n;
        group += n > 0;
    }
    uint32_t bit = 0;
    for (uint32_t i = 0; i < net->n_chunks; bit += net->chunks[i++].width) {
        const struct chunk *c = &net->chunks[i];
        for (uint32_t shift = 0; !c->is_thermometer && shift < c->width; shift += 4) {
            group->row = row;
            row += raw_rows(net, c, bit, shift, group++, table);
        }
    }
    free(pairs);
    net->groups = groups;
    net->n_groups = (uint32_t)(group - groups);
    net->table = table;
}

/* Offsets of the rows that some inputs select, in words of the table. */
typedef void select_fn(const struct bnn *net, const uint32_t *const inputs[AT_ONCE],
                       uint32_t (*at)[AT_ONCE]);
/* Outputs of 32 neurons: the sum of one input's rows. */
typedef uint32_t sum_fn(const struct bnn *net, const uint64_t *table, uint32_t (*at)[AT_ONCE],
                        uint32_t input);

BNN_INLINE void first_layer(const struct bnn *net, const uint32_t *features, size_t rows,
                            uint32_t *words, select_fn *select_rows, sum_fn *sum) {
    uint32_t at[MAX_GROUPS][AT_ONCE];
    const uint32_t blocks = net->row_words / ROW_BLOCK;
    for (size_t r = 0; r < rows; r += AT_ONCE) {
        const uint32_t n = rows - r < AT_ONCE ? (uint32_t)(rows - r) : AT_ONCE;
        const uint32_t *inputs[AT_ONCE];
        for (uint32_t k = 0; k < AT_ONCE; k++) {
            inputs[k] = features + (r + (k < n ? k : n - 1)) * net->n_features;
        }
        select_rows(net, inputs, at);
        for (uint32_t k = 0; k < n; k++) {
            for (uint32_t b = 0; b < blocks; b++) {
                words[(r + k) * blocks + b] = sum(net, net->table + b * ROW_BLOCK, at, k);
            }
        }
    }
}

static void select_portable(const struct bnn *net, const uint32_t *const inputs[AT_ONCE],
                            uint32_t (*at)[AT_ONCE]) {
    for (uint32_t i = 0; i < net->n_groups; i++) {
        const struct group *g = &net->groups[i];
        uint32_t v[AT_ONCE];
        uint32_t n[AT_ONCE] = {0};
        for (uint32_t k = 0; k < AT_ONCE; k++) {
            v[k] = inputs[k][g->feature];
        }
        for (uint32_t c = 0; c < g->n_cuts; c++) {
            for (uint32_t k = 0; k < AT_ONCE; k++) {
                n[k] += v[k] >= g->cuts[c];
            }
        }
        for (uint32_t k = 0; !g->n_cuts && k < AT_ONCE; k++) {
            n[k] = (v[k] < g->clamp ? v[k] : g->clamp) >> g->shift & 15u;
        }
        for (uint32_t k = 0; k < AT_ONCE; k++) {
            at[i][k] = (g->row + n[k]) * net->row_words;
        }
    }
}

/* The top bits of four lanes. */
BNN_INLINE uint32_t top_bits(uint64_t lanes) {
    return (uint32_t)((lanes >> 15 & 0x0001000100010001u) * 0x0001000200040008u >> 48) & 15u;
}

static uint32_t sum_portable(const struct bnn *net, const uint64_t *table, uint32_t (*at)[AT_ONCE],
                             uint32_t input) {
    uint64_t s0 = table[0], s1 = table[1], s2 = table[2], s3 = table[3];
    uint64_t s4 = table[4], s5 = table[5], s6 = table[6], s7 = table[7];
    for (uint32_t i = 0; i < net->n_groups; i++) {
        const uint64_t *row = table + at[i][input];
        s0 += row[0];
        s1 += row[1];
        s2 += row[2];
        s3 += row[3];
        s4 += row[4];
        s5 += row[5];
        s6 += row[6];
        s7 += row[7];
    }
    return top_bits(s0) | top_bits(s1) << 4 | top_bits(s2) << 8 | top_bits(s3) << 12 |
           top_bits(s4) << 16 | top_bits(s5) << 20 | top_bits(s6) << 24 | top_bits(s7) << 28;
}

static void first_portable(const struct bnn *net, const uint32_t *features, size_t rows,
                           uint32_t *words) {
    first_layer(net, features, rows, words, select_portable, sum_portable);
}

/* --- kernels for x86-64 ---------------------------------------------------------------- */

#if BNN_POPCNT || BNN_AVX2 || BNN_AVX512

#define TARGET_POPCNT __attribute__((target("popcnt")))
#define TARGET_AVX2 __attribute__((target("avx2,bmi,popcnt")))
#define TARGET_AVX512                                                                              \
    __attribute__((target("avx2,bmi,popcnt,avx512f,avx512bw,avx512dq,avx512vl,avx512vpopcntdq")))

static int has_popcnt(void) {
    return __builtin_cpu_supports("popcnt");
}

#if BNN_AVX2 || BNN_AVX512
static int has_avx2(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") && has_popcnt();
}
#endif

#if BNN_AVX512
static int has_avx512(void) {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512vpopcntdq");
}
#endif

/* POPCNT: the portable kernel with the CPU's popcount. */

TARGET_POPCNT BNN_INLINE uint32_t popcount_cpu(uint64_t v) {
    return (uint32_t)__builtin_popcountll(v);
}

#if BNN_POPCNT

TARGET_POPCNT static void fire_popcnt(const struct layer *layer, const uint32_t *x, uint32_t *y) {
    fire_rows(layer, x, y, popcount_cpu);
}

TARGET_POPCNT static void score_popcnt(const struct layer *layer, const uint32_t *x,
                                       struct best *best, int32_t *scores) {
    score_rows(layer, x, best, scores, popcount_cpu);
}

TARGET_POPCNT static void infer_popcnt(const struct bnn *net, const uint32_t *words, size_t rows,
                                       const struct sink *out, uint32_t from) {
    run_layers(net, words, rows, out, from, fire_popcnt, score_popcnt);
}

#endif /* BNN_POPCNT */

#if BNN_AVX2

/*
 * AVX2: sums of four inputs at a time from tables, for 32 neurons in a register. Layers that are
 * too large for that: 16 neurons in two registers, popcounts of bytes by a table of nibbles.
 */

#define SUM_NEURONS 32u
#define SUM_ROWS 16u
#define MAX_SUMS (1u << 18) /* bytes of a layer's tables; larger ones fall out of the cache */
#define FEW_POPCOUNTS 8u    /* of an output layer, up to which they are faster one by one */

TARGET_AVX2 BNN_INLINE __m256i byte_counts(__m256i v) {
    const __m256i table = _mm256_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4, 0, 1, 1,
                                           2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4);
    const __m256i nibble = _mm256_set1_epi8(15);
    const __m256i low = _mm256_and_si256(v, nibble);
    const __m256i high = _mm256_and_si256(_mm256_srli_epi16(v, 4), nibble);
    return _mm256_add_epi8(_mm256_shuffle_epi8(table, low), _mm256_shuffle_epi8(table, high));
}

TARGET_AVX2 BNN_INLINE __m256i sum_bytes(__m256i bytes) {
    const __m256i pairs = _mm256_maddubs_epi16(bytes, _mm256_set1_epi8(1));
    return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}

TARGET_AVX2 BNN_INLINE void group_avx2(const struct layer *layer, uint32_t group, const uint32_t *x,
                                       __m256i sums[2]) {
    const size_t start = (size_t)group * layer->words * LANES;
    const uint32_t *w = layer->lanes + start;
    const uint32_t *m = layer->lane_mask ? layer->lane_mask + start : NULL;
    __m256i low = _mm256_setzero_si256();
    __m256i high = _mm256_setzero_si256();
    for (uint32_t i = 0; i < layer->words;) {
        /* A byte holds the counts of 31 words: 31 * 8 < 256. */
        const uint32_t end = layer->words - i < 31 ? layer->words : i + 31;
        __m256i low_bytes = _mm256_setzero_si256();
        __m256i high_bytes = _mm256_setzero_si256();
        for (; i < end; i++) {
            const __m256i v = _mm256_set1_epi32((int)x[i]);
            const uint32_t *at = w + (size_t)i * LANES;
            __m256i a = _mm256_xor_si256(v, _mm256_load_si256((const __m256i *)at));
            __m256i b = _mm256_xor_si256(v, _mm256_load_si256((const __m256i *)(at + 8)));
            if (m) {
                const uint32_t *mat = m + (size_t)i * LANES;
                a = _mm256_and_si256(a, _mm256_load_si256((const __m256i *)mat));
                b = _mm256_and_si256(b, _mm256_load_si256((const __m256i *)(mat + 8)));
            }
            low_bytes = _mm256_add_epi8(low_bytes, byte_counts(a));
            high_bytes = _mm256_add_epi8(high_bytes, byte_counts(b));
        }
        low = _mm256_add_epi32(low, sum_bytes(low_bytes));
        high = _mm256_add_epi32(high, sum_bytes(high_bytes));
    }
    sums[0] = low;
    sums[1] = high;
}

TARGET_AVX2 BNN_INLINE uint32_t at_least_avx2(__m256i sums, const int32_t *limit) {
    const __m256i below = _mm256_cmpgt_epi32(_mm256_load_si256((const __m256i *)limit), sums);
    return (uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(below)) ^ 0xffu;
}

/*
 * The outputs of 32 neurons. Additions saturate, so a sum that reaches 255 stays there, in
 * whatever order and in however many parts the rows are added.
 */
TARGET_AVX2 BNN_INLINE uint32_t fire_sums(const struct layer *layer, uint32_t group,
                                          const uint32_t *x, const uint32_t n_words) {
    const size_t size = (size_t)SUM_ROWS * SUM_NEURONS;
    const uint8_t *rows = layer->sums + group * n_words * 8 * size;
    __m256i even = _mm256_load_si256((const __m256i *)(layer->start + group * SUM_NEURONS));
    __m256i odd = _mm256_setzero_si256();
#pragma GCC unroll 8
    for (uint32_t i = 0; i < n_words; i++, rows += 8 * size) {
        const uint64_t v = (uint64_t)x[i] << 5; /* times the bytes of a row */
#define ADD(sum, k)                                                                                \
    sum = _mm256_adds_epu8(                                                                        \
        sum, _mm256_load_si256((const __m256i *)(rows + (k) * size + (v >> 4 * (k) & 0x1e0))))
        ADD(even, 0);
        ADD(odd, 1);
        ADD(even, 2);
        ADD(odd, 3);
        ADD(even, 4);
        ADD(odd, 5);
        ADD(even, 6);
        ADD(odd, 7);
#undef ADD
    }
    const __m256i full = _mm256_cmpeq_epi8(_mm256_adds_epu8(even, odd), _mm256_set1_epi8(-1));
    return (uint32_t)_mm256_movemask_epi8(full) ^ layer->flips[group];
}

TARGET_AVX2 static void fire_avx2(const struct layer *layer, const uint32_t *x, uint32_t *y) {
    if (layer->sums) {
        for (uint32_t g = 0; g * SUM_NEURONS < layer->outputs; g++) {
            y[g] = fire_sums(layer, g, x, layer->words);
        }
        return;
    }
    for (uint32_t g = 0; g < layer->groups; g++) {
        __m256i sums[2];
        group_avx2(layer, g, x, sums);
        const int32_t *limit = layer->limit + (size_t)g * LANES;
        store_group(y, g, at_least_avx2(sums[0], limit) | at_least_avx2(sums[1], limit + 8) << 8);
    }
}

TARGET_AVX2 static void score_avx2(const struct layer *layer, const uint32_t *x, struct best *best,
                                   int32_t *scores) {
    if (layer->outputs * layer->words64 <= FEW_POPCOUNTS) {
        score_rows(layer, x, best, scores, popcount_cpu);
        return;
    }
    for (uint32_t g = 0; g < layer->groups; g++) {
        __m256i sums[2];
        int32_t stored[LANES];
        group_avx2(layer, g, x, sums);
        _mm256_storeu_si256((__m256i *)stored, sums[0]);
        _mm256_storeu_si256((__m256i *)(stored + 8), sums[1]);
        offer_group(layer, g, stored, best, scores);
    }
}

/* The tables of a hidden layer; without memory, or where bytes do not do, it has none. */
static void prepare_sums(struct bnn *net, struct layer *layer) {
    const uint32_t groups = (layer->outputs + SUM_NEURONS - 1) / SUM_NEURONS;
    const uint64_t nibbles = (uint64_t)layer->words * 8;
    if (groups * nibbles * SUM_ROWS * SUM_NEURONS > MAX_SUMS) {
        return;
    }
    uint8_t *sums = allocate_block(net, groups * nibbles, SUM_ROWS * SUM_NEURONS);
    uint8_t *start = allocate_block(net, groups, SUM_NEURONS);
    uint32_t *flips = allocate_block(net, groups, sizeof *flips);
    if (!sums || !start || !flips) {
        return;
    }
    for (uint32_t j = 0; j < layer->outputs; j++) {
        const uint32_t group = j / SUM_NEURONS;
        int64_t needed = layer->limit[j]; /* of what agrees */
        uint32_t flip = 0;
        if (needed > 255) {
            uint32_t counted = 0;
            for (uint32_t bit = 0; bit < layer->inputs; bit++) {
                counted += bit_sum(layer, j, bit, 0, 0) + bit_sum(layer, j, bit, 1, 0);
            }
            flip = 1;
            needed = (int64_t)counted - needed + 1; /* of what disagrees, for it not to fire */
            needed = needed < 0 ? 0 : needed;
        }
        if (needed > 255) {
            return;
        }
        start[j] = (uint8_t)(255 - needed);
        flips[group] |= flip << j % SUM_NEURONS;
        for (uint64_t n = 0; n < nibbles; n++) {
            uint8_t *rows = sums + (group * nibbles + n) * SUM_ROWS * SUM_NEURONS;
            for (uint32_t v = 0; v < SUM_ROWS; v++) {
                uint32_t sum = 0;
                for (uint32_t k = 0; k < 4; k++) {
                    sum += bit_sum(layer, j, (uint32_t)n * 4 + k, v >> k & 1u, flip);
                }
                rows[v * SUM_NEURONS + j % SUM_NEURONS] = (uint8_t)sum;
            }
        }
    }
    layer->start = start;
    layer->flips = flips;
    layer->sums = sums;
}

static void prepare_avx2(struct bnn *net) {
    for (uint32_t l = 0; l + 1 < net->n_layers; l++) {
        if (!net->layer[l].sums) {
            prepare_sums(net, &net->layer[l]);
        }
    }
    prepare_rows(net);
}

/* Eight features of eight inputs: a register an input becomes one a feature. */
TARGET_AVX2 BNN_INLINE void transpose_avx2(const uint32_t *const inputs[AT_ONCE], uint32_t first,
                                           __m256i present, __m256i *columns) {
    __m256i a[AT_ONCE];
    __m256i b[AT_ONCE];
#pragma GCC unroll 8
    for (uint32_t k = 0; k < AT_ONCE; k++) {
        a[k] = _mm256_maskload_epi32((const int *)inputs[k] + first, present);
    }
#pragma GCC unroll 4
    for (uint32_t k = 0; k < AT_ONCE; k += 2) {
        b[k] = _mm256_unpacklo_epi32(a[k], a[k + 1]);
        b[k + 1] = _mm256_unpackhi_epi32(a[k], a[k + 1]);
    }
#pragma GCC unroll 2
    for (uint32_t k = 0; k < AT_ONCE; k += 4) {
        a[k] = _mm256_unpacklo_epi64(b[k], b[k + 2]);
        a[k + 1] = _mm256_unpackhi_epi64(b[k], b[k + 2]);
        a[k + 2] = _mm256_unpacklo_epi64(b[k + 1], b[k + 3]);
        a[k + 3] = _mm256_unpackhi_epi64(b[k + 1], b[k + 3]);
    }
#pragma GCC unroll 4
    for (uint32_t k = 0; k < 4; k++) {
        columns[k] = _mm256_permute2x128_si256(a[k], a[k + 4], 0x20);
        columns[k + 4] = _mm256_permute2x128_si256(a[k], a[k + 4], 0x31);
    }
}

TARGET_AVX2 BNN_INLINE void
select_avx2(const struct bnn *net, const uint32_t *const inputs[AT_ONCE], uint32_t (*at)[AT_ONCE]) {
    const __m256i words = _mm256_set1_epi32((int)net->row_words);
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    __m256i columns[MAX_GROUPS + AT_ONCE];
    for (uint32_t f = 0; f < net->n_features; f += AT_ONCE) {
        const __m256i left = _mm256_set1_epi32((int)(net->n_features - f));
        transpose_avx2(inputs, f, _mm256_cmpgt_epi32(left, lanes), columns + f);
    }
    for (uint32_t i = 0; i < net->n_groups; i++) {
        const struct group *g = &net->groups[i];
        __m256i v = columns[g->feature];
        __m256i row = _mm256_set1_epi32((int)g->row);
        if (g->n_cuts) {
            v = _mm256_xor_si256(v, _mm256_set1_epi32(INT32_MIN));
            for (uint32_t c = 0; c < g->n_cuts; c++) {
                const __m256i reached = _mm256_cmpgt_epi32(v, _mm256_set1_epi32(g->below[c]));
                row = _mm256_sub_epi32(row, reached);
            }
        } else {
            v = _mm256_min_epu32(v, _mm256_set1_epi32((int)g->clamp));
            v = _mm256_srl_epi32(v, _mm_cvtsi32_si128((int)g->shift));
            row = _mm256_add_epi32(row, _mm256_and_si256(v, _mm256_set1_epi32(15)));
        }
        _mm256_storeu_si256((__m256i *)at[i], _mm256_mullo_epi32(row, words));
    }
}

TARGET_AVX2 BNN_INLINE uint32_t sum_avx2(const struct bnn *net, const uint64_t *table,
                                         uint32_t (*at)[AT_ONCE], uint32_t input) {
    __m256i low = _mm256_load_si256((const __m256i *)table);
    __m256i high = _mm256_load_si256((const __m256i *)(table + 4));
#pragma GCC unroll 4
    for (uint32_t i = 0; i < net->n_groups; i++) {
        const uint64_t *row = table + at[i][input];
        low = _mm256_add_epi16(low, _mm256_load_si256((const __m256i *)row));
        high = _mm256_add_epi16(high, _mm256_load_si256((const __m256i *)(row + 4)));
    }
    const __m256i bytes = _mm256_permute4x64_epi64(_mm256_packs_epi16(low, high), 0xd8);
    return (uint32_t)_mm256_movemask_epi8(bytes);
}

TARGET_AVX2 static void first_avx2(const struct bnn *net, const uint32_t *features, size_t rows,
                                   uint32_t *words) {
    first_layer(net, features, rows, words, select_avx2, sum_avx2);
}

/* The common small network; see small_avx512(). */
TARGET_AVX2 BNN_INLINE void small_avx2(const struct bnn *net, const uint32_t *words, size_t rows,
                                       const struct sink *out, const uint32_t n_words,
                                       const uint32_t from) {
    const struct layer *output = &net->layer[net->n_layers - 1];
    for (size_t r = 0; r < rows; r++) {
        uint32_t h = from ? words[r] : fire_sums(&net->layer[0], 0, words + r * n_words, n_words);
        for (const struct layer *layer = &net->layer[1]; layer < output; layer++) {
            h = fire_sums(layer, 0, &h, 1);
        }
        store_two_classes(out, r, (int32_t)popcount_cpu(h ^ output->rows[0]) + output->limit[0],
                          (int32_t)popcount_cpu(h ^ output->rows[1]) + output->limit[1]);
    }
}

/* Apart, so that the small network's path has no large frame. */
TARGET_AVX2 static __attribute__((noinline)) void
infer_large_avx2(const struct bnn *net, const uint32_t *words, size_t rows, const struct sink *out,
                 uint32_t from) {
    run_layers(net, words, rows, out, from, fire_avx2, score_avx2);
}

static int all_sums(const struct bnn *net) {
    uint32_t l = 0;
    while (l + 1 < net->n_layers && net->layer[l].sums) {
        l++;
    }
    return l + 1 == net->n_layers;
}

TARGET_AVX2 static void infer_avx2(const struct bnn *net, const uint32_t *words, size_t rows,
                                   const struct sink *out, uint32_t from) {
    const int small = net->small && !out->hidden && all_sums(net);
    if (small && from == 1) {
        small_avx2(net, words, rows, out, 1, 1);
        return;
    }
    switch (small && !from ? net->n_words : 0) {
#define SMALL(N)                                                                                   \
    case N:                                                                                        \
        small_avx2(net, words, rows, out, N, 0);                                                   \
        break
        SMALL(1);
        SMALL(2);
        SMALL(3);
        SMALL(4);
        SMALL(5);
        SMALL(6);
        SMALL(7);
        SMALL(8);
#undef SMALL
    default:
        infer_large_avx2(net, words, rows, out, from);
    }
}

TARGET_AVX2 BNN_INLINE uint32_t reached_cuts_avx2(const uint32_t *cuts, uint32_t value) {
    const __m256i v = _mm256_set1_epi32((int)value);
    const __m256i a = _mm256_load_si256((const __m256i *)cuts);
    const __m256i b = _mm256_load_si256((const __m256i *)(cuts + 8));
    /* Unsigned value >= cut is max(value, cut) == value. */
    const __m256i low = _mm256_cmpeq_epi32(_mm256_max_epu32(v, a), v);
    const __m256i high = _mm256_cmpeq_epi32(_mm256_max_epu32(v, b), v);
    return (uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(low)) |
           (uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(high)) << 8;
}

TARGET_AVX2 static void encode_avx2(const struct bnn *net, const uint32_t *features,
                                    uint32_t *words) {
    encode_row(net, features, words, reached_cuts_avx2);
}

#endif /* BNN_AVX2 */

#if BNN_AVX512

/* AVX-512 with VPOPCNTDQ: 16 neurons in a register. */

TARGET_AVX512 BNN_INLINE __m512i group_avx512(const struct layer *layer, uint32_t group,
                                              const uint32_t *x) {
    const size_t start = (size_t)group * layer->words * LANES;
    const uint32_t *w = layer->lanes + start;
    __m512i sum = _mm512_setzero_si512();
    if (layer->lane_mask) {
        const uint32_t *m = layer->lane_mask + start;
        for (uint32_t i = 0; i < layer->words; i++, w += LANES, m += LANES) {
            const __m512i v = _mm512_set1_epi32((int)x[i]);
            const __m512i same =
                _mm512_and_si512(_mm512_xor_si512(v, _mm512_load_si512(w)), _mm512_load_si512(m));
            sum = _mm512_add_epi32(sum, _mm512_popcnt_epi32(same));
        }
    } else {
        for (uint32_t i = 0; i < layer->words; i++, w += LANES) {
            const __m512i v = _mm512_set1_epi32((int)x[i]);
            const __m512i same = _mm512_xor_si512(v, _mm512_load_si512(w));
            sum = _mm512_add_epi32(sum, _mm512_popcnt_epi32(same));
        }
    }
    return sum;
}

TARGET_AVX512 static void fire_avx512(const struct layer *layer, const uint32_t *x, uint32_t *y) {
    for (uint32_t g = 0; g < layer->groups; g++) {
        const __m512i limit = _mm512_load_si512(layer->limit + (size_t)g * LANES);
        store_group(y, g, _mm512_cmpge_epi32_mask(group_avx512(layer, g, x), limit));
    }
}

TARGET_AVX512 static void score_avx512(const struct layer *layer, const uint32_t *x,
                                       struct best *best, int32_t *scores) {
    for (uint32_t g = 0; g < layer->groups; g++) {
        int32_t stored[LANES];
        _mm512_storeu_si512(stored, group_avx512(layer, g, x));
        offer_group(layer, g, stored, best, scores);
    }
}

/*
 * The common small network: one word between layers, at most 32 neurons in a hidden layer and
 * two classes. Called with constant sizes of the first layer, so that its loops disappear.
 */
TARGET_AVX512 BNN_INLINE void small_avx512(const struct bnn *net, const uint32_t *words,
                                           size_t rows, const struct sink *out,
                                           const uint32_t n_words, const uint32_t n_groups) {
    const struct layer *first = &net->layer[0];
    const struct layer *output = &net->layer[net->n_layers - 1];
    const uint32_t w0 = (uint32_t)output->rows[0];
    const uint32_t w1 = (uint32_t)output->rows[1];
    const int32_t b0 = output->limit[0];
    const int32_t b1 = output->limit[1];
    const uint32_t *weights = first->lanes;
    const __m512i limit0 = _mm512_load_si512(first->limit);
    const __m512i limit1 = _mm512_load_si512(first->limit + (n_groups > 1 ? LANES : 0));
    const size_t group_size = (size_t)n_words * LANES;
    for (size_t r = 0; r < rows; r++) {
        const uint32_t *x = words + r * n_words;
        __m512i sum0[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
        __m512i sum1[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
#pragma GCC unroll 8
        for (uint32_t i = 0; i < n_words; i++) {
            const __m512i v = _mm512_set1_epi32((int)x[i]);
            const __m512i a = _mm512_xor_si512(v, _mm512_load_si512(weights + i * LANES));
            sum0[i & 1] = _mm512_add_epi32(sum0[i & 1], _mm512_popcnt_epi32(a));
            if (n_groups > 1) {
                const __m512i b =
                    _mm512_xor_si512(v, _mm512_load_si512(weights + group_size + i * LANES));
                sum1[i & 1] = _mm512_add_epi32(sum1[i & 1], _mm512_popcnt_epi32(b));
            }
        }
        uint32_t h = _mm512_cmpge_epi32_mask(_mm512_add_epi32(sum0[0], sum0[1]), limit0);
        if (n_groups > 1) {
            const __m512i total = _mm512_add_epi32(sum1[0], sum1[1]);
            h |= (uint32_t)_mm512_cmpge_epi32_mask(total, limit1) << 16;
        }
        for (const struct layer *layer = first + 1; layer < output; layer++) {
            const __m512i v = _mm512_set1_epi32((int)h);
            const __m512i a = _mm512_xor_si512(v, _mm512_load_si512(layer->lanes));
            h = _mm512_cmpge_epi32_mask(_mm512_popcnt_epi32(a), _mm512_load_si512(layer->limit));
            if (layer->groups > 1) {
                const __m512i b = _mm512_xor_si512(v, _mm512_load_si512(layer->lanes + LANES));
                const __m512i limit = _mm512_load_si512(layer->limit + LANES);
                h |= (uint32_t)_mm512_cmpge_epi32_mask(_mm512_popcnt_epi32(b), limit) << 16;
            }
        }
        const int32_t s0 = (int32_t)__builtin_popcount(h ^ w0) + b0;
        const int32_t s1 = (int32_t)__builtin_popcount(h ^ w1) + b1;
        store_two_classes(out, r, s0, s1);
    }
}

/* Apart, so that the small network's path has no large frame. */
TARGET_AVX512 static __attribute__((noinline)) void
infer_large_avx512(const struct bnn *net, const uint32_t *words, size_t rows,
                   const struct sink *out, uint32_t from) {
    run_layers(net, words, rows, out, from, fire_avx512, score_avx512);
}

TARGET_AVX512 static void infer_avx512(const struct bnn *net, const uint32_t *words, size_t rows,
                                       const struct sink *out, uint32_t from) {
    switch (out->hidden || from ? 0 : net->small) {
#define SMALL(N)                                                                                   \
    case (N) * 2 + 1:                                                                              \
        small_avx512(net, words, rows, out, N, 1);                                                 \
        break;                                                                                     \
    case (N) * 2 + 2:                                                                              \
        small_avx512(net, words, rows, out, N, 2);                                                 \
        break
        SMALL(1);
        SMALL(2);
        SMALL(3);
        SMALL(4);
        SMALL(5);
        SMALL(6);
        SMALL(7);
        SMALL(8);
#undef SMALL
    default:
        infer_large_avx512(net, words, rows, out, from);
    }
}

TARGET_AVX512 BNN_INLINE uint32_t reached_cuts_avx512(const uint32_t *cuts, uint32_t value) {
    return _mm512_cmpge_epu32_mask(_mm512_set1_epi32((int)value), _mm512_load_si512(cuts));
}

TARGET_AVX512 static void encode_avx512(const struct bnn *net, const uint32_t *features,
                                        uint32_t *words) {
    encode_row(net, features, words, reached_cuts_avx512);
}

#endif /* BNN_AVX512 */

#endif /* one of the kernels for x86-64 */

/* --- kernel for 64-bit ARM ------------------------------------------------------------- */

#if BNN_NEON

BNN_INLINE void group_neon(const struct layer *layer, uint32_t group, const uint32_t *x,
                           uint32x4_t sums[4]) {
    const size_t start = (size_t)group * layer->words * LANES;
    const uint32_t *w = layer->lanes + start;
    const uint32_t *m = layer->lane_mask ? layer->lane_mask + start : NULL;
    for (uint32_t q = 0; q < 4; q++) {
        sums[q] = vdupq_n_u32(0);
    }
    for (uint32_t i = 0; i < layer->words;) {
        /* A byte holds the counts of 31 words: 31 * 8 < 256. */
        const uint32_t end = layer->words - i < 31 ? layer->words : i + 31;
        uint8x16_t bytes[4] = {vdupq_n_u8(0), vdupq_n_u8(0), vdupq_n_u8(0), vdupq_n_u8(0)};
        for (; i < end; i++) {
            const uint32x4_t v = vdupq_n_u32(x[i]);
            for (uint32_t q = 0; q < 4; q++) {
                const size_t at = (size_t)i * LANES + 4 * q;
                uint32x4_t same = veorq_u32(v, vld1q_u32(w + at));
                if (m) {
                    same = vandq_u32(same, vld1q_u32(m + at));
                }
                bytes[q] = vaddq_u8(bytes[q], vcntq_u8(vreinterpretq_u8_u32(same)));
            }
        }
        for (uint32_t q = 0; q < 4; q++) {
            sums[q] = vpadalq_u16(sums[q], vpaddlq_u8(bytes[q]));
        }
    }
}

static void fire_neon(const struct layer *layer, const uint32_t *x, uint32_t *y) {
    static const uint32_t place[4] = {1, 2, 4, 8};
    const uint32x4_t places = vld1q_u32(place);
    for (uint32_t g = 0; g < layer->groups; g++) {
        uint32x4_t sums[4];
        group_neon(layer, g, x, sums);
        uint32_t bits = 0;
        for (uint32_t q = 0; q < 4; q++) {
            const int32x4_t limit = vld1q_s32(layer->limit + (size_t)g * LANES + 4 * q);
            const uint32x4_t fires = vcgeq_s32(vreinterpretq_s32_u32(sums[q]), limit);
            bits |= vaddvq_u32(vandq_u32(fires, places)) << 4 * q;
        }
        store_group(y, g, bits);
    }
}

static void score_neon(const struct layer *layer, const uint32_t *x, struct best *best,
                       int32_t *scores) {
    for (uint32_t g = 0; g < layer->groups; g++) {
        uint32x4_t sums[4];
        int32_t stored[LANES];
        group_neon(layer, g, x, sums);
        for (uint32_t q = 0; q < 4; q++) {
            vst1q_s32(stored + 4 * q, vreinterpretq_s32_u32(sums[q]));
        }
        offer_group(layer, g, stored, best, scores);
    }
}

static void infer_neon(const struct bnn *net, const uint32_t *words, size_t rows,
                       const struct sink *out, uint32_t from) {
    run_layers(net, words, rows, out, from, fire_neon, score_neon);
}

#endif /* BNN_NEON */

/* --- choice of kernel ------------------------------------------------------------------ */

/* The fastest last. */
static const struct kernel kernels[] = {
    {"portable", is_always_supported, infer_portable, encode_portable, prepare_rows,
     first_portable},
#if BNN_POPCNT
    {"popcnt", has_popcnt, infer_popcnt, encode_portable, prepare_rows, first_portable},
#endif
#if BNN_AVX2
    {"avx2", has_avx2, infer_avx2, encode_avx2, prepare_avx2, first_avx2},
#endif
#if BNN_AVX512
    {"avx512", has_avx512, infer_avx512, encode_avx512, NULL, NULL},
#endif
#if BNN_NEON
    {"neon", is_always_supported, infer_neon, encode_portable, NULL, NULL},
#endif
};

#define N_KERNELS (sizeof kernels / sizeof kernels[0])

const char *bnn_kernel_name(uint32_t index) {
    return index < N_KERNELS ? kernels[index].name : NULL;
}

int bnn_kernel_supported(uint32_t index) {
    return index < N_KERNELS && kernels[index].supported();
}

const char *bnn_kernel(const struct bnn *net) {
    return net->kernel->name;
}

static void take_kernel(struct bnn *net, const struct kernel *kernel) {
    net->kernel = kernel;
    if (kernel->prepare) {
        kernel->prepare(net);
    }
}

static void choose_kernel(struct bnn *net) {
    const struct kernel *fastest = &kernels[0];
    for (size_t i = 1; i < N_KERNELS; i++) {
        if (kernels[i].supported()) {
            fastest = &kernels[i];
        }
    }
    take_kernel(net, fastest);
}

int bnn_use_kernel(struct bnn *net, const char *name) {
    for (size_t i = 0; i < N_KERNELS; i++) {
        if (strcmp(kernels[i].name, name) == 0 && kernels[i].supported()) {
            take_kernel(net, &kernels[i]);
            return BNN_OK;
        }
    }
    return BNN_NO_KERNEL;
}

/* --- calls ----------------------------------------------------------------------------- */

uint32_t bnn_inputs(const struct bnn *net) {
    return net->n_inputs;
}
uint32_t bnn_words(const struct bnn *net) {
    return net->n_words;
}
uint32_t bnn_features(const struct bnn *net) {
    return net->n_features;
}
uint32_t bnn_classes(const struct bnn *net) {
    return net->n_classes;
}
uint32_t bnn_hidden_words(const struct bnn *net) {
    return net->hidden_words;
}

uint32_t bnn_shunt(const struct bnn *net) {
    return (uint32_t)net->shunt;
}

const char *bnn_class_name(const struct bnn *net, uint32_t index) {
    if (index == BNN_SHUNT) {
        return "shunt";
    }
    return index < net->n_classes ? net->names[index] : NULL;
}

const char *bnn_feature_name(const struct bnn *net, uint32_t index) {
    return index < net->n_features ? net->names[net->n_classes + index] : NULL;
}

const char *bnn_model(const struct bnn *net) {
    return net->model;
}

double bnn_scale(const struct bnn *net, uint32_t feature) {
    return net->scales[feature];
}

uint32_t bnn_integer(const struct bnn *net, uint32_t feature, double value) {
    /* volatile: rounded here, where a compiler could fuse it with the subtraction below. */
    const volatile double scaled = value * net->scales[feature];
    if (!(value > 0)) {
        return 0;
    }
    if (scaled >= (double)UINT32_MAX) {
        return UINT32_MAX;
    }
    const uint32_t whole = (uint32_t)scaled;
    const double rest = scaled - whole;
    const uint32_t rounded = whole + (rest > 0.5 || (rest == 0.5 && (whole & 1u)));
    return rounded ? rounded : 1;
}

uint32_t bnn_infer(const struct bnn *net, const uint32_t *words, int32_t *margin) {
    uint32_t class_index;
    int32_t lead;
    const struct sink out = {.classes = &class_index, .margins = &lead};
    net->kernel->infer(net, words, 1, &out, 0);
    if (margin) {
        *margin = lead;
    }
    return lead < net->shunt ? BNN_SHUNT : class_index;
}

/* From the inputs of a layer on; what is below the threshold is shunted. */
static void decide(const struct bnn *net, uint32_t from, const uint32_t *words, size_t rows,
                   uint32_t *classes, int32_t *margins, int32_t *scores) {
    if (!net->shunt || !classes) {
        const struct sink out = {.classes = classes, .margins = margins, .scores = scores};
        net->kernel->infer(net, words, rows, &out, from);
        return;
    }
    int32_t buffer[SHUNT_ROWS];
    for (size_t start = 0; start < rows; start += SHUNT_ROWS) {
        const size_t n = rows - start < SHUNT_ROWS ? rows - start : SHUNT_ROWS;
        const struct sink out = {
            .classes = classes + start,
            .margins = margins ? margins + start : buffer,
            .scores = scores ? scores + start * net->n_classes : NULL,
        };
        net->kernel->infer(net, words + start * net->layer[from].words, n, &out, from);
        for (size_t r = 0; r < n; r++) {
            out.classes[r] = out.margins[r] < net->shunt ? BNN_SHUNT : out.classes[r];
        }
    }
}

void bnn_infer_batch(const struct bnn *net, const uint32_t *words, size_t rows, uint32_t *classes,
                     int32_t *margins, int32_t *scores) {
    decide(net, 0, words, rows, classes, margins, scores);
}

void bnn_trace(const struct bnn *net, const uint32_t *words, size_t rows, uint32_t *hidden,
               int32_t *scores) {
    const struct sink out = {.scores = scores, .hidden = hidden};
    net->kernel->infer(net, words, rows, &out, 0);
}

void bnn_encode(const struct bnn *net, const uint32_t *features, uint32_t *words) {
    net->kernel->encode(net, features, words);
}

void bnn_encode_batch(const struct bnn *net, const uint32_t *features, size_t rows,
                      uint32_t *words) {
    for (size_t r = 0; r < rows; r++) {
        net->kernel->encode(net, features + r * net->n_features, words + r * net->n_words);
    }
}

void bnn_run_batch(const struct bnn *net, const uint32_t *features, size_t rows, uint32_t *classes,
                   int32_t *margins, int32_t *scores) {
    uint32_t words[ENCODE_WORDS];
    const uint32_t from = net->table && net->kernel->first && rows >= FEW_AT_ONCE;
    const uint32_t width = net->layer[from].words;
    const size_t step = ENCODE_WORDS / width;
    for (size_t r = 0; r < rows; r += step) {
        const size_t n = rows - r < step ? rows - r : step;
        const uint32_t *x = features + r * net->n_features;
        if (from) {
            net->kernel->first(net, x, n, words);
        } else {
            bnn_encode_batch(net, x, n, words);
        }
        decide(net, from, words, n, classes ? classes + r : NULL, margins ? margins + r : NULL,
               scores ? scores + r * net->n_classes : NULL);
    }
}

void bnn_classify_batch(const struct bnn *net, const uint32_t *features, size_t rows,
                        uint32_t *classes, int32_t *margins) {
    bnn_run_batch(net, features, rows, classes, margins, NULL);
}

/* --- loading --------------------------------------------------------------------------- */

#define MAGIC 0x4f48334eu     /* "N3HO" */
#define NFP_MAGIC 0x464e334eu /* "N3NF" */
#define VERSION 1u
#define SHUNT_VERSION 2u /* of weights with a threshold: a reader of 1 decides every input */
#define HEADER_WORDS 18u
#define DIGEST_WORDS 8u
#define LAYER_WORDS 4u
#define FIELD_WORDS 4u
#define MAX_NAME 1024u
#define MAX_BIAS (1 << 24)
#define MAX_SHUNT (1u << 26) /* no two scores are as far apart */

/* Words of the blob, each read within its bounds. */
struct reader {
    const uint8_t *bytes;
    uint64_t at;    /* next word */
    uint64_t words; /* words in all, the checksum left out */
    int failed;
};

static uint32_t word_at(const uint8_t *bytes) {
    return bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

static uint32_t read_word(struct reader *in) {
    if (in->at >= in->words) {
        in->failed = 1;
        return 0;
    }
    return word_at(in->bytes + 4 * in->at++);
}

static int has_words(const struct reader *in, uint64_t n) {
    return n <= in->words - in->at;
}

static uint32_t crc32(const uint8_t *bytes, size_t size) {
    static const uint32_t nibble[16] = {
        0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4,
        0x4db26158, 0x5005713c, 0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c,
        0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c,
    };
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < size; i++) {
        crc ^= bytes[i];
        crc = nibble[crc & 15u] ^ crc >> 4;
        crc = nibble[crc & 15u] ^ crc >> 4;
    }
    return ~crc;
}

/* Bits of the last word of a vector of n bits. */
static uint32_t tail_mask(uint32_t n) {
    return n % 32 ? (1u << n % 32) - 1u : 0xffffffffu;
}

static int read_fields(struct bnn *net, struct reader *in, uint32_t n_fields, uint32_t n_cuts) {
    if (!has_words(in, (uint64_t)n_fields * FIELD_WORDS + n_cuts)) {
        return BNN_BAD_SIZE;
    }
    const uint64_t fields_at = in->at;
    uint64_t n_chunks = 0;
    uint64_t bits = 0;
    uint64_t cuts = 0;
    for (uint32_t i = 0; i < n_fields; i++) {
        const uint32_t feature = read_word(in);
        const uint32_t kind = read_word(in);
        const uint32_t width = read_word(in);
        const uint32_t clamp = read_word(in);
        if (feature >= net->n_features || kind > 1 || !width || !clamp) {
            return BNN_BAD_INPUT;
        }
        if (kind == 0 && (width > 32 || (width < 32 && clamp >> width))) {
            return BNN_BAD_INPUT;
        }
        bits += width;
        cuts += kind ? width : 0;
        n_chunks += kind ? ((uint64_t)width + 15u) / 16u : 1u;
    }
    if (bits != net->n_inputs || cuts != n_cuts) {
        return BNN_BAD_INPUT;
    }
    struct chunk *chunks = allocate_block(net, n_chunks, sizeof *chunks);
    uint32_t *cut = allocate_block(net, n_chunks, 16 * sizeof *cut);
    if (!chunks || !cut) {
        return BNN_NO_MEMORY;
    }
    net->chunks = chunks;
    net->n_chunks = (uint32_t)n_chunks;
    struct reader field = *in;
    field.at = fields_at;
    for (uint32_t i = 0; i < n_fields; i++) {
        const uint32_t feature = read_word(&field);
        const uint32_t kind = read_word(&field);
        uint32_t width = read_word(&field);
        const uint32_t clamp = read_word(&field);
        uint32_t below = 0;
        do {
            const uint32_t n = kind && width > 16 ? 16 : width;
            *chunks = (struct chunk){feature, n, clamp, kind, cut};
            if (kind) {
                for (uint32_t k = 0; k < 16; k++) {
                    cut[k] = k < n ? read_word(in) : 0xffffffffu;
                    if (k < n && (cut[k] <= below || cut[k] > clamp)) {
                        return BNN_BAD_INPUT;
                    }
                    below = cut[k];
                }
            }
            chunks++;
            cut += 16;
            width -= n;
        } while (width);
    }
    return BNN_OK;
}

/* One bit matrix of the blob in both layouts; `invert` for weights, whose padding is 1. */
static int read_matrix(struct bnn *net, struct reader *in, const struct layer *layer, int invert,
                       const uint32_t **lanes_out, const uint64_t **rows_out) {
    if (!has_words(in, (uint64_t)layer->outputs * layer->words)) {
        return BNN_BAD_SIZE;
    }
    uint32_t *lanes =
        allocate_block(net, (uint64_t)layer->groups * layer->words, LANES * sizeof *lanes);
    uint64_t *rows = allocate_block(net, (uint64_t)layer->outputs * layer->words64, sizeof *rows);
    if (!lanes || !rows) {
        return BNN_NO_MEMORY;
    }
    *lanes_out = lanes;
    *rows_out = rows;
    const uint32_t tail = tail_mask(layer->inputs);
    for (uint32_t j = 0; j < layer->outputs; j++) {
        const size_t group = (size_t)(j / LANES) * layer->words;
        for (uint32_t i = 0; i < layer->words; i++) {
            const uint32_t word = invert ? ~read_word(in) : read_word(in);
            if (i == layer->words - 1 && (word & ~tail)) {
                return BNN_BAD_WEIGHTS;
            }
            lanes[(group + i) * LANES + j % LANES] = word;
            rows[(size_t)j * layer->words64 + i / 2] |= (uint64_t)word << 32 * (i & 1u);
        }
    }
    return BNN_OK;
}

static int read_layer(struct bnn *net, struct reader *in, struct layer *layer, int masked,
                      int is_output) {
    layer->words = (layer->inputs + 31u) / 32u;
    layer->words64 = (layer->inputs + 63u) / 64u;
    layer->groups = (layer->outputs + LANES - 1u) / LANES;
    int status = read_matrix(net, in, layer, 1, &layer->lanes, &layer->rows);
    if (status == BNN_OK && masked) {
        net->masked = 1;
        status = read_matrix(net, in, layer, 0, &layer->lane_mask, &layer->row_mask);
    }
    if (status != BNN_OK) {
        return status;
    }
    int32_t *limit = allocate_block(net, layer->groups, LANES * sizeof *limit);
    if (!limit) {
        return BNN_NO_MEMORY;
    }
    layer->limit = limit;
    for (uint32_t j = 0; j < layer->groups * LANES; j++) {
        if (j >= layer->outputs) {
            limit[j] = INT32_MAX;
            continue;
        }
        const uint32_t word = read_word(in);
        if (is_output) {
            const int64_t bias = word & 0x80000000u ? (int64_t)word - ((int64_t)1 << 32) : word;
            if (bias <= -MAX_BIAS || bias >= MAX_BIAS) {
                return BNN_BAD_WEIGHTS;
            }
            limit[j] = (int32_t)bias;
        } else {
            if (word > layer->inputs + 1) {
                return BNN_BAD_WEIGHTS;
            }
            limit[j] = (int32_t)word;
        }
    }
    return in->failed ? BNN_BAD_SIZE : BNN_OK;
}

/* A scale is an IEEE double, its low word first. */
static int read_scales(struct bnn *net, struct reader *in) {
    if (!has_words(in, 2 * (uint64_t)net->n_features)) {
        return BNN_BAD_SIZE;
    }
    double *scales = allocate_block(net, net->n_features, sizeof *scales);
    if (!scales) {
        return BNN_NO_MEMORY;
    }
    net->scales = scales;
    for (uint32_t i = 0; i < net->n_features; i++) {
        uint64_t bits = read_word(in);
        bits |= (uint64_t)read_word(in) << 32;
        memcpy(&scales[i], &bits, sizeof bits);
        if (!(scales[i] > 0 && scales[i] <= DBL_MAX)) {
            return BNN_BAD_INPUT;
        }
    }
    return BNN_OK;
}

static void read_digest(struct bnn *net, struct reader *in) {
    static const char digits[] = "0123456789abcdef";
    for (uint32_t i = 0; i < DIGEST_WORDS; i++) {
        const uint32_t word = read_word(in);
        for (uint32_t k = 0; k < 8; k++) {
            /* Bytes from the lowest, the high half of each first. */
            net->model[8 * i + k] = digits[word >> (4 * (k ^ 1u)) & 15u];
        }
    }
}

static int read_names(struct bnn *net, struct reader *in) {
    const uint64_t count = (uint64_t)net->n_classes + net->n_features;
    if (!has_words(in, count)) {
        return BNN_BAD_SIZE; /* each name has a length word at least */
    }
    const uint64_t left = in->words - in->at;
    net->names = allocate_block(net, count, sizeof *net->names);
    char *text = allocate_block(net, left * 4 + count, 1);
    if (!net->names || !text) {
        return BNN_NO_MEMORY;
    }
    for (uint64_t i = 0; i < count; i++) {
        const uint32_t length = read_word(in);
        const uint32_t words = (length + 3u) / 4u;
        if (in->failed || !length || length > MAX_NAME || !has_words(in, words)) {
            return BNN_BAD_NAMES;
        }
        const char *bytes = (const char *)in->bytes + 4 * in->at;
        if (memchr(bytes, 0, length)) {
            return BNN_BAD_NAMES;
        }
        memcpy(text, bytes, length);
        net->names[i] = text;
        text += length + 1; /* zeroed, so the text ends there */
        in->at += words;
    }
    return BNN_OK;
}

/* Which small network it is, where it is one: its first layer is compiled with fixed sizes. */
static uint32_t small_shape(const struct bnn *net) {
    if (net->masked || net->n_layers < 2 || net->n_classes != 2 || net->n_words > 8) {
        return 0;
    }
    for (uint32_t l = 0; l + 1 < net->n_layers; l++) {
        if (net->layer[l].outputs > 32) {
            return 0;
        }
    }
    return 2 * net->n_words + net->layer[0].groups;
}

static int read_blob(struct bnn *net, struct reader *in) {
    const uint32_t magic = read_word(in);
    const uint32_t version = read_word(in);
    const uint32_t size = read_word(in);
    net->n_layers = read_word(in);
    net->n_inputs = read_word(in);
    const uint32_t n_fields = read_word(in);
    net->n_features = read_word(in);
    net->n_classes = read_word(in);
    const uint32_t n_cuts = read_word(in);
    const uint32_t shunt = read_word(in);
    if (magic != MAGIC) {
        return magic == NFP_MAGIC ? BNN_NFP_WEIGHTS : BNN_BAD_MAGIC;
    }
    if (version != VERSION && version != SHUNT_VERSION) {
        return BNN_BAD_VERSION;
    }
    const size_t covered = (size_t)in->words * 4;
    if (size != covered + 4) {
        return BNN_BAD_SIZE;
    }
    if (crc32(in->bytes, covered) != word_at(in->bytes + covered)) {
        return BNN_BAD_CHECKSUM;
    }
    if (!net->n_layers || net->n_layers > MAX_LAYERS || !net->n_inputs ||
        net->n_inputs > MAX_BITS || !n_fields || n_fields > MAX_BITS || !net->n_features ||
        net->n_features > n_fields || net->n_classes < 2 || net->n_classes > MAX_BITS ||
        (shunt != 0) != (version == SHUNT_VERSION) || shunt > MAX_SHUNT) {
        return BNN_BAD_SHAPE;
    }
    net->shunt = (int32_t)shunt;
    read_digest(net, in);
    net->n_words = (net->n_inputs + 31u) / 32u;
    uint32_t width = net->n_inputs;
    uint32_t masked[MAX_LAYERS];
    for (uint32_t l = 0; l < net->n_layers; l++) {
        struct layer *layer = &net->layer[l];
        layer->inputs = read_word(in);
        layer->outputs = read_word(in);
        masked[l] = read_word(in);
        const uint32_t zero = read_word(in);
        if (layer->inputs != width || !layer->outputs || layer->outputs > MAX_BITS ||
            masked[l] > 1 || zero) {
            return BNN_BAD_SHAPE;
        }
        width = layer->outputs;
        if (l + 1 < net->n_layers) {
            net->hidden_words += (layer->outputs + 31u) / 32u;
        }
    }
    if (in->failed || width != net->n_classes) {
        return BNN_BAD_SHAPE;
    }
    int status = read_fields(net, in, n_fields, n_cuts);
    for (uint32_t l = 0; status == BNN_OK && l < net->n_layers; l++) {
        status = read_layer(net, in, &net->layer[l], (int)masked[l], l + 1 == net->n_layers);
    }
    if (status == BNN_OK) {
        status = read_scales(net, in);
    }
    if (status == BNN_OK) {
        status = read_names(net, in);
    }
    if (status == BNN_OK && in->at != in->words) {
        status = BNN_BAD_SIZE;
    }
    return status;
}

int bnn_load_blob(struct bnn **out, const void *blob, size_t size) {
    *out = NULL;
    if (size < 4 * (HEADER_WORDS + LAYER_WORDS + FIELD_WORDS + 1) || size % 4 || size > MAX_BLOB) {
        return BNN_BAD_SIZE;
    }
    struct bnn *net = calloc(1, sizeof *net);
    if (!net) {
        return BNN_NO_MEMORY;
    }
    struct reader in = {.bytes = blob, .words = size / 4 - 1};
    const int status = read_blob(net, &in);
    if (status != BNN_OK) {
        bnn_free(net);
        return status;
    }
    net->small = small_shape(net);
    choose_kernel(net);
    *out = net;
    return BNN_OK;
}

void bnn_free(struct bnn *net) {
    if (!net) {
        return;
    }
    for (struct block *block = net->allocated; block;) {
        struct block *next = block->next;
        free(block);
        block = next;
    }
    free(net);
}

uint64_t bnn_digest(const struct bnn *net) {
    uint64_t digest = 14695981039346656037u; /* FNV-1a, in words: each step is one to one */
    for (const struct block *block = net->allocated; block; block = block->next) {
        for (size_t at = 64; at < block->bytes; at += 8) {
            uint64_t word;
            memcpy(&word, (const char *)block + at, 8);
            digest = (digest ^ word) * 1099511628211u;
        }
    }
    return digest;
}

uint32_t bnn_abi_version(void) {
    return BNN_ABI_VERSION;
}

const char *bnn_strerror(int status) {
    switch (status) {
    case BNN_OK:
        return "no error";
    case BNN_BAD_SIZE:
        return "the weights are cut short, or longer than they say";
    case BNN_BAD_MAGIC:
        return "not a weights file of n3ic's host target";
    case BNN_NFP_WEIGHTS:
        return "weights for the NFP; the host reads those of n3ic export --target host";
    case BNN_BAD_VERSION:
        return "a weights file of another version";
    case BNN_BAD_CHECKSUM:
        return "the weights are damaged (checksum)";
    case BNN_BAD_SHAPE:
        return "the weights have sizes that do not belong together";
    case BNN_BAD_INPUT:
        return "the weights have an input field, cut or scale that is not valid";
    case BNN_BAD_WEIGHTS:
        return "the weights have a padding bit, threshold or bias that is not valid";
    case BNN_BAD_NAMES:
        return "the weights have a name that is not valid";
    case BNN_NO_MEMORY:
        return "out of memory";
    case BNN_NO_KERNEL:
        return "no kernel of that name runs on this CPU";
    default:
        return "unknown error";
    }
}
