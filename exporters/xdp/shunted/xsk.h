// SPDX-License-Identifier: Apache-2.0
/*
 * Packets of one queue of an interface that the metering program hands over by AF_XDP: the kernel
 * writes each into memory that is shared with it, behind what it knows of the packet's flow.
 */
#ifndef N3IC_XSK_H
#define N3IC_XSK_H

#include <stddef.h>
#include <stdint.h>

#include "state.h"

#define XSK_CHUNK 4096    /* of the shared memory; a larger frame lies in several */
#define XSK_LARGEST 65536 /* bytes of a frame */

struct xsk_frame {
    const struct handed *metadata; /* NULL where the kernel had no room for it */
    const uint8_t *bytes;
    uint32_t length;
};

/* Consumes a frame, whose bytes are valid until it returns. */
typedef void (*xsk_consumer)(void *to, const struct xsk_frame *frame);

/* A ring of the kernel: `producer` and `consumer` count on, the entries follow each other. */
struct xsk_ring {
    void *start;
    size_t size;
    uint32_t *producer, *consumer;
    void *entries;
};

struct xsk {
    int fd;
    uint32_t chunks;
    uint8_t *memory;
    struct xsk_ring filled, received;
    uint64_t cut; /* frames over XSK_LARGEST, dropped */
    uint8_t whole[XSK_LARGEST];
};

/*
 * Opens a socket for a queue with room for so many chunks, a power of 2; 0 where the kernel
 * refuses, with errno. It takes nothing before it stands in the program's map `sockets`.
 */
int xsk_open(struct xsk *x, uint32_t interface, uint32_t queue, uint32_t chunks);

/* Calls a function for each received frame; their number. */
uint32_t xsk_read(struct xsk *x, xsk_consumer consume, void *to);

/* Reads the number of frames that the kernel dropped for want of room; 0 if it refuses. */
int xsk_lost(const struct xsk *x, uint64_t *lost);

void xsk_close(struct xsk *x);

#endif
