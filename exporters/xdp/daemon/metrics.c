// SPDX-License-Identifier: Apache-2.0
#include "metrics.h"

#include <inttypes.h>
#include <string.h>
#include <sys/socket.h>

#include "build.h"
#include "drift.h"
#include "flow_report.h"

static const char *const aside[ASIDE_REASONS] = {N3ICD_ASIDE};

static void write_family(struct text *out, const char *name, const char *kind, const char *help) {
    text_format(out, "# HELP n3ic_xdp_%s %s\n# TYPE n3ic_xdp_%s %s\n", name, help, name, kind);
}

static void write_label(struct text *out, const char *name, const char *value) {
    text_format(out, "%s=\"", name);
    text_escaped(out, value, "\"\\");
    text_bytes(out, "\"", 1);
}

static void write_sample(struct text *out, const char *name, const char *interface) {
    text_format(out, "n3ic_xdp_%s{", name);
    write_label(out, "interface", interface);
}

static void write_metric(struct text *out, const struct kernel *k, const char *name,
                         const char *kind, const char *help, uint64_t value) {
    write_family(out, name, kind, help);
    write_sample(out, name, k->interface);
    text_format(out, "} %" PRIu64 "\n", value);
}

static void write_by_reason(struct text *out, const struct kernel *k, const char *name,
                            const char *help, const char *const *reasons, const uint64_t *values,
                            unsigned count) {
    write_family(out, name, "counter", help);
    for (unsigned i = 0; i < count; i++) {
        write_sample(out, name, k->interface);
        text_bytes(out, ",", 1);
        write_label(out, "reason", reasons[i]);
        text_format(out, "} %" PRIu64 "\n", values[i]);
    }
}

static void write_slot_labels(struct text *out, const char *name, const struct kernel *k,
                              const struct pack *p, uint32_t slot) {
    write_sample(out, name, k->interface);
    text_format(out, ",slot=\"%" PRIu32 "\",", slot);
    write_label(out, "model", p->model[slot]);
}

static void write_verdicts(struct text *out, const struct kernel *k, const struct pack *p,
                           uint32_t slot, const struct tally *t) {
    for (int i = 0; i < NETWORK_CLASSES; i++) {
        if (!p->class[slot][i])
            continue;
        write_slot_labels(out, "verdicts_total", k, p, slot);
        text_bytes(out, ",", 1);
        write_label(out, "verdict", p->class[slot][i]);
        text_format(out, "} %" PRIu64 "\n", t->class[i]);
    }
    write_slot_labels(out, "verdicts_total", k, p, slot);
    text_format(out, ",verdict=\"shunt\"} %" PRIu64 "\n", t->shunted);
}

static void write_margins(struct text *out, const struct kernel *k, const struct pack *p,
                          uint32_t slot, const struct tally *t) {
    uint64_t total = 0, sum = 0;
    int end = MARGINS;

    while (end > 0 && !t->margin[end - 1])
        end--;
    for (int i = 0; i < end; i++) {
        total += t->margin[i];
        sum += t->margin[i] * (uint64_t)i;
        write_slot_labels(out, "margin_bucket", k, p, slot);
        text_format(out, ",le=\"%d.0\"} %" PRIu64 "\n", i, total);
    }
    write_slot_labels(out, "margin_bucket", k, p, slot);
    text_format(out, ",le=\"+Inf\"} %" PRIu64 "\n", total);
    write_slot_labels(out, "margin_count", k, p, slot);
    text_format(out, "} %" PRIu64 "\n", total);
    write_slot_labels(out, "margin_sum", k, p, slot);
    text_format(out, "} %" PRIu64 "\n", sum);
}

/* Flows that the model of a slot decided or shunted. */
static uint64_t count_decided(const struct tally *t) {
    uint64_t total = t->shunted;

    for (int i = 0; i < NETWORK_CLASSES; i++)
        total += t->class[i];
    return total;
}

static void write_drifts(struct text *out, const struct kernel *k, const struct pack *p,
                         uint32_t slot, const struct tally *t) {
    uint64_t flows = count_decided(t);

    for (uint32_t i = 0; flows && i < p->drifts; i++) {
        const struct pack_drift *d = &p->drift[i];

        if (d->slot != slot)
            continue;
        write_slot_labels(out, "drift", k, p, slot);
        text_bytes(out, ",", 1);
        write_label(out, "feature", d->feature);
        text_format(out, "} %.17g\n", drift_index(d, t->row, flows));
    }
}

/* Figures of the models, each family in one piece. */
static int write_models(struct text *out, struct kernel *k, const struct pack *p) {
    static const struct {
        const char *name, *kind, *help;
        void (*write)(struct text *, const struct kernel *, const struct pack *, uint32_t,
                      const struct tally *);
    } families[] = {
        {"verdicts_total", "counter", "Flows by verdict", write_verdicts},
        {"margin", "histogram", "Margin of the scores", write_margins},
        {"drift", "gauge", "Population stability index against the training rows; 0.25 is a change",
         write_drifts},
    };

    for (unsigned i = 0; i < sizeof families / sizeof *families; i++) {
        write_family(out, families[i].name, families[i].kind, families[i].help);
        for (uint32_t slot = 0; slot < SLOTS; slot++) {
            struct tally t;

            if (!pack_network(p, slot))
                continue;
            if (!kernel_tally(k, slot, &t))
                return 0;
            families[i].write(out, k, p, slot, &t);
        }
    }
    return 1;
}

