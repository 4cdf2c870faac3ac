// SPDX-License-Identifier: Apache-2.0
/* See capture.h. Formats: draft-ietf-opsawg-pcap and draft-ietf-opsawg-pcapng. */
#define _POSIX_C_SOURCE 200809L

#include "capture.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "packet.h"

#define SECOND 1000000000u

enum { PIECE = 1 << 18, MAX_BLOCK = 1 << 24, MAX_SNAPSHOT = 1 << 18, MAX_INTERFACES = 1 << 16 };
enum { BLOCK_INTERFACE = 1, BLOCK_OLD_PACKET = 2, BLOCK_SIMPLE = 3, BLOCK_PACKET = 6 };
enum { OPTION_END = 0, OPTION_RESOLUTION = 9, OPTION_CHECK = 13, OPTION_OFFSET = 14 };

static const uint32_t magic_us = 0xa1b2c3d4;
static const uint32_t magic_ns = 0xa1b23c4d;
static const uint32_t magic_section = 0x0a0d0d0a;
static const uint32_t magic_order = 0x1a2b3c4d;

static const char damaged[] = "a block or packet is damaged";
static const char no_capture[] = "no capture: pcap (version 2) or pcapng is expected";

/* How to read the time stamps of an interface: units a second, and seconds to add. */
struct interface {
    uint64_t resolution, offset;
    int binary;
    uint32_t link, check; /* link type and check sequence: interfaces of a file may differ */
    uint32_t snapshot;    /* largest frame */
};

struct capture {
    int fd;
    const volatile sig_atomic_t *stop;
    uint8_t *data; /* bytes [at, end) are read and not yet used */
    size_t at, end;
    const char *wrong;
    int swapped, blocks, nanoseconds;
    uint32_t minor, link, snapshot;
    struct interface *interfaces;
    uint32_t n_interfaces, room;
};

static uint32_t read32(const struct capture *c, const uint8_t *p) {
    uint32_t x;
    memcpy(&x, p, sizeof x);
    if (c->swapped) {
        x = x >> 24 | (x >> 8 & 0xff00) | (x << 8 & 0xff0000) | x << 24;
    }
    return x;
}

static uint32_t read16(const struct capture *c, const uint8_t *p) {
    uint16_t x;
    memcpy(&x, p, sizeof x);
    return c->swapped ? (uint16_t)(x >> 8 | x << 8) : x;
}

static uint64_t read64(const struct capture *c, const uint8_t *p) {
    uint64_t x;
    memcpy(&x, p, sizeof x);
    if (c->swapped) {
        return (uint64_t)read32(c, p) << 32 | read32(c, p + 4);
    }
    return x;
}

/* Reads one more piece; returns 0 at the end of the input. read_bytes() calls it only while fewer
 * than MAX_BLOCK bytes are left, so a piece always has room after them. */
static int read_piece(struct capture *c) {
    memmove(c->data, c->data + c->at, c->end - c->at);
    c->end -= c->at;
    c->at = 0;
    while (!*c->stop) {
        struct pollfd ready = {.fd = c->fd, .events = POLLIN};
        /* A signal just before the call does not interrupt it: *stop is tested each second. */
        if (poll(&ready, 1, 1000) > 0) {
            const ssize_t got = read(c->fd, c->data + c->end, PIECE);
            if (got >= 0) {
                c->end += (size_t)got;
                return got > 0;
            }
            if (errno != EINTR && errno != EAGAIN) {
                c->wrong = strerror(errno);
                return 0;
            }
        }
    }
    return 0;
}

/* The next n bytes, at most MAX_BLOCK; NULL if fewer are left. */
static const uint8_t *read_bytes(struct capture *c, size_t n) {
    while (c->end - c->at < n) {
        if (!read_piece(c)) {
            return NULL;
        }
    }
    c->at += n;
    return c->data + c->at - n;
}

static int set_error(struct capture *c, const char *wrong) {
    c->wrong = wrong;
    return -1;
}

/* Result after read_bytes() failed inside a packet or block: -1, or 0 if the program is to stop. */
static int truncation_result(struct capture *c) {
    return *c->stop ? 0 : set_error(c, c->wrong ? c->wrong : "it is cut short");
}

