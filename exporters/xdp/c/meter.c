// SPDX-License-Identifier: Apache-2.0
/*
 * Meter, network and verdict as XDP programs.
 *
 * A packet is counted to its flow by the same C that the host's meter is made of; at the flow's
 * decision the network runs, and the packets of a decided flow are treated by its verdict.
 */
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

/* Pointers into packets are not passed to functions. */
#define inline inline __attribute__((always_inline))
#define NETWORK_KEEP_ROWS

#include "state.h"

enum clock { CLOCK_KERNEL, CLOCK_COARSE, CLOCK_TRAILER };

const volatile struct options options SEC(".rodata.options");

#include "maps.h"

uint64_t touches; /* packets of flows in replay */
uint64_t numbers; /* flows that were started, on all CPUs */

static const uint32_t zeroth;

_Static_assert(NETWORK_CLASSES <= 256, "a flow keeps its class in a byte");

#define ATTEMPTS 1024 /* at a flow that another CPU holds: it is done in some 100 ns */

/* --- keys ------------------------------------------------------------------------------------ */

static inline void swap_endpoints(struct key *k) {
    uint64_t *source = (uint64_t *)k->source, *destination = (uint64_t *)k->destination;
    uint16_t port = k->source_port;

    for (int i = 0; i < 2; i++) {
        uint64_t word = source[i];

        source[i] = destination[i];
        destination[i] = word;
    }
    k->source_port = k->destination_port;
    k->destination_port = port;
}

static inline uint64_t load_u64(const uint8_t *from) {
    return *(const uint64_t *)from;
}

/* Ports, protocol and length as they lie behind a key's addresses, in one store. */
static inline uint64_t pack_endpoints(uint32_t source_port, uint32_t destination_port,
                                      uint64_t protocol, uint64_t address_bytes) {
    return source_port | destination_port << 16 | protocol << 32 | address_bytes << 40;
}

/* The key of both directions of a packet's flow; 1 where the packet goes against it. */
static inline int canonical_key(const struct packet *p, struct key *k) {
    uint64_t *words = (uint64_t *)k;
    uint64_t a0 = load_u64(p->source), a1 = load_u64(p->source + 8);
#ifdef METER_KEY_SOURCE_HOST
    words[0] = a0;
    words[1] = a1;
    words[2] = words[3] = 0;
    words[4] = pack_endpoints(0, 0, 0, p->address_bytes);
    return 0;
#else
    uint64_t b0 = load_u64(p->destination), b1 = load_u64(p->destination + 8);
    uint32_t source = 0, destination = 0, protocol = 0;
    int turned;

#ifdef METER_KEY_FIVE_TUPLE
    source = p->source_port;
    destination = p->destination_port;
    protocol = p->protocol;
#endif
    /* Any order does; this one compares words. */
    turned = a0 != b0 ? a0 > b0 : a1 != b1 ? a1 > b1 : source > destination;
    words[0] = turned ? b0 : a0;
    words[1] = turned ? b1 : a1;
    words[2] = turned ? a0 : b0;
    words[3] = turned ? a1 : b1;
    words[4] = pack_endpoints(turned ? destination : source, turned ? source : destination,
                              protocol, p->address_bytes);
    return turned;
#endif
}

static inline int same_key(const struct key *a, const struct key *b) {
    const uint64_t *x = (const uint64_t *)a, *y = (const uint64_t *)b;

    return !((x[0] ^ y[0]) | (x[2] ^ y[2]) | (x[4] ^ y[4])) &&
           (b->address_bytes == 4 || !((x[1] ^ y[1]) | (x[3] ^ y[3])));
}

/* --- fragments ------------------------------------------------------------------------------- */

