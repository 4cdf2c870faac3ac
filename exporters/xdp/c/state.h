// SPDX-License-Identifier: Apache-2.0
/*
 * What the programs keep in maps and write to the ring of events, for every reader: the programs
 * themselves, exporters/xdp/layout.py, and C programs of user space, which include this file with
 * the others of the folder. Nothing in it is of BPF.
 *
 * Times are in units of METER_TICK_NS of the program's clock, which begins at the boot; those whose
 * names end in _ns are nanoseconds of it. Addresses and ports of keys are as in key.h.
 */
#ifndef N3IC_STATE_H
#define N3IC_STATE_H

#include "dispatch.h"
#include "flow.h"
#include "network.h"

#define MARGINS 256 /* counters of margins, the last for all above */

/* Why a flow was decided; the order is that of ENDS in n3ic/meter/compiled.py. */
enum end {
    BY_PACKETS,
    BY_AFTER,
    BY_FIN,
    BY_RST,
    BY_IDLE,
    BY_ACTIVE,
    BY_EVICTION,
    BY_CAPTURE,
    ENDS
};

enum { SHUNTED = -1, NO_MODEL = -2 }; /* verdicts that are no class */

/* Values of `locked` below: not, for any processor, for one whose stores keep their order (x86). */
enum locked { NOT_LOCKED, LOCKED, LOCKED_IN_ORDER };

/* Chosen when the program is loaded. */
struct options {
    uint32_t clock;
    uint32_t events; /* whether user space gets decided flows */
    uint32_t locked; /* whether packets of one flow may come on several CPUs at once */
    uint32_t buckets;
    uint64_t secret[SECRET_WORDS]; /* of the buckets' hash */
};

/* Behind the frames of a replayed capture, so that its clock and lengths hold. */
struct trailer {
    uint64_t time;
    uint32_t length; /* of the frame on the wire */
    uint32_t captured;
};

enum { CLOSED = 3 }; /* a flow's `fins` */

/* --- flows ----------------------------------------------------------------------------------- */

/* A flow; its key in the table is the canonical one of both directions. */
struct flow {
    uint32_t busy;   /* a CPU is at it */
    int32_t verdict; /* in force: class, SHUNTED, or NO_MODEL as long as there is none */
    uint64_t first, last, packets;
    uint64_t decided_packets; /* at its last decision; 0 before the first */
    uint64_t new_octets;      /* of IP packets since then */
    uint8_t turned;           /* its first packet went against the canonical direction */
    uint8_t fins;             /* 1, 2: by direction; CLOSED: both, or a RST came */
    uint8_t struck[2];        /* rounds of strikes on its host and prefix that count it; 0: none */
    uint8_t slot;             /* of the model whose verdict is in force, as is the margin */
    uint8_t class;            /* also where the verdict is SHUNTED */
    uint16_t vlan;            /* of its first packet, and so is the interface */
    struct flow_state state;
    /* What few packets need stands behind. */
#if METER_DECIDE_AFTER
    uint64_t decided_time;
#endif
    uint64_t number;
    uint64_t touched; /* in replay: number of its last packet, for packets of one time */
    uint32_t interface, margin;
} __attribute__((aligned(8)));

/*
 * An entry of the map `flows`: as it is in the kernel's hash map (table_lru.h), and in buckets
 * (table_buckets.h). It carries its key, since the kernel may give an entry to another flow while a
 * CPU looks at it.
 */
struct slot {
    struct key key;
    struct flow flow;
};

#define WAYS 8 /* flows of a bucket */
#define SLOTS_PER_FLOW 2

/* As struct slot, from the beginning of a cache line on: few lines are fetched for a packet. */
struct own_slot {
    struct key key; /* of no address where it is free */
    struct flow flow;
} __attribute__((aligned(64)));

struct bucket {
    struct own_slot slot[WAYS];
};

/*
 * What is looked at first in a bucket, in the map `tags`: a cache line each, so that those of a
 * large table are near when its flows are not.
 */
struct tags {
    uint32_t busy; /* a CPU is at the bucket */
    uint32_t pad;
    uint32_t tag[WAYS]; /* of the flows' hashes; 0 is free */
    uint64_t rest[3];   /* of the cache line */
};

/*
 * What stands before each packet that a socket takes (AF_XDP), as metadata: its flow, and what is
 * known of it. The last member is right before the packet. It needs Linux 6.9; older kernels have
 * no room for it, and whoever reads HANDED there finds something else.
 */
