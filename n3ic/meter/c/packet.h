/*
 * Packets as a meter sees them: parsed from frames, or put aside with a reason.
 *
 * The same rules as n3ic/meter/packet.py. Every length is checked before it is used.
 */
#ifndef N3IC_PACKET_H
#define N3IC_PACKET_H

#include <stdint.h>
#include <string.h>

enum { LINK_NULL = 0, LINK_ETHERNET = 1, LINK_RAW = 101, LINK_COOKED = 113, LINK_COOKED_2 = 276 };
enum { PROTO_TCP = 6, PROTO_UDP = 17 };
enum { FLAG_FIN = 0x01, FLAG_SYN = 0x02, FLAG_RST = 0x04, FLAG_ACK = 0x10 };

/* Why a packet belongs to no flow; the order is that of REASONS in packet.py. */
enum aside {
    ASIDE_LINK_TYPE,
    ASIDE_LINK_SHORT,
    ASIDE_NOT_IP,
    ASIDE_IP_SHORT,
    ASIDE_IP_DAMAGED,
    ASIDE_PORTS_SHORT,
    ASIDE_FRAGMENT,
    ASIDE_CACHE_FULL,
    ASIDE_REASONS,
    PACKET_OK
};

struct packet {
    uint8_t source[16], destination[16];
    uint8_t address_bytes; /* 4 or 16 */
    uint8_t protocol;
    uint8_t ttl;
    uint8_t tcp_flags;
    uint8_t fragmented; /* identification holds */
    uint8_t later;      /* a fragment without ports */
    uint16_t source_port, destination_port;
    uint16_t tcp_window;
    uint32_t identification;
    uint32_t wire_length, ip_length, payload_length;
};

static inline uint32_t be16(const uint8_t *p) {
    return (uint32_t)p[0] << 8 | p[1];
}

static inline uint32_t be32(const uint8_t *p) {
    return be16(p) << 16 | be16(p + 2);
}

static inline uint32_t at_least_0(int64_t value) {
    return value < 0 ? 0 : (uint32_t)value;
}

static inline enum aside parse_transport(const uint8_t *f, uint32_t n, uint32_t at,
                                         struct packet *p) {
    uint32_t header;

    if (p->later || (p->protocol != PROTO_TCP && p->protocol != PROTO_UDP))
        return PACKET_OK;
    if (n < at + 4)
        return ASIDE_PORTS_SHORT;
    p->source_port = (uint16_t)be16(f + at);
    p->destination_port = (uint16_t)be16(f + at + 2);
    header = p->protocol == PROTO_UDP ? 8 : 20;
    if (p->protocol == PROTO_TCP && n >= at + 16) {
        uint32_t words = 4 * (uint32_t)(f[at + 12] >> 4);

        header = words > 20 ? words : 20;
        p->tcp_flags = f[at + 13];
        p->tcp_window = (uint16_t)be16(f + at + 14);
    }
    p->payload_length = at_least_0((int64_t)p->payload_length - header);
    return PACKET_OK;
}

/*
 * Bytes of an IP packet whose header says so many, in a frame that holds so many. A header says 0
 * where the sender's card was to cut a large segment, and in a jumbogram.
 */
static inline uint32_t ip_length(uint32_t said, uint32_t header, uint32_t held) {
    uint32_t total = said && said < held ? said : held;

    return total > header ? total : header;
}

static inline enum aside parse_ipv4(const uint8_t *f, uint32_t n, uint32_t at, int64_t length,
                                    uint32_t outside, struct packet *p) {
    uint32_t header, total, offset;

    if (n < at + 20)
        return ASIDE_IP_SHORT;
    header = 4 * (uint32_t)(f[at] & 15);
    total = be16(f + at + 2);
    if (f[at] >> 4 != 4 || header < 20 || (total && total < header))
        return ASIDE_IP_DAMAGED;
    total = ip_length(total, header, at_least_0(length - at));
    offset = be16(f + at + 6);
    p->address_bytes = 4;
    memcpy(p->source, f + at + 12, 4);
    memcpy(p->destination, f + at + 16, 4);
    p->protocol = f[at + 9];
    p->ttl = f[at + 8];
    p->wire_length = at_least_0(length - outside);
    p->ip_length = total;
    p->payload_length = total - header;
    p->fragmented = (offset & 0x3fff) != 0;
    p->identification = p->fragmented ? be16(f + at + 4) : 0;
    p->later = (offset & 0x1fff) != 0;
    return parse_transport(f, n, at + header, p);
}