/* Result after read_bytes() failed between two packets or blocks, where the input may end. */
static int end_result(struct capture *c) {
    return c->at == c->end && !c->wrong ? 0 : truncation_result(c);
}

/* A link type as the meter takes it, with the bytes of the check sequence behind each frame. */
static uint32_t link_with_check(uint32_t type, uint32_t bytes) {
    return link_of(type) | (bytes <= CHECK_MOST ? bytes : 0) << CHECK_SHIFT;
}

static uint32_t snapshot_of(uint32_t value) {
    return value && value <= INT_MAX ? value : MAX_SNAPSHOT;
}

/* --- pcap ------------------------------------------------------------------------------ */

static int open_pcap(struct capture *c) {
    const uint8_t *head = read_bytes(c, 20);
    if (!head) {
        return truncation_result(c);
    }
    c->minor = read16(c, head + 2);
    if (read16(c, head) != 2 || c->minor > 4) {
        return set_error(c, no_capture);
    }
    c->snapshot = snapshot_of(read32(c, head + 12));
    /* The upper bits say whether there is a check sequence, and its 16-bit words. */
    const uint32_t link = read32(c, head + 16);
    c->link = link_with_check(link & 0x03ffffff, link >> 26 & 1 ? 2 * (link >> 28) : 0);
    return 1;
}

/* As in libpcap: signed, unless the file has the other byte order. */
static int64_t read_stamp(const struct capture *c, const uint8_t *p) {
    return c->swapped ? (int64_t)read32(c, p) : (int32_t)read32(c, p);
}

static int next_pcap(struct capture *c, struct captured *f) {
    const uint8_t *head = read_bytes(c, 16);
    if (!head) {
        return end_result(c);
    }
    f->seconds = read_stamp(c, head);
    f->nanoseconds = read_stamp(c, head + 4) * (c->nanoseconds ? 1 : 1000);
    f->captured = read32(c, head + 8);
    f->length = read32(c, head + 12);
    /* version 2.2 wrote the lengths in the other order, and 2.3 sometimes did */
    if (c->minor < 3 || (c->minor == 3 && f->captured > f->length)) {
        const uint32_t captured = f->length;
        f->length = f->captured;
        f->captured = captured;
    }
    if (f->captured > MAX_SNAPSHOT) {
        return set_error(c, damaged);
    }
    f->bytes = read_bytes(c, f->captured);
    if (!f->bytes) {
        return truncation_result(c);
    }
    if (f->captured > c->snapshot) {
        f->captured = c->snapshot;
    }
    f->link = c->link;
    return 1;
}

/* --- pcapng ---------------------------------------------------------------------------- */

struct block {
    uint32_t type, size;
    const uint8_t *body; /* of `size` bytes */
};

/* Whether a block can have this length, header and trailer included. */
static int is_block_length(uint32_t total, uint32_t least) {
    return total >= least && total <= MAX_BLOCK && total % 4 == 0;
}

/* Reads the header of a section: sets the byte order, and forgets the interfaces before it. */
static int read_section(struct capture *c, int first) {
    const uint8_t *head = read_bytes(c, 8);
    if (!head) {
        return truncation_result(c);
    }
    c->swapped = 0;
    if (read32(c, head + 4) != magic_order) {
        c->swapped = 1;
        if (read32(c, head + 4) != magic_order) {
            return set_error(c, first ? no_capture : damaged);
        }
    }
    const uint32_t total = read32(c, head);
    if (!is_block_length(total, 28)) {
        return set_error(c, damaged);
    }
    const uint8_t *rest = read_bytes(c, total - 12);
    if (!rest) {
        return truncation_result(c);
    }
    const uint32_t minor = read16(c, rest + 2);
    if (read16(c, rest) != 1 || (first && minor != 0 && minor != 2)) {
        return set_error(c, first ? no_capture : "a section has another version");
    }
    if (!first && read32(c, rest + total - 16) != total) {
        return set_error(c, damaged); /* libpcap does not check the trailer of the first section */
    }
    c->n_interfaces = 0;
    return 1;
}

