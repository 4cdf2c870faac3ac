// SPDX-License-Identifier: Apache-2.0
/*
 * A pack: the values that n3icd writes into the maps of a metering program, made by `n3ic xdp
 * pack`.
 *
 * A text of lines, each of words with one space between them:
 *
 *     n3ic-pack 1
 *     layout ID                   of the program that it was made for: N3ICD_LAYOUT
 *     options HEX                 struct options; the key of the hash is not in it
 *     entries MAP COUNT           room of flows, tuples and hosts
 *     value MAP INDEX HEX         value of an array
 *     inner MAP INDEX HEX         value of a map in a map of maps
 *     interface MAP INDEX AT NAME the interface's index goes to byte AT of that value
 *     model SLOT NAME             names: UTF-8 with %XX for all but letters, digits and -._~
 *     class SLOT NUMBER NAME
 *     feature NUMBER NAME
 *     register NUMBER NAME
 *     end CRC                     CRC-32 of all bytes before this line, 8 hexadecimal digits
 */
#ifndef N3ICD_PACK_H
#define N3ICD_PACK_H

#include <stddef.h>
#include <stdint.h>

#include "model.h"

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

struct pack {
    char *text; /* all below points into it */
    struct options options;
    uint32_t entries[PACK_ENTRIES];
    struct pack_value value[PACK_VALUES];
    struct pack_interface interface[PACK_INTERFACES];
    uint32_t values, interfaces;
    const char *model[SLOTS], *class[SLOTS][NETWORK_CLASSES];
    const char *feature[METER_VALUES], *register_name[METER_REGISTERS ? METER_REGISTERS : 1];
};

/* Reads and checks a pack; NULL where it is not one for this program, which it says. */
struct pack *pack_read(const char *path);
void pack_free(struct pack *p);

/* Puts the indices of interfaces into its values; 0 where one is not there, which it says. */
int pack_resolve(struct pack *p);

/* The bytes of the value of a map; NULL where it has none. */
const struct pack_value *pack_value(const struct pack *p, enum pack_map map, uint32_t index);

/* The bytes of the network of a slot, which begin with the digest of its file. */
static inline const struct network *pack_network(const struct pack *p, uint32_t slot) {
    const struct pack_value *v = pack_value(p, PACK_MODELS, slot);

    return v ? (const struct network *)(const void *)v->bytes : NULL;
}

#endif
