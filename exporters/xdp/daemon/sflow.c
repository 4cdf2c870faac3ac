// SPDX-License-Identifier: Apache-2.0
#include "sflow.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "text.h"
#include "udp.h"

#define MTU 1400
#define CHECKSUM 4 /* bytes behind each frame of Ethernet, which the program does not see */
#define FLOW_SAMPLE 1
#define RAW_HEADER 1
#define ETHERNET 1
#define DISCARDED (1u << 30) /* an output interface of this format is the reason */
#define REASON_LIST 258
#define REASON_RATE 261
#define HEADER (4 + 4 + 16 + 4 + 4 + 4 + 4) /* of a message, with an address of IPv6 */
#define SAMPLE (8 + 32 + 8 + 16 + SAMPLED_BYTES)

_Static_assert(HEADER + SAMPLE < MTU, "a sample fits a message");
_Static_assert(SAMPLED_BYTES % 4 == 0, "the padding of a header stays in it");

static uint64_t now_ms(void) {
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void append_u32(struct sflow *x, uint64_t value) {
    for (int i = 24; i >= 0; i -= 8)
        x->message[x->used++] = (uint8_t)(value >> i);
}

static void append_bytes(struct sflow *x, const void *bytes, uint32_t count) {
    memcpy(x->message + x->used, bytes, count);
    x->used += count;
}

static int read_agent(struct sflow *x) {
    struct sockaddr_storage own = {0};
    socklen_t size = sizeof own;

    if (getsockname(x->fd, (struct sockaddr *)&own, &size))
        return 0;
    x->agent_type = own.ss_family == AF_INET ? 1 : 2;
    x->agent_bytes = own.ss_family == AF_INET ? 4 : 16;
    memcpy(x->agent,
           own.ss_family == AF_INET ? (void *)&((struct sockaddr_in *)(void *)&own)->sin_addr
                                    : (void *)&((struct sockaddr_in6 *)(void *)&own)->sin6_addr,
           x->agent_bytes);
    return 1;
}

int sflow_open(struct sflow *x, const char *where, uint32_t one_in) {
    *x = (struct sflow){.one_in = one_in, .begun_ms = now_ms()};
    x->fd = udp_open("sflow", where);
    if (x->fd < 0)
        return 0;
    x->message = malloc(MTU);
    if (x->message && read_agent(x))
        return 1;
    log_message("sflow = %s: %s", where, strerror(errno));
    sflow_close(x);
    return 0;
}

void sflow_close(struct sflow *x) {
    udp_close(&x->fd, &x->message);
}

static void begin_message(struct sflow *x) {
    append_u32(x, 5); /* the version */
    append_u32(x, x->agent_type);
    append_bytes(x, x->agent, x->agent_bytes);
    append_u32(x, 0); /* of the agent's parts */
    append_u32(x, x->sequence++);
    append_u32(x, now_ms() - x->begun_ms);
    append_u32(x, 0); /* samples: known at the end */
}

void sflow_add(struct sflow *x, const struct sample *s, uint64_t dropped, uint64_t lost) {
    uint32_t captured = s->captured < SAMPLED_BYTES ? s->captured : SAMPLED_BYTES;
    uint32_t padded = (captured + 3) / 4 * 4, record = 16 + padded;
    static const uint8_t zeros[4];

    if (x->used + SAMPLE > MTU)
        sflow_flush(x);
    if (!x->used)
        begin_message(x);
    x->samples++;
    append_u32(x, FLOW_SAMPLE);
    append_u32(x, 32 + 8 + record);
    append_u32(x, x->sample_sequence++);
    append_u32(x, s->interface & 0xffffff);
    append_u32(x, x->one_in);
    append_u32(x, dropped);
    append_u32(x, lost + x->lost);
    append_u32(x, s->interface);
    append_u32(x, DISCARDED | (s->is_limited ? REASON_RATE : REASON_LIST));
    append_u32(x, 1); /* records */
    append_u32(x, RAW_HEADER);
    append_u32(x, record);
    append_u32(x, ETHERNET);
    append_u32(x, s->length + CHECKSUM);
    append_u32(x, CHECKSUM); /* bytes that were taken off */
    append_u32(x, captured);
    append_bytes(x, s->bytes, captured);
    append_bytes(x, zeros, padded - captured);
}

void sflow_flush(struct sflow *x) {
    uint32_t size = x->used;

    if (x->fd < 0 || !size)
        return;
    x->used = 4 + 4 + x->agent_bytes + 12;
    append_u32(x, x->samples);
    if (send(x->fd, x->message, size, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
        x->lost += x->samples;
    else
        x->sent += x->samples;
    x->used = x->samples = 0;
}
