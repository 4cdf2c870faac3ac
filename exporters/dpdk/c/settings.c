// SPDX-License-Identifier: Apache-2.0
/* See settings.h. */
#include "settings.h"

#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: n3ic-dpdk EAL-OPTIONS -- [options]\n"
    "Meter the packets of DPDK's ports, classify each flow when it is decided, and do with its\n"
    "packets what the policy says. The first lcore controls; each further one works.\n"
    "\n"
    "  --policy VERDICT=ACTION  what is done with packets of a class, shunt, undecided or aside:\n"
    "                           pass, drop, interface:NAME, mark:N or ring:NAME; pass without one\n"
    "  --take RING=PORT         send what comes into a ring out of a port, by this program itself\n"
    "  --tap                    packets that pass are freed; without it they leave by the port\n"
    "                           beside theirs (0 and 1, 2 and 3), or by their own\n"
    "  --no-rss                 distribute by software, whatever the device can\n"
    "  --decisions FILE         a line of CSV for each decided flow\n"
    "  --stats-json FILE        the statistics, each interval and at the end\n"
    "  --interval SECONDS       between two writings of the statistics (1)\n"
    "  --packets N              end after so many packets\n"
    "  --seconds N              end after so many seconds\n"
    "  --until-end              the ports are captures: wait in place of losing, end with them\n"
    "  --mbufs N                packet buffers (16384)\n"
    "  --descriptors N          of each queue (1024)\n"
    "  --help                   this text\n";

void fail(int status, const char *form, ...) {
    va_list values;
    va_start(values, form);
    fputs("n3ic-dpdk: ", stderr);
    vfprintf(stderr, form, values);
    fputc('\n', stderr);
    va_end(values);
    exit(status);
}

static uint64_t parse_number(const char *option, const char *text, uint64_t least, uint64_t most) {
    char *end = NULL;
    errno = 0;
    const unsigned long long n = strtoull(text, &end, 10);
    if (errno || *end || !*text || !strchr("0123456789", *text) || n < least || n > most) {
        fail(EXIT_USAGE, "--%s %s: expected a number from %llu to %llu", option, text,
             (unsigned long long)least, (unsigned long long)most);
    }
    return n;
}

static void append_value(const char *option, const char **list, unsigned *n, unsigned room,
                         const char *text) {
    if (*n == room) {
        fail(EXIT_USAGE, "--%s: given more than %u times, which is the limit", option, room);
    }
    list[(*n)++] = text;
}

int settings_read(struct settings *s, int argc, char **argv) {
    enum {
        POLICY,
        TAKE,
        TAP,
        NO_RSS,
        DECISIONS,
        STATISTICS,
        INTERVAL,
        PACKETS,
        SECONDS,
        UNTIL_END
    };
    enum { MBUFS = UNTIL_END + 1, DESCRIPTORS, HELP };
    static const struct option known[] = {{"policy", required_argument, NULL, POLICY},
                                          {"take", required_argument, NULL, TAKE},
                                          {"tap", no_argument, NULL, TAP},
                                          {"no-rss", no_argument, NULL, NO_RSS},
                                          {"decisions", required_argument, NULL, DECISIONS},
                                          {"stats-json", required_argument, NULL, STATISTICS},
                                          {"interval", required_argument, NULL, INTERVAL},
                                          {"packets", required_argument, NULL, PACKETS},
                                          {"seconds", required_argument, NULL, SECONDS},
                                          {"until-end", no_argument, NULL, UNTIL_END},
                                          {"mbufs", required_argument, NULL, MBUFS},
                                          {"descriptors", required_argument, NULL, DESCRIPTORS},
                                          {"help", no_argument, NULL, HELP},
                                          {NULL, 0, NULL, 0}};
    int option;
    *s = (struct settings){.mbufs = 16384, .descriptors = 1024, .interval = 1};
    optind = 1;
    while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
        switch (option) {
        case POLICY:
            append_value("policy", s->policies, &s->n_policies, MAX_POLICIES, optarg);
            break;
        case TAKE:
            append_value("take", s->ring_outputs, &s->n_ring_outputs, MAX_RING_OUTPUTS, optarg);
            break;
        case TAP:
            s->tap = 1;
            break;
        case NO_RSS:
            s->no_rss = 1;
            break;
        case DECISIONS:
            s->decisions = optarg;
            break;
        case STATISTICS:
            s->statistics = optarg;
            break;
        case INTERVAL:
            s->interval = (uint32_t)parse_number("interval", optarg, 1, 86400);
            break;
        case PACKETS:
            s->packets = parse_number("packets", optarg, 1, UINT64_MAX);
            break;
        case SECONDS:
            s->seconds = parse_number("seconds", optarg, 1, UINT32_MAX);
            break;
        case UNTIL_END:
            s->until_end = 1;
            break;
        case MBUFS:
            s->mbufs = (uint32_t)parse_number("mbufs", optarg, 1024, 1 << 24);
            break;
        case DESCRIPTORS:
            s->descriptors = (uint32_t)parse_number("descriptors", optarg, 64, 32768);
            break;
        case HELP:
            fputs(usage, stdout);
            return 0;
        default:
            fputs(usage, stderr);
            exit(EXIT_USAGE);
        }
    }
    if (optind != argc) {
        fail(EXIT_USAGE, "%s: unknown argument; --help lists the options", argv[optind]);
    }
    return 1;
}
