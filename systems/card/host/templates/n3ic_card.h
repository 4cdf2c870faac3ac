// SPDX-License-Identifier: Apache-2.0
/*
 * A card of several tenants in one process: many networks, one pool of threads, a share each.
 *
 * A frame names the graph that it asks by a UID. card_submit() admits it (token bucket and bounded
 * queue of the graph's tenant), the threads compute it in turns that weigh each tenant by the plan
 * (start-time fair queueing over the cycles that a graph takes), and card_next() gives a tenant's
 * answers in the order in which its frames were admitted.
 *
 * All calls but card_close() may be made by any threads at once.
 */
#ifndef N3IC_CARD_H
#define N3IC_CARD_H

#include <stddef.h>
#include <stdint.h>

#include "card_plan.h"

#ifdef __cplusplus
extern "C" {
#endif

struct card;

/* In place of a tenant: the wire, which may ask every graph, and who runs the card. */
#define CARD_WIRE UINT32_MAX

/* In place of a class: the host decides. */
#define CARD_HOST 0xffffu

enum card_status {
    CARD_OK = 0,
    CARD_OTHER,     /* a frame that asks nothing */
    CARD_UNKNOWN,   /* no graph has the UID */
    CARD_FOREIGN,   /* another tenant's graph or network */
    CARD_MALFORMED, /* shorter than the graph's input needs */
    CARD_THROTTLED, /* beyond the tenant's token bucket */
    CARD_FULL,      /* CARD_QUEUE frames of the tenant wait already */
    CARD_ABSENT,    /* a network of the graph is removed */
    CARD_EMPTY,     /* no answer is ready */
    CARD_BAD_MODEL, /* no valid weights, or of another input or number of classes */
    CARD_NO_MEMORY
};

enum card_action { CARD_FORWARD = 0, CARD_DROP, CARD_MARK, CARD_MIRROR };

struct card_result {
    uint32_t model;   /* first 32 bits of the network's digest */
    uint32_t verdict; /* class, or CARD_HOST */
    int32_t margin;   /* of a vote: votes less those of the second */
};

struct card_answer {
    uint64_t cookie; /* as submitted */
    uint32_t graph;  /* index into card_graphs */
    uint32_t action; /* of the first rule that is about it; CARD_FORWARD to port 0 for none */
    uint32_t value;  /* port, or DSCP of CARD_MARK; 0 for none */
    uint32_t results;
    struct card_result result[CARD_BRANCHES];
};

/* What became of a tenant's frames. */
struct card_counters {
    uint64_t admitted, answered;
    uint64_t other, unknown, foreign, malformed, throttled, full, absent;
};

/* A status in words. */
const char *card_strerror(int status);

/*
 * Opens the card with the networks that are compiled in.
 *
 * threads: of the pool; with 0, card_work() computes in the caller's thread.
 */
int card_open(struct card **out, uint32_t threads);

/* Ends the threads and frees the card; answers that nobody took are lost. */
void card_close(struct card *card);

/*
 * Admits a frame, whose bytes are copied as far as they are needed.
 *
 * source: the tenant whose port it came from, or CARD_WIRE.
 * now_ns: when it came; must not go back. It fills the token buckets.
 * cookie: what the answer bears.
 *
 * What is not admitted is counted where it came from: at its source, or from CARD_WIRE at the
 * tenant whose graph it names.
 */
int card_submit(struct card *card, uint32_t source, const uint8_t *frame, size_t size,
                uint64_t now_ns, uint64_t cookie);

/* Computes up to `most` admitted frames in this thread; returns how many. */
size_t card_work(struct card *card, size_t most);

/* Waits until every admitted frame is computed. */
void card_wait(struct card *card);

/*
 * Takes the next answer of a tenant, and CARD_SCORES scores of its branches one after the other
 * unless `scores` is NULL. CARD_EMPTY: the next one is not computed yet.
 */
int card_next(struct card *card, uint32_t tenant, struct card_answer *out, int32_t *scores);

/* Writes the results of an answer into its frame, which must be the one that was admitted. */
void card_write(const struct card_answer *answer, uint8_t *frame);

/*
 * Loads, replaces or (with NULL) removes a network, an index into card_networks.
 *
 * caller: the tenant that owns it, or CARD_WIRE.
 *
 * Frames that are admitted before are answered by the network that stood then, those after by the
 * new one. Weights are checked and loaded beforehand; other frames wait for an exchange of
 * pointers.
 */
int card_load(struct card *card, uint32_t caller, uint32_t network, const void *weights,
              size_t size);

/* Counters of a tenant, or of CARD_WIRE: of frames that came from it and named no graph. */
void card_count(struct card *card, uint32_t tenant, struct card_counters *out);

#ifdef __cplusplus
}
#endif

#endif
