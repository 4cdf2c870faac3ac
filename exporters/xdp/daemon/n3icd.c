// SPDX-License-Identifier: Apache-2.0
/*
 * n3icd: the metering program of an interface without Python.
 *
 * Loads the program of an export or takes over the one that is pinned, ends idle flows, and reads
 * decided flows once, for any number of readers and sinks.
 */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "build.h"
#include "control.h"
#include "flow_report.h"
#include "ipfix.h"
#include "kernel.h"
#include "list_file.h"
#include "logs.h"
#include "metrics.h"
#include "operator.h"
#include "server.h"
#include "settings.h"
#include "sflow.h"
#include "store.h"
#include "verdict_maps.h"

#define EVENTS 64
#define DRAINED_AT_ONCE 2048 /* decided flows; then the loop looks at everything else */
#define PATIENCE_S 10        /* with a client that asks for something */

enum {
    TAG_RING,
    TAG_TIMER,
    TAG_SIGNAL,
    TAG_SYSLOG,
    TAG_SAMPLES,
    TAG_READERS = 100,
    TAG_FIGURES = 200,
    TAG_CONTROL = 300
};

struct daemon {
    struct settings settings;
    struct kernel kernel;
    struct pack *pack, *before; /* the one that was replaced last */
    struct server readers, figures;
    struct control control;
    struct log_file file;
    struct syslog syslog;
    struct ipfix ipfix;
    struct sflow sflow;
    struct text line, answer;
    struct ring_buffer *ring, *samples;
    struct counters counted; /* at this reading of samples */
    struct reading reading;
    int epoll, timer, signals, lock;
    uint64_t events, damaged;
    uint32_t configured; /* sum of the configured pack */
    uint32_t drained;    /* decided flows of this turn of the loop */
    uint32_t ring_room;  /* the most decided flows that the ring holds */
    int behind;          /* the ring may hold flows that were decided under the pack before */
    int sweeps_failed;
    int succeeds;   /* a program of other networks that is pinned */
    int is_gone;    /* the interface, or its program */
    int is_leaving; /* the program stays for the next n3icd */
};

static uint64_t now_s(void) {
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec;
}

/* --- decided flows --------------------------------------------------------------------------- */

static void report_event(struct daemon *d, const void *data, size_t size) {
    struct flow_report t;

    d->events++;
    if (size < sizeof(struct event) ||
        !flow_report_fill(&t, data, &d->reading, d->pack, d->before)) {
        d->damaged++;
        return;
    }
    text_clear(&d->line);
    flow_report_write_json(&t, &d->line);
    if (d->line.cut) {
        d->damaged++;
    } else {
        server_broadcast(&d->readers, d->line.bytes, d->line.used);
        file_write(&d->file, d->line.bytes, d->line.used);
    }
    syslog_send(&d->syslog, &t);
    ipfix_add(&d->ipfix, &t);
}

/* An error ends the reading behind this flow; the ring does not give it again. */
static int on_decided(void *context, void *data, size_t size) {
    struct daemon *d = context;

    report_event(d, data, size);
    return ++d->drained < DRAINED_AT_ONCE ? 0 : -ECANCELED;
}

/* Reads what is in the ring, with bounded work; 1 if it may hold more. */
static int drain_ring(struct daemon *d) {
    int more;

    d->drained = 0;
    reading_begin(&d->reading);
    more = ring_buffer__consume(d->ring) == -ECANCELED;
    if (!more)
        d->behind = 0;
    ipfix_flush(&d->ipfix);
    syslog_flush(&d->syslog);
    server_flush_all(&d->readers);
    return more;
}

/* Reads what is in the ring now; what comes meanwhile may stay. */
static void empty_ring(struct daemon *d) {
    for (uint32_t flows = 0; flows < d->ring_room && drain_ring(d); flows += DRAINED_AT_ONCE)
        ;
}

/* --- samples of dropped packets --------------------------------------------------------------- */

