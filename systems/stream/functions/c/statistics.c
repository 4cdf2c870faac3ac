// SPDX-License-Identifier: Apache-2.0
/* Statistics as JSON; see manager.h. The caller has checked the names of functions and devices. */
#define _GNU_SOURCE /* RUSAGE_THREAD */

#include "manager.h"

#include <inttypes.h>
#include <sys/resource.h>

static const char *const state_names[] = {"absent", "running", "stopping", "killed", "gone"};
static const char *const end_names[ENDS] = {"stopped", "died", "hung", "damaged"};
static const char *const phase_names[] = {"waiting", "receiving", "draining", "done"};
static const char *const memory_names[] = {"file", "huge-file", "dpdk"};

static void write_member(FILE *to, const char *name, uint64_t value) {
    fprintf(to, "\"%s\": %" PRIu64 ", ", name, value);
}

static void write_by_end(FILE *to, const char *name, const uint64_t *counts) {
    fprintf(to, "\"%s\": {", name);
    for (unsigned i = 0; i < ENDS; i++) {
        fprintf(to, "%s\"%s\": %" PRIu64, i ? ", " : "", end_names[i], counts[i]);
    }
    fputc('}', to);
}

static void write_function(FILE *to, const struct function *f) {
    const struct function_tally *t = &f->tally;
    fprintf(to, "{\"name\": \"%s\", \"state\": \"%s\", ", f->settings->name, state_names[f->state]);
    write_member(to, "pid", f->state == ABSENT ? 0 : (uint64_t)f->pid);
    write_member(to, "tickets", f->settings->tickets);
    write_member(to, "held", function_held(f));
    write_member(to, "given", t->given);
    write_member(to, "passed", t->passed);
    write_member(to, "dropped", t->dropped);
    fputs("\"routed\": [", to);
    for (unsigned i = 0; i < f->settings->n_routes; i++) {
        fprintf(to, "%s%" PRIu64, i ? ", " : "", t->routed[i]);
    }
    fputs("], ", to);
    write_member(to, "full", t->full);
    write_member(to, "absent", t->absent);
    write_member(to, "bypassed", t->bypassed);
    write_member(to, "no_such_action", t->no_such_action);
    write_member(to, "damaged_descriptors", t->damaged);
    write_member(to, "starts", t->starts);
    write_by_end(to, "lost", t->lost);
    fputs(", ", to);
    write_by_end(to, "ends", t->ends);
    fputc('}', to);
}

static void write_device(FILE *to, struct device *d, const char *name) {
    if (!d->closed) {
        losses_read(&d->losses, d->lost);
    }
    fprintf(to, "{\"name\": \"%s\", \"driver\": \"%s\", \"interface\": \"%s\", ", name,
            d->losses.driver, d->losses.interface);
    write_member(to, "received", d->received);
    write_member(to, "sent", d->sent);
    write_member(to, "full", d->full);
    fputs("\"losses\": {", to);
    for (unsigned i = 0; i < LOSSES; i++) {
        fprintf(to, "%s\"%s\": %" PRIu64, i ? ", " : "", loss_names[i], d->lost[i]);
    }
    fputs("}}", to);
}

static uint64_t processor_ns(void) {
    struct rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    return (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000000u +
           (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1000;
}

void statistics_write(struct manager *m, FILE *to) {
    fprintf(to, "{\"phase\": \"%s\", \"memory\": \"%s\", ", phase_names[m->phase],
            memory_names[m->settings.memory]);
    write_member(to, "received", m->received);
    write_member(to, "too_long", m->too_long);
    write_member(to, "copies", m->copies);
    write_member(to, "ended", m->ended);
    write_member(to, "processor_ns", processor_ns());
    fprintf(to, "\"buffers\": {\"all\": %u, \"free\": %u}, \"functions\": [", m->settings.buffers,
            rte_mempool_avail_count(m->pool));
    for (unsigned i = 0; i < m->settings.n_functions; i++) {
        fputs(i ? ", " : "", to);
        write_function(to, &m->functions[i]);
    }
    fputs("], \"ports\": [", to);
    for (unsigned i = 0; i < m->settings.n_ports; i++) {
        fputs(i ? ", " : "", to);
        write_device(to, &m->devices[i], m->settings.ports[i]);
    }
    fputs("]}\n", to);
}
