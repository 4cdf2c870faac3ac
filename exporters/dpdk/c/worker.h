// SPDX-License-Identifier: Apache-2.0
/*
 * What an lcore does: receives, meters, classifies flows that are decided, and does with packets
 * what their flow's verdict says, to completion. It shares nothing that it writes.
 */
#ifndef N3IC_WORKER_H
#define N3IC_WORKER_H

#include "decisions.h"
#include "policy.h"
#include "ports.h"

/* Why a packet or a decision got lost here. */
enum lost { LOST_SENDING, LOST_RING, LOST_WORKER, LOST_DECISION, LOST_END, LOST_REASONS };

/* Counters that one lcore writes, and that others read at any time. */
struct tally {
    uint64_t received, bytes, clock_ns, actions[ACTIONS], lost[LOST_REASONS];
    uint64_t meter[METER_COUNTERS];
    uint64_t *packets, *decided; /* by verdict */
} __rte_cache_aligned;

/* What all lcores read. */
struct shared {
    const struct settings *settings;
    struct ports *ports;
    const struct policy *policy;
    const struct bnn *net;
    const uint32_t *column; /* of each feature of the network, among the meter's */
    int stamp_at;           /* of a packet's time in its buffer; below 0 for none */
    uint64_t stamp_flag, secret[SECRET_WORDS];
    uint64_t base_ns, base_cycles; /* one moment, since 1970 and of the processor's counter */
    uint64_t hz;
    int stopping;    /* no more is to be received */
    int distributed; /* and all of it has been handed over */
    unsigned ended;  /* receivers that have come to the end of their captures */
    unsigned done;   /* lcores that have come to their end */
    struct worker *workers;
};

struct out { /* packets to a port */
    uint16_t n;
    struct rte_mbuf *packets[BURST];
};

struct worker {
    struct shared *all;
    unsigned index, lcore;
    struct meter *meter;
    struct rte_ring *in; /* from the lcore that distributes, or NULL */
    struct decisions decisions;
    int packet_time; /* packets bring times of a capture: the clock says nothing of them */
    uint64_t expired;
    uint32_t *values, *words, *classes, *verdicts;
    int32_t *margins, *scores;
    uint8_t *flat; /* packets that lie in several buffers, put together */
    struct out out[RTE_MAX_ETHPORTS];
    struct tally tally;
};

void worker_open(struct worker *w, struct shared *all, unsigned index);
void worker_close(struct worker *w);

/* Of an lcore; the argument is its struct worker. They return when `stopping` is set. */
int worker_run(void *worker);
int distributor_run(void *worker); /* receives for the others, and meters nothing */

#endif
