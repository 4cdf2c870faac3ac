// SPDX-License-Identifier: Apache-2.0
/* See payloads.h. */
#include "payloads.h"

#include <netinet/in.h>
#include <rte_byteorder.h>
#include <rte_ether.h>
#include <rte_ip.h>
#include <rte_udp.h>

enum { TAGS = 2, ALL_ONES = 0xffff };

struct payload {
    const uint8_t *start;
    uint32_t bytes;
    uint64_t sender;
};

/* Whether the checksum of a datagram and its pseudo-header is right; 0 means that there is none. */
static int checksum_is_right(const struct rte_ipv4_hdr *ip, const struct rte_udp_hdr *udp,
                             uint32_t bytes) {
    const uint32_t sum = (uint32_t)rte_raw_cksum(&ip->src_addr, 2 * sizeof ip->src_addr) +
                         rte_cpu_to_be_16(IPPROTO_UDP) + udp->dgram_len + rte_raw_cksum(udp, bytes);
    return !udp->dgram_cksum || __rte_raw_cksum_reduce(sum) == ALL_ONES;
}

static enum payload_kind find_payload(const uint8_t *at, uint32_t left, int cut, uint16_t port,
                                      struct payload *payload) {
    const struct rte_ether_hdr *ether = (const void *)at;
    if (left < sizeof *ether) {
        return PAYLOAD_OTHER;
    }
    uint16_t type = ether->ether_type;
    at += sizeof *ether;
    left -= sizeof *ether;
    for (int i = 0; i < TAGS && (type == rte_cpu_to_be_16(RTE_ETHER_TYPE_VLAN) ||
                                 type == rte_cpu_to_be_16(RTE_ETHER_TYPE_QINQ));
         i++) {
        const struct rte_vlan_hdr *tag = (const void *)at;
        if (left < sizeof *tag) {
            return PAYLOAD_OTHER;
        }
        type = tag->eth_proto;
        at += sizeof *tag;
        left -= sizeof *tag;
    }
    const struct rte_ipv4_hdr *ip = (const void *)at;
    if (type != rte_cpu_to_be_16(RTE_ETHER_TYPE_IPV4) || left < sizeof *ip ||
        ip->next_proto_id != IPPROTO_UDP) {
        return PAYLOAD_OTHER;
    }
    const uint32_t header = (ip->version_ihl & 15u) * 4, total = rte_be_to_cpu_16(ip->total_length);
    if (ip->version_ihl >> 4 != 4 || header < sizeof *ip || total < header || total > left ||
        rte_raw_cksum(ip, header) != ALL_ONES) {
        return PAYLOAD_DAMAGED;
    }
    if (ip->fragment_offset & rte_cpu_to_be_16(RTE_IPV4_HDR_MF_FLAG | RTE_IPV4_HDR_OFFSET_MASK)) {
        return PAYLOAD_FRAGMENT;
    }
    const struct rte_udp_hdr *udp = (const void *)(at + header);
    if (total - header < sizeof *udp) {
        return PAYLOAD_DAMAGED;
    }
    if (udp->dst_port != rte_cpu_to_be_16(port)) {
        return PAYLOAD_OTHER;
    }
    const uint32_t bytes = rte_be_to_cpu_16(udp->dgram_len);
    if (cut || bytes < sizeof *udp || bytes > total - header ||
        !checksum_is_right(ip, udp, bytes)) {
        return PAYLOAD_DAMAGED;
    }
    payload->start = (const uint8_t *)(udp + 1);
    payload->bytes = bytes - (uint32_t)sizeof *udp;
    payload->sender =
        (uint64_t)rte_be_to_cpu_16(udp->src_port) << 32 | rte_be_to_cpu_32(ip->src_addr);
    return PAYLOAD_WHOLE;
}

void payloads_find(const uint8_t *data, size_t n, const uint64_t *offset, const uint32_t *captured,
                   const uint32_t *length, uint16_t port, uint8_t *kind, int64_t *start,
                   int64_t *bytes, uint64_t *sender) {
    for (size_t i = 0; i < n; i++) {
        struct payload p = {data, 0, 0};
        kind[i] =
            (uint8_t)find_payload(data + offset[i], captured[i], captured[i] < length[i], port, &p);
        start[i] = p.start - data;
        bytes[i] = p.bytes;
        sender[i] = p.sender;
    }
}
