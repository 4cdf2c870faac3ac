// SPDX-License-Identifier: Apache-2.0
/*
 * The manager's side of the functions: which packets each of them holds, and how they come back.
 *
 * A running function holds tickets. Whatever it gives back is checked against the tickets that are
 * out. When its process has ended, the packets of the remaining tickets are freed and counted.
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
    uint64_t full, absent, bypassed; /* packets that came but were not given to it */
    uint64_t no_such_action;         /* packets given back with an unknown action; they are freed */
    uint64_t damaged;                /* descriptors that match no ticket that is out */
    uint64_t lost[ENDS];             /* packets that it held when its process ended */
    uint64_t starts, ends[ENDS];
};

struct ticket {
    struct rte_mbuf *packet; /* NULL if the ticket is not out */
    uint32_t generation;
};

struct function {
    const struct function_settings *settings;
    enum function_state state;
    enum function_end why;   /* why its process was killed or ended */
    uint32_t left;           /* most descriptors still taken after its process ended */
    int connection, process; /* its socket and its pidfd; -1 for none */
    int pid;
    struct shared_memory memory;
    struct area *area;
    struct ticket *tickets;
    uint32_t *free, n_free, ring_slots;
    uint64_t waiting[BURST]; /* descriptors that will go to its ring */
    unsigned n_waiting;
    uint64_t heartbeat, heard; /* its last heartbeat, and when that came, in cycles */
    uint32_t downstream;       /* functions that its packets may reach, one bit each */
    struct function_tally tally;
};

void function_open(struct function *f, const struct function_settings *s, enum memory kind);
void function_close(struct function *f);

/* A process has attached: makes fresh rings. */
void function_attach(struct function *f, enum memory kind, int connection, int process, int pid);

/* Gives it a packet; offsets count from base. Returns 0 if no ticket is left. */
int function_give(struct function *f, struct rte_mbuf *packet, const char *base, uint64_t time);

/* Whether both rings are what the manager made; a function may have written over them. */
int function_intact(const struct function *f);

/* Puts the packets given so far into the function's ring. */
void function_flush(struct function *f);

/* Takes back at most `most` packets with their actions; returns how many. */
unsigned function_take(struct function *f, unsigned most, struct rte_mbuf **packets,
                       uint8_t *actions);

/* Gives it nothing more, and asks it to end once it has finished what it holds. */
void function_stop(struct function *f);

/* The process has ended: it gets no more packets, but what it gave back can still be taken. */
void function_ended(struct function *f);

/* Whether it gave back something that has not been taken yet. */
int function_pending(const struct function *f);

/* After its process has ended: frees what is still out, so that another process may attach. */
void function_reclaim(struct function *f);

static inline uint32_t function_held(const struct function *f) {
    return f->settings->tickets - f->n_free;
}

#endif
