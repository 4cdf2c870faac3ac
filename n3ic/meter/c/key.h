// SPDX-License-Identifier: Apache-2.0
/*
 * A flow's key, and the hash that says where its table has it.
 *
 * Who sends packets chooses their keys. So the hash is one that nobody can foresee without its
 * secret: SipHash-1-3 (Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012; with one
 * round a word and three at the end). The same file compiles for BPF.
 */
#ifndef N3IC_KEY_H
#define N3IC_KEY_H

#include "packet.h"

#define SECRET_WORDS 2

struct key {
    uint8_t source[16], destination[16]; /* the first address_bytes of them */
    uint16_t source_port, destination_port;
    uint8_t protocol, address_bytes;
    uint8_t pad[2];
} __attribute__((aligned(8))); /* copied, compared and hashed in words */

struct sip {
    uint64_t a, b, c, d;
};

static inline uint64_t rotated(uint64_t x, int by) {
    return x << by | x >> (64 - by);
}

static inline void sip_round(struct sip *s) {
    s->a += s->b;
    s->b = rotated(s->b, 13) ^ s->a;
    s->a = rotated(s->a, 32);
    s->c += s->d;
    s->d = rotated(s->d, 16) ^ s->c;
    s->a += s->d;
    s->d = rotated(s->d, 21) ^ s->a;
    s->c += s->b;
    s->b = rotated(s->b, 17) ^ s->c;
    s->c = rotated(s->c, 32);
}

static inline struct sip sip_begin(uint64_t secret0, uint64_t secret1) {
    return (struct sip){secret0 ^ 0x736f6d6570736575ull, secret1 ^ 0x646f72616e646f6dull,
                        secret0 ^ 0x6c7967656e657261ull, secret1 ^ 0x7465646279746573ull};
}

static inline void sip_word(struct sip *s, uint64_t word) {
    s->d ^= word;
    sip_round(s);
    s->a ^= word;
}

/* The last word has the message's length in its topmost byte. */
static inline uint64_t sip_end(struct sip *s, uint64_t last) {
    sip_word(s, last);
    s->c ^= 0xff;
    sip_round(s);
    sip_round(s);
    sip_round(s);
    return s->a ^ s->b ^ s->c ^ s->d;
}

/* The message: both addresses as long as they are, ports, protocol; its length tells them apart. */
static inline uint64_t hash_of_key(uint64_t secret0, uint64_t secret1, const struct key *k) {
    struct sip s = sip_begin(secret0, secret1);
    uint64_t length = 2 * k->address_bytes + 5, words[4];
    uint32_t halves[2];

    if (k->address_bytes == 4) {
        memcpy(&halves[0], k->source, 4);
        memcpy(&halves[1], k->destination, 4);
        sip_word(&s, halves[0] | (uint64_t)halves[1] << 32);
    } else if (k->address_bytes) {
        memcpy(words, k->source, 16);
        memcpy(words + 2, k->destination, 16);
        sip_word(&s, words[0]);
        sip_word(&s, words[1]);
        sip_word(&s, words[2]);
        sip_word(&s, words[3]);
    }
    return sip_end(&s, k->source_port | (uint64_t)k->destination_port << 16 |
                           (uint64_t)k->protocol << 32 | length << 56);
}

#endif
