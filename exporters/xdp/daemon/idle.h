// SPDX-License-Identifier: Apache-2.0
/* Idle flows that the program found for user space: the value of its map. */
#ifndef N3ICD_IDLE_H
#define N3ICD_IDLE_H

#include "state.h"

#define IDLE_AT_ONCE 4096

struct idle_flow {
    struct key key;
    uint64_t last, touched;
};

struct idle_flows {
    uint32_t count; /* of flows below; those that found no room are found the next time */
    uint32_t flows; /* that were looked at; not all where there was no room */
    struct idle_flow flow[IDLE_AT_ONCE];
};

struct idle_search { /* its input */
    uint64_t now;
};

#endif
