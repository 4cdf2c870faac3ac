// SPDX-License-Identifier: Apache-2.0
/* See settings.h. */
#include "settings.h"

#include "area.h"

#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void fail(int status, const char *form, ...) {
    va_list values;
    va_start(values, form);
    fputs("n3ic-manager: ", stderr);
    vfprintf(stderr, form, values);
    fputc('\n', stderr);
    va_end(values);
    exit(status);
}

static uint64_t read_number(const char *what, const char *text, uint64_t least, uint64_t most) {
    char *end = NULL;
    errno = 0;
    const unsigned long long n = strtoull(text, &end, 10);
    if (errno || *end || *text < '0' || *text > '9' || n < least || n > most) {
        fail(EXIT_USAGE, "%s %s: expected a number from %llu to %llu", what, text,
             (unsigned long long)least, (unsigned long long)most);
    }
    return n;
}

/* "-" for nowhere, "f2" for a function, "p1" for a port; settings_read checks the numbers last. */
static struct hop read_hop(const char *text) {
    struct hop h = {TO_END, 0};
    if (strcmp(text, "-") != 0) {
        if (*text != 'f' && *text != 'p') {
            fail(EXIT_USAGE, "%s: expected -, fNUMBER or pNUMBER", text);
        }
        h.kind = *text == 'f' ? TO_FUNCTION : TO_PORT;
        h.index = (unsigned)read_number("a place", text + 1, 0, MOST_FUNCTIONS);
    }
    return h;
}

static unsigned read_hops(char *text, const char *between, struct hop *out, unsigned most) {
    unsigned n = 0;
    char *rest = text;
    for (char *one = strtok_r(text, between, &rest); one; one = strtok_r(NULL, between, &rest)) {
        if (n == most) {
            fail(EXIT_USAGE, "expected at most %u places", most);
        }
        out[n++] = read_hop(one);
    }
    return n;
}

/* "f0+f1,f2": each packet goes to f2, and by its flow to f0 or f1. */
static unsigned read_entries(char *text, struct entry *out) {
    unsigned n = 0;
    char *rest = text;
    for (char *one = strtok_r(text, ",", &rest); one; one = strtok_r(NULL, ",", &rest)) {
        if (n == MOST_FUNCTIONS) {
            fail(EXIT_USAGE, "--entries: expected at most %d places", MOST_FUNCTIONS);
        }
        out[n].n = read_hops(one, "+", out[n].hops, MOST_FUNCTIONS);
        n++;
    }
    return n;
}

static enum flow_key read_share_by(const char *text) {
    static const char *const names[FLOW_KEYS] = {"five-tuple", "host-pair", "source-host"};
    for (unsigned i = 0; i < FLOW_KEYS; i++) {
        if (strcmp(text, names[i]) == 0) {
            return (enum flow_key)i;
        }
    }
    fail(EXIT_USAGE, "--share-by %s: expected five-tuple, host-pair or source-host", text);
}

/* NAME:TICKETS:HANG_MS:BYPASSED:NEXT:ROUTES */
static struct function_settings read_function(char *text) {
    enum { PARTS = 6 };
    struct function_settings f = {0};
    char *part[PARTS];
    for (unsigned i = 0; i < PARTS; i++) {
        part[i] = strsep(&text, ":");
        if (!part[i]) {
            fail(EXIT_USAGE, "--function: expected NAME:TICKETS:HANG_MS:BYPASSED:NEXT:ROUTES");
        }
    }
    if (strlen(part[0]) >= sizeof f.name) {
        fail(EXIT_USAGE, "--function %s: expected a name of at most %zu letters", part[0],
             sizeof f.name - 1);
    }
    strcpy(f.name, part[0]);
    f.tickets = (uint32_t)read_number("tickets", part[1], BURST, MOST_TICKETS);
    f.hang_ms = (uint32_t)read_number("hang", part[2], 0, UINT32_MAX);
    f.bypassed = (int)read_number("bypassed", part[3], 0, 1);
    f.next = read_hop(part[4]);
    f.n_routes = read_hops(part[5], ",", f.routes, MOST_ROUTES);
    return f;
}

