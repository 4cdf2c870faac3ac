// SPDX-License-Identifier: Apache-2.0
/* What a port of DPDK lost, from every place that says so; see docs/how-to/dpdk.md. */
#ifndef N3IC_LOSSES_H
#define N3IC_LOSSES_H

#include <net/if.h>
#include <stdint.h>

/* The driver's counts, those of the kernel's interface, and PACKET_STATISTICS. */
enum { LOSSES = 7 };
extern const char *const loss_names[LOSSES];

struct loss_counter {
    uint16_t port;
    char driver[32], interface[IF_NAMESIZE]; /* no interface: "" */
    uint64_t dropped_before, missed_before, socket_lost;
};

/* Begins to count, before the port starts; gives 0 or a negative errno. */
int losses_begin(struct loss_counter *c, uint16_t port);

/*
 * Whether the port's packets begin with an Ethernet header, as the meter expects: those of kernel
 * interfaces such as tun, PPP, GRE and WireGuard do not.
 */
int has_ethernet(const struct loss_counter *c);

/* What was lost since then, by the names above. */
void losses_read(struct loss_counter *c, uint64_t out[LOSSES]);

#endif
