// SPDX-License-Identifier: Apache-2.0
/*
 * What networks that are compiled in share, before their own code: `infer` computes rows of packed
 * bits or of features, and `encode` packs the bits of one row.
 */

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3") /* vector code for the loops over rows */
#endif

#if defined(__GNUC__)
#define NET_INLINE static inline __attribute__((always_inline))
#else
#define NET_INLINE static inline
#endif
#if defined(__GNUC__) && defined(__x86_64__) && !(defined(BNN_NO_AVX2) && defined(BNN_NO_AVX512))
#define NET_X86 1
#define AVX2 __attribute__((target("avx2,popcnt,bmi,bmi2")))
#define AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi,bmi2")))
#else
#define NET_X86 0
#endif

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