static inline enum aside parse_ipv6(const uint8_t *f, uint32_t n, uint32_t at, int64_t length,
                                    uint32_t outside, struct packet *p) {
    uint32_t payload, total, start = at + 40;

    if (n < at + 40)
        return ASIDE_IP_SHORT;
    if (f[at] >> 4 != 6)
        return ASIDE_IP_DAMAGED;
    payload = be16(f + at + 4);
    /* no payload behind hop-by-hop options: a jumbogram (RFC 2675) */
    total = payload == 0 && f[at + 6] == 0 ? 0 : payload + 40;
    total = ip_length(total, 40, at_least_0(length - at));
    p->protocol = f[at + 6];
    for (int i = 0; i < 8 && !p->later; i++) {
        uint8_t kind = p->protocol;
        uint32_t size;

        if (kind != 0 && kind != 43 && kind != 60 && kind != 44)
            break;
        if (n < start + 8)
            return ASIDE_IP_SHORT;
        size = kind == 44 ? 8 : 8 + 8 * (uint32_t)f[start + 1];
        if (kind == 44) {
            uint32_t offset = be16(f + start + 2);

            if (offset & 0xfff9) {
                p->fragmented = 1;
                p->identification = be32(f + start + 4);
                p->later = (offset & 0xfff8) != 0;
            }
        }
        p->protocol = f[start];
        start += size;
    }
    p->address_bytes = 16;
    memcpy(p->source, f + at + 8, 16);
    memcpy(p->destination, f + at + 24, 16);
    p->ttl = f[at + 7];
    p->wire_length = at_least_0(length - outside);
    p->ip_length = total;
    p->payload_length = at_least_0((int64_t)total - (start - at));
    return parse_transport(f, n, start, p);
}

/* Reads a captured frame of n bytes that had `length` bytes on the wire. */
static inline enum aside parse_frame(uint32_t link, const uint8_t *f, uint32_t n, uint32_t length,
                                     struct packet *p) {
    uint32_t kind = 0, at = 0, outside = 0;

    memset(p, 0, sizeof *p);
    if (link == LINK_RAW || link == LINK_NULL) {
        at = outside = link == LINK_NULL ? 4 : 0;
        if (link == LINK_NULL && n < 5)
            return ASIDE_LINK_SHORT;
        kind = n > at ? f[at] >> 4 : 0;
        kind = kind == 4 ? 0x0800 : kind == 6 ? 0x86dd : 0;
    } else if (link == LINK_COOKED_2) {
        if (n < 20)
            return ASIDE_LINK_SHORT;
        kind = be16(f);
        at = outside = 20;
    } else if (link == LINK_ETHERNET || link == LINK_COOKED) {
        int tags;

        at = link == LINK_ETHERNET ? 12 : 14;
        outside = link == LINK_ETHERNET ? 0 : 16;
        for (tags = 0; tags < 3; tags++, at += 4) {
            if (n < at + 2)
                return ASIDE_LINK_SHORT;
            kind = be16(f + at);
            if (kind != 0x8100 && kind != 0x88a8 && kind != 0x9100)
                break;
        }
        if (tags == 3) /* more tags than a meter opens */
            return ASIDE_NOT_IP;
        at += 2;
    } else {
        return ASIDE_LINK_TYPE;
    }
    if (kind == 0x0800)
        return parse_ipv4(f, n, at, length, outside, p);
    if (kind == 0x86dd)
        return parse_ipv6(f, n, at, length, outside, p);
    return ASIDE_NOT_IP;
}

#endif
