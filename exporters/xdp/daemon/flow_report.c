// SPDX-License-Identifier: Apache-2.0
#include "flow_report.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "build.h"

#define SECOND 1000000000ull

const char *const end_names[ENDS] = {N3ICD_ENDS};

void reading_begin(struct reading *r) {
    struct timespec real, up;

    clock_gettime(CLOCK_REALTIME, &real);
    clock_gettime(CLOCK_MONOTONIC, &up);
    r->boot_time_ns = (uint64_t)(real.tv_sec - up.tv_sec) * SECOND + (uint64_t)real.tv_nsec -
                      (uint64_t)up.tv_nsec;
    r->index = 0;
}

static const char *interface_name(struct reading *r, uint32_t index) {
    if (!index || r->index != index) {
        if (!if_indextoname(index, r->interface))
            snprintf(r->interface, sizeof r->interface, "%" PRIu32, index);
        r->index = index;
    }
    return r->interface;
}

static const char *class_name(const struct pack *p, const struct event *e) {
    const struct network *n = p && e->slot < SLOTS ? pack_network(p, e->slot) : NULL;

    return n && !memcmp(n->model, e->model, sizeof e->model)
               ? p->class[e->slot][(uint32_t)e->verdict]
               : NULL;
}

int flow_report_fill(struct flow_report *t, const struct event *e, struct reading *r,
                     const struct pack *now, const struct pack *before) {
    int family = e->key.address_bytes == 4 ? AF_INET : AF_INET6;
    uint64_t start = r->boot_time_ns;

    memset(t, 0, sizeof *t);
    t->event = e;
    t->pack = now;
    if ((e->key.address_bytes != 4 && e->key.address_bytes != 16) || e->why >= ENDS ||
        !inet_ntop(family, e->key.source, t->source, sizeof t->source) ||
        !inet_ntop(family, e->key.destination, t->destination, sizeof t->destination))
        return 0;
    t->why = end_names[e->why];
    t->interface = interface_name(r, e->interface);
    t->first_ns = start + e->first * METER_TICK_NS;
    t->last_ns = start + e->last * METER_TICK_NS;
    t->decided_ns = start + e->decided * METER_TICK_NS;
    if (e->verdict == SHUNTED) {
        t->verdict = "shunt";
    } else if (e->verdict < 0 || e->verdict >= NETWORK_CLASSES) {
        t->verdict = "none";
    } else {
        t->verdict = class_name(now, e);
        t->verdict = t->verdict ? t->verdict : class_name(before, e);
        if (!t->verdict) {
            snprintf(t->number, sizeof t->number, "%" PRId32, e->verdict);
            t->verdict = t->number;
        }
    }
    return 1;
}

static void write_number(struct text *out, const char *before, uint64_t number) {
    text_string(out, before);
    text_number(out, number);
}

static void write_time(struct text *out, const char *before, uint64_t ns) {
    uint64_t us = (ns + 500) / 1000;
    char fraction[8];

    write_number(out, before, us / 1000000);
    snprintf(fraction, sizeof fraction, ".%06u", (unsigned)(us % 1000000));
    text_string(out, fraction);
}

static void write_name(struct text *out, const char *before, const char *name) {
    text_string(out, before);
    text_json(out, name);
}

void flow_report_write_json(const struct flow_report *t, struct text *out) {
    static const char digit[] = "0123456789abcdef";
    const struct event *e = t->event;

    write_name(out, "{\"source\": ", t->source);
    write_number(out, ", \"source_port\": ", e->key.source_port);
    write_name(out, ", \"destination\": ", t->destination);
    write_number(out, ", \"destination_port\": ", e->key.destination_port);
    write_number(out, ", \"protocol\": ", e->key.protocol);
    if (e->vlan == UNTAGGED)
        text_string(out, ", \"vlan\": null");
    else
        write_number(out, ", \"vlan\": ", e->vlan);
    write_name(out, ", \"interface\": ", t->interface);
    write_time(out, ", \"first\": ", t->first_ns);
    write_time(out, ", \"last\": ", t->last_ns);
    write_time(out, ", \"decided\": ", t->decided_ns);
    write_number(out, ", \"packets\": ", e->packets);
    write_name(out, ", \"why\": ", t->why);
    write_name(out, ", \"verdict\": ", t->verdict);
    write_number(out, ", \"margin\": ", e->margin);
    text_string(out, ", \"scores\": [");
    for (int i = 0; i < NETWORK_CLASSES; i++) {
        text_string(out, i ? ", " : "");
        text_signed(out, e->score[i]);
    }
    write_number(out, "], \"slot\": ", e->slot);
    text_string(out, ", \"model\": \"");
    for (unsigned i = 0; i < sizeof e->model; i++) {
        char hex[] = {digit[e->model[i] >> 4], digit[e->model[i] & 15]};

        text_bytes(out, hex, sizeof hex);
    }
    text_string(out, "\", \"registers\": {");
    for (int i = 0; i < METER_REGISTERS; i++) {
        write_name(out, i ? ", " : "", t->pack->register_name[i]);
        write_number(out, ": ", e->registers[i]);
    }
    text_string(out, "}, \"features\": {");
    for (int i = 0; i < METER_VALUES; i++) {
        write_name(out, i ? ", " : "", t->pack->feature[i]);
        write_number(out, ": ", e->features[i]);
    }
    text_string(out, "}}\n");
}

size_t flow_report_room(const struct pack *p) {
    size_t room = 1024 + 16 * NETWORK_CLASSES + 6 * IF_NAMESIZE, longest = 16;

    for (int i = 0; i < METER_REGISTERS; i++)
        room += 6 * strlen(p->register_name[i]) + 32;
    for (int i = 0; i < METER_VALUES; i++)
        room += 6 * strlen(p->feature[i]) + 24;
    for (int slot = 0; slot < SLOTS; slot++)
        for (int class = 0; class < NETWORK_CLASSES; class++)
            if (p->class[slot][class] && strlen(p->class[slot][class]) > longest)
                longest = strlen(p->class[slot][class]);
    return room + 6 * longest;
}
