// SPDX-License-Identifier: Apache-2.0
/*
 * Takes the packets that a policy hands to sockets (shunt=socket:0), and gives them to a reader: as
 * records with what is known of their flows, or as a capture.
 *
 * usage: shunted INTERFACE QUEUES [PLACE]
 *
 * Records go to standard output, one after the other: struct record, then the frame. With a PLACE,
 * whoever connects to that UNIX socket gets them; one reader at a time. What a reader is too slow
 * for is dropped and counted, and so are frames while there is none. A PLACE that ends in .pcap
 * gets frames alone.
 */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <inttypes.h>
#include <net/if.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "xsk.h"

#define QUEUES 64
#define CHUNKS 2048

/* In the byte order of this machine. */
struct record {
    uint32_t size;        /* of the record, with the frame behind it */
    uint32_t length;      /* of the frame */
    uint64_t time_ns;     /* since 1970 */
    struct handed handed; /* zeros where the kernel had no room for it */
};

struct pcap_packet {
    uint32_t seconds, nanoseconds, captured, length;
};

struct sink {
    int fd, listener, pcap;
    uint64_t written, dropped;
};

static int report_error(const char *what) {
    fprintf(stderr, "shunted: %s: %s\n", what, strerror(errno));
    return 0;
}

/* Writes all or nothing; a file or pipe waits for its reader, a socket does not. */
static int write_record(struct sink *s, const struct iovec *parts, size_t size) {
    struct msghdr message = {.msg_iov = (struct iovec *)parts, .msg_iovlen = 2};
    struct iovec left[2] = {parts[0], parts[1]};
    ssize_t done;

    if (s->listener >= 0)
        return sendmsg(s->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)size;
    for (int i = 0; i < 2; i++)
        for (; left[i].iov_len; left[i].iov_len -= (size_t)done) {
            done = write(s->fd, left[i].iov_base, left[i].iov_len);
            if (done < 0)
                return 0;
            left[i].iov_base = (char *)left[i].iov_base + done;
        }
    return 1;
}

static void emit_record(void *to, const struct xsk_frame *f) {
    struct sink *s = to;
    struct timespec now;
    struct record r = {.size = (uint32_t)sizeof r + f->length, .length = f->length};
    struct pcap_packet p = {.captured = f->length, .length = f->length};
    struct iovec parts[2] = {{&r, sizeof r}, {(void *)f->bytes, f->length}};

    clock_gettime(CLOCK_REALTIME, &now);
    r.time_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    p.seconds = (uint32_t)now.tv_sec;
    p.nanoseconds = (uint32_t)now.tv_nsec;
    if (f->metadata)
        r.handed = *f->metadata;
    if (s->pcap)
        parts[0] = (struct iovec){&p, sizeof p};
    if (s->fd >= 0 && write_record(s, parts, parts[0].iov_len + parts[1].iov_len))
        s->written++;
    else
        s->dropped++;
}

/* The map `sockets` of the program of an interface; -1 where there is none. */
static int find_sockets(uint32_t interface) {
    uint32_t number = 0, ids[64], size;
    struct bpf_prog_info program = {.nr_map_ids = 64, .map_ids = (uint64_t)(uintptr_t)ids};
    int fd;

    if (bpf_xdp_query_id((int)interface, 0, &number) || !number)
        return -1;
    fd = bpf_prog_get_fd_by_id(number);
    size = sizeof program;
    if (fd < 0 || bpf_obj_get_info_by_fd(fd, &program, &size))
        return -1;
    close(fd);
    for (uint32_t i = 0; i < program.nr_map_ids && i < 64; i++) {
        struct bpf_map_info map = {0};

        size = sizeof map;
        fd = bpf_map_get_fd_by_id(ids[i]);
        if (fd < 0 || bpf_obj_get_info_by_fd(fd, &map, &size))
            return -1;
        if (map.type == BPF_MAP_TYPE_XSKMAP && !strcmp(map.name, "sockets"))
            return fd;
        close(fd);
    }
    return -1;
}

