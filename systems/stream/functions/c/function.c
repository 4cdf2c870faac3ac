// SPDX-License-Identifier: Apache-2.0
/* See function.h. */
#define _GNU_SOURCE

#include "function.h"

#include "area.h"

#include <rte_pause.h>
#include <time.h>

enum { AT_ONCE = 64, SPINS = 256, REST_NS = 50000 };

int function_check(const void *area, size_t bytes) {
    const struct area *a = area;
    return bytes >= sizeof *a && a->magic == AREA_MAGIC && a->tickets <= MOST_TICKETS &&
           a->given_at < bytes && a->returned_at < bytes &&
           a->table_at + (uint64_t)a->tickets * sizeof(struct ticket_packet) <= bytes;
}

void function_alive(void *area) {
    struct area *a = area;
    __atomic_store_n(&a->heartbeat, a->heartbeat + 1, __ATOMIC_RELEASE);
}

int function_stopping(const void *area) {
    return __atomic_load_n(&((const struct area *)area)->stopping, __ATOMIC_ACQUIRE) != 0;
}

static uint64_t clock_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/* Waits until the ring holds something, the time is over, or the function must end. */
static void wait_for(struct area *a, const struct rte_ring *ring, uint32_t wait_us) {
    const struct timespec rest = {.tv_nsec = REST_NS};
    for (unsigned i = 0; i < SPINS; i++) {
        if (!rte_ring_empty(ring) || function_stopping(a)) {
            return;
        }
        rte_pause();
    }
    const uint64_t end = clock_us() + wait_us;
    while (rte_ring_empty(ring) && !function_stopping(a) && clock_us() < end) {
        nanosleep(&rest, NULL);
        function_alive(a);
    }
}

size_t function_receive(void *area, size_t most, uint32_t wait_us, uint64_t *descriptors,
                        uint64_t *offset, uint32_t *captured, uint32_t *length, uint64_t *time,
                        uint32_t *port) {
    struct area *a = area;
    struct rte_ring *ring = area_given(a);
    const struct ticket_packet *table = area_table(a);
    size_t n = 0;
    function_alive(a);
    wait_for(a, ring, wait_us);
    while (n < most) {
        const unsigned wanted = (unsigned)RTE_MIN(most - n, (size_t)AT_ONCE);
        const unsigned got = rte_ring_sc_dequeue_burst_elem(ring, descriptors + n,
                                                            sizeof *descriptors, wanted, NULL);
        for (unsigned i = 0; i < got; i++, n++) {
            const struct ticket_packet p = table[descriptors[n] & TICKET_MASK];
            offset[n] = p.offset;
            captured[n] = p.captured;
            length[n] = p.length;
            time[n] = p.time;
            port[n] = p.port;
        }
        if (!got) {
            break;
        }
    }
    return n;
}

size_t function_return(void *area, size_t n, const uint64_t *descriptors, const uint8_t *actions) {
    struct area *a = area;
    struct rte_ring *ring = area_returned(a);
    uint64_t chunk[AT_ONCE];
    size_t done = 0;
    function_alive(a);
    while (done < n) {
        const unsigned count = (unsigned)RTE_MIN(n - done, (size_t)AT_ONCE);
        for (unsigned i = 0; i < count; i++) {
            chunk[i] = (descriptors[done + i] & ~((uint64_t)ACTION_MASK << ACTION_SHIFT)) |
                       (uint64_t)actions[done + i] << ACTION_SHIFT;
        }
        const unsigned put =
            rte_ring_sp_enqueue_burst_elem(ring, chunk, sizeof *chunk, count, NULL);
        done += put;
        if (put < count) {
            break;
        }
    }
    return done;
}
