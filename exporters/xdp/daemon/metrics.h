// SPDX-License-Identifier: Apache-2.0
/* The figures as Prometheus reads them, over HTTP. */
#ifndef N3ICD_METRICS_H
#define N3ICD_METRICS_H

#include "kernel.h"
#include "server.h"

/* What n3icd itself counted. */
struct own_figures {
    uint64_t events, damaged, readers, reader_lost, file_lost, syslog_lost, ipfix_lost, sflow_lost;
};

#define METRICS_ROOM (4 << 20)

/* Writes all figures; 0 where the kernel refuses them. */
int metrics_write(struct text *out, struct kernel *k, const struct pack *p,
                  const struct own_figures *own);

/* Writes them as lines for people; 0 where the kernel refuses them. */
int metrics_write_summary(struct text *out, struct kernel *k, const struct pack *p);

/* Writes them, and counts of the models' bits, as a line of JSON; 0 where the kernel refuses them.
 */
int metrics_write_json(struct text *out, struct kernel *k, const struct pack *p,
                       const struct own_figures *own);

/* Reads a request and answers it; the client is dropped when all is sent. */
void metrics_answer(struct server *s, struct client *c, struct text *out, struct kernel *k,
                    const struct pack *p, const struct own_figures *own);

#endif