static int open_sink(struct sink *s, const char *place) {
    static const uint32_t head[6] = {0xa1b23c4d, 2 | 4 << 16, 0, 0, XSK_LARGEST, 1};
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length = place ? strlen(place) : 0;
    FILE *file;

    *s = (struct sink){.fd = STDOUT_FILENO, .listener = -1};
    if (!place)
        return 1;
    if (length > 5 && !strcmp(place + length - 5, ".pcap")) {
        s->pcap = 1;
        file = fopen(place, "we");
        if (!file || fwrite(head, sizeof head, 1, file) != 1 || fflush(file))
            return report_error(place);
        s->fd = fileno(file);
        return 1;
    }
    errno = ENAMETOOLONG;
    if (length >= sizeof address.sun_path)
        return report_error(place);
    memcpy(address.sun_path, place, length);
    s->fd = -1;
    unlink(place);
    /* A packet a message: a reader gets whole records. */
    s->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (s->listener < 0 || bind(s->listener, (struct sockaddr *)&address, sizeof address) ||
        listen(s->listener, 1))
        return report_error(place);
    return 1;
}

/* Accepts a reader, or closes the one that left. */
static void accept_reader(struct sink *s) {
    char byte;
    int reader = accept4(s->listener, NULL, NULL, SOCK_CLOEXEC);

    if (s->fd >= 0 && recv(s->fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK) == 0) {
        close(s->fd);
        s->fd = -1;
    }
    if (reader >= 0 && s->fd < 0)
        s->fd = reader;
    else if (reader >= 0)
        close(reader);
}

static void relay_frames(struct xsk *x, uint32_t queues, struct sink *s, int signals) {
    struct pollfd wait[QUEUES + 3];

    for (uint32_t i = 0; i < queues; i++)
        wait[i] = (struct pollfd){.fd = x[i].fd, .events = POLLIN};
    wait[queues] = (struct pollfd){.fd = signals, .events = POLLIN};
    wait[queues + 1] = (struct pollfd){.fd = s->listener, .events = POLLIN};
    for (;;) {
        wait[queues + 2] = (struct pollfd){.fd = s->listener < 0 ? -1 : s->fd};
        if (poll(wait, queues + 3, -1) < 0 && errno != EINTR)
            return;
        if (wait[queues + 1].revents || wait[queues + 2].revents)
            accept_reader(s);
        for (uint32_t i = 0; i < queues; i++)
            xsk_read(&x[i], emit_record, s);
        if (wait[queues].revents)
            return;
    }
}

int main(int argc, char **argv) {
    static struct xsk x[QUEUES];
    uint64_t lost, kernel = 0;
    uint32_t interface, queues = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 0;
    struct sink s;
    sigset_t ends;
    int map;

    if (argc < 3 || argc > 4 || !queues || queues > QUEUES) {
        fprintf(stderr, "usage: shunted INTERFACE QUEUES [SOCKET | FILE.pcap]; up to 64 queues\n");
        return 2;
    }
    interface = if_nametoindex(argv[1]);
    map = interface ? find_sockets(interface) : -1;
    if (map < 0) {
        fprintf(stderr,
                "shunted: %s: no program of n3ic is attached, or root's rights are missing\n",
                argv[1]);
        return 1;
    }
    sigemptyset(&ends);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    sigprocmask(SIG_BLOCK, &ends, NULL);
    signal(SIGPIPE, SIG_IGN);
    if (!open_sink(&s, argc > 3 ? argv[3] : NULL))
        return 1;
    for (uint32_t i = 0; i < queues; i++) {
        if (!xsk_open(&x[i], interface, i, CHUNKS) ||
            bpf_map_update_elem(map, &i, &x[i].fd, BPF_ANY)) {
            report_error("cannot open a socket for a queue");
            return 1;
        }
    }
    fprintf(stderr, "shunted: %s: %u queues\n", argv[1], queues);
    relay_frames(x, queues, &s, signalfd(-1, &ends, SFD_CLOEXEC));
    for (uint32_t i = 0; i < queues; i++) {
        kernel += xsk_lost(&x[i], &lost) ? lost : 0;
        xsk_close(&x[i]);
    }
    fprintf(stderr, "shunted: %" PRIu64 " taken, %" PRIu64 " dropped, %" PRIu64 " lost\n",
            s.written, s.dropped, kernel);
    return 0;
}
