// SPDX-License-Identifier: Apache-2.0
#include "logs.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define PRIORITY (3 * 8 + 6) /* daemon, informational */
#define MESSAGE 8192
#define TAIL (1 << 16)
#define WAITING (4 << 20)
#define ROOM 300 /* of a path with its number */

/* Cuts off a line that a kill left incomplete: it is written again. 0 if the file is unreadable. */
static int truncate_to_line(int fd, off_t size) {
    char last[TAIL];
    off_t from = size > TAIL ? size - TAIL : 0;
    ssize_t got = pread(fd, last, sizeof last, from), whole = got;

    if (got != size - from)
        return 0;
    while (whole > 0 && last[whole - 1] != '\n')
        whole--;
    if (!whole && from) /* no line of ours */
        return write(fd, "\n", 1) == 1;
    return whole == got || !ftruncate(fd, from + whole);
}

int file_open(struct log_file *f, const char *path, uint32_t mebibytes, uint32_t old) {
    struct stat status;
    int fd = open(path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0640);

    if (fd < 0 || fstat(fd, &status) || !S_ISREG(status.st_mode)) {
        log_message("%s: %s", path, fd < 0 ? strerror(errno) : "it is not a regular file");
        if (fd >= 0)
            close(fd);
        return 0;
    }
    if (!truncate_to_line(fd, status.st_size)) {
        log_message("%s: the end of the file cannot be read", path);
        close(fd);
        return 0;
    }
    if (f->fd >= 0)
        close(f->fd);
    f->fd = fd;
    f->path = path;
    f->size = fstat(fd, &status) ? 0 : (uint64_t)status.st_size;
    f->most = (uint64_t)mebibytes << 20;
    f->old = old;
    return 1;
}

/* Moves the file to NAME.1, older ones to the next number, and begins a new one. */
static void rotate(struct log_file *f) {
    char from[ROOM], to[ROOM];
    int failed = 0;

    for (uint32_t i = f->old; i > 1; i--) {
        snprintf(from, sizeof from, "%s.%" PRIu32, f->path, i - 1);
        snprintf(to, sizeof to, "%s.%" PRIu32, f->path, i);
        failed |= rename(from, to) && errno != ENOENT;
    }
    snprintf(to, sizeof to, "%s.1", f->path);
    failed |= f->old ? rename(f->path, to) : unlink(f->path);
    if (failed || !file_open(f, f->path, (uint32_t)(f->most >> 20), f->old)) {
        log_message("%s: it cannot be moved away, and grows: %s", f->path, strerror(errno));
        f->most = 0;
    }
}

void file_write(struct log_file *f, const char *line, size_t size) {
    struct stat after;
    ssize_t done;

    if (f->fd < 0)
        return;
    do
        done = write(f->fd, line, size);
    while (done < 0 && errno == EINTR);
    if (done == (ssize_t)size) {
        f->written++;
        f->size += size;
        if (f->most && f->size >= f->most)
            rotate(f);
        return;
    }
    if (!f->lost++)
        log_message("%s: flows are lost: %s", f->path,
                    done < 0 ? strerror(errno) : "the disk is full");
    /* Half a line is none. */
    if (done > 0 && (fstat(f->fd, &after) || ftruncate(f->fd, after.st_size - done)))
        log_message("%s: %s", f->path, strerror(errno));
}

/* A socket that is connected to the daemon; -1 where it does not listen. */
static int connect_syslog(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    strcpy(address.sun_path, path);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address)) {
        int why = errno;

        close(fd);
        errno = why;
        fd = -1;
    }
    return fd;
}

