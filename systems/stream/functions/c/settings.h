// SPDX-License-Identifier: Apache-2.0
/* Settings from the command line, and how the manager exits if it cannot go on. */
#ifndef N3IC_SETTINGS_H
#define N3IC_SETTINGS_H

#include "flows.h"

#include <stdint.h>

enum { EXIT_FAILED = 1, EXIT_USAGE = 2 };
enum { BURST = 64, MOST_FUNCTIONS = 32, MOST_PORTS = 16, MOST_ROUTES = 16, NAME_BYTES = 32 };

/* Where a packet goes. */
enum hop_kind { TO_END, TO_FUNCTION, TO_PORT };
struct hop {
    enum hop_kind kind;
    unsigned index;
};

struct function_settings {
    char name[NAME_BYTES];
    uint32_t tickets;
    uint32_t hang_ms; /* killed after this time without a heartbeat; 0 for never */
    int bypassed;     /* while it is absent, packets go on to `next`, or else are dropped */
    unsigned n_routes;
    struct hop next, routes[MOST_ROUTES];
};

/* Each packet goes to one of these places; all packets of a flow go to the same one. */
struct entry {
    unsigned n;
    struct hop hops[MOST_FUNCTIONS];
};

/* The memory that functions map. */
enum memory {
    MEMORY_FILE,      /* a memory file, without huge pages */
    MEMORY_HUGE_FILE, /* a memory file of huge pages */
    MEMORY_DPDK       /* DPDK's own, which secondary processes map */
};

struct settings {
    const char *socket;
    enum memory memory;
    uint32_t buffers, buffer_bytes;
    uint64_t packets; /* end after this many; 0 for never */
    int until_end;    /* the ports are captures: wait instead of losing packets, end with them */
    unsigned n_functions, n_ports, n_entries;
    struct function_settings functions[MOST_FUNCTIONS];
    const char *ports[MOST_PORTS]; /* names of DPDK's devices */
    struct entry entries[MOST_FUNCTIONS];
    enum flow_key share_by;
};

/* Reads settings from the arguments after EAL's "--". */
void settings_read(struct settings *s, int argc, char **argv);

/* Prints the reason on standard error, and exits. */
_Noreturn void fail(int status, const char *form, ...) __attribute__((format(printf, 2, 3)));

#endif