/* Gives a fragment its datagram's ports; 0 where it is put aside. */
static inline int join_fragment(struct packet *p) {
    struct fragment name = {
        .identification = p->identification,
        .protocol = p->protocol,
        .address_bytes = p->address_bytes,
    };
    uint32_t ports = (uint32_t)p->source_port << 16 | p->destination_port, *known;

    if (METER_FRAGMENTS_ASIDE)
        return !p->later;
    memcpy(name.source, p->source, 16);
    memcpy(name.destination, p->destination, 16);
    if (!p->later) {
        bpf_map_update_elem(&fragments, &name, &ports, BPF_ANY);
        return 1;
    }
    known = bpf_map_lookup_elem(&fragments, &name);
    if (!known)
        return 0;
    p->source_port = *known >> 16;
    p->destination_port = (uint16_t)*known;
    return 1;
}

/* --- locks ---------------------------------------------------------------------------------- */

/* Waits for a lock that another CPU holds. Global, so that the verifier follows the loop once. */
__attribute__((noinline)) int wait_for_lock(uint32_t *busy) {
    if (!busy)
        return 0;
#pragma clang loop unroll(disable)
    for (int i = 0; i < ATTEMPTS; i++)
        if (!__sync_val_compare_and_swap(busy, 0, 1))
            return 1;
    return 0;
}

/*
 * Locks a flow for this CPU. A lock of the kernel does not serve: maps that evict entries have
 * none, and calls are not allowed under it. Only the rare case makes a call: a return may cost 10
 * ns.
 */
static inline int acquire_lock(uint32_t *busy) {
    return !__sync_val_compare_and_swap(busy, 0, 1) || wait_for_lock(busy);
}

static inline void release_lock(uint32_t *busy) {
    if (options.locked == LOCKED_IN_ORDER) {
        __asm__ volatile("" : : : "memory");
        *(volatile uint32_t *)busy = 0;
    } else if (options.locked) {
        __sync_lock_test_and_set(busy, 0);
    }
}

#include "verdicts.h"
#if METER_SOURCES
#include "source_table.h"
#endif

/* --- verdicts -------------------------------------------------------------------------------- */

static inline void count_verdict(struct tally *t, const struct network_result *r) {
    if (r->verdict < 0)
        t->shunted++;
    else if (r->class < NETWORK_CLASSES)
        t->class[r->class]++;
    t->margin[r->margin < MARGINS ? r->margin : MARGINS - 1]++;
    count_rows(t, r);
}

/* Runs the network on the features of this CPU's event. Global, as what follows. */
__attribute__((noinline)) int classify(const struct flow *f, uint32_t user) {
    struct scratch *s = bpf_map_lookup_elem(&scratches, &user);
    struct event *e;
    uint32_t slot, of_user;
    void *model;
    const struct network *network;
    struct tally *tally;

    if (!f || !s)
        return 0;
    e = &s->event;
    slot = e->slot = slot_of(f->interface, f->vlan, &e->key);
    model = bpf_map_lookup_elem(&models, &slot);
    network = model ? bpf_map_lookup_elem(model, &zeroth) : NULL;
    of_user = user * SLOTS + slot;
    tally = bpf_map_lookup_elem(&tallies, &of_user);
    e->verdict = NO_MODEL;
    if (!network || !tally)
        return 0;
    network_inputs(e->features, s->inputs);
    network_run(network, s->inputs, &s->result);
    e->verdict = s->result.verdict;
    e->class = s->result.class;
    e->margin = s->result.margin;
    memcpy(e->score, s->result.score, sizeof e->score);
    memcpy(e->model, network->model, sizeof e->model);
    count_verdict(tally, &s->result);
    return 0;
}

/* Notes when a flow was decided, or began: nothing asks where no time decides it. */
static inline void note_time(struct flow *f, uint64_t now) {
#if METER_DECIDE_AFTER
    f->decided_time = now;
#else
    (void)f;
    __asm__ volatile("" : : "r"(now)); /* compilers pass a global function no more than it reads */
#endif
}

static inline uint64_t time_since(const struct flow *f, uint64_t now) {
#if METER_DECIDE_AFTER
    return now - f->decided_time;
#else
    return (void)f, now;
#endif
}