static int on_sample(void *context, void *data, size_t size) {
    struct daemon *d = context;
    const struct counters *c = &d->counted;

    /* Now, so that packets that came since the last sample are counted. */
    if (!kernel_counters(&d->kernel, &d->counted))
        log_message("%s: the counters cannot be read: %s", d->kernel.interface, strerror(errno));
    if (size >= sizeof(struct sample))
        sflow_add(&d->sflow, data, c->blocked + c->limited + c->dropped, c->samples_lost);
    return ++d->drained < DRAINED_AT_ONCE ? 0 : -ECANCELED;
}

static void drain_samples(struct daemon *d) {
    d->drained = 0;
    ring_buffer__consume(d->samples);
    sflow_flush(&d->sflow);
}

/* Says in a pack how many dropped packets give a sample. */
static void set_sampling(const struct settings *s, const struct pack *p) {
    const struct pack_value *v = pack_value(p, PACK_CONFIG, 0);
    const uint32_t one_in = *s->sflow ? s->sflow_rate : 0;

    if (v)
        memcpy(v->bytes + offsetof(struct config, sample_one_in), &one_in, sizeof one_in);
}

/* --- clients --------------------------------------------------------------------------------- */

static void accept_reader(struct daemon *d) {
    char bytes[256];
    struct text hello = {.bytes = bytes, .room = sizeof bytes};
    struct stat namespace;

    text_format(&hello, "{\"n3icd\": 1, \"interface\": ");
    text_json(&hello, d->kernel.interface);
    text_format(&hello, ", \"index\": %" PRIu32 ", \"namespace\": %" PRIu64 "}\n", d->kernel.index,
                stat("/proc/self/ns/net", &namespace) ? 0 : (uint64_t)namespace.st_ino);
    server_accept(&d->readers, &hello, now_s());
}

static struct own_figures own_figures(const struct daemon *d) {
    return (struct own_figures){
        .events = d->events,
        .damaged = d->damaged,
        .readers = d->readers.clients,
        .reader_lost = d->readers.lost,
        .file_lost = d->file.lost,
        .syslog_lost = d->syslog.lost,
        .ipfix_lost = d->ipfix.lost,
        .sflow_lost = d->sflow.lost,
    };
}

static void answer_figures(struct daemon *d, struct client *c) {
    struct own_figures own = own_figures(d);

    metrics_answer(&d->figures, c, &d->answer, &d->kernel, d->pack, &own);
    server_flush(&d->figures, c);
    if (c->is_answered && !c->used)
        server_drop(&d->figures, c);
}

/* Discards what a reader sends; drops the reader when it closes its end. */
static void read_reader(struct daemon *d, struct client *c) {
    char bytes[256];
    ssize_t got;

    do
        got = recv(c->fd, bytes, sizeof bytes, MSG_DONTWAIT);
    while (got > 0);
    if (got == 0 || (errno != EAGAIN && errno != EINTR))
        server_drop(&d->readers, c);
    else
        server_flush(&d->readers, c);
}

/* --- settings and packs ---------------------------------------------------------------------- */

/* Reports settings of a pack that only a newly loaded program takes. */
static void report_fixed_options(const struct daemon *d, const struct pack *p) {
    const struct options *current = &d->kernel.options, *requested = &p->options;

    if (current->buckets != requested->buckets || current->clock != requested->clock)
        log_message(
            "%s: the pack asks for another table size or clock; the program keeps its own until it "
            "is taken off (--remove) and loaded again",
            d->kernel.interface);
}

/* Puts the values of a pack into the maps; the old ones stay if that fails. */
static int apply_pack(struct daemon *d, struct pack *p) {
    struct text line = {0};

    set_sampling(&d->settings, p);
    if (!pack_resolve(p) || !text_make(&line, flow_report_room(p)) ||
        !kernel_apply(&d->kernel, p)) {
        free(line.bytes);
        return 0;
    }
    if (d->behind)
        empty_ring(d); /* by the names that they were decided under */
    d->behind = 1;
    pack_free(d->before);
    free(d->line.bytes);
    d->before = d->pack;
    d->pack = p;
    d->line = line;
    d->ipfix.templates_sent_s = 0;
    record_pack(&d->settings, &d->kernel, p);
    return 1;
}

