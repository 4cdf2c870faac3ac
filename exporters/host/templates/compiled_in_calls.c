// SPDX-License-Identifier: Apache-2.0
/*
 * What networks that are compiled in share, after their own code: kernels, and the calls of bnn.h.
 */

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

#if NET_X86
static int has_avx2(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("popcnt") &&
           __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
}
#endif

#if NET_X86 && !defined(BNN_NO_AVX512)
static int has_avx512(void) {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

#endif

#if NET_X86 && !defined(BNN_NO_AVX2)
AVX2 static void words_avx2(const uint32_t *input, size_t rows, const struct sink *out) {
    infer(input, rows, out, 1, 1);
}

AVX2 static void features_avx2(const uint32_t *input, size_t rows, const struct sink *out) {
    infer(input, rows, out, 0, 1);
}

#endif

#if NET_X86 && !defined(BNN_NO_AVX512)
AVX512 static void words_avx512(const uint32_t *input, size_t rows, const struct sink *out) {
    infer(input, rows, out, 1, 2);
}

AVX512 static void features_avx512(const uint32_t *input, size_t rows, const struct sink *out) {
    infer(input, rows, out, 0, 2);
}
#endif

static const struct kernel kernels[] = {
    {"portable", always, words_portable, features_portable},
#if NET_X86 && !defined(BNN_NO_AVX2)
    {"avx2", has_avx2, words_avx2, features_avx2},
#endif
#if NET_X86 && !defined(BNN_NO_AVX512)
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

uint32_t bnn_abi_version(void) {
    return BNN_ABI_VERSION;
}

int bnn_init(struct bnn **out) {
    struct bnn *net = malloc(sizeof *net);
    if (!net) {
        return BNN_NO_MEMORY;
    }
    /* Kernels are listed from slow to fast; the first runs on every CPU. */
    net->kernel = &kernels[0];
    for (uint32_t i = 1; i < KERNELS; i++) {
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
    encode(features, words);
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

uint64_t bnn_digest(const struct bnn *net) {
    (void)net;
    return 0;
}

const char *bnn_strerror(int status) {
    switch (status) {
    case BNN_OK:
        return "no error";
    case BNN_BAD_MAGIC:
        return "the network is compiled in and reads no weights file";
    case BNN_NO_MEMORY:
        return "out of memory";
    case BNN_NO_KERNEL:
        return "no kernel of that name runs on this CPU";
    default:
        return "unknown error";
    }
}