#define HANDED 0x6369336e /* "n3ic" */

struct handed {
    struct key key;   /* in the direction of the flow's first packet; zeros: a packet of no flow */
    uint64_t number;  /* of the flow */
    uint64_t packets; /* of the flow so far, with this one */
    int32_t verdict;  /* a class, SHUNTED or NO_MODEL */
    uint32_t class, margin;
    uint16_t vlan; /* 4096: none */
    uint8_t slot;  /* of the model that decided */
    uint8_t reverse;
    uint32_t pad;
    uint32_t known; /* HANDED */
};

/* What user space asks of n3ic_end by a test run: to end flows. Their canonical keys follow. */
#define ENDS_AT_ONCE 32

struct ends {
    uint64_t now;
    uint32_t why; /* BY_IDLE ends only what has been idle for too long */
    uint32_t count;
};

/* A flow when it was decided: the record of n3ic/meter/compiled.py, then the verdict. */
struct event {
    struct key key; /* in the direction of the first packet */
    uint32_t why;
    uint32_t new_packets; /* since its decision before; the record has padding here */
    uint64_t number, first, last, packets;
    uint64_t registers[METER_REGISTERS ? METER_REGISTERS : 1];
    uint32_t features[METER_VALUES];
    int32_t verdict;
    uint32_t class, margin, slot;
    int32_t score[NETWORK_CLASSES];
    uint8_t model[8];    /* the first bytes of the digest */
    uint64_t decided;    /* when; flows that time out end later than their last packet */
    uint64_t new_octets; /* of IP packets since its decision before */
    uint32_t interface;
    uint16_t vlan; /* of the first packet; 4096: it had none */
    uint16_t rest;
};

/* Of one CPU. */
struct counters {
    uint64_t packets, bytes;
    uint64_t aside[ASIDE_REASONS]; /* packets of no flow, by reason */
    uint64_t late;                 /* packets behind the end of their flow */
    uint64_t started;              /* flows */
    uint64_t inserted, removed;    /* entries of the flow table; what is missing was evicted */
    uint64_t replaced;             /* entries that made room in a bucket */
    uint64_t decided[ENDS];        /* decisions, by reason */
    uint64_t events_lost;          /* for which user space left no room */
    uint64_t no_model;             /* decisions for which there was no model */
    uint64_t contended;            /* packets that were not counted: others held their flow */
    uint64_t not_marked;           /* packets whose driver gives no room for a mark */
    uint64_t flows_decided;        /* flows that were decided once at least */
    uint64_t allowed;              /* packets that the list of allowed sources lets pass */
    uint64_t blocked;              /* packets that a verdict in the maps below drops */
    uint64_t limited;              /* packets over the rate of such a verdict, dropped */
    uint64_t dropped;              /* packets that the policy of their flow drops */
    uint64_t spared;               /* packets that would not have passed but for the dry run */
    uint64_t verdicts;             /* verdicts that decisions put into the maps or renewed */
    uint64_t refused;              /* verdicts over the limit of blocked hosts, not put there */
    uint64_t excess;               /* packets of flows that their source may not begin so fast */
    uint64_t super;                /* packets that the kernel or the card cuts on their way out, or
                                      put together on their way in */
    uint64_t segments;             /* packets that these are on the wire */
    uint64_t mirrored;             /* copies that were sent out of another interface */
    uint64_t not_mirrored;         /* packets for whose copy there was no memory or no interface */
    uint64_t no_socket;            /* packets for a socket that nobody opened; they pass */
    uint64_t samples_lost;         /* of dropped packets, for which user space left no room */
    uint64_t forgotten;            /* sources of flows that made room for others in their table */
};

/* The beginning of a dropped packet, in the ring of samples. */
#define SAMPLED_BYTES 128

struct sample {
    uint32_t interface;
    uint32_t length, captured; /* of the frame, and of it here */
    uint32_t is_limited;       /* it was over the rate of a verdict */
    uint8_t bytes[SAMPLED_BYTES];
};

/* --- what is done with packets --------------------------------------------------------------- */

enum action {
    ACT_PASS,
    ACT_DROP,
    ACT_INTERFACE,
    ACT_SOCKET,
    ACT_CPU,
    ACT_MARK,
    ACT_LIMIT,  /* passes so many a second; only of verdicts in the maps below */
    ACT_ALLOW,  /* passes, whatever else is said; only by user space */
    ACT_MIRROR, /* passes, and a copy leaves by an interface; only by tc */
    ACT_SHARED  /* of many users: decisions hold for flows, not for addresses; only by user space */
};

