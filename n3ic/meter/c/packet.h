// SPDX-License-Identifier: Apache-2.0
/*
 * Packets as a meter sees them: parsed from frames, or put aside with a reason.
 *
 * The same rules as n3ic/meter/packet.py. Every length is checked before it is used: `held` gives
 * the only pointers into a frame. The same file compiles for BPF, whose verifier follows them.
 */
#ifndef N3IC_PACKET_H
#define N3IC_PACKET_H

#include <stddef.h>
#include <stdint.h>
#ifdef __bpf__
#define memcpy __builtin_memcpy
#define memset __builtin_memset
#else
#include <string.h>
#endif

enum { LINK_EACH = 1 << 30 }; /* each frame begins with the number of its own, 4 bytes */
enum { LINK_NULL = 0, LINK_ETHERNET = 1, LINK_RAW = 101, LINK_COOKED = 113, LINK_COOKED_2 = 276 };
enum { LINK_PPP = 9, LINK_HDLC = 50, LINK_PPPOE = 51, LINK_CISCO = 104 };
enum { LINK_SLIP = 8, LINK_WIFI = 105, LINK_FRAME_RELAY = 107, LINK_RADIOTAP = 127 };
enum { LINK_PKTAP = 258, LINK_PADDED = 1 << 29 }; /* the latter: 802.11, its header in words */
/* Bits 26 to 29 beside a link type: bytes of the check sequence at the end of each frame. */
enum { CHECK_SHIFT = 26, CHECK_MOST = 15, LINK_TYPE = (1 << 26) - 1 };
enum { KIND_PPPOE = 0x8864, KIND_PPP = 0x10000, MAX_LABELS = 8, MAX_PRESENT = 8 };
enum { PROTO_TCP = 6, PROTO_UDP = 17, PROTO_GRE = 47 };
enum { TUNNEL_GRE = 1, TUNNEL_VXLAN = 2, TUNNEL_GTP = 4 }; /* those to open are a sum of them */
enum { KIND_BRIDGED = 0x6558, MAX_TUNNELS = 2, MAX_GTP_EXTENSIONS = 4, MAX_DEPTH = 1024 };
enum { FLAG_FIN = 0x01, FLAG_SYN = 0x02, FLAG_RST = 0x04, FLAG_ACK = 0x10 };

/* Why a packet belongs to no flow; the order is that of REASONS in packet.py. */
enum aside {
    ASIDE_LINK_TYPE,
    ASIDE_LINK_SHORT,
    ASIDE_LINK_CLOSED,
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
    uint8_t sequenced;  /* tcp_sequence holds */
    uint16_t source_port, destination_port;
    uint16_t tcp_window;
    uint32_t tcp_sequence;
    uint32_t identification;
    uint32_t wire_length, ip_length, payload_length;
} __attribute__((aligned(8))); /* addresses are read in words */

#ifdef __bpf__
struct frame { /* what the kernel holds of it in one piece */
    const uint8_t *data, *end;
};

static inline const uint8_t *held(struct frame f, uint32_t at, uint32_t count) {
    const uint8_t *start = f.data + at;

    /* Compilers may add again what was checked; the verifier takes that for another pointer. */
    __asm__ volatile("" : "+r"(start));
    return start + count > f.end ? NULL : start;
}

/* In one load: compilers take bytes one by one where nothing says that words may be unaligned. */
static inline uint32_t be16(const uint8_t *p) {
    return __builtin_bswap16(*(const uint16_t *)p);
}

static inline uint32_t be32(const uint8_t *p) {
    return __builtin_bswap32(*(const uint32_t *)p);
}

/* An address of 4 or 16 bytes and zeros behind it, in stores as wide as the loads that follow. */
static inline void copy_address(uint8_t *to, const uint8_t *from, uint32_t count) {
    uint64_t *words = (uint64_t *)to;

    words[0] = count == 4 ? *(const uint32_t *)from : *(const uint64_t *)from;
    words[1] = count == 4 ? 0 : *(const uint64_t *)(from + 8);
}

static inline int holds(struct frame f, uint32_t count) {
    return f.data + count <= f.end;
}

#define OUT_OF_LINE __attribute__((noinline)) /* what a usual packet does not need */

/*
 * A value below 256 by way of a byte of memory: the verifier forgets which it is, and follows what
 * comes behind link headers of all sizes once.
 */