/* Puts a decision in force; 0 where it is not sure, and an earlier one of the flow was. */
static inline int put_in_force(struct flow *f, const struct event *e) {
    if (e->verdict < 0 && f->verdict >= 0)
        return 0;
    f->verdict = e->verdict;
    f->slot = (uint8_t)e->slot;
    f->class = (uint8_t)e->class;
    f->margin = e->margin;
    return 1;
}

/* The index of the policy for packets of a flow in its present state. */
static inline uint32_t policy_index(const struct flow *f) {
    if (f->verdict == NO_MODEL)
        return POLICY_UNDECIDED;
    return f->verdict < 0 ? POLICY_SHUNTED : (uint32_t)f->verdict;
}

/*
 * Decides a flow: its record, its verdict, the counters, and an event for user space. A global
 * function, so that the verifier follows it once. `k` is the canonical key.
 */
__attribute__((noinline)) int report(struct flow *f, const struct key *k, uint32_t why,
                                     uint64_t now, uint32_t user) {
    struct scratch *s = bpf_map_lookup_elem(&scratches, &user);
    struct counters *c = bpf_map_lookup_elem(&counted, &user);
    struct event *e;
    int fresh; /* whether packets came since the last decision */
    uint64_t new_packets;

    if (!f || !k || !s || !c || (f->decided_packets && !METER_DECIDE_AGAIN))
        return 0;
    fresh = f->packets != f->decided_packets;
    c->flows_decided += !f->decided_packets;
    new_packets = f->packets - f->decided_packets;
    f->decided_packets = f->packets;
    note_time(f, now);
    e = &s->event;
    memset(&e->verdict, 0, sizeof *e - offsetof(struct event, verdict));
    e->key = *k;
    if (f->turned)
        swap_endpoints(&e->key);
    e->why = why;
    e->new_packets = new_packets < UINT32_MAX ? (uint32_t)new_packets : UINT32_MAX;
    e->number = f->number;
    e->first = f->first;
    e->last = f->last;
    e->packets = f->packets;
    e->decided = s->clock;
    e->new_octets = f->new_octets;
    f->new_octets = 0;
    e->interface = f->interface;
    e->vlan = f->vlan;
    flow_registers(&f->state, e->registers);
    flow_features(&f->state, e->features);
#if METER_WINDOWS
    count_windows(&e->key, (struct window_counts *)(e->features + METER_FEATURES));
#endif
#if METER_SOURCES
    read_source(&e->key, now, user,
                (struct source_values *)(e->features + METER_FEATURES + METER_WINDOWS));
#endif
    classify(f, user);
    if (why < ENDS)
        c->decided[why]++;
    c->no_model += e->verdict == NO_MODEL;
    /* What was dropped is not metered: an end would prolong the verdict by itself. */
    if (put_in_force(f, e) && fresh)
        enact(f, k, policy_index(f), user);
    if (options.events && bpf_ringbuf_output(&events, e, sizeof *e, 0))
        c->events_lost++;
    return 0;
}

/* --- counting -------------------------------------------------------------------------------- */

#if METER_REGISTERS > 32
/* Global, so that the verifier follows so many branches once, and not once for each way to them. */
__attribute__((noinline)) int update_flow(struct flow_state *s, const struct packet *p, int forward,
                                          uint64_t time, uint64_t now) {
    /* What nothing reads the compiler would not pass, and the verifier wants all of them. */
    __asm__ volatile("" : "+r"(time), "+r"(now));
    if (s && p)
        flow_update(s, p, forward, time, now);
    return 0;
}
#else
#define update_flow flow_update /* a return may cost 10 ns */
#endif

