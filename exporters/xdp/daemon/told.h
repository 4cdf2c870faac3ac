// SPDX-License-Identifier: Apache-2.0
/* A decided flow with names, as it is told to readers and sinks. */
#ifndef N3ICD_TOLD_H
#define N3ICD_TOLD_H

#include <net/if.h>
#include <netinet/in.h>
#include <stdint.h>

#include "pack.h"
#include "text.h"

#define UNTAGGED 4096 /* VLAN of packets without a tag */

struct told {
    const struct event *event;
    const struct pack *pack; /* names of features and registers */
    char source[INET6_ADDRSTRLEN], destination[INET6_ADDRSTRLEN];
    const char *interface;
    char number[16];     /* of a class without a name */
    const char *verdict; /* a class, shunt or none */
    const char *why;
    uint64_t first_ns, last_ns, decided_ns; /* since 1970 */
};

/* What the events of one reading of the ring share, so that the kernel is asked once for it. */
struct reading {
    uint64_t booted_ns; /* from 1970 to the beginning of the program's clock */
    uint32_t index;     /* of the interface below; 0 before the first event */
    char interface[IF_NAMESIZE];
};

void reading_begin(struct reading *r);

/*
 * Names what is in an event. `before` is the pack that was replaced last, or NULL: its networks
 * may have decided it. 0 where the event is damaged.
 */
int told_make(struct told *t, const struct event *e, struct reading *r, const struct pack *now,
              const struct pack *before);

/* One line of JSON, with its line end. */
void told_json(const struct told *t, struct text *out);

/* Room that the longest line may need. */
size_t told_room(const struct pack *p);

extern const char *const told_ends[ENDS];

#endif