static inline uint32_t any_byte(uint8_t *byte, uint32_t value) {
    *(volatile uint8_t *)byte = (uint8_t)value;
    return *(volatile uint8_t *)byte;
}

/* The same of a value below 65,536. */
static inline uint32_t any_half(uint32_t value) {
    volatile uint16_t half = (uint16_t)value;

    return half;
}
#else
struct frame { /* its captured bytes */
    const uint8_t *data;
    uint32_t n;
};

/* Where `count` bytes of a frame begin; NULL where it does not hold them. */
static inline const uint8_t *held(struct frame f, uint32_t at, uint32_t count) {
    return f.n < at + count ? NULL : f.data + at;
}

static inline uint32_t be16(const uint8_t *p) {
    return (uint32_t)p[0] << 8 | p[1];
}

static inline uint32_t be32(const uint8_t *p) {
    return be16(p) << 16 | be16(p + 2);
}

static inline void copy_address(uint8_t *to, const uint8_t *from, uint32_t count) {
    memset(to, 0, 16);
    memcpy(to, from, count);
}

static inline int holds(struct frame f, uint32_t count) {
    return f.n >= count;
}

#define OUT_OF_LINE inline

static inline uint32_t any_byte(uint8_t *byte, uint32_t value) {
    (void)byte;
    return value;
}

static inline uint32_t any_half(uint32_t value) {
    return value;
}
#endif

static inline uint32_t at_least_0(int64_t value) {
    return value < 0 ? 0 : (uint32_t)value;
}

