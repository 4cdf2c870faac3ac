// SPDX-License-Identifier: Apache-2.0
/* Maps of the metering programs. */
#ifndef N3IC_MAPS_H
#define N3IC_MAPS_H

#include "model.h"

#define PER_CPU(NAME, ENTRIES, VALUE)                                                              \
    struct {                                                                                       \
        __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);                                                   \
        __uint(max_entries, ENTRIES);                                                              \
        __type(key, __u32);                                                                        \
        __type(value, VALUE);                                                                      \
    } NAME SEC(".maps")

struct fragment {
    uint8_t source[16], destination[16];
    uint32_t identification;
    uint8_t protocol, address_bytes;
    uint8_t pad[2];
};

struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 4096);
    __type(key, struct fragment);
    __type(value, __u32); /* ports: source, then destination */
} fragments SEC(".maps");

struct model {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __uint(key_size, sizeof(__u32));
    __uint(value_size, sizeof(struct network)); /* by number: no type information reaches it */
};

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
    __uint(max_entries, SLOTS);
    __type(key, __u32);
    __array(values, struct model);
} models SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, POLICIES);
    __type(key, __u32);
    __type(value, struct policy);
} policies SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_DEVMAP);
    __uint(max_entries, 64);
    __type(key, __u32);
    __type(value, __u32);
} interfaces SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_XSKMAP);
    __uint(max_entries, 64);
    __type(key, __u32);
    __type(value, __u32);
} sockets SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_CPUMAP);
    __uint(max_entries, 64);
    __type(key, __u32);
    __type(value, __u32);
} cpus SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, 1 << 22);
} events SEC(".maps");

/*
 * Who uses a CPU's scratch and counters. Kernels differ in whether a packet may interrupt the test
 * run that ends flows, so each has its own; user space adds the counters up.
 */
enum user { PACKETS, SWEEP, USERS };
#define TALLIES (USERS * SLOTS) /* those of packets first */

/* Too large for the stack. */
struct scratch {
    struct flow flow;
    struct event event;
    uint32_t inputs[NETWORK_FEATURES];
    struct network_result result;
    uint64_t tick, now; /* of the coarse clock */
    uint32_t slot;      /* of a bucket */
};

PER_CPU(scratches, USERS, struct scratch);
PER_CPU(counted, USERS, struct counters);
PER_CPU(tallies, TALLIES, struct tally);

#endif
