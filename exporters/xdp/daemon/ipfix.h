// SPDX-License-Identifier: Apache-2.0
/*
 * Decided flows as IPFIX (RFC 7011) over UDP. Elements of the enterprise:
 *
 *     1 class (string)  2 verdict (signed32; -1 shunt, -2 no model)  3 margin (unsigned32)
 *     4 model (8 bytes of its digest)  5 scores (signed32 each, as one octetArray)
 *     256 and on: the features (unsigned32), whose names follow RFC 5610
 */
#ifndef N3ICD_IPFIX_H
#define N3ICD_IPFIX_H

#include <stdint.h>

#include "flow_report.h"

struct ipfix {
    int fd;
    uint32_t domain, enterprise, every_s, sequence; /* of the next message: records before it */
    uint64_t templates_sent_s;                      /* when the templates were sent last */
    uint8_t *message;
    uint32_t used, records, set; /* where the open set begins; 0: none */
    uint16_t of;                 /* template of the open set */
    uint64_t sent, lost;
};

/* Opens a socket to ADDRESS:PORT ([ADDRESS]:PORT for IPv6); 0 on failure, with a message. */
int ipfix_open(struct ipfix *x, const char *where, uint32_t domain, uint32_t enterprise,
               uint32_t every_s);
void ipfix_close(struct ipfix *x);

/* Sends the templates when they are due, which they are before the first flow. */
void ipfix_templates(struct ipfix *x, const struct pack *p, uint64_t now_s);
void ipfix_add(struct ipfix *x, const struct flow_report *t);

/* Sends the flows that were added. */
void ipfix_flush(struct ipfix *x);

#endif
