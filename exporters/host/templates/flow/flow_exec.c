// SPDX-License-Identifier: Apache-2.0
/*
 * flow-exec: packets in, verdicts out. Meters the packets of a capture or of an interface, and
 * classifies each flow when it is decided.
 *
 * Writes CSV, one line for each flow: its key, its times, the event that decided it, the class, the
 * margin and the scores. n3ic predict CAPTURE writes the same bytes.
 */
#define _POSIX_C_SOURCE 200809L
#define _DEFAULT_SOURCE /* getentropy, of POSIX since 2024 */

#include "bnn.h"
#include "capture.h"
#include "domain.h"
#include "flow_names.h"
#include "lines.h"
#include "live.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

enum { EXIT_INPUT = 1, EXIT_USAGE = 2 };
enum { BATCH = 256, PACKETS_A_BATCH = 4096 };
enum { GRACE_S = 1 }; /* a packet of an interface is fetched within this time */

static const char *const program = "flow-exec";

static const char usage[] =
    "usage: flow-exec [options] [FILE]\n"
    "Meter the packets of the capture FILE (pcap or pcapng), or of standard input where FILE is -\n"
    "or missing, and classify each flow when it is decided.\n"
    "\n"
    "  -i IFACE   the packets of this network interface, until interrupted (Linux, as root)\n"
    "  -p         do not put the interface into promiscuous mode\n"
    "  -c COUNT   end after COUNT packets\n"
    "  -r         write the registers as well\n"
    "  -f         write the features as well\n"
    "  -b         write the network's input bits as well, bit 0 first\n"
    "  -h         this text\n";

static volatile sig_atomic_t stopped;

static void on_signal(int number) {
    (void)number;
    stopped = 1;
}

/* What to write, and the buffers that it comes from. */
struct output {
    const struct bnn *net;
    struct meter *meter;
    struct lines lines;
    uint32_t *column; /* of each feature of the network, among the meter's */
    uint32_t *values, *words, *classes;
    int32_t *margins, *scores;
    uint64_t flows;
    struct domain *domain;
};

/* --- errors ---------------------------------------------------------------------------- */

static void fail(const char *what, const char *why) {
    fprintf(stderr, "%s: %s: %s\n", program, what, why);
    exit(EXIT_INPUT);
}

static void *allocate(size_t count, size_t size) {
    void *memory = calloc(count ? count : 1, size);
    if (!memory) {
        fail("memory", "too little is available");
    }
    return memory;
}

/* A reader that closed the pipe early (head, less) is no error. */
static void flush_output(void) {
    if (fflush(stdout) || ferror(stdout)) {
        if (errno == EPIPE) {
            _exit(0);
        }
        fail("cannot write", strerror(errno));
    }
}

/* --- flows ----------------------------------------------------------------------------- */

/* Classifies the flows that were decided since the last call. */
static void write_flows(struct output *o) {
    const uint32_t n_features = bnn_features(o->net);
    size_t n;
    const struct record *r = meter_records(o->meter, &n);
    while (n) {
        const size_t rows = n < BATCH ? n : BATCH;
        for (size_t i = 0; i < rows; i++) {
            for (uint32_t j = 0; j < n_features; j++) {
                o->values[i * n_features + j] = r[i].features[o->column[j]];
            }
        }
        bnn_encode_batch(o->net, o->values, rows, o->words);
        bnn_infer_batch(o->net, o->words, rows, o->classes, o->margins, o->scores);
        for (size_t i = 0; i < rows; i++) {
            domain_add(o->domain, o->values + i * n_features, o->words + i * bnn_words(o->net));
            const struct verdict v = {o->classes[i], o->margins[i],
                                      o->scores + i * bnn_classes(o->net),
                                      o->words + i * bnn_words(o->net)};
            lines_write(&o->lines, o->flows++, &r[i], &v);
        }
        r += rows;
        n -= rows;
    }
}

/*
 * Writes the counters of metered packets, and of those that belong to no flow; returns whether
 * there are packets and the link type of none is read.
 */
