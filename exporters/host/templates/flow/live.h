// SPDX-License-Identifier: Apache-2.0
/* Packets of a network interface, as they pass: a raw socket of Linux. */
#ifndef LIVE_H
#define LIVE_H

#include "capture.h"

struct live;

/* Opens an interface by name, or NULL with errno set; ENOSYS where there are no such sockets. */
struct live *live_open(const char *interface, int promiscuous);
void live_close(struct live *l);

/* The link type of its frames (a LINKTYPE_ number). */
uint32_t live_link(const struct live *l);

/* The next packet: 1; 0 where none waits; -1 with errno set. */
int live_next(struct live *l, struct captured *f);

/* Waits for a packet, a second at most. */
void live_wait(const struct live *l);

/* Packets that were lost since the last call, because nobody fetched them in time. */
uint64_t live_lost(const struct live *l);

#endif