static enum memory read_memory(const char *text) {
    static const char *const names[] = {"file", "huge-file", "dpdk"};
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(text, names[i]) == 0) {
            return (enum memory)i;
        }
    }
    fail(EXIT_USAGE, "--memory %s: expected file, huge-file or dpdk", text);
}

static void check_hops(const struct settings *s, const struct hop *list, unsigned n) {
    for (unsigned i = 0; i < n; i++) {
        const unsigned count = list[i].kind == TO_FUNCTION ? s->n_functions : s->n_ports;
        if (list[i].kind != TO_END && list[i].index >= count) {
            fail(EXIT_USAGE,
                 "expected places among the functions and ports of the options, got %c%u",
                 list[i].kind == TO_FUNCTION ? 'f' : 'p', list[i].index);
        }
    }
}

void settings_read(struct settings *s, int argc, char **argv) {
    enum {
        SOCKET,
        MEMORY,
        BUFFERS,
        BUFFER_BYTES,
        PACKETS,
        UNTIL_END,
        PORT,
        ENTRIES,
        SHARE_BY,
        FUNCTION
    };
    static const struct option options[] = {{"socket", required_argument, NULL, SOCKET},
                                            {"memory", required_argument, NULL, MEMORY},
                                            {"buffers", required_argument, NULL, BUFFERS},
                                            {"buffer-bytes", required_argument, NULL, BUFFER_BYTES},
                                            {"packets", required_argument, NULL, PACKETS},
                                            {"until-end", no_argument, NULL, UNTIL_END},
                                            {"port", required_argument, NULL, PORT},
                                            {"entries", required_argument, NULL, ENTRIES},
                                            {"share-by", required_argument, NULL, SHARE_BY},
                                            {"function", required_argument, NULL, FUNCTION},
                                            {NULL, 0, NULL, 0}};
    int option;
    *s = (struct settings){.buffers = 16384, .buffer_bytes = 2048};
    optind = 1;
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (option) {
        case SOCKET:
            s->socket = optarg;
            break;
        case MEMORY:
            s->memory = read_memory(optarg);
            break;
        case BUFFERS:
            s->buffers = (uint32_t)read_number("--buffers", optarg, BURST, 1 << 24);
            break;
        case BUFFER_BYTES:
            s->buffer_bytes = (uint32_t)read_number("--buffer-bytes", optarg, 256, 65000);
            break;
        case PACKETS:
            s->packets = read_number("--packets", optarg, 1, UINT64_MAX);
            break;
        case UNTIL_END:
            s->until_end = 1;
            break;
        case PORT:
            if (s->n_ports == MOST_PORTS) {
                fail(EXIT_USAGE, "--port: expected at most %d", MOST_PORTS);
            }
            s->ports[s->n_ports++] = optarg;
            break;
        case ENTRIES:
            s->n_entries = read_entries(optarg, s->entries);
            break;
        case SHARE_BY:
            s->share_by = read_share_by(optarg);
            break;
        case FUNCTION:
            if (s->n_functions == MOST_FUNCTIONS) {
                fail(EXIT_USAGE, "--function: expected at most %d", MOST_FUNCTIONS);
            }
            s->functions[s->n_functions++] = read_function(optarg);
            break;
        default:
            exit(EXIT_USAGE);
        }
    }
    if (optind != argc || !s->socket || !s->n_entries || !s->n_ports) {
        fail(EXIT_USAGE, "expected --socket, --port, --entries and no further word");
    }
    for (unsigned i = 0; i < s->n_entries; i++) {
        check_hops(s, s->entries[i].hops, s->entries[i].n);
    }
    for (unsigned i = 0; i < s->n_functions; i++) {
        check_hops(s, &s->functions[i].next, 1);
        check_hops(s, s->functions[i].routes, s->functions[i].n_routes);
    }
}
