// SPDX-License-Identifier: Apache-2.0
/* Sockets that n3icd listens on: a UNIX socket for readers of events, and one for metrics. */
#ifndef N3ICD_SERVER_H
#define N3ICD_SERVER_H

#include <stddef.h>
#include <stdint.h>

#include "text.h"

#define CLIENTS 32

/* A connected client, with a queue of the bytes to send. */
struct client {
    int fd;
    char *queue;
    size_t first, used; /* of a ring */
    uint64_t lost;      /* lines that found no room since the last one that did */
    int is_answered;    /* of figures: its request is answered */
    uint64_t since;     /* when it came, in seconds */
};

struct server {
    int fd, epoll;
    uint32_t tag; /* of its events at epoll; its clients' follow */
    size_t room;  /* of a queue */
    char path[108];
    struct client client[CLIENTS];
    uint64_t clients, lost, refused;
};

/* Listens on a UNIX socket (a path) or a loopback port (127.0.0.1:PORT); 0 on failure. */
int server_open(struct server *s, const char *where, int epoll, uint32_t tag, size_t room);
void server_close(struct server *s);

/* Accepts a client and sends it `hello`; the index of the client, or -1. */
int server_accept(struct server *s, const struct text *hello, uint64_t now_s);

/* Queues a line for each client; a client whose queue is full loses it. */
void server_broadcast(struct server *s, const char *line, size_t size);

/* Sends queued bytes, as many as the socket takes. */
void server_flush(struct server *s, struct client *c);
void server_flush_all(struct server *s);
void server_drop(struct server *s, struct client *c);

/* Puts bytes into a client's queue; 0 if there is no room for all of them. */
int client_append(struct server *s, struct client *c, const char *bytes, size_t size);

#endif
