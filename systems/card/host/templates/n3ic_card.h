// SPDX-License-Identifier: Apache-2.0
/*
 * A card of several tenants in one process: many networks, one pool of threads, a share each.
 *
 * A frame names its graph by a UID. card_submit() admits the frame, unless the bounded queue of the
 * graph's tenant is full. Threads compute a tenant's frames in their order. A frame is within its
 * tenant's guarantee if the tenant's token bucket pays for it when its turn comes, and beyond it
 * otherwise. Frames beyond are computed only while no frame within waits. Among frames of a colour,
 * turns weigh each tenant by the plan (start-time fair queueing over the resource that a frame
 * takes longest). card_next() returns a tenant's answers in the order in which its frames were
 * admitted.
 *
 * Any thread may make any call at any time, except card_close().
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

/* Bounds of a guarantee: bytes per second, and bytes of its bucket. */
#define CARD_FASTEST 1000000000000u
#define CARD_DEEPEST UINT32_MAX

/* In place of a tenant: the wire, which may ask every graph, or the operator of the card. */
#define CARD_WIRE UINT32_MAX

/* In place of a class: the host decides. */
#define CARD_HOST 0xffffu

enum card_status {
    CARD_OK = 0,
    CARD_OTHER,     /* the frame is no request */
    CARD_UNKNOWN,   /* no graph has the UID */
    CARD_FOREIGN,   /* another tenant's graph or network */
    CARD_MALFORMED, /* shorter than the graph's input needs */
    CARD_FULL,      /* CARD_QUEUE frames of the tenant wait already */
    CARD_ABSENT,    /* a network of the graph is removed */
    CARD_EMPTY,     /* no answer is ready */
    CARD_BAD_MODEL, /* weights damaged, or of another input or number of classes */
    CARD_NO_MEMORY,
    CARD_BAD_RATE, /* a rate or bucket out of bounds */
    CARD_NO_TABLE  /* the packet task has no table */
};

enum card_action { CARD_FORWARD = 0, CARD_DROP, CARD_MARK, CARD_MIRROR };

struct card_result {
    uint32_t model;   /* first 32 bits of the network's digest */
    uint32_t verdict; /* class, or CARD_HOST */
    int32_t margin;   /* of a vote: lead over the second class */
};

struct card_answer {
    uint64_t cookie; /* as submitted */
    uint32_t graph;  /* index into card_graphs */
    uint32_t action; /* of the first matching rule; CARD_FORWARD to port 0 without one */
    uint32_t value;  /* port, or DSCP of CARD_MARK; 0 for none */
    uint32_t results;
    struct card_result result[CARD_BRANCHES];
    uint8_t head[CARD_HEAD + 1]; /* after the packet tasks */
};

/* Counts of a tenant's frames. */
struct card_counters {
    uint64_t admitted, answered, beyond; /* beyond: computed beyond the guarantee */
    uint64_t other, unknown, foreign, malformed, full, absent;
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
 * Admits a frame. The bytes that are needed are copied.
 *
 * source: tenant whose port the frame came from, or CARD_WIRE.
 * now_ns: time of arrival, which fills the token buckets; it must not go back.
 * cookie: value that is returned with the answer.
 *
 * A refused frame is counted at its source; if that is CARD_WIRE, at the tenant whose graph the
 * frame names.
 */
int card_submit(struct card *card, uint32_t source, const uint8_t *frame, size_t size,
                uint64_t now_ns, uint64_t cookie);

/* Computes up to `most` admitted frames in this thread; returns how many. */
size_t card_work(struct card *card, size_t most);

/* Waits until every admitted frame is computed. */
void card_wait(struct card *card);

/*
 * Takes the next answer of a tenant. Unless `scores` is NULL, copies CARD_SCORES scores, those of
 * each branch after the other. Returns CARD_EMPTY if the next answer is not computed yet.
 */
int card_next(struct card *card, uint32_t tenant, struct card_answer *out, int32_t *scores);

/* Writes the results of an answer into its frame, which must be the one that was admitted. */
void card_write(const struct card_answer *answer, uint8_t *frame);

/*
 * Loads, replaces or (with NULL) removes a network, given as an index into card_networks.
 *
 * caller: tenant that owns the network, or CARD_WIRE.
 *
 * Frames admitted before the call are answered by the old network, later ones by the new network.
 * Weights are checked and loaded without the lock, so other frames wait for an exchange of
 * pointers only.
 */
int card_load(struct card *card, uint32_t caller, uint32_t network, const void *weights,
              size_t size);

/*
 * Writes words of the table of a packet task, given as an index into card_tasks: pairs of an
 * address (16 times an entry plus a word) and the word. Frames see all of them or none.
 *
 * caller: tenant that owns the task, or CARD_WIRE.
 */
int card_table(struct card *card, uint32_t caller, uint32_t task, const uint32_t *writes,
               size_t count);

/* Reads a word that a packet task counts; 0 if it counts nothing there. */
uint32_t card_task_read(struct card *card, uint32_t task, uint32_t address);

/*
 * Changes the rate (bytes per second, 1 to CARD_FASTEST) and the bucket (bytes, to CARD_DEEPEST)
 * that a tenant is guaranteed. What the bucket holds stays, up to its new size, so that a change
 * gives no frame away.
 *
 * caller: CARD_WIRE; no tenant sets its own rate.
 * now_ns: time of the change, as for card_submit().
 */
int card_rate(struct card *card, uint32_t caller, uint32_t tenant, uint64_t rate, uint64_t burst,
              uint64_t now_ns);

/* Frames that named a graph and were allowed to, whether or not they were admitted. */
uint64_t card_asked(struct card *card, uint32_t graph);

/* Counters of a tenant, or with CARD_WIRE of frames from the wire that named no graph. */
void card_count(struct card *card, uint32_t tenant, struct card_counters *out);

#ifdef __cplusplus
}
#endif

#endif
