// SPDX-License-Identifier: Apache-2.0
/* See statistics.h. */
#include "statistics.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *const lost_names[LOST_REASONS] = {"port_full", "ring_full", "worker_full",
                                                     "decision_not_written", "end_not_received"};
static const char *const counter_names[COUNT_ASIDE] = {
    "packets", "late", "evicted", "no_memory", "back", "ahead", "steps", "tunnelled", "forgotten"};

static uint64_t read_counter(const uint64_t *counter) {
    return __atomic_load_n(counter, __ATOMIC_RELAXED);
}

/* Lcores that work, and the one that distributes. */
static unsigned count_lcores(const struct shared *all) {
    return all->ports->workers + (all->ports->distribution == BY_SOFTWARE);
}

/* The sum of a counter that lies at the same place in every tally. */
#define SUM(all, counter)                                                                          \
    ({                                                                                             \
        uint64_t sum = 0;                                                                          \
        for (unsigned w = 0; w < count_lcores(all); w++) {                                         \
            sum += read_counter(&(all)->workers[w].tally.counter);                                 \
        }                                                                                          \
        sum;                                                                                       \
    })

static uint64_t read_meter(const struct shared *all, unsigned counter) {
    return SUM(all, meter[counter]);
}

uint64_t packets_received(const struct shared *all) {
    return SUM(all, received);
}

static void append_string(FILE *to, const char *text) {
    putc('"', to);
    for (; *text; text++) {
        const unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\') {
            fprintf(to, "\\%c", c);
        } else if (c < 0x20) {
            fprintf(to, "\\u%04x", c);
        } else {
            putc(c, to);
        }
    }
    putc('"', to);
}

static void append_member(FILE *to, int *first, const char *name, uint64_t value) {
    fputs(*first ? "" : ", ", to);
    *first = 0;
    append_string(to, name);
    fprintf(to, ": %" PRIu64, value);
}

static void append_ports(struct shared *all, FILE *to) {
    for (unsigned i = 0; i < all->ports->n; i++) {
        struct port *p = &all->ports->port[i];
        uint64_t values[LOSSES];
        losses_read(&p->losses, values);
        int first = 1;
        fputs(i ? ",\n  {\"name\": " : "\n  {\"name\": ", to);
        append_string(to, p->name);
        fputs(", \"driver\": ", to);
        append_string(to, p->losses.driver);
        fputs(", \"interface\": ", to);
        append_string(to, p->losses.interface);
        fputs(", \"losses\": {", to);
        for (unsigned j = 0; j < LOSSES; j++) {
            append_member(to, &first, loss_names[j], values[j]);
        }
        fputs("}}", to);
    }
}

static void append_lcores(const struct shared *all, FILE *to) {
    for (unsigned i = 0; i < count_lcores(all); i++) {
        const struct worker *w = &all->workers[i];
        const struct tally *t = &w->tally;
        int first = 1;
        fprintf(to, "%s\n  {\"role\": \"%s\", ", i ? "," : "",
                i == all->ports->workers ? "distributes" : "works");
        append_member(to, &first, "lcore", w->lcore);
        append_member(to, &first, "received", read_counter(&t->received));
        append_member(to, &first, "bytes", read_counter(&t->bytes));
        append_member(to, &first, "processor_ns", read_counter(&t->clock_ns));
        for (unsigned reason = 0; reason < LOST_REASONS; reason++) {
            append_member(to, &first, lost_names[reason], read_counter(&t->lost[reason]));
        }
        putc('}', to);
    }
}

static void append_statistics(struct shared *all, FILE *to, double seconds) {
    const struct policy *policy = all->policy;
    int first = 1;
    fputs("{\"model\": ", to);
    append_string(to, bnn_model(all->net));
    fprintf(to, ", \"seconds\": %.3f, \"distribution\": ", seconds);
    append_string(to, ports_distribution(all->ports));
    fprintf(to, ", \"received\": %" PRIu64 ",\n \"lcores\": [", packets_received(all));
    append_lcores(all, to);
    fputs("],\n \"verdicts\": {", to);
    for (uint32_t v = 0; v < policy->verdicts; v++) {
        uint64_t packets = SUM(all, packets[v]), decided = SUM(all, decided[v]);
        fputs(v ? ", " : "", to);
        append_string(to, verdict_name(policy, v));
        fprintf(to, ": {\"packets\": %" PRIu64 ", \"flows\": %" PRIu64 ", \"action\": \"%s\"}",
                packets, decided, action_name(policy->rules[v].action));
    }
    fputs("},\n \"actions\": {", to);
    for (unsigned a = 0; a < ACTIONS; a++) {
        append_member(to, &first, action_name((enum action)a), SUM(all, actions[a]));
    }
    fputs("},\n \"meter\": {", to);
    first = 1;
    for (unsigned i = 0; i < COUNT_ASIDE; i++) {
        append_member(to, &first, counter_names[i], read_meter(all, i));
    }
    for (unsigned i = 0; i < ASIDE_REASONS; i++) {
        append_member(to, &first, meter_aside_name(i), read_meter(all, COUNT_ASIDE + i));
    }
    fputs("},\n \"ports\": [", to);
    append_ports(all, to);
    fputs("]}\n", to);
}

void write_json(struct shared *all, const char *path, double seconds) {
    char beside[4096];
    FILE *to = NULL;
    if (snprintf(beside, sizeof beside, "%s.part", path) < (int)sizeof beside) {
        to = fopen(beside, "w");
    }
    if (to) {
        append_statistics(all, to, seconds);
    }
    if (!to || fclose(to) || rename(beside, path)) {
        fprintf(stderr, "n3ic-dpdk: %s: %s\n", path, strerror(errno));
    }
}

void write_text(struct shared *all, FILE *to, double seconds) {
    const struct policy *policy = all->policy;
    fprintf(to, "%.1f s: %" PRIu64 " packets received, %" PRIu64 " metered\n", seconds,
            packets_received(all), read_meter(all, COUNT_PACKETS));
    for (uint32_t v = 0; v < policy->verdicts; v++) {
        const uint64_t packets = SUM(all, packets[v]), decided = SUM(all, decided[v]);
        if (packets || decided) {
            fprintf(to, "  %s: %" PRIu64 " flows decided; %" PRIu64 " packets: %s\n",
                    verdict_name(policy, v), decided, packets,
                    action_name(policy->rules[v].action));
        }
    }
    for (unsigned i = 0; i < ASIDE_REASONS; i++) {
        const uint64_t n = read_meter(all, COUNT_ASIDE + i);
        if (n) {
            fprintf(to, "  put aside: %" PRIu64 " packets (%s)\n", n, meter_aside_name(i));
        }
    }
    for (unsigned reason = 0; reason < LOST_REASONS; reason++) {
        const uint64_t n = SUM(all, lost[reason]);
        if (n) {
            fprintf(to, "  lost here: %" PRIu64 " (%s)\n", n, lost_names[reason]);
        }
    }
    for (unsigned i = 0; i < all->ports->n; i++) {
        struct port *p = &all->ports->port[i];
        uint64_t values[LOSSES];
        losses_read(&p->losses, values);
        for (unsigned j = 0; j < LOSSES; j++) {
            if (values[j]) {
                fprintf(to, "  lost by port %s: %" PRIu64 " (%s)\n", p->name, values[j],
                        loss_names[j]);
            }
        }
    }
}