static inline enum aside parse_transport(struct frame f, uint32_t at, struct packet *p) {
    const uint8_t *ports, *tcp;
    uint32_t header;

    if (p->later || (p->protocol != PROTO_TCP && p->protocol != PROTO_UDP))
        return PACKET_OK;
    ports = held(f, at, 4);
    if (!ports)
        return ASIDE_PORTS_SHORT;
    p->source_port = (uint16_t)be16(ports);
    p->destination_port = (uint16_t)be16(ports + 2);
    header = p->protocol == PROTO_UDP ? 8 : 20;
    tcp = p->protocol == PROTO_TCP ? held(f, at, 16) : NULL;
    if (tcp) {
        uint32_t words = 4 * (uint32_t)(tcp[12] >> 4);

        header = words > 20 ? words : 20;
        p->tcp_flags = tcp[13];
        p->tcp_window = (uint16_t)be16(tcp + 14);
        p->sequenced = 1;
        p->tcp_sequence = be32(tcp + 4);
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

/* Where an IP packet lies in a frame. */
struct layer {
    uint32_t kind;    /* its EtherType */
    uint32_t at;      /* where its header begins */
    uint32_t behind;  /* where what is behind its headers begins */
    uint32_t outside; /* bytes before it that do not count */
    int64_t end;      /* of the bytes that may be its own */
};

#ifdef __bpf__
/* Global, so that the verifier forgets what they hold and follows what comes behind once. */
__attribute__((noinline)) int any_packet(struct packet *p, struct layer *l) {
    __asm__ volatile("" : : "r"(p), "r"(l) : "memory");
    return 0;
}
#else
static inline void any_packet(struct packet *p, struct layer *l) {
    (void)p, (void)l;
}
#endif

static inline enum aside parse_ipv4(struct frame f, struct layer *l, struct packet *p) {
    const uint32_t at = l->at;
    const uint8_t *ip = held(f, at, 20);
    uint32_t header, total, offset;

    if (!ip)
        return ASIDE_IP_SHORT;
    header = 4 * (uint32_t)(ip[0] & 15);
    total = be16(ip + 2);
    if (ip[0] >> 4 != 4 || header < 20 || (total && total < header))
        return ASIDE_IP_DAMAGED;
    total = ip_length(total, header, at_least_0(l->end - at));
    offset = be16(ip + 6);
    p->address_bytes = 4;
    copy_address(p->source, ip + 12, 4);
    copy_address(p->destination, ip + 16, 4);
    p->protocol = ip[9];
    p->ttl = ip[8];
    p->wire_length = at_least_0(l->end - l->outside);
    p->ip_length = total;
    p->payload_length = total - header;
    p->fragmented = (offset & 0x3fff) != 0;
    p->identification = p->fragmented ? be16(ip + 4) : 0;
    p->later = (offset & 0x1fff) != 0;
    l->behind = at + header;
    return parse_transport(f, l->behind, p);
}

static inline enum aside parse_ipv6(struct frame f, struct layer *l, struct packet *p) {
    const uint32_t at = l->at;
    const uint8_t *ip = held(f, at, 40);
    uint32_t payload, total, start = at + 40;

    if (!ip)
        return ASIDE_IP_SHORT;
    if (ip[0] >> 4 != 6)
        return ASIDE_IP_DAMAGED;
    payload = be16(ip + 4);
    /* no payload behind hop-by-hop options: a jumbogram (RFC 2675) */
    total = payload == 0 && ip[6] == 0 ? 0 : payload + 40;
    total = ip_length(total, 40, at_least_0(l->end - at));
    p->address_bytes = 16;
    copy_address(p->source, ip + 8, 16);
    copy_address(p->destination, ip + 24, 16);
    p->ttl = ip[7];
    p->wire_length = at_least_0(l->end - l->outside);
    p->ip_length = total;
    p->protocol = ip[6];
    for (int i = 0; i < 8 && !p->later; i++) {
        const uint8_t *extension;
        uint8_t kind = p->protocol;
        uint32_t size;

        if (kind != 0 && kind != 43 && kind != 60 && kind != 44)
            break;
        extension = held(f, start, 8);
        if (!extension)
            return ASIDE_IP_SHORT;
        size = kind == 44 ? 8 : 8 + 8 * (uint32_t)extension[1];
        if (kind == 44) {
            uint32_t offset = be16(extension + 2);

            if (offset & 0xfff9) {
                p->fragmented = 1;
                p->identification = be32(extension + 4);
                p->later = (offset & 0xfff8) != 0;
            }
        }
        p->protocol = extension[0];
        start += size;
    }
    p->payload_length = at_least_0((int64_t)total - (start - at));
    l->behind = start;
    return parse_transport(f, start, p);
}

static inline enum aside parse_ip(struct frame f, struct layer *l, struct packet *p) {
    return l->kind == 0x0800   ? parse_ipv4(f, l, p)
           : l->kind == 0x86dd ? parse_ipv6(f, l, p)
                               : ASIDE_NOT_IP;
}

/* EtherType of IP by its version, behind what does not name it. */
static inline uint32_t kind_of(const uint8_t *ip) {
    return !ip ? 0 : *ip >> 4 == 4 ? 0x0800 : *ip >> 4 == 6 ? 0x86dd : 0;
}

/* EtherType behind VLAN tags, none where there are too many; 0 where it is cut short. */
static inline int open_tags(struct frame f, uint32_t *kind, uint32_t *at) {
    for (int tags = 0; tags < 3; tags++) {
        const uint8_t *bytes = held(f, *at, 2);

        if (!bytes)
            return 0;
        *kind = be16(bytes);
        *at += 2;
        if (*kind != 0x8100 && *kind != 0x88a8 && *kind != 0x9100)
            return 1;
        *at += 2;
    }
    *kind = 0;
    return 1;
}

/*
 * EtherType behind PPPoE, PPP and MPLS, and where its packet begins; 0 where they are cut short.
 * A header of PPP or PPPoE that begins the frame lies outside of it.
 */
static inline int open_link(struct frame f, uint32_t *kind, uint32_t *at, uint32_t *outside) {
    const uint8_t *bytes;
    const int begins = *at == 0;

    if (*kind == KIND_PPPOE) {
        bytes = held(f, *at, 6);
        if (!bytes)
            return 0;
        *kind = be16(bytes) == 0x1100 ? KIND_PPP : 0; /* data of a session (RFC 2516) */
        *at += 6;
    }
    if (*kind == KIND_PPP) {
        uint32_t number;

        bytes = held(f, *at, 4);
        if (!bytes)
            return 0;
        if (be16(bytes) == 0xff03) { /* address and control may be left out */
            bytes += 2;
            *at += 2;
        }
        number = bytes[0] & 1 ? bytes[0] : be16(bytes); /* an odd byte ends it (RFC 1661) */
        *at += bytes[0] & 1 ? 1 : 2;
        *kind = number == 0x21    ? 0x0800
                : number == 0x57  ? 0x86dd
                : number == 0x281 ? 0x8847
                : number == 0x283 ? 0x8848
                                  : 0;
    }
    if (begins)
        *outside = *at;
    if (*kind == 0x8847 || *kind == 0x8848) {
        *kind = 0;
        for (int i = 0; i < MAX_LABELS; i++) {
            bytes = held(f, *at, 4);
            if (!bytes)
                return 0;
            *at += 4;
            if (bytes[2] & 1) { /* the bottom of the stack */
                *kind = kind_of(held(f, *at, 1));
                break;
            }
        }
    }
    return 1;
}

/* The tunnel that a packet belongs to by its protocol and port; 0 for none. */
static inline uint32_t tunnel_of(const struct packet *p) {
    if (p->protocol == PROTO_GRE)
        return TUNNEL_GRE;
    return p->protocol != PROTO_UDP      ? 0
           : p->destination_port == 4789 ? TUNNEL_VXLAN
           : p->destination_port == 2152 ? TUNNEL_GTP
                                         : 0;
}

/* Finds the user packet in GTP version 1 (3GPP TS 29.281); 0 where there is none. */
static inline int open_gtp(struct frame f, uint32_t *kind, uint32_t *at, int64_t *end) {
    const uint8_t *bytes = held(f, *at, 8);
    uint32_t start, following = 0;
    int64_t stop;

    if (!bytes || bytes[0] >> 4 != 3 || bytes[1] != 255)
        return 0;
    stop = (int64_t)*at + 8 + be16(bytes + 2);
    if (stop > *end)
        return 0;
    start = *at + 8;
    if (bytes[0] & 7) { /* sequence number, number of the N-PDU and next extension */
        const int extended = bytes[0] & 4;

        bytes = held(f, start, 4);
        if (!bytes)
            return 0;
        following = extended ? bytes[3] : 0;
        start += 4;
    }
    for (int i = 0; i < MAX_GTP_EXTENSIONS && following; i++) {
        uint32_t size, last;

        bytes = held(f, start, 1);
        size = bytes ? 4 * (uint32_t)bytes[0] : 0;
        if (!size)
            return 0;
        last = any_half(start + size - 1);
        bytes = last < MAX_DEPTH ? held(f, last, 1) : NULL;
        if (!bytes)
            return 0;
        following = *bytes;
        start = last + 1;
    }
    if (following)
        return 0;
    *kind = kind_of(held(f, start, 1));
    *at = start;
    *end = stop;
    return 1;
}

/* Goes from a tunnel's packet to the one in it; 0 where that is not opened. */
static inline int open_tunnel(struct frame f, uint32_t tunnels, struct packet *p, struct layer *l) {
    const uint32_t tunnel = tunnel_of(p) & tunnels;
    int64_t end = (int64_t)l->at + p->ip_length;
    uint32_t kind = 0, at = l->behind;
    const uint8_t *bytes;

    if (!tunnel || p->fragmented || at > MAX_DEPTH)
        return 0;
    if (tunnel == TUNNEL_GRE) {
        uint32_t flags;

        bytes = held(f, at, 4);
        if (!bytes)
            return 0;
        flags = be16(bytes);
        /* version 0 (RFC 2784) without routing; checksum, key and sequence number may be there */
        if (flags & 0x4c07)
            return 0;
        kind = be16(bytes + 2);
        at += 4 + 4 * ((flags >> 15) + (flags >> 13 & 1) + (flags >> 12 & 1));
    } else if (tunnel == TUNNEL_VXLAN) {
        bytes = held(f, at + 8, 8);
        if (!bytes || !(bytes[0] & 8)) /* has an identifier (RFC 7348) */
            return 0;
        kind = KIND_BRIDGED;
        at += 16;
    } else {
        at += 8;
        if (!open_gtp(f, &kind, &at, &end))
            return 0;
    }
    if (kind == KIND_BRIDGED) {
        at += 12;
        if (!open_tags(f, &kind, &at))
            return 0;
    }
    if (at > MAX_DEPTH || (kind != 0x0800 && kind != 0x86dd) ||
        end - at < (kind == 0x0800 ? 20 : 40))
        return 0;
    l->outside += at - l->at; /* the tunnel's headers do not count */
    l->kind = kind;
    l->at = at;
    l->end = end;
    return 1;
}

/* Reads the packets in tunnels of these kinds, as far as they can be opened. */
static OUT_OF_LINE void parse_tunnels(const struct frame *frame, uint32_t tunnels, struct layer *l,
                                      struct packet *p) {
    struct frame f = *frame;

    for (int i = 0; i < MAX_TUNNELS; i++) {
        struct packet inner;

        any_packet(p, l);
        memset(&inner, 0, sizeof inner);
        if (!open_tunnel(f, tunnels, p, l))
            break;
        any_packet(&inner, l);
        if (l->at > MAX_DEPTH || parse_ip(f, l, &inner) != PACKET_OK)
            break;
        *p = inner;
    }
    any_packet(p, l);
}

#ifndef __bpf__
static inline uint32_t le16(const uint8_t *p) {
    return (uint32_t)p[1] << 8 | p[0];
}

static inline uint32_t le32(const uint8_t *p) {
    return le16(p + 2) << 16 | le16(p);
}

/* One number for link types that are read alike: raw IP has several by system, loopback two. */
static inline uint32_t link_of(uint32_t type) {
    return type == 12 || type == 14 || type == 228 || type == 229 ? LINK_RAW
           : type == 108                                          ? LINK_NULL
                                                                  : type;
}

/* Bytes of a header of radiotap, and its flags; 0 where it is cut short. */
static inline uint32_t radiotap(struct frame f, uint32_t *flags) {
    const uint8_t *head = held(f, 0, 8);
    const uint32_t size = head ? le16(head + 2) : 0;
    uint32_t at = 4;

    if (size < 8 || size > f.n)
        return 0;
    for (int i = 0, more = 1; i < MAX_PRESENT && more; i++) {
        more = at + 4 <= size && head[at + 3] & 0x80;
        at += 4;
    }
    if (head[4] & 1) /* a time stamp, aligned */
        at = (at + 7) / 8 * 8 + 8;
    *flags = head[4] & 2 && at < size ? head[at] : 0;
    return size;
}

/*
 * Takes off what a capture adds to a frame: PKTAP, radiotap, and the check sequence behind it. 0
 * where that is cut short.
 */
static inline int unwrap(uint32_t *link, struct frame *f, uint32_t *length) {
    uint32_t check = *link >> CHECK_SHIFT & CHECK_MOST, wrapped = 0, flags = 0;

    *link = *link < LINK_EACH ? *link & LINK_TYPE : LINK_TYPE; /* the latter is none */
    if (*link == LINK_PKTAP) { /* little-endian, as all systems that write it */
        const uint8_t *head = held(*f, 0, 12);

        wrapped = head ? le32(head) : 0;
        if (wrapped < 12 || wrapped > f->n)
            return 0;
        *link = link_of(le32(head + 8));
        *link = *link < LINK_TYPE ? *link : LINK_TYPE;
    }
    f->data += wrapped;
    f->n -= wrapped;
    if (*link == LINK_RADIOTAP) {
        const uint32_t size = radiotap(*f, &flags);

        if (!size)
            return 0;
        f->data += size;
        f->n -= size;
        wrapped += size;
        check = flags & 0x10 ? 4 : 0;
        *link = flags & 0x20 ? LINK_PADDED : LINK_WIFI;
    }
    *length = at_least_0((int64_t)*length - wrapped - check);
    if (check && f->n > *length)
        f->n = *length;
    return 1;
}

/* Where the EtherType of an 802.11 data frame lies. */
static inline enum aside open_wifi(struct frame f, int padded, uint32_t *at) {
    const uint8_t *head = held(f, 0, 24), *snap, *control;
    int quality, aggregated;

    if (!head)
        return ASIDE_LINK_SHORT;
    if ((head[0] & 0x4f) != 8) /* version 0, type 2, and a payload */
        return ASIDE_NOT_IP;
    quality = head[0] & 0x80;
    *at = 24 + ((head[1] & 3) == 3 ? 6 : 0);
    control = held(f, *at, 1);
    aggregated = quality && control && *control & 0x80;
    *at += (quality ? 2 : 0) + (quality && head[1] & 0x80 ? 4 : 0);
    /* encrypted; more pieces follow; not the first piece; several packets in one frame */
    if (head[1] & 0x44 || head[22] & 15 || aggregated)
        return ASIDE_LINK_CLOSED;
    if (padded)
        *at = (*at + 3) / 4 * 4;
    snap = held(f, *at, 8);
    if (!snap)
        return ASIDE_LINK_SHORT;
    *at += 6;
    /* an EtherType follows (RFC 1042, 802.1H) */
    return be32(snap) == 0xaaaa0300 && snap[4] == 0 && (snap[5] == 0 || snap[5] == 0xf8)
               ? PACKET_OK
               : ASIDE_NOT_IP;
}

/* The EtherType behind a header of Frame Relay (RFC 2427, or Cisco's), and where it ends. */
static inline enum aside open_frame_relay(struct frame f, uint32_t *kind, uint32_t *at) {
    const uint8_t *head = held(f, 0, 8);

    if (!head)
        return ASIDE_LINK_SHORT;
    *at = head[0] & 1 ? 0 : head[1] & 1 ? 2 : head[2] & 1 ? 3 : head[3] & 1 ? 4 : 0;
    if (!*at)
        return ASIDE_NOT_IP;
    if (head[*at] != 3) {
        *kind = be16(head + *at);
        *at += 2;
        return PACKET_OK;
    }
    *at += head[*at + 1] ? 1 : 2; /* a zero may pad */
    if (head[*at] == 0x80) {
        if (!held(f, *at, 6))
            return ASIDE_LINK_SHORT;
        *kind = be16(head + *at + 1) || head[*at + 3] ? 0 : be16(head + *at + 4);
        *at += 6;
        return PACKET_OK;
    }
    *kind = head[*at] == 0xcc ? 0x0800 : head[*at] == 0x8e ? 0x86dd : 0;
    *at += 1;
    return PACKET_OK;
}

/* As open_begin, of the links that only captures have. */
static inline enum aside open_captured(uint32_t link, struct frame f, uint32_t *kind, uint32_t *at,
                                       uint32_t *outside) {
    const uint8_t *bytes;
    enum aside reason;

    switch (link) {
    case LINK_NULL:
    case LINK_SLIP:
        *at = *outside = link == LINK_NULL ? 4 : 16;
        bytes = held(f, *at, 1);
        *kind = kind_of(bytes);
        return bytes ? PACKET_OK : ASIDE_LINK_SHORT;
    case LINK_PPP:
    case LINK_HDLC:
    case LINK_PPPOE:
        *kind = link == LINK_PPPOE ? KIND_PPPOE : KIND_PPP;
        return PACKET_OK;
    case LINK_COOKED_2:
        bytes = held(f, 0, 20);
        *kind = bytes ? be16(bytes) : 0;
        *at = *outside = 20;
        return bytes ? PACKET_OK : ASIDE_LINK_SHORT;
    case LINK_COOKED:
    case LINK_CISCO:
        *at = link == LINK_COOKED ? 14 : 2;
        *outside = *at + 2;
        return open_tags(f, kind, at) ? PACKET_OK : ASIDE_LINK_SHORT;
    case LINK_WIFI:
    case LINK_PADDED:
        reason = open_wifi(f, link == LINK_PADDED, at);
        if (reason != PACKET_OK)
            return reason;
        return open_tags(f, kind, at) ? PACKET_OK : ASIDE_LINK_SHORT;
    case LINK_FRAME_RELAY:
        reason = open_frame_relay(f, kind, at);
        *outside = *at;
        return reason;
    default:
        return ASIDE_LINK_TYPE;
    }
}
#endif

/* The EtherType in a frame's first header, where it ends, and how much of that was on no wire. */
static inline enum aside open_begin(uint32_t link, struct frame f, uint32_t *kind, uint32_t *at,
                                    uint32_t *outside) {
    if (link == LINK_RAW) {
        *kind = kind_of(held(f, 0, 1));
        return PACKET_OK;
    }
#ifndef __bpf__ /* the kernel has no other links, and its verifier follows all that is there */
    if (link != LINK_ETHERNET)
        return open_captured(link, f, kind, at, outside);
#else
    (void)outside;
#endif
    *at = 12;
    return open_tags(f, kind, at) ? PACKET_OK : ASIDE_LINK_SHORT;
}

/* Reads a captured frame that had `length` bytes on the wire; see parse_frame. */
static OUT_OF_LINE enum aside parse_any(uint32_t link, const struct frame *frame, uint32_t length,
                                        uint32_t tunnels, struct packet *p) {
    struct frame f = *frame;
    uint32_t kind = 0, at = 0, outside = 0;
    struct layer l;
    enum aside reason;

    memset(p, 0, sizeof *p);
#ifndef __bpf__
    if (!unwrap(&link, &f, &length))
        return ASIDE_LINK_SHORT;
    frame = &f;
#endif
    reason = open_begin(link, f, &kind, &at, &outside);
    if (reason != PACKET_OK)
        return reason;
    if (!open_link(f, &kind, &at, &outside))
        return ASIDE_LINK_SHORT;
    l = (struct layer){kind, any_byte(&p->ttl, at), 0, outside, length};
    reason = parse_ip(f, &l, p);
    if (tunnels && reason == PACKET_OK)
        parse_tunnels(frame, tunnels, &l, p);
    return reason;
}

/* Ports and TCP's part of 16 bytes behind an IP header; `total` is of IP, its header of `ip`. */
static inline void read_plain(const uint8_t *bytes, uint32_t length, uint32_t total, uint32_t ip,
                              struct packet *p) {
    uint32_t ports = be32(bytes), header = 8;

    p->source_port = (uint16_t)(ports >> 16);
    p->destination_port = (uint16_t)ports;
    p->tcp_flags = 0;
    p->tcp_window = 0;
    p->sequenced = p->protocol == PROTO_TCP;
    p->tcp_sequence = be32(bytes + 4);
    if (p->sequenced) {
        uint32_t tcp = be32(bytes + 12), words = tcp >> 28;

        header = words > 5 ? 4 * words : 20;
        p->tcp_flags = (uint8_t)(tcp >> 16);
        p->tcp_window = (uint16_t)tcp;
    }
    p->fragmented = p->later = 0;
    p->identification = 0;
    p->wire_length = length;
    p->ip_length = total;
    p->payload_length = total > ip + header ? total - ip - header : 0;
}

/*
 * Reads the usual frame, with few checks: TCP or UDP in IPv4 without options or in IPv6 without
 * extensions, no fragment, no tag. 0 where it is another one, and `p` then means nothing.
 */
static inline int parse_plain(struct frame f, uint32_t length, struct packet *p) {
    const uint8_t *b = f.data;
    uint32_t kind, head, said, captured = length - 14;

    if (!holds(f, 50) || length < 50)
        return 0;
    kind = be32(b + 12);
    if (kind >> 8 == 0x080045) {
        said = be16(b + 16);
        head = be32(b + 20);
        p->protocol = (uint8_t)head;
        if (head & 0x3fff0000 || (p->protocol != PROTO_TCP && p->protocol != PROTO_UDP) ||
            said - 1 < 19)
            return 0;
        p->ttl = (uint8_t)(head >> 8);
        p->address_bytes = 4;
        copy_address(p->source, b + 26, 4);
        copy_address(p->destination, b + 30, 4);
        read_plain(b + 34, length, said - 1 < captured ? said : captured, 20, p);
        return 1;
    }
    if (kind >> 12 == 0x86dd6 && holds(f, 70) && length >= 70) {
        head = be32(b + 18);
        said = (head >> 16) + 40;
        p->protocol = (uint8_t)(head >> 8);
        if (p->protocol != PROTO_TCP && p->protocol != PROTO_UDP)
            return 0;
        p->ttl = (uint8_t)head;
        p->address_bytes = 16;
        copy_address(p->source, b + 22, 16);
        copy_address(p->destination, b + 38, 16);
        read_plain(b + 54, length, said < captured ? said : captured, 40, p);
        return 1;
    }
    return 0;
}

/* As parse_plain; 0, too, where it is a tunnel of these kinds. */
static inline int parse_usual(struct frame f, uint32_t length, uint32_t tunnels, struct packet *p) {
    return parse_plain(f, length, p) && !(tunnel_of(p) & tunnels);
}

/* Reads a captured frame that had `length` bytes on the wire, and in it tunnels of these kinds. */
static inline enum aside parse_frame(uint32_t link, struct frame f, uint32_t length,
                                     uint32_t tunnels, struct packet *p) {
    if (link == LINK_ETHERNET && parse_usual(f, length, tunnels, p))
        return PACKET_OK;
    return parse_any(link, &f, length, tunnels, p);
}

#endif