static int next_block(struct capture *c, struct block *b) {
    for (;;) {
        const uint8_t *head = read_bytes(c, 4);
        if (!head) {
            return end_result(c);
        }
        b->type = read32(c, head);
        if (b->type != magic_section) { /* the same in both byte orders */
            break;
        }
        if (read_section(c, 0) < 0) {
            return -1;
        }
    }
    const uint8_t *length = read_bytes(c, 4);
    if (!length) {
        return truncation_result(c);
    }
    const uint32_t total = read32(c, length);
    if (!is_block_length(total, 12)) {
        return set_error(c, damaged);
    }
    b->body = read_bytes(c, total - 8);
    if (!b->body) {
        return truncation_result(c);
    }
    b->size = total - 12;
    return read32(c, b->body + b->size) == total ? 1 : set_error(c, damaged);
}

static int set_resolution(struct interface *i, uint32_t value) {
    const uint32_t exponent = value & 0x7f;
    i->binary = value >> 7 != 0;
    i->resolution = 1;
    if (exponent > (i->binary ? 63u : 19u)) {
        return 0;
    }
    for (uint32_t n = 0; n < exponent; n++) {
        i->resolution *= i->binary ? 2 : 10;
    }
    return 1;
}

/* Reads an interface's options; 0 if they are damaged. */
static int read_options(const struct capture *c, const uint8_t *p, uint32_t n,
                        struct interface *i) {
    int resolutions = 0, offsets = 0;
    while (n) {
        if (n < 4) {
            return 0;
        }
        const uint32_t code = read16(c, p);
        const uint32_t size = read16(c, p + 2);
        const uint32_t padded = (size + 3) / 4 * 4;
        p += 4;
        n -= 4;
        if (padded > n) {
            return 0;
        }
        if (code == OPTION_END) {
            return size == 0;
        }
        if (code == OPTION_RESOLUTION && (size != 1 || resolutions++ || !set_resolution(i, *p))) {
            return 0;
        }
        if (code == OPTION_CHECK && size == 1) { /* bits by the format, bytes by some writers */
            i->check = *p % 8 == 0 ? *p / 8u : *p;
        }
        if (code == OPTION_OFFSET) {
            if (size != 8 || offsets++) {
                return 0;
            }
            i->offset = read64(c, p);
        }
        p += padded;
        n -= padded;
    }
    return 1;
}

/* Returns 0, or -1. All interfaces must agree: the meter has one link type. */
static int add_interface(struct capture *c, const struct block *b) {
    struct interface i = {.resolution = 1000000};
    if (b->size < 8 || !read_options(c, b->body + 8, b->size - 8, &i)) {
        return set_error(c, damaged);
    }
    i.link = link_with_check(read16(c, b->body), i.check);
    i.snapshot = snapshot_of(read32(c, b->body + 4));
    if (c->n_interfaces == c->room) {
        const uint32_t room = c->room ? 2 * c->room : 16;
        struct interface *more =
            room > MAX_INTERFACES ? NULL : realloc(c->interfaces, room * sizeof *more);
        if (!more) {
            return set_error(c, "it has too many interfaces");
        }
        c->interfaces = more;
        c->room = room;
    }
    c->interfaces[c->n_interfaces++] = i;
    return 0;
}

static int open_blocks(struct capture *c) {
    struct block b;
    int got;
    c->blocks = 1;
    if (read_section(c, 1) < 0) {
        return -1;
    }
    do {
        got = next_block(c, &b);
        if (got <= 0) {
            return got < 0 || *c->stop ? got : set_error(c, "it names no interface");
        }
        if (b.type == BLOCK_OLD_PACKET || b.type == BLOCK_SIMPLE || b.type == BLOCK_PACKET) {
            return set_error(c, "a packet comes before its interface");
        }
    } while (b.type != BLOCK_INTERFACE);
    if (add_interface(c, &b) < 0) {
        return -1;
    }
    c->link = c->interfaces[0].link;
    return 0;
}

