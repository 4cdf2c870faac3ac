// SPDX-License-Identifier: Apache-2.0
/*
 * The manager's side of the functions: which packets each of them has, and how they come back.
 *
 * A function that runs holds tickets. What it gives back is checked against the tickets that are
 * out; when its process is gone, the packets of the others are freed and counted.
 */
#ifndef N3IC_FUNCTIONS_H
#define N3IC_FUNCTIONS_H

#include "area.h"
#include "memory.h"
#include "settings.h"

#include <rte_mbuf.h>

enum function_state { ABSENT, ATTACHED, STOPPING, KILLED, GONE };

/* How the process of a function ended. */
enum function_end { ENDED_STOPPED, ENDED_DIED, ENDED_HUNG, ENDED_DAMAGED, ENDS };

struct function_tally {
    uint64_t given, passed, dropped, routed[MOST_ROUTES];
    uint64_t full, absent, bypassed; /* packets that came and were not given */
    uint64_t no_such_action;         /* of packets given back with one; they are freed */
    uint64_t damaged;                /* descriptors of no ticket that is out */
    uint64_t lost[ENDS];             /* packets that were with it when its process ended */
    uint64_t starts, ends[ENDS];
};

struct ticket {
    struct rte_mbuf *packet; /* NULL: not out */
    uint32_t generation;
};

struct function {
    const struct function_settings *settings;
    enum function_state state;
    enum function_end why;   /* of one that was killed or is gone */
    uint32_t left;           /* descriptors that are still taken from one that is gone */
    int connection, process; /* its socket and its pidfd; -1 for none */
    int pid;
    struct shared_memory memory;
    struct area *area;
    struct ticket *tickets;
    uint32_t *free, n_free, ring_slots;
    uint64_t waiting[BURST]; /* descriptors that are to go to its ring */
    unsigned n_waiting;
    uint64_t heartbeat, heard; /* its last heartbeat, and when it came, in cycles */
    uint32_t downstream;       /* functions that its packets may come to, a bit each */
    struct function_tally tally;
};

void function_open(struct function *f, const struct function_settings *s, enum memory kind);
void function_close(struct function *f);

/* A process has come: fresh rings. */
void function_attach(struct function *f, enum memory kind, int connection, int process, int pid);

/* Gives a packet, with the address that offsets are counted from; 0 where no ticket is left. */
int function_give(struct function *f, struct rte_mbuf *packet, const char *base, uint64_t time);

/* Whether both rings are what the manager made; a function may have written over them. */
int function_intact(const struct function *f);

/* Puts what was given into the function's ring. */
void function_flush(struct function *f);

/* Takes back packets with actions, `most` of them or fewer; gives how many. */
unsigned function_take(struct function *f, unsigned most, struct rte_mbuf **packets,
                       uint8_t *actions);

/* It is given nothing more, and asked to end when it has done what it has. */
void function_stop(struct function *f);

/* The process is gone: nothing is given to it, and what it gave back can still be taken. */
void function_gone(struct function *f);

/* Whether it gave back something that was not taken yet. */
int function_pending(const struct function *f);

/* Of a function that is gone: frees what is still out, so that another process may come. */
void function_reclaim(struct function *f);

static inline uint32_t function_held(const struct function *f) {
    return f->settings->tickets - f->n_free;
}

#endif
