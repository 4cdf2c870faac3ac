// SPDX-License-Identifier: Apache-2.0
/* Where the payloads of UDP lie in frames of Ethernet. */
#ifndef N3IC_PAYLOADS_H
#define N3IC_PAYLOADS_H

#include <stddef.h>
#include <stdint.h>

/* What a frame is to the one who asks. */
enum payload_kind { PAYLOAD_WHOLE, PAYLOAD_OTHER, PAYLOAD_FRAGMENT, PAYLOAD_DAMAGED };

/*
 * Finds datagrams over IPv4 to a port, with up to two VLAN tags, and checks lengths and checksums.
 * data: memory of all frames; offset, captured, length: of each frame of n.
 * kind: what each is; of those that are PAYLOAD_WHOLE also start: of the payload in data; bytes: of
 * the payload; sender: port << 32 | address of the sender.
 */
void payloads_find(const uint8_t *data, size_t n, const uint64_t *offset, const uint32_t *captured,
                   const uint32_t *length, uint16_t port, uint8_t *kind, int64_t *start,
                   int64_t *bytes, uint64_t *sender);

#endif