/* Reads the pack again and puts its values into the maps; the old ones stay if it is bad. */
static void reload_pack(struct daemon *d) {
    uint32_t configured;
    struct pack *p = store_read(&d->settings, &configured);

    if (*d->settings.json)
        file_open(&d->file, d->settings.json, d->settings.json_mib, d->settings.json_old);
    if (p && apply_pack(d, p)) {
        report_fixed_options(d, p);
        d->configured = configured;
        store_remove_updates(&d->settings, configured);
        log_message("%s: %s is loaded", d->kernel.interface, d->settings.pack);
        return;
    }
    pack_free(p);
    log_message("%s: %s is not loaded; the old values stay", d->kernel.interface, d->settings.pack);
}

/* Applies a pack that a client sent, and stores it for restarts. */
static int update_pack(struct daemon *d, struct request *r) {
    char *bytes = r->bytes;
    struct pack *p;

    r->bytes = NULL;
    if (!r->any && r->made_of != d->pack->sum) {
        free(bytes);
        log_message("the pack was made from another pack than the loaded one: make it again");
        return 0;
    }
    p = pack_parse(bytes, r->size, "the pack");
    if (!p || !pack_resolve(p) || !store_write_update(&d->settings, d->configured, p)) {
        pack_free(p);
        return 0;
    }
    if (!apply_pack(d, p)) {
        store_write_update(&d->settings, d->configured, d->pack);
        pack_free(p);
        return 0;
    }
    report_fixed_options(d, p);
    return 1;
}

static void answer_status(struct daemon *d, int i) {
    struct own_figures own = own_figures(d);
    int done;

    text_clear(&d->answer);
    done = metrics_write_json(&d->answer, &d->kernel, d->pack, &own);
    if (!done)
        log_message("%s: the figures cannot be read: %s", d->kernel.interface,
                    d->answer.cut ? "they are too many" : strerror(errno));
    control_answer(&d->control, i, done, &d->answer);
}

/* Reads a target and the seconds for which its verdict holds, or -; 0 with a message. */
static int read_wish(const struct kernel *k, char *line, struct target *t, uint64_t *until) {
    char *seconds = strchr(line, ' '), *end;
    double left;

    if (!seconds) {
        log_message("%s: expected a target and seconds, or -", line);
        return 0;
    }
    *seconds++ = 0;
    *until = FOR_EVER;
    if (!strcmp(seconds, "-"))
        return target_read(t, line);
    left = strtod(seconds, &end);
    if (*seconds < '0' || *seconds > '9' || *end || !(left >= 0 && left <= 1e9)) {
        log_message("%s: expected seconds up to 1e9, or -", seconds);
        return 0;
    }
    *until = kernel_now(k) + (uint64_t)(left * 1e9) / METER_TICK_NS;
    return target_read(t, line);
}

/* Puts verdicts on flows, one after the other, and on prefixes, all of them or none. */
static int put_verdicts(struct daemon *d, struct request *r, uint32_t *fresh) {
    uint32_t count = 0, room = 1;
    struct wish *wish;
    char *line, *rest = r->bytes;
    int done;

    for (size_t i = 0; i < r->size; i++)
        room += r->bytes[i] == '\n';
    wish = calloc(room, sizeof *wish);
    done = wish != NULL;
    if (!done)
        log_message("no memory for the verdicts");
    while (done && (line = strsep(&rest, "\n")) && *line) {
        struct target t;
        uint64_t until;

        done = read_wish(&d->kernel, line, &t, &until);
        if (done && t.flow) {
            *fresh = 1;
            done = verdict_put(&d->kernel, &t, r->action, r->argument, until);
        } else if (done) {
            wish[count++] = (struct wish){t.prefix, until};
        }
    }
    if (done && count)
        done = verdict_put_many(&d->kernel, r->action, r->argument, wish, count, fresh);
    free(wish);
    return done;
}

