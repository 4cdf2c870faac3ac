// SPDX-License-Identifier: Apache-2.0
#include "server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static int watch_fd(const struct server *s, int fd, uint32_t tag, uint32_t events) {
    struct epoll_event e = {.events = events, .data = {.u32 = tag}};

    return !epoll_ctl(s->epoll, EPOLL_CTL_ADD, fd, &e);
}

/* Removes the socket of a dead process; 0 with a message if it lives, or the path is no socket. */
static int remove_stale_socket(const char *path, const struct sockaddr_un *address) {
    struct stat status;
    int fd, gone;

    if (lstat(path, &status))
        return errno == ENOENT;
    if (!S_ISSOCK(status.st_mode)) {
        log_message("%s exists and is not a socket: give another path, or remove it", path);
        return 0;
    }
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    gone = fd >= 0 && connect(fd, (const struct sockaddr *)address, sizeof *address) &&
           errno == ECONNREFUSED;
    if (fd >= 0)
        close(fd);
    if (!gone)
        log_message("%s: another process listens there", path);
    return gone && !unlink(path);
}

static int listen_unix(struct server *s, const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    mode_t before;
    int bound;

    if (strlen(path) >= sizeof address.sun_path) {
        log_message("%s: the path is too long for a socket: at most %zu bytes", path,
                    sizeof address.sun_path - 1);
        return 0;
    }
    strcpy(address.sun_path, path);
    if (!remove_stale_socket(path, &address))
        return 0;
    s->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    before = umask(0177);
    bound = s->fd >= 0 && !bind(s->fd, (struct sockaddr *)&address, sizeof address);
    umask(before);
    if (!bound) {
        log_message("%s: %s", path, strerror(errno));
        return 0;
    }
    strcpy(s->path, path);
    return 1;
}

static int listen_port(struct server *s, const char *where) {
    struct sockaddr_in address = {.sin_family = AF_INET};
    const char *colon = strrchr(where, ':');
    char host[INET_ADDRSTRLEN] = "", *rest = NULL;
    unsigned long port = colon ? strtoul(colon + 1, &rest, 10) : 0;
    int on = 1;

    if (colon && (size_t)(colon - where) < sizeof host)
        memcpy(host, where, (size_t)(colon - where));
    if (!rest || *rest || !port || port > 65535 ||
        inet_pton(AF_INET, host, &address.sin_addr) != 1) {
        log_message("%s: expected a path, or 127.0.0.1:PORT", where);
        return 0;
    }
    if (ntohl(address.sin_addr.s_addr) >> 24 != 127) {
        log_message("%s: metrics are served to this machine alone: give 127.0.0.1:PORT", where);
        return 0;
    }
    address.sin_port = htons((uint16_t)port);
    s->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (s->fd < 0 || setsockopt(s->fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) ||
        bind(s->fd, (struct sockaddr *)&address, sizeof address)) {
        log_message("%s: %s%s", where, strerror(errno),
                    errno == EADDRINUSE ? ": give each interface a port of its own, below [NAME]"
                                        : "");
        return 0;
    }
    return 1;
}

int server_open(struct server *s, const char *where, int epoll, uint32_t tag, size_t room) {
    memset(s, 0, sizeof *s);
    s->fd = -1;
    s->epoll = epoll;
    s->tag = tag;
    s->room = room;
    for (int i = 0; i < CLIENTS; i++)
        s->client[i].fd = -1;
    if (!*where)
        return 1;
    if (!(*where == '/' ? listen_unix(s, where) : listen_port(s, where)))
        return 0;
    if (listen(s->fd, CLIENTS) || !watch_fd(s, s->fd, tag, EPOLLIN)) {
        log_message("%s: %s", where, strerror(errno));
        return 0;
    }
    return 1;
}

void server_drop(struct server *s, struct client *c) {
    if (c->fd < 0)
        return;
    close(c->fd); /* epoll forgets it */
    free(c->queue);
    *c = (struct client){.fd = -1};
    s->clients--;
}

void server_close(struct server *s) {
    for (int i = 0; i < CLIENTS; i++)
        server_drop(s, &s->client[i]);
    if (s->fd >= 0)
        close(s->fd);
    if (*s->path)
        unlink(s->path);
    s->fd = -1;
}

int client_append(struct server *s, struct client *c, const char *bytes, size_t size) {
    size_t at = (c->first + c->used) % s->room, straight = s->room - at;

    if (size > s->room - c->used)
        return 0;
    if (straight > size)
        straight = size;
    memcpy(c->queue + at, bytes, straight);
    memcpy(c->queue, bytes + straight, size - straight);
    c->used += size;
    return 1;
}

int server_accept(struct server *s, const struct text *hello, uint64_t now_s) {
    int fd = accept4(s->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC), i = 0;
    struct client *c;

    if (fd < 0)
        return -1;
    while (i < CLIENTS && s->client[i].fd >= 0)
        i++;
    c = i < CLIENTS ? &s->client[i] : NULL;
    if (!c || !(c->queue = malloc(s->room))) {
        s->refused++;
        close(fd);
        return -1;
    }
    *c = (struct client){.fd = fd, .queue = c->queue, .since = now_s};
    s->clients++;
    if (!watch_fd(s, fd, s->tag + 1 + (uint32_t)i, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET) ||
        (hello && !client_append(s, c, hello->bytes, hello->used))) {
        server_drop(s, c);
        return -1;
    }
    server_flush(s, c);
    return i;
}

void server_flush(struct server *s, struct client *c) {
    while (c->fd >= 0 && c->used) {
        size_t straight = s->room - c->first;
        ssize_t sent = send(c->fd, c->queue + c->first, c->used < straight ? c->used : straight,
                            MSG_NOSIGNAL | MSG_DONTWAIT);

        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0) {
            if (errno != EAGAIN && errno != EWOULDBLOCK)
                server_drop(s, c);
            return;
        }
        c->first = (c->first + (size_t)sent) % s->room;
        c->used -= (size_t)sent;
    }
}

void server_flush_all(struct server *s) {
    for (int i = 0; i < CLIENTS; i++)
        server_flush(s, &s->client[i]);
}

void server_broadcast(struct server *s, const char *line, size_t size) {
    for (int i = 0; i < CLIENTS; i++) {
        struct client *c = &s->client[i];
        char note[48];
        int note_size = 0;

        if (c->fd < 0)
            continue;
        if (c->used + size + sizeof note > s->room)
            server_flush(s, c);
        if (c->fd < 0)
            continue;
        if (c->lost)
            note_size = snprintf(note, sizeof note, "{\"lost\": %" PRIu64 "}\n", c->lost);
        if (size + (size_t)note_size > s->room - c->used) {
            c->lost++;
            s->lost++;
            continue;
        }
        client_append(s, c, note, (size_t)note_size);
        client_append(s, c, line, size);
        c->lost = 0;
    }
}
