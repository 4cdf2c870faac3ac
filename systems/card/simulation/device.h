// SPDX-License-Identifier: Apache-2.0
/*
 * A card in virtual time: packets wait for room, take turns as in the card's library, and run
 * through chains of tasks in regions. The control loop runs outside: it is told when packets use a
 * graph or are cut off, and loads chains.
 *
 * Each task of a chain has credits, which are places for packets (SuperNIC, section IV-D). If all
 * tasks that a packet needs of a chain have one, one of each is reserved and the packet runs
 * through them without the scheduler. Otherwise it goes to the first task alone, goes on while
 * there are credits, and returns to the scheduler at the first task without.
 */
#ifndef N3IC_CARD_DEVICE_H
#define N3IC_CARD_DEVICE_H

#include <stdint.h>

#define DEVICE_NEVER UINT64_MAX

enum device_event {
    DEVICE_REACHED, /* everything before the cycle has happened */
    DEVICE_USE,     /* a packet of a graph begins: its tasks must run somewhere */
    DEVICE_STUCK,   /* the watchdog cut a packet off in a region */
    DEVICE_NO_MEMORY
};

enum device_fate {
    DEVICE_COMING,
    DEVICE_QUEUED, /* waits for room */
    DEVICE_INSIDE,
    DEVICE_LEFT,
    DEVICE_DROPPED,
    DEVICE_CUT_OFF
};

struct device_board {
    double hz;
    double wire; /* cycles that a byte takes on the port */
    uint64_t watchdog, monitor;
    uint32_t schedule, interval, head_interval, before, after; /* cycles */
    uint32_t queue, store; /* packets of a graph that wait for room, and in the card */
    uint32_t chained;      /* a packet runs through a chain at once */
    uint32_t coloured;     /* guarantees count, and tasks are launched at their use */
    uint32_t by_bytes;     /* turns weigh bytes instead of the time at the slowest task */
};

struct device_task {
    double gbps, area;
    uint32_t latency, interval, credits; /* cycles, cycles, packets */
    uint32_t per_inference, turns;
};

/* A step of a graph: a task, or a fork into `branches` (`task` is -1), or an end (-2). */
struct device_step {
    int32_t task;
    uint32_t branches, first; /* `first` is an index into the starts of branches */
};

struct device_packet {
    uint64_t arrived;                  /* set by the caller, like the next two */
    uint64_t admitted, paid, departed; /* cycles, or DEVICE_NEVER */
    uint32_t bytes;
    uint8_t decides;
    uint8_t fate;                    /* a device_fate */
    uint8_t beyond, begun, finished; /* was sent beyond the guarantee, was sent, is done */
};

/* A graph: its steps, its packets in the order of time, and what it is guaranteed. */
struct device_graph {
    const struct device_step *steps;
    const uint32_t *starts; /* first step of each branch */
    struct device_packet *packets;
    uint64_t n_packets, rate, burst;          /* rate and burst in bytes */
    double weight;                            /* above 0, to 1 */
    uint32_t tenant, n_steps, step, branches; /* `step`: the first; branches of all forks */
};

struct device_counts {
    uint64_t arrived, queued, inside, most_queued, most_inside;
};

struct device;

/* Makes a card; the arrays of tasks, steps and packets must outlive it. NULL without memory. */
struct device *device_open(const struct device_board *board, const struct device_task *tasks,
                           uint32_t n_tasks, const struct device_graph *graphs, uint32_t n_graphs,
                           uint32_t n_tenants, uint32_t n_regions);
void device_close(struct device *device);

/*
 * Runs what happens before a cycle; returns earlier for the control loop, with the cycle and the
 * number of the graph or region.
 */
enum device_event device_run(struct device *device, uint64_t until, uint64_t *now, uint32_t *which);

/*
 * Serves a chain in a region, once its old chain has drained and the cycle `ready` has come; the
 * time of draining adds to it. owner: the only tenant that may use it, or UINT32_MAX.
 */
void device_load(struct device *device, uint32_t region, const uint32_t *chain, uint32_t length,
                 uint32_t owner, uint64_t ready);

/* Sends no more packets to a region; those inside go on. */
void device_unload(struct device *device, uint32_t region);

/* The tasks of a region give no more results. */
void device_jam(struct device *device, uint32_t region);

/* Changes the bytes per second that a graph is guaranteed. */
void device_rate(struct device *device, uint32_t graph, uint64_t rate);

void device_count(const struct device *device, uint32_t graph, struct device_counts *out);

/* Area times cycles that tasks were busy, of each region and for each tenant. */
void device_busy(const struct device *device, double *regions, double *tenants);

#endif
