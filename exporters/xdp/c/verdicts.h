// SPDX-License-Identifier: Apache-2.0
/*
 * Verdicts that outlive flows: looked up before the flow table, put there by decisions.
 *
 * Rules and layouts are those of state.h; tests/support/verdict_model.py says them again in
 * Python. Needs acquire_lock of meter.c.
 */
#ifndef N3IC_VERDICTS_H
#define N3IC_VERDICTS_H

#include "maps.h"

#define SECOND_NS 1000000000ull
#define BETWEEN_TIDIES (SECOND_NS / 10 / METER_TICK_NS)
#define NESTED                                                                                     \
    4           /* prefixes of one address that may have expired before one that holds is missed   \
                 */
#define TRIES 8 /* at a word that other CPUs change, too */

enum judged { NOT_JUDGED, LET_PASS, TAKEN_AWAY, TREATED };

/* Whether a map may hold a verdict now. */
static inline int may_hold(uint32_t which, uint64_t now) {
    const uint64_t *until = bpf_map_lookup_elem(&uses, &which);

    return until && *until > now;
}

/* Says that a map holds a verdict until then. */
static inline void raise_use(uint32_t which, uint64_t until) {
    uint64_t *at = bpf_map_lookup_elem(&uses, &which);

#pragma clang loop unroll(disable)
    for (int i = 0; at && i < TRIES; i++) {
        uint64_t old = *(volatile uint64_t *)at;

        if (old >= until || __sync_val_compare_and_swap(at, old, until) == old)
            break;
    }
}

/*
 * Takes a token of a bucket that is full at `*full`: each is worth an interval, and the bucket
 * holds one more than `burst` is worth of. 0 where there is none.
 */
static inline int take_token(uint64_t *full, uint64_t now, uint64_t interval, uint64_t burst) {
    uint64_t old = *(volatile uint64_t *)full, from = old > now ? old : now;

    if (from - now > burst)
        return 0;
    __sync_val_compare_and_swap(full, old, from + interval); /* else another CPU took one, too */
    return 1;
}

/* An address of which the first bits count. */
static inline void fill_subject(struct subject *x, const uint8_t *address, uint32_t address_bytes,
                                uint32_t bits) {
    const uint64_t *from = (const uint64_t *)address;
    uint64_t *to = (uint64_t *)x->address, first = from[0], second = from[1];

    if (address_bytes == 4 && bits < 32)
        first &= __builtin_bswap32(bits ? ~0u << (32 - bits) : 0);
    if (address_bytes == 16 && bits < 128) {
        uint32_t left = bits > 64 ? bits - 64 : 0;

        second &= __builtin_bswap64(left ? ~0ull << (64 - left) : 0);
        if (bits < 64)
            first &= __builtin_bswap64(bits ? ~0ull << (64 - bits) : 0);
    }
    to[0] = first;
    to[1] = second;
    x->bits = bits;
    x->address_bytes = address_bytes;
}

/* The longest prefix of an address in a trie whose verdict holds. */
static inline struct verdict *longest_prefix(void *trie, const uint8_t *address,
                                             uint32_t address_bytes, uint64_t now) {
    struct prefix x = {.bits = PREFIX_FAMILY + 8 * address_bytes, .family = address_bytes};

    memcpy(x.address, address, 16);
#pragma clang loop unroll(disable)
    for (int i = 0; i < NESTED; i++) {
        struct verdict *v = bpf_map_lookup_elem(trie, &x);

        if (!v || v->until > now)
            return v;
        if (!v->bits)
            break;
        x.bits = PREFIX_FAMILY + v->bits - 1;
    }
    return NULL;
}

static inline int holds_now(const struct verdict *v, uint64_t now) {
    return v && v->until > now;
}

/* The verdict by a decision that holds for a source: that of its address, or of its prefix. */
static inline struct verdict *decided_verdict(const struct packet *p, const struct config *g,
                                              uint64_t now) {
    struct verdict *v = NULL;
    struct subject x;

    if (may_hold(USE_HOSTS, now)) {
        fill_subject(&x, p->source, p->address_bytes, 8 * p->address_bytes);
        v = bpf_map_lookup_elem(&hosts, &x);
    }
    if (!holds_now(v, now) && may_hold(USE_PREFIXES, now)) {
        fill_subject(&x, p->source, p->address_bytes, g->prefix_bits[p->address_bytes != 4]);
        v = bpf_map_lookup_elem(&hosts, &x);
    }
    return holds_now(v, now) ? v : NULL;
}

/* Does with a packet as the verdict says that holds for it. */
static inline enum judged apply_verdict(struct verdict *v, const struct config *g,
                                        struct counters *c, struct scratch *s, uint64_t now) {
    __sync_fetch_and_add(&v->packets, 1);
    if (v->action == ACT_PASS)
        return LET_PASS;
    if (v->action == ACT_LIMIT &&
        take_token(&v->full_ns, now * METER_TICK_NS, v->argument, SECOND_NS - v->argument))
        return NOT_JUDGED;
    s->action = v->action;
    if (v->action != ACT_DROP && v->action != ACT_LIMIT) {
        s->argument = v->argument;
        return TREATED;
    }
    if (g->dry_run) {
        c->spared++;
        return NOT_JUDGED;
    }
    if (v->action == ACT_DROP)
        c->blocked++;
    else
        c->limited++;
    return TAKEN_AWAY;
}

