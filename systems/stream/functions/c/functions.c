// SPDX-License-Identifier: Apache-2.0
/* See functions.h. */
#include "functions.h"

#include <rte_cycles.h>
#include <rte_errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static size_t align_to_line(size_t bytes) {
    return RTE_ALIGN_CEIL(bytes, (size_t)RTE_CACHE_LINE_SIZE);
}

static void *allocate(size_t n, size_t bytes) {
    void *memory = calloc(n, bytes);
    if (!memory) {
        fail(EXIT_FAILED, "no memory for a function");
    }
    return memory;
}

static size_t ring_bytes(const struct function *f) {
    return align_to_line((size_t)rte_ring_get_memsize_elem(sizeof(uint64_t), f->ring_slots));
}

static size_t area_bytes(const struct function *f) {
    return align_to_line(sizeof(struct area)) + 2 * ring_bytes(f) +
           f->settings->tickets * sizeof(struct ticket_packet);
}

/* Where things lie: computed, and never read from memory that a function can write. */
static struct rte_ring *given_ring(const struct function *f) {
    return (struct rte_ring *)((char *)f->area + align_to_line(sizeof(struct area)));
}

static struct rte_ring *returned_ring(const struct function *f) {
    return (struct rte_ring *)((char *)given_ring(f) + ring_bytes(f));
}

static struct ticket_packet *ticket_table(const struct function *f) {
    return (struct ticket_packet *)((char *)returned_ring(f) + ring_bytes(f));
}

/* Each ring has room for all tickets, so neither side ever finds one full. */
static void layout_area(struct function *f) {
    struct area *a = f->area;
    memset(a, 0, area_bytes(f));
    a->tickets = f->settings->tickets;
    a->ring_slots = f->ring_slots;
    a->given_at = (uint32_t)((char *)given_ring(f) - (char *)a);
    a->returned_at = (uint32_t)((char *)returned_ring(f) - (char *)a);
    a->table_at = (uint32_t)((char *)ticket_table(f) - (char *)a);
    const unsigned flags = RING_F_SP_ENQ | RING_F_SC_DEQ;
    if (rte_ring_init(given_ring(f), "given", f->ring_slots, flags) ||
        rte_ring_init(returned_ring(f), "returned", f->ring_slots, flags)) {
        fail(EXIT_FAILED, "cannot make a ring: %s", rte_strerror(rte_errno));
    }
    a->magic = AREA_MAGIC;
}

static void make_area(struct function *f, enum memory kind) {
    char name[NAME_BYTES + 8];
    snprintf(name, sizeof name, "f_%.22s", f->settings->name);
    f->memory = memory_new(kind, name, area_bytes(f));
    f->area = (struct area *)f->memory.base;
}

void function_open(struct function *f, const struct function_settings *s, enum memory kind) {
    *f = (struct function){.settings = s, .connection = -1, .process = -1};
    f->ring_slots = rte_align32pow2(s->tickets + 1);
    f->tickets = allocate(s->tickets, sizeof *f->tickets);
    f->free = allocate(s->tickets, sizeof *f->free);
    for (; f->n_free < s->tickets; f->n_free++) {
        f->free[f->n_free] = f->n_free;
    }
    if (kind == MEMORY_DPDK) { /* now, as nothing is allocated while secondary processes run */
        make_area(f, kind);
    }
}

void function_close(struct function *f) {
    memory_free(&f->memory);
    free(f->tickets);
    free(f->free);
}

void function_attach(struct function *f, enum memory kind, int connection, int process, int pid) {
    if (kind != MEMORY_DPDK) { /* fresh memory, which no earlier process can still write */
        memory_free(&f->memory);
        make_area(f, kind);
    }
    layout_area(f);
    f->connection = connection;
    f->process = process;
    f->pid = pid;
    f->heartbeat = 0;
    f->heard = rte_rdtsc();
    f->state = ATTACHED;
    f->tally.starts++;
}

int function_give(struct function *f, struct rte_mbuf *packet, const char *base, uint64_t time) {
    if (!f->n_free) {
        f->tally.full++;
        return 0;
    }
    const uint32_t number = f->free[--f->n_free];
    struct ticket *t = &f->tickets[number];
    t->packet = packet;
    t->generation++;
    ticket_table(f)[number] = (struct ticket_packet){
        .offset = (uint64_t)(rte_pktmbuf_mtod(packet, char *) - base),
        .time = time,
        .captured = packet->data_len,
        .length = packet->pkt_len,
        .port = packet->port,
    };
    f->waiting[f->n_waiting++] = (uint64_t)t->generation << GENERATION_SHIFT | number;
    f->tally.given++;
    if (f->n_waiting == BURST) {
        function_flush(f);
    }
    return 1;
}

static int ring_intact(const struct function *f, const struct rte_ring *ring) {
    return ring->size == f->ring_slots && ring->mask == f->ring_slots - 1 &&
           ring->capacity == f->ring_slots - 1;
}

int function_intact(const struct function *f) {
    return ring_intact(f, given_ring(f)) && ring_intact(f, returned_ring(f));
}

void function_flush(struct function *f) {
    if (f->n_waiting && ring_intact(f, given_ring(f))) {
        rte_ring_sp_enqueue_burst_elem(given_ring(f), f->waiting, sizeof *f->waiting, f->n_waiting,
                                       NULL);
    }
    f->n_waiting = 0;
}

void function_stop(struct function *f) {
    function_flush(f);
    f->state = STOPPING;
    f->heard = rte_rdtsc();
    __atomic_store_n(&f->area->stopping, 1, __ATOMIC_RELEASE);
}

static void release_ticket(struct function *f, uint32_t number) {
    f->tickets[number].packet = NULL;
    f->free[f->n_free++] = number;
}

unsigned function_take(struct function *f, unsigned most, struct rte_mbuf **packets,
                       uint8_t *actions) {
    uint64_t descriptors[BURST];
    unsigned n = 0;
    if (!ring_intact(f, returned_ring(f))) {
        return 0;
    }
    const unsigned count = rte_ring_sc_dequeue_burst_elem(
        returned_ring(f), descriptors, sizeof *descriptors, RTE_MIN(most, (unsigned)BURST), NULL);
    for (unsigned i = 0; i < count; i++) {
        const uint32_t number = descriptors[i] & TICKET_MASK;
        struct ticket *t = &f->tickets[number < f->settings->tickets ? number : 0];
        if (number >= f->settings->tickets || !t->packet ||
            t->generation != descriptors[i] >> GENERATION_SHIFT) {
            f->tally.damaged++;
            continue;
        }
        packets[n] = t->packet;
        actions[n++] = descriptors[i] >> ACTION_SHIFT & ACTION_MASK;
        release_ticket(f, number);
    }
    return n;
}

void function_ended(struct function *f) {
    f->why = f->state == KILLED ? f->why : f->state == STOPPING ? ENDED_STOPPED : ENDED_DIED;
    f->state = GONE;
    f->left = f->ring_slots; /* bounds what is taken, whatever its ring says */
    f->n_waiting = 0;
    close(f->connection);
    close(f->process);
    f->connection = f->process = -1;
}

int function_pending(const struct function *f) {
    return f->left && ring_intact(f, returned_ring(f)) && !rte_ring_empty(returned_ring(f));
}

void function_reclaim(struct function *f) {
    for (uint32_t i = 0; i < f->settings->tickets; i++) {
        if (f->tickets[i].packet) {
            rte_pktmbuf_free(f->tickets[i].packet);
            release_ticket(f, i);
            f->tally.lost[f->why]++;
        }
    }
    f->tally.ends[f->why]++;
    f->state = ABSENT;
}
