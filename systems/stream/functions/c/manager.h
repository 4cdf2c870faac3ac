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
    int stamped; /* whether its packets carry times */
    struct loss_counter losses;
    int closed;
    int promiscuous;       /* its interface already was, and must stay so */
    uint64_t lost[LOSSES]; /* losses at the last reading */
    uint64_t received, sent, full;
    uint16_t n_out;
    struct rte_mbuf *out[BURST];
};

struct peer { /* a connected process */
    int fd;
    int controls;
    struct function *function; /* the function that it runs; NULL for none */
};

struct manager {
    struct settings settings;
    enum phase phase;
    struct rte_mempool *pool;
    struct shared_memory packets;
    struct device devices[MOST_PORTS];
    struct flow_shares flows;
    struct function functions[MOST_FUNCTIONS];
    int time_at;  /* offset of a packet's time in its buffer */
    int stamp_at; /* offset of net_pcap's timestamp there; negative if unknown */
    uint64_t stamp_flag;
    uint64_t received, too_long, copies, ended;
    unsigned empty_polls;
    int ending; /* asked to end: only what waits in the ports is still received */
    unsigned received_last;
    int listening, polling; /* file descriptors */
    struct peer peers[MOST_FUNCTIONS + 8];
};

/* --- control.c: processes that connect, send requests and leave -------------------------- */

void control_open(struct manager *m);
void control_close(struct manager *m);

/* Handles what processes have sent since the last call; never waits. */
void control_poll(struct manager *m);

/* --- chain.c: where packets go ----------------------------------------------------------- */

/* Sends a packet to its next place; takes over one reference to it. */
void chain_send(struct manager *m, struct rte_mbuf *packet, struct hop to);

/* Takes back the packets that functions have finished; returns how many. */
unsigned chain_collect(struct manager *m);

/* How many packets can be received without losing any. */
unsigned chain_room(const struct manager *m);

void chain_flush(struct manager *m);

/* The process of a function has ended. */
void chain_function_ended(struct manager *m, struct function *f);

/* --- statistics.c ------------------------------------------------------------------------ */

void statistics_write(struct manager *m, FILE *to);

#endif
