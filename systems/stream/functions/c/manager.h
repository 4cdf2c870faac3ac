// SPDX-License-Identifier: Apache-2.0
/* What the manager's parts share. One thread does all of it. */
#ifndef N3IC_MANAGER_H
#define N3IC_MANAGER_H

#include "functions.h"
#include "losses.h"
#include "settings.h"

#include <stdio.h>

enum phase { WAITING, RECEIVING, DRAINING, DONE };

struct device { /* a port of DPDK */
    uint16_t number;
    int stamped; /* packets bring their times */
    struct loss_counter losses;
    int closed;
    int promiscuous;       /* its interface was before, and stays so */
    uint64_t lost[LOSSES]; /* when it was read last */
    uint64_t received, sent, full;
    uint16_t n_out;
    struct rte_mbuf *out[BURST];
};

struct peer { /* a process that is connected */
    int fd;
    int controls;
    struct function *function; /* that it is; NULL for none */
};

struct manager {
    struct settings settings;
    enum phase phase;
    struct rte_mempool *pool;
    struct shared_memory packets;
    struct device devices[MOST_PORTS];
    struct function functions[MOST_FUNCTIONS];
    int time_at;  /* of a packet's time in its buffer */
    int stamp_at; /* of the time that net_pcap gave it, or below 0 */
    uint64_t stamp_flag;
    uint64_t received, too_long, copies, ended;
    unsigned empty_polls;
    int ending; /* asked to: what waits in the ports is the last to be received */
    unsigned received_last;
    int listening, polling; /* descriptors of files */
    struct peer peers[MOST_FUNCTIONS + 8];
};

/* --- control.c: processes that come, ask and go ------------------------------------------ */

void control_open(struct manager *m);
void control_close(struct manager *m);

/* Handles what processes said since the last call; never waits. */
void control_poll(struct manager *m);

/* --- chain.c: where packets go ----------------------------------------------------------- */

/* Does what is next with a packet: one reference of it is the call's. */
void chain_send(struct manager *m, struct rte_mbuf *packet, struct hop to);

/* Takes back what functions have done; gives how many packets. */
unsigned chain_collect(struct manager *m);

/* How many packets can be received without a loss here. */
unsigned chain_room(const struct manager *m);

void chain_flush(struct manager *m);

/* The process of a function is gone. */
void chain_gone(struct manager *m, struct function *f);

/* --- statistics.c ------------------------------------------------------------------------ */

void statistics_write(struct manager *m, FILE *to);

#endif