enum { ALARM_UNDECIDED, ALARM_FULL, ALARM_EXCESS, ALARM_REFUSED, ALARMS };

/* Counts of what needs attention, as in n3ic/systems/xdp/status.py. */
static const char *const alarms[ALARMS] = {"undecided", "full", "excess", "refused"};

static void read_alarms(const struct figures *f, uint64_t out[ALARMS]) {
    out[ALARM_UNDECIDED] = f->undecided;
    out[ALARM_FULL] = f->counters.aside[ASIDE_CACHE_FULL];
    out[ALARM_EXCESS] = f->counters.excess;
    out[ALARM_REFUSED] = f->counters.refused;
}

static void write_alarms(struct text *out, const struct kernel *k, const struct figures *f) {
    uint64_t amounts[ALARMS];

    read_alarms(f, amounts);
    write_family(out, "alarm", "gauge", "Whether it needs attention");
    for (int i = 0; i < ALARMS; i++) {
        write_sample(out, "alarm", k->interface);
        text_format(out, ",alarm=\"%s\"} %d\n", alarms[i], amounts[i] > 0);
    }
}

int metrics_write(struct text *out, struct kernel *k, const struct pack *p,
                  const struct own_figures *own) {
    struct figures f;

    if (!kernel_figures(k, &f))
        return 0;
#define c f.counters
#define COUNTER(name, help, value) write_metric(out, k, name "_total", "counter", help, value)
#define GAUGE(name, help, value) write_metric(out, k, name, "gauge", help, value)
    COUNTER("packets", "Packets that the program saw", c.packets);
    COUNTER("bytes", "Bytes of these packets", c.bytes);
    COUNTER("flows_started", "Flows that began", c.started);
    COUNTER("packets_late", "Packets behind the end of their flow", c.late);
    COUNTER("events_lost", "Decisions that nobody read in time", c.events_lost);
    COUNTER("decisions_without_model", "Decisions for which there was no model", c.no_model);
    COUNTER("packets_contended", "Packets whose flow another CPU held", c.contended);
    COUNTER("packets_not_marked", "Packets without room for their mark", c.not_marked);
    COUNTER("packets_allowed", "Packets of allowed sources and flows", c.allowed);
    COUNTER("packets_blocked", "Packets dropped by a verdict before the meter", c.blocked);
    COUNTER("packets_limited", "Packets over the rate of a verdict, dropped", c.limited);
    COUNTER("packets_dropped", "Packets dropped by the policy of their flow", c.dropped);
    COUNTER("packets_spared", "Packets that the dry run let pass", c.spared);
    COUNTER("packets_excess", "Packets of flows begun too fast, put aside", c.excess);
    COUNTER("packets_super", "Packets cut on the way out or joined on the way in", c.super);
    COUNTER("segments", "Packets that these are on the wire", c.segments);
    COUNTER("packets_mirrored", "Copies sent out of another interface", c.mirrored);
    COUNTER("packets_not_mirrored", "Packets whose copy could not be sent", c.not_mirrored);
    COUNTER("packets_no_socket", "Packets for a socket that nobody opened", c.no_socket);
    COUNTER("verdicts_put", "Verdicts that decisions put into the maps", c.verdicts);
    COUNTER("verdicts_refused", "Verdicts over the limit of blocked hosts", c.refused);
    COUNTER("samples_lost", "Samples of dropped packets that nobody read", c.samples_lost);
    COUNTER("flows_evicted", "Flows that the full table forgot", f.evicted);
    COUNTER("flows_undecided", "Flows that left the table undecided, at least", f.undecided);
    GAUGE("flows", "Flows in the table", f.flows);
    GAUGE("flows_limit", "Flows that the table holds", k->room);
    GAUGE("blocked_hosts", "Hosts that decisions keep away, and expired ones", f.blocked_hosts);
    GAUGE("blocked_hosts_limit", "Maximum number of these", f.config.max_blocked);
    GAUGE("dry_run", "Whether every packet passes", f.config.dry_run);
    write_alarms(out, k, &f);
    write_by_reason(out, k, "packets_aside_total", "Packets of no flow, by reason", aside, c.aside,
                    ASIDE_REASONS);
    write_by_reason(out, k, "decisions_total", "Decisions, by what brought them", end_names,
                    c.decided, ENDS);
    COUNTER("n3icd_events", "Decided flows that n3icd read", own->events);
    COUNTER("n3icd_events_damaged", "Events that n3icd could not read", own->damaged);
    COUNTER("n3icd_reader_lost", "Lines that slow readers lost", own->reader_lost);
    COUNTER("n3icd_file_lost", "Lines that the file did not take", own->file_lost);
    COUNTER("n3icd_syslog_lost", "Messages that syslog did not take", own->syslog_lost);
    COUNTER("n3icd_ipfix_lost", "IPFIX records that were not sent", own->ipfix_lost);
    COUNTER("n3icd_sflow_lost", "Samples of dropped packets that were not sent", own->sflow_lost);
    COUNTER("n3icd_idle_ended", "Idle flows that n3icd ended", k->ended);
    GAUGE("n3icd_readers", "Readers that are connected", own->readers);
#undef c
    return write_models(out, k, p) && !out->cut;
}