static inline void decide_on_packet(struct flow *f, const struct key *k, const struct packet *p,
                                    int forward, uint64_t now) {
    int decided = f->decided_packets != 0;
    uint32_t why;

    if (METER_ENDS_FIN && p->tcp_flags & FLAG_FIN)
        f->fins |= forward ? 1 : 2;
    if (METER_ENDS_RST && p->tcp_flags & FLAG_RST) {
        f->fins = CLOSED;
        why = BY_RST;
    } else if (f->fins == CLOSED) {
        why = BY_FIN;
    } else if (flow_by_packets(f->packets, f->packets - f->decided_packets, decided)) {
        why = BY_PACKETS;
    } else if (flow_by_time(time_since(f, now), decided)) {
        why = BY_AFTER;
    } else {
        return;
    }
    report(f, k, why, now, PACKETS);
}

/* A packet that is counted. */
struct arrival {
    struct packet *packet;
    uint64_t now;
    uint32_t interface;
    uint16_t vlan;
    int turned;                  /* against the canonical direction */
    int allowed;                 /* its source may begin as many flows as it likes */
    const struct policy *policy; /* of its flow, once it was counted */
};

static inline void start_flow(struct flow *f, const struct arrival *a, struct counters *c) {
    f->verdict = NO_MODEL;
    memset(&f->first, 0, sizeof *f - offsetof(struct flow, first)); /* it stays taken */
    flow_start(&f->state);
    f->number = __sync_fetch_and_add(&numbers, 1);
    f->first = f->last = a->now;
    note_time(f, a->now);
    f->interface = a->interface;
    f->vlan = a->vlan;
    f->turned = a->turned;
    c->started++;
}

/* Ends a flow that timed out or closed before this packet, and starts the next in its place. */
static inline void restart_if_ended(struct flow *f, const struct key *k, const struct arrival *a,
                                    struct counters *c) {
    uint8_t flags = a->packet->tcp_flags;
    int opens = flags & FLAG_SYN && !(flags & FLAG_ACK);
    uint64_t now = a->now;

    if (now - f->last > METER_IDLE_TIMEOUT) {
        if (f->fins != CLOSED)
            report(f, k, BY_IDLE, f->last, PACKETS);
    } else if (f->fins == CLOSED) {
        if (!opens)
            return;
    } else if (reached(now - f->first, METER_ACTIVE_TIMEOUT)) {
        report(f, k, BY_ACTIVE, f->last, PACKETS);
    } else {
        return;
    }
    start_flow(f, a, c);
}

/*
 * The time of a packet that is counted; a clock costs more than what it takes to put one aside. The
 * coarse one moves with the kernel's ticks, and is called at the first packet of each.
 */
static inline uint64_t packet_time(const struct trailer *t, struct scratch *s) {
    if (options.clock == CLOCK_KERNEL)
        return bpf_ktime_get_ns() / METER_TICK_NS;
    if (options.clock == CLOCK_COARSE) {
        uint64_t tick = bpf_jiffies64();

        if (s->tick != tick) {
            uint64_t now = bpf_ktime_get_coarse_ns() / METER_TICK_NS;

            if (s->now != now) /* a tick is counted before its time is set */
                s->tick = tick;
            s->now = now;
        }
        return s->now;
    }
    return t->time; /* of a clock in user space */
}

enum entered { ENTERED, TABLE_FULL, CONTENDED, EXCESS };

/* Whether the source of a packet may begin a flow with it. */
static inline int admits_flow(const struct arrival *a) {
    const struct config *g = bpf_map_lookup_elem(&config, &zeroth);

    return !g || !g->flow_interval_ns || a->allowed || may_begin(a->packet, a->now * METER_TICK_NS);
}

#include "table.h"

/* Fills the metadata of a packet that a socket takes. */
static inline void fill_metadata(struct scratch *s, const struct flow *f, const struct key *k,
                                 const struct arrival *a) {
    struct handed *h = &s->handed;

    h->key = *k;
    if (f->turned)
        swap_endpoints(&h->key);
    h->number = f->number;
    h->packets = f->packets;
    h->verdict = f->verdict;
    h->class = f->class;
    h->margin = f->margin;
    h->vlan = a->vlan;
    h->slot = f->slot;
    h->reverse = a->turned != f->turned;
}