static void answer_verdicts(struct daemon *d, int i, enum request_kind kind) {
    struct request *r = &d->control.request[i];
    struct text out;
    uint32_t fresh = 0;
    struct target t;
    int done = 0, gone;

    if (!text_make(&out, 1 << 16)) {
        log_message("no memory");
    } else if (kind == REQUEST_LIST) {
        done = verdict_dump(&d->kernel, &out);
    } else if (kind == REQUEST_PUT) {
        done = put_verdicts(d, r, &fresh);
        text_format(&out, "%" PRIu32 "\n", fresh);
    } else if (target_read(&t, r->what)) {
        gone = verdict_remove(&d->kernel, &t, r->allowed);
        done = gone >= 0;
        text_format(&out, "%d\n", gone);
    }
    control_answer(&d->control, i, done, &out);
    free(out.bytes);
}

/* Returns 0 to end the loop. */
static int answer_request(struct daemon *d, int i) {
    enum request_kind kind = control_read(&d->control, i);
    int done;

    switch (kind) {
    case REQUEST_PUT:
    case REQUEST_REMOVE:
    case REQUEST_LIST:
        answer_verdicts(d, i, kind);
        return 1;
    case REQUEST_UPDATE:
        done = update_pack(d, &d->control.request[i]);
        control_answer(&d->control, i, done, NULL);
        return 1;
    case REQUEST_STATUS:
        answer_status(d, i);
        return 1;
    case REQUEST_LEAVE:
        empty_ring(d);
        d->is_leaving = 1;
        control_answer(&d->control, i, 1, NULL);
        return 0;
    case REQUEST_UNLOAD:
        empty_ring(d);
        done = kernel_unload(&d->kernel, d->settings.pins);
        if (done)
            record_remove(&d->settings);
        control_answer(&d->control, i, done, NULL);
        return !done;
    default:
        control_flush(&d->control, i);
        return 1;
    }
}

/* Makes the folder of a socket; 0 on failure, with a message. */
static int make_folder_of(const char *socket) {
    char path[SETTING], *slash;

    snprintf(path, sizeof path, "%s", socket);
    slash = strrchr(path, '/');
    if (!slash || slash == path) {
        log_message("%s: expected an absolute path of a socket", socket);
        return 0;
    }
    *slash = 0;
    if (!mkdir(path, 0755) || errno == EEXIST)
        return 1;
    log_message("%s: %s", path, strerror(errno));
    return 0;
}

/* One n3icd for an interface: a lock beside its socket, which a kill releases. */
static int lock_interface(struct daemon *d) {
    char path[sizeof d->settings.socket + 8];

    if (!make_folder_of(d->settings.socket))
        return 0;
    snprintf(path, sizeof path, "%s", d->settings.socket);
    strcat(path, ".lock");
    d->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (d->lock >= 0 && !flock(d->lock, LOCK_EX | LOCK_NB))
        return 1;
    log_message("%s: %s", path,
                errno == EWOULDBLOCK ? "another n3icd runs there" : strerror(errno));
    return 0;
}

static int watch_fd(struct daemon *d, int fd, uint32_t tag) {
    struct epoll_event e = {.events = tag == TAG_SYSLOG ? EPOLLOUT | EPOLLET : EPOLLIN,
                            .data = {.u32 = tag}};

    if (fd >= 0 && !epoll_ctl(d->epoll, EPOLL_CTL_ADD, fd, &e))
        return 1;
    log_message("cannot wait for events: %s", strerror(errno));
    return 0;
}

static int open_loop(struct daemon *d) {
    struct itimerspec second = {.it_interval = {.tv_sec = 1}, .it_value = {.tv_sec = 1}};
    sigset_t signals;

    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGHUP);
    if (sigprocmask(SIG_BLOCK, &signals, NULL))
        return 0;
    d->epoll = epoll_create1(EPOLL_CLOEXEC);
    d->signals = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
    d->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    return d->timer >= 0 && !timerfd_settime(d->timer, 0, &second, NULL) &&
           watch_fd(d, d->signals, TAG_SIGNAL) && watch_fd(d, d->timer, TAG_TIMER);
}

