// SPDX-License-Identifier: Apache-2.0
/*
 * What the programs keep in maps, as user space reads it (exporters/xdp/layout.py).
 *
 * Times are in units of METER_TICK_NS.
 */
#ifndef N3IC_STATE_H
#define N3IC_STATE_H

#include "dispatch.h"
#include "flow.h"
#include "network.h"

#define MARGINS 256 /* counters of margins, the last for all above */

/* Why a flow was decided; the order is that of ENDS in n3ic/meter/compiled.py. */
enum end {
    BY_PACKETS,
    BY_AFTER,
    BY_FIN,
    BY_RST,
    BY_IDLE,
    BY_ACTIVE,
    BY_EVICTION,
    BY_CAPTURE,
    ENDS
};

enum { SHUNTED = -1, NO_MODEL = -2 }; /* verdicts that are no class */

/* A flow; its key in the table is the canonical one of both directions. */
struct flow {
    uint32_t busy;   /* a CPU is at it */
    int32_t verdict; /* class, SHUNTED or NO_MODEL; once it is decided */
    uint64_t first, last, packets;
    uint8_t turned; /* its first packet went against the canonical direction */
    uint8_t fins, closed, decided;
    uint8_t slot; /* of the model that decided it */
    uint8_t pad;
    uint16_t vlan; /* of its first packet, and so is the interface */
    struct flow_state state;
    /* What few packets need stands behind. */
    uint64_t decided_packets, decided_time, number;
    uint64_t touched; /* in replay: number of its last packet, for packets of one time */
    uint32_t interface, margin;
} __attribute__((aligned(8)));

/* A flow when it was decided: the record of n3ic/meter/compiled.py, then the verdict. */
struct event {
    struct key key; /* in the direction of the first packet */
    uint32_t why, pad;
    uint64_t number, first, last, packets;
    uint64_t registers[METER_REGISTERS ? METER_REGISTERS : 1];
    uint32_t features[METER_VALUES];
    int32_t verdict;
    uint32_t class, margin, slot;
    int32_t score[NETWORK_CLASSES];
    uint8_t model[8]; /* the first bytes of the digest */
};

/* Of one CPU. */
struct counters {
    uint64_t packets, bytes;
    uint64_t aside[ASIDE_REASONS]; /* packets of no flow, by reason */
    uint64_t late;                 /* packets behind the end of their flow */
    uint64_t started;              /* flows */
    uint64_t inserted, removed;    /* entries of the flow table; what is missing was evicted */
    uint64_t replaced;             /* entries that made room in a bucket */
    uint64_t decided[ENDS];        /* decisions, by reason */
    uint64_t events_lost;          /* for which user space left no room */
    uint64_t no_model;             /* decisions for which there was no model */
    uint64_t contended;            /* packets that were not counted: others held their flow */
    uint64_t not_marked;           /* packets whose driver gives no room for a mark */
};

enum action { ACT_PASS, ACT_DROP, ACT_INTERFACE, ACT_SOCKET, ACT_CPU, ACT_MARK };

/* What is done with packets of flows by verdict: classes first. */
enum { POLICY_SHUNTED = NETWORK_CLASSES, POLICY_UNDECIDED, POLICY_ASIDE, POLICIES };

struct policy {
    uint32_t action;
    uint32_t argument; /* index in the map of interfaces, sockets or CPUs; the mark */
};

#endif