/* Counts a packet to its flow; the policy for it. */
static inline uint32_t count_packet(struct arrival *a, struct key *k, struct scratch *s,
                                    struct counters *c) {
    struct place at;
    struct flow *f;
    uint32_t verdict;

    switch (find_or_start_flow(a, k, s, c, &at)) {
    case TABLE_FULL:
        c->aside[ASIDE_CACHE_FULL]++;
        return POLICY_ASIDE;
    case CONTENDED:
        c->contended++;
        return POLICY_UNDECIDED;
    case EXCESS:
        c->excess++;
        return POLICY_EXCESS;
    case ENTERED:
        break;
    }
    f = at.flow;
    if (a->now < f->last) /* another CPU was ahead */
        a->now = f->last;
    restart_if_ended(f, k, a, c);
    f->last = a->now;
    if (options.clock == CLOCK_TRAILER)
        f->touched = ++touches;
    if (f->fins == CLOSED) {
        c->late++;
    } else {
        int forward = a->turned == f->turned;

#if METER_SOURCES
        if (!f->packets || (!forward && !f->state.answered)) {
            f->state.answered = !forward;
            count_source(k, f->turned, !forward, a->now);
        }
#endif
        update_flow(&f->state, a->packet, forward, a->now - f->first, a->now);
        f->packets++;
        f->new_octets += a->packet->ip_length;
        decide_on_packet(f, k, a->packet, forward, a->now);
    }
    verdict = policy_index(f);
    a->policy = bpf_map_lookup_elem(&policies, &verdict);
    if (a->policy && a->policy->action == ACT_SOCKET)
        fill_metadata(s, f, k, a);
    unlock_flow(&at);
    return verdict;
}

/* --- packets ---------------------------------------------------------------------------------- */

/* Bytes in which headers are looked for where a packet lies in pieces, or may be a tunnel. */
#define HEAD (METER_TUNNELS ? 2048 : 512)
#define SHORTEST 14 /* bytes of a header of Ethernet */

/* Reads a frame that is not a usual one. */
static inline enum aside read_frame(struct frame f, uint32_t length, struct arrival *a) {
    a->vlan = vlan_of(f);
    return parse_any(LINK_ETHERNET, &f, length, METER_TUNNELS, a->packet);
}

/* What is done with a packet. */
struct order {
    uint32_t action, argument;
};

enum { ACT_TAKEN = 1 << 16 }; /* a verdict took it away, and counted it; argument: by its rate */

/* Processes a packet: by a verdict that holds already, or else by the verdict of its flow. */
static inline struct order process_packet(struct arrival *a, enum aside reason,
                                          const struct trailer *t, struct scratch *s,
                                          struct counters *c) {
    struct packet *p = a->packet;
    const struct policy *policy;
    uint32_t index = POLICY_ASIDE;
    int judged = NOT_JUDGED;
    struct key k;

    c->packets++;
    c->bytes += t->length;
    if (reason == PACKET_OK)
        s->clock = packet_time(t, s);
    if (reason == PACKET_OK && p->fragmented && !join_fragment(p))
        reason = ASIDE_FRAGMENT;
    a->now = s->clock;
    a->turned = canonical_key(p, &k);
    a->allowed = 0;
    if (p->address_bytes && may_hold(USE_ANY, s->clock)) {
        judged = judge(p, &k, s->clock);
        if (judged == TAKEN_AWAY)
            return (struct order){ACT_TAKEN, s->action == ACT_LIMIT};
        a->allowed = judged == LET_PASS;
    }
    if (reason == PACKET_OK)
        index = count_packet(a, &k, s, c);
    else if (reason < ASIDE_REASONS)
        c->aside[reason]++;
    if (judged == LET_PASS)
        return (struct order){ACT_PASS, 0};
    if (judged == TREATED)
        return (struct order){s->action, s->argument};
    if (a->policy)
        return (struct order){a->policy->action, a->policy->argument};
    policy = bpf_map_lookup_elem(&policies, &index);
    if (policy && policy->action == ACT_SOCKET) {
        memset(&s->handed, 0, sizeof s->handed);
        s->handed.verdict = NO_MODEL;
        s->handed.vlan = a->vlan;
    }
    return policy ? (struct order){policy->action, policy->argument} : (struct order){ACT_PASS, 0};
}

