// SPDX-License-Identifier: Apache-2.0

/*
 * Computes the sum-product network of the tables above, with the interface of bnn.h.
 *
 * Rows are computed in blocks: each step of the program is one loop over the rows of a block,
 * which compilers turn into vector code. Values have one of two forms. Logarithms of base 2 have 32
 * bits: a product adds them, a sum is the larger operand plus a correction from a table. Fixed
 * point numbers have 64 bits.
 */

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3") /* vector code for the loops over rows */
#endif

#if defined(__GNUC__)
#define SPN_INLINE static inline __attribute__((always_inline))
#else
#define SPN_INLINE static inline
#endif
#if defined(__GNUC__) && defined(__x86_64__)
#define SPN_X86 1
#else
#define SPN_X86 0
#endif

/* Tables of eight entries lie in one AVX2 register: a shuffle reads eight rows at once. */
#if SPN_X86 && SPN_LOG && !defined(__clang__)
#define SPN_SHUFFLES 1
typedef int32_t spn_eight __attribute__((vector_size(32), aligned(4), may_alias));
#else
#define SPN_SHUFFLES 0
#endif

#define FEW_CUTS 32u /* more are searched in halves */

struct kernel;

struct bnn {
    const struct kernel *kernel;
};

/* What a batch gives; any may be NULL. */
struct sink {
    uint32_t *classes;
    int32_t *margins;
    int32_t *scores;
};

typedef void infer_fn(const uint32_t *input, size_t rows, const struct sink *out);

struct kernel {
    const char *name;
    int (*supported)(void);
    infer_fn *words;    /* from packed input bits */
    infer_fn *features; /* from integer features */
};

/* --- bins ------------------------------------------------------------------------------ */

