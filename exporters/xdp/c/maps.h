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

struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, 1 << 18);
} samples SEC(".maps");

/* --- verdicts that outlive flows: see state.h ------------------------------------------------- */

struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 16384);
    __type(key, struct key);
    __type(value, struct verdict);
} tuples SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 16384);
    __type(key, struct subject);
    __type(value, struct verdict);
} hosts SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 65536);
    __type(key, struct subject);
    __type(value, struct strikes);
} strikes SEC(".maps");

#define PREFIXES(NAME)                                                                             \
    struct {                                                                                       \
        __uint(type, BPF_MAP_TYPE_LPM_TRIE);                                                       \
        __uint(max_entries, 1 << 18); /* which take memory as they come */                         \
        __uint(map_flags, BPF_F_NO_PREALLOC);                                                      \
        __type(key, struct prefix);                                                                \
        __type(value, struct verdict);                                                             \
    } NAME SEC(".maps")

PREFIXES(allowed);
PREFIXES(listed);

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, USES);
    __type(key, __u32);
    __type(value, __u64);
} uses SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct config);
} config SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct guard);
} guards SEC(".maps");

/* When the tokens for new flows of a source are all there again, in nanoseconds. */
struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 65536);
    __type(key, struct subject);
    __type(value, __u64);
} sources SEC(".maps");

/*
 * Who uses a CPU's scratch and counters. Kernels differ in whether a packet may interrupt the test
 * run that ends flows, so each has its own; user space adds the counters up.
 */
enum user { PACKETS, SWEEP, USERS };
#define TALLIES (USERS * SLOTS) /* those of packets first */

/* Too large for the stack. */
struct scratch {
    struct slot entry;
    struct event event;
    uint32_t inputs[NETWORK_FEATURES];
    struct network_result result;
    uint64_t tick, now;        /* of the coarse clock */
    uint64_t clock;            /* of the packet, or of who ends flows */
    uint32_t slot;             /* of a bucket */
    uint32_t action, argument; /* of the verdict that holds for a packet */
    struct verdict verdict;    /* that is put into a map */
    struct handed handed;      /* metadata of a packet for a socket */
};

/*
 * The beginning of a packet that lies in several pieces. It has room for all that the parser may
 * look at by headers' lengths, of which HEAD bytes are filled.
 */
struct head {
    uint8_t bytes[18 * 1024];
};

PER_CPU(scratches, USERS, struct scratch);
PER_CPU(heads, 1, struct head);
PER_CPU(counted, USERS, struct counters);
PER_CPU(tallies, TALLIES, struct tally);

#endif