static enum mode parse_mode(const struct settings *s) {
    return !strcmp(s->mode, "native")    ? MODE_NATIVE
           : !strcmp(s->mode, "generic") ? MODE_GENERIC
           : !strcmp(s->mode, "tcx")     ? MODE_TCX
                                         : MODE_AUTO;
}

static int open_samples(struct daemon *d) {
    d->samples = ring_buffer__new(d->kernel.map[MAP_SAMPLES], on_sample, d, NULL);
    if (d->samples)
        return watch_fd(d, ring_buffer__epoll_fd(d->samples), TAG_SAMPLES);
    log_message("the ring of samples cannot be opened: %s", strerror(errno));
    return 0;
}

/* Opens everything in order; sinks come before the kernel, so that a wrong setting attaches
 * nothing. */
static int open_all(struct daemon *d) {
    const struct settings *s = &d->settings;
    struct bpf_map_info ring = {0};
    struct program anew;
    struct place wanted;
    uint32_t size = sizeof ring;

    d->pack = store_read(s, &d->configured);
    if (!d->pack || !pack_resolve(d->pack) || !list_files_check(s) || !lock_interface(d) ||
        !open_loop(d))
        return 0;
    if (!text_make(&d->line, flow_report_room(d->pack)) || !text_make(&d->answer, METRICS_ROOM)) {
        log_message("no memory");
        return 0;
    }
    if (!server_open(&d->readers, s->socket, d->epoll, TAG_READERS, s->queue) ||
        !server_open(&d->figures, s->prometheus, d->epoll, TAG_FIGURES, METRICS_ROOM + 4096) ||
        !make_folder_of(s->control) ||
        !server_open(&d->control.server, s->control, d->epoll, TAG_CONTROL, 1024))
        return 0;
    if ((*s->json && !file_open(&d->file, s->json, s->json_mib, s->json_old)) ||
        (*s->syslog && !syslog_open(&d->syslog, s->syslog, s->enterprise)) ||
        (*s->ipfix && !ipfix_open(&d->ipfix, s->ipfix, s->domain, s->enterprise, s->templates_s)) ||
        (*s->sflow && !sflow_open(&d->sflow, s->sflow, s->sflow_rate)))
        return 0;
    if (*s->syslog && !watch_fd(d, d->syslog.fd, TAG_SYSLOG))
        return 0;
    set_sampling(s, d->pack);
    anew = (struct program){s->object, s->idle, d->pack};
    wanted = (struct place){parse_mode(s), s->priority};
    if (!kernel_open(&d->kernel, s->interface, s->pins, &wanted, &anew, d->succeeds))
        return 0;
    if (d->kernel.is_taken_over) {
        report_fixed_options(d, d->pack);
        if (!kernel_apply(&d->kernel, d->pack))
            return 0;
    }
    if (!list_files_apply(s, &d->kernel))
        return 0;
    store_remove_updates(s, d->configured);
    if (!record_write(s, &d->kernel, d->pack))
        log_message("%s: without a record, n3ic xdp does not find the program", s->interface);
    d->ring = ring_buffer__new(d->kernel.map[MAP_EVENTS], on_decided, d, NULL);
    if (!d->ring || bpf_obj_get_info_by_fd(d->kernel.map[MAP_EVENTS], &ring, &size)) {
        log_message("the ring of events cannot be opened: %s", strerror(errno));
        return 0;
    }
    d->ring_room = ring.max_entries / sizeof(struct event) + 1;
    return watch_fd(d, ring_buffer__epoll_fd(d->ring), TAG_RING) && (!*s->sflow || open_samples(d));
}

/* --- the loop -------------------------------------------------------------------------------- */