SPN_INLINE uint32_t count_bits(uint32_t bits) {
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
SPN_INLINE void bins_of_words(const uint32_t *words, size_t rows, uint32_t (*bins)[BLOCK]) {
    memset(bins, 0, sizeof(uint32_t[FIELDS][BLOCK]));
    for (const struct part *p = parts; p < parts + PARTS; p++) {
        uint32_t *bin = bins[p->field];
        for (size_t i = 0; i < rows; i++) {
            bin[i] += count_bits(words[i * WORDS + p->word] & p->mask);
        }
    }
}

/* Number of cuts that a value reaches. Cuts increase, so a binary search finds it. */
SPN_INLINE uint32_t reached(const uint32_t *cut, uint32_t count, uint32_t value) {
    uint32_t low = 0;
    while (count) {
        const uint32_t half = count / 2;
        const uint32_t above = value >= cut[low + half];
        low += above ? half + 1 : 0;
        count = above ? count - half - 1 : half;
    }
    return low;
}

SPN_INLINE void bins_of_features(const uint32_t *features, size_t rows, uint32_t (*bins)[BLOCK]) {
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
                bins[f][i] = reached(cut, width, value[i]);
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
SPN_INLINE void look_up_eight(spn_value *to, const spn_value *a, const uint32_t *bin,
                              const spn_value *table) {
    const spn_eight entries = *(const spn_eight *)table;
    for (size_t i = 0; i < BLOCK; i += 8) {
        spn_eight found = __builtin_shuffle(entries, *(const spn_eight *)(bin + i));
        if (a) {
            found += *(const spn_eight *)(a + i);
        }
        *(spn_eight *)(to + i) = found;
    }
}
#endif

/* Runs all steps for the first `rows` of a block. `rows` and `vector` (whether the CPU has AVX2)
 * are constants at each call, so that inlining makes a loop of fixed length for each. */
SPN_INLINE void run_steps(const uint32_t (*restrict bins)[BLOCK],
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
SPN_INLINE void decide(const spn_value (*values)[BLOCK], size_t rows, size_t start,
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

SPN_INLINE void infer(const uint32_t *input, size_t rows, const struct sink *out, int is_words,
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

/* --- kernels --------------------------------------------------------------------------- */

static int always(void) {
    return 1;
}

static void words_portable(const uint32_t *input, size_t rows, const struct sink *out) {
    infer(input, rows, out, 1, 0);
}

static void features_portable(const uint32_t *input, size_t rows, const struct sink *out) {
    infer(input, rows, out, 0, 0);
}

#if SPN_X86
#define AVX2 __attribute__((target("avx2,popcnt,bmi,bmi2")))
#define AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi,bmi2")))

static int has_avx2(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("popcnt") &&
           __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
}

static int has_avx512(void) {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

AVX2 static void words_avx2(const uint32_t *input, size_t rows, const struct sink *out) {
    infer(input, rows, out, 1, 1);
}

AVX2 static void features_avx2(const uint32_t *input, size_t rows, const struct sink *out) {
    infer(input, rows, out, 0, 1);
}

AVX512 static void words_avx512(const uint32_t *input, size_t rows, const struct sink *out) {
    infer(input, rows, out, 1, 1);
}

AVX512 static void features_avx512(const uint32_t *input, size_t rows, const struct sink *out) {
    infer(input, rows, out, 0, 1);
}
#endif

static const struct kernel kernels[] = {
    {"portable", always, words_portable, features_portable},
#if SPN_X86
    {"avx2", has_avx2, words_avx2, features_avx2},
    {"avx512", has_avx512, words_avx512, features_avx512},
#endif
};
#define KERNELS (sizeof kernels / sizeof *kernels)

const char *bnn_kernel_name(uint32_t index) {
    return index < KERNELS ? kernels[index].name : NULL;
}

int bnn_kernel_supported(uint32_t index) {
    return index < KERNELS && kernels[index].supported();
}

const char *bnn_kernel(const struct bnn *net) {
    return net->kernel->name;
}

int bnn_use_kernel(struct bnn *net, const char *name) {
    for (uint32_t i = 0; i < KERNELS; i++) {
        if (strcmp(kernels[i].name, name) == 0 && kernels[i].supported()) {
            net->kernel = &kernels[i];
            return BNN_OK;
        }
    }
    return BNN_NO_KERNEL;
}

/* --- calls ----------------------------------------------------------------------------- */

int bnn_init(struct bnn **out) {
    struct bnn *net = malloc(sizeof *net);
    if (!net) {
        return BNN_NO_MEMORY;
    }
    /* Kernels are listed from slow to fast; the first runs on every CPU. */
    for (uint32_t i = 0; i < KERNELS; i++) {
        net->kernel = kernels[i].supported() ? &kernels[i] : net->kernel;
    }
    *out = net;
    return BNN_OK;
}

/* The network is compiled in and cannot be loaded from a file. */
int bnn_load_blob(struct bnn **out, const void *blob, size_t size) {
    (void)out;
    (void)blob;
    (void)size;
    return BNN_BAD_MAGIC;
}

void bnn_free(struct bnn *net) {
    free(net);
}

uint32_t bnn_inputs(const struct bnn *net) {
    (void)net;
    return INPUTS;
}

uint32_t bnn_words(const struct bnn *net) {
    (void)net;
    return WORDS;
}

uint32_t bnn_features(const struct bnn *net) {
    (void)net;
    return FIELDS;
}

uint32_t bnn_classes(const struct bnn *net) {
    (void)net;
    return CLASSES;
}

uint32_t bnn_hidden_words(const struct bnn *net) {
    (void)net;
    return 0;
}

uint32_t bnn_shunt(const struct bnn *net) {
    (void)net;
    return SHUNT;
}

const char *bnn_class_name(const struct bnn *net, uint32_t index) {
    (void)net;
    if (index == BNN_SHUNT) {
        return "shunt";
    }
    return index < CLASSES ? class_names[index] : NULL;
}

const char *bnn_feature_name(const struct bnn *net, uint32_t index) {
    (void)net;
    return index < FIELDS ? fields[index].name : NULL;
}

const char *bnn_model(const struct bnn *net) {
    (void)net;
    return DIGEST;
}

double bnn_scale(const struct bnn *net, uint32_t feature) {
    (void)net;
    return fields[feature].scale;
}

uint32_t bnn_integer(const struct bnn *net, uint32_t feature, double value) {
    /* volatile: the product is rounded here; a compiler could fuse it with the subtraction below.
     */
    const volatile double scaled = value * bnn_scale(net, feature);
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

void bnn_encode(const struct bnn *net, const uint32_t *features, uint32_t *words) {
    (void)net;
    memset(words, 0, WORDS * sizeof *words);
    for (uint32_t f = 0, bit = 0; f < FIELDS; f++) {
        for (uint32_t k = 0; k < fields[f].width; k++, bit++) {
            words[bit / 32] |= (uint32_t)(features[f] >= cuts[fields[f].first + k]) << bit % 32;
        }
    }
}

void bnn_encode_batch(const struct bnn *net, const uint32_t *features, size_t rows,
                      uint32_t *words) {
    for (size_t r = 0; r < rows; r++) {
        bnn_encode(net, features + r * FIELDS, words + r * WORDS);
    }
}

uint32_t bnn_infer(const struct bnn *net, const uint32_t *words, int32_t *margin) {
    uint32_t class_index;
    const struct sink out = {.classes = &class_index, .margins = margin};
    net->kernel->words(words, 1, &out);
    return class_index;
}

void bnn_infer_batch(const struct bnn *net, const uint32_t *words, size_t rows, uint32_t *classes,
                     int32_t *margins, int32_t *scores) {
    const struct sink out = {classes, margins, scores};
    net->kernel->words(words, rows, &out);
}

void bnn_run_batch(const struct bnn *net, const uint32_t *features, size_t rows, uint32_t *classes,
                   int32_t *margins, int32_t *scores) {
    const struct sink out = {classes, margins, scores};
    net->kernel->features(features, rows, &out);
}

void bnn_classify_batch(const struct bnn *net, const uint32_t *features, size_t rows,
                        uint32_t *classes, int32_t *margins) {
    bnn_run_batch(net, features, rows, classes, margins, NULL);
}

void bnn_trace(const struct bnn *net, const uint32_t *words, size_t rows, uint32_t *hidden,
               int32_t *scores) {
    (void)hidden; /* there are no hidden layers */
    bnn_infer_batch(net, words, rows, NULL, NULL, scores);
}

const char *bnn_strerror(int status) {
    switch (status) {
    case BNN_OK:
        return "no error";
    case BNN_BAD_MAGIC:
        return "a sum-product network is compiled in and reads no weights file";
    case BNN_NO_MEMORY:
        return "out of memory";
    case BNN_NO_KERNEL:
        return "no kernel of that name runs on this CPU";
    default:
        return "unknown error";
    }
}
