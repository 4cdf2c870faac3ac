// SPDX-License-Identifier: Apache-2.0
#include "metrics.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "build.h"
#include "drift.h"
#include "flow_report.h"

static const char *const aside[ASIDE_REASONS] = {N3ICD_ASIDE};

/* A counter: its name at Prometheus, its member of a structure, and where that is. */
struct counter {
    const char *name, *member, *help;
    size_t at;
};

#define OF_PROGRAM(name, member, help) {name, #member, help, offsetof(struct counters, member)}
static const struct counter counters[] = {
    OF_PROGRAM("packets", packets, "Packets that the program saw"),
    OF_PROGRAM("bytes", bytes, "Bytes of these packets"),
    OF_PROGRAM("flows_started", started, "Flows that began"),
    OF_PROGRAM("packets_late", late, "Packets behind the end of their flow"),
    OF_PROGRAM("events_lost", events_lost, "Decisions that nobody read in time"),
    OF_PROGRAM("decisions_without_model", no_model, "Decisions for which there was no model"),
    OF_PROGRAM("packets_contended", contended, "Packets whose flow another CPU held"),
    OF_PROGRAM("sources_forgotten", forgotten, "Sources that made room for others in their table"),
    OF_PROGRAM("packets_not_marked", not_marked, "Packets without room for their mark"),
    OF_PROGRAM("packets_allowed", allowed, "Packets of allowed sources and flows"),
    OF_PROGRAM("packets_blocked", blocked, "Packets dropped by a verdict before the meter"),
    OF_PROGRAM("packets_limited", limited, "Packets over the rate of a verdict, dropped"),
    OF_PROGRAM("packets_dropped", dropped, "Packets dropped by the policy of their flow"),
    OF_PROGRAM("packets_spared", spared, "Packets that the dry run let pass"),
    OF_PROGRAM("packets_excess", excess, "Packets of flows begun too fast, put aside"),
    OF_PROGRAM("packets_super", super, "Packets cut on the way out or joined on the way in"),
    OF_PROGRAM("segments", segments, "Packets that these are on the wire"),
    OF_PROGRAM("packets_mirrored", mirrored, "Copies sent out of another interface"),
    OF_PROGRAM("packets_not_mirrored", not_mirrored, "Packets whose copy could not be sent"),
    OF_PROGRAM("packets_no_socket", no_socket, "Packets for a socket that nobody opened"),
    OF_PROGRAM("verdicts_put", verdicts, "Verdicts that decisions put into the maps"),
    OF_PROGRAM("verdicts_refused", refused, "Verdicts over the limit of blocked hosts"),
    OF_PROGRAM("samples_lost", samples_lost, "Samples of dropped packets that nobody read"),
};

#define OF_N3ICD(name, member, help) {name, #member, help, offsetof(struct own_figures, member)}
static const struct counter losses[] = {
    OF_N3ICD("n3icd_events_damaged", damaged, "Events that n3icd could not read"),
    OF_N3ICD("n3icd_reader_lost", reader_lost, "Lines that slow readers lost"),
    OF_N3ICD("n3icd_file_lost", file_lost, "Lines that the file did not take"),
    OF_N3ICD("n3icd_syslog_lost", syslog_lost, "Messages that syslog did not take"),
    OF_N3ICD("n3icd_ipfix_lost", ipfix_lost, "IPFIX records that were not sent"),
    OF_N3ICD("n3icd_sflow_lost", sflow_lost, "Samples of dropped packets that were not sent"),
};

#define COUNT(x) (sizeof(x) / sizeof *(x))

static uint64_t value_of(const struct counter *c, const void *structure) {
    uint64_t value;

    memcpy(&value, (const char *)structure + c->at, sizeof value);
    return value;
}

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

