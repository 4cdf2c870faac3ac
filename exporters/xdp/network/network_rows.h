// SPDX-License-Identifier: Apache-2.0
/*
 * A binary network by sums of rows, in C that BPF and any host compile.
 *
 * A row holds, in lanes of 8, 16 or 32 bits side by side in 64-bit words, what one pattern of some
 * input bits adds to every neuron's popcount. Nothing here branches on a sum or an input, but for
 * the clamps; each empty asm costs no instruction and keeps the compiler from turning arithmetic
 * into branches, and from holding more than BPF's ten registers and 512 bytes of stack.
 */
#ifndef NETWORK_ROWS_H
#define NETWORK_ROWS_H

#include <linux/types.h>

#ifndef __always_inline
#define __always_inline inline __attribute__((always_inline))
#endif

/* The compiler may assume nothing of a value. */
#define NETWORK_OPAQUE(value)                                                                      \
    do {                                                                                           \
        __asm__ volatile("" : "+r"(value));                                                        \
    } while (0)

/*
 * What an instruction's offset reaches, with room for a block's words. What lies further is added
 * to the pointer once: the compiler would add it at each access.
 */
#define NETWORK_REACH (32768 - 40)
#define NETWORK_FAR(at) ((at) < NETWORK_REACH ? 0 : (at))
#define NETWORK_NEAR(at) ((at) < NETWORK_REACH ? (at) : 0)

/* The place `offset` + NETWORK_FAR(at) bytes after a pointer, without moves. */
static __always_inline const char *network_at(const void *value, __u64 offset, __u32 at) {
#ifdef __bpf__
    __asm__ volatile("%0 += %1" : "+r"(offset) : "r"(value));
    if (NETWORK_FAR(at))
        __asm__ volatile("%0 += %1" : "+r"(offset) : "i"(at));
    return (const char *)offset;
#else
    return (const char *)value + offset + NETWORK_FAR(at);
#endif
}

#define NETWORK_EVERY_BYTE 0x0101010101010101ull
#define NETWORK_EVEN_BYTES 0x00ff00ff00ff00ffull
#define NETWORK_TOP_BITS 0x0080008000800080ull

/* Does something for each of up to four words; a loop would be unrolled too late for registers. */
#define NETWORK_EACH(words, DO)                                                                    \
    do {                                                                                           \
        DO(0);                                                                                     \
        if ((words) > 1)                                                                           \
            DO(1);                                                                                 \
        if ((words) > 2)                                                                           \
            DO(2);                                                                                 \
        if ((words) > 3)                                                                           \
            DO(3);                                                                                 \
    } while (0)

/* Sums of a block: up to four words of neurons, or five of indices. */
struct network_sum {
    __u64 w0, w1, w2, w3, w4;
};

/* The same in lanes of 16 bits: even bytes of a word, odd ones. */
struct network_wide {
    __u64 even0, even1, even2, even3, odd0, odd1, odd2, odd3;
};

static __always_inline __u64 network_feature(const __u32 *features, __u32 index) {
    return *(const volatile __u32 *)(features + index);
}

static __always_inline __u64 network_word(const void *value, __u32 at) {
    return *(const volatile __u64 *)((const char *)value + at);
}

static __always_inline void network_start(struct network_sum *s, const void *value, __u32 at,
                                          int words) {
#define NETWORK_DO(i) (s->w##i = network_word(value, at + 8 * i))
    NETWORK_EACH(words, NETWORK_DO);
    if (words > 4)
        NETWORK_DO(4);
#undef NETWORK_DO
}

