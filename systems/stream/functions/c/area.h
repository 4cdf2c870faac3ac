// SPDX-License-Identifier: Apache-2.0
/*
 * What the manager shares with one function: two rings of descriptors, and a table of the packets
 * handed over. The packets lie in separate memory, which functions can only read.
 *
 * A descriptor names a ticket. Only the manager knows which packet a ticket stands for, so nothing
 * that a function writes here can affect another function's packets.
 */
#ifndef N3IC_AREA_H
#define N3IC_AREA_H

#include <rte_ring.h>
#include <rte_ring_elem.h>
#include <stdint.h>

enum { AREA_MAGIC = 0x3346336e, MOST_TICKETS = 1 << 16 };

/* A descriptor: generation of the ticket, action for the packet, number of the ticket. */
enum { GENERATION_SHIFT = 32, ACTION_SHIFT = 24, ACTION_MASK = 0xff, TICKET_MASK = 0xffffff };
enum { PASS, DROP, FIRST_ROUTE };

/* The packet that a ticket stands for; offset counts from the base of the packets' memory. */
struct ticket_packet {
    uint64_t offset, time; /* nanoseconds since 1970 */
    uint32_t captured, length, port, pad;
};

struct area {
    uint32_t magic, tickets, ring_slots;
    uint32_t given_at, returned_at, table_at; /* bytes from the start of this struct */
    uint32_t stopping;                        /* the manager asks to end once the ring is empty */
    uint64_t heartbeat __rte_cache_aligned;   /* the function counts it up while it is alive */
};

static inline struct rte_ring *area_given(struct area *a) {
    return (struct rte_ring *)((char *)a + a->given_at);
}

static inline struct rte_ring *area_returned(struct area *a) {
    return (struct rte_ring *)((char *)a + a->returned_at);
}

static inline struct ticket_packet *area_table(struct area *a) {
    return (struct ticket_packet *)((char *)a + a->table_at);
}

#endif
