// SPDX-License-Identifier: Apache-2.0
/* Decided flows as lines of JSON in a file, and as messages of syslog. */
#ifndef N3ICD_LOGS_H
#define N3ICD_LOGS_H

#include "flow_report.h"

struct log_file {
    const char *path; /* empty: none */
    int fd;
    uint64_t written, lost;
    uint64_t size, most; /* bytes of the file, and those at which it is moved away; 0: never */
    uint32_t old;        /* moved files that are kept */
};

/*
 * Opens the file at the end, anew after it was moved away; 0 on failure, with a message.
 * `mebibytes` and `old`: see json-megabytes and json-old in n3icd.conf.
 */
int file_open(struct log_file *f, const char *path, uint32_t mebibytes, uint32_t old);
void file_write(struct log_file *f, const char *line, size_t size);

/* Messages are queued while the syslog daemon accepts none: its socket holds about ten. */
struct syslog {
    const char *path;
    int fd, broken;
    char host[256];
    uint32_t enterprise;
    struct text message, waiting; /* each message behind its length */
    uint64_t sent, lost;
};

/* Connects to a datagram socket of a syslog daemon; 0 on failure, with a message. */
int syslog_open(struct syslog *s, const char *path, uint32_t enterprise);

/* A message of RFC 5424: class, margin and ends as its structured data. */
void syslog_send(struct syslog *s, const struct flow_report *t);

/* Sends the queued messages. */
void syslog_flush(struct syslog *s);

/* Connects again after the daemon was started anew; 1 if that makes a new socket. */
int syslog_mend(struct syslog *s);
void syslog_close(struct syslog *s);

#endif
