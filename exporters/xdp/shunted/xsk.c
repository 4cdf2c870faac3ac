// SPDX-License-Identifier: Apache-2.0
#include "xsk.h"

#include <errno.h>
#include <linux/if_xdp.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

/* Of Linux 6.6, which older headers lack: frames that lie in several chunks. */
#define USE_PIECES (1 << 4)
#define MORE_PIECES 1u

static int map_ring(int fd, struct xsk_ring *r, uint64_t place, size_t size,
                    const struct xdp_ring_offset *at) {
    uint8_t *start =
        mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, (off_t)place);

    if (start == MAP_FAILED)
        return 0;
    r->start = start;
    r->size = size;
    r->producer = (uint32_t *)(void *)(start + at->producer);
    r->consumer = (uint32_t *)(void *)(start + at->consumer);
    r->entries = start + at->desc;
    return 1;
}

static int set_option(int fd, int option, const void *value, size_t size) {
    return !setsockopt(fd, SOL_XDP, option, value, (socklen_t)size);
}

static int map_rings(struct xsk *x) {
    struct xdp_mmap_offsets at;
    socklen_t size = sizeof at;

    return !getsockopt(x->fd, SOL_XDP, XDP_MMAP_OFFSETS, &at, &size) &&
           map_ring(x->fd, &x->filled, XDP_UMEM_PGOFF_FILL_RING,
                    at.fr.desc + x->chunks * sizeof(uint64_t), &at.fr) &&
           map_ring(x->fd, &x->received, XDP_PGOFF_RX_RING,
                    at.rx.desc + x->chunks * sizeof(struct xdp_desc), &at.rx);
}

/* Gives a chunk to the kernel. There is room: the ring has one entry for each. */
static void release_chunk(struct xsk *x, uint64_t address) {
    uint32_t at = *x->filled.producer;

    ((uint64_t *)x->filled.entries)[at & (x->chunks - 1)] = address - address % XSK_CHUNK;
    __atomic_store_n(x->filled.producer, at + 1, __ATOMIC_RELEASE);
}

static int bind_queue(const struct xsk *x, uint32_t interface, uint32_t queue) {
    struct sockaddr_xdp address = {
        .sxdp_family = AF_XDP,
        .sxdp_flags = USE_PIECES,
        .sxdp_ifindex = interface,
        .sxdp_queue_id = queue,
    };

    if (!bind(x->fd, (struct sockaddr *)&address, sizeof address))
        return 1;
    address.sxdp_flags = 0;
    return errno == EINVAL && !bind(x->fd, (struct sockaddr *)&address, sizeof address);
}

int xsk_open(struct xsk *x, uint32_t interface, uint32_t queue, uint32_t chunks) {
    struct xdp_umem_reg area = {.len = (uint64_t)chunks * XSK_CHUNK, .chunk_size = XSK_CHUNK};

    *x = (struct xsk){.fd = -1, .chunks = chunks};
    x->memory = mmap(NULL, area.len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (x->memory == MAP_FAILED) {
        x->memory = NULL;
        return 0;
    }
    area.addr = (uint64_t)(uintptr_t)x->memory;
    x->fd = socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0);
    if (x->fd < 0 || !set_option(x->fd, XDP_UMEM_REG, &area, sizeof area) ||
        !set_option(x->fd, XDP_UMEM_FILL_RING, &chunks, sizeof chunks) ||
        !set_option(x->fd, XDP_UMEM_COMPLETION_RING, &chunks, sizeof chunks) ||
        !set_option(x->fd, XDP_RX_RING, &chunks, sizeof chunks) || !map_rings(x))
        return 0;
    for (uint32_t i = 0; i < chunks; i++)
        release_chunk(x, (uint64_t)i * XSK_CHUNK);
    return bind_queue(x, interface, queue);
}

/* What the program noted before a frame. It is wiped, so that it is not read twice. */
static const struct handed *read_metadata(struct xsk *x, uint64_t address, struct handed *out) {
    uint8_t *before = x->memory + address - sizeof *out;

    if (address % XSK_CHUNK < sizeof *out)
        return NULL;
    memcpy(out, before, sizeof *out);
    memset(before, 0, sizeof *out);
    return out->known == HANDED ? out : NULL;
}

uint32_t xsk_read(struct xsk *x, xsk_consumer consume, void *to) {
    uint32_t end = __atomic_load_n(x->received.producer, __ATOMIC_ACQUIRE), frames = 0;
    const struct xdp_desc *entries = x->received.entries;

    for (uint32_t at = *x->received.consumer; at != end;) {
        const struct xdp_desc *first = &entries[at & (x->chunks - 1)], *d = first;
        struct handed buffer;
        struct xsk_frame frame = {read_metadata(x, first->addr, &buffer), x->memory + first->addr,
                                  0};
        size_t length = 0;
        uint32_t next = at;

        do { /* the kernel shows all pieces of a frame at once */
            d = &entries[next++ & (x->chunks - 1)];
            if (length + d->len <= sizeof x->whole && (d->options & MORE_PIECES || d != first))
                memcpy(x->whole + length, x->memory + d->addr, d->len);
            length += d->len;
        } while (d->options & MORE_PIECES && next != end);
        if (d != first)
            frame.bytes = x->whole;
        frame.length = (uint32_t)length;
        if (length <= sizeof x->whole)
            consume(to, &frame);
        else
            x->cut++;
        frames++;
        for (; at != next; at++)
            release_chunk(x, entries[at & (x->chunks - 1)].addr);
        __atomic_store_n(x->received.consumer, at, __ATOMIC_RELEASE);
    }
    return frames;
}

int xsk_lost(const struct xsk *x, uint64_t *lost) {
    struct xdp_statistics s = {0};
    socklen_t size = sizeof s;

    if (getsockopt(x->fd, SOL_XDP, XDP_STATISTICS, &s, &size))
        return 0;
    /* A frame without a free chunk counts as dropped, too. */
    *lost = s.rx_dropped + s.rx_ring_full + x->cut;
    return 1;
}

void xsk_close(struct xsk *x) {
    if (x->received.start)
        munmap(x->received.start, x->received.size);
    if (x->filled.start)
        munmap(x->filled.start, x->filled.size);
    if (x->fd >= 0)
        close(x->fd);
    if (x->memory)
        munmap(x->memory, (size_t)x->chunks * XSK_CHUNK);
    *x = (struct xsk){.fd = -1};
}
