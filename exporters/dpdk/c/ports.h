// SPDX-License-Identifier: Apache-2.0
/* DPDK's ports: how their packets reach the workers, and what sends them. */
#ifndef N3IC_PORTS_H
#define N3IC_PORTS_H

#include "losses.h"
#include "settings.h"

#include <rte_ethdev.h>
#include <rte_spinlock.h>

/* How packets of one flow come to one worker. */
enum distribution {
    BY_ONE,     /* there is one worker */
    BY_DEVICE,  /* each has a queue of every port, and the device hashes addresses or ports */
    BY_SOFTWARE /* an lcore receives, hashes addresses and hands packets over */
};

struct port {
    uint16_t number, rx_queues, tx_queues;
    char name[RTE_ETH_NAME_MAX_LEN];
    struct loss_counter losses;
    int stamped, is_capture; /* packets bring their times; as old as the capture */
    rte_spinlock_t lock;     /* of the last queue for sending, where workers share it */
};

struct ports {
    unsigned n, workers;
    enum distribution distribution;
    struct rte_mempool *pool;
    struct port *port;
    struct port *by_number[RTE_MAX_ETHPORTS];
};

/* Configures and starts all ports for the lcores that work; what cannot be ends the program. */
void ports_open(struct ports *p, const struct settings *s, unsigned lcores);
void ports_close(struct ports *p);

/* One line for the user: how packets are distributed, and why. */
const char *ports_distribution(const struct ports *p);

/* Sends packets by the queue of an lcore, and gives how many the port took. */
uint16_t port_send(struct port *p, unsigned lcores, unsigned own, struct rte_mbuf **packets,
                   uint16_t n);

#endif
