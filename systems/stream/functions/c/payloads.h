// SPDX-License-Identifier: Apache-2.0
/* Finds UDP payloads in Ethernet frames. */
#ifndef N3IC_PAYLOADS_H
#define N3IC_PAYLOADS_H

#include <stddef.h>
#include <stdint.h>

/* What a frame is to the caller. */
enum payload_kind { PAYLOAD_WHOLE, PAYLOAD_OTHER, PAYLOAD_FRAGMENT, PAYLOAD_DAMAGED };

/*
 * Finds IPv4 datagrams to a UDP port, behind up to two VLAN tags, and checks lengths and checksums.
 * data: the memory of all frames; offset, captured, length: columns of the n frames.
 * kind: set for each frame. For PAYLOAD_WHOLE also start: the payload's offset in data; bytes: its
 * size; sender: the sender's port << 32 | its address.
 */
void payloads_find(const uint8_t *data, size_t n, const uint64_t *offset, const uint32_t *captured,
                   const uint32_t *length, uint16_t port, uint8_t *kind, int64_t *start,
                   int64_t *bytes, uint64_t *sender);

#endif