/* What is done with packets of flows by verdict: classes first. */
enum { POLICY_SHUNTED = NETWORK_CLASSES, POLICY_UNDECIDED, POLICY_ASIDE, POLICY_EXCESS, POLICIES };

/* Of what later packets a decision holds, besides its own flow's as long as the table has it. */
enum scope { SCOPE_NONE, SCOPE_FLOW, SCOPE_HOST, SCOPE_PREFIX };

struct policy {
    uint32_t action;
    uint32_t argument; /* index in the map of interfaces, sockets or CPUs; the mark; of a rate, the
                          nanoseconds between two packets */
    uint32_t scope;
    uint32_t from;    /* only decisions at this packet of a flow or later put the verdict there */
    uint64_t ttl;     /* of the verdict that a decision puts into the map of its scope */
    uint64_t times;   /* only so many flows of a source within that time do; 0 and 1: the first */
    uint64_t longest; /* of a source that is judged so again soon: see source_ttl in verdicts.h */
};

/* Flows of a source whose decisions did not suffice yet, in the map `strikes` by struct subject. */
struct strikes {
    uint64_t until; /* when they are forgotten */
    uint32_t flows;
    uint32_t round; /* 1 to 255: which of the source's strikes these are */
};

/* --- verdicts that outlive flows ------------------------------------------------------------- */

/*
 * Four maps, looked up before the flow table in this order; the first that holds counts:
 *   tuples   struct key, canonical: only entries of ACT_ALLOW at this place
 *   allowed  struct prefix: sources that user space allows, or that many users share
 *   listed   struct prefix: sources that user space blocks, limits, marks or redirects
 *   tuples   all other entries
 *   hosts    struct subject: whole addresses by decisions, then prefixes by decisions
 * A packet that is dropped there is not metered. All others are, and the action of their verdict
 * takes the place of their flow's policy.
 */
struct prefix {     /* key of the kernel's LPM tries */
    uint32_t bits;  /* PREFIX_FAMILY of what stands before the address, then its own */
    uint8_t family; /* bytes of the address: 4 or 16 */
    uint8_t pad[3];
    uint8_t address[16];
};

#define PREFIX_FAMILY 32

struct subject {
    uint8_t address[16]; /* zeros behind the bits */
    uint32_t bits;
    uint32_t address_bytes;
};

#define BY_OPERATOR (-3) /* who made a verdict, in place of a class or SHUNTED */
#define BY_FILE (-4)     /* an allow or block file */
#define FOR_EVER (~0ull)

struct verdict {
    uint64_t until; /* the first time at which it holds no more */
    uint64_t since;
    uint64_t packets;          /* for which it was the one that counts */
    uint64_t full_ns;          /* when the tokens of its rate are all there again */
    uint32_t action, argument; /* as in struct policy */
    int32_t by;                /* a class, SHUNTED, BY_OPERATOR or BY_FILE */
    uint32_t bits;             /* of its prefix's address */
    uint64_t weight;           /* what it adds to blocked_hosts */
    uint64_t flow_packets;     /* of its flow, at the decision that made it */
    uint32_t margin;           /* of that decision */
    uint32_t repeats;          /* how often its source had one before and soon */
};

/*
 * Entries of the map `uses`: until when a map may hold something. Whoever puts a verdict into a map
 * raises them after that, so that a map without one costs nothing. USE_ANY is the latest of all.
 */
enum use { USE_ANY, USE_TUPLES, USE_ALLOWED, USE_LISTED, USE_HOSTS, USE_PREFIXES, USES };

/* Of the verdicts by decisions on sources. */
struct guard {
    uint32_t busy; /* a CPU is at it */
    uint32_t pad;
    uint64_t blocked; /* hosts that are kept from the stack, with some that expired */
    uint64_t tidied;  /* when what had expired was last forgotten */
};

/* What user space may change while packets flow. */
struct config {
    uint32_t dry_run;          /* verdicts and policies are counted, and every packet passes */
    uint32_t prefix_bits[2];   /* of prefixes by decisions: IPv4, IPv6 */
    uint32_t sample_one_in;    /* so many dropped packets on average gives a sample; 0: none does */
    uint64_t max_blocked;      /* hosts that decisions keep from the stack at one time at most */
    uint64_t flow_interval_ns; /* between two new flows of a source in the long run; 0: no limit */
    uint64_t flow_burst_ns;    /* how far a source may be ahead of that */
};

#endif