static void write_counters(struct text *out, const struct kernel *k, const struct counter *table,
                           size_t count, const void *structure) {
    char name[64];

    for (size_t i = 0; i < count; i++) {
        snprintf(name, sizeof name, "%s_total", table[i].name);
        write_metric(out, k, name, "counter", table[i].help, value_of(&table[i], structure));
    }
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

static void write_hex(struct text *out, const uint8_t *bytes, size_t count) {
    for (size_t i = 0; i < count; i++)
        text_format(out, "%02x", bytes[i]);
}

/* Says which model a slot holds, so that figures before and after an update can be told apart. */
static void write_info(struct text *out, const struct kernel *k, const struct pack *p,
                       uint32_t slot, const struct tally *t) {
    (void)t;
    write_slot_labels(out, "model_info", k, p, slot);
    text_format(out, ",digest=\"");
    write_hex(out, k->state.digest[slot], sizeof k->state.digest[slot]);
    text_format(out, "\"} 1\n");
}

/* Figures of the models, each family in one piece. */
static int write_models(struct text *out, struct kernel *k, const struct pack *p) {
    static const struct {
        const char *name, *kind, *help;
        void (*write)(struct text *, const struct kernel *, const struct pack *, uint32_t,
                      const struct tally *);
    } families[] = {
        {"model_info", "gauge", "SHA-256 of the model that a slot holds", write_info},
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

enum { ALARM_UNDECIDED, ALARM_FULL, ALARM_EXCESS, ALARM_REFUSED, ALARM_LOST, ALARMS };

/* Counts of what needs attention, as in n3ic/systems/xdp/status.py. */
static const char *const alarms[ALARMS] = {"undecided", "full", "excess", "refused", "lost"};

/* `own` is NULL where n3icd's own counts are not known. */
static void read_alarms(const struct figures *f, const struct own_figures *own,
                        uint64_t out[ALARMS]) {
    out[ALARM_UNDECIDED] = f->undecided;
    out[ALARM_FULL] = f->counters.aside[ASIDE_CACHE_FULL];
    out[ALARM_EXCESS] = f->counters.excess;
    out[ALARM_REFUSED] = f->counters.refused;
    out[ALARM_LOST] = f->counters.events_lost;
    for (size_t i = 0; own && i < COUNT(losses); i++)
        out[ALARM_LOST] += value_of(&losses[i], own);
}

static void write_alarms(struct text *out, const struct kernel *k, const struct figures *f,
                         const struct own_figures *own) {
    uint64_t amounts[ALARMS];

    read_alarms(f, own, amounts);
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
#define COUNTER(name, help, value) write_metric(out, k, name "_total", "counter", help, value)
#define GAUGE(name, help, value) write_metric(out, k, name, "gauge", help, value)
    write_counters(out, k, counters, COUNT(counters), &f.counters);
    COUNTER("flows_evicted", "Flows that the full table forgot", f.evicted);
    COUNTER("flows_undecided", "Flows that left the table undecided, at least", f.undecided);
    GAUGE("flows", "Flows in the table", f.flows);
    GAUGE("flows_limit", "Flows that the table holds", k->room);
    GAUGE("blocked_hosts", "Hosts that decisions keep away, and expired ones", f.blocked_hosts);
    GAUGE("blocked_hosts_limit", "Maximum number of these", f.config.max_blocked);
    GAUGE("dry_run", "Whether every packet passes", f.config.dry_run);
    write_alarms(out, k, &f, own);
    write_by_reason(out, k, "packets_aside_total", "Packets of no flow, by reason", aside,
                    f.counters.aside, ASIDE_REASONS);
    write_by_reason(out, k, "decisions_total", "Decisions, by what brought them", end_names,
                    f.counters.decided, ENDS);
    COUNTER("n3icd_events", "Decided flows that n3icd read", own->events);
    write_counters(out, k, losses, COUNT(losses), own);
    COUNTER("n3icd_idle_ended", "Idle flows that n3icd ended", k->ended);
    GAUGE("n3icd_readers", "Readers that are connected", own->readers);
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
        "decided flows or samples of packets came too fast for n3icd",
    };
    struct figures f;
    const struct counters *c = &f.counters;
    uint64_t amounts[ALARMS];
    struct tally t;

    if (!kernel_figures(k, &f))
        return 0;
    text_format(out, "%s: ", k->interface);
    kernel_write_place(k, out);
    text_format(out, "\n");
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
    read_alarms(&f, NULL, amounts);
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

/* --- for n3ic xdp ---------------------------------------------------------------------------- */

static void write_values(struct text *out, const char *name, const uint64_t *values, int count) {
    text_format(out, "\"%s\": [", name);
    for (int i = 0; i < count; i++)
        text_format(out, "%s%" PRIu64, i ? ", " : "", values[i]);
    text_format(out, "], ");
}

static void write_object(struct text *out, const char *name, const struct counter *table,
                         size_t count, const void *structure) {
    text_format(out, "\"%s\": {", name);
    for (size_t i = 0; i < count; i++)
        text_format(out, "%s\"%s\": %" PRIu64, i ? ", " : "", table[i].member,
                    value_of(&table[i], structure));
    text_format(out, "}, ");
}

static void write_slot(struct text *out, const struct kernel *k, uint32_t slot,
                       const struct tally *t) {
    text_format(out, "\"%" PRIu32 "\": {", slot);
    write_values(out, "class", t->class, NETWORK_CLASSES);
    write_values(out, "margin", t->margin, MARGINS);
    write_values(out, "row", t->row, COUNT(t->row));
    text_format(out, "\"shunted\": %" PRIu64 ", \"digest\": \"", t->shunted);
    write_hex(out, k->state.digest[slot], sizeof k->state.digest[slot]);
    text_format(out, "\"}");
}

int metrics_write_json(struct text *out, struct kernel *k, const struct pack *p,
                       const struct own_figures *own) {
    struct figures f;
    int slots = 0;

    if (!kernel_figures(k, &f))
        return 0;
    text_format(out, "{");
    write_object(out, "counters", counters, COUNT(counters), &f.counters);
    write_object(out, "losses", losses, COUNT(losses), own);
    write_values(out, "aside", f.counters.aside, ASIDE_REASONS);
    write_values(out, "decided", f.counters.decided, ENDS);
    text_format(out, "\"mode\": \"%s\", \"frags\": %s, ", kernel_mode(k),
                k->state.frags ? "true" : "false");
    if (k->state.dispatched)
        text_format(out, "\"priority\": %" PRIu32 ", ", k->state.priority);
    text_format(out,
                "\"flows\": %" PRIu64 ", \"room\": %" PRIu32 ", \"evicted\": %" PRIu64
                ", \"undecided\": %" PRIu64 ", \"blocked_hosts\": %" PRIu64
                ", \"max_blocked\": %" PRIu64 ", \"dry_run\": %" PRIu32 ", \"slots\": {",
                f.flows, k->room, f.evicted, f.undecided, f.blocked_hosts, f.config.max_blocked,
                f.config.dry_run);
    for (uint32_t slot = 0; slot < SLOTS; slot++) {
        struct tally t;

        if (!pack_network(p, slot))
            continue;
        if (!kernel_tally(k, slot, &t))
            return 0;
        if (slots++)
            text_format(out, ", ");
        write_slot(out, k, slot, &t);
    }
    text_format(out, "}}\n");
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
