// SPDX-License-Identifier: Apache-2.0
/*
 * Binary neural network on a host CPU: C11, no dependency.
 *
 * A neuron fires iff popcount(XNOR(w, x) & mask) >= threshold; a class scores
 * popcount(XNOR(w, x) & mask) + bias; the highest score wins, the lowest index on a tie. Where
 * the best score leads the second by less than the network's threshold, the flow is shunted: the
 * result is BNN_SHUNT, and somebody else decides it.
 * Bit i of a vector is bit i % 32 of 32-bit word i / 32, least significant first; the bits
 * above the last one must be 0 in an input.
 *
 * A network is read-only once it is loaded: any number of threads may use it at once.
 *
 * BNN_NO_POPCNT, BNN_NO_AVX2, BNN_NO_AVX512 and BNN_NO_NEON, defined where bnn.c is compiled, leave
 * out the kernel of that name. The portable one is always there.
 */
#ifndef BNN_H
#define BNN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * The binary interface: names, signatures and meaning of the functions below, values of the enum
 * and of BNN_SHUNT. `struct bnn` is private. The number grows when one of these changes; functions
 * may be added without a new number.
 */
#define BNN_ABI_VERSION 1

/* BNN_ABI_VERSION of the library that is linked; a program may compare it with its own. */
uint32_t bnn_abi_version(void);

struct bnn;

/* In place of a class: the margin is below the threshold. */
#define BNN_SHUNT UINT32_MAX

/* What a call that can fail returns. */
enum bnn_status {
    BNN_OK = 0,
    BNN_BAD_SIZE,     /* the blob is cut short, or longer than it says */
    BNN_BAD_MAGIC,    /* not a blob of this format */
    BNN_NFP_WEIGHTS,  /* weights for the NFP, which have a format of their own */
    BNN_BAD_VERSION,  /* a blob of another version */
    BNN_BAD_CHECKSUM, /* the blob is damaged */
    BNN_BAD_SHAPE,    /* sizes that do not belong together, or beyond the limits */
    BNN_BAD_INPUT,    /* a field, a cut or a scale of the input stage is not valid */
    BNN_BAD_WEIGHTS,  /* weights, masks, thresholds or biases are not valid */
    BNN_BAD_NAMES,    /* class or feature names are not valid */
    BNN_NO_MEMORY,    /* out of memory */
    BNN_NO_KERNEL     /* no kernel of that name, or this CPU cannot run it */
};

/* A status in words. */
const char *bnn_strerror(int status);

/* Loads the weights that are compiled into this program; bnn_free() releases them. */
int bnn_init(struct bnn **out);

/* Loads weights from the bytes of a weights.bin; the bytes are copied. */
int bnn_load_blob(struct bnn **out, const void *blob, size_t size);

void bnn_free(struct bnn *net);

/*
 * Digest of the memory that holds the network; another process has another one. It changes with
 * any single bit, so a memory that fails is seen. Networks that are compiled in have none: 0.
 */
uint64_t bnn_digest(const struct bnn *net);

/* Sizes: input bits, 32-bit words of a packed input, integer features, classes. */
uint32_t bnn_inputs(const struct bnn *net);
uint32_t bnn_words(const struct bnn *net);
uint32_t bnn_features(const struct bnn *net);
uint32_t bnn_classes(const struct bnn *net);

/* 32-bit words of all hidden layers' outputs, each layer starting at a new word. */
uint32_t bnn_hidden_words(const struct bnn *net);

/* The smallest margin that is decided; 0 where every input is. */
uint32_t bnn_shunt(const struct bnn *net);

/* Names, UTF-8; NULL where the index is too large. The name of BNN_SHUNT is "shunt". */
const char *bnn_class_name(const struct bnn *net, uint32_t index);
const char *bnn_feature_name(const struct bnn *net, uint32_t index);

/* SHA-256 of the model file that the weights come from, 64 hexadecimal digits. */
const char *bnn_model(const struct bnn *net);

/* Integer units in one source unit of a feature: 1e6 for seconds that are kept as microseconds. */
double bnn_scale(const struct bnn *net, uint32_t feature);

/*
 * Integer of a finite value in the source unit of a feature, as the data set has it: times the
 * feature's scale, rounded to the nearest and to the even one on a half; below 0 it is 0, above
 * 2^32 - 1 it is that, and a positive value is 1 at least.
 */
uint32_t bnn_integer(const struct bnn *net, uint32_t feature, double value);

/*
 * Kernels: all compute the same. Index 0 and up give the names of those that were compiled,
 * NULL ends them. The fastest that this CPU can run is taken unless another is asked for.
 */
const char *bnn_kernel_name(uint32_t index);
int bnn_kernel_supported(uint32_t index);
int bnn_use_kernel(struct bnn *net, const char *name);
const char *bnn_kernel(const struct bnn *net);

/* Integer features (bnn_features() a row) to packed input bits (bnn_words() a row). */
void bnn_encode(const struct bnn *net, const uint32_t *features, uint32_t *words);
void bnn_encode_batch(const struct bnn *net, const uint32_t *features, size_t rows,
                      uint32_t *words);

/* Class of one packed input, or BNN_SHUNT; margin (best score minus second best) unless NULL. */
uint32_t bnn_infer(const struct bnn *net, const uint32_t *words, int32_t *margin);

/* Classes (or BNN_SHUNT), margins, scores (bnn_classes() a row) of many inputs; any may be NULL. */
void bnn_infer_batch(const struct bnn *net, const uint32_t *words, size_t rows, uint32_t *classes,
                     int32_t *margins, int32_t *scores);

/* From integer features to classes (or BNN_SHUNT) and margins; either may be NULL. */
void bnn_classify_batch(const struct bnn *net, const uint32_t *features, size_t rows,
                        uint32_t *classes, int32_t *margins);

/* The same with scores (bnn_classes() a row); the fastest way where features are at hand. */
void bnn_run_batch(const struct bnn *net, const uint32_t *features, size_t rows, uint32_t *classes,
                   int32_t *margins, int32_t *scores);

/* As bnn_infer_batch(), with every hidden layer's packed outputs (bnn_hidden_words() a row). */
void bnn_trace(const struct bnn *net, const uint32_t *words, size_t rows, uint32_t *hidden,
               int32_t *scores);

#ifdef __cplusplus
}
#endif

#endif
