// SPDX-License-Identifier: Apache-2.0
/*
 * Reads captures: pcap and pcapng, from a file or a pipe, in bounded memory.
 *
 * Nothing of a capture is trusted. What it refuses, and where a damaged capture ends, is as with
 * libpcap.
 */
#ifndef CAPTURE_H
#define CAPTURE_H

#include <signal.h>
#include <stdint.h>

/* A packet: its captured bytes, its length on the wire, and when it was seen, since 1970. */
struct captured {
    const uint8_t *bytes; /* until the next call */
    uint32_t captured, length;
    uint32_t link; /* LINKTYPE_ numbers; several in a capture, which libpcap refuses */
    int64_t seconds, nanoseconds;
};

struct capture;

/* Opens what `fd` gives; *stop ends it when it is set. On failure NULL, and *wrong says why. */
struct capture *capture_open(int fd, const volatile sig_atomic_t *stop, const char **wrong);
void capture_close(struct capture *c);

/* The link type of its first interface (LINKTYPE_ numbers). */
uint32_t capture_link(const struct capture *c);

/* Whether all that was read is used up: the next packet may take a while. */
int capture_waits(const struct capture *c);

/* The next packet: 1; 0 at the end; -1 where it ends early, and *wrong says why. */
int capture_next(struct capture *c, struct captured *f, const char **wrong);

#endif
