// SPDX-License-Identifier: Apache-2.0
/*
 * The metering program of an interface in the kernel, pinned below a BPF file system, where the
 * next n3icd takes it over.
 */
#ifndef N3ICD_KERNEL_H
#define N3ICD_KERNEL_H

#include <net/if.h>
#include <stdint.h>

#include "idle.h"
#include "pack.h"
#include "text.h"

enum map {
    MAP_EVENTS,
    MAP_FLOWS,
    MAP_COUNTED,
    MAP_TALLIES,
    MAP_MODELS,
    MAP_DISPATCH,
    MAP_POLICIES,
    MAP_INTERFACES,
    MAP_CPUS,
    MAP_CONFIG,
    MAP_GUARDS,
    MAP_TUPLES,
    MAP_HOSTS,
    MAP_ALLOWED,
    MAP_LISTED,
    MAP_STRIKES,
    MAP_USES,
    MAP_SOCKETS,
    MAP_SAMPLES,
    MAP_OPTIONS,
    MAP_FOUND,
    MAP_STATE,
    MAPS
};

enum mode { MODE_AUTO, MODE_NATIVE, MODE_GENERIC, MODE_TCX };

/* Where a program is to be attached. */
struct place {
    enum mode mode;
    uint32_t priority; /* in libxdp's dispatcher; or NO_PRIORITY */
};

#define LINKS 2 /* at tcx: what comes in, what goes out; at XDP the first alone */

/* State for the next n3icd: the value of the map `state`. */
struct state {
    char layout[64];
    char meter[64];                /* what programs have in common that may succeed each other */
    uint32_t generic, tcx;         /* where the program stands */
    uint32_t frags;                /* it takes frames that lie in several pieces */
    uint32_t dispatched, priority; /* whether libxdp's dispatcher runs it */
    uint8_t digest[SLOTS][32];     /* of the resident networks */
};

/* Idle flows that one search of the table gave, and how many of them were asked to end. */
struct sweep {
    int running;
    uint64_t now; /* by the program's clock; flows are idle at this time */
    uint32_t count, next;
    uint64_t flows; /* in the table at the search, with those that were idle */
    struct counters counters;
    struct idle_flow *flow;
};

struct kernel {
    char interface[IF_NAMESIZE], pins[256];
    uint32_t index;
    uint32_t dispatcher; /* that was seen to run the program */
    int program, end, idle, link[LINKS], map[MAPS];
    int is_taken_over; /* it was pinned there already */
    uint32_t cpus, users, room;
    uint64_t flows; /* in the table at the last sweep */
    uint64_t ended; /* by sweeps */
    struct sweep sweep;
    struct options options;
    struct state state;
    struct idle_flows *idle_flows;
    struct counters swept; /* at the last sweep */
    void *values;          /* room for those of all CPUs */
};

/* What follows from counters and maps. */
struct figures {
    struct counters counters;
    uint64_t flows, evicted, undecided, blocked_hosts;
    struct config config;
};

/* What is loaded where nothing is pinned: object files, and the values of maps. */
struct program {
    const char *object, *idle;
    const struct pack *pack;
};

/*
 * Takes over what is pinned for an interface, or loads and attaches it; 0 on failure, with a
 * message. With `succeeds`, a pinned program of the same meter that is compiled for other networks
 * is replaced at once, and the new one has its flows, verdicts and counters.
 */
int kernel_open(struct kernel *k, const char *interface, const char *pins,
                const struct place *wanted, const struct program *anew, int succeeds);

/* Opens what is pinned for an interface, and changes nothing; 0 on failure, with a message. */
int kernel_view(struct kernel *k, const char *interface, const char *pins);

/* Detaches the program at once, and removes its pins; 0 on failure, with a message. */
int kernel_unload(struct kernel *k, const char *pins);

/* Writes the values of a pack: models, rules, policies. 0 with a message if the kernel refuses.
 */
int kernel_apply(struct kernel *k, const struct pack *p);

/*
 * Begins to end idle flows, unless a sweep is running; 0 where the kernel refuses. A running sweep
 * goes on with each step, which ends at most ENDS_AT_ONCE flows; 0 where the kernel refuses, which
 * ends the sweep.
 */
int kernel_sweep(struct kernel *k);
int kernel_sweep_step(struct kernel *k);

/* native, generic or tcx. */
const char *kernel_mode(const struct kernel *k);

/* Where the program is attached, as text for people. */
void kernel_write_place(const struct kernel *k, struct text *out);

/* Whether the program is still attached to the interface. */
int kernel_is_attached(struct kernel *k);

/* Closes what is open; the program stays in the kernel. */
void kernel_close(struct kernel *k);

/* Removes the pins of an interface, and with them the program; 0 on failure, with a message. */
int kernel_remove(const char *interface, const char *pins);

/* Sums of all CPUs; 0 where the kernel refuses. */
int kernel_counters(struct kernel *k, struct counters *out);
int kernel_tally(struct kernel *k, uint32_t slot, struct tally *out);

/* All figures but those of the models; 0 where the kernel refuses. */
int kernel_figures(struct kernel *k, struct figures *out);

/* The present time of the program's clock. */
uint64_t kernel_now(const struct kernel *k);

#endif