static void set_time(struct captured *f, const struct interface *i, uint64_t units) {
    /* Never 0: the bounds of the exponent keep `resolution` within 64 bits. */
    uint64_t part = units % i->resolution;
    if (i->binary) {
        part = part * SECOND / i->resolution;
    } else if (i->resolution < SECOND) {
        part *= SECOND / i->resolution;
    } else {
        part /= i->resolution / SECOND;
    }
    f->seconds = (int64_t)(units / i->resolution + i->offset);
    f->nanoseconds = (int64_t)part;
}

/* Reads the packet of a block. Returns 1; 0 for a block without one. */
static int read_packet(struct capture *c, const struct block *b, struct captured *f) {
    uint32_t interface = 0, at = 4;
    uint64_t units = 0;
    if (b->type == BLOCK_PACKET || b->type == BLOCK_OLD_PACKET) {
        at = 20;
        if (b->size < at) {
            return set_error(c, damaged);
        }
        interface = b->type == BLOCK_PACKET ? read32(c, b->body) : read16(c, b->body);
        units = (uint64_t)read32(c, b->body + 4) << 32 | read32(c, b->body + 8);
        f->captured = read32(c, b->body + 12);
        f->length = read32(c, b->body + 16);
    } else if (b->type == BLOCK_SIMPLE) {
        if (b->size < at) {
            return set_error(c, damaged);
        }
        f->length = read32(c, b->body);
    } else {
        return 0;
    }
    if (interface >= c->n_interfaces) {
        return set_error(c, damaged);
    }
    const struct interface *i = &c->interfaces[interface];
    if (b->type == BLOCK_SIMPLE) {
        f->captured = f->length < i->snapshot ? f->length : i->snapshot;
    }
    if (f->captured > i->snapshot || f->captured > b->size - at) {
        return set_error(c, damaged);
    }
    f->bytes = b->body + at;
    f->link = i->link;
    set_time(f, i, units);
    return 1;
}

static int next_packet(struct capture *c, struct captured *f) {
    int got;
    do {
        struct block b;
        got = next_block(c, &b);
        if (got <= 0) {
            return got;
        }
        got = b.type == BLOCK_INTERFACE ? add_interface(c, &b) : read_packet(c, &b, f);
    } while (!got);
    return got;
}

/* --- both ------------------------------------------------------------------------------ */

static int read_format(struct capture *c) {
    const uint8_t *head = read_bytes(c, 4);
    if (!head) {
        return *c->stop ? 0 : set_error(c, c->wrong ? c->wrong : no_capture);
    }
    for (c->swapped = 0; c->swapped < 2; c->swapped++) {
        const uint32_t magic = read32(c, head);
        if (magic == magic_section) {
            return open_blocks(c);
        }
        if (magic == magic_us || magic == magic_ns) {
            c->nanoseconds = magic == magic_ns;
            return open_pcap(c);
        }
    }
    if ((head[0] == 0x1f && head[1] == 0x8b) || memcmp(head, "BZh", 3) == 0 ||
        memcmp(head, "\xfd\x37zX", 4) == 0 || memcmp(head, "\x28\xb5\x2f\xfd", 4) == 0) {
        return set_error(
            c, "it is packed: unpack it into standard input (zcat, bzcat, xzcat, zstdcat)");
    }
    return set_error(c, no_capture);
}

struct capture *capture_open(int fd, const volatile sig_atomic_t *stop, const char **wrong) {
    struct capture *c = calloc(1, sizeof *c);
    if (c) {
        c->data =
            malloc((size_t)MAX_BLOCK + PIECE); /* the system maps pages when a block needs it */
    }
    if (!c || !c->data) {
        *wrong = "out of memory";
        free(c);
        return NULL;
    }
    c->fd = fd;
    c->stop = stop;
    if (read_format(c) < 0) {
        *wrong = c->wrong;
        capture_close(c);
        return NULL;
    }
    return c;
}

void capture_close(struct capture *c) {
    free(c->interfaces);
    free(c->data);
    free(c);
}

uint32_t capture_link(const struct capture *c) {
    return c->link;
}

int capture_waits(const struct capture *c) {
    return c->at == c->end;
}

int capture_next(struct capture *c, struct captured *f, const char **wrong) {
    const int got = *c->stop ? 0 : c->blocks ? next_packet(c, f) : next_pcap(c, f);
    *wrong = c->wrong;
    return got;
}
