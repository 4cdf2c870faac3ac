// SPDX-License-Identifier: Apache-2.0
/* Which of several functions gets a packet: all packets of a flow go to the same one. */
#ifndef N3IC_FLOWS_H
#define N3IC_FLOWS_H

#include <stdint.h>

enum { FLOW_FRAGMENTS = 4096 };

/* Whose packets stay together; the keys of a meter, whose first two join both directions. */
enum flow_key { FLOW_FIVE_TUPLE, FLOW_HOST_PAIR, FLOW_SOURCE_HOST, FLOW_KEYS };

struct flow_shares {
    enum flow_key by;
    uint64_t secret[2]; /* so that no sender can choose the function that it reaches */
    /* The hash of the flow of a datagram's first fragment, which alone has its ports. */
    struct {
        uint64_t datagram, flow;
    } fragments[FLOW_FRAGMENTS];
};

/*
 * The share of an Ethernet frame, below `shares`. Flows are those of the meter, and frames that
 * belong to none have share 0. `length` is the frame's length on the wire.
 */
unsigned flow_share(struct flow_shares *s, const uint8_t *frame, uint32_t captured, uint32_t length,
                    unsigned shares);

#endif