/* Whether an order lets a packet pass unchanged. */
static inline int just_passes(struct order o, struct counters *c) {
    const struct config *g = bpf_map_lookup_elem(&config, &zeroth);

    if (o.action == ACT_PASS || o.action == ACT_LIMIT || o.action == ACT_ALLOW)
        return 1;
    if (g && g->dry_run && o.action != ACT_TAKEN) {
        c->spared++;
        return 1;
    }
    return 0;
}

/* The sample of a packet that is dropped; NULL where none is due, or there is no room. */
static inline struct sample *begin_sample(uint32_t interface, uint32_t length, struct order o,
                                          struct counters *c) {
    const struct config *g = bpf_map_lookup_elem(&config, &zeroth);
    struct sample *x;

    if (!g || !g->sample_one_in || bpf_get_prandom_u32() % g->sample_one_in)
        return NULL;
    x = bpf_ringbuf_reserve(&samples, sizeof *x, 0);
    if (!x) {
        c->samples_lost++;
        return NULL;
    }
    x->interface = interface;
    x->length = length;
    x->is_limited = o.action == ACT_TAKEN && o.argument;
    return x;
}

/* Compared again where it is used, so that the verifier still knows the limit there. */
static inline uint32_t sampled_bytes(uint32_t length) {
    __asm__ volatile("" : "+r"(length));
    return length < SAMPLED_BYTES ? length : SAMPLED_BYTES;
}

static inline void end_sample(struct sample *x, uint32_t captured) {
    x->captured = captured;
    if (captured)
        bpf_ringbuf_submit(x, 0);
    else
        bpf_ringbuf_discard(x, 0);
}

#include "hook_tc.h"
#include "hook_xdp.h"

/* --- ends ------------------------------------------------------------------------------------ */

SEC("xdp.frags")
int n3ic_end(struct xdp_md *ctx) {
    uint32_t user = SWEEP;
    struct scratch *s = bpf_map_lookup_elem(&scratches, &user);
    struct counters *c = bpf_map_lookup_elem(&counted, &user);
    struct ends head;
    uint32_t ended = 0;

    if (!s || !c || bpf_xdp_load_bytes(ctx, 0, &head, sizeof head))
        return 0;
#pragma clang loop unroll(disable)
    for (uint32_t i = 0; i < ENDS_AT_ONCE; i++) {
        struct place at;
        struct key k;

        if (i >= head.count || bpf_xdp_load_bytes(ctx, sizeof head + i * sizeof k, &k, sizeof k))
            break;
        if (!find_flow(&k, s, &at))
            continue;
        if (head.why == BY_IDLE &&
            (head.now < at.flow->last || head.now - at.flow->last <= METER_IDLE_TIMEOUT)) {
            unlock_flow(&at);
            continue;
        }
        s->clock = head.why == BY_IDLE ? head.now : at.flow->last;
        if (at.flow->fins != CLOSED)
            report(at.flow, &k, head.why, at.flow->last, SWEEP);
        if (remove_flow(&at, &k))
            c->removed++;
        ended++;
    }
    return ended;
}

/* For the other end of a veth pair, which sends in the driver only where a program takes. */
SEC("xdp.frags")
int n3ic_pass(struct xdp_md *ctx) {
    return XDP_PASS;
}

char n3ic_license[] SEC("license") = "Apache-2.0";
