// SPDX-License-Identifier: Apache-2.0
/*
 * Samples of dropped packets as sFlow version 5 over UDP: flow samples with the packet's header.
 * The output interface says that it was dropped, and why: reason 258 (access list), or 261 (traffic
 * shaping) for what was over the rate of a verdict.
 */
#ifndef N3ICD_SFLOW_H
#define N3ICD_SFLOW_H

#include <stdint.h>

#include "state.h"

struct sflow {
    int fd;
    uint32_t one_in, sequence, sample_sequence;
    uint32_t agent_type, agent_bytes; /* the address of the socket's own end */
    uint8_t agent[16];
    uint64_t begun_ms;
    uint8_t *message;
    uint32_t used, samples;
    uint64_t sent, lost; /* samples */
};

/* Opens a socket to ADDRESS:PORT; 0 on failure, with a message. One packet in `one_in` is sampled.
 */
int sflow_open(struct sflow *x, const char *where, uint32_t one_in);
void sflow_close(struct sflow *x);

/* Adds a sample; so many packets were dropped until now, and so many samples of them were lost. */
void sflow_add(struct sflow *x, const struct sample *s, uint64_t dropped, uint64_t lost);

/* Sends the samples that were added. */
void sflow_flush(struct sflow *x);

#endif
