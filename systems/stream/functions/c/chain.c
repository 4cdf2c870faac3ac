// SPDX-License-Identifier: Apache-2.0
/* Where packets go between ports and functions; see manager.h. */
#include "manager.h"

#include <rte_ethdev.h>
#include <rte_mbuf_dyn.h>

static void send_burst(struct device *d) {
    const uint16_t sent = d->n_out ? rte_eth_tx_burst(d->number, 0, d->out, d->n_out) : 0;
    d->sent += sent;
    d->full += d->n_out - sent;
    rte_pktmbuf_free_bulk(d->out + sent, d->n_out - sent);
    d->n_out = 0;
}

void chain_send(struct manager *m, struct rte_mbuf *packet, struct hop to) {
    while (to.kind == TO_FUNCTION) {
        struct function *f = &m->functions[to.index];
        if (f->state == ATTACHED) {
            const uint64_t time = *RTE_MBUF_DYNFIELD(packet, m->time_at, uint64_t *);
            if (!function_give(f, packet, m->packets.base, time)) {
                rte_pktmbuf_free(packet);
            }
            return;
        }
        if (!f->settings->bypassed) {
            f->tally.absent++;
            rte_pktmbuf_free(packet);
            return;
        }
        f->tally.bypassed++;
        to = f->settings->next; /* this ends, as a chain has no cycles */
    }
    if (to.kind == TO_END) {
        m->ended++;
        rte_pktmbuf_free(packet);
        return;
    }
    struct device *d = &m->devices[to.index];
    d->out[d->n_out++] = packet;
    if (d->n_out == BURST) {
        send_burst(d);
    }
}

/* The fewest free tickets of the running ones of these functions; a burst if losses are allowed. */
static unsigned free_tickets(const struct manager *m, uint32_t functions) {
    unsigned least = BURST;
    for (unsigned i = 0; m->settings.until_end && i < m->settings.n_functions; i++) {
        const struct function *f = &m->functions[i];
        if ((functions >> i & 1) && f->state == ATTACHED) {
            least = RTE_MIN(least, f->n_free);
        }
    }
    return least;
}

unsigned chain_room(const struct manager *m) {
    const unsigned least = free_tickets(m, UINT32_MAX), copies = m->settings.n_entries;
    return m->settings.until_end ? RTE_MIN(least / copies, (unsigned)BURST) : least;
}

static void apply_action(struct manager *m, struct function *f, struct rte_mbuf *packet,
                         uint8_t action) {
    const unsigned route = action - FIRST_ROUTE;
    if (action == PASS) {
        f->tally.passed++;
        chain_send(m, packet, f->settings->next);
    } else if (action >= FIRST_ROUTE && route < f->settings->n_routes) {
        f->tally.routed[route]++;
        chain_send(m, packet, f->settings->routes[route]);
    } else {
        *(action == DROP ? &f->tally.dropped : &f->tally.no_such_action) += 1;
        rte_pktmbuf_free(packet);
    }
}

static unsigned collect_packets(struct manager *m, struct function *f, unsigned most) {
    struct rte_mbuf *packets[BURST];
    uint8_t actions[BURST];
    const unsigned n = function_take(f, most, packets, actions);
    for (unsigned i = 0; i < n; i++) {
        rte_prefetch0(packets[i]);
    }
    for (unsigned i = 0; i < n; i++) {
        apply_action(m, f, packets[i], actions[i]);
    }
    return n;
}

/* Takes what a process gave back before it ended, as far as there is room, then frees the rest. */
static unsigned finish_function(struct manager *m, struct function *f) {
    unsigned n = 0;
    while (function_pending(f)) {
        const unsigned most = free_tickets(m, f->downstream);
        if (!most) {
            return n;
        }
        n += collect_packets(m, f, most);
        f->left -= RTE_MIN(most, f->left);
    }
    function_reclaim(f);
    return n;
}

unsigned chain_collect(struct manager *m) {
    unsigned n = 0;
    for (unsigned i = 0; i < m->settings.n_functions; i++) {
        struct function *f = &m->functions[i];
        if (f->state == GONE) {
            n += finish_function(m, f);
        } else if (f->state != ABSENT) {
            const unsigned most = free_tickets(m, f->downstream);
            n += most ? collect_packets(m, f, most) : 0;
        }
    }
    return n;
}

void chain_flush(struct manager *m) {
    for (unsigned i = 0; i < m->settings.n_functions; i++) {
        if (m->functions[i].n_waiting) {
            function_flush(&m->functions[i]);
        }
    }
    for (unsigned i = 0; i < m->settings.n_ports; i++) {
        send_burst(&m->devices[i]);
    }
}

void chain_function_ended(struct manager *m, struct function *f) {
    function_ended(f);
    finish_function(m, f);
}
