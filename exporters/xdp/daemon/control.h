// SPDX-License-Identifier: Apache-2.0
/*
 * Requests to a running n3icd over a UNIX socket that root alone opens. A client sends one line,
 * for some with bytes behind it, and gets lines, of which the last one is `ok`, or `error` and why:
 *
 *     update SUM SIZE     and SIZE bytes of a pack, made of the one with that sum, or of any (-)
 *     unload              detaches the program, forgets its flows, and ends n3icd
 *     status              the figures, as a line of JSON
 *     leave               ends n3icd, and leaves its program in place for the next one
 *     put ACTION ARGUMENT SIZE
 *                         and SIZE bytes of lines, each a target and the seconds for which the
 *                         verdict holds, or -: puts all of them on a list, or none; the answer has
 *                         the number of those that had no such verdict
 *     remove allowed WHAT, remove blocked WHAT
 *                         removes verdicts; the answer has their number
 *     list                the verdicts: the entries of four maps, each a key and a value as in
 *                         state.h, then a line of each map's name and number of entries
 */
#ifndef N3ICD_CONTROL_H
#define N3ICD_CONTROL_H

#include "server.h"

enum request_kind {
    REQUEST_NONE,
    REQUEST_UPDATE,
    REQUEST_UNLOAD,
    REQUEST_STATUS,
    REQUEST_LEAVE,
    REQUEST_PUT,
    REQUEST_REMOVE,
    REQUEST_LIST
};

struct request {
    enum request_kind kind;
    char head[192]; /* its line, as far as it came */
    size_t head_used;
    int any; /* a pack that was not made of another one */
    uint32_t made_of;
    uint32_t action, argument; /* of verdicts */
    int allowed;               /* verdicts that allow are removed, else all others */
    const char *what;          /* on this target; in the head */
    char *bytes;               /* behind the line, with a zero at their end */
    size_t size, used;
};

/* What a client gets. */
struct answer {
    char *bytes;
    size_t size, sent;
};

struct control {
    struct server server;
    struct request request[CLIENTS];
    struct answer answer[CLIENTS];
};

/* Accepts a client that waits, and refuses it if it is not root. */
void control_accept(struct control *c, uint64_t now_s);

/* Reads what a client sent; the kind of its request once it is complete. */
enum request_kind control_read(struct control *c, int i);

/*
 * Answers a client, which then closes its connection. `lines` come first where all is done; it may
 * be NULL.
 */
void control_answer(struct control *c, int i, int done, const struct text *lines);

/* Sends what is left of an answer. */
void control_flush(struct control *c, int i);
void control_drop(struct control *c, int i);

/* Sends a request to the n3icd that listens at a path, and prints an error; 0 on success. */
int control_ask(const char *path, const char *line, const void *bytes, size_t size);

#endif
