// SPDX-License-Identifier: Apache-2.0
/*
 * Puts keys (struct key, on standard input) into a table of a generated meter, and writes how long
 * its chains are, a number a line; or the keys' hashes, or what the tables take of a hash.
 *
 * Usage: tables hashes|places|flows|window|fragments SECRET SECRET
 */
#include <stdio.h>

#include "meter.c"

static void put(struct meter *m, const char *table, const struct key *k) {
    struct packet p = {.fragmented = 1};

    if (*table == 'h')
        printf("%llu\n", (unsigned long long)hash_of_key(m->secret[0], m->secret[1], k));
    if (*table == 'p')
        printf("%lu\n", (unsigned long)hash(m, k));
    if (*table == 'f' && table[1] == 'l')
        start(m, k, hash(m, k), 0);
    if (*table == 'w')
        window_count(m, &m->windows[0], k);
    if (*table == 'f' && table[1] == 'r') {
        memcpy(p.source, k->source, 16);
        memcpy(p.destination, k->destination, 16);
        p.address_bytes = k->address_bytes;
        join_fragment(m, &p);
    }
}

#define CHAINS(BUCKETS, COUNT, NODES)                                                              \
    for (uint32_t b = 0; b < (COUNT); b++) {                                                       \
        uint32_t n = 0;                                                                            \
        for (uint32_t i = (BUCKETS)[b]; i != NONE; i = (NODES)[i].next)                            \
            n++;                                                                                   \
        printf("%u\n", n);                                                                         \
    }

int main(int argc, char **argv) {
    uint64_t secret[SECRET_WORDS];
    const char *table = argc == 4 ? argv[1] : "";
    struct meter *m;
    struct key k;

    for (int i = 0; i < SECRET_WORDS && argc == 4; i++)
        secret[i] = strtoull(argv[2 + i], NULL, 0);
    m = argc == 4 ? meter_open(LINK_ETHERNET, secret) : NULL;
    if (!m)
        return 1;
    while (fread(&k, sizeof k, 1, stdin) == 1)
        put(m, table, &k);
    if (strcmp(table, "flows") == 0)
        CHAINS(m->buckets, m->mask + 1, m->flows)
    if (strcmp(table, "window") == 0)
        CHAINS(m->windows[0].buckets, m->windows[0].mask + 1, m->windows[0].entries)
    if (strcmp(table, "fragments") == 0)
        CHAINS(m->fragment_buckets, MAX_FRAGMENTS, m->fragments)
    meter_close(m);
    return 0;
}
