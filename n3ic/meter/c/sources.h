// SPDX-License-Identifier: Apache-2.0
/*
 * The table of sources: what the host that began a flow did with its other flows, in the present
 * window of time and the one before it. Equal to n3ic/meter/sources.py. Needs flow.h.
 *
 * A source is an address of IPv4, or the first 64 bits of one of IPv6. Its hash names a set; one
 * that finds its set full takes the place of the one there that was looked up longest ago.
 */
#ifndef N3IC_SOURCES_H
#define N3IC_SOURCES_H

#include "flow.h"
#include "key.h"

#define SOURCE_WAYS 8u

struct source_counts {     /* of one window */
    uint64_t ports, hosts; /* sketches: a bit for each, which several may share */
    uint32_t flows, answered;
};

struct source {
    uint64_t network;
    uint64_t used;  /* number of the last look-up of its set that found it; 0: the place is free */
    uint64_t begun; /* when its window began */
    struct source_counts now, before;
    uint32_t address_bytes, pad;
};

struct source_set {
    uint32_t busy, pad; /* for meters of several CPUs */
    uint64_t used;      /* look-ups */
    struct source way[SOURCE_WAYS];
};

/* --- hashes ---------------------------------------------------------------------------------- */

/* Of the first 4, 8 or 16 bytes of an address. */
static inline uint64_t hash_of_address(const uint64_t *secret, const uint8_t *address,
                                       uint32_t bytes) {
    struct sip s = sip_begin(secret[0], secret[1]);
    uint64_t words[2];

    memcpy(words, address, sizeof words);
    if (bytes == 4)
        return sip_end(&s, (uint32_t)words[0] | 4ull << 56);
    sip_word(&s, words[0]);
    if (bytes == 16)
        sip_word(&s, words[1]);
    return sip_end(&s, (uint64_t)bytes << 56);
}

/* The number of the set of a flow's source. */
static inline uint32_t source_set_of(const uint64_t *secret, const struct key *k) {
    uint64_t hash = hash_of_address(secret, k->source, k->address_bytes == 4 ? 4 : 8);

    return (uint32_t)((hash >> 32) * METER_SOURCE_SETS >> 32);
}

/* The bits that a flow sets in the sketches of its source. */
static inline struct source_counts bits_of_flow(const uint64_t *secret, const struct key *k) {
    struct sip s = sip_begin(secret[0], secret[1]);
    uint64_t port = sip_end(&s, k->destination_port | (uint64_t)k->protocol << 16 | 3ull << 56);
    uint64_t host = hash_of_address(secret, k->destination, k->address_bytes);

    return (struct source_counts){.ports = 1ull << (port >> 58), .hosts = 1ull << (host >> 58)};
}

/* --- sets ------------------------------------------------------------------------------------ */

static inline uint64_t network_of(const struct key *k) {
    uint64_t network;

    memcpy(&network, k->source, sizeof network);
    return network;
}

/* The place of a flow's source in its set; SOURCE_WAYS where it has none. */
static inline uint32_t find_source(const struct source_set *set, const struct key *k) {
    uint64_t network = network_of(k);
    uint32_t at = SOURCE_WAYS;

    for (uint32_t i = 0; i < SOURCE_WAYS; i++) {
        const struct source *s = &set->way[i];

        if (s->used && s->network == network && s->address_bytes == k->address_bytes)
            at = i;
    }
    return at;
}

/* A free place, or else that of the source that was looked up longest ago. */
static inline uint32_t place_for_source(const struct source_set *set) {
    uint64_t least = ~0ull;
    uint32_t at = 0;

    for (uint32_t i = 0; i < SOURCE_WAYS; i++) {
        if (set->way[i].used < least) {
            least = set->way[i].used;
            at = i;
        }
    }
    return at;
}

/* Notes a look-up, and goes on to the window of that time. */
static inline void use_source(struct source_set *set, struct source *s, uint64_t now) {
    const struct source_counts none = {0};
    uint64_t passed = now > s->begun ? (now - s->begun) >> METER_SOURCE_WINDOW : 0;

    s->used = ++set->used;
    if (now < s->begun && s->begun - now > 1ull << METER_SOURCE_WINDOW) { /* it was set back */
        s->begun = now;
        s->now = s->before = none;
    }
    if (passed) {
        s->before = passed == 1 ? s->now : none;
        s->now = none;
        s->begun += passed << METER_SOURCE_WINDOW;
    }
}

static inline uint32_t sum_of_counts(uint32_t a, uint32_t b) {
    return a + b < a ? 0xffffffffu : a + b;
}

/* Counts a flow that its source begins, which sets these bits; whether another one made room. */
static inline int begin_of_source(struct source_set *set, const struct key *k,
                                  const struct source_counts *bits, uint64_t now) {
    uint32_t at = find_source(set, k);
    struct source *s;
    int forgotten = 0;

    if (at == SOURCE_WAYS) {
        at = place_for_source(set);
        s = &set->way[at & (SOURCE_WAYS - 1)];
        forgotten = s->used != 0;
        memset(s, 0, sizeof *s);
        s->network = network_of(k);
        s->address_bytes = k->address_bytes;
        s->begun = now;
    }
    s = &set->way[at & (SOURCE_WAYS - 1)];
    use_source(set, s, now);
    s->now.flows = sum_of_counts(s->now.flows, 1);
    s->now.ports |= bits->ports;
    s->now.hosts |= bits->hosts;
    return forgotten;
}

/* Counts the first answer to a flow of a source. */
static inline void answer_of_source(struct source_set *set, const struct key *k, uint64_t now) {
    uint32_t at = find_source(set, k);
    struct source *s = &set->way[at & (SOURCE_WAYS - 1)];

    if (at == SOURCE_WAYS)
        return;
    use_source(set, s, now);
    s->now.answered = sum_of_counts(s->now.answered, 1);
}

/* --- features -------------------------------------------------------------------------------- */

/* The bits of a word that are set; not every processor, and no BPF, counts them at once. */
static inline uint32_t bits_set(uint64_t x) {
    x -= x >> 1 & 0x5555555555555555ull;
    x = (x & 0x3333333333333333ull) + (x >> 2 & 0x3333333333333333ull);
    x = (x + (x >> 4)) & 0x0f0f0f0f0f0f0f0full;
    return (uint32_t)(x * 0x0101010101010101ull >> 56);
}

/* The features by source of a flow that is decided, METER_SOURCES of them. */
static inline void features_of_source(const struct source_set *set, const struct key *k,
                                      uint64_t now, uint32_t *out) {
    uint32_t at = find_source(set, k), all[SOURCE_FEATURES] = {0};
    const struct source *s = &set->way[at & (SOURCE_WAYS - 1)];
    uint64_t passed = now > s->begun ? (now - s->begun) >> METER_SOURCE_WINDOW : 0;

    if (at < SOURCE_WAYS && passed < 2) {
        struct source_counts c = s->now;

        if (!passed) {
            c.ports |= s->before.ports;
            c.hosts |= s->before.hosts;
            c.flows = sum_of_counts(c.flows, s->before.flows);
            c.answered = sum_of_counts(c.answered, s->before.answered);
        }
        all[SOURCE_NEW_FLOWS] = c.flows;
        all[SOURCE_UNANSWERED] = c.flows > c.answered ? c.flows - c.answered : 0;
        all[SOURCE_PORTS] = bits_set(c.ports);
        all[SOURCE_HOSTS] = bits_set(c.hosts);
    }
    chosen_of_source(all, out);
}

#endif
