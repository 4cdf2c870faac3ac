// SPDX-License-Identifier: Apache-2.0
#include "control.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "pack.h"
#include "text.h"

void control_drop(struct control *c, int i) {
    free(c->request[i].bytes);
    free(c->answer[i].bytes);
    c->request[i] = (struct request){0};
    c->answer[i] = (struct answer){0};
    server_drop(&c->server, &c->server.client[i]);
}

void control_flush(struct control *c, int i) {
    struct client *client = &c->server.client[i];
    struct answer *a = &c->answer[i];

    while (client->fd >= 0 && a->sent < a->size) {
        ssize_t sent =
            send(client->fd, a->bytes + a->sent, a->size - a->sent, MSG_NOSIGNAL | MSG_DONTWAIT);

        if (sent >= 0) {
            a->sent += (size_t)sent;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            return;
        } else if (errno != EINTR) {
            control_drop(c, i);
        }
    }
    /* Its unread bytes would take the answer away if this closed the connection. */
    if (client->fd >= 0 && client->is_answered)
        shutdown(client->fd, SHUT_WR);
}

void control_answer(struct control *c, int i, int done, const struct text *lines) {
    struct client *client = &c->server.client[i];
    size_t before = done && lines ? lines->used : 0, room = before + sizeof last_message + 16;
    struct text t;

    free(c->answer[i].bytes);
    c->answer[i] = (struct answer){0};
    if (text_make(&t, room)) {
        if (before)
            text_bytes(&t, lines->bytes, before);
        text_format(&t, done ? "ok\n" : "error %s\n", last_message);
        c->answer[i] = (struct answer){.bytes = t.bytes, .size = t.used};
    }
    client->is_answered = 1;
    control_flush(c, i);
    free(c->request[i].bytes);
    c->request[i] = (struct request){0};
}

static enum request_kind refuse_request(struct control *c, int i, const char *why) {
    log_message("a request is refused: %s", why);
    control_answer(c, i, 0, NULL);
    return REQUEST_NONE;
}

void control_accept(struct control *c, uint64_t now_s) {
    int i = server_accept(&c->server, NULL, now_s);
    struct ucred peer;
    socklen_t size = sizeof peer;

    if (i < 0)
        return;
    free(c->answer[i].bytes);
    c->answer[i] = (struct answer){0};
    c->request[i] = (struct request){0};
    if (getsockopt(c->server.client[i].fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) ||
        (peer.uid && peer.uid != geteuid()))
        refuse_request(c, i, "not permitted: only root may send one");
}

/* Parses a number that has digits of the base alone; 0 if it is not one. */
static int parse_number(const char *word, int base, uint32_t most, uint32_t *out) {
    unsigned long value;

    if (!*word || strlen(word) > 10 ||
        strspn(word, base == 16 ? "0123456789abcdef" : "0123456789") != strlen(word))
        return 0;
    value = strtoul(word, NULL, base);
    *out = (uint32_t)value;
    return value <= most;
}

/* Actions that an operator may give. */
#define OF_OPERATORS                                                                               \
    (1u << ACT_DROP | 1u << ACT_LIMIT | 1u << ACT_MARK | 1u << ACT_ALLOW | 1u << ACT_SHARED)

/* Reads the line of a request to put verdicts on a list; 0 if it is not one. */
static int parse_put(struct request *r) {
    char *action = r->head + 4, *argument = strchr(action, ' ');
    char *size = argument ? strchr(argument + 1, ' ') : NULL;
    uint32_t bytes;

    if (!size)
        return 0;
    *argument++ = *size++ = 0;
    if (!parse_number(action, 10, ACT_SHARED, &r->action) ||
        !parse_number(argument, 10, UINT32_MAX, &r->argument) ||
        !parse_number(size, 10, PACK_BYTES, &bytes) || !bytes || !(OF_OPERATORS >> r->action & 1))
        return 0;
    r->kind = REQUEST_PUT;
    r->size = bytes;
    return 1;
}

/* Reads the line of a request; 0 if it is not one. */
static int parse_head(struct request *r) {
    static const struct {
        const char *word;
        enum request_kind what;
    } words[] = {{"unload", REQUEST_UNLOAD},
                 {"status", REQUEST_STATUS},
                 {"leave", REQUEST_LEAVE},
                 {"list", REQUEST_LIST}};
    char *sum = r->head + 7, *size = strchr(sum, ' ');
    uint32_t bytes;

    for (unsigned i = 0; i < sizeof words / sizeof *words; i++)
        if (!strcmp(r->head, words[i].word)) {
            r->kind = words[i].what;
            return 1;
        }
    if (!strncmp(r->head, "put ", 4))
        return parse_put(r);
    if (!strncmp(r->head, "remove ", 7) && size && size[1]) {
        *size = 0;
        r->what = size + 1;
        r->allowed = !strcmp(sum, "allowed");
        r->kind = REQUEST_REMOVE;
        return r->allowed || !strcmp(sum, "blocked");
    }
    if (strncmp(r->head, "update ", 7) || !size)
        return 0;
    *size++ = 0;
    r->any = !strcmp(sum, "-");
    if ((!r->any && !parse_number(sum, 16, UINT32_MAX, &r->made_of)) ||
        !parse_number(size, 10, PACK_BYTES, &bytes) || !bytes)
        return 0;
    r->kind = REQUEST_UPDATE;
    r->size = bytes;
    return 1;
}