int syslog_open(struct syslog *s, const char *path, uint32_t enterprise) {
    if (strlen(path) >= sizeof((struct sockaddr_un *)0)->sun_path) {
        log_message("%s: the path is too long for a socket: at most %zu bytes", path,
                    sizeof((struct sockaddr_un *)0)->sun_path - 1);
        return 0;
    }
    s->path = path;
    s->fd = connect_syslog(path);
    if (s->fd < 0) {
        log_message("%s: %s", path, strerror(errno));
        return 0;
    }
    s->enterprise = enterprise;
    if (gethostname(s->host, sizeof s->host) || !*s->host)
        strcpy(s->host, "-");
    s->host[sizeof s->host - 1] = 0;
    return text_make(&s->message, MESSAGE) && text_make(&s->waiting, WAITING);
}

void syslog_close(struct syslog *s) {
    if (s->fd >= 0)
        close(s->fd);
    free(s->message.bytes);
    free(s->waiting.bytes);
    s->fd = -1;
}

int syslog_mend(struct syslog *s) {
    int fd = s->broken ? connect_syslog(s->path) : -1;

    if (fd < 0)
        return 0;
    close(s->fd);
    s->fd = fd;
    s->broken = 0;
    syslog_flush(s);
    return 1;
}

void syslog_flush(struct syslog *s) {
    size_t at = 0;
    uint32_t size;

    while (!s->broken && at < s->waiting.used) {
        memcpy(&size, s->waiting.bytes + at, sizeof size);
        if (send(s->fd, s->waiting.bytes + at + sizeof size, size, MSG_NOSIGNAL | MSG_DONTWAIT) <
            0) {
            if (errno == EINTR)
                continue;
            if (errno == EMSGSIZE) {
                s->lost++;
            } else {
                s->broken = errno != EAGAIN && errno != EWOULDBLOCK && errno != ENOBUFS;
                break;
            }
        } else {
            s->sent++;
        }
        at += sizeof size + size;
    }
    if (at) {
        s->waiting.used -= at;
        memmove(s->waiting.bytes, s->waiting.bytes + at, s->waiting.used);
    }
}

static void append_parameter(struct text *m, const char *name, const char *value) {
    text_format(m, " %s=\"", name);
    text_escaped(m, value, "\"\\]");
    text_bytes(m, "\"", 1);
}

void syslog_send(struct syslog *s, const struct flow_report *t) {
    const struct event *e = t->event;
    struct text *m = &s->message;
    time_t second = (time_t)(t->decided_ns / 1000000000);
    struct tm utc;
    char when[32];
    uint32_t size;

    if (s->fd < 0)
        return;
    text_clear(m);
    if (!gmtime_r(&second, &utc) || !strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S", &utc)) {
        s->lost++;
        return;
    }
    text_format(m, "<%d>1 %s.%06" PRIu64 "Z %s n3icd %d flow [n3ic@%" PRIu32, PRIORITY, when,
                t->decided_ns / 1000 % 1000000, s->host, (int)getpid(), s->enterprise);
    append_parameter(m, "interface", t->interface);
    append_parameter(m, "class", t->verdict);
    text_format(m, " margin=\"%" PRIu32 "\" packets=\"%" PRIu64 "\"", e->margin, e->packets);
    append_parameter(m, "why", t->why);
    text_format(m, " source=\"%s\" sourcePort=\"%u\"", t->source, e->key.source_port);
    text_format(m, " destination=\"%s\" destinationPort=\"%u\"", t->destination,
                e->key.destination_port);
    text_format(m, " protocol=\"%u\"] %s:%u > %s:%u protocol %u, %" PRIu64 " packets, ",
                e->key.protocol, t->source, e->key.source_port, t->destination,
                e->key.destination_port, e->key.protocol, e->packets);
    text_format(m, "%s: ", t->why);
    text_escaped(m, t->verdict, "");
    text_format(m, ", margin %" PRIu32, e->margin);
    size = (uint32_t)m->used;
    if (m->cut || sizeof size + size > s->waiting.room - s->waiting.used) {
        s->lost++;
        return;
    }
    text_bytes(&s->waiting, &size, sizeof size);
    text_bytes(&s->waiting, m->bytes, size);
}