/* Runs a part of a sweep over idle flows. */
static void sweep(struct daemon *d, int (*part)(struct kernel *)) {
    if (!part(&d->kernel)) {
        if (!d->sweeps_failed++)
            log_message("idle flows cannot be ended: %s", strerror(errno));
    } else if (!d->kernel.sweep.running) {
        d->sweeps_failed = 0;
    }
}

/* Runs each second; 0 if the program is gone. */
static int on_timer(struct daemon *d) {
    uint64_t times, now = now_s();

    if (read(d->timer, &times, sizeof times) < 0 && errno != EAGAIN)
        return 0;
    if (!kernel_is_attached(&d->kernel)) {
        log_message("%s: the interface is gone, or its program was detached", d->kernel.interface);
        d->is_gone = 1;
        return 0;
    }
    sweep(d, kernel_sweep);
    ipfix_templates(&d->ipfix, d->pack, now);
    if (syslog_mend(&d->syslog))
        watch_fd(d, d->syslog.fd, TAG_SYSLOG);
    for (int i = 0; i < CLIENTS; i++)
        if (d->figures.client[i].fd >= 0 && now > d->figures.client[i].since + PATIENCE_S)
            server_drop(&d->figures, &d->figures.client[i]);
    for (int i = 0; i < CLIENTS; i++)
        if (d->control.server.client[i].fd >= 0 &&
            now > d->control.server.client[i].since + PATIENCE_S)
            control_drop(&d->control, i);
    return 1;
}

/* Returns 0 to end the loop. */
static int on_signal(struct daemon *d) {
    struct signalfd_siginfo info;

    while (read(d->signals, &info, sizeof info) == sizeof info) {
        if (info.ssi_signo != SIGHUP)
            return 0;
        reload_pack(d);
        if (!list_files_apply(&d->settings, &d->kernel))
            log_message("%s: the old lists stay", d->kernel.interface);
    }
    return 1;
}

static int on_event(struct daemon *d, uint32_t tag, int *status) {
    if (tag == TAG_RING) {
        drain_ring(d);
    } else if (tag == TAG_SAMPLES) {
        drain_samples(d);
    } else if (tag == TAG_TIMER) {
        *status = !on_timer(d);
        return !*status;
    } else if (tag == TAG_SIGNAL) {
        return on_signal(d);
    } else if (tag == TAG_SYSLOG) {
        syslog_flush(&d->syslog);
    } else if (tag == TAG_READERS) {
        accept_reader(d);
    } else if (tag == TAG_FIGURES) {
        server_accept(&d->figures, NULL, now_s());
    } else if (tag == TAG_CONTROL) {
        control_accept(&d->control, now_s());
    } else if (tag > TAG_CONTROL && tag <= TAG_CONTROL + CLIENTS) {
        if (d->control.server.client[tag - TAG_CONTROL - 1].fd >= 0)
            return answer_request(d, (int)(tag - TAG_CONTROL - 1));
    } else if (tag > TAG_FIGURES && tag <= TAG_FIGURES + CLIENTS) {
        struct client *c = &d->figures.client[tag - TAG_FIGURES - 1];

        if (c->fd >= 0)
            answer_figures(d, c);
    } else if (tag > TAG_READERS && tag <= TAG_READERS + CLIENTS) {
        struct client *c = &d->readers.client[tag - TAG_READERS - 1];

        if (c->fd >= 0)
            read_reader(d, c);
    }
    return 1;
}

static int run_loop(struct daemon *d) {
    struct epoll_event events[EVENTS];
    int status = 0, going = 1;

    ipfix_templates(&d->ipfix, d->pack, now_s());
    empty_ring(d); /* what was decided while no n3icd ran */
    while (going) {
        int count = epoll_wait(d->epoll, events, EVENTS, d->kernel.sweep.running ? 0 : -1);

        if (count < 0 && errno != EINTR) {
            log_message("cannot wait for events: %s", strerror(errno));
            return 1;
        }
        for (int i = 0; going && i < count; i++)
            going = on_event(d, events[i].data.u32, &status);
        if (d->kernel.sweep.running)
            sweep(d, kernel_sweep_step);
    }
    empty_ring(d);
    return status;
}

