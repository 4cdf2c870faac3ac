// SPDX-License-Identifier: Apache-2.0
/* A decided flow with its names, as readers and sinks get it. */
#ifndef N3ICD_FLOW_REPORT_H
#define N3ICD_FLOW_REPORT_H

#include <net/if.h>
#include <netinet/in.h>
#include <stdint.h>

#include "pack.h"
#include "text.h"

#define UNTAGGED 4096 /* VLAN of packets without a tag */

struct flow_report {
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
    uint64_t boot_time_ns; /* from 1970 to the beginning of the program's clock */
    uint32_t index;        /* of the interface below; 0 before the first event */
    char interface[IF_NAMESIZE];
};

void reading_begin(struct reading *r);

/*
 * Fills the names of what an event holds. `before` is the pack that was replaced last, or NULL: its
 * networks may have decided it. 0 if the event is damaged.
 */
int flow_report_fill(struct flow_report *t, const struct event *e, struct reading *r,
                     const struct pack *now, const struct pack *before);

/* One line of JSON, with its line end. */
void flow_report_write_json(const struct flow_report *t, struct text *out);

/* Bytes that the longest line may need. */
size_t flow_report_room(const struct pack *p);

extern const char *const end_names[ENDS];

#endif
