// SPDX-License-Identifier: Apache-2.0
/* See lines.h. */
#define _POSIX_C_SOURCE 200809L

#include "lines.h"

#include "flow_names.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <string.h>

/* Writes a cell of CSV, with an apostrophe before text that a spreadsheet would run as a formula.
 */
static void write_cell(FILE *to, const char *prefix, const char *text) {
    const int quoted = text[strcspn(text, ",\"\r\n")] != '\0';
    if (quoted) {
        putc('"', to);
    }
    if (!*prefix && *text && strchr("=+-@\t\r", *text)) {
        putc('\'', to);
    }
    fputs(prefix, to);
    for (; *text; text++) {
        if (*text == '"') {
            putc('"', to);
        }
        putc(*text, to);
    }
    if (quoted) {
        putc('"', to);
    }
}

void lines_header(const struct lines *l) {
    fputs("row,source,source_port,destination,destination_port,protocol,first_us,last_us,packets,"
          "decided,class,margin",
          l->to);
    for (uint32_t c = 0; c < bnn_classes(l->net); c++) {
        putc(',', l->to);
        write_cell(l->to, "score_", bnn_class_name(l->net, c));
    }
    for (uint32_t i = 0; l->registers && i < METER_REGISTERS; i++) {
        putc(',', l->to);
        write_cell(l->to, "register_", register_names[i]);
    }
    for (uint32_t i = 0; l->features && i < METER_VALUES; i++) {
        putc(',', l->to);
        write_cell(l->to, "feature_", feature_names[i]);
    }
    fputs(l->bits ? ",bits\n" : "\n", l->to);
}

static void write_address(FILE *to, const struct key *k, const uint8_t *address) {
    char text[INET6_ADDRSTRLEN] = "";
    inet_ntop(k->address_bytes == 4 ? AF_INET : AF_INET6, address, text, sizeof text);
    fputs(text, to);
}

static uint64_t microseconds(uint64_t time) {
    return time * METER_TICK_NS / 1000;
}

static void write_flow_columns(FILE *to, uint64_t row, const struct record *r) {
    fprintf(to, "%" PRIu64 ",", row);
    write_address(to, &r->key, r->key.source);
    fprintf(to, ",%u,", r->key.source_port);
#ifndef METER_KEY_SOURCE_HOST
    write_address(to, &r->key, r->key.destination);
#endif
    fprintf(to, ",%u,%u,%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%s,", r->key.destination_port,
            r->key.protocol, microseconds(r->first), microseconds(r->last), r->packets,
            meter_end_name(r->why));
}

void lines_write(const struct lines *l, uint64_t row, const struct record *r,
                 const struct verdict *v) {
    write_flow_columns(l->to, row, r);
    write_cell(l->to, "", bnn_class_name(l->net, v->class));
    fprintf(l->to, ",%" PRId32, v->margin);
    for (uint32_t c = 0; c < bnn_classes(l->net); c++) {
        fprintf(l->to, ",%" PRId32, v->scores[c]);
    }
    for (uint32_t j = 0; l->registers && j < METER_REGISTERS; j++) {
        fprintf(l->to, ",%" PRIu64, r->registers[j]);
    }
    for (uint32_t j = 0; l->features && j < METER_VALUES; j++) {
        fprintf(l->to, ",%" PRIu32, r->features[j]);
    }
    if (l->bits) {
        putc(',', l->to);
        for (uint32_t j = 0; j < bnn_inputs(l->net); j++) {
            putc('0' + (int)(v->words[j / 32] >> j % 32 & 1), l->to);
        }
    }
    putc('\n', l->to);
}