static void close_all(struct daemon *d) {
    int *all[] = {&d->epoll, &d->timer, &d->signals, &d->lock, &d->file.fd};

    ring_buffer__free(d->ring);
    ring_buffer__free(d->samples);
    server_close(&d->readers);
    server_close(&d->figures);
    for (int i = 0; i < CLIENTS; i++)
        control_drop(&d->control, i);
    server_close(&d->control.server);
    ipfix_close(&d->ipfix);
    sflow_close(&d->sflow);
    syslog_close(&d->syslog);
    kernel_close(&d->kernel);
    pack_free(d->pack);
    pack_free(d->before);
    free(d->line.bytes);
    free(d->answer.bytes);
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
        if (*all[i] >= 0)
            close(*all[i]);
}

static int detach_program(const struct settings *s) {
    record_remove(s);
    return kernel_remove(s->interface, s->pins);
}

static int run_daemon(struct daemon *d) {
    char bytes[128];
    struct text place = {.bytes = bytes, .room = sizeof bytes};
    int status = 1, opened;

    d->epoll = d->timer = d->signals = d->lock = d->file.fd = d->syslog.fd = d->ipfix.fd = -1;
    d->sflow.fd = -1;
    d->readers.fd = d->figures.fd = d->control.server.fd = -1;
    for (int i = 0; i < CLIENTS; i++)
        d->readers.client[i].fd = d->figures.client[i].fd = d->control.server.client[i].fd = -1;
    d->kernel.program = d->kernel.end = d->kernel.idle = -1;
    for (int i = 0; i < LINKS; i++)
        d->kernel.link[i] = -1;
    for (int m = 0; m < MAPS; m++)
        d->kernel.map[m] = -1;
    opened = open_all(d);
    if (opened) {
        kernel_write_place(&d->kernel, &place);
        log_message("%s: %s%.*s, room for %" PRIu32 " flows", d->kernel.interface,
                    d->kernel.is_taken_over ? "took over the pinned program, " : "",
                    (int)place.used, place.bytes, d->kernel.room);
        status = run_loop(d);
        if ((!status || d->is_gone) && !d->is_leaving && !strcmp(d->settings.on_exit, "detach") &&
            !detach_program(&d->settings))
            status = 1;
    }
    close_all(d);
    return status;
}

static int usage(void) {
    fputs("usage: n3icd [--check | --remove | --succeed] CONFIGURATION [INTERFACE]\n"
          "       n3icd --version\n"
          "  --check   reads the configuration, the pack and the lists, and changes nothing\n"
          "  --remove  detaches the program and forgets its flows\n"
          "  --succeed replaces a program there of the same meter, and keeps its "
          "flows\n" OPERATOR_USAGE,
          stderr);
    return 2;
}

int main(int argc, char **argv) {
    static struct daemon d;
    int check = argc > 1 && !strcmp(argv[1], "--check");
    int remove = argc > 1 && !strcmp(argv[1], "--remove");
    int succeed = argc > 1 && !strcmp(argv[1], "--succeed");
    int at = 1 + (check || remove || succeed);

    if (argc == 2 && !strcmp(argv[1], "--version")) {
        printf("n3icd %s, program %.12s, records of version %d\n", N3ICD_VERSION, N3ICD_LAYOUT,
               N3ICD_RECORD);
        return 0;
    }
    if (argc > 1 && operator_has(argv[1]))
        return operator_run(argc - 1, argv + 1);
    if (argc <= at || argc > at + 2 || argv[at][0] == '-')
        return usage();
    if (!settings_read(&d.settings, argv[at], argc > at + 1 ? argv[at + 1] : NULL))
        return 1;
    if (remove)
        return !detach_program(&d.settings);
    if (check) {
        struct pack *p = pack_read(d.settings.pack);

        pack_free(p);
        return !p || !list_files_check(&d.settings);
    }
    d.succeeds = succeed;
    return run_daemon(&d);
}