/*
 * Looks for the verdict that holds for a packet, and says what becomes of it. A global function, so
 * that the verifier follows it once. `k` is the canonical key.
 */
__attribute__((noinline)) int judge(const struct packet *p, const struct key *k, uint64_t now) {
    const uint32_t packets = PACKETS, first = 0;
    struct scratch *s = bpf_map_lookup_elem(&scratches, &packets);
    struct counters *c = bpf_map_lookup_elem(&counted, &packets);
    const struct config *g = bpf_map_lookup_elem(&config, &first);
    struct verdict *tuple = NULL, *v = NULL;

    if (!p || !k || !s || !c || !g)
        return NOT_JUDGED;
    if (may_hold(USE_TUPLES, now)) {
        struct key own = *k; /* kernels before 6.2 look up what lies on the stack */

        tuple = bpf_map_lookup_elem(&tuples, &own);
        if (!holds_now(tuple, now))
            tuple = NULL;
    }
    if (tuple && tuple->action == ACT_ALLOW)
        v = tuple;
    else if (may_hold(USE_ALLOWED, now))
        v = longest_prefix(&allowed, p->source, p->address_bytes, now);
    if (v && v->action == ACT_SHARED)
        v = NULL;
    if (v) {
        __sync_fetch_and_add(&v->packets, 1);
        c->allowed++;
        return LET_PASS;
    }
    if (may_hold(USE_LISTED, now))
        v = longest_prefix(&listed, p->source, p->address_bytes, now);
    if (!v)
        v = tuple ? tuple : decided_verdict(p, g, now);
    return v ? apply_verdict(v, g, c, s, now) : NOT_JUDGED;
}

/* --- what decisions put there ---------------------------------------------------------------- */

struct tidying {
    uint64_t now, weight;
};

/* How long a verdict on a source is remembered after its end: as long as it held. */
static inline int is_remembered(const struct verdict *v, uint64_t now) {
    return now < v->until || now - v->until < v->until - v->since;
}

static int forget_expired_host(void *map, const struct subject *key, struct verdict *v,
                               struct tidying *t) {
    if (v->until > t->now)
        t->weight += v->weight;
    else if (!is_remembered(v, t->now))
        bpf_map_delete_elem(map, key);
    else
        v->weight = 0;
    return 0;
}

/*
 * Forgets what has expired and is not remembered, and counts the blocked hosts again: the kernel
 * and user space take verdicts out without a word.
 */
static inline void forget_expired_hosts(struct guard *g, uint64_t now) {
    struct tidying t = {.now = now};

    bpf_for_each_map_elem(&hosts, forget_expired_host, &t, 0);
    g->blocked = t.weight;
    g->tidied = now;
}

/* Hosts that a prefix keeps away: addresses of IPv4, and what IPv6 gives to one site's link. */
static inline uint64_t weight_of(uint32_t action, uint32_t address_bytes, uint32_t bits) {
    uint32_t whole = address_bytes == 4 ? 32 : 64;

    if (action == ACT_PASS || action == ACT_MARK || action == ACT_CPU || action == ACT_MIRROR)
        return 0;
    return bits < whole ? 1ull << ((whole - bits) & 63) : 1;
}

/*
 * How long a verdict on a source holds. Where a policy has a longest time, one that follows within
 * as long as the last one held takes twice as long, and one that renews it as long.
 */
static inline uint64_t source_ttl(const struct policy *p, const struct verdict *old,
                                  struct verdict *v) {
    uint64_t held, ttl = p->ttl;

    if (!old || !p->longest || !is_remembered(old, v->since))
        return ttl;
    held = old->until - old->since;
    v->repeats = old->repeats;
    if (old->until <= v->since) {
        v->repeats++;
        held *= 2;
    }
    ttl = held > ttl ? held : ttl;
    return ttl < p->longest ? ttl : p->longest;
}

/* Puts the verdict in the scratch to a source; whoever calls holds the guard. */
static inline int store_source_verdict(struct guard *g, const struct config *limits,
                                       const struct policy *p, const struct subject *x,
                                       struct verdict *v) {
    uint64_t now = v->since, most = limits->max_blocked, old_weight;
    const struct verdict *old = bpf_map_lookup_elem(&hosts, x);

    v->until = now + source_ttl(p, old, v);
    old_weight = old ? old->weight : 0;
    if (v->weight && g->blocked - old_weight + v->weight > most &&
        now >= g->tidied + BETWEEN_TIDIES) {
        forget_expired_hosts(g, now);
        old = bpf_map_lookup_elem(&hosts, x);
        old_weight = old ? old->weight : 0;
    }
    if (v->weight && g->blocked - old_weight + v->weight > most)
        return 0;
    if (holds_now(old, now))
        v->packets = old->packets;
    if (bpf_map_update_elem(&hosts, x, v, BPF_ANY))
        return 0;
    g->blocked += v->weight - old_weight;
    return 1;
}

