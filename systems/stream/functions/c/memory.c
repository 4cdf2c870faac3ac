// SPDX-License-Identifier: Apache-2.0
/* See memory.h. */
#define _GNU_SOURCE /* memfd_create */

#include "memory.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/memfd.h>
#include <rte_errno.h>
#include <rte_mbuf.h>
#include <rte_memzone.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, HUGE_PAGE = 2 << 20, CACHE = 256 };

static void reserve_zone(struct shared_memory *m, const char *name) {
    snprintf(m->zone, sizeof m->zone, "n3ic_%s", name);
    const struct rte_memzone *zone =
        rte_memzone_reserve_aligned(m->zone, m->bytes, SOCKET_ID_ANY, 0, PAGE);
    if (!zone) {
        fail(EXIT_FAILED, "no %zu bytes of huge pages for %s: %s; reserve more of them", m->bytes,
             name, rte_strerror(rte_errno));
    }
    m->base = zone->addr;
}

static void make_file(struct shared_memory *m, const char *name, int huge) {
    char path[64];
    m->file = memfd_create(name, MFD_CLOEXEC | (huge ? MFD_HUGETLB | MFD_HUGE_2MB : 0));
    if (m->file < 0 || ftruncate(m->file, (off_t)m->bytes)) {
        fail(EXIT_FAILED, "no memory file for %s: %s", name, strerror(errno));
    }
    m->base = mmap(NULL, m->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, m->file, 0);
    if (m->base == MAP_FAILED) {
        fail(EXIT_FAILED, "no %zu bytes of %s for %s: %s", m->bytes, huge ? "huge pages" : "memory",
             name, strerror(errno));
    }
    snprintf(path, sizeof path, "/proc/self/fd/%d", m->file);
    m->readable = open(path, O_RDONLY | O_CLOEXEC);
    if (m->readable < 0) {
        fail(EXIT_FAILED, "%s cannot be opened for reading: %s", name, strerror(errno));
    }
}

struct shared_memory memory_new(enum memory kind, const char *name, size_t bytes) {
    struct shared_memory m = {.file = -1, .readable = -1};
    m.bytes = RTE_ALIGN_CEIL(bytes, (size_t)(kind == MEMORY_FILE ? PAGE : HUGE_PAGE));
    if (kind == MEMORY_DPDK) {
        m.bytes = RTE_ALIGN_CEIL(bytes, (size_t)PAGE);
        reserve_zone(&m, name);
        memset(m.base, 0, m.bytes);
    } else {
        make_file(&m, name, kind == MEMORY_HUGE_FILE);
    }
    return m;
}

void memory_free(struct shared_memory *m) {
    if (m->file >= 0) {
        munmap(m->base, m->bytes);
        close(m->file);
        close(m->readable);
    } else if (m->zone[0]) {
        rte_memzone_free(rte_memzone_lookup(m->zone));
    }
    *m = (struct shared_memory){.file = -1, .readable = -1};
}

struct rte_mempool *memory_pool(const struct settings *s, struct shared_memory *m) {
    const unsigned object = sizeof(struct rte_mbuf) + RTE_PKTMBUF_HEADROOM + s->buffer_bytes;
    struct rte_pktmbuf_pool_private rooms = {
        .mbuf_data_room_size = (uint16_t)(RTE_PKTMBUF_HEADROOM + s->buffer_bytes)};
    /* No device accesses a memory file by DMA, so objects may cross pages. */
    const unsigned flags = s->memory == MEMORY_DPDK ? 0 : RTE_MEMPOOL_F_NO_IOVA_CONTIG;
    struct rte_mempool *pool = rte_mempool_create_empty("packets", s->buffers, object, CACHE,
                                                        sizeof rooms, SOCKET_ID_ANY, flags);
    size_t least, alignment;
    if (!pool || rte_mempool_set_ops_byname(pool, RTE_MBUF_DEFAULT_MEMPOOL_OPS, NULL)) {
        fail(EXIT_FAILED, "no pool of packet buffers: %s", rte_strerror(rte_errno));
    }
    rte_pktmbuf_pool_init(pool, &rooms);
    const unsigned shift = 21; /* 2 MiB pages, whose ends are wasted, as no object may cross one */
    const ssize_t bytes = rte_mempool_op_calc_mem_size_default(
        pool, s->buffers, s->memory == MEMORY_DPDK ? shift : 0, &least, &alignment);
    if (bytes < 0) {
        fail(EXIT_FAILED, "no pool of packet buffers: %s", rte_strerror((int)-bytes));
    }
    *m = memory_new(s->memory, "packets", (size_t)bytes + HUGE_PAGE);
    const int count =
        s->memory == MEMORY_DPDK
            ? rte_mempool_populate_virt(pool, m->base, m->bytes, HUGE_PAGE, NULL, NULL)
            : rte_mempool_populate_iova(pool, m->base, RTE_BAD_IOVA, m->bytes, NULL, NULL);
    if (count < 0 || (unsigned)count < s->buffers) {
        fail(EXIT_FAILED, "expected a pool of %u packet buffers, got %d", s->buffers, count);
    }
    rte_mempool_obj_iter(pool, rte_pktmbuf_init, NULL);
    return pool;
}