static int write_counters(const struct output *o, uint64_t lost) {
    uint64_t counters[METER_COUNTERS];
    meter_counters(o->meter, counters);
    if (counters[COUNT_FAILED]) {
        fail("memory", "too little was available: flows are missing");
    }
    fprintf(stderr, "%s: %" PRIu64 " packets, %" PRIu64 " flows decided\n", program,
            counters[COUNT_PACKETS], o->flows);
    for (uint32_t i = 0; i < ASIDE_REASONS; i++) {
        if (counters[COUNT_ASIDE + i]) {
            fprintf(stderr, "%s: put aside: %" PRIu64 " packets (%s)\n", program,
                    counters[COUNT_ASIDE + i], meter_aside_name(i));
        }
    }
    if (counters[COUNT_LATE]) {
        fprintf(stderr, "%s: after the end of their flow: %" PRIu64 " packets\n", program,
                counters[COUNT_LATE]);
    }
    if (counters[COUNT_EVICTED]) {
        fprintf(stderr, "%s: evicted: %" PRIu64 " flows, whose cache was full\n", program,
                counters[COUNT_EVICTED]);
    }
    if (counters[COUNT_FORGOTTEN]) {
        fprintf(stderr, "%s: forgotten: %" PRIu64 " sources, whose places others took\n", program,
                counters[COUNT_FORGOTTEN]);
    }
    if (counters[COUNT_BACK] || counters[COUNT_AHEAD] || counters[COUNT_STEPS]) {
        fprintf(stderr,
                "%s: time stamps: %" PRIu64 " packets earlier than one before them, %" PRIu64
                " more than an hour ahead, %" PRIu64 " times the clock was set back\n",
                program, counters[COUNT_BACK], counters[COUNT_AHEAD], counters[COUNT_STEPS]);
    }
    if (lost) {
        fprintf(stderr, "%s: lost: %" PRIu64 " packets, which came too fast\n", program, lost);
    }
    domain_write(o->domain, stderr, program);
    return counters[COUNT_PACKETS] &&
           counters[COUNT_ASIDE + ASIDE_LINK_TYPE] == counters[COUNT_PACKETS];
}

/* --- packets --------------------------------------------------------------------------- */

static void open_output(struct output *o, uint32_t link, int live) {
    const uint32_t n_features = bnn_features(o->net);
    uint64_t secret[SECRET_WORDS];
    /* Keys the hash of flows, so that a sender cannot aim at one chain of the flow cache. */
    if (getentropy(secret, sizeof secret)) {
        fail("cannot read random numbers from the kernel", strerror(errno));
    }
    o->meter = meter_open(link, secret);
    if (!o->meter) {
        fail("memory", "too little is available for the flow cache");
    }
    if (live) { /* a capture gives the same records each time */
        meter_hide_sources(o->meter, secret);
    }
    o->column = allocate(n_features, sizeof *o->column);
    for (uint32_t i = 0; i < n_features; i++) {
        const char *name = bnn_feature_name(o->net, i);
        while (o->column[i] < METER_VALUES && strcmp(feature_names[o->column[i]], name) != 0) {
            o->column[i]++;
        }
        if (o->column[i] == METER_VALUES) {
            fail("cannot meter for this network",
                 "it reads a feature that the meter does not compute");
        }
    }
    o->domain = domain_open(bnn_inputs(o->net));
    if (!o->domain) {
        fail("memory", "too little is available");
    }
    o->values = allocate(BATCH, n_features * sizeof *o->values);
    o->words = allocate(BATCH, bnn_words(o->net) * sizeof *o->words);
    o->classes = allocate(BATCH, sizeof *o->classes);
    o->margins = allocate(BATCH, sizeof *o->margins);
    o->scores = allocate(BATCH, bnn_classes(o->net) * sizeof *o->scores);
    o->lines.to = stdout;
    o->lines.net = o->net;
    lines_header(&o->lines);
}

/* Returns as write_counters(). */
static int close_output(struct output *o, uint64_t lost) {
    while (meter_finish(o->meter, PACKETS_A_BATCH)) {
        write_flows(o);
    }
    write_flows(o);
    flush_output();
    const int is_unread = write_counters(o, lost);
    domain_close(o->domain);
    meter_close(o->meter);
    free(o->column);
    free(o->values);
    free(o->words);
    free(o->classes);
    free(o->margins);
    free(o->scores);
    return is_unread;
}

static void meter_packet(struct output *o, const struct captured *f) {
    meter_frame(o->meter, f->bytes, f->captured, f->length, meter_time(f->seconds, f->nanoseconds));
}

