// SPDX-License-Identifier: Apache-2.0
/* What is done with packets by verdict; the words are those of n3ic xdp load --policy. */
#ifndef N3IC_POLICY_H
#define N3IC_POLICY_H

#include "bnn.h"

#include <rte_ring.h>

enum action { ACTION_PASS, ACTION_DROP, ACTION_INTERFACE, ACTION_MARK, ACTION_RING, ACTIONS };

/* Verdicts behind the classes, which are 0 and up. */
enum { SHUNTED, UNDECIDED, ASIDE, OTHER_VERDICTS };

struct rule {
    enum action action;
    uint32_t argument; /* port or mark */
    struct rte_ring *ring;
};

struct policy {
    const struct bnn *net;
    uint32_t verdicts; /* classes and others */
    struct rule *rules;
};

/* A policy that lets all pass, then what was typed. A bad one ends the program. */
void policy_open(struct policy *p, const struct bnn *net, const char *const *typed, unsigned n);
void policy_close(struct policy *p);

/* The number of the other verdicts is that of the classes and theirs. */
static inline uint32_t verdict_number(const struct policy *p, uint32_t other) {
    return p->verdicts - OTHER_VERDICTS + other;
}

const char *verdict_name(const struct policy *p, uint32_t verdict);
const char *action_name(enum action action);

/* The port of a name; a bad one ends the program. */
uint16_t find_port(const char *name);

#endif
