// SPDX-License-Identifier: Apache-2.0
/*
 * Exact counters of the flows that were decided last, by parts of their keys.
 *
 * A window has a group for each key that its flows have, found by a hash. A flow that enters is
 * added to its group, and the one that leaves is taken off, whose group the window's ring names.
 * Keys are compared whole, and a window of n flows has room for n groups: it is never full. Who
 * chooses keys so that their hashes agree needs the secret, and gains a walk over n groups at most.
 */
#ifndef N3IC_WINDOWS_H
#define N3IC_WINDOWS_H

/* A key in two words: those of IPv4 are addresses and ends, those of IPv6 numbers and ends. */
struct parts {
    uint64_t addresses, ends;
};

/* The flows of a window that share a key. Group 0 is none, in links too. */
struct group {
    struct parts key;
    uint16_t flows, next, before;
    uint16_t head; /* of its hash */
};

struct window {
    uint16_t at; /* place in the ring of the flow that leaves next */
    uint16_t begun, free;
    uint16_t first[WINDOW_HEADS]; /* group of each hash */
    uint16_t ring[WINDOW_GROUPS]; /* groups of the flows */
    struct group group[WINDOW_GROUPS];
};

static inline struct group *group_at(struct window *w, uint32_t n) {
    return &w->group[n & (WINDOW_GROUPS - 1)];
}

static inline uint32_t head_of(struct parts key) {
    uint64_t hash = key.addresses * (options.secret[0] | 1) + key.ends * (options.secret[1] | 1);

    return hash / (~0ull / WINDOW_HEADS + 1);
}

/* Takes a flow off its group, and the group away with its last flow. */
static inline void leave_group(struct window *w, uint32_t n) {
    struct group *g = group_at(w, n);

    if (--g->flows)
        return;
    if (g->before)
        group_at(w, g->before)->next = g->next;
    else
        w->first[g->head & (WINDOW_HEADS - 1)] = g->next;
    if (g->next)
        group_at(w, g->next)->before = g->before;
    g->next = w->free;
    w->free = n;
}

/*
 * The group of a key; 0 where there is none, which its own group 0 ends the walk with. One jump,
 * and that back, so that the verifier has few others to return to.
 */
static inline uint32_t group_of(struct window *w, uint32_t first, struct parts key,
                                uint32_t flows) {
    uint32_t n, next = first, steps = 0;
    uint64_t other;

    w->group[0].key = key;
    NETWORK_OPAQUE(next);
#pragma clang loop unroll(disable)
    do {
        const struct group *g = group_at(w, next);

        n = next;
        if (steps++ == flows)
            break;
        next = g->next;
        other = (g->key.addresses ^ key.addresses) | (g->key.ends ^ key.ends);
        NETWORK_OPAQUE(other);
    } while (other);
    return n;
}

/* Adds a flow to the group of its key; the group. */
static inline uint32_t join_group(struct window *w, struct parts key, uint32_t flows) {
    uint32_t head = head_of(key);
    uint16_t *first = &w->first[head];
    uint32_t n = group_of(w, *first, key, flows);
    struct group *g = group_at(w, n);

    if (n) {
        g->flows++;
        return n;
    }
    n = w->free;
    if (n)
        w->free = group_at(w, n)->next;
    else
        n = ++w->begun;
    g = group_at(w, n);
    *g = (struct group){key, 1, *first, 0, head};
    if (*first)
        group_at(w, *first)->before = n;
    *first = n;
    return n;
}

/* Lets the oldest of `flows` flows leave; the place in the ring of the one that enters. */
static inline uint16_t *evict_oldest(struct window *w, uint32_t flows) {
    uint32_t at = w->at;
    uint16_t *place = &w->ring[at & (WINDOW_GROUPS - 1)];

    w->at = at + 1 < flows ? at + 1 : 0;
    if (*place)
        leave_group(w, *place);
    return place;
}

/* How many of the last `flows` flows have a key, with the one that enters. */
static inline uint32_t enter_window(struct window *w, uint32_t flows, uint64_t addresses,
                                    uint64_t ends) {
    uint16_t *place = evict_oldest(w, flows);
    uint32_t n = join_group(w, (struct parts){addresses, ends}, flows);

    *place = n;
    return group_at(w, n)->flows;
}

/* A number that stands for an address as long as one of the last `flows` flows has it. */
static inline uint64_t number_of(struct window *w, uint32_t flows, int numbered,
                                 const uint8_t *address) {
    const uint64_t *words = (const uint64_t *)address;
    uint16_t *place = evict_oldest(w, flows);

    return *place = numbered ? join_group(w, (struct parts){words[0], words[1]}, flows) : 0;
}

#endif
