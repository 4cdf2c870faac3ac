// SPDX-License-Identifier: Apache-2.0
#include "metrics.h"

#include <inttypes.h>
#include <string.h>
#include <sys/socket.h>

#include "build.h"
#include "told.h"

static const char *const aside[ASIDE_REASONS] = {N3ICD_ASIDE};

static void family(struct text *out, const char *name, const char *kind, const char *help) {
    text_format(out, "# HELP n3ic_xdp_%s %s\n# TYPE n3ic_xdp_%s %s\n", name, help, name, kind);
}

static void label(struct text *out, const char *name, const char *value) {
    text_format(out, "%s=\"", name);
    text_escaped(out, value, "\"\\");
    text_bytes(out, "\"", 1);
}

static void sample(struct text *out, const char *name, const char *interface) {
    text_format(out, "n3ic_xdp_%s{", name);
    label(out, "interface", interface);
}

static void single(struct text *out, const struct kernel *k, const char *name, const char *kind,
                   const char *help, uint64_t value) {
    family(out, name, kind, help);
    sample(out, name, k->interface);
    text_format(out, "} %" PRIu64 "\n", value);
}

static void by_reason(struct text *out, const struct kernel *k, const char *name, const char *help,
                      const char *const *reasons, const uint64_t *values, unsigned count) {
    family(out, name, "counter", help);
    for (unsigned i = 0; i < count; i++) {
        sample(out, name, k->interface);
        text_bytes(out, ",", 1);
        label(out, "reason", reasons[i]);
        text_format(out, "} %" PRIu64 "\n", values[i]);
    }
}

static void slot_labels(struct text *out, const char *name, const struct kernel *k,
                        const struct pack *p, uint32_t slot) {
    sample(out, name, k->interface);
    text_format(out, ",slot=\"%" PRIu32 "\",", slot);
    label(out, "model", p->model[slot]);
}

static void verdicts(struct text *out, const struct kernel *k, const struct pack *p, uint32_t slot,
                     const struct tally *t) {
    for (int i = 0; i < NETWORK_CLASSES; i++) {
        if (!p->class[slot][i])
            continue;
        slot_labels(out, "verdicts_total", k, p, slot);
        text_bytes(out, ",", 1);
        label(out, "verdict", p->class[slot][i]);
        text_format(out, "} %" PRIu64 "\n", t->class[i]);
    }
    slot_labels(out, "verdicts_total", k, p, slot);
    text_format(out, ",verdict=\"shunt\"} %" PRIu64 "\n", t->shunted);
}

static void margins(struct text *out, const struct kernel *k, const struct pack *p, uint32_t slot,
                    const struct tally *t) {
    uint64_t total = 0, sum = 0;
    int end = MARGINS;

    while (end > 0 && !t->margin[end - 1])
        end--;
    for (int i = 0; i < end; i++) {
        total += t->margin[i];
        sum += t->margin[i] * (uint64_t)i;
        slot_labels(out, "margin_bucket", k, p, slot);
        text_format(out, ",le=\"%d.0\"} %" PRIu64 "\n", i, total);
    }
    slot_labels(out, "margin_bucket", k, p, slot);
    text_format(out, ",le=\"+Inf\"} %" PRIu64 "\n", total);
    slot_labels(out, "margin_count", k, p, slot);
    text_format(out, "} %" PRIu64 "\n", total);
    slot_labels(out, "margin_sum", k, p, slot);
    text_format(out, "} %" PRIu64 "\n", sum);
}

/* Figures of the models, each family in one piece. */
static int models(struct text *out, struct kernel *k, const struct pack *p) {
    for (int what = 0; what < 2; what++) {
        family(out, what ? "margin" : "verdicts_total", what ? "histogram" : "counter",
               what ? "Margin of the scores" : "Flows by verdict");
        for (uint32_t slot = 0; slot < SLOTS; slot++) {
            struct tally t;

            if (!pack_network(p, slot))
                continue;
            if (!kernel_tally(k, slot, &t))
                return 0;
            (what ? margins : verdicts)(out, k, p, slot, &t);
        }
    }
    return 1;
}

int metrics_write(struct text *out, struct kernel *k, const struct pack *p,
                  const struct own_figures *own) {
    const struct config *config =
        (const struct config *)(const void *)pack_value(p, PACK_CONFIG, 0)->bytes;
    struct counters c;

    if (!kernel_counters(k, &c))
        return 0;
#define COUNTER(name, help, value) single(out, k, name "_total", "counter", help, value)
#define GAUGE(name, help, value) single(out, k, name, "gauge", help, value)
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
    GAUGE("flows", "Flows in the table at the last sweep", k->flows);
    GAUGE("flows_limit", "Flows that the table holds", k->room);
    GAUGE("blocked_hosts_limit", "Maximum number of blocked hosts", config->max_blocked);
    GAUGE("dry_run", "Whether every packet passes", config->dry_run);
    by_reason(out, k, "packets_aside_total", "Packets of no flow, by reason", aside, c.aside,
              ASIDE_REASONS);
    by_reason(out, k, "decisions_total", "Decisions, by what brought them", told_ends, c.decided,
              ENDS);
    COUNTER("n3icd_events", "Decided flows that n3icd read", own->events);
    COUNTER("n3icd_events_damaged", "Events that n3icd could not read", own->damaged);
    COUNTER("n3icd_reader_lost", "Lines that slow readers lost", own->reader_lost);
    COUNTER("n3icd_file_lost", "Lines that the file did not take", own->file_lost);
    COUNTER("n3icd_syslog_lost", "Messages that syslog did not take", own->syslog_lost);
    COUNTER("n3icd_ipfix_lost", "IPFIX records that were not sent", own->ipfix_lost);
    COUNTER("n3icd_idle_ended", "Idle flows that n3icd ended", k->ended);
    GAUGE("n3icd_readers", "Readers that are connected", own->readers);
    return models(out, k, p) && !out->cut;
}

void metrics_answer(struct server *s, struct client *c, struct text *out, struct kernel *k,
                    const struct pack *p, const struct own_figures *own) {
    char request[2048], head[160];
    ssize_t got = recv(c->fd, request, sizeof request - 1, MSG_DONTWAIT);
    const char *status = "200 OK";
    struct text h = {.bytes = head, .room = sizeof head};

    if (got == 0)
        server_drop(s, c);
    if (got <= 0 || c->asked)
        return;
    request[got] = 0;
    c->asked = 1;
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
    if (!client_put(s, c, head, h.used) || !client_put(s, c, out->bytes, out->used))
        server_drop(s, c);
}
