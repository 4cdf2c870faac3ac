// SPDX-License-Identifier: Apache-2.0
/* Processes that connect, send requests and leave; see manager.h. Each message is a packet. */
#define _GNU_SOURCE /* struct ucred */

#include "manager.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

enum { WORD = 128, PEERS = sizeof((struct manager *)0)->peers / sizeof(struct peer) };

static void watch_descriptor(struct manager *m, int fd, uint32_t key) {
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = key};
    if (epoll_ctl(m->polling, EPOLL_CTL_ADD, fd, &event)) {
        fail(EXIT_FAILED, "epoll: %s", strerror(errno));
    }
}

void control_open(struct manager *m) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(m->settings.socket) >= sizeof address.sun_path) {
        fail(EXIT_USAGE, "--socket %s: expected a name of at most %zu bytes", m->settings.socket,
             sizeof address.sun_path - 1);
    }
    strcpy(address.sun_path, m->settings.socket);
    m->polling = epoll_create1(EPOLL_CLOEXEC);
    m->listening = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (m->polling < 0 || m->listening < 0 ||
        bind(m->listening, (struct sockaddr *)&address, sizeof address) ||
        listen(m->listening, PEERS)) {
        fail(EXIT_FAILED, "--socket %s: %s", m->settings.socket, strerror(errno));
    }
    for (unsigned i = 0; i < PEERS; i++) {
        m->peers[i].fd = -1;
    }
    watch_descriptor(m, m->listening, PEERS);
}

void control_close(struct manager *m) {
    for (unsigned i = 0; i < PEERS; i++) {
        if (m->peers[i].fd >= 0) {
            close(m->peers[i].fd);
        }
    }
    close(m->listening);
    close(m->polling);
    unlink(m->settings.socket);
}

static void send_answer(const struct peer *p, const char *text, size_t bytes) {
    /* never wait for a peer that does not read its answer: it loses the answer */
    (void)!send(p->fd, text, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void answer_text(const struct peer *p, const char *text) {
    send_answer(p, text, strlen(text));
}

static struct function *function_of(struct manager *m, const char *name) {
    for (unsigned i = 0; i < m->settings.n_functions; i++) {
        if (strcmp(m->settings.functions[i].name, name) == 0) {
            return &m->functions[i];
        }
    }
    return NULL;
}

/* Answers a function with the files that it maps. */
static void answer_memory(const struct manager *m, const struct peer *p) {
    const struct shared_memory *own = &p->function->memory;
    const int files[2] = {m->packets.readable, own->file};
    char text[2 * WORD];
    char room[CMSG_SPACE(sizeof files)] = {0};
    struct iovec words = {text,
                          (size_t)snprintf(text, sizeof text, "ok %zu %zu %s %s", m->packets.bytes,
                                           own->bytes, m->packets.zone, own->zone)};
    struct msghdr message = {.msg_iov = &words, .msg_iovlen = 1};
    if (own->file >= 0) {
        message.msg_control = room;
        message.msg_controllen = sizeof room;
        struct cmsghdr *head = CMSG_FIRSTHDR(&message);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(sizeof files);
        memcpy(CMSG_DATA(head), files, sizeof files);
    }
    (void)!sendmsg(p->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void attach_function(struct manager *m, struct peer *p, const char *name) {
    struct function *f = function_of(m, name);
    struct ucred credentials = {0};
    socklen_t size = sizeof credentials;
    if (!f || p->function || p->controls || m->phase > RECEIVING) {
        answer_text(p, !f ? "error no such function" : "error functions can no longer attach");
        return;
    }
    if (f->state != ABSENT) {
        answer_text(p, f->state == GONE ? "busy" : "error the function runs already");
        return;
    }
    if (getsockopt(p->fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size)) {
        answer_text(p, "error the kernel does not name the process");
        return;
    }
    const int process = (int)syscall(SYS_pidfd_open, credentials.pid, 0);
    if (process < 0) {
        answer_text(p, "error the process cannot be watched");
        return;
    }
    function_attach(f, m->settings.memory, p->fd, process, (int)credentials.pid);
    p->function = f;
    answer_memory(m, p);
}

static void stop_function(struct manager *m, const struct peer *p, const char *name) {
    struct function *f = function_of(m, name);
    if (!f || f->state != ATTACHED) {
        answer_text(p, "error the function does not run");
        return;
    }
    function_stop(f);
    answer_text(p, "ok");
}

static void answer_status(struct manager *m, const struct peer *p) {
    char *text = NULL;
    size_t bytes = 0;
    FILE *to = open_memstream(&text, &bytes);
    if (to) {
        statistics_write(m, to);
        fclose(to);
        send_answer(p, text, bytes);
        free(text);
    }
}

static void start_draining(struct manager *m) {
    m->ending = 1;
    m->phase = m->phase == WAITING ? DRAINING : m->phase;
}

static void handle_request(struct manager *m, struct peer *p, char *word) {
    char *name = strchr(word, ' ');
    if (name) {
        *name++ = '\0';
    }
    if (name && strcmp(word, "attach") == 0) {
        attach_function(m, p, name);
    } else if (strcmp(word, "control") == 0) {
        p->controls = p->function == NULL;
        answer_text(p, "ok");
    } else if (!p->controls) {
        answer_text(p, "error no such request");
    } else if (strcmp(word, "status") == 0) {
        answer_status(m, p);
    } else if (name && strcmp(word, "stop") == 0) {
        stop_function(m, p, name);
    } else if (strcmp(word, "receive") == 0) {
        m->phase = m->phase == WAITING ? RECEIVING : m->phase;
        answer_text(p, "ok");
    } else if (strcmp(word, "end") == 0) {
        start_draining(m);
        answer_text(p, "ok");
    } else {
        answer_text(p, "error no such request");
    }
}

static void accept_peer(struct manager *m) {
    const int fd = accept4(m->listening, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    for (unsigned i = 0; fd >= 0 && i < PEERS; i++) {
        if (m->peers[i].fd < 0) {
            m->peers[i] = (struct peer){.fd = fd};
            watch_descriptor(m, fd, i);
            return;
        }
    }
    if (fd >= 0) {
        close(fd);
    }
}

static void read_request(struct manager *m, struct peer *p) {
    char word[WORD];
    const ssize_t bytes = recv(p->fd, word, sizeof word - 1, 0);
    if (bytes > 0) {
        word[bytes] = '\0';
        handle_request(m, p, word);
    } else if (bytes == 0 || (errno != EAGAIN && errno != EINTR)) {
        if (p->function) {
            chain_function_ended(m, p->function); /* closes the socket too */
        } else {
            close(p->fd);
        }
        if (p->controls) { /* nobody else could end the manager */
            start_draining(m);
        }
        p->fd = -1;
    }
}

void control_poll(struct manager *m) {
    struct epoll_event events[PEERS + 1];
    const int n = epoll_wait(m->polling, events, PEERS + 1, 0);
    for (int i = 0; i < n; i++) {
        if (events[i].data.u32 == PEERS) {
            accept_peer(m);
        } else if (m->peers[events[i].data.u32].fd >= 0) {
            read_request(m, &m->peers[events[i].data.u32]);
        }
    }
}