/*
 * Whether so many flows of a source were decided so as the policy asks for, with this one. A flow
 * counts once as long as its source's strikes live: it keeps their round.
 */
static inline int often_enough(struct flow *f, const struct subject *x, const struct policy *p,
                               uint64_t now) {
    uint8_t *struck = p->scope == SCOPE_PREFIX ? &f->struck[1] : &f->struck[0];
    struct strikes first = {.until = now + p->ttl, .flows = 1}, *known;

    if (p->times < 2)
        return 1;
    known = bpf_map_lookup_elem(&strikes, x);
    if (known && known->until > now) {
        if (*struck == known->round)
            return known->flows >= p->times;
        *struck = (uint8_t)known->round;
        return __sync_fetch_and_add(&known->flows, 1) + 1ull >= p->times;
    }
    first.round = (known ? known->round : *struck) % 255 + 1;
    *struck = (uint8_t)first.round;
    bpf_map_update_elem(&strikes, x, &first, BPF_ANY);
    return 0;
}

/* Puts the verdict of a decided flow into the map of its policy's scope. `k` is canonical. */
__attribute__((noinline)) int enact(struct flow *f, const struct key *k, uint32_t index,
                                    uint32_t user) {
    const uint32_t first = 0;
    struct scratch *s = bpf_map_lookup_elem(&scratches, &user);
    struct counters *c = bpf_map_lookup_elem(&counted, &user);
    const struct policy *p = bpf_map_lookup_elem(&policies, &index);
    const struct config *limits = bpf_map_lookup_elem(&config, &first);
    struct guard *g = bpf_map_lookup_elem(&guards, &first);
    const struct key *e;
    struct verdict *v;
    struct subject x;
    uint32_t which = USE_HOSTS, scope;
    int done = 0;

    if (!f || !k || !s || !c || !p || !limits || !g || p->scope == SCOPE_NONE)
        return 0;
    e = &s->event.key;
    v = &s->verdict;
    v->since = s->clock;
    v->until = s->clock + p->ttl;
    v->packets = v->full_ns = v->weight = 0;
    v->flow_packets = s->event.packets;
    v->margin = s->event.margin;
    v->repeats = 0;
    v->action = p->action;
    v->argument = p->argument;
    v->by = s->event.verdict;
    v->bits = 8 * e->address_bytes;
    scope = p->scope;
    if (scope != SCOPE_FLOW && may_hold(USE_ALLOWED, v->since)) {
        const struct verdict *given =
            longest_prefix(&allowed, e->source, e->address_bytes, v->since);

        if (given && given->action != ACT_SHARED)
            return 0;
        if (given)
            scope = SCOPE_FLOW;
    }
    if (scope == SCOPE_FLOW) {
        struct key own = *k; /* as in judge */
        const struct verdict *old = bpf_map_lookup_elem(&tuples, &own);

        if (holds_now(old, v->since)) {
            if (old->by == BY_OPERATOR)
                return 0;
            v->packets = old->packets;
        }
        which = USE_TUPLES;
        done = bpf_map_update_elem(&tuples, &own, v, BPF_ANY) == 0;
    } else {
        if (scope == SCOPE_PREFIX) {
            which = USE_PREFIXES;
            v->bits = limits->prefix_bits[e->address_bytes != 4];
        }
        fill_subject(&x, e->source, e->address_bytes, v->bits);
        if (s->event.packets < p->from || !often_enough(f, &x, p, v->since))
            return 0;
        v->weight = weight_of(v->action, e->address_bytes, v->bits);
        if (acquire_lock(&g->busy)) {
            done = store_source_verdict(g, limits, p, &x, v);
            __sync_lock_test_and_set(&g->busy, 0);
        }
    }
    if (!done) {
        c->refused++;
        return 0;
    }
    c->verdicts++;
    raise_use(which, v->until);
    raise_use(USE_ANY, v->until);
    return 0;
}

/* --- new flows of a source ------------------------------------------------------------------- */

/* Whether a source may begin a flow now: an address of IPv4, or 64 bits of one of IPv6. */
__attribute__((noinline)) int may_begin(const struct packet *p, uint64_t now_ns) {
    const uint32_t first = 0;
    const struct config *g = bpf_map_lookup_elem(&config, &first);
    struct subject x;
    uint64_t *full, next;

    if (!p || !g || !g->flow_interval_ns)
        return 1;
    fill_subject(&x, p->source, p->address_bytes, p->address_bytes == 4 ? 32 : 64);
    full = bpf_map_lookup_elem(&sources, &x);
    if (full)
        return take_token(full, now_ns, g->flow_interval_ns, g->flow_burst_ns);
    next = now_ns + g->flow_interval_ns;
    bpf_map_update_elem(&sources, &x, &next, BPF_NOEXIST);
    return 1;
}

#endif
