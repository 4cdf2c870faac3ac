// SPDX-License-Identifier: Apache-2.0
/* What the command line says, and how the program ends where it cannot go on. */
#ifndef N3IC_SETTINGS_H
#define N3IC_SETTINGS_H

#include <stdint.h>

enum { EXIT_FAILED = 1, EXIT_USAGE = 2 };
enum { BURST = 32, MAX_POLICIES = 256, MAX_RING_OUTPUTS = 16 };

struct settings {
    const char *policies[MAX_POLICIES]; /* as typed */
    const char *ring_outputs[MAX_RING_OUTPUTS];
    unsigned n_policies, n_ring_outputs;
    const char *decisions, *statistics; /* files, or NULL */
    uint64_t packets, seconds;          /* after which it ends; 0 for never */
    uint32_t mbufs, descriptors, interval;
    int until_end; /* the ports are captures: wait in place of losing, and end with them */
    int tap;       /* what passes goes nowhere */
    int no_rss;    /* distribute by software, whatever the device can */
};

/* Fills settings from the words behind EAL's "--"; 0 where only the help was asked for. */
int settings_read(struct settings *s, int argc, char **argv);

/* Says why on standard error, and exits. */
_Noreturn void fail(int status, const char *form, ...) __attribute__((format(printf, 2, 3)));

#endif