/* Adds the row that begins `offset` bytes after `at`: to the words of a mask. */
static __always_inline void network_add(struct network_sum *s, const void *value, __u64 offset,
                                        __u32 at, int words) {
    const char *p = network_at(value, offset, at) + NETWORK_NEAR(at);
    const int block = words == 15; /* of neurons */

#define NETWORK_DO(i)                                                                              \
    do {                                                                                           \
        if (words >> i & 1) {                                                                      \
            s->w##i += *(const __u64 *)(p + 8 * __builtin_popcount(words & ((1 << i) - 1)));       \
            if (!block)                                                                            \
                __asm__ volatile("" : "+r"(s->w##i) : : "memory");                                 \
        }                                                                                          \
    } while (0)
    NETWORK_DO(0);
    NETWORK_DO(1);
    NETWORK_DO(2);
    NETWORK_DO(3);
    NETWORK_DO(4);
#undef NETWORK_DO
    if (block)
        __asm__ volatile("" : "+r"(s->w0), "+r"(s->w1), "+r"(s->w2), "+r"(s->w3) : : "memory");
}

/*
 * --- number of the row that a value selects -----------------------------------------------
 *
 * Below 256 whatever the map holds, as the verifier sees.
 */

/* 1 where the value reaches the cut: what stands at `at` is the cut less one. */
static __always_inline __u64 network_cut(const void *value, __u64 v, __u32 at) {
    __u64 below = *(const volatile __u32 *)((const char *)value + at) - v;

    NETWORK_OPAQUE(below);
    below >>= 63;
    NETWORK_OPAQUE(below); /* a mask by the sign would make the verifier follow both values */
    return below;
}

/*
 * Cuts side by side: four a word up to 2^15 - 1, two up to 2^31 - 1. A lane holds half its range
 * less the cut, so that adding the value sets its top bit from the cut on.
 */
#define NETWORK_EVERY_LANE16 0x0001000100010001ull
#define NETWORK_EVERY_LANE32 0x0000000100000001ull

static __always_inline __u64 network_spread(__u64 v, int lane) {
    const __u64 top = (1ull << (lane - 1)) - 1;

    if (v > top)
        v = top;
    v *= lane == 16 ? NETWORK_EVERY_LANE16 : NETWORK_EVERY_LANE32;
    NETWORK_OPAQUE(v);
    return v;
}

static __always_inline __u64 network_reached(const void *value, __u64 v, __u32 at, int lane) {
    return (network_word(value, at) + v) >> (lane - 1) &
           (lane == 16 ? NETWORK_EVERY_LANE16 : NETWORK_EVERY_LANE32);
}

/* The sum of the lanes, times a power of two up to 256. */
static __always_inline __u64 network_lanes(__u64 reached, int lane, int log2) {
    reached *= lane == 16 ? 0x0100010001000100ull : 0x0100000001000000ull;
    return reached >> (56 - log2);
}

/* The byte `index` bytes after `at`: an entry of look-up tables. */
static __always_inline __u64 network_entry(const void *value, __u64 index, __u32 at) {
    return *(const __u8 *)(network_at(value, index, at) + NETWORK_NEAR(at));
}

/* A byte for each value below 256. */
static __always_inline __u64 network_table(const void *value, __u64 v, __u32 at) {
    if (v > 255)
        v = 255;
    return network_entry(value, v, at);
}

static __always_inline __u64 network_clamp(const void *value, __u64 v, __u32 at) {
    __u64 top = *(const volatile __u32 *)((const char *)value + at);

    if (v > top)
        v = top;
    NETWORK_OPAQUE(v);
    return v;
}

/* --- hidden layers: what fires ---------------------------------------------------------- */

/*
 * Of two byte sums, whether they reach 256 together, as top bits: of their halved total, which is
 * what both have in common and half of where they differ.
 */
static __always_inline void network_halve(struct network_sum *s, const struct network_sum *other,
                                          int words) {
#define NETWORK_DO(i)                                                                              \
    (s->w##i =                                                                                     \
         (s->w##i & other->w##i) + ((s->w##i ^ other->w##i) >> 1 & ~(NETWORK_EVERY_BYTE << 7)))
    NETWORK_EACH(words, NETWORK_DO);
#undef NETWORK_DO
}

/* Adds byte sums to sums of 16 bits, and starts the bytes anew. */
static __always_inline void network_widen(struct network_wide *wide, struct network_sum *s,
                                          int words) {
#define NETWORK_DO(i)                                                                              \
    do {                                                                                           \
        wide->even##i += s->w##i & NETWORK_EVEN_BYTES;                                             \
        wide->odd##i += s->w##i >> 8 & NETWORK_EVEN_BYTES;                                         \
        NETWORK_OPAQUE(wide->even##i); /* added now, not all at the end */                         \
        NETWORK_OPAQUE(wide->odd##i);                                                              \
        s->w##i = 0;                                                                               \
    } while (0)
    NETWORK_EACH(words, NETWORK_DO);
#undef NETWORK_DO
}

static __always_inline void network_start_wide(struct network_wide *wide, struct network_sum *s,
                                               const void *value, __u32 at, int words) {
#define NETWORK_DO(i)                                                                              \
    do {                                                                                           \
        wide->even##i = network_word(value, at + 16 * i);                                          \
        wide->odd##i = network_word(value, at + 16 * i + 8);                                       \
        s->w##i = 0;                                                                               \
    } while (0)
    NETWORK_EACH(words, NETWORK_DO);
#undef NETWORK_DO
}

/* The top bits of the 16-bit sums as top bits of bytes. */
static __always_inline void network_narrow(const struct network_wide *wide, struct network_sum *s,
                                           int words) {
#define NETWORK_DO(i)                                                                              \
    (s->w##i = (wide->even##i >> 8 & NETWORK_TOP_BITS) | (wide->odd##i & NETWORK_TOP_BITS << 8))
    NETWORK_EACH(words, NETWORK_DO);
#undef NETWORK_DO
}

/*
 * The bits of a block of neurons as nibbles: bit w of byte i is the neuron of byte i of word w. Of
 * four words they are the high halves of the bytes; of fewer, the low ones, and the columns of one
 * or two words are folded onto the first ones.
 */
static __always_inline __u64 network_fired(const struct network_sum *s, int words) {
    __u64 fired = 0;

#define NETWORK_DO(i) (fired = fired >> 1 | (s->w##i & NETWORK_EVERY_BYTE << 7))
    NETWORK_EACH(words, NETWORK_DO);
#undef NETWORK_DO
    if (words < 4)
        fired >>= 8 - words;
    if (words == 1)
        fired |= fired >> 15;
    if (words <= 2)
        fired |= fired >> 30;
    NETWORK_OPAQUE(fired);
    return fired;
}

/* --- scores ----------------------------------------------------------------------------- */

static __always_inline __s32 network_score(__u64 word, int lane, int index) {
    return (__s32)(word >> lane * index & ((1ull << lane) - 1)) - (1 << (lane - 2));
}

/* The best two of the keys so far; a key is a score above the class, the lowest class highest. */
static __always_inline void network_offer(__u64 *best, __u64 *second, __u64 key) {
    __u64 gain = key - *best, rest;
    __u64 lower = (__u64)((__s64)gain >> 63); /* all ones where the key is below the best */

    NETWORK_OPAQUE(lower);
    rest = *best + (gain & lower);
    *best += gain & ~lower;
    gain = rest - *second;
    lower = (__u64)((__s64)gain >> 63);
    NETWORK_OPAQUE(lower);
    *second += gain & ~lower;
}

#endif
