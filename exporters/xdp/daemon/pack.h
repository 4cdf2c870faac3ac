// SPDX-License-Identifier: Apache-2.0
/*
 * A pack: the values that n3icd writes into the maps of a metering program, made by `n3ic xdp
 * pack`.
 *
 * A text of lines, each of words with one space between them:
 *
 *     n3ic-pack 2
 *     layout ID                   of the program that it was made for: N3ICD_LAYOUT
 *     about HEX                   for `n3ic xdp`: policies and rules as typed, as JSON
 *     options HEX                 struct options; the key of the hash is not in it
 *     entries MAP COUNT           room of flows, tuples and hosts
 *     value MAP INDEX HEX         value of an array
 *     inner MAP INDEX HEX         value of a map in a map of maps
 *     interface MAP INDEX AT NAME the interface's index goes to byte AT of that value
 *     model SLOT NAME             names: UTF-8 with %XX for all but letters, digits and -._~
 *     class SLOT NUMBER NAME
 *     feature NUMBER NAME
 *     register NUMBER NAME
 *     drift SLOT NAME HEX         of a feature in a slot: see struct pack_drift
 *     file HEX                    for `n3ic xdp`: a model file; the first is the program's
 *     end CRC                     CRC-32 of all bytes before this line, 8 hexadecimal digits
 */
#ifndef N3ICD_PACK_H
#define N3ICD_PACK_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "model.h"

#define RATE_UNIT (1u << 16) /* of shares of the training rows, as in n3ic/model/inputs.py */

#define PACK_VALUES (POLICIES + SLOTS + 2 + 64 + 64)
#define PACK_INTERFACES (64 + RULES)

enum { ENTRIES_FLOWS, ENTRIES_TUPLES, ENTRIES_HOSTS, PACK_ENTRIES };

enum pack_map { PACK_POLICIES, PACK_CONFIG, PACK_INTERFACE, PACK_CPUS, PACK_DISPATCH, PACK_MODELS };

struct pack_value {
    enum pack_map map;
    uint32_t index, size;
    uint8_t *bytes;
};

struct pack_interface {
    enum pack_map map;
    uint32_t index, at;
    const char *name;
};

/*
 * How far a feature has moved from the training rows: groups of cuts, 32-bit words each. A group is
 * the number of its cuts; a cut is its rate, the number of ranges of rows, and the ranges.
 */
struct pack_drift {
    uint32_t slot, words;
    const char *feature;
    const uint8_t *word;
};

struct pack {
    char *text;    /* all below points into it */
    uint8_t *read; /* the bytes of the pack */
    size_t size;
    uint32_t sum; /* of its last line */
    struct pack_drift *drift;
    uint32_t drifts;
    struct options options;
    uint32_t entries[PACK_ENTRIES];
    struct pack_value value[PACK_VALUES];
    struct pack_interface interface[PACK_INTERFACES];
    uint32_t values, interfaces;
    const char *model[SLOTS], *class[SLOTS][NETWORK_CLASSES];
    const char *feature[METER_VALUES], *register_name[METER_REGISTERS ? METER_REGISTERS : 1];
};

#define PACK_BYTES (64 << 20)

/* Reads and checks a pack; NULL with a message if it is not one for this program. */
struct pack *pack_read(const char *path);
/* The same with bytes from malloc that have a zero behind them; they are the pack's from now on. */
struct pack *pack_parse(char *text, size_t size, const char *path);
void pack_free(struct pack *p);

/* Puts the indices of interfaces into its values; 0 with a message if one does not exist. */
int pack_resolve(struct pack *p);

/* The bytes of the value of a map; NULL where it has none. */
const struct pack_value *pack_value(const struct pack *p, enum pack_map map, uint32_t index);

/* A word of what drift compares. */
static inline uint32_t pack_word(const struct pack_drift *d, uint32_t at) {
    uint32_t word;

    memcpy(&word, d->word + 4 * (size_t)at, sizeof word);
    return word;
}

/* The bytes of the network of a slot, which begin with the digest of its file. */
static inline const struct network *pack_network(const struct pack *p, uint32_t slot) {
    const struct pack_value *v = pack_value(p, PACK_MODELS, slot);

    return v ? (const struct network *)(const void *)v->bytes : NULL;
}

#endif
