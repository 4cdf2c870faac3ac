// SPDX-License-Identifier: Apache-2.0
/* Reads packets of a network interface as they pass, from a raw socket of Linux. */
#ifndef LIVE_H
#define LIVE_H

#include "capture.h"

struct live;

/* Opens an interface by name. On failure NULL with errno set: ENOSYS on systems but Linux. */
struct live *live_open(const char *interface, int promiscuous);
void live_close(struct live *l);

/* The link type of its frames (a LINKTYPE_ number). */
uint32_t live_link(const struct live *l);

/* Reads the next packet. Returns 1; 0 if no packet waits; -1 with errno set. */
int live_next(struct live *l, struct captured *f);

/* Waits for a packet, at most one second. */
void live_wait(const struct live *l);

/* Number of packets that the kernel dropped since the last call, because its queue was full. */
uint64_t live_lost(const struct live *l);

#endif