/* Whether another client is sending a pack; only one at a time gets memory for it. */
static int is_busy(const struct control *c) {
    for (int i = 0; i < CLIENTS; i++)
        if (c->request[i].bytes)
            return 1;
    return 0;
}

/* Reads bytes of the line; their number, or -1 if this is not a request. */
static ssize_t read_head_bytes(struct control *c, int i, const char *bytes, size_t size) {
    struct request *r = &c->request[i];

    for (size_t at = 0; at < size; at++) {
        if (bytes[at] != '\n') {
            if (!bytes[at] || r->head_used == sizeof r->head - 1)
                break;
            r->head[r->head_used++] = bytes[at];
            continue;
        }
        if (!parse_head(r))
            break;
        if (r->size && is_busy(c)) {
            refuse_request(c, i, "another request is under way");
            return -1;
        }
        if (r->size && !(r->bytes = calloc(1, r->size + 1))) {
            refuse_request(c, i, "there is no memory for its bytes");
            return -1;
        }
        return (ssize_t)at + 1;
    }
    if (!r->kind && r->head_used < sizeof r->head - 1 && !memchr(bytes, '\n', size) &&
        !memchr(bytes, 0, size))
        return (ssize_t)size;
    refuse_request(
        c, i,
        "expected update SUM SIZE, put ACTION ARGUMENT SIZE, remove LIST WHAT, list, unload, "
        "status or leave");
    return -1;
}

enum request_kind control_read(struct control *c, int i) {
    struct request *r = &c->request[i];
    struct client *client = &c->server.client[i];
    char bytes[4096];

    while (client->fd >= 0) {
        ssize_t got = recv(client->fd, bytes, sizeof bytes, MSG_DONTWAIT), head = 0;

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            if (got == 0 || (errno != EAGAIN && errno != EWOULDBLOCK))
                control_drop(c, i);
            return REQUEST_NONE;
        }
        if (client->is_answered) /* and answered */
            continue;
        if (!r->kind && (head = read_head_bytes(c, i, bytes, (size_t)got)) < 0)
            continue;
        if ((size_t)(got - head) > r->size - r->used) {
            refuse_request(c, i, "it has more bytes than its SIZE");
            continue;
        }
        if (got > head)
            memcpy(r->bytes + r->used, bytes + head, (size_t)(got - head));
        r->used += (size_t)(got - head);
        if (r->kind && r->used == r->size)
            return r->kind;
    }
    return REQUEST_NONE;
}

/* --- the client --------------------------------------------------------------------------------
 */

static int send_all(int fd, const char *bytes, size_t size) {
    while (size) {
        ssize_t sent = send(fd, bytes, size, MSG_NOSIGNAL);

        if (sent < 0 && errno == EINTR)
            continue;
        if (sent <= 0)
            return 0;
        bytes += sent;
        size -= (size_t)sent;
    }
    return 1;
}

int control_ask(const char *path, const char *line, const void *bytes, size_t size) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char answer[sizeof last_message + 16];
    size_t used = 0;
    ssize_t got;

    if (fd < 0 || strlen(path) >= sizeof address.sun_path) {
        log_message("%s: the path is too long for a socket: at most %zu bytes", path,
                    sizeof address.sun_path - 1);
        return 1;
    }
    strcpy(address.sun_path, path);
    if (connect(fd, (struct sockaddr *)&address, sizeof address)) {
        log_message("%s: %s: does n3icd run there?", path, strerror(errno));
        close(fd);
        return 1;
    }
    if (send_all(fd, line, strlen(line)))
        send_all(fd, bytes, size); /* it may answer before it has all */
    while (used < sizeof answer - 1 &&
           (got = recv(fd, answer + used, sizeof answer - 1 - used, 0)) > 0)
        used += (size_t)got;
    close(fd);
    answer[used] = 0;
    if (!strcmp(answer, "ok\n"))
        return 0;
    answer[strcspn(answer, "\n")] = 0;
    log_message("%s", strncmp(answer, "error ", 6) ? "n3icd ended before it answered" : answer + 6);
    return 1;
}
