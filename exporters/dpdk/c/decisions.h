// SPDX-License-Identifier: Apache-2.0
/*
 * Decided flows on their way from a worker to the lcore that writes them: a ring for each worker,
 * of one producer and one consumer, so that no worker waits for a disk.
 */
#ifndef N3IC_DECISIONS_H
#define N3IC_DECISIONS_H

#include "lines.h"

#include <rte_ring_elem.h>

struct decisions {
    struct rte_ring *ring;
    const struct bnn *net;
    unsigned bytes;   /* of an element: a record, its verdict, its scores, its input */
    uint8_t *scratch; /* two elements, for putting and for taking */
};

void decisions_open(struct decisions *d, const struct bnn *net, unsigned worker);
void decisions_close(struct decisions *d);

/* Puts a decision into the ring; 0 where it is full. */
int decisions_enqueue(struct decisions *d, const struct record *r, const struct verdict *v);

/* Writes what is in the ring, with rows from *row on, and gives whether there was something. */
int decisions_write(struct decisions *d, const struct lines *lines, uint64_t *row);

#endif
