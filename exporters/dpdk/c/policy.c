// SPDX-License-Identifier: Apache-2.0
/* See policy.h. */
#include "policy.h"

#include "meter.h"
#include "settings.h"

#include <errno.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <stdlib.h>
#include <string.h>

enum { RING_PACKETS = 1024 };

/* Whether packets come after a decision; a schedule decides again at the end. */
static const int decides_within = METER_DECIDE_PACKETS || METER_DECIDE_AFTER || METER_DECIDE_AGAIN;

static const char *const other_names[OTHER_VERDICTS] = {"shunt", "undecided", "aside"};
static const char *const action_names[ACTIONS] = {"pass", "drop", "interface", "mark", "ring"};
/* Of the XDP target, whose kernel has what they need. */
static const char *const elsewhere[] = {"block", "rate-limit", "allow", "cpu", "mirror", "socket"};

const char *action_name(enum action action) {
    return action_names[action];
}

const char *verdict_name(const struct policy *p, uint32_t verdict) {
    const uint32_t classes = p->verdicts - OTHER_VERDICTS;
    return verdict < classes ? bnn_class_name(p->net, verdict) : other_names[verdict - classes];
}

uint16_t find_port(const char *name) {
    uint16_t port, number;
    if (rte_eth_dev_get_port_by_name(name, &port) == 0) {
        return port;
    }
    char *end = NULL;
    number = (uint16_t)strtoul(name, &end, 10);
    if (*name && !*end && strlen(name) < 5 && rte_eth_dev_is_valid_port(number)) {
        return number;
    }
    fail(EXIT_USAGE, "%s: no port has that name or number", name);
}

/* The longest name counts, because a class may be named "a=b". */
static uint32_t parse_verdict(const struct policy *p, const char *text, size_t *length) {
    uint32_t verdict = p->verdicts;
    *length = 0;
    for (uint32_t v = 0; v < p->verdicts; v++) {
        const char *name = verdict_name(p, v);
        const size_t n = strlen(name);
        if (strncmp(text, name, n) == 0 && text[n] == '=' && n >= *length) {
            verdict = v;
            *length = n;
        }
    }
    if (verdict == p->verdicts) {
        fail(EXIT_USAGE,
             "policy %s: expected VERDICT=ACTION; verdicts are the classes, shunt, undecided and "
             "aside",
             text);
    }
    return verdict;
}

static struct rte_ring *find_or_create_ring(const char *text, const char *name) {
    struct rte_ring *ring = rte_ring_lookup(name);
    if (!ring) {
        ring = rte_ring_create(name, RING_PACKETS, SOCKET_ID_ANY, RING_F_SC_DEQ);
    }
    if (!ring) {
        fail(EXIT_USAGE, "policy %s: the ring cannot be created: %s", text,
             rte_strerror(rte_errno));
    }
    return ring;
}

static struct rule parse_rule(const char *text, const char *typed) {
    const char *colon = strchr(typed, ':');
    const size_t length = colon ? (size_t)(colon - typed) : strlen(typed);
    const char *argument = colon ? colon + 1 : "";
    struct rule rule = {.action = ACTIONS};
    for (unsigned a = 0; a < ACTIONS; a++) {
        if (strlen(action_names[a]) == length && memcmp(action_names[a], typed, length) == 0) {
            rule.action = a;
        }
    }
    for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++) {
        if (strlen(elsewhere[i]) == length && memcmp(elsewhere[i], typed, length) == 0) {
            fail(EXIT_USAGE, "policy %s: %s is an action of the XDP target alone", text,
                 elsewhere[i]);
        }
    }
    if (rule.action == ACTIONS) {
        fail(EXIT_USAGE,
             "policy %s: unknown action; expected pass, drop, interface:NAME, mark:N or "
             "ring:NAME",
             text);
    }
    if (!*argument != (rule.action == ACTION_PASS || rule.action == ACTION_DROP)) {
        fail(EXIT_USAGE, "policy %s: %s %s argument", text, action_names[rule.action],
             *argument ? "takes no" : "needs an");
    }
    if (rule.action == ACTION_INTERFACE) {
        rule.argument = find_port(argument);
    } else if (rule.action == ACTION_RING) {
        rule.ring = find_or_create_ring(text, argument);
    } else if (rule.action == ACTION_MARK) {
        char *end = NULL;
        errno = 0;
        const unsigned long long mark = strtoull(argument, &end, 0);
        if (errno || *end || mark > UINT32_MAX) {
            fail(EXIT_USAGE, "policy %s: a mark is a number below 4294967296", text);
        }
        rule.argument = (uint32_t)mark;
    }
    return rule;
}

void policy_open(struct policy *p, const struct bnn *net, const char *const *typed, unsigned n) {
    p->net = net;
    p->verdicts = bnn_classes(net) + OTHER_VERDICTS;
    p->rules = calloc(p->verdicts, sizeof *p->rules);
    if (!p->rules) {
        fail(EXIT_FAILED, "no memory for the policy");
    }
    for (unsigned i = 0; i < n; i++) {
        size_t length;
        const uint32_t verdict = parse_verdict(p, typed[i], &length);
        if (verdict == verdict_number(p, SHUNTED) && !bnn_shunt(net)) {
            fail(EXIT_USAGE, "policy %s: the model shunts nothing", typed[i]);
        }
        if (!decides_within && verdict < verdict_number(p, UNDECIDED)) {
            fail(EXIT_USAGE,
                 "policy %s: the meter decides only at the end of a flow, when no "
                 "packet is left to act on",
                 typed[i]);
        }
        p->rules[verdict] = parse_rule(typed[i], typed[i] + length + 1);
    }
}

void policy_close(struct policy *p) {
    for (uint32_t v = 0; v < p->verdicts; v++) {
        struct rte_ring *ring = p->rules[v].ring;
        for (uint32_t other = v; ring && other < p->verdicts; other++) {
            if (p->rules[other].ring == ring) {
                p->rules[other].ring = NULL; /* verdicts may share one */
            }
        }
        rte_ring_free(ring);
    }
    free(p->rules);
}
