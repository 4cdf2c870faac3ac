// SPDX-License-Identifier: Apache-2.0
/*
 * Reads captures: pcap and pcapng, from a file or a pipe, in bounded memory.
 *
 * Nothing in a capture is trusted. The reader refuses what libpcap refuses, and a damaged capture
 * ends at the same packet.
 */
#ifndef CAPTURE_H
#define CAPTURE_H

#include <signal.h>
#include <stdint.h>

/* A packet: its captured bytes, its length on the wire, and its time since 1970. */
struct captured {
    const uint8_t *bytes; /* valid until the next call */
    uint32_t captured, length;
    uint32_t link; /* LINKTYPE_ numbers; several in a capture, which libpcap refuses */
    int64_t seconds, nanoseconds;
};

struct capture;

/* Opens the capture that `fd` reads; a set *stop ends it. On failure NULL, and *wrong says why. */
struct capture *capture_open(int fd, const volatile sig_atomic_t *stop, const char **wrong);
void capture_close(struct capture *c);

/* The link type of its first interface (LINKTYPE_ numbers). */
uint32_t capture_link(const struct capture *c);

/* Whether no byte is left that was read: capture_next() may have to wait for more. */
int capture_waits(const struct capture *c);

/* Reads the next packet. Returns 1; 0 at the end; -1 if the capture ends early, and *wrong says
 * why. */
int capture_next(struct capture *c, struct captured *f, const char **wrong);

#endif