static void meter_capture(struct output *o, const char *path, uint64_t limit) {
    const int is_file = strcmp(path, "-") != 0;
    const char *name = is_file ? path : "standard input";
    const char *wrong = NULL;
    const int fd = is_file ? open(path, O_RDONLY) : STDIN_FILENO;
    struct capture *c = fd < 0 ? NULL : capture_open(fd, &stopped, &wrong);
    struct captured f;
    int got = 1;
    if (!c) {
        fail(name, wrong ? wrong : strerror(errno));
    }
    open_output(o, capture_link(c), 0);
    for (uint64_t n = 1; n <= limit && (got = capture_next(c, &f, &wrong)) > 0; n++) {
        meter_link(o->meter, f.link);
        meter_packet(o, &f);
        if (n % PACKETS_A_BATCH == 0 || capture_waits(c)) {
            write_flows(o);
            flush_output();
        }
    }
    if (got < 0) {
        fprintf(stderr, "%s: %s: the capture ends early: %s; what came before it counts\n", program,
                name, wrong);
    }
    const uint32_t link = capture_link(c) & LINK_TYPE;
    const int is_unread = close_output(o, 0);
    capture_close(c);
    if (is_file) {
        close(fd);
    }
    if (is_unread) {
        char why[96];
        snprintf(why, sizeof why,
                 "nothing can be read, because its link type is %" PRIu32 ", which is unknown",
                 link);
        fail(name, why);
    }
}

static void meter_interface(struct output *o, const char *name, int promiscuous, uint64_t limit) {
    struct live *l = live_open(name, promiscuous);
    uint64_t n = 0;
    int got = 0;
    if (!l) {
        const int forbidden = errno == EPERM || errno == EACCES;
        fail(name, forbidden ? "not permitted: run as root, or with CAP_NET_RAW" : strerror(errno));
    }
    open_output(o, live_link(l), 1);
    flush_output();
    while (!stopped && n < limit) {
        struct captured f;
        struct timespec now;
        got = live_next(l, &f);
        if (got < 0) {
            fprintf(stderr, "%s: %s: %s; what came before it counts\n", program, name,
                    strerror(errno));
            break;
        }
        if (got) {
            meter_packet(o, &f);
            if (++n % PACKETS_A_BATCH == 0) {
                write_flows(o);
            }
            continue;
        }
        /* Only when the queue is empty: a packet in it may be older than the clock, and must still
         * find its flow. */
        clock_gettime(CLOCK_REALTIME, &now);
        meter_expire(o->meter, meter_time(now.tv_sec - GRACE_S, now.tv_nsec));
        write_flows(o);
        flush_output();
        live_wait(l);
    }
    close_output(o, live_lost(l));
    live_close(l);
}

/* --- program --------------------------------------------------------------------------- */

static uint64_t parse_count(const char *text) {
    char *end = NULL;
    errno = 0;
    const unsigned long long n = strtoull(text, &end, 10);
    if (errno || !n || *end || !strchr("0123456789", *text)) {
        fprintf(stderr, "%s: -c %s: expected a number of packets, at least 1\n", program, text);
        exit(EXIT_USAGE);
    }
    return n;
}

static void catch_signals(void) {
    struct sigaction action = {.sa_handler = on_signal}; /* calls that wait are not restarted */
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
}

int main(int argc, char **argv) {
    struct output o = {0};
    const char *interface = NULL;
    uint64_t limit = UINT64_MAX;
    int promiscuous = 1;
    int option;
    while ((option = getopt(argc, argv, "i:pc:rfbh")) != -1) {
        switch (option) {
        case 'i':
            interface = optarg;
            break;
        case 'p':
            promiscuous = 0;
            break;
        case 'c':
            limit = parse_count(optarg);
            break;
        case 'r':
            o.lines.registers = 1;
            break;
        case 'f':
            o.lines.features = 1;
            break;
        case 'b':
            o.lines.bits = 1;
            break;
        case 'h':
            fputs(usage, stdout);
            return 0;
        default:
            fputs(usage, stderr);
            return EXIT_USAGE;
        }
    }
    if (argc - optind > (interface ? 0 : 1)) {
        fputs(usage, stderr);
        return EXIT_USAGE;
    }
    catch_signals();
    setvbuf(stdout, NULL, _IOFBF, 1 << 16);
    struct bnn *net = NULL;
    const int status = bnn_init(&net);
    if (status != BNN_OK) {
        fail("cannot load the weights", bnn_strerror(status));
    }
    o.net = net;
    if (interface) {
        meter_interface(&o, interface, promiscuous, limit);
    } else {
        meter_capture(&o, optind < argc ? argv[optind] : "-", limit);
    }
    bnn_free(net);
    return 0;
}