static void write_counts(struct text *out, const char *const *names, const uint64_t *counts,
                         int count) {
    int any = 0;

    for (int i = 0; i < count; i++)
        if (names[i] && counts[i])
            text_format(out, "%s%s %" PRIu64, any++ ? ", " : "", names[i], counts[i]);
    text_format(out, any ? "\n" : "none\n");
}

int metrics_write_summary(struct text *out, struct kernel *k, const struct pack *p) {
    static const char *const texts[ALARMS] = {
        "flows at least left the full table undecided: give it more room (--flows)",
        "packets found no room in the flow table: give it more room (--flows)",
        "packets of flows that their source began too fast were put aside (--new-flows)",
        ("verdicts were refused, as many hosts are blocked as may be (--max-blocked): look at "
         "n3icd list, is the model right?"),
    };
    struct figures f;
    const struct counters *c = &f.counters;
    uint64_t amounts[ALARMS];
    struct tally t;

    if (!kernel_figures(k, &f))
        return 0;
    text_format(out, "%s: %s XDP\n", k->interface, k->state.generic ? "generic" : "native");
    text_format(out, "packets %" PRIu64 " (%" PRIu64 " bytes), aside ", c->packets, c->bytes);
    write_counts(out, aside, c->aside, ASIDE_REASONS);
    text_format(
        out, "flows %" PRIu64 " of %" PRIu32 ", started %" PRIu64 ", evicted %" PRIu64 ", decided ",
        f.flows, k->room, c->started, f.evicted);
    write_counts(out, end_names, c->decided, ENDS);
    text_format(out,
                "verdicts by decisions %" PRIu64 ", hosts blocked %" PRIu64 " of %" PRIu64
                "; packets allowed %" PRIu64 ", blocked %" PRIu64 ", over a rate %" PRIu64
                ", dropped by policy %" PRIu64 "\n",
                c->verdicts, f.blocked_hosts, f.config.max_blocked, c->allowed, c->blocked,
                c->limited, c->dropped);
    text_format(out,
                "late %" PRIu64 ", contended %" PRIu64 ", not marked %" PRIu64
                ", events lost %" PRIu64 ", without a model %" PRIu64 "\n",
                c->late, c->contended, c->not_marked, c->events_lost, c->no_model);
    if (f.config.dry_run)
        text_format(out, "dry run: every packet passes, %" PRIu64 " would not have\n", c->spared);
    read_alarms(&f, amounts);
    for (int i = 0; i < ALARMS; i++)
        if (amounts[i])
            text_format(out, "ALARM %" PRIu64 " %s\n", amounts[i], texts[i]);
    for (uint32_t slot = 0; slot < SLOTS; slot++) {
        if (!pack_network(p, slot))
            continue;
        if (!kernel_tally(k, slot, &t))
            return 0;
        text_format(out, "slot %" PRIu32 ": %s, ", slot, p->model[slot]);
        write_counts(out, p->class[slot], t.class, NETWORK_CLASSES);
        if (t.shunted)
            text_format(out, "  shunt %" PRIu64 "\n", t.shunted);
    }
    return !out->cut;
}

void metrics_answer(struct server *s, struct client *c, struct text *out, struct kernel *k,
                    const struct pack *p, const struct own_figures *own) {
    char request[2048], head[160];
    ssize_t got = recv(c->fd, request, sizeof request - 1, MSG_DONTWAIT);
    const char *status = "200 OK";
    struct text h = {.bytes = head, .room = sizeof head};

    if (got == 0)
        server_drop(s, c);
    if (got <= 0 || c->is_answered)
        return;
    request[got] = 0;
    c->is_answered = 1;
    text_clear(out);
    if (strncmp(request, "GET /metrics", 12) && strncmp(request, "GET / ", 6)) {
        status = "404 Not Found";
        text_format(out, "GET /metrics\n");
    } else if (!metrics_write(out, k, p, own)) {
        status = "500 Internal Server Error";
        text_clear(out);
    }
    text_format(&h,
                "HTTP/1.0 %s\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
                "Content-Length: %zu\r\nConnection: close\r\n\r\n",
                status, out->used);
    if (!client_append(s, c, head, h.used) || !client_append(s, c, out->bytes, out->used))
        server_drop(s, c);
}
